"""Operators that kernels of `tessera.kernels` compute, as launches of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.signature import Parameter, definition_signature
from tessera.compiler.frontend.names.values import Static
from tessera.compiler.frontend.result import ArgType
from tessera.compiler.graph.operator import TileKernel, attributes_of, split_operands, tensor
from tessera.compiler.ir.core import Attr, Op, Value, clone
from tessera.compiler.ir.launches import launching
from tessera.compiler.ir.rewriter import with_sizes
from tessera.compiler.ir.types import TensorType
from tessera.compiler.schedule.views import views_to
from tessera.deferred import deferred
from tessera.language import dtypes
from tessera.language.annotations import TensorAnn
from tessera.language.dims import Dim

KEPT = 256
"""kernels that are remembered: layers of one shape are analysed once"""
NUMBER = TensorType((1,), dtypes.int32)
"""where a launch finds the number of its step"""


def launch(op: Op, kernel: TileKernel, config: Mapping[str, int]) -> list[Op]:
    """Puts launches of `kernel`, with `config` over its own, in the place of `op`, and gives them. Raises CompileError
    where it does not fit."""
    chosen = tuple(sorted({**kernel.config, **config}.items()))
    operands: list[Value | None] = split_operands(op)
    own = definition_signature(_definition(kernel.name, chosen)).parameters
    stored = zip(own[len(operands) :], op.results, strict=False)
    wanted = [r if r.uses or not _optional(p) else None for p, r in stored]
    parts = [[r if r is w else None for r in wanted] for w in wanted if w is not None] if kernel.apart else [wanted]
    constants = tuple((attributes_of(op) | dict(kernel.constants)).items())
    names = [_name(v, p) for p, v in zip(own[: len(operands)], operands, strict=True) if v is not None]
    made: list[Op] = []
    assert op.block is not None
    for results in parts:
        types = [None if v is None else replace(tensor(v), policy=None) for v in (*operands, *results)]
        types += [NUMBER] if kernel.steps > 1 else []
        region = launching(clone(_analysed(kernel.name, chosen, tuple(types), constants), {}), "graph", op.span)
        given, found = ([v for v in values if v is not None] for values in (operands, results))
        attrs: dict[str, Attr] = {"label": kernel.computes.format(*names)}
        attrs |= {"steps": kernel.steps} if kernel.steps > 1 else {}
        new = Op("graph.launch", given, [r.type for r in found], op.span, attrs, [region], [r.hint for r in found])
        new.origin = replace(new.origin, sides=op.origin.sides)
        op.block.insert(op.block.ops.index(op), new)
        for result, value in zip(found, new.results, strict=True):
            result.replace_by(value)
        made.append(new)
    op.erase()
    return made


def _name(v: Value, p: Parameter) -> str:
    """What the author calls a value, or what it is a view of; the kernel's name for it where the author has none."""
    places = (v, *(view.operands[0] for view in reversed(views_to(v))))
    return next((place.hint for place in places if place.hint), p.name)


def _optional(p: Parameter) -> bool:
    return isinstance(p.annotation, TensorAnn) and p.annotation.optional


@lru_cache(64)
def _definition(name: str, config: tuple[tuple[str, int], ...]) -> Any:
    module, _, kernel = name.partition(".")
    return getattr(deferred(f"kernels.{module}"), kernel).with_config(**dict(config)).definition()


@lru_cache(KEPT)
def _analysed(
    name: str, config: tuple[tuple[str, int], ...], types: tuple[TensorType | None, ...],
    constants: tuple[tuple[str, Any], ...],
) -> Op:  # fmt: skip
    """The kernel's `tile.func` for tensors of these types, in the caller's sizes. Raises CompileError."""
    definition = _definition(name, config)
    sizes: dict[str, Dim] = {}
    arguments: dict[str, ArgType] = {n: Static(v) for n, v in constants}
    for p, t in zip(definition_signature(definition).parameters, types, strict=False):
        arguments[p.name] = None if t is None else t.with_shape(_own(p, t, sizes))  # type: ignore[assignment]
    op = analyse(definition, arguments).unit().op
    return with_sizes(clone(op, {}), {n: d for n, d in sizes.items() if not isinstance(d, int)})


def _own(p: Parameter, t: TensorType, sizes: dict[str, Dim]) -> tuple[Dim, ...]:
    """The shape in the kernel's sizes: numbers where they are known, else as it is annotated."""
    assert isinstance(p.annotation, TensorAnn) and p.annotation.shape is not None
    out: list[Dim] = []
    for own, d in zip(p.annotation.shape, t.shape, strict=True):
        sizes[str(own)] = d
        out.append(d if isinstance(d, int) else own)  # type: ignore[arg-type]
    return tuple(out)
