"""Functions of large arrays in a process that may have little more memory than it has."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np

import tessera as ts


@ts.function
def shifted(x: ts.Tensor["n", ts.f32]):
    return x + 1


@ts.function
def ordered(x: ts.Tensor["n", ts.f32]):
    return ts.cumsum(ts.exp(x), axis=0)


small, large = np.ones(100_000, np.float32), np.ones(60_000_000, np.float32)
shifted(small), ordered(small)
compiled = [ts.compile(f, arguments=(large,)) for f in (shifted, ordered)]
used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), resource.RLIM_INFINITY))
for f in (*compiled, shifted, ordered):
    try:
        f(large)
        print("it had room")
    except ts.errors.LaunchError as error:
        print(error.code)
assert (shifted(small) == 2).all() and abs(ordered(small)[9] - 10 * np.e) < 1e-3
