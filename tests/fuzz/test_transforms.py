"""A bounded slice of transforms of transforms against JAX's; `python -m tests.fuzz transforms --help` runs more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tessera.compiler.autodiff.forward import Forward
from tests.conftest import require
from tests.fuzz.transform_programs import program
from tests.fuzz.transforms import Unfit, difference, fault, minimal


@pytest.mark.parametrize("mode", ["function", "outside", "backward"])
@pytest.mark.parametrize("seed", [1, 3, 4, 5, 6])  # 2 is a Hessian in a gradient in a tangent in a rule: minutes
def test_random_transforms(seed: int, mode: str) -> None:
    require("jax")
    p = program(seed)
    try:
        said = fault(p, mode, "reference")
    except Unfit:
        return
    assert not said, f"{said}\n{p.text('mine')}"


def test_every_transform_is_made() -> None:
    made = {kind for seed in range(200) for kind in program(seed).kinds}
    wanted = "beside mapped again forward backward linear gradient hessian curved total jacobian"
    assert made == set(wanted.split())
    texts = "".join(program(seed).text("mine") for seed in range(200))
    for name in ("ts.scan", "ts.custom_vjp", "ts.custom_jvp", "@ts.function", "L.noise", "while ", "] += "):
        assert name in texts


def test_a_tangent_that_is_lost_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    require("jax")
    right = Forward.keep
    monkeypatch.setattr(Forward, "keep", lambda self, results, found: right(self, results, [None for _ in found]))
    for seed in range(9, 30):
        p = program(seed)
        if "forward" in p.kinds and fault(p, "function", "reference").startswith("wrong"):
            break
    least = minimal(p, lambda q: fault(q, "function", "reference").startswith("wrong"))
    assert fault(least, "function", "reference").startswith("wrong")
    assert len(least.text("mine")) < len(p.text("mine"))
    assert least == replace(p, nodes=least.nodes)


def test_shapes_and_dtypes_are_compared() -> None:
    x = np.ones((2, 1))
    assert not difference([x], [x + 1e-12])
    assert difference([x], [x[0]]).startswith("shape")
    assert difference([x.astype(np.float32)], [x]).startswith("shape")
    assert difference([x], [x + 1e-6]).startswith("wrong")
