"""What the gradients of a file's programs are, at the values that they go through: shape, dtype, bytes, and where one
is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tessera.compiler.autodiff.rules import active, reads, smooth
from tessera.compiler.frontend.called.inside import CalledProgram
from tessera.compiler.frontend.result import ExprInfo, Pulled
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import shape_text
from tessera.compiler.lower.memory_limit import shown
from tessera.errors import Span
from tessera.language import dims
from tessera.language.dims import Dim

SAMPLE = 3
"""lines that a message names"""


def at(programs: Iterable[CalledProgram], e: ExprInfo, sizes: Mapping[str, int], file: str) -> list[str]:
    """What is to be said of the gradients of an expression, in each program once."""
    found: dict[str, None] = {}
    for program in programs:
        known: dict[str, Dim] = {**sizes, **program.sizes}
        for pulled in program.analysis.pulled:
            values = [v for span, kind, v in pulled.places if kind == e.kind and program.moved(span) == e.span]
            walk = _Walk(pulled, program) if values else None
            found.update(dict.fromkeys(walk.said(v, known, file) for v in values) if walk is not None else {})
    return [text for text in found if text]


class _Walk:
    """The backward walk of a program. `touched`: the values that depend on what it is taken by, cut or not."""

    def __init__(self, pulled: Pulled, program: CalledProgram) -> None:
        self.pulled, self.program = pulled, program
        self.live, self.touched = active(pulled.ops, pulled.wanted), {*pulled.wanted}
        self.users: dict[Value, list[Op]] = {}
        for op in pulled.ops:
            operands = reads(op)
            if not self.touched.isdisjoint(operands):
                self.touched.update(op.results)
            for v in operands:
                self.users.setdefault(v, []).append(op)

    def said(self, v: Value, sizes: Mapping[str, Dim], file: str) -> str:
        """ "" of a value that has nothing to do with what the gradient is taken by."""
        if v in self.pulled.cotangents:
            return _described(self.pulled.cotangents[v], sizes)
        if v in self.live:
            cuts = [self._cut(op, file) for op in self._after(v) if self._cuts(op)]
            why = _joined(cuts) if cuts else "the result does not depend on it"
            return f"No gradient: {why}"
        if v in self.touched and v.op is not None:
            cuts = [self._cut(op, file) for op in self._before(v) if self._cuts(op)]
            return f"No gradient: {_joined(cuts)}" if cuts else ""
        return ""

    def _cuts(self, op: Op) -> bool:
        """Whether a gradient that arrives at the results of an op ends there."""
        return not self.live.isdisjoint(reads(op)) and self.live.isdisjoint(op.results)

    def _cut(self, op: Op, file: str) -> tuple[str, Span]:
        place = self.program.moved(op.span)
        here = place.file == file
        name = op.name.removeprefix("graph.")
        if op.origin.constant:
            what = "ts.no_grad() cuts it"
        elif name == "stop_gradient":
            what = "ts.stop_gradient cuts it"
        elif any(map(smooth, op.results)):
            what = f"{name} has no derivative"
        else:
            what = f"{name} gives {tensor(op.results[0]).dtype}, which has no derivative"
        return what, place if here else Span("", 0, 0, 0, 0)

    def _after(self, v: Value) -> Iterator[Op]:
        def further(op: Op) -> list[Op]:
            return [user for r in op.results for user in self.users.get(r, ())]

        return self._reached(self.users.get(v, ()), further)

    def _before(self, v: Value) -> Iterator[Op]:
        def further(op: Op) -> list[Op]:
            return [o.op for o in reads(op) if o.op is not None and o in self.touched]

        return self._reached([v.op] if v.op is not None else (), further)

    def _reached(self, first: Iterable[Op], further: Callable[[Op], list[Op]]) -> Iterator[Op]:
        """Ops from some on, up to those that cut."""
        pending, seen = list(first), set[Op]()
        while pending:
            op = pending.pop(0)
            if op not in seen:
                seen.add(op)
                yield op
                pending += further(op) if not self._cuts(op) else ()


def _joined(cuts: Iterable[tuple[str, Span]]) -> str:
    lines: dict[str, list[str]] = {}
    for what, place in cuts:
        lines.setdefault(what, [])
        lines[what] += [str(place.line)] if place.line else []
    said: list[str] = []
    for what, found in lines.items():
        named = list(dict.fromkeys(found))[:SAMPLE]
        said.append(what + (f" in line{'s' if len(named) > 1 else ''} {', '.join(named)}" if named else ""))
    return "; ".join(said)


def _described(cotangent: Value, sizes: Mapping[str, Dim]) -> str:
    """`Gradient: [B, 128] f32, 16 KiB`"""
    type = tensor(cotangent)
    size = dims.substitute(dims.prod(type.shape), sizes) * type.dtype.itemsize
    return f"Gradient: {shape_text(type.shape)} {type.dtype}, {shown(size) if isinstance(size, int) else f'{size} B'}"
