"""The evaluator: one abstract interpreter of Python for both layers and both scopes.

It walks a function's AST. Ordinary Python values are computed now; tensors or tiles become IR through the layer; what
cannot be known is UNKNOWN and stays quiet, so that one mistake gives one finding and every mistake of a function is
found. What a kind of node means stands in the other modules of this package, which register it with `@evaluates`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.report import AnalysisRecord
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.names.frame import Closure, Flow, Frame, Path
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    Counting,
    Method,
    Namespace,
    Number,
    OperatorRef,
    Record,
    Unknown,
    is_dict,
    is_tuple,
)
from tessera.compiler.frontend.names.vocabulary import made, operators
from tessera.compiler.frontend.result import Analysis, ArgType, ExprInfo, Kind
from tessera.compiler.frontend.syntax.assigned import stored_names
from tessera.compiler.frontend.syntax.parse import Sample
from tessera.compiler.ir.core import Builder, Op, Value
from tessera.compiler.ir.types import TensorType, Type
from tessera.compiler.unit import Param
from tessera.errors import Diagnostic, Span
from tessera.language.annotations import Annotation
from tessera.language.dims import DimError, Expr
from tessera.language.dtypes import DType
from tessera.language.policies import Policy

HANDLERS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {}
"""what each kind of node means: an expression's value, or how a statement ends"""
F = TypeVar("F", bound=Callable[..., Any])
QUIET = frozenset({ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Slice, ast.Dict, ast.JoinedStr, ast.FormattedValue})


Analyse = Callable[[Definition, "Mapping[str, ArgType] | None"], Analysis]


def evaluates(*kinds: type[ast.AST]) -> Callable[[F], F]:
    """Makes a function of the evaluator and a node the meaning of these kinds of nodes."""

    def register(handler: F) -> F:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def method(function: F) -> F:
    """Gives the evaluator a function of another module as the method of this name, which is declared below."""
    setattr(Evaluator, function.__name__, function)
    return function


class Evaluator(AnalysisRecord):
    """State of one analysis. `sizes` fixes named dims; `analyse` a kernel that is called; `most`: the steps that it may
    take."""

    # What modules of this package ask of each other, and the layers of them: see `method`.
    call: Callable[[ast.AST, Any, list[Any], dict[str, Any]], Any]
    """Calls any value: (node, callee, args, kwargs) -> value."""
    operate: Callable[[ast.AST, str, Any, Any], Any]
    """(node, symbol, left, right) -> `left symbol right` for any two values: arithmetic, bits and comparisons."""
    special: Callable[..., Any]
    """(node, record, name, *args) -> what its class's method `__name__` gives; MISSING where it has none."""
    assign: Callable[[ast.expr, Any], None]
    """Gives a target a value: a name, items to be unpacked, a subscript, an attribute."""
    items: Callable[[list[ast.expr]], list[Any]]
    iterate: Callable[[ast.AST, Any], list[Any] | None]
    whole: Callable[[ast.AST, Any], Any]
    """(node, value) -> the value with arrays from outside, in structures too, as tensors."""
    merge: Callable[[Any, Any, ast.AST], Any]
    branch: Callable[[ast.If, Any], Flow]
    """`if`, `a if condition else b`, `for` and `while` that are decided when the program runs."""
    choose: Callable[[ast.IfExp, Any], Any]
    for_loop: Callable[[ast.For, Counting], Flow]
    while_loop: Callable[[ast.While], Flow]

    def __init__(
        self, definition: Definition, layer: Callable[[Evaluator], Layer], sizes: Mapping[str, int], analyse: Analyse,
        most: int = budget.STEPS,
    ) -> None:  # fmt: skip
        super().__init__(definition, most)
        self.sizes, self.analyse = sizes, analyse
        self.live = definition.scope.live
        self.builder: Builder = Builder(self.block, span=definition.span)
        self.lead = 1
        """how many axes `...` stands for in annotations"""
        self.returns: Annotation | None = None
        self.item_spans: list[Span] = []
        """places of the values of a `return a, b`"""
        self.outside = False
        """whether what is evaluated stands outside of programs: a model that a file constructs"""
        self.ran_layers = False
        """whether that has called a layer: it rests on more than constructors"""
        self.as_python = False
        """whether a plain function of ordinary values is evaluated, which the compiler has Python run"""
        self.endless: set[object] = set()
        """functions whose recursion has been found not to end"""
        self.alike: dict[Any, Any] = {}
        """calls that have been evaluated, by their arguments: see `alike`"""
        self.settled: dict[int, Any] = {}
        """keys of frozen arguments: see `alike`"""
        self.seeded: list[Any] = []
        """generators of random numbers that the program itself has made, from a seed"""
        self.drawn = 0
        """how many places have drawn without a key"""
        self.averages: dict[Value, Value] = {}
        """of the model that a step of `ts.train` trains: its buffers, and what they are now"""
        self.moved = 0
        """how often a layer has moved one of them"""
        self.invoked = 0
        """how often Python has run a function, which may do anything"""
        self._foreign: dict[int, Any] = {}
        """containers from outside of the program, by identity"""
        self.speculative = 0
        """how many undecided branches are open: what fails inside may never happen"""
        self.paths = 0
        """how many paths are open that tensor elements choose"""
        self.differentiating = 0
        """how many derivatives are being taken"""
        self.gradients: set[Value] = set()
        """what `ts.grad` and `ts.value_and_grad` gave"""
        self.states: list[Any] = []
        """the stateful objects of the caller: see `states`"""
        self.layer = layer(self)

    def diagnostic(self, code: str, message: str, at: ast.AST | Span, **more: Any) -> Diagnostic:
        return super().diagnostic(code, self.layer.wording(message), at, **more)

    def record(self, at: ast.AST | Span, value: Any, name: str = "", kind: Kind = "expr") -> None:
        """Keeps the type of an expression, where somebody may ask for it."""
        if self.frame.kept is None:
            return
        shown = self.shown(value)
        if shown is not None:
            span = self.span(at)
            self.keep(ExprInfo(span, shown, name, kind))
            if isinstance(value, Value) and not self.live:
                self.places.append((span, kind, value))

    def record_index(self, at: ast.AST, found: Any) -> None:
        """Keeps where an index of the analysed kernel stands: something with `pretty()`."""
        if self.frame.source is self.definition.text:
            self.keep(ExprInfo(self.span(at), found, "", "index"))

    def shown(self, value: Any) -> Any:
        """The type of a value for display; None if it has none."""
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
        if self.outside:
            return  # who keeps what a text makes compares its names
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
        handler = HANDLERS.get(type(node))
        if handler is None:
            self.incomplete |= isinstance(node, (ast.Yield, ast.YieldFrom))
            return self.error("TS102", f"{_construct(node)} is not supported in a {self.definition.kind}", node)
        if type(node) in QUIET:  # these emit nothing, and their parts know their own places
            value = handler(self, node)
            if self.layer.owns(value):
                self.record(node, value)
            return value
        self.steps += 1
        if self.steps > self.look_at:
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
            if self.steps > self.look_at:
                self.look(node)
            handler = HANDLERS.get(type(node))
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
        self.keep_unchanged(value)
        return value if adopted is MISSING else adopted

    def keep_unchanged(self, value: Any, copied: bool = False) -> None:
        """Notes the containers of a value from outside, which the program does not change. `copied`: its lists and
        dicts are the program's own; what an object in it holds is the caller's."""
        if isinstance(value, Record):
            value, copied = tuple(value.members.values()), False
        if value.__class__ not in (list, dict, set, tuple) or self.is_foreign(id(value)):
            return
        if not copied and not is_tuple(value):
            self._foreign[id(value)] = value
        for held in value.values() if is_dict(value) else value:
            self.keep_unchanged(held, copied)

    def is_foreign(self, identity: int) -> bool:
        """Whether the container of this identity is not the program's own."""
        return identity in self._foreign

    def may_change(self, container: Any, node: ast.AST) -> bool:
        """Whether a container is the program's own. False after a finding."""
        if id(container) not in self._foreign:
            return True
        what = f"a {type(container).__name__} from outside cannot be changed"
        self.error("TS102", f"a function has no side effects: {what}; return what it would get", node)
        return False

    def assign_name(self, name: str, value: Any, at: ast.AST) -> None:
        self.frame.names[name] = value
        self.frame.maybe.discard(name)
        if isinstance(value, Value) and not value.hint:
            value.hint = name
        if name.isidentifier():  # else: a name that a layer gave to an element, `c[i]`
            self.record(at, value, name, "assign")

    def merged_returns(self, frame: Frame, returned: bool) -> Any:
        """What a call of `frame` gives: one value, or as much as is known of several possible ones."""
        value = frame.returned if returned else UNKNOWN if self.incomplete else None
        for other in frame.possible:
            if not isinstance(other, Unknown):
                value = other if isinstance(value, Unknown) else self.merge(other, value, frame.key)  # type: ignore[arg-type]
        return value

    def decide(self, node: ast.expr, value: Any) -> bool | None:
        """The truth of a value that is known now; None where it is not (then it is abstract or unknown)."""
        if isinstance(value, (Unknown, Number)) or self.layer.owns(value):
            return None
        if isinstance(value, Expr):  # a size: at least 0, and symbols are taken to be positive
            return None
        if isinstance(value, Record):
            told = (self.special(node, value, name) for name in ("bool", "len"))
            found = next((t for t in told if t is not MISSING), True)
            return found if found is True else self.decide(node, found)
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


Handler = Callable[..., Any]
"""(ev, node, args, kwargs) -> value"""


class Layer:
    """What the evaluator asks of a layer: the function layer answers in Graph IR, the kernel layer in Tile IR.

    The evaluator knows Python: names, control flow, calls, containers. Whenever an operand is abstract in the layer's
    own sense (`owns`), it hands the node over. A hook returns a value, or reports an error through `ev.error(...)` and
    returns UNKNOWN. Operands that are Unknown never reach a hook. Defaults reject; a subclass overrides what it can do.
    """

    prefix: ClassVar[str] = ""
    """the dialect of its structured control flow: `graph` or `tile`"""
    functions = ""
    """where the functions that take its values stand, below `tessera`: `.tile`"""

    builtins: Mapping[str, Handler] = {}
    """what `Builtin` values of this layer do, by path"""

    closer = False
    """an evaluation `again` whose findings are those to show even where it fails too"""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self.captures: list[Any] = []

    # parameters and result
    def parameter(self, name: str, type: TensorType, annotation: Annotation, span: Span) -> Any:
        """The value of a parameter that is passed when the program runs; rank 0 is a scalar. Called in order."""
        raise NotImplementedError

    def returned(self, value: Any, span: Span, annotation: Annotation | None) -> Any:
        """Checks and converts what a `return` of the analysed function gives (None when it falls off the end)."""
        return value

    def declared(self, node: ast.AnnAssign) -> None:
        """`y: Tensor["B", "D"]`, without a value."""

    def finish(self, value: Any) -> Op | None:
        """Builds the function's op around `ev.block` once the body has been evaluated without errors."""
        raise NotImplementedError

    def again(self) -> Callable[[Evaluator], Layer] | None:
        """Another layer to evaluate the definition with, where an assumption of this one turned out wrong."""
        return None

    def has_function(self, name: str) -> bool:
        """Whether there is a function of this name for its values."""
        return name in operators() or name in made()

    def capture_names(self) -> Sequence[str]:
        """The dotted names that `captures` were read from."""
        return ()

    def params(self) -> Sequence[Param]:
        """The runtime parameters, in the order of the op's arguments; captured arrays come last."""
        return ()

    # values
    def owns(self, value: Any) -> bool:
        """Whether operators, methods and subscripts of `value` are this layer's business."""
        return isinstance(value, Value)

    def type_of(self, value: Any) -> Any:
        """The type shown to people for `value`; None where there is nothing to show."""
        return value.type if isinstance(value, Value) else None

    def wording(self, message: str) -> str:
        """A message as people read it, without the names that this layer gives to what it makes itself."""
        return message

    def adopt(self, name: str, value: Any, node: ast.AST) -> Any:
        """A live object met in a closure or global that this layer turns into a value (an array); else MISSING."""
        return MISSING

    def free_name(self, name: str, node: ast.Name) -> Any:
        """A name that nothing binds, before globals are searched; else MISSING."""
        return MISSING

    def known_names(self) -> Sequence[str]:
        """Names that `free_name` knows, for "did you mean"."""
        return ()

    def lift(self, value: Any, like: Type | None, span: Span) -> Value | None:
        """A Python number (or size) as an IR value, of the type `like` where given; None where it cannot be one."""
        return value if isinstance(value, Value) else None

    def placeholder(self, type: Type, span: Span) -> Value:
        """A value of a type whose content is undecided (the analysis will give no IR)."""
        self.ev.guesses += 1
        return self._open(type, span)

    def _open(self, type: Type, span: Span) -> Value:
        return self.ev.builder.op(f"{self.prefix}.undecided", (), (type,), span=span).result

    def open_number(self, value: Number, type: Type, span: Span) -> Value:
        """A number as a tensor before it is known."""
        self.ev.undecide(f"{value.text} must be known", span)
        self.ev.harmless += 1
        return self._open(type, span)

    # operators
    def binary(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        """`left symbol right`; comparisons (`<`, `==`) come here too."""
        raise NotImplementedError

    def unary(self, node: ast.AST, symbol: str, operand: Any) -> Any:
        raise NotImplementedError

    def subscript(self, node: ast.AST, value: Any, index: Any) -> Any:
        raise NotImplementedError

    def store(self, node: ast.AST, value: Any, index: Any, item: Any) -> None:
        """`value[index] = item`"""
        raise NotImplementedError

    def ended(self, frame: Frame, tree: ast.FunctionDef | ast.Lambda, value: Any) -> None:
        """A function has run, and `value` is what it returns."""

    def augment(self, node: ast.AST, value: Any, index: Any, symbol: str, item: Any) -> None:
        """`value[index] symbol= item`; by default read, operate, store."""
        old = self.subscript(node, value, index)
        self.store(node, value, index, self.ev.operate(node, symbol, old, item))

    def attribute(self, node: ast.AST, value: Any, name: str) -> Any:
        """`value.name`: a property's value, a `Method` to be called, or MISSING."""
        return MISSING

    def attributes(self, value: Any) -> Sequence[str]:
        """Names that `attribute` knows for `value`, for "did you mean" and completion."""
        return ()

    def method(self, node: ast.Call, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A Builtin without a Python meaning, or an OperatorRef."""
        if isinstance(callee, Builtin) and callee.path in self.builtins:
            return self.builtins[callee.path](self.ev, node, args, kwargs)
        return self.ev.error("TS401", f"{callee.name} cannot be used in a {self.ev.definition.kind}", node)

    def transformed(self, node: ast.AST, callee: TransformedRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of `ts.grad(f)` and its relatives."""
        return self.ev.error("TS401", f"{callee.described} cannot be called in a {self.ev.definition.kind}", node)

    def ruled(
        self, node: ast.AST, closure: Closure, args: list[Any], kwargs: dict[str, Any], run: Callable[..., Any]
    ) -> Any:
        """A call of a function with a derivative of its own, while one is taken; `run(args, kwargs)` evaluates it."""
        return run(args, kwargs)

    def settle(self, value: Any) -> Any:
        """An argument of an ordinary function that is called now: a size that is known becomes an integer."""
        return value

    def number(self, value: Any, dtype: DType, span: Span) -> Value | None:
        """The argument of a scalar parameter as a value, of `dtype` where it adapts; None where it cannot be one."""
        raise NotImplementedError

    def converted(self, value: Value, dtype: DType, span: Span) -> Value:
        """`value` with elements of another dtype."""
        raise NotImplementedError

    def under(self, value: Value, policy: Policy, span: Span) -> Value:
        """`value` with these numerics as well. Raises PolicyError."""
        raise NotImplementedError

    # control flow over abstract values
    def branch(self, node: ast.If, condition: Any) -> Flow:
        """`if` on an owned value. `ev.frame.continuation()` are the statements that would run after it."""
        return self.ev.branch(node, condition)

    def leave(self, paths: list[Path]) -> bool:
        """Paths of a branch end differently, in a loop that runs when the program runs: makes them end alike, in the
        loop's next step. False where that is not possible."""
        return False

    def choose(self, node: ast.IfExp, condition: Any) -> Any:
        """`a if condition else b` on an owned condition."""
        return self.ev.choose(node, condition)

    def loop(self, node: ast.For, counting: Counting) -> Flow:
        """`for i in ts.range(...)` or the layer's own range."""
        return self.ev.for_loop(node, counting)

    def rolls(self, node: ast.While) -> bool:
        """Whether a loop whose condition is known runs when the program runs, for that is when it is left."""
        return False

    def repeat(self, node: ast.While, condition: Any) -> Flow:
        """`while` on an owned condition."""
        return self.ev.while_loop(node)

    def counter(self) -> Type:
        """The type of a structured loop's counter."""
        raise NotImplementedError

    def iterate(self, node: ast.AST, value: Any) -> list[Any] | None:
        """The items of an owned value, for loops and unpacking; None where it has no known number of items."""
        return None

    def condition(self, node: ast.AST, value: Any) -> Value | None:
        """An owned value as a branch condition (a rank-0 bool); None after reporting why it cannot be one."""
        raise NotImplementedError

    def logical(self, node: ast.AST, symbol: str, values: list[Any]) -> Any:
        """`and`, `or` and `not` with an owned operand."""
        raise NotImplementedError

    def assertion(self, node: ast.Assert, value: Any) -> None:
        """`assert` of an owned value."""
        self.ev.error("TS102", "an assert over tensor elements has no meaning here; check sizes, or use ts.where", node)
