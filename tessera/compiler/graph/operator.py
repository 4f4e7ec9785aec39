"""What an operator is. One class per operator holds everything anybody needs to know about it.

    class Softmax(Operator):
        '''exp(x - max(x)) / sum(exp(x - max(x))) along `axis`.'''       # documentation, hover, docs page

        def infer(self, t, x: TensorType, axis: int = -1) -> TensorType:   # signature, shape and dtype rule
            t.axis(x, axis); t.require(x, "float")
            return x

        def reference(self, x, axis=-1): ...                               # NumPy, the golden model
        def decompose(self, g, x, axis=-1): ...                            # in terms of simpler operators
        def adjoint(self, g, out, ct, x, axis=-1): ...                     # reverse mode

The signature of `infer` is the operator's signature: parameters annotated `TensorType` are operands (`TensorType |
None` optional, `Sequence[TensorType]` a list), all others are attributes. Public functions, Tensor methods, type
stubs, completion and documentation are derived from it. `kind` says which structural kind of lowering handles it; an
operator without one must decompose.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn

from tessera.compiler.ir.checks import Check
from tessera.compiler.ir.core import Attr, Builder, Op, Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.errors import Diagnostic, Edit, Fix, Note
from tessera.language import dims, dtypes
from tessera.language.dims import Dim, Facts
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE, Accepts

Kind = Literal["map", "reduce", "contract", "view", "join", "gather", "scatter", "scan", "random", "generate", "control"]
"""map: elementwise; reduce: along axes; contract: sums of products; view: the same elements re-indexed by strides;
join: several inputs side by side; gather/scatter: computed indices; scan: prefix along an axis; random: counter based;
generate: from nothing but attributes; control: if, while, for."""

ALIASES = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}
"""PyTorch's spellings, accepted wherever the NumPy one is a parameter."""


class InferError(Exception):
    """An operator rejects its operands. Carries a diagnostic without a place; whoever applied the operator adds it."""

    def __init__(self, diagnostic: Diagnostic, operand: int | None = None) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic, self.operand = diagnostic, operand


@dataclass(frozen=True, slots=True)
class Cost:
    """`flops`: floating point operations; `bytes`: the least memory traffic. Symbolic where shapes are."""

    flops: Dim
    bytes: Dim


@dataclass(slots=True)
class Infer:
    """What a shape rule may ask and say. `facts` are the asserts in force; `checks` collects launch-time checks."""

    operator: Operator
    facts: Facts = field(default_factory=Facts)
    checks: list[Check] = field(default_factory=list)
    attrs: dict[str, Attr] = field(default_factory=dict)
    """attributes in canonical form (axes non-negative and sorted), which replace the ones given"""

    def fail(
        self, code: str, message: str, *notes: str, operand: int | None = None, fixes: tuple[Fix, ...] = (), label: str = ""
    ) -> NoReturn:
        """Rejects. `operand` is the index of the operand to underline; without it the whole call is."""
        raise InferError(Diagnostic(code, message, notes=tuple(Note(n) for n in notes), fixes=fixes, label=label), operand)

    def canonical(self, **attrs: Attr) -> None:
        self.attrs.update(attrs)

    # dims
    def same(self, a: Dim, b: Dim, code: str, message: str, operand: int | None = None) -> None:
        """Demands a == b: rejects with a counterexample, or notes a launch-time check where it is unknown."""
        answer = dims.compare(a, b, self.facts)
        if answer == "unknown":
            self.checks.append(Check(a, b, f"{self.operator.name}: {message}"))
        elif answer == "no":
            self.fail(code, message, *_counterexample(a, b), operand=operand)

    def axis(self, x: TensorType, axis: object, name: str = "axis", extra: int = 0) -> int:
        """`axis` counted from 0. `extra` = 1 for operators that insert an axis."""
        rank = x.rank + extra
        if not isinstance(axis, int) or isinstance(axis, bool):
            self.fail("TS204", f"{name} must be an integer known at compile time, not {axis!r}")
        if not -rank <= axis < rank:
            self.fail("TS204", f"{name}={axis} is out of range for {shape_text(x.shape)}, which has {x.rank} axes")
        return axis % rank

    def axes(self, x: TensorType, axis: object, name: str = "axis") -> tuple[int, ...]:
        """`axis` as a sorted tuple; None means all axes."""
        if axis is None:
            return tuple(range(x.rank))
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        found = [self.axis(x, a, name) for a in given]  # type: ignore[misc]
        if len(set(found)) != len(found):
            self.fail("TS204", f"{name}={axis} names an axis twice")
        return tuple(sorted(found))

    def broadcast(self, *shapes: Shape, code: str = "TS202") -> Shape:
        """NumPy's rule: aligned at the right; a size of 1 stretches."""
        rank = max(map(len, shapes))
        out: list[Dim] = []
        for i in range(rank):
            size: Dim = 1
            for s in shapes:
                d = s[i - rank + len(s)] if i >= rank - len(s) else 1
                if d == 1 or d == size:
                    continue
                if size == 1:
                    size = d
                    continue
                answer = dims.compare(size, d, self.facts)
                if answer == "no":
                    both = " and ".join(shape_text(s) for s in shapes)
                    self.fail(code, f"{both} do not broadcast: {size} meets {d} at axis {i - rank}",
                              *_counterexample(size, d))  # fmt: skip
                if answer == "unknown":
                    self.checks.append(Check(size, d, f"{self.operator.name}: broadcasting"))
            out.append(size)
        return tuple(out)

    # dtypes
    def require(self, x: TensorType, accepts: Accepts, operand: int | None = None) -> None:
        """Demands a class of dtypes."""
        d = x.dtype
        ok = {
            "any": True,
            "number": d.kind != "bool",
            "real": d.kind not in ("bool", "complex"),
            "float": d.is_float,
            "integer": d.is_integer,
            "bool": d.kind == "bool",
            "integral_or_bool": d.is_integer or d.kind == "bool",
        }[accepts]
        if not ok:
            what = "integers or bools" if accepts == "integral_or_bool" else f"{accepts} elements"
            self.fail("TS301", f"{self.operator.name} takes {what}, not {d}", operand=operand)

    def promote(self, *types: TensorType) -> DType:
        """The common dtype of the operands."""
        out = types[0].dtype
        for t in types[1:]:
            common = dtypes.promote(out, t.dtype)
            if common is None:
                self.fail("TS302", f"{out} and {t.dtype} have no common dtype; say which with cast(x, {out}) or cast(x, {t.dtype})")
            out = common
        return out


def _counterexample(a: Dim, b: Dim) -> tuple[str, ...]:
    example = dims.counterexample(a, b)
    if not example:
        return ()
    sizes = ", ".join(f"{n}={v}" for n, v in example.items())
    return (f"for example {sizes}: {dims.evaluate(a, example)} is not {dims.evaluate(b, example)}",)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the public signature."""

    name: str
    operand: bool
    variadic: bool
    optional: bool
    default: object
    annotation: str


class Operator:
    """Base of all operators; subclasses are registered under `name` (by default the class name in snake case)."""

    name: ClassVar[str] = ""
    kind: ClassVar[Kind | None] = None
    methods: ClassVar[tuple[str, ...] | None] = None
    """Tensor methods derived from it; None means one of the same name, () none."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """further public function names, e.g. "concatenate" """
    public: ClassVar[bool] = True
    effect: ClassVar[bool] = False

    def __init_subclass__(cls, abstract: bool = False, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if abstract:
            return
        if "name" not in cls.__dict__:
            cls.name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
        register(cls())

    # what a definition says
    def infer(self, t: Infer, *operands: Any, **attrs: Any) -> TensorType | tuple[TensorType, ...]:
        raise TypeError(f"operator {self.name} has no shape rule")

    def reference(self, *arrays: Any, **attrs: Any) -> Any:
        """The meaning on NumPy arrays (compute precision in, any precision out: callers cast to the result dtype)."""
        raise TypeError(f"operator {self.name} has no reference")

    decompose: Callable[..., Any] | None = None
    """(g, *operands, **attrs) -> Value | tuple: the same in simpler operators; required where `kind` is None."""
    adjoint: Callable[..., Any] | None = None
    """(g, out, ct, *operands, **attrs) -> one cotangent (or None) per operand, given the cotangent of the output."""
    tangent: Callable[..., Any] | None = None
    """(g, out, tangents, *operands, **attrs) -> tangent of the output; tangents may be None (zero)."""

    def flops(self, operands: Sequence[TensorType], results: Sequence[TensorType], **attrs: Any) -> Dim:
        """Floating point operations; by default one per result element."""
        return dims.prod(results[0].shape) if results else 0

    def cost(self, operands: Sequence[TensorType], results: Sequence[TensorType], **attrs: Any) -> Cost:
        size: Dim = 0
        for x in (*operands, *results):
            size = size + dims.prod(x.shape) * x.dtype.itemsize
        return Cost(self.flops(operands, results, **attrs), size)

    # what is derived
    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        out: list[Parameter] = []
        for p in list(inspect.signature(self.infer).parameters.values())[1:]:
            note = str(p.annotation)
            out.append(
                Parameter(p.name, "TensorType" in note, "Sequence[TensorType]" in note, "None" in note and "TensorType" in note,
                          p.default, note)  # fmt: skip
            )
        return tuple(out)

    @cached_property
    def signature(self) -> str:
        """The public signature as text: `softmax(x, axis=-1)`."""
        parts = [p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default!r}" for p in self.parameters]
        return f"{self.name}({', '.join(parts)})"

    @property
    def doc(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def method_names(self) -> tuple[str, ...]:
        return (self.name,) if self.methods is None else self.methods

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Sorts call arguments into operands (a list for a variadic parameter) and attributes, defaults filled in.

        Raises TypeError with a message for people when they do not fit.
        """
        names = [p.name for p in self.parameters]
        given: dict[str, Any] = {}
        # permute(2, 0, 1), reshape(B, S, D), squeeze(): a trailing shape or axes parameter may be spelled out
        if len(args) > len(names) and self.parameters and not self.parameters[-1].operand:
            head = len(names) - 1
            args = [*args[:head], tuple(args[head:])]
        if len(args) > len(names):
            raise TypeError(f"{self.signature} takes {len(names)} arguments, {len(args)} were given")
        given.update(zip(names, args, strict=False))
        for key, value in kwargs.items():
            name = key if key in names else ALIASES.get(key, key)
            if name not in names:
                raise TypeError(f"{self.signature} has no parameter {key!r}")
            if name in given:
                raise TypeError(f"{self.signature} got {name!r} twice")
            given[name] = value
        operands: list[Any] = []
        attrs: dict[str, Any] = {}
        for p in self.parameters:
            if p.name not in given and p.default is inspect.Parameter.empty:
                raise TypeError(f"{self.signature} needs {p.name!r}")
            value = given.get(p.name, p.default)
            if p.operand:
                operands.append(value)
            else:
                attrs[p.name] = value
        return operands, attrs


REGISTRY: dict[str, Operator] = {}
FUNCTIONS: dict[str, Operator] = {}
"""public function name -> operator"""
METHODS: dict[str, Operator] = {}
"""Tensor method name -> operator"""


def register(operator: Operator) -> None:
    """Adds an operator. Raises ValueError where the name is taken."""
    if operator.name in REGISTRY:
        raise ValueError(f"operator {operator.name} is registered twice")
    REGISTRY[operator.name] = operator
    if operator.public:
        for name in (operator.name, *operator.aliases):
            FUNCTIONS[name] = operator
    for name in operator.method_names if operator.public else ():
        METHODS[name] = operator


def operator_of(op: Op) -> Operator:
    """The definition of a `graph.*` op."""
    return REGISTRY[op.name.removeprefix("graph.")]


def split_operands(op: Op) -> list[Any]:
    """The operands of a `graph.*` op as its definition's parameters see them: lists for variadic, None for absent ones."""
    segments = op.attrs.get("segments")
    if segments is None:
        return list(op.operands)
    values: Iterator[Value] = iter(op.operands)
    out: list[Any] = []
    for n in segments:  # type: ignore[union-attr]
        out.append(next(values) if n == -1 else None if n == -2 else [next(values) for _ in range(n)])  # type: ignore[operator, arg-type]
    return out


def attributes_of(op: Op) -> dict[str, Any]:
    """The operator's attributes (without the bookkeeping ones)."""
    return {k: v for k, v in op.attrs.items() if k != "segments"}


def types_of(operands: Sequence[Any]) -> list[Any]:
    return [[v.type for v in o] if isinstance(o, (list, tuple)) else None if o is None else o.type for o in operands]


class GraphBuilder:
    """Emits operators by name: `g.exp(x)`, `g.sum(x, axis=(1,), keepdims=True)`. Python numbers become constants.

    `infer` state (facts, checks) is shared over everything it emits.
    """

    def __init__(self, builder: Builder, facts: Facts | None = None) -> None:
        self.builder = builder
        self.facts = facts or Facts()
        self.checks: list[Check] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in REGISTRY:
            raise AttributeError(f"no operator {name}")
        operator = REGISTRY[name]

        def emit(*args: Any, **kwargs: Any) -> Any:
            return self.emit(operator, *operator.bind(args, kwargs))

        return emit

    def constant(self, value: bool | int | float | complex, dtype: DType) -> Value:
        """A rank-0 constant."""
        kept = complex(value) if dtype.is_complex else float(value) if dtype.is_float else int(value)  # type: ignore[arg-type]
        return self.builder.value("graph.constant", (), TensorType((), dtype), {"value": kept})

    def emit(self, operator: Operator, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Applies the shape rule, then creates the op. Raises InferError. Returns a Value, or a tuple of Values."""
        operands = self.weak(operands)
        t = Infer(operator, self.facts, self.checks)
        types = operator.infer(t, *types_of(operands), **attrs)
        results = types if isinstance(types, tuple) else (types,)
        flat: list[Value] = []
        segments: list[int] = []
        for o in operands:
            if isinstance(o, list):
                segments.append(len(o))
                flat += o
            elif o is None:
                segments.append(-2)
            else:
                segments.append(-1)
                flat.append(o)
        final: dict[str, Attr] = {k: tuple(v) if isinstance(v, list) else v for k, v in {**attrs, **t.attrs}.items()}
        if any(s != -1 for s in segments):
            final["segments"] = tuple(segments)
        op = self.builder.op(f"graph.{operator.name}", flat, results, final)
        return tuple(op.results) if isinstance(types, tuple) else op.result

    def weak(self, operands: Sequence[Any]) -> list[Any]:
        """Python numbers among the operands become constants of a dtype that adapts to the tensors beside them."""
        tensors = [v for o in operands for v in (o if isinstance(o, (list, tuple)) else (o,)) if isinstance(v, Value)]
        other: DType | None = None
        for v in tensors:
            assert isinstance(v.type, TensorType)
            if v.type.dtype.kind != "bool" or other is None:
                other = v.type.dtype if other is None else dtypes.promote(other, v.type.dtype) or other

        def one(o: Any) -> Any:
            if isinstance(o, (bool, int, float, complex)):
                dtype = dtypes.weak(o, other)
                assert dtype is not None
                return self.constant(o, dtype)
            if isinstance(o, (list, tuple)):
                return [one(v) for v in o]
            return o

        return [one(o) for o in operands]


def edit_fix(message: str, *edits: Edit) -> Fix:
    return Fix(message, edits)


def scalar_of(op: Op) -> str | None:
    """The scalar function that a map op applies (its name is the op's); None for other kinds."""
    name = op.name.partition(".")[2]
    return name if name in TABLE else None
