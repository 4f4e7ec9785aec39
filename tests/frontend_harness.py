"""Runs one Python function twice: through the front end and the golden model, and as it stands on NumPy."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tessera.compiler import graph as graph
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.result import Analysis, Static
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.structure import assembled
from tessera.errors import render_all
from tessera.language import dtypes


class NumpyMeaning:
    """`ts` for the run on NumPy: the same names, NumPy's meaning."""

    range = staticmethod(range)
    static_range = staticmethod(range)
    f32, f64, int64 = np.float32, np.float64, np.int64

    def __getattr__(self, name: str) -> Any:
        return {"concat": np.concatenate, "cast": lambda x, d: np.asarray(x).astype(d)}.get(name) or getattr(np, name)


def argument(value: Any) -> Any:
    """What an ordinary call would tell `analyse` about an argument."""
    if isinstance(value, np.ndarray):
        dtype = dtypes.of(value.dtype)
        assert dtype is not None
        return TensorType(value.shape, dtype)
    if isinstance(value, float):
        return TensorType((), dtypes.f32)
    return None if value is None else Static(value)


def analysed(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Analysis:
    """The analysis of `f` for these arguments."""
    bound = inspect.signature(f).bind(*args, **kwargs)
    return analyse(live_definition(f), {n: argument(v) for n, v in bound.arguments.items()})


def golden(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What Graph IR says `f` computes."""
    analysis = analysed(f, *args, **kwargs)
    assert analysis.ok, render_all(analysis.diagnostics)
    assert analysis.op is not None, render_all(analysis.undecided)
    verify(analysis.op)
    bound = inspect.signature(f).bind(*args, **kwargs).arguments
    arrays = [
        np.float32(v) if isinstance(v, float) else v for v in bound.values() if isinstance(v, (np.ndarray, float))
    ]
    found = evaluate(analysis.op, [*arrays, *analysis.captures])
    return assembled(analysis.structure, found)


def on_numpy(f: Callable[..., Any], *args: Any, globals: Mapping[str, Any] | None = None) -> Any:
    """What the same text computes on NumPy."""
    names = {**f.__globals__, "ts": NumpyMeaning(), **(globals or {})}
    copy = types.FunctionType(f.__code__, names, f.__name__, f.__defaults__, f.__closure__)
    return copy(*args)


def agree(f: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> Any:
    """Both meanings give the same numbers; returns them."""
    ours, theirs = golden(f, *args), on_numpy(f, *args)
    several = isinstance(theirs, tuple)
    for a, b in zip(ours if several else (ours,), theirs if several else (theirs,), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)
    return ours
