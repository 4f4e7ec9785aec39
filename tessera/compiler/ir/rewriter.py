"""Pattern rewriting: local rules, applied until none fits, with a trace of what became what and where."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tessera.compiler.ir.core import Builder, Op, Value
from tessera.compiler.ir.printer import Printer
from tessera.compiler.ir.spec import InvalidIR, demand
from tessera.compiler.ir.types import INDEX
from tessera.errors import Span
from tessera.immutable import immutable
from tessera.language.dims import Dim, Expr, substitute

Pattern: TypeAlias = "Callable[[Builder, Op], Value | Sequence[Value] | None]"
"""What takes the place of an op's results, built by the builder, which stands before the op; None where it does not
fit. It must leave the op and everything else alone."""

ANY = "*"
"""the key of patterns that look at every op"""


@immutable
class Step:
    """One rewrite: `pattern` turned the op printed in `before`, which is at `span`, into the ops printed in `after`."""

    pattern: str
    span: Span
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.pattern} at {self.span}\n- {self.before}\n" + "".join(
            f"+ {s}\n" for s in self.after.splitlines()
        )


def rewrite(root: Op, patterns: Mapping[str, Sequence[Pattern]], trace: list[Step] | None = None) -> int:
    """Applies the patterns listed under an op's name (and under ANY) inside `root` until none fits; how often one did.

    New ops get the span of the op they replace, unless a pattern says otherwise (`fused`). Raises InvalidIR when the
    patterns undo each other. A trace costs printing; without one nothing is printed.
    """
    driver = _Driver(root, patterns, trace)
    while driver.sweep():
        pass
    return driver.count


class _Driver:
    def __init__(self, root: Op, patterns: Mapping[str, Sequence[Pattern]], trace: list[Step] | None) -> None:
        self.root, self.patterns, self.trace = root, patterns, trace
        self.any = tuple(patterns.get(ANY, ()))
        self.count = 0
        self.limit = 1000 + 100 * sum(1 for _ in root.walk())
        self.waiting: deque[Op] = deque()
        self.gone: set[Op] = set()

    def sweep(self) -> bool:
        """Looks at every op once, and again at whatever changes around it. Whether anything changed."""
        before = self.count
        self.waiting.extend(op for op in self.root.walk() if op is not self.root)
        while self.waiting:
            op = self.waiting.popleft()
            if op not in self.gone:
                self.visit(op)
        return self.count > before

    def visit(self, op: Op) -> None:
        patterns = (*self.patterns.get(op.name, ()), *self.any)
        if not patterns:
            return
        builder = _BuilderBefore(op)
        for pattern in patterns:
            found = pattern(builder, op)
            if found is None and builder.position is None:
                continue
            new = builder.made()
            values = (found,) if isinstance(found, Value) else () if found is None else tuple(found)
            if found is not None and [v.type for v in values] == [r.type for r in op.results]:
                self.replace(op, values, new, pattern)
                return
            for unused in reversed(new):
                unused.erase()
            builder = _BuilderBefore(op)

    def replace(self, op: Op, values: Sequence[Value], new: Sequence[Op], pattern: Pattern) -> None:
        self.count += 1
        name = getattr(pattern, "__name__", str(pattern)).strip("_")
        if self.count > self.limit:
            raise InvalidIR(op, f"the patterns do not settle; the last one was {name}")
        if self.trace is not None:
            self.trace.append(Step(name, op.span, _lines([op]), _lines(new, values)))
        self.waiting.extend(new)
        for result in op.results:
            self.waiting.extend(result.users)
        self.gone.update(op.walk())
        replace_op(op, values)


class _BuilderBefore(Builder):
    """Stands before an op. It looks for the op's position once something is built: most patterns build nothing."""

    def __init__(self, op: Op) -> None:
        assert op.block is not None
        super().__init__(op.block, None, op.span, op.origin)
        self.behind, self.start = op, 0

    def insert(self, op: Op) -> Op:
        if self.position is None and self.block is self.behind.block:
            self.start = self.position = self.block.index(self.behind)
        return super().insert(op)

    def made(self) -> list[Op]:
        """What has been built before the op."""
        return [] if self.position is None else self.block.ops[self.start : self.position]


def _lines(ops: Iterable[Op], values: Sequence[Value] = ()) -> str:
    """Ops as text; values that stood there before, where there are no ops."""
    printer = Printer()
    for op in ops:
        printer.op(op)
    return "\n".join(printer.lines) or ", ".join(map(printer.name, values))


def replace_op(op: Op, values: Sequence[Value]) -> None:
    """Takes `op` out; `values` stand for its results and inherit their names. Raises InvalidIR when types differ."""
    demand(len(values) == len(op.results), op, f"{len(values)} values cannot replace {len(op.results)} results")
    for result, value in zip(op.results, values, strict=True):
        if result.type != value.type:
            raise InvalidIR(op, f"{value.type} cannot replace {result.type}")
        value.hint = value.hint or result.hint
        result.replace_by(value)
    op.erase()


def erase_dead(root: Op, keep: Callable[[Op], bool]) -> None:
    """Erases every op inside `root` whose results are unused, users before what they use, but for those to `keep`."""
    for region in root.regions:
        for block in region.blocks:
            for op in reversed(list(block.ops)):
                if any(r.uses for r in op.results) or keep(op):
                    erase_dead(op, keep)
                else:
                    op.erase()


def fused(*ops: Op) -> Span:
    """The place of an op that does the work of several: from the first to the last of them, in the first one's file."""
    span = ops[0].span
    for op in ops[1:]:
        if op.span.file == span.file:
            span = span.to(op.span)
    return span


# An op and everything in it, said in other sizes.


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
