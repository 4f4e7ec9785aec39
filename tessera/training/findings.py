"""Diagnostics of a step, with the user's lines only, and no line of the step that `ts.train` makes around the loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.called.trainings import idle_finding, idle_parts
from tessera.errors import CompileError, DebugCheckError, Diagnostic, Note, Span, TrainingWarning
from tessera.language.decorators import Decorated, Function
from tessera.optimizers import OptimizerState
from tessera.runtime.call.dispatch import launcher_of
from tessera.training import gradient
from tessera.training import step as steps
from tessera.training.provenance import origin

_OURS = (steps.__file__, gradient.__file__)
"""the texts around a loss"""


def fault(
    name: str, step: Any, calls: Sequence[tuple[Any, ...]], number: int, loss: float, state: OptimizerState
) -> DebugCheckError:
    """What to raise where step `number` gave NaN or infinity: one of these calls, or their sum in `state`."""
    reason = state.report.reason
    bad_loss = not math.isfinite(loss)
    what = f"the loss of step {number} is {loss}" if bad_loss else f"step {number}: {reason}"
    notes = [Note(f"model and optimizer are those of step {number - 1}: error.run is the run")]
    if bad_loss and reason:
        notes.insert(0, Note(reason))
    d = Diagnostic("TS371", what, function=name, notes=tuple(notes))
    found = next((o for o in (origin(step, call, 1) for call in calls) if o is not None), None)
    if found is not None:
        text = found.said.replace("given.", "item ").replace("named.", "")
        d = replace(d, message=f"{what}; {text}", span=found.span, label=found.label)
    return DebugCheckError(d)


def unreached(name: str, loss: Any, step: Any, call: tuple[Any, ...], state: OptimizerState) -> None:
    """Warns TS354 of trained parameters that the loss does not depend on. Asked of the first step: those whose gradient
    is not 0 need no look at the program."""
    if not state.tally.tolist()[2]:
        return
    parameters = launcher_of(step).parameters
    found = analyse(parameters.definition, parameters.bind(parameters.positions(call, {})).arguments, {}).diagnostics
    idle = idle_parts(found, state.moments)
    if idle:
        warnings.warn(idle_finding(name, idle, span_of(loss)).render(), TrainingWarning, stacklevel=7)


def at_loss(error: CompileError, loss: Any) -> CompileError:
    """A finding about the step around a loss, at the loss."""

    def ours(span: Span | None) -> bool:
        return span is not None and (span.file in _OURS or span.file.startswith(steps.OPENED))

    def moved(d: Diagnostic) -> Diagnostic:
        d = replace(d, notes=tuple(n for n in d.notes if not ours(n.span)))
        return replace(d, span=span_of(loss), function=loss.__name__, fixes=()) if ours(d.span) else d

    return CompileError([moved(d) for d in error.diagnostics])


def span_of(loss: Callable[..., Any]) -> Span:
    """The place of a function's definition."""
    definition = (loss if isinstance(loss, Decorated) else Function(loss)).definition()
    return definition.span
