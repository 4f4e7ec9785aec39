"""`...` stands for axes of each parameter's own: calls may give different ones, on every target, as NumPy would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.live import live_definition
from tessera.errors import CompileError

TARGETS = ("reference", "cpu", "emulator:sm_80")
SHAPES = [((4, 8), (4, 8)), ((2, 4, 8), (4, 8)), ((8,), (3, 8)), ((3, 8), (8,)), ((2, 1, 8), (2, 3, 8))]


def added(x: ts.Tensor[..., "N", ts.f32], y: ts.Tensor[..., "N", ts.f32]) -> ts.Tensor[..., "N", ts.f32]:
    return x * 2 + y


def both(x: ts.Tensor[..., "N", ts.f32], y: ts.Tensor[..., "N", ts.f32]):
    return x.sum(-1), ts.exp(y)


def inner(x: ts.Tensor[..., "N", ts.f32], y: ts.Tensor[..., "N", ts.f32]):
    return added(x, y) - x


def in_a_tile(x: ts.Tensor[..., "N", ts.f32], y: ts.Tensor[..., "N", ts.f32]) -> ts.Tensor[..., "N", ts.f32]:
    return x * 2 + y


tiled = ts.kernel(in_a_tile)


def launched(x: ts.Tensor[..., "N", ts.f32], y: ts.Tensor[..., "N", ts.f32]):
    return tiled(x, y) * 3


WANT: dict[Callable[..., Any], Callable[[Any, Any], Any]] = {
    added: lambda x, y: x * 2 + y,
    both: lambda x, y: (x.sum(-1), np.exp(y)),
    inner: lambda x, y: x * 2 + y - x,
    launched: lambda x, y: (x * 2 + y) * 3,
}


@pytest.mark.parametrize("f", WANT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_each_parameter_has_its_own(f: Callable[..., Any], target: str) -> None:
    assert not analyse(live_definition(f, "function", {})).diagnostics
    for shapes in SHAPES:
        x, y = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes))
        want = WANT[f](x, y)
        found = ts.compile(ts.function(f), target=target, arguments=(x, y))(x, y)
        for a, b in zip(found, want, strict=True) if f is both else [(found, want)]:
            np.testing.assert_allclose(np.asarray(a), b, rtol=2e-6, atol=1e-6, err_msg=str(shapes))


def test_what_does_not_fit_is_said_of_the_call() -> None:
    with pytest.raises(CompileError, match=r"\[2, 8\] and \[3, 8\] do not broadcast"):
        ts.function(added)(np.ones((2, 8), np.float32), np.ones((3, 8), np.float32))
