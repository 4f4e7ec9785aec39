"""A bounded slice of the adjoint certificates; `python -m tests.fuzz certificates --help` runs more of them."""

from __future__ import annotations

import pytest

from tessera.compiler.autodiff import cotangents
from tessera.compiler.autodiff.cotangents import Cotangent
from tessera.compiler.autodiff.forward import Forward
from tessera.compiler.graph.operators.elementwise import Elementwise
from tests.fuzz.certificates import described, tried

SEEDS = range(1, 61)


def test_random_programs() -> None:
    for seed in SEEDS:
        found = tried(seed)
        assert not found[0], "\n".join(described(seed, found))


def faults(seeds: range = SEEDS) -> set[str]:
    return {said.split(":")[0] for said, _, _ in map(tried, seeds) if said}


def test_a_rule_that_is_off_by_a_thousandth_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Elementwise.adjoint

    def wrong(self, g, out, ct, *xs):
        return tuple(None if v is None else g.mul(v, 1.001) for v in right(self, g, out, ct, *xs))

    monkeypatch.setattr(Elementwise, "adjoint", wrong)
    assert "sides" in faults(range(1, 11))


def test_tangents_and_adjoints_that_are_wrong_alike_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right, ahead = Elementwise.adjoint, Elementwise.tangent

    def adjoint(self, g, out, ct, *xs):
        return tuple(None if v is None else g.mul(v, 1.001) for v in right(self, g, out, ct, *xs))

    def tangent(self, g, out, ts, *xs):
        found = ahead(self, g, out, ts, *xs)
        return None if found is None else g.mul(found, 1.001)

    monkeypatch.setattr(Elementwise, "adjoint", adjoint)
    monkeypatch.setattr(Elementwise, "tangent", tangent)
    assert "slope" in faults(range(1, 11))


def test_a_tangent_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Forward.keep
    monkeypatch.setattr(Forward, "keep", lambda self, results, found: right(self, results, [None for _ in found]))
    assert "sides" in faults(range(1, 6))


def test_a_mask_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cotangents, "_masked", lambda g, v, mask, name: Cotangent(v, None))
    assert "finite" in faults(range(14, 58))
