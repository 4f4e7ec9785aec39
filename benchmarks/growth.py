"""What the language server's memory does over a long session: one constant edited again and again.

After every edit the hints of its function are asked for, now and then what else editors ask for. The server is given
time to collect before each figure.

python -m benchmarks growth -- [--edits 2000] [--lines 300]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.frontend import program
from benchmarks.lsp_client import Client
from benchmarks.record import ROOT

MARK = "hidden * 0.01"
KERNEL = """

@ts.kernel
def scaled(x: Tensor["M", "N"]) -> Tensor["M", "N"]:
    rows = x[tile_m:tile_m + 32, :]
    out = rows * 0.01
    ts.tile.store(out, tile_m)
"""
IDLE = 3.0
"""seconds after which the server has collected what is left over"""
WARM = 100
"""edits after which all that answers is loaded"""
GOAL = 5.0
"""megabytes that the edits may add from there on"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=2000)
    parser.add_argument("--lines", type=int, default=300)
    options = parser.parse_args()
    text = program(options.lines) + KERNEL
    lines = text.split("\n")
    marks = [(i, line.index("0.01")) for i, line in enumerate(lines) if "* 0.01" in line]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}"}
    with tempfile.TemporaryDirectory() as name:
        client = Client([sys.executable, "-P", "-m", "tessera_lsp"], Path(name), environment)
        try:
            uri = (Path(name) / "model.py").as_uri()
            client.open(uri, text)
            figures: list[float] = []
            for n in range(-WARM, options.edits + 1):
                row, col = marks[n % len(marks)]
                client.change(uri, (row, col), (row, col + 4), f"0.{n % 90 + 10}")
                client.hints(uri, max(row - 30, 0), row + 30)
                if n % 50 == 0:
                    ask(client, uri, row, col)
                if n >= 0 and n % max(options.edits // 4, 1) == 0:
                    time.sleep(IDLE)
                    figures.append(client.resident_megabytes())
                    print(f"edits={n} megabytes={figures[-1]:.1f}", flush=True)
        finally:
            client.close()
    grown = figures[-1] - figures[0]
    print(f"grown={grown:.1f} (goal: at most {GOAL:.0f} megabytes)")
    return 0 if grown <= GOAL else 1


def ask(client: Client, uri: str, row: int, col: int) -> None:
    """What editors ask for beside hints."""
    document, at = {"uri": uri}, {"line": row, "character": col}
    for method in ("hover", "completion", "documentHighlight", "signatureHelp"):
        client.request(f"textDocument/{method}", {"textDocument": document, "position": at})
    for method in ("documentSymbol", "codeLens", "foldingRange", "semanticTokens/full"):
        client.request(f"textDocument/{method}", {"textDocument": document})


if __name__ == "__main__":
    sys.exit(main())
