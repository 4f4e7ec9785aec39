"""The evaluator: one abstract interpreter of Python for both layers and both scopes.

It walks a function's AST. Ordinary Python values are computed now; tensors or tiles become IR through the layer; what
cannot be known is UNKNOWN and stays quiet, so that one mistake gives one finding and every mistake of a function is
found. `expressions`, `statements`, `calls` and `control` hold one function per AST node type, dispatched by table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.calls import call
from tessera.compiler.frontend.evaluate.expressions import EXPRESSIONS
from tessera.compiler.frontend.evaluate.fixes import Pending
from tessera.compiler.frontend.evaluate.layer import Layer
from tessera.compiler.frontend.evaluate.operators import operate
from tessera.compiler.frontend.evaluate.statements import STATEMENTS
from tessera.compiler.frontend.evaluate.undecided import merge
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.names.frame import Flow, Frame
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.signature import Signature
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    Namespace,
    Number,
    OperatorRef,
    Unknown,
    is_dict,
    is_tuple,
)
from tessera.compiler.frontend.result import ExprInfo, Kind
from tessera.compiler.frontend.syntax.assigned import assigned_names, stored_names
from tessera.compiler.frontend.syntax.parse import Sample
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic, Diagnostics, Edit, Fix, Note, Span
from tessera.language.annotations import Annotation
from tessera.language.dims import DimError, DimLimitError, Expr, Facts
from tessera.language.dims.remembering import RememberingFacts
from tessera.nearest import nearest

_WEIGHED = frozenset({int, str, bytes, list, tuple, dict, set, frozenset})
QUIET = frozenset({ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Slice, ast.Dict, ast.JoinedStr, ast.FormattedValue})


class Evaluator:
    """State of one analysis. `sizes` fixes named dims; `most`: the steps that it may take."""

    def __init__(
        self, definition: Definition, layer: Callable[[Evaluator], Layer], sizes: Mapping[str, int],
        most: int = budget.STEPS,
    ) -> None:  # fmt: skip
        self.definition, self.sizes = definition, sizes
        self.live = definition.scope.live
        self.findings = Diagnostics(definition.name)
        self.facts: Facts = RememberingFacts()
        self.checks: list[LaunchCheck] = []
        self.block = Block()
        self.builder: Builder = Builder(self.block, span=definition.span)
        self.dims: dict[str, Span] = {}
        self.infos: dict[tuple[int, int, int, int, str], ExprInfo] = {}
        """by place and kind"""
        self.dependencies: dict[str, str] = {}
        self.readers: dict[str, Scope | None] = {}
        self.launches: list[Op] = []
        self.undecided: list[Diagnostic] = []
        self.incomplete = False
        """something in the text does not parse"""
        self.pending: Pending = []
        self.defaults: dict[str, Any] = {}
        self.lead = 1
        """how many axes `...` stands for in annotations"""
        self.returns: Annotation | None = None
        self.signature = Signature((), None, None, {})
        self.item_spans: list[Span] = []
        """places of the values of a `return a, b`"""
        self.steps, self.most = 0, most
        """expressions and statements so far, with the elements of containers that were gone through"""
        self._look_at = budget.PAUSE
        self.as_python = False
        """whether a plain function of ordinary values is evaluated, which the compiler has Python run"""
        self.endless: set[object] = set()
        """functions whose recursion has been found not to end"""
        self.speculative = 0
        """how many undecided branches are open: what fails inside may never happen"""
        self.tried: list[Block] = []
        """what undecided branches and loops compute"""
        locals_ = assigned_names(definition.tree)
        self.frame = Frame(definition.name, definition.text, definition.scope, key=definition.tree, locals=locals_)
        self.layer = layer(self)

    # findings
    def span(self, at: ast.AST | Span) -> Span:
        return at if isinstance(at, Span) else self.frame.source.span(at)

    def header(self, node: ast.AST) -> Span:
        """The place of a statement without its body: `for i in range(n)`."""
        start = self.span(node)
        head = getattr(node, "iter", None) or getattr(node, "test", None) or getattr(node, "subject", None)
        if head is not None:
            end = self.span(head)
            return replace(start, end_line=end.end_line, end_col=end.end_col)
        if start.line == start.end_line:
            return start
        first = self.frame.source.lines[start.line - 1].partition("#")[0].rstrip().rstrip(":")
        return replace(start, end_line=start.line, end_col=max(len(first), start.col) + 1)

    def error(
        self, code: str, message: str, at: ast.AST | Span, *, label: str = "", notes: Iterable[Note] = (),
        fixes: Iterable[Fix] = (), severity: str = "error",
    ) -> Unknown:  # fmt: skip
        """Reports a finding at a node and returns UNKNOWN, so that what depends on it stays quiet."""
        self.findings.add(self.diagnostic(code, message, at, label=label, notes=notes, fixes=fixes, severity=severity))
        return UNKNOWN

    def diagnostic(
        self, code: str, message: str, at: ast.AST | Span, *, label: str = "", notes: Iterable[Note] = (),
        fixes: Iterable[Fix] = (), severity: str = "error",
    ) -> Diagnostic:  # fmt: skip
        all_notes = (*notes, *self.frame.chain())
        return Diagnostic(code, message, self.span(at), severity, all_notes, tuple(fixes), self.frame.name, label)

    def undecide(self, reason: str, at: ast.AST | Span, code: str = "TS502") -> Unknown:
        """Notes that something must be known before this can be compiled; no error in itself."""
        self.undecided.append(self.diagnostic(code, reason, at, severity="note"))
        return UNKNOWN

    def cannot_parse(self, at: ast.AST) -> None:
        """Notes that a part of the text is not known, for it does not parse."""
        self.incomplete = True
        self.undecide("a part of it does not parse", at, "TS101")

    def suggest(self, name: str, known: Iterable[str], at: Span) -> tuple[str, tuple[Fix, ...]]:
        """`; did you mean 'x'?` and the fix that replaces the text at `at`, where a known name is close."""
        names = [k for k in dict.fromkeys(known) if not k.startswith("_")]
        close = nearest(name, names)
        if close is None:
            return "", ()
        return f"; did you mean {close!r}?", (Fix(f"Change {name!r} to {close!r}", (Edit(at, close),)),)

    def record(self, at: ast.AST | Span, value: Any, name: str = "", kind: Kind = "expr") -> None:
        """Keeps the type of an expression of the analysed function (not of functions inlined into it)."""
        if not self.frame.records or self.frame.source is not self.definition.text:
            return
        shown = self.shown(value)
        if shown is not None:
            self._keep(ExprInfo(self.span(at), shown, name, kind))

    def record_index(self, at: ast.AST, found: Any) -> None:
        """Keeps where an index of the analysed kernel stands: something with `pretty()`."""
        if self.frame.records and self.frame.source is self.definition.text:
            self._keep(ExprInfo(self.span(at), found, "", "index"))

    def _keep(self, e: ExprInfo) -> None:
        self.infos.setdefault((e.span.line, e.span.col, e.span.end_line, e.span.end_col, e.kind), e)

    def shown(self, value: Any) -> Any:
        """The type of a value as people are shown it; None where there is none."""
        if isinstance(value, Expr):
            return self.layer.type_of(value) or value
        if is_tuple(value):
            parts = [self.shown(v) for v in value]
            return tuple(parts) if parts and None not in parts else None
        if is_dict(value):
            fields = {k: self.shown(v) for k, v in value.items() if isinstance(k, str)}
            return fields if fields and len(fields) == len(value) and None not in fields.values() else None
        return self.layer.type_of(value)

    def depend(self, name: str, value: Any) -> None:
        """Notes that the result depends on something outside of the function's own text."""
        scope = self.frame.scope
        if isinstance(value, (Namespace, Builtin, OperatorRef)) and (scope.live or "." in name):
            return  # what the language's names mean is part of every key; whether a text gives them to others is not
        name = name if scope is self.definition.scope else f"{self.frame.source.file}:{name}"
        if name not in self.dependencies:
            self.dependencies[name] = was = fingerprint(value)
            again = read(scope, name.rpartition(":")[2])
            if again is value or fingerprint(again) == was:
                self.readers[name] = None if scope is self.definition.scope else scope

    # evaluation
    def eval(self, node: ast.expr) -> Any:
        """The value of an expression."""
        handler = EXPRESSIONS.get(type(node))
        if handler is None:
            return self.error("TS102", f"{_construct(node)} is not supported in a {self.definition.kind}", node)
        if type(node) in QUIET:  # these emit nothing, and their parts know their own places
            value = handler(self, node)
            if self.layer.owns(value):
                self.record(node, value)
            return value
        self.steps += 1
        if self.steps > self._look_at:
            self.look(node)
        outer = self.builder.span
        self.builder.span = span = self.frame.source.span(node)
        try:
            value = handler(self, node)
        except DimError as e:
            value = self.bad_size(e, node)
        finally:
            self.builder.span = outer
        if self.layer.owns(value):
            self.record(span, value)
        return value

    def run(self, statements: list[ast.stmt]) -> Flow:
        """Runs a block of statements. What stands behind the current one is kept: an early return makes it a branch."""
        rests = self.frame.rests
        rests.append((statements, 0))
        try:
            return self._run(statements, rests)
        finally:
            rests.pop()

    def _run(self, statements: list[ast.stmt], rests: list[Any]) -> Flow:
        top = len(rests) - 1
        for i, node in enumerate(statements):
            rests[top] = (statements, i)
            self.steps += 1
            if self.steps > self._look_at:
                self.look(node)
            handler = STATEMENTS.get(type(node))
            if handler is None:
                self.error(
                    "TS102", f"{_construct(node)} is not supported in a {self.definition.kind}", self.header(node)
                )
                self.frame.names |= dict.fromkeys(stored_names([node]), UNKNOWN)
                self.incomplete |= any(isinstance(n, ast.Return) for n in ast.walk(node))
                continue
            outer, self.builder.span = self.builder.span, self.frame.source.span(node)
            try:
                flow = handler(self, node)
            except DimError as e:
                self.bad_size(e, node)
                flow = Flow.NEXT
            finally:
                self.builder.span = outer
            if flow is not Flow.NEXT:
                return flow
        return Flow.NEXT

    # limits
    def look(self, node: ast.AST) -> None:
        """Every few hundred steps: whether some are left, and whether the editor has something else to do."""
        if self.steps > self.most:
            said = f"more than {self.most} steps run at compile time; loop with ts.range(...)"
            self.error("TS111", said, self.header(node) if isinstance(node, ast.stmt) else node)
            raise budget.ExhaustedError
        budget.pause()
        self._look_at = min(self.steps + budget.PAUSE, self.most)

    def weighed(self, node: ast.AST, value: Any) -> Any:
        """A new value; UNKNOWN after a finding (TS111) where it is too large. Going through it counts as steps."""
        if value.__class__ in _WEIGHED:
            if isinstance(value, int):
                if value.bit_length() > budget.BITS:
                    return self.too_large(node)
            else:
                found = budget.weight(value)
                self.steps += 0 if isinstance(value, (str, bytes)) else found
                if found > budget.ITEMS:
                    return self.too_large(node)
        return value

    def held(self, node: ast.AST, value: Any) -> None:
        """After a container was given `value`: where it holds itself now, or too much, the analysis ends."""
        if isinstance(self.weighed(node, value), Unknown) and not isinstance(value, Unknown):
            raise budget.ExhaustedError

    def too_large(self, node: ast.AST, what: str = "this") -> Unknown:
        return self.error("TS111", f"{what} makes a value too large to compute at compile time", node)

    def bad_size(self, error: DimError, node: ast.AST) -> Unknown:
        """A size that the dimension algebra refuses."""
        at = self.header(node) if isinstance(node, ast.stmt) else node
        return self.error("TS111" if isinstance(error, DimLimitError) else "TS107", str(error), at)

    # names
    def lookup(self, node: ast.Name) -> Any:
        name = node.id
        value = self.frame.lookup(name)
        if value is not MISSING:
            if name in self.frame.maybe and name in self.frame.names:
                return self.error(
                    "TS110", f"{name!r} is assigned on some paths only; assign it before, on all of them", node
                )
            return value
        if name in self.frame.locals:
            return self.error("TS110", f"{name!r} is used before it is assigned", node)
        value = self.layer.free_name(name, node)
        return self.free(name, node) if value is MISSING else value

    def free(self, name: str, node: ast.Name) -> Any:
        """A global or builtin; its content becomes part of what the result depends on."""
        value = self.frame.scope.lookup(name)
        if value is MISSING:
            known = [*self.frame.visible(), *self.layer.known_names(), *self.frame.scope.names()]
            hint, fixes = self.suggest(name, known, self.span(node))
            return self.error("TS103", f"{name!r} is not defined{hint}", node, fixes=fixes)
        adopted = self.layer.adopt(name, value, node)
        self.depend(name, value)
        return value if adopted is MISSING else adopted

    def assign_name(self, name: str, value: Any, at: ast.AST) -> None:
        self.frame.names[name] = value
        self.frame.maybe.discard(name)
        if isinstance(value, Value) and not value.hint:
            value.hint = name
        if name.isidentifier():  # else: a name that a layer gave to an element, `c[i]`
            self.record(at, value, name, "assign")

    # shared by handlers and layers
    def operate(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        """`left symbol right` for any two values: arithmetic, bit operators and comparisons."""
        return operate(self, node, symbol, left, right)

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls any value."""
        return call(self, node, callee, args, kwargs)

    def merged_returns(self, frame: Frame, returned: bool) -> Any:
        """What a call of `frame` gives: one value, or as much as is known of several possible ones."""
        value = frame.returned if returned else UNKNOWN if self.incomplete else None
        for other in frame.possible:
            if not isinstance(other, Unknown):
                value = other if isinstance(value, Unknown) else merge(self, other, value, frame.key)  # type: ignore[arg-type]
        return value

    def decide(self, node: ast.expr, value: Any) -> bool | None:
        """The truth of a value that is known now; None where it is not (then it is abstract or unknown)."""
        if isinstance(value, (Unknown, Number)) or self.layer.owns(value):
            return None
        if isinstance(value, Expr):  # a size: at least 0, and symbols are taken to be positive
            return None
        try:
            return bool(value)
        except Exception as e:
            self.error("TS107", f"{type(e).__name__}: {e}", node)
            return None

    @contextmanager
    def inside(self, frame: Frame) -> Generator[None]:
        """Evaluates in another frame for a while."""
        outer, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = outer


def _construct(node: ast.AST) -> str:
    names: dict[type[ast.AST], str] = {
        Sample: "sampling with ~", ast.Try: "try/except", ast.Await: "await", ast.Yield: "yield",
        ast.YieldFrom: "yield from", ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Import: "import",
        ast.ImportFrom: "import", ast.ClassDef: "a class definition", ast.AsyncFunctionDef: "an async function",
        ast.AsyncFor: "async for", ast.AsyncWith: "async with", ast.Delete: "del", ast.Match: "match",
    }  # fmt: skip
    return names.get(type(node), type(node).__name__)
