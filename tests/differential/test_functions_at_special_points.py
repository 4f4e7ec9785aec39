"""Functions of one number at zeros, infinities, extremes and far below 0: all targets give what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.language.scalars import TABLE
from tests.conftest import require
from tests.fuzz.seeded import EMULATOR, kernel

POINTS = (0.0, 1.0, 0.5, 2.5, 5.0, 8.0, 100.0, 1e-8, 1e-40, 65504.0, 3e38, np.inf, np.nan)
NAMES = [s.name for s in TABLE.values() if s.arity == 1 and s.accepts in ("number", "real", "float")]


@pytest.mark.parametrize("target", ["cpu", EMULATOR])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@np.errstate(all="ignore")
def test_functions_at_special_points(dtype: type, target: str) -> None:
    if target == EMULATOR:
        require("g++")
    results = ", ".join(f"ts.{name}(x)" for name in NAMES)
    f = ts.function(kernel(f"import tessera as ts\n\n\ndef f(x):\n    return {results}\n", "points.py"))
    x = np.array([*POINTS, *(-p for p in POINTS)], dtype)
    with knobs.target.override("reference"):
        wanted = f(x)
    with knobs.target.override(target):
        found = f(x)
    for name, a, b in zip(NAMES, found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=64 * np.finfo(dtype).eps, atol=0, err_msg=name)


@pytest.mark.parametrize("target", ["cpu", "reference", EMULATOR])
def test_gelu_vanishes_far_below_zero(target: str) -> None:
    """Its limit there is 0, and so is its value at -inf; its size at -5 and -8 is that of the normal distribution."""
    if target == EMULATOR:
        require("g++")
    with knobs.target.override(target):
        found = np.asarray(ts.gelu(ts.tensor(np.array([-np.inf, -1e300, -8, -5, np.inf, np.nan]))))
    np.testing.assert_allclose(found, [0, 0, -4.976768e-15, -1.43325786e-06, np.inf, np.nan], rtol=1e-7)
