"""An op and everything in it, said in other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX
from tessera.language.dims import Dim, Expr, substitute


def with_sizes(op: Op, sizes: Mapping[str, Dim]) -> Op:
    """Puts sizes in the place of symbols, in place: in attributes and in the types of all values."""
    if sizes:
        for inner in op.walk():
            inner.attrs = {k: _put(v, sizes) for k, v in inner.attrs.items()}
            _retype(inner.results, sizes)
            for region in inner.regions:
                for block in region.blocks:
                    _retype(block.args, sizes)
    return op


def _retype(values: list[Value], sizes: Mapping[str, Dim]) -> None:
    for v in values:
        if v.type != INDEX:
            v.type = _put(v.type, sizes)


def _put(x: Any, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(x, Expr):
        return substitute(x, sizes)
    if isinstance(x, tuple):
        return tuple(_put(v, sizes) for v in x)  # pyright: ignore[reportUnknownVariableType]
    if hasattr(x, "shape"):
        strides = {"strides": _put(x.strides, sizes)} if getattr(x, "strides", None) is not None else {}
        return replace(x, shape=_put(x.shape, sizes), **strides)
    return x
