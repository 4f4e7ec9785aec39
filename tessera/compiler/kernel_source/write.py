"""A `graph.func` written as a `@ts.kernel` that people could have written.

An operator is spelled as `ts.tile` spells it: by its symbol where Python has one, else by its name. What has no such
name is taken apart until it has.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.compiler.frontend.kernel.builtins import public
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.passes.canonicalize import canonicalize
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.compiler.kernel_source.axes import Axes, AxisPart, NoKernel, Place, axes_of, kind_of
from tessera.compiler.kernel_source.blocks import layout
from tessera.compiler.kernel_source.body import WIDTH, Body, Comments, Spelling
from tessera.compiler.kernel_source.layout import KernelPlan, argument_shape, kernel_dim
from tessera.compiler.kernel_source.loops import write_pass
from tessera.compiler.kernel_source.passes import divide_behind, passes
from tessera.immutable import mutable
from tessera.language.dims import Dim

WIDEST = 112
"""characters of parameters on a line of their own"""


@mutable
class Written:
    text: str
    arguments: tuple[str, ...]


def kernel_text(func: Op, name: str, spelling: Spelling, comments: Comments, sizes: Mapping[str, int]) -> Written:
    """Changes `func`, which it takes apart. `sizes`: the given sizes of dims. Raises NoKernel."""
    said = take_apart(func)
    axes, made = _laid_out(func, spelling, sizes)
    body = Body(func, axes, made, spelling, said, comments)
    if made.linear:
        body.add(f"{made.linear} = {spelling.tile}.linear_id()")
    for p in passes(func, axes, made):
        write_pass(body, p)
    if made.outputs:
        store(body)
    else:
        body.statements()
    args = [a for a in func.region.block.args if a.uses]
    ends = func.region.block.ops[-1].operands
    types = [(a.hint, typed(spelling, a, argument_shape(made, a))) for a in args]
    results = [typed(spelling, v, output_shape(made, v, axes.of_value(v))) for v in ends]
    types += zip(made.outputs, results, strict=False)
    given = [spelling.zeros(tensor(v)) for v in ends[: len(made.outputs)]]
    returned = results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"
    known = any(isinstance(d, int) and d != 1 for v in ends for d in tensor(v).shape)
    arrow = "" if made.outputs and known else f" -> {returned}"  # a size without a name is one of that array alone
    parameters = [f"{n}: {t}" for n, t in types]
    head = f"def {name}({', '.join(parameters)}){arrow}:"
    if len(head) > WIDTH:
        inner = ", ".join(parameters)
        head = f"def {name}(\n    {inner if len(inner) <= WIDEST else _lines(parameters)}\n){arrow}:"
    return Written("\n".join([f"@{spelling.decorator}", head, *body.lines]), (*(a.hint for a in args), *given))


def _lines(parameters: list[str]) -> str:
    return ",\n    ".join((*parameters, "")).rstrip()


def _laid_out(func: Op, spelling: Spelling, sizes: Mapping[str, int]) -> tuple[Axes, KernelPlan]:
    """A mean over a loop is a sum that is divided behind it. Raises NoKernel."""
    divide_behind(func)
    said = {v.hint for op in func.region.block.ops for v in op.results}
    taken = {*spelling.taken, *said, *(a.hint for a in func.region.block.args if a.uses)}
    axes = axes_of(func, apart=any(op.name == "graph.contract" for op in func.walk()))
    made = layout(func, axes, taken, sizes)
    if all(op.name != "graph.mean" or line.found in made.held for op, line in axes.reduced.items()):
        return axes, made
    for op, line in axes.reduced.items():
        if op.name == "graph.mean" and any(line.found in axes.of_value(r) for u in op.result.users for r in u.results):
            op.result.hint = op.result.hint or "mean"
    take_apart(func, without="mean")
    axes = axes_of(func, apart=bool(axes.summed))
    return axes, layout(func, axes, taken, sizes)


def take_apart(func: Op, without: str = "") -> set[Op]:
    """Leaves operators that `ts.tile` has, and gives the conversions that stand in the text."""
    said = {op for op in func.walk() if op.name == "graph.cast"}
    kept = {name for name in public() if kind_of(name) in ("map", "reduce", "scan")}
    decompose(func, kept - {without})
    canonicalize(func)
    eliminate_dead(func)
    return said


def typed(spelling: Spelling, v: Value, shape: Shape) -> str:
    t = tensor(v)
    if not t.shape:
        return spelling.dtype(t.dtype)
    text = spelling.annotation(t.with_shape(shape))
    if text is None:
        raise NoKernel(f"{t.pretty()} has no annotation in this file")
    return text


# Results that a kernel stores by itself, into arrays that it is given.
#
# A block that is returned belongs where the first thing that it is made of was read. Of parts of arguments, and
# of tensors that are joined, that is another place than the result's.


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
        part = AxisPart(start, tensor(v).shape[-1], tensor(op.result).shape[-1], last)
        body.add(
            f"{body.layout.indexed(name, place, (*(None,) * (len(place) - 1), part))} = {text}", behind if last else ""
        )
        start = start + part.size


def output_shape(made: KernelPlan, v: Value, place: Place) -> Shape:
    """Of an array that takes a result, in the kernel's dims."""
    shape = list(made.shape(place))
    if v.op in made.axes.joined:
        shape[-1] = kernel_dim(made, tensor(v).shape[-1])
    return tuple(shape)
