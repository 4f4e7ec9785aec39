"""A bounded slice of the random derivatives; `python -m tests.fuzz gradients --help` runs more of them."""

from __future__ import annotations

import pytest

from tessera.compiler.graph.operators.elementwise import Elementwise
from tests.fuzz.gradients import fault, program


@pytest.mark.parametrize("seed", range(1, 17))
def test_random_derivatives(seed: int) -> None:
    p = program(seed)
    said = fault(p)
    assert not said, f"{said}\n{p.text}"


def test_a_rule_that_is_off_by_a_thousandth_is_found(monkeypatch) -> None:
    right = Elementwise.adjoint

    def wrong(self, g, out, ct, *xs):
        return tuple(None if v is None else g.mul(v, 1.001) for v in right(self, g, out, ct, *xs))

    monkeypatch.setattr(Elementwise, "adjoint", wrong)
    assert fault(program(5)).startswith("modes")
