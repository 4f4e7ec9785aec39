"""What layers of a step of `ts.train` do without being told: keys of dropout, running averages of norms.

A step draws by its own key and by the place of a call. It holds the averages of its model in `ev.averages`, where
batch normalisation moves them, and returns those that have moved. Elsewhere nothing happens, and TS374 says so.
"""

from __future__ import annotations

import ast
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.python.builtins import mode_of
from tessera.compiler.frontend.function.trees import leaves
from tessera.compiler.frontend.names.frame import Frame
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Value
from tessera.errors import Diagnostic
from tessera.language.drawing import AVERAGED, DRAWS, IN_ROUNDS, UNDROPPED, apart
from tessera.tracebacks import OWN

Args = list[Any]
Kwargs = dict[str, Any]


def implied_key(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`implied_key(x, p)`, of a dropout without a key: one of the step for this place, or None. TS374 is said of the
    user's call."""
    _, p = args
    if not isinstance(p, float) or not p:
        return None
    frame: Frame | None = ev.frame
    while frame is not None and DRAWS not in frame.definition.options:
        frame = frame.caller
    if frame is None:
        return _say(ev, node, UNDROPPED)
    if ev.builder.block is not ev.block:
        return _say(ev, node, IN_ROUNDS)
    ev.drawn += 1
    key = frame.names.get(frame.definition.options[DRAWS])
    # while typing a step is not called, and any key will do
    return ev.layer.binary(node, "+", key, apart(ev.drawn)) if isinstance(key, Value) else ev.drawn


def held_averages(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`held_averages(model)`: its buffers by path, which layers may move from here on."""
    buffers = {path: v for path, v, buffer in leaves(args[0]) if buffer}
    ev.averages = {v: v for v in buffers.values()}
    return buffers


def averages(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`averages(x, mean, var)`, of a batch normalisation that is not told whether it is trained: those that it moves,
    or None."""
    held = [_given(ev, v) for v in args[1:]]
    if ev.builder.block is ev.block and all(isinstance(v, Value) and v in ev.averages for v in held):
        return tuple([ev.averages[v] for v in held])
    return _say(ev, node, AVERAGED)


def _given(ev: Evaluator, value: Any) -> Any:
    """The buffer of the step that a layer has, whatever numerics functions on the way have put it under."""
    found = value
    while isinstance(found, Value) and found not in ev.averages:
        op = found.op
        if op is None or op.name != "graph.cast" or tensor(op.operands[0]).dtype != tensor(found).dtype:
            return value
        found = op.operands[0]
    return found


def move(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`move(held, new)`: what a buffer is after the step."""
    held, new = args
    ev.averages[_given(ev, held)] = new
    ev.moved += 1


def moved_averages(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`moved_averages(buffers)`: those of `held_averages` that have moved, by path."""
    moved = {path: ev.averages[v] for path, v in args[0].items() if ev.averages[v] is not v}
    ev.averages = {}
    return moved


def _say(ev: Evaluator, node: ast.AST, text: str) -> None:
    """TS374 at the user's call of a layer, where a gradient is taken."""
    frame, place = ev.frame, ev.span(node)
    while frame.caller is not None and frame.call_span is not None and frame.source.file.startswith(OWN):
        frame, place = frame.caller, frame.call_span
    if ev.differentiating and mode_of(ev) != "inference":
        ev.findings.add(Diagnostic("TS374", text, place, "warning", function=frame.name))


UNTOLD = {
    f"tessera.language.drawing.{f.__name__}": f for f in (implied_key, held_averages, averages, move, moved_averages)
}
