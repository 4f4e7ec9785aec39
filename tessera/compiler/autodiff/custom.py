"""Custom derivative rules of a whole function: `graph.custom`.

It is in a function only while derivatives are taken: `inline_custom` replaces it with the ops of its first region. The
ops of a rule are ops like any other, so derivatives of derivatives are taken through them; the mode that has no rule is
the transpose of the one that has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from tessera.compiler.autodiff import forward, reverse
from tessera.compiler.autodiff.control import replay
from tessera.compiler.autodiff.forward import Forward
from tessera.compiler.autodiff.reverse import Reverse, pull_back
from tessera.compiler.autodiff.rules import outside, refuse, smooth
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.spec import demand, spec


@spec(
    "graph.custom",
    "Runs its first region. attrs: rules, of each further region 'vjp' or 'jvp'; vjp, jvp: of which operands and "
    "results their values are, by number; function: its name. All regions take the operands; those of rules also the "
    "results, and a cotangent for each result or a tangent for each operand.",
)
def _custom(op: Op) -> None:
    rules = op.attrs.get("rules")
    demand(isinstance(rules, tuple) and len(op.regions) == 1 + len(rules), op, "has a region for each rule, and one")
    yields = op.regions[0].block.terminator.operands
    demand([v.type for v in yields] == [r.type for r in op.results], op, "its first region yields its results")


def inline_custom(blocks: Iterable[Block]) -> None:
    """Puts what the ops compute in their place, in these blocks and in the regions inside."""
    for block in blocks:
        for op in list(block.ops):
            inline_custom([b for r in op.regions for b in r.blocks] if op.name != "graph.launch" else [])
            if op.name == "graph.custom":
                _inline(op)


def _inline(op: Op) -> None:
    assert op.block is not None
    inner = op.regions[0].block
    for arg, operand in zip(inner.args, op.operands, strict=True):
        arg.replace_by(operand)
    for result, value in zip(op.results, inner.terminator.operands, strict=True):
        result.replace_by(value)
    at = op.block.index(op)
    for i, one in enumerate(inner.ops[:-1]):
        op.block.insert(at + i, one)
    del inner.ops[:-1]
    op.erase()


def _region(op: Op, rule: str) -> Block | None:
    rules = cast("tuple[str, ...]", op.attrs["rules"])
    return op.regions[1 + rules.index(rule)].block if rule in rules else None


def _demand_given(op: Op, live: Iterable[Value]) -> None:
    """A rule gives no derivative for values that the function reads beside its arguments."""
    read = set(outside(op.regions[0].block)) & set(live)
    if read:
        name = next((v.hint for v in read if v.hint), "a value")
        message = f"the rule of {op.attrs['function']} says nothing of {name}, which the function reads from outside"
        raise refuse("TS353", f"{message}; make it an argument", op)


def _pulled(g: GraphBuilder, op: Op, cotangents: Sequence[Value]) -> list[tuple[Value, Value]]:
    """(operand, its cotangent) by the rule for reverse mode."""
    block = _region(op, "vjp")
    assert block is not None
    _, found = replay(g, block, [*op.operands, *op.results, *cotangents])
    return [(op.operands[i], v) for i, v in zip(cast("tuple[int, ...]", op.attrs["vjp"]), found, strict=True)]


def _pushed(g: GraphBuilder, op: Op, tangents: Sequence[Value]) -> list[tuple[Value, Value]]:
    """(result, its tangent) by the rule for forward mode."""
    block = _region(op, "jvp")
    assert block is not None
    _, found = replay(g, block, [*op.operands, *op.results, *tangents])
    return [(op.results[i], v) for i, v in zip(cast("tuple[int, ...]", op.attrs["jvp"]), found, strict=True)]


def _back(back: Reverse, op: Op, cotangents: Sequence[Value | None]) -> None:
    g = back.g
    _demand_given(op, back.live)
    given = [g.zeros_like(r) if c is None else c for r, c in zip(op.results, cotangents, strict=True)]
    if _region(op, "vjp") is not None:
        pairs = _pulled(g, op, given)
    else:
        moving = [v for v in op.operands if smooth(v)]
        zeros = {i: g.zeros_like(v) for i, v in enumerate(op.operands)}
        start = len(g.builder.block.ops)
        of = dict(zip(op.results, given, strict=True))
        seeds = [(t, of[r]) for r, t in _pushed(g, op, list(zeros.values()))]
        wanted = [zeros[i] for i, v in enumerate(op.operands) if smooth(v)]
        found = pull_back(g, g.builder.block.ops[start:], wanted, seeds, order=back.order)
        pairs = [(v, c) for v, c in zip(moving, found, strict=True) if c is not None]
    back.add([v for v, _ in pairs], [c for _, c in pairs])


def _ahead(ahead: Forward, op: Op) -> None:
    g = ahead.g
    _demand_given(op, ahead.tangents)
    given = [ahead.tangents.get(v) for v in op.operands]
    if _region(op, "jvp") is not None:
        pairs = _pushed(g, op, [g.zeros_like(v) if t is None else t for v, t in zip(op.operands, given, strict=True)])
        ahead.keep([r for r, _ in pairs], [t for _, t in pairs])
        return
    zeros = [g.zeros_like(r) for r in op.results]
    start = len(g.builder.block.ops)
    of = {v: t for v, t in zip(op.operands, given, strict=True) if t is not None}
    seeds = [(c, of[v]) for v, c in _pulled(g, op, zeros) if v in of]
    found = pull_back(g, g.builder.block.ops[start:], zeros, seeds, order=g.builder.origin.order)
    ahead.keep(op.results, found)


reverse.REGIONS["graph.custom"] = _back
forward.REGIONS["graph.custom"] = _ahead
