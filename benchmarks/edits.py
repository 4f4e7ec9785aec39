"""What a person waits for who edits a model that the file trains: the real language server, over the wire.

A file of a thousand lines has a GPT of its own attention and blocks, its loss, a call of `ts.train`, and functions that
have nothing to do with these. An edit types a number, in a `forward`, in a constructor, in the loss or elsewhere; the
time is from the edit until the hints of sixty lines around it are there.

python -m benchmarks edits [-- --rounds 20 --lines 1000 --save]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.editor import REST, VISIBLE
from benchmarks.frontend import p95, program
from benchmarks.lsp_client import Client
from benchmarks.record import ROOT, circumstances, save

GOAL = 50
"""milliseconds, of the 95th percentile, at 1,000 lines"""
HEAD = '''"""A GPT and how it is trained."""
from functools import partial

import tessera as ts
from tessera import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        B, S, D = x.shape
        q, k, v = self.qkv(x).reshape(B, S, 3, self.heads, D // self.heads).transpose(2, 0, 3, 1, 4)
        mixed = ts.attention(q, k, v, causal=True)
        mixed = mixed.transpose(0, 2, 1, 3).reshape(B, S, D) * 1.0
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, width, heads, key=None):
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        h = x + self.attention(self.before(x))
        up = ts.gelu(self.up(self.between(h)))
        down = self.down(up) * 1.0
        return h + down


class GPT(nn.Module):
    def __init__(self, words, length, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Stack(partial(Block, width, heads), layers)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)
        self.scale = 1.0

    def forward(self, ids):
        B, S = ids.shape
        x = self.tokens(ids) + self.places(ts.arange(S))
        x = self.blocks(x) * 1.0
        logits = self.head(self.norm(x))
        return logits


def loss(model, ids: Tensor["B", 64, ts.i64], targets: Tensor["B", 64, ts.i64]):
    logits = model(ids)
    flat = logits.reshape(-1, logits.shape[-1])
    return ts.cross_entropy(flat, targets.reshape(-1)) * 1.0

'''
TAIL = """

model = GPT(words=65, length=64, width=128, heads=4, layers=4)
run = ts.train(model, ts.optimizers.AdamW(1e-3), loss, batches)
"""
PLACES = {
    "attention": "reshape(B, S, D) * ",
    "block": "self.down(up) * ",
    "model": "self.blocks(x) * ",
    "loss": "targets.reshape(-1)) * ",
    "constructor": "self.scale = ",
    "elsewhere": "hidden * 0",
}
"""where a number is typed: what stands before it"""


def text(lines: int) -> str:
    rest = program(max(lines - HEAD.count("\n") - TAIL.count("\n"), 0))
    return HEAD + rest.partition("\n")[2] + TAIL


class Edited:
    """The server with the file open."""

    def __init__(self, folder: Path, lines: int) -> None:
        self.lines = text(lines).split("\n")
        self.uri = (folder / "model.py").as_uri()
        environment = {"VIRTUAL_ENV": str(ROOT / ".venv"), "PYTHONPATH": f"{ROOT}:{ROOT / 'lsp'}"}
        self.client = Client([sys.executable, "-P", "-m", "tessera_lsp"], folder, environment)
        self.client.open(self.uri, text(lines))
        self.client.hints(self.uri, 0, len(self.lines))

    def edit(self, before: str, number: int) -> float:
        """Milliseconds until the hints around an edit are there."""
        row = next(i for i, line in enumerate(self.lines) if before in line)
        line = self.lines[row]
        start = line.index(before) + len(before)
        end = start
        while end < len(line) and (line[end].isdigit() or line[end] == "."):
            end += 1
        written = f".{number}" if before.endswith("0") else f"{number}.0"
        self.lines[row] = line[:start] + written + line[end:]
        began = time.perf_counter()
        self.client.change(self.uri, (row, start), (row, end), written)
        found = self.client.hints(self.uri, max(row - VISIBLE // 2, 0), row + VISIBLE // 2)
        took = (time.perf_counter() - began) * 1e3
        assert found, f"no hints around line {row + 1}"
        return took


def measure(lines: int, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in PLACES}
    with tempfile.TemporaryDirectory() as folder:
        edited = Edited(Path(folder), lines)
        try:
            for number in range(1, rounds + 2):
                for name, before in PLACES.items():
                    time.sleep(REST)
                    took = edited.edit(before, number)
                    times[name] += [took] if number > 1 else []  # the first loads what is needed
        finally:
            edited.client.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results/edits.json")
    options = parser.parse_args()
    print(" ".join(f"{k}={v}" for k, v in circumstances().items()))
    rows = {
        name: {"p50_ms": round(statistics.median(times), 1), "p95_ms": round(p95(times), 1)}
        for name, times in measure(options.lines, options.rounds).items()
    }
    for name, row in rows.items():
        print(f"{name:12s} p50 {row['p50_ms']:6.1f} ms  p95 {row['p95_ms']:6.1f} ms")
    print(f"{text(options.lines).count(chr(10))} lines, {options.rounds} edits each; goal: p95 <= {GOAL} ms")
    if options.save:
        print(f"kept in {save('edits', {'lines': options.lines, 'edits': rows})}")


if __name__ == "__main__":
    main()
