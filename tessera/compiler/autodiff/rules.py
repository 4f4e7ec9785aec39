"""The derivative rule of one op: whether it has one, which one, and the outside values that the op reads."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY, InferError, attributes_of, operator_of, split_operands, tensor
from tessera.compiler.graph.recognize import recognized
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.errors import CompileError, Diagnostic, Note

Rule = Literal["none", "adjoint", "decompose", "control", "launch", "missing"]


def smooth(value: Value) -> bool:
    """Whether a value of this type can have a derivative: real and complex numbers have, all others none."""
    return isinstance(value.type, TensorType) and (value.type.dtype.is_float or value.type.dtype.is_complex)


def rule_of(op: Op) -> Rule:
    """How the derivative of `op` is found."""
    if op.origin.constant:
        return "none"
    name = op.name.removeprefix("graph.")
    if name in ("if", "for", "while", "custom"):
        return "control"
    if name == "launch":
        return "launch"
    operator = REGISTRY.get(name)
    if operator is None or not operator.differentiable or not any(map(smooth, op.results)):
        return "none"
    if operator.adjoint is not None:
        return "adjoint"
    if operator.decompose is not None:
        return "decompose"
    return "missing"


def reads(op: Op) -> list[Value]:
    """The operands of `op`, and what its regions read from outside of it, each once."""
    return list(dict.fromkeys((*op.operands, *outside(*(b for r in op.regions for b in r.blocks)))))


def outside(*blocks: Block) -> Iterator[Value]:
    """The values that the ops of these blocks read and that are defined outside of them. Kernels read nothing but their
    operands."""
    for block in blocks:
        own = set(block.args)
        for op in block.ops:
            yield from (v for v in op.operands if v not in own)
            if op.name != "graph.launch":
                yield from (v for v in outside(*(b for r in op.regions for b in r.blocks)) if v not in own)
            own |= set(op.results)


def active(ops: Iterable[Op], wanted: Iterable[Value]) -> set[Value]:
    """The values that depend on `wanted` and can have a derivative; `wanted` are among them."""
    found = set(wanted)
    activate(ops, found)
    return found


def activate(ops: Iterable[Op], found: set[Value]) -> None:
    """Adds the values that depend on those `found` and can have a derivative."""
    for op in ops:
        if rule_of(op) != "none" and not found.isdisjoint(reads(op)):
            found.update(filter(smooth, op.results))


def refuse(code: str, message: str, op: Op, *notes: Note) -> CompileError:
    """The error at the forward line of `op`."""
    return CompileError(Diagnostic(code, message, op.span, notes=notes))


@contextmanager
def refusals_of(op: Op) -> Generator[None]:
    """What a rule refuses for these operands is an error at the forward line of `op`."""
    try:
        yield
    except InferError as e:
        raise refuse(e.diagnostic.code, e.diagnostic.message, op, *e.diagnostic.notes) from None


def shown(op: Op) -> str:
    return op.name.removeprefix("graph.")


def is_empty(op: Op) -> bool:
    """Whether nothing can change through `op`: its results have no elements, or what it reads has none. Of what a loop
    carries some may be empty, and the rest not."""
    return any(all(0 in tensor(v).shape for v in values if smooth(v)) for values in (op.results, reads(op)))


def demand_rule(op: Op) -> None:
    """Raises CompileError TS353, TS355 where nothing says what the derivative of `op` is."""
    rule = rule_of(op)
    if rule == "missing":
        message = f"{shown(op)} has no derivative here: no rule says what it is"
        raise refuse("TS353", f"{message}; write it in other operators, or cut it off with ts.stop_gradient", op)
    if rule == "launch":
        message = "a kernel has no derivative of its own: nothing says how its results change with its arguments"
        instead = "write a rule, @kernel.vjp, have one derived, kernel.vjp(kernel.backward()), or use operators here"
        raise refuse("TS355", f"{message}; {instead}", op)


def as_written(g: GraphBuilder, op: Op) -> tuple[tuple[Value, ...], list[Op]] | None:
    """The result of `op` as that of the operator that it is the last op of, and the ops that were emitted.

    None where scores are hidden by a number such as -1e9: the logarithms of sums, from which the weights are computed
    again, are lost beside it where a query sees nothing.
    """
    block = Block()
    with g.builder.inside(block):
        found = recognized(g, op)
    ops = list(block.ops)
    if any(o.name == "graph.attention_forward" and o.attrs["hidden"] != -math.inf for o in ops):
        for inner in reversed(ops):
            inner.erase()
        return None
    for inner in ops:
        g.builder.insert(inner)
    return None if found is None else ((found,), ops)


def decomposed(g: GraphBuilder, op: Op) -> tuple[tuple[Value, ...], list[Op]]:
    """The results of `op` in simpler operators, which are emitted, and those ops. `eliminate_common` sees later that
    the op itself computes the same."""
    block = Block()
    with g.builder.inside(block):
        found = in_simpler(g, op)
    ops = list(block.ops)
    for inner in ops:
        g.builder.insert(inner)
    return found, ops


def in_simpler(g: GraphBuilder, op: Op) -> tuple[Value, ...]:
    """The results of `op` by its decomposition."""
    rule = operator_of(op).decompose
    assert rule is not None
    found = rule(g, *split_operands(op), **attributes_of(op))
    if found is None:
        message = f"{shown(op)} of these operands has no derivative here: no rule says what it is"
        raise refuse("TS353", message, op)
    return cast("tuple[Value, ...]", found if isinstance(found, tuple) else (found,))
