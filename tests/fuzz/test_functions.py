"""A bounded slice of the random functions; `python -m tests.fuzz functions --help` runs more of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.fuzz import values
from tests.fuzz.functions import difference, faults, minimal, reproducer, targets_of, threads
from tests.fuzz.programs import Program, program
from tests.fuzz.values import KINDS, Unfit, Wanted

SLICES = 6
PROGRAMS = 25


@pytest.mark.parametrize("part", range(SLICES))
@np.errstate(all="ignore")
def test_random_functions(part: int) -> None:
    seeds = range(1 + part * PROGRAMS, 1 + (part + 1) * PROGRAMS)
    tried = 0
    with threads(1):
        for seed in seeds:
            p = program(seed)
            found = list(faults(p, targets_of(seed, PROGRAMS)))
            tried += 1
            open_sizes = any(a.startswith("ts.") for _, _, a in p.arguments)
            serious = [f for f in found if not (f.kind == "refused" and open_sizes)]
            assert not serious, reproducer(p, serious[0])
    assert tried == PROGRAMS


def example(*blocks: str, returns: tuple[str, ...] = ("v0",)) -> Program:
    arguments = (("x", "(np.random.default_rng(0).integers(-8, 9, (3, 5)) / 4).astype(np.float32)", ""),)
    return Program(0, arguments, tuple(f"    {b}\n" for b in blocks), returns)


def test_the_oracle_computes_as_the_language_says() -> None:
    """To the bit where nothing but rounding happens; sums in an order of their own within a bound."""
    (half,) = example("v0 = ts.cast(x, ts.bf16) / 3").wanted()
    x = example().values()[0]
    np.testing.assert_array_equal(half.value, (x.astype(ml_dtypes.bfloat16) / 3).astype(np.float64))
    assert half.error == 0
    (total,) = example("v0 = ts.sum(ts.exp(x))").wanted()
    assert abs(total.value - np.exp(x.astype(np.float64)).sum()) < total.error < 1e-3
    with pytest.raises(Unfit):
        example("v0 = ts.exp(x) > 1").wanted()


def test_complex_products_that_overflow_have_no_wanted_parts() -> None:
    """Infinities and NaN take turns with the order of factors; a finite number in their place is wrong."""
    wanted = Wanted(np.array([complex(np.inf, -np.inf)]), KINDS["complex64"])
    assert not difference([np.array([complex(np.nan, np.nan)], np.complex64)], [wanted])
    assert difference([np.array([1j], np.complex64)], [wanted])


def test_a_wrong_result_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an oracle that negates wrongly, what is left of a program is the negation."""
    p = example("v0 = x + 1", "v1 = -x", "v2 = v0 * v1", returns=("v0", "v2"))
    assert not list(faults(p, ["cpu", "reference"]))
    monkeypatch.setattr(Wanted, "__neg__", lambda v: v)
    (fault,) = faults(p, ["reference"])
    assert fault.kind == "wrong"
    least = minimal(p, lambda q: any(f.kind == "wrong" for f in faults(q, ["reference"])))
    assert least.text == "def f(x):\n    v0 = x + 1\n    v1 = -x\n    v2 = v0 * v1\n    return v2\n"


def test_differences() -> None:
    want = [Wanted(np.array([1.0, np.nan, 0.0]), KINDS["f32"])]
    assert not difference([np.array([1, np.nan, -0.0], np.float32)], want)
    assert "at (1,) is 2.0, not nan" in difference([np.array([1, 2, 0], np.float32)], want)
    assert "dtype float64" in difference([np.array([1, np.nan, 0.0])], want)
    assert "shape" in difference([np.array([[1, np.nan, 0.0]], np.float32)], want)
    assert not difference([np.float32([1.01])], [Wanted(np.array([1.0]), KINDS["f32"], 0.01)])


def test_a_refusal_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    p = example("v0 = ts.cast(ts.cast(x, ts.f16), ts.bf16)", "v1 = v0 @ ts.cast(x, ts.f16).T", returns=("v1",))
    with pytest.raises(Unfit):
        list(faults(p, ["cpu"]))
    monkeypatch.setattr(values, "promote", lambda a, b: b)
    (fault,) = faults(p, ["cpu"])
    assert fault.kind == "refused" and "TS302" in fault.said
