"""A `graph.func` written as a `@ts.kernel` that people could have written.

An operator is spelled as `ts.tile` spells it: by its symbol where Python has one, else by its name. What has no such
name is taken apart until it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera_lsp.actions.kernel_axes import Axes, NoKernel, axes_of, kind_of
from tessera_lsp.actions.kernel_blocks import layout
from tessera_lsp.actions.kernel_body import WIDTH, Body, Spelling
from tessera_lsp.actions.kernel_comments import Comments
from tessera_lsp.actions.kernel_layout import Layout, argument_shape
from tessera_lsp.actions.kernel_loops import write_pass
from tessera_lsp.actions.kernel_online import divide_behind
from tessera_lsp.actions.kernel_passes import passes
from tessera_lsp.actions.kernel_stores import output_shape, store

WIDEST = 112
"""characters of parameters on a line of their own"""


@dataclass(slots=True)
class Written:
    text: str
    arguments: tuple[str, ...]


def kernel_text(func: Op, name: str, spelling: Spelling, comments: Comments, sizes: Mapping[str, int]) -> Written:
    """Changes `func`, which it takes apart. `sizes`: of dims that somebody has said. Raises NoKernel."""
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


def _laid_out(func: Op, spelling: Spelling, sizes: Mapping[str, int]) -> tuple[Axes, Layout]:
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
    from tessera.compiler.frontend.kernel.builtins import TILE_FUNCTIONS
    from tessera.compiler.graph.canonicalize import canonicalize
    from tessera.compiler.graph.decompose import decompose
    from tessera.compiler.graph.eliminate_dead import eliminate_dead

    said = {op for op in func.walk() if op.name == "graph.cast"}
    kept = {name for name in TILE_FUNCTIONS if kind_of(name) in ("map", "reduce", "scan")}
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
