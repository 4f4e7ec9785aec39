"""How long the front end takes on a file of a thousand lines: cold, after an edit, after a line is inserted.

Cold is a file that nothing is known of, in a process that has analysed others, as a language server has; what the
first file of a process waits for beyond that, its imports, is `start_ms`.

python benchmarks/frontend.py [--lines 1000] [--json]
"""

from __future__ import annotations

import argparse
import compileall
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tessera.compiler.frontend.incremental import FileAnalysis

HEAD = '''"""A generated model, as long as asked for."""
import math
from dataclasses import dataclass

import tessera as ts
from tessera import Const, Tensor, f32, softmax

EPS = 1e-5
'''

BLOCK = '''

@dataclass
class Config{i}:
    heads: int = 8
    scale: float = 0.125


config{i} = Config{i}(heads={i} + 1)


def heads_{i}(x, num_heads):
    """[B, S, D] -> [B, H, S, D // H]"""
    B, S, D = x.shape
    return x.reshape(B, S, num_heads, D // num_heads).transpose(0, 2, 1, 3)


@ts.function
def layer_norm_{i}(x: Tensor["B", "S", "D"], weight: Tensor["D"], bias: Tensor["D"]) -> Tensor["B", "S", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    centred = x - mean
    var = (centred * centred).mean(axis=-1, keepdim=True)
    return centred / ts.sqrt(var + EPS) * weight + bias


@ts.function
def attention_{i}(
    x: Tensor["B", "S", "D"], wq: Tensor["D", "D"], wk: Tensor["D", "D"], wv: Tensor["D", "D"], num_heads: Const["H"],
    mask: Tensor["S", "S"] | None = None,
) -> Tensor["B", "S", "D"]:
    assert D % H == 0, f"{{D}} is not divisible by {{H}}"
    q = heads_{i}(x @ wq, num_heads)
    k = heads_{i}(x @ wk, num_heads)
    v = heads_{i}(x @ wv, num_heads)
    scores = q @ k.mT * config{i}.scale
    if mask is not None:
        scores = scores + mask
    p = softmax(scores, axis=-1)
    out = (p @ v).transpose(0, 2, 1, 3)
    return out.reshape(B, S, D)


@ts.function
def feed_forward_{i}(x: Tensor["B", "S", "D"], up: Tensor["D", "F"], down: Tensor["F", "D"]) -> Tensor["B", "S", "D"]:
    hidden = x @ up
    gate = ts.sigmoid(hidden)
    hidden = hidden * gate
    for _ in range(2):
        hidden = ts.maximum(hidden, hidden * 0.01)
    return x + hidden @ down


@ts.function
def block_{i}(x: Tensor["B", "S", "D"], g: Tensor["D"], b: Tensor["D"], up: Tensor["D", "F"], down: Tensor["F", "D"]):
    h = layer_norm_{i}(x, g, b)
    return x + feed_forward_{i}(h, up, down)
'''


def program(lines: int) -> str:
    text, i = HEAD, 0
    while text.count("\n") < lines:
        text += BLOCK.format(i=i)
        i += 1
    return text


START = """
import time
started = time.perf_counter()
from tessera.compiler.frontend.incremental import FileAnalysis
FileAnalysis("start.py").update("import tessera as ts\\n@ts.function\\ndef f(x: ts.Tensor['B']):\\n    return x + 1\\n")
print((time.perf_counter() - started) * 1e3)
"""


def start_milliseconds() -> float:
    """From nothing imported to the analysis of two lines, in a process of its own."""
    return float(subprocess.run([sys.executable, "-c", START], capture_output=True, check=True).stdout)


def p95(times: list[float]) -> float:
    return sorted(times)[math.ceil(0.95 * len(times)) - 1]


def milliseconds(run: object) -> float:
    started = time.perf_counter_ns()
    run()  # type: ignore[operator]
    return (time.perf_counter_ns() - started) / 1e6


def cold_milliseconds(text: str) -> float:
    gc.collect()  # what the file before has left is no cost of this one
    return milliseconds(lambda: FileAnalysis("cold.py").update(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    text = program(options.lines)
    compileall.compile_dir(Path(__file__).parents[1] / "tessera", quiet=2)  # as an installer does
    FileAnalysis("warm.py").update(program(100))  # imports and caches of the process
    gc.collect()
    gc.freeze()  # as the language server does: what is loaded now stays, and is no collector's business
    cold = [cold_milliseconds(text + f"\n# {i}\n") for i in range(options.rounds)]
    kept = FileAnalysis("edited.py")
    kept.update(text)
    edits, inserts = [], []
    for n in range(options.rounds):
        edited = text.replace("hidden * 0.01", f"hidden * 0.{n + 2:02d}", 1)
        edits.append(milliseconds(lambda t=edited: kept.update(t)))
        inserted = edited.replace("EPS = 1e-5\n", "EPS = 1e-5\n" + "\n" * (n + 1))
        inserts.append(milliseconds(lambda t=inserted: kept.update(t)))
        kept.update(edited)
    found = {
        "lines": text.count("\n"), "functions": len(kept.analyses), "findings": len(kept.diagnostics),
        "start_ms": statistics.median(start_milliseconds() for _ in range(5)),
        "cold_ms": statistics.median(cold), "cold_p95_ms": p95(cold),
        "edit_ms": statistics.median(edits), "edit_p95_ms": p95(edits),
        "insert_line_ms": statistics.median(inserts), "insert_line_p95_ms": p95(inserts),
    }  # fmt: skip
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:20} {value:.2f}" if isinstance(value, float) else f"{name:20} {value}")


if __name__ == "__main__":
    main()
