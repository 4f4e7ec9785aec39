"""A bounded slice of random derivatives against PyTorch's; `python -m tests.fuzz peers --help` runs more of them."""

from __future__ import annotations

import pytest

from tessera.compiler.autodiff.forward import Forward
from tests.conftest import require
from tests.fuzz.peers import fault, program


@pytest.mark.filterwarnings("ignore::tessera.TrainingWarning")
@pytest.mark.parametrize("seed", range(1, 9))
def test_random_derivatives(seed: int) -> None:
    require("torch")
    p = program(seed)
    said = fault(p)
    assert not said, f"{said}\n{p.text}"


@pytest.mark.filterwarnings("ignore::tessera.TrainingWarning")
def test_a_tangent_that_is_lost_is_found(monkeypatch) -> None:
    require("torch")
    right = Forward.keep
    monkeypatch.setattr(Forward, "keep", lambda self, results, found: right(self, results, [None for _ in found]))
    assert any(fault(program(seed)).startswith("product") for seed in (1, 3, 4))
