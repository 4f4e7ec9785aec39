"""What the runtime costs: import, cold compilation, a hit in the disk cache, a repeated call, an eager operator.

python benchmarks/runtime.py [--target cpu] [--json]

Times are medians of several runs, in microseconds or milliseconds as said. Compilation and disk hits are measured in
processes of their own; the first compilation of a process, which loads the compiler, is shown apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PROGRAM = """
import json, sys, time
import numpy as np
import tessera as ts

@ts.function
def warm(x: ts.Tensor["n", ts.f32]):
    return ts.tanh(x) - 1

@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y

@ts.function
def softmax(x: ts.Tensor["B", "S", ts.f32]):
    return ts.softmax(x * 0.5)

def milliseconds(run):
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)

x, y, m = np.ones(4096, np.float32), np.ones(4096, np.float32), np.ones((64, 512), np.float32)
found = {
    "first": milliseconds(lambda: warm(x)),
    "saxpy": milliseconds(lambda: saxpy(x, y, 2.0)),
    "softmax": milliseconds(lambda: softmax(m)),
}
found["origin"] = softmax.launcher.last.origin
print(json.dumps(found))
"""


def run(code: str, target: str, cache: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(code, encoding="utf-8")
        env = {**os.environ, "TESSERA_TARGET": target, "TESSERA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, check=True)
    return done.stdout


def import_time(repeats: int) -> float:
    code = "import time; t = time.perf_counter(); import tessera; print(1e3 * (time.perf_counter() - t))"
    with tempfile.TemporaryDirectory() as cache:
        return statistics.median(float(run(code, "auto", cache)) for _ in range(repeats))


def compilations(target: str, repeats: int) -> dict[str, float]:
    """Cold: an empty cache each time. Disk: the same program again."""
    cold: list[dict[str, Any]] = []
    disk: list[dict[str, Any]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            program = Path(cache) / "program.py"
            program.write_text(PROGRAM, encoding="utf-8")
            env = {**os.environ, "TESSERA_TARGET": target, "TESSERA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
            for found in (cold, disk):
                done = subprocess.run(
                    [sys.executable, str(program)], env=env, capture_output=True, text=True, check=True
                )
                found.append(json.loads(done.stdout))
    disk = [f for f in disk if f["origin"] == "disk"]  # a checkout that is edited meanwhile compiles afresh
    if not disk:
        raise SystemExit("nothing came from the disk cache: are Tessera's files being edited, or the cache turned off?")
    out: dict[str, float] = {}
    for what in ("first", "saxpy", "softmax"):
        out[f"cold compile, {what}, ms"] = statistics.median(f[what] for f in cold)
        out[f"disk cache, {what}, ms"] = statistics.median(f[what] for f in disk)
    return out


def calls(target: str) -> dict[str, float]:
    """A repeated call on 1,024-element arrays, in microseconds, beside NumPy's own."""
    os.environ["TESSERA_TARGET"] = target
    import numpy as np

    import tessera as ts

    @ts.function
    def add(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        return x + y

    @ts.kernel
    def into(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = x[i] + y[i]

    x, y = np.ones(1024, np.float32), np.ones(1024, np.float32)
    a, b = ts.tensor(x), ts.tensor(y)
    tried = {
        "function of two arrays": lambda: add(x, y),
        "the same by keyword": lambda: add(x=x, y=y),
        "kernel in place": lambda: into(x, y),
        "eager a + b of Tensors": lambda: a + b,
        "numpy x + y": lambda: x + y,
    }
    if "torch" in sys.modules or _has("torch"):
        import torch

        tx, ty = torch.from_numpy(x), torch.from_numpy(y)
        tried["function of two torch tensors"] = lambda: add(tx, ty)
        tried["torch x + y"] = lambda: tx + ty
    out: dict[str, float] = {}
    for name, call in tried.items():
        for _ in range(200):
            call()
        times = [1e6 * t / 2000 for t in timeit.repeat(call, number=2000, repeat=9)]
        out[f"repeated call, {name}, us"] = statistics.median(times)
    return out


def _has(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {"import tessera, ms": import_time(given.repeats)}
    found |= compilations(given.target, given.repeats)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TESSERA_CACHE_DIR"] = cache
        found |= calls(given.target)
    if given.json:
        print(json.dumps({"target": given.target, **found}, indent=2))
        return
    for name, value in found.items():
        print(f"{name:48} {value:10.2f}")


if __name__ == "__main__":
    main()
