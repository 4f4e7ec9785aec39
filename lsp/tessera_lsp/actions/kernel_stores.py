"""Results that a kernel stores by itself, into arrays that it is given.

A block that is returned belongs where the first thing that it is made of was read. Of parts of arguments, and of
tensors that are joined, that is another place than the result's.
"""

from __future__ import annotations

from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.language.dims import Dim
from tessera_lsp.actions.kernel_axes import Part, Place
from tessera_lsp.actions.kernel_body import Body
from tessera_lsp.actions.kernel_layout import Layout, kernel_dim


def store(body: Body) -> None:
    """All results, and the `return`."""
    *ops, last = body.ops
    body.assign([op for op in ops if op.name != "graph.concat"])
    for name, (i, v) in zip(body.layout.outputs, enumerate(last.operands), strict=True):
        if v.op is not None and v.op in body.axes.joined:
            _store_pieces(body, name, v.op)
        else:
            source = body.source(v)
            behind = body.comment(source or last)
            text, place = body.text(last, i), body.axes.of(last, i)
            body.add(f"{body.layout.indexed(name, place, (None,) * len(place))} = {text}", behind)
    behind = body.comment(last)
    body.add(f"return {', '.join(body.layout.outputs)}", behind)


def _store_pieces(body: Body, name: str, op: Op) -> None:
    behind = body.comment(op)
    start: Dim = 0
    for i, v in enumerate(op.operands):
        text, place, last = body.text(op, i), body.axes.of(op, i), i == len(op.operands) - 1
        part = Part(start, tensor(v).shape[-1], tensor(op.result).shape[-1], last)
        body.add(
            f"{body.layout.indexed(name, place, (*(None,) * (len(place) - 1), part))} = {text}", behind if last else ""
        )
        start = start + part.size


def output_shape(made: Layout, v: Value, place: Place) -> Shape:
    """Of an array that takes a result, in the kernel's dims."""
    shape = list(made.shape(place))
    if v.op in made.axes.joined:
        shape[-1] = kernel_dim(made, tensor(v).shape[-1])
    return tuple(shape)
