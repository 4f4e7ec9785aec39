"""Branches of kernels: masked statements where lanes disagree, branches where a whole program agrees."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.evaluate import control
from tessera.compiler.frontend.kernel.control.loop_exits import leave_lanes
from tessera.compiler.frontend.kernel.control.masks import identify_results, run_under
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import View
from tessera.compiler.frontend.names.frame import Flow
from tessera.compiler.frontend.names.values import UNKNOWN, Unknown, is_tuple
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.language import dtypes

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def branch(k: KernelState, node: ast.If, condition: Any) -> Flow:
    value = k.operand(condition)
    if isinstance(value, Value) and isinstance(value.type, TileType) and (value.type.rank or k.choosing):
        return _masked_branch(k, node, k.tiles.truth(value))
    flow = control.branch(k.ev, node, condition)
    identify_results(k)
    return flow


def _masked_branch(k: KernelState, node: ast.If, mask: Value) -> Flow:
    """`if i < n:` over lanes: both sides run, each stores only where its condition holds."""
    frame = k.ev.frame
    flows, gives = [run_under(k, mask, node.body), Flow.NEXT], [frame.returned, None]
    inverse = k.tiles.map("logical_not", mask) if node.orelse or flows[0] is not Flow.NEXT else mask
    if node.orelse:
        flows[1] = run_under(k, inverse, node.orelse)
        gives[1] = frame.returned
    for n, left in enumerate((mask, inverse)):
        if flows[n] is Flow.BREAK:  # these lanes leave; for what follows in this step that is what continue does
            leave_lanes(k, left)
            flows[n] = Flow.CONTINUE
    if Flow.RETURN in flows and (frame.depth or k.choosing):
        return _return_of_lanes(k, node, (mask, inverse), flows, gives)
    if Flow.RETURN in flows and frame.returned is not None:
        items = frame.returned if is_tuple(frame.returned) else (frame.returned,)
        if all(isinstance(item, View) for item in items):  # tiles are refused where they are returned
            raise KernelFault(
                "TS102", "only some lanes reach this return; return what was stored to at the kernel's end"
            )
    if Flow.NEXT not in flows or flows[0] is flows[1]:
        return flows[0]
    ended, goes_on = (flows[0], inverse) if flows[1] is Flow.NEXT else (flows[1], mask)
    _rest_under(k, goes_on, ended)
    return ended


def _rest_under(k: KernelState, mask: Value, ended: Flow) -> None:
    """What stands behind `if i >= n: return` (or continue) runs where the condition does not hold."""
    frame = k.ev.frame
    step = k.ev.frame.rest_of_round()
    if ended is Flow.CONTINUE and step is None:  # what the loop runs over is not known
        return
    if ended is Flow.CONTINUE and step is not None:
        rest, kept = step[0], frame.rests[: step[1] + 1]
    else:
        rest, kept = frame.continuation(), []
    if rest is None:
        raise KernelFault(
            "TS102", "a return inside a loop would end some lanes only; put what follows under the opposite condition"
        )
    rests, frame.rests = frame.rests, kept
    try:
        flow = run_under(k, mask, rest)
        if flow is Flow.BREAK:
            leave_lanes(k, mask)
        elif flow is Flow.RETURN and ended is Flow.CONTINUE:
            raise KernelFault(
                "TS102", "a return inside a loop would end some lanes only; put it under a condition of all lanes"
            )
    finally:
        frame.rests = rests


def _return_of_lanes(
    k: KernelState, node: ast.If, masks: tuple[Value, Value], flows: Sequence[Flow], gives: list[Any]
) -> Flow:
    """`if x > 0: return x` in a function that a kernel calls: each lane gets what it returned, be it further down."""
    frame = k.ev.frame
    for n, mask in enumerate(masks):
        if flows[n] is Flow.RETURN:
            continue
        rest = frame.continuation() if flows[n] is Flow.NEXT else None
        if rest is None:
            kept = "keep the value in a name, and return it after the loop"
            raise KernelFault("TS102", f"a return inside a loop would end some lanes only; {kept}")
        rests, frame.rests = frame.rests, []
        try:
            gives[n] = frame.returned if run_under(k, mask, rest) is Flow.RETURN else None
        finally:
            frame.rests = rests
    if any(isinstance(v, Unknown) for v in gives):
        frame.returned = UNKNOWN
    elif (gives[0] is None) != (gives[1] is None):
        why = "a value is returned for some lanes only; add a return at the end of the function"
        frame.returned = k.ev.error("TS102", why, k.ev.header(node))
    else:
        frame.returned = None if gives[0] is None else k.chosen(masks[0], *gives)
    return Flow.RETURN


def condition(k: KernelState, node: ast.AST, value: Any) -> Value | None:
    """A branch condition that all threads of a program agree on."""
    operand = k.operand(value)
    if not isinstance(operand, Value):
        operand = k.tiles.scalar(bool(operand), dtypes.bool_)
    t = tile_type(operand)
    if t.rank:
        k.ev.error(
            "TS102",
            f"the truth of a tile {t.pretty()} is not one value; reduce it with ts.tile.any or all, or use where",
            node,
        )
        return None
    return k.tiles.truth(operand)
