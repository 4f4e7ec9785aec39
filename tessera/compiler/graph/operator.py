"""The definition of an operator. One class per operator holds everything that other parts need to know about it.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

from tessera.compiler.graph.cut import Combine
from tessera.compiler.graph.infer import Infer, InferError, Suggestion
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.spec import SPECS, OpSpec, Reading, demand, invalid
from tessera.compiler.ir.types import Shape, TensorType
from tessera.immutable import immutable
from tessera.language import dims
from tessera.language.absent import instead_of_parameter
from tessera.language.dims import Dim, DimError, Facts
from tessera.language.dims.remembering import RememberingFacts
from tessera.language.dtypes import DType
from tessera.language.policies import Policy
from tessera.language.scalars import TABLE

__all__ = [
    "BY_OP", "FUNCTIONS", "MEMBERS", "METHODS", "PROPERTIES", "REGISTRY", "Cost", "Infer", "InferError", "Kind",
    "Operator", "OperatorParameter", "Spread", "Suggestion", "TileKernel", "attributes_of", "facts_of", "flat",
    "kernel_for", "operator_of", "scalar_of", "split_operands", "tensor", "types_of", "verify_operator",
]  # fmt: skip

Kind = Literal[
    "map", "reduce", "contract", "view", "join", "gather", "scatter", "put", "scan", "sort", "spectral", "random",
    "generate", "table", "control",
]  # fmt: skip
"""map: elementwise; reduce: along axes; contract: sums of products; view: the same elements re-indexed by strides;
join: several inputs side by side; gather/scatter: computed indices; put: a part of a tensor replaced, in its own memory
where the old tensor is not needed; scan: prefix along an axis; sort: whole lines in order; spectral: Fourier
transforms of whole lines; random: counter based; generate: from nothing but attributes; table: so too, but as numbers
in memory, computed once by the compiler; control: if, while, for."""

ALIASES = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "ddof": "correction", "diagonal": "k", "steps": "num",
    "num_classes": "depth", "negative_slope": "slope",
}  # fmt: skip
"""Other libraries' spellings, accepted wherever ours is a parameter."""


@immutable
class Cost:
    """`flops`: floating point operations; `bytes`: the least memory traffic. Symbolic where shapes are."""

    flops: Dim
    bytes: Dim


class Spread(tuple[Any, ...]):
    """Sizes or axes that were spelled out as separate arguments: `permute(2, 0, 1)`."""


@immutable
class TileKernel:
    """A kernel of `tessera.kernels`, as `module.name`, that computes an operator. Its parameters are the operands, then
    the results, then the attributes and `constants` by name; a result that may be None is not computed where it is not
    read. `config`: its schedule's parameters; `even`: those that differ where products take any number of rows
    (`Sizes.any_rows`). `apart`: each result by a launch of its own. `steps`: launches one after the other on the same
    memory, each of which finds its number in a tensor of one int32 behind the results. `computes`: what people read
    that it does, `{0}` being the author's name for the first operand."""

    name: str
    computes: str
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    config: Mapping[str, int] = field(default_factory=dict[str, int])
    even: Mapping[str, int] = field(default_factory=dict[str, int])
    apart: bool = False
    steps: int = 1


@immutable
class OperatorParameter:
    """One parameter of the public signature. `spread`: as the last one it may be spelled out, `reshape(B, S, D)`."""

    name: str
    operand: bool
    variadic: bool
    optional: bool
    default: object
    annotation: str

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def spread(self) -> bool:
        return self.variadic or "Sequence" in self.annotation or "Shape" in self.annotation


class Operator:
    """Base of all operators; subclasses are registered under `name` (by default the class name in snake case)."""

    name: ClassVar[str] = ""
    kind: ClassVar[Kind | None] = None
    functions: ClassVar[tuple[str, ...] | None] = None
    """Public functions derived from it; None means one of the same name, () none."""
    space: ClassVar[str] = ""
    """The module of the package whose members its functions are: `linalg` for `ts.linalg`. Nothing: the package."""
    methods: ClassVar[tuple[str, ...] | None] = None
    """Tensor methods derived from it; None means one of the same name, () none."""
    properties: ClassVar[tuple[str, ...]] = ()
    """Tensor properties derived from it, e.g. `T`."""
    multiple: ClassVar[bool] = False
    """Whether it gives a tuple, such as `split`."""
    apart: ClassVar[tuple[str, ...]] = ()
    """Operands with dtypes of their own (masks, indices, seeds): Python numbers do not adapt across that line."""
    effect: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    """False: its derivatives are 0 or there are none (comparisons, rounding, positions, draws), so that no rule of it
    is missing. All others have an `adjoint`, or a decomposition to go through."""
    stored: ClassVar[bool] = False
    """Whether `reference` gets elements as they are stored, and not in the dtype that they are computed in."""
    batching: ClassVar[Literal["", "map", "axis", "leading", "batches", "trailing"]] = ""
    """What `ts.vmap` makes of it: operands broadcast (map), attribute `axis` counts one axis more, leading axes are
    batches (of operands of one rank, or of operands of any rank that all have the same batches), or the last axis is
    one. Nothing: what its kind says, or its decomposition (`graph/batching.py`)."""
    singular: ClassVar[str] = ""
    """What is wrong with finite operands whose result is not finite, where that is an error outside of functions."""
    says: ClassVar[Mapping[str, str]] = {}
    """The message for a missing parameter, or for one that only other libraries have; under "" for any other call that
    does not fit."""

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

    def fault(self, *arrays: Any, **attrs: Any) -> str | None:
        """What is wrong with these elements, where they make a result NaN that finite numbers do not explain."""
        return None

    decompose: Callable[..., Any] | None = None
    """(g, *operands, **attrs) -> Value | tuple: the same in simpler operators; required where `kind` is None. None as
    its result says that with these attributes the operator is a primitive."""
    kernel: Callable[..., TileKernel | None] | None = None
    """(operand types, attributes) -> the kernel written in tiles that computes it, instead of its decomposition; None
    where there is none for these. The decomposition stays what derivatives go through."""
    narrow: Callable[..., tuple[int, ...]] | None = None
    """(operand types) -> the places of operands that its kernel also takes in fewer bits, all of one dtype."""
    adjoint: Callable[..., Any] | None = None
    """(g, out, ct, *operands, **attrs) -> one cotangent (or None) per operand, given the cotangent of the output."""
    tangent: Callable[..., Any] | None = None
    """(g, out, tangents, *operands, **attrs) -> tangent of the output; tangents may be None (zero)."""
    saving: Callable[..., tuple[str, dict[str, Any]] | None] | None = None
    """(shapes of the operands, attributes) -> an operator and its attributes, whose results for these operands are this
    one's and what its derivative reads; None where there is none."""
    strided: Callable[..., tuple[Shape, Shape, Dim] | None] | None = None
    """Views: (shape, strides, offset, **attrs) -> the result's shape, strides and offset (in elements) over the same
    memory; None where it needs a copy."""
    windows: Callable[..., list[Shape]] | None = None
    """Joins: (shapes, **attrs) -> where in the result each operand starts."""

    partition: Callable[..., Combine | None] | None = None
    """(cut, *operand types, **attrs): how a dim that is cut into parts passes. None: parts of the operands give that
    part of the results; else how the parts' results combine to the whole one; `cut.whole(why)` where it needs the whole
    dim. Operators that say nothing are followed through their decomposition; without one they need the whole dim."""

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        """Floating point operations; by default one per result element, none for what only moves data."""
        if self.kind in ("view", "join", "gather", "scatter", "put", "generate"):
            return 0
        return dims.prod(results[0].shape) if results else 0

    def cost(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Cost:
        size: Dim = 0
        for x in (*flat(operands), *results):
            size = size + dims.prod(x.shape) * x.dtype.itemsize
        return Cost(self.flops(operands, results, **attrs), size)

    # what is derived
    def apply(self, t: Infer, types: Sequence[Any], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
        """The result types, under the merged policy of the operands. Raises InferError."""
        try:
            results = self.infer(t, *types, **attrs)
        except DimError as e:
            t.fail("TS213", f"{self.name}: {e}")
        policy = t.policy(flat(types))
        out = results if isinstance(results, tuple) else (results,)
        if t.facts.divisible:
            out = tuple(r.with_shape(tuple(map(t.facts.folded, r.shape))) for r in out)
        if policy is None and all(r.policy is None for r in out):
            return out
        return tuple(TensorType(r.shape, r.dtype, policy_for(policy, r.dtype)) for r in out)

    @cached_property
    def parameters(self) -> tuple[OperatorParameter, ...]:
        out: list[OperatorParameter] = []
        for p in list(inspect.signature(self.infer).parameters.values())[1:]:
            note = str(p.annotation)
            tensor = "TensorType" in note
            out.append(
                OperatorParameter(
                    p.name, tensor, tensor and "Sequence" in note, tensor and "None" in note, p.default, note
                )
            )
        return tuple(out)

    @cached_property
    def spreads(self) -> bool:
        """Whether a parameter takes the rest of the arguments."""
        return any(p.spread for p in self.parameters)

    @cached_property
    def operands(self) -> tuple[OperatorParameter, ...]:
        """The parameters that take tensors."""
        return tuple(p for p in self.parameters if p.operand)

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @cached_property
    def apart_operands(self) -> tuple[int, ...]:
        """The numbers of the operands that are `apart`."""
        return tuple(i for i, p in enumerate(self.operands) if p.name in self.apart)

    @cached_property
    def signature(self) -> str:
        """The public signature as text: `softmax(x, axis=-1)`."""
        name = f"{self.space}.{self.name}" if self.space else self.name
        return f"{name}({', '.join(p.name if p.required else f'{p.name}={p.default}' for p in self.parameters)})"

    @property
    def doc(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def function_names(self) -> tuple[str, ...]:
        return (self.name,) if self.functions is None else self.functions

    @property
    def method_names(self) -> tuple[str, ...]:
        return (self.name,) if self.methods is None else self.methods

    def _remark(self, parameter: str) -> str:
        said = self.says.get(parameter) or instead_of_parameter(parameter) or self.says.get("")
        return f"; {said}" if said else ""

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Sorts call arguments into operands (a list for a variadic parameter) and attributes, defaults filled in.

        Raises TypeError with a message for people when they do not fit.
        """
        names = self.parameter_names
        last = len(names) - 1
        # permute(2, 0, 1), reshape(B, S, D), einsum(equation, a, b): the last parameter may be spelled out
        if self.parameters and self.parameters[last].spread and len(args) > last:
            alone = len(args) == len(names) and (
                isinstance(args[last], (tuple, list)) or not self.parameters[last].variadic
            )
            if not alone:
                args = [*args[:last], Spread(args[last:])]
        if len(args) > len(names):
            arguments = "argument" if len(names) == 1 else "arguments"
            count = f"{len(names)} {arguments}, {len(args)} were given"
            raise TypeError(f"{self.signature} takes {count}{self._remark('')}")
        given: dict[str, Any] = dict(zip(names, args, strict=False))
        for key, value in kwargs.items():
            name = key if key in names else ALIASES.get(key, key)
            if name not in names:
                raise TypeError(f"{self.signature} has no parameter {key!r}{self._remark(key)}")
            if name in given:
                raise TypeError(f"{self.signature} got {name!r} twice")
            given[name] = value
        operands: list[Any] = []
        attrs: dict[str, Any] = {}
        for p in self.parameters:
            if p.name not in given and p.required:
                raise TypeError(f"{self.signature} needs {p.name!r}{self._remark(p.name)}")
            value = given.get(p.name, p.default)
            if p.operand:
                operands.append(self._several(value) if p.variadic else value)
            else:
                attrs[p.name] = value
        return operands, attrs

    def _several(self, value: Any) -> list[Any]:
        if not isinstance(value, Iterable):
            raise TypeError(f"{self.signature} takes a list or tuple of tensors: {self.name}([x, y])")
        return list(cast("Iterable[Any]", value))


def policy_for(policy: Policy | None, dtype: DType) -> Policy | None:
    """`policy` as far as it concerns results of this dtype: how floats are rounded is nothing to integers."""
    if policy is None:
        return None
    if dtype.is_float or dtype.is_complex:
        kept = replace(policy, dtype=None)
    else:
        kept = replace(policy, dtype=None, accum=None, compute=None, loss_scale=None, rounding=None, saturate=None)
    return None if kept.empty else kept


REGISTRY: dict[str, Operator] = {}
FUNCTIONS: dict[str, Operator] = {}
"""public function name -> operator"""
METHODS: dict[str, Operator] = {}
"""Tensor method name -> operator"""
PROPERTIES: dict[str, Operator] = {}
"""Tensor property name -> operator"""
MEMBERS: dict[str, dict[str, Operator]] = {"linalg": {}}
"""module of the package -> the operators that are functions of it, by name"""
BY_OP: dict[str, Operator] = {}
"""op name, such as `graph.matmul` -> operator"""


def register(operator: Operator) -> None:
    """Adds an operator, its public names and its op's verifier. Raises ValueError where a name is taken."""
    functions = MEMBERS[operator.space] if operator.space else FUNCTIONS
    tables = ((REGISTRY, (operator.name,)), (functions, operator.function_names), (METHODS, operator.method_names),
              (PROPERTIES, operator.properties))  # fmt: skip
    for table, names in tables:
        for name in names:
            if name in table:
                raise ValueError(f"{name} is taken by operator {table[name].name}")
            table[name] = operator
    op = f"graph.{operator.name}"
    BY_OP[op] = operator
    doc = (type(operator).__doc__ or "").partition("\n")[0]
    defaults = {p.name: p.default for p in operator.parameters if not p.operand}
    reading = Reading(defaults, operands=split_operands, covers=("segments",))
    SPECS[op] = OpSpec(op, doc, verify_operator, effects=operator.effect, reading=reading)


def operator_of(op: Op) -> Operator:
    """The definition of a `graph.*` op."""
    return BY_OP[op.name]


def scalar_of(op: Op) -> str | None:
    """The scalar function that a map op applies (its name is the op's); None for other kinds."""
    name = op.name.partition(".")[2]
    return name if name in TABLE else None


def axes_of(op: Op) -> tuple[int, ...] | None:
    """The axes that a reduction takes away."""
    return cast("tuple[int, ...] | None", op.attrs.get("axes", op.attrs.get("axis")))


def split_operands(op: Op) -> list[Any]:
    """The operands as the definition's parameters see them: lists for variadic, None for absent ones."""
    segments = cast("tuple[int, ...] | None", op.attrs.get("segments"))
    if segments is None:
        return list(op.operands)
    values: Iterator[Value] = iter(op.operands)
    return [next(values) if n == -1 else None if n == -2 else [next(values) for _ in range(n)] for n in segments]


def attributes_of(op: Op) -> dict[str, Any]:
    """The operator's attributes (without the bookkeeping ones)."""
    return {k: v for k, v in op.attrs.items() if k != "segments"}


def kernel_for(op: Op) -> TileKernel | None:
    """The kernel written in tiles that computes an op; None where it is lowered as its kind, or decomposed."""
    operator = BY_OP.get(op.name)
    if operator is None or operator.kernel is None or any(0 in tensor(v).shape for v in (*op.operands, *op.results)):
        return None
    return operator.kernel(types_of(split_operands(op)), attributes_of(op))


def all_single(operands: Sequence[Any]) -> bool:
    """Whether each operand is one value (or type): none is absent, a list, or still a Python number."""
    for o in operands:  # noqa: SIM110 (asked several times of every op that is made: no generator)
        if o.__class__ is not Value and o.__class__ is not TensorType:
            return False
    return True


def types_of(operands: Sequence[Any]) -> list[Any]:
    if all_single(operands):
        return [v.type for v in operands]
    return [[v.type for v in o] if isinstance(o, (list, tuple)) else None if o is None else o.type for o in operands]  # pyright: ignore


def flat(operands: Sequence[Any]) -> list[Any]:
    """Operands in one row: variadic ones spread out, absent ones left out."""
    if all_single(operands):
        return list(operands)
    return [
        v for o in operands if o is not None for v in (cast("list[Any]", o) if isinstance(o, (list, tuple)) else (o,))
    ]


def facts_of(op: Op) -> Facts:
    """The asserts in force at `op`: attrs `divisible` and `equal` (pairs of dims) of its function."""
    top = op
    while (parent := top.parent) is not None:
        top = parent
    facts = RememberingFacts()
    for a, b in cast("tuple[tuple[Dim, Dim], ...]", top.attrs.get("divisible", ())):
        facts.assume_divisible(a, b)
    for a, b in cast("tuple[tuple[Dim, Dim], ...]", top.attrs.get("equal", ())):
        facts.assume_equal(a, b)
    return facts


def verify_operator(op: Op) -> None:
    """The verifier of every operator's op: its shape rule, applied again, gives the result types it has."""
    operator, facts = operator_of(op), facts_of(op)
    t = Infer(operator.name, facts)
    try:
        types = operator.apply(t, types_of(split_operands(op)), attributes_of(op))
    except InferError as e:
        demand(False, op, e.diagnostic.message)
        return
    if t.casts:
        invalid(op, f"operands {sorted(t.casts)} lack their conversion")
    if len(types) != len(op.results):
        invalid(op, f"has {len(op.results)} results instead of {len(types)}")
    for want, result in zip(types, op.results, strict=True):
        have = tensor(result)
        if have == want:
            continue
        ok = have.dtype == want.dtype and have.rank == want.rank
        ok = ok and all(dims.compare(a, b, facts) != "no" for a, b in zip(have.shape, want.shape, strict=True))
        if not ok:  # the message only where it is needed: types are slow to print
            invalid(op, f"result is {have} instead of {want}")


def tensor(v: Value) -> TensorType:
    """The type of a Graph IR value."""
    assert isinstance(v.type, TensorType), v
    return v.type
