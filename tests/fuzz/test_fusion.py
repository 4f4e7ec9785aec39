"""A bounded slice of the programs that are fused and run alone; `python -m tests.fuzz fusion --help` runs more."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz import fusion
from tests.fuzz.fusion import check, close, difference, equal, faults, program
from tests.fuzz.programs import Program

ZEROS = np.array([0.0, -0.0, np.nan], np.float32)


@pytest.mark.parametrize("part", range(2))
def test_fused_as_alone_and_as_the_reference(part: int) -> None:
    for seed in range(1 + 4 * part, 5 + 4 * part):
        check(seed, ("cpu", "reference"))


def example(*lines: str, returns: tuple[str, ...]) -> Program:
    blocks = tuple(f"    {line}\n" for line in lines)
    return Program(0, (("x", "np.array([0.5, -0.0, np.nan], np.float32)", ""),), blocks, returns)


def test_a_difference_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a statement that computes otherwise alone, what is left of a program is that statement."""
    p = example("v0 = x + 1", "v1 = -x", "v2 = v0 * v1", returns=("v0", "v1", "v2"))
    assert not list(faults(p, ("cpu", "reference")))
    lone = fusion.alone
    monkeypatch.setattr(fusion, "alone", lambda lines, scope: lone([s.replace("-x", "x * 0") for s in lines], scope))
    fault = next(faults(p, ("cpu",)))
    assert fault.kind == "fused" and "v1 is np.float32(-0.5) at (0,), not np.float32(0.0)" in fault.said
    monkeypatch.setattr(fusion, "program", lambda seed: p)
    with pytest.raises(AssertionError, match=r"def f\(x\):\n    v1 = -x\n    return v1\n"):
        check(0, ("cpu",))


def test_bits_count_but_those_of_nan() -> None:
    assert not difference(ZEROS, np.copysign(ZEROS, [1, -1, -1]).astype(np.float32), equal)
    assert difference(ZEROS, abs(ZEROS), equal) == "np.float32(-0.0) at (1,), not np.float32(0.0)"
    assert difference(ZEROS, ZEROS.astype(np.float64), equal) == "float32 (3,), not float64 (3,)"
    assert difference(ZEROS * 1j, abs(ZEROS) * 1j, equal)


def test_the_reference_rounds_too() -> None:
    one = np.array([1.0, 1e-9], np.float32)
    assert not difference(one, one + np.float32(1e-7), close(0))
    assert difference(one, one + np.float32(1e-4), close(0))
    assert not difference(one, one + np.float32(1e-4), close(100))
    assert difference(np.array([2]), np.array([1]), close(100))


def test_a_statement_that_fails_alone_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "TEMPLATES", {"ts.no_such_function({a})": 1})
    with pytest.raises(AssertionError, match=r"v0 = ts.no_such_function\(.\): TS104"):
        program(1)
