"""What a process keeps of functions that are called with ever new shapes.

Every call has a shape of its own, so each compiles and prepares a launch. Beyond the bounds of what is kept
(`--launches` sets them lower, to reach them sooner) memory should stay level.

python -m benchmarks memory -- [--shapes 3000] [--launches 256]
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

import numpy as np

import tessera as ts
from tessera.runtime.call import dispatch
from tessera.runtime.code import build
from tessera.runtime.eager import calls

STEP = 500


@ts.function
def bent(x: ts.Tensor["N", ts.f32]):
    return ts.exp(x) * 2 + 1


def resident() -> int:
    """KiB of this process's memory that are in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def bound(launches: int) -> None:
    """Lowers what is kept to so many launches and programs."""
    dispatch.LAUNCHES = launches
    for table in (build._resident, build._fronts, calls._calls):
        table.limit = min(table.limit, launches)


def grown(shapes: int, first: int = 1) -> int:
    """KiB by which memory grows over calls with so many new shapes, half of them through an operator alone."""
    before = resident()
    for n in range(first, first + shapes):
        x = np.zeros(n, np.float32)
        bent(x) if n % 2 else ts.exp(x)
    gc.collect()
    return resident() - before


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory")
    parser.add_argument("--shapes", type=int, default=3000)
    parser.add_argument("--launches", type=int, default=256)
    options = parser.parse_args(arguments)
    bound(options.launches)
    grown(50, 1_000_000)
    print(f"at the start {resident() / 1024:.0f} MiB; at most {options.launches} launches are kept")
    for first in range(1, options.shapes, STEP):
        more = grown(min(STEP, options.shapes - first + 1), first)
        print(
            f"after {first + STEP - 1:>6} shapes {resident() / 1024:6.1f} MiB, {more / STEP:6.2f} KiB for each new one"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
