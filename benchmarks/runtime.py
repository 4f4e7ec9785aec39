"""What the runtime costs: import, cold compilation, a hit in the disk cache, a repeated call, an eager operator.

python benchmarks/runtime.py [--target cpu] [--json] [--only profiler]

Times are medians of several runs, in microseconds or milliseconds as said. Compilation and disk hits are measured in
processes of their own; the first compilation of a process, which loads the compiler, is shown apart.

`profiler`: what recording tiles adds to CPU kernels whose tiles take about 6, 20 and 100 us, in per cent, with one
record a tile and with two. The same kernel with and without records takes turns, on one core and by the processor's
clock; each turn gives one difference, of which the median is shown, and how far the quartiles are apart.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
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


TILES_US = (6, 20, 100)
RUN_NS = 20e6
"""of one sample: as many tiles as fill it, so that what a launch costs once does not show"""


def profiler(rounds: int) -> dict[str, float]:
    """What tile records add, in per cent: to tiles of one phase and of three, by the time that a tile takes."""
    from tessera.runtime.arrays import devices

    threads = devices.get_num_threads()
    devices.set_num_threads(1)
    try:
        out: dict[str, float] = {}
        for phases in (1, 2):
            for wanted in TILES_US:
                ns, added = _record_cost(phases, 1e3 * wanted, rounds)
                low, median, high = statistics.quantiles(added, n=4)
                name = f"tile records, {phases} per {ns / 1e3:.1f} us"
                out |= {f"{name}, %": median, f"{name}, quartiles, %": high - low}
        return out
    finally:
        devices.set_num_threads(threads)


def _record_cost(phases: int, tile_ns: float, rounds: int) -> tuple[float, list[float]]:
    """A tile's time in ns, near `tile_ns`, and the per cent that its records add to it, once per round."""
    width = 1024
    for _ in range(3):
        ns = _pairs(phases, width, 200, 5)[0]
        width = max(64, int(width * tile_ns / ns) // 64 * 64)
    return _pairs(phases, width, int(RUN_NS / tile_ns), rounds)


def _pairs(phases: int, width: int, tiles: int, rounds: int) -> tuple[float, list[float]]:
    import numpy as np

    import tessera as ts

    @ts.kernel
    def alone(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        for s in ts.tile.range(0, n, width):
            v = x[s : s + width]
            for _ in ts.static_range(16):
                v = ts.tile.exp(-v)
            y[s : s + width] = v

    @ts.kernel
    def reduced(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        for s in ts.tile.range(0, n, width):
            v = x[s : s + width]
            for _ in ts.tile.range(0, 16):
                v = ts.tile.exp(-v)
            y[s : s + width] = v / ts.tile.sum(v)

    kernel = alone if phases == 1 else reduced
    x, y = np.ones(width * tiles, np.float32), np.zeros(width * tiles, np.float32)
    compiled = ts.compile(kernel, target="cpu", dims={"n": len(x)})
    plain, recording = (compiled._build(profile=profile).code.executable() for profile in (False, True))
    pointers = [a.ctypes.data for a in (x, y)]

    def sample(executable: Any) -> int:
        start = time.process_time_ns()
        executable.run(pointers, [], [])
        return time.process_time_ns() - start

    added: list[float] = []
    times: list[int] = []
    for turn in range(rounds + 1):
        order = (plain, recording) if turn % 2 else (recording, plain)
        took = {executable: sample(executable) for executable in order}
        if turn:  # the first warms caches and memory up
            added.append(100 * (took[recording] / took[plain] - 1))
            times.append(took[plain])
    return statistics.median(times) / tiles, added


def _has(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("start", "calls", "profiler"), help="one part of it")
    given = parser.parse_args()
    found: dict[str, float] = {}
    if given.only in (None, "start"):
        compileall.compile_dir(ROOT / "tessera", quiet=2)  # as an installer does
        found["import tessera, ms"] = import_time(given.repeats)
        found |= compilations(given.target, given.repeats)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TESSERA_CACHE_DIR"] = cache
        if given.only in (None, "calls"):
            found |= calls(given.target)
        if given.only in (None, "profiler"):
            found |= profiler(20 * given.repeats + 1)
    if given.json:
        print(json.dumps({"target": given.target, **found}, indent=2))
        return
    for name, value in found.items():
        print(f"{name:48} {value:10.2f}")


if __name__ == "__main__":
    main()
