"""Graph IR written by calling operators as functions: what decompositions, adjoints and lowerings are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast

from tessera.compiler.graph.infer import Infer, InferError, shown
from tessera.compiler.graph.operator import (
    REGISTRY,
    Operator,
    all_single,
    facts_of,
    flat,
    policy_for,
    tensor,
    types_of,
)
from tessera.compiler.ir.core import Attr, Builder, Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic
from tessera.language import dtypes
from tessera.language.dims import Dim, Expr, Facts
from tessera.language.dtypes import DType
from tessera.language.policies import Policy


class GraphBuilder:
    """Emits operators by name: `g.exp(x)`, `g.sum(x, axis=(1,), keepdims=True)`. Python numbers become constants.

    `infer` state (facts, checks) is shared over everything it emits. Without `facts`, they are those in force at the op
    `at`, looked for once something is emitted.
    """

    def __init__(self, builder: Builder, facts: Facts | None = None, at: Op | None = None) -> None:
        self.builder, self.at = builder, at
        self.checks: list[LaunchCheck] = []
        if facts is not None:
            self.facts = facts

    @cached_property
    def facts(self) -> Facts:
        return Facts() if self.at is None else facts_of(self.at)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in REGISTRY:
            raise AttributeError(f"no operator {name}")
        operator = REGISTRY[name]

        def emit(*args: Any, **kwargs: Any) -> Any:
            return self.emit(operator, *operator.bind(args, kwargs))

        return emit

    def constant(self, value: bool | int | float | complex, dtype: DType) -> Value:
        """A rank-0 constant."""
        return self.builder.value("graph.constant", (), TensorType((), dtype), {"value": number_of(value, dtype)})

    def size(self, dim: Dim, dtype: DType) -> Value:
        """A dim as a rank-0 number: a constant where it is known, else read at launch."""
        return self.full((), dim, dtype) if isinstance(dim, Expr) else self.constant(dim, dtype)

    def compute(self, x: Value) -> Value:
        """`x` in the dtype that arithmetic is done in (f32 for narrower floats)."""
        return self.to(x, tensor(x).dtype.compute)

    def to(self, x: Value, dtype: DType) -> Value:
        """`x` converted to `dtype`; itself where it has it."""
        return x if tensor(x).dtype == dtype else self.cast(x, dtype)

    def under(self, x: Value, policy: Policy) -> Value:
        """`x` with these numerics as well: a cast to its own dtype, whose type says more. Raises PolicyError."""
        have = tensor(x)
        wanted = policy_for(policy if have.policy is None else have.policy.merge(policy), have.dtype)
        if wanted == have.policy:
            return x
        return self.builder.value("graph.cast", (x,), TensorType(have.shape, have.dtype, wanted), {"dtype": have.dtype})

    def emit(self, operator: Operator, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Applies the shape rule, then creates the op. Raises InferError. Returns a Value, or a tuple of Values."""
        if not all_single(operands):
            operands = self.weak(operands, operator.apart_operands)
        t = Infer(operator.name, self.facts, self.checks)
        for name, value in attrs.items():
            if _dynamic(value):
                message = f"{name} of {operator.signature} must be known at compile time, not computed from tensors"
                t.fail("TS105", message)
        if not all_single(operands):
            _demand_tensors(t, operator, operands)
        if operator.name == "pow":
            _demand_power(t, *operands)
        types = operator.apply(t, types_of(operands), attrs)
        values = flat(operands)
        if t.casts:
            values = [self.to(v, t.casts[i]) if i in t.casts else v for i, v in enumerate(values)]
        final: dict[str, Attr] = {k: _plain(v) for k, v in (attrs | t.attrs).items()}
        if not all_single(operands):
            final["segments"] = tuple(
                len(flat([o])) if isinstance(o, list) else -2 if o is None else -1 for o in operands
            )
        op = self.builder.op(f"graph.{operator.name}", values, types, final)
        return tuple(op.results) if operator.multiple else op.result

    def weak(self, operands: Sequence[Any], apart: Sequence[int] = ()) -> list[Any]:
        """Python numbers and dims among the operands become constants; their dtype adapts to the tensors beside them.

        The dtypes of operands whose positions are in `apart` and those of the others do not depend on each other.
        """
        other: DType | None = None
        for v in flat([o for i, o in enumerate(operands) if i not in apart]):
            if isinstance(v, Value) and (tensor(v).dtype.kind != "bool" or other is None):
                other = tensor(v).dtype if other is None else dtypes.promote(other, tensor(v).dtype) or other
        return [self._weak(o, None if i in apart else other) for i, o in enumerate(operands)]

    def _weak(self, o: Any, other: DType | None) -> Any:
        if isinstance(o, (list, tuple)):
            return [self._weak(v, other) for v in cast("list[Any]", o)]
        if isinstance(o, Expr):
            return self.size(o, dtypes.weak(0, other) or dtypes.int64)
        dtype = dtypes.weak(o, other)
        if dtype is None:
            return o
        if isinstance(o, int) and dtypes.number(o, dtype) is None:
            raise InferError(Diagnostic("TS302", f"{shown(o)} does not fit {dtype}"))
        return self.constant(o, dtype)


def _demand_power(t: Infer, base: Any, exponent: Any) -> None:
    """Refuses an integer to the power of a negative one, whose value is not an integer. NumPy does so too."""
    if isinstance(exponent, Value):
        constant = exponent.op is not None and exponent.op.name == "graph.constant"
        exponent = exponent.op.attrs["value"] if constant and exponent.op else None
    if isinstance(base, Value) and tensor(base).dtype.is_integer and isinstance(exponent, int) and exponent < 0:
        dtype = tensor(base).dtype
        t.fail("TS301", f"{dtype} to the power of {exponent} is not {dtype}; write x ** {float(exponent)}", operand=0)


def _demand_tensors(t: Infer, operator: Operator, operands: Sequence[Any]) -> None:
    """Refuses what is not a tensor where one is wanted."""
    for p, o in zip(operator.operands, operands, strict=False):
        if o is None and p.optional:
            continue
        for v in cast("list[Any]", o) if p.variadic and isinstance(o, (list, tuple)) else (o,):
            if not isinstance(v, Value):
                given: object = v
                how = "; ts.array makes a tensor of a list" if isinstance(given, list) else ""
                t.fail("TS105", f"{operator.name} takes a tensor or a number as {p.name}, not {shown(v)}{how}")


def _dynamic(value: Any) -> bool:
    return isinstance(value, Value) or (
        isinstance(value, (tuple, list)) and any(map(_dynamic, cast("list[Any]", value)))
    )


def _plain(value: Any) -> Attr:
    """An attribute as data: sequences become tuples."""
    return tuple(_plain(v) for v in cast("list[Any]", value)) if isinstance(value, (list, tuple)) else value


def number_of(value: bool | int | float | complex, dtype: DType) -> bool | int | float | complex:
    """A number as an element of a dtype is written."""
    if dtype.kind == "bool":
        return bool(value)
    return complex(value) if dtype.is_complex else float(value) if dtype.is_float else int(value)  # type: ignore[arg-type]
