"""What the programs of a file keep for their backward passes, at the places where it is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tessera.compiler.frontend.called.inside import CalledProgram
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.core import Op
from tessera.compiler.levels import NoIR, schedule
from tessera.compiler.lower.memory_limit import shown
from tessera.compiler.machines import predicted_machine
from tessera.compiler.predict import quantity
from tessera.compiler.schedule.cost import time_by_peaks
from tessera.compiler.schedule.saved_values import KeptValue, kept
from tessera.compiler.timing.launches import peaks_for
from tessera.editor.functions import takes_gradients, where
from tessera.errors import Span, TesseraError

LARGEST = 300
"""operators of a program that is scheduled when somebody asks about it"""
HINTED = 80
"""those of one that is scheduled at each change, for hints: as many take some milliseconds"""


@dataclass(slots=True)
class KeptValues:
    """Found once for each analysis of a function, and for the sizes and the target that it is asked for."""

    largest: int = LARGEST
    known: dict[Op, _Found] = field(default_factory=dict[Op, "_Found"])

    def of(self, programs: Iterable[CalledProgram], dims: Mapping[str, int], target: str) -> list[KeptValue]:
        """What all programs with a backward pass keep, arguments left out."""
        state, before, now = (target, dict(dims)), self.known, dict[Op, _Found]()
        found: list[KeptValue] = []
        for program in programs:
            op, analysis = program.analysis.op, program.analysis
            if op is None or not takes_gradients(analysis):
                continue
            old = before.get(op)
            if old is None or old.state != state:
                values = _kept_values(analysis, op, {**dims, **program.sizes}, target, self.largest)
                old = _Found(state, values, where(op))
            now[op] = old
            found += _moved(old, op, program)
        self.known = now
        return found


@dataclass(frozen=True, slots=True)
class _Found:
    """What an operator's program keeps, for a target and sizes, and where its operators stood then."""

    state: object
    values: list[KeptValue]
    places: tuple[Span, ...]


def _moved(found: _Found, op: Op, program: CalledProgram) -> Iterator[KeptValue]:
    """With the places where its text is now."""
    moves = dict(zip(found.places, where(op), strict=True))

    def now(span: Span) -> Span:
        return program.moved(moves.get(span, span))

    for value in found.values:
        yield replace(value, at=now(value.at), readers=tuple((operator, now(span)) for operator, span in value.readers))


def _kept_values(analysis: Analysis, op: Op, dims: Mapping[str, int], target: str, largest: int) -> list[KeptValue]:
    if sum(1 for _ in op.walk()) > largest:
        return []
    try:
        made = schedule(analysis, dims, predicted_machine(target))
    except (NoIR, TesseraError):
        return []
    return [v for v in kept(made) if v.operator]


def why(value: KeptValue, target: str) -> str:
    """`Kept for the backward pass, 4.2 MiB: there line 7 (contract) reads it; to compute it again would take 12 µs`"""
    lines: dict[int, list[str]] = {}
    for operator, span in value.readers:
        lines.setdefault(span.line, []).append(operator)
    readers = " and ".join(f"line {line} ({', '.join(dict.fromkeys(names))})" for line, names in sorted(lines.items()))
    reads = "reads" if len(lines) == 1 else "read"
    peaks = peaks_for(target)
    time = time_by_peaks(value.flops, value.moved, peaks) if peaks is not None else None
    again = quantity(time.least, "s") if time is not None else f"{value.flops} FLOP"
    what = f" ({value.operator})" if value.operator.startswith("slope") else ""
    size = shown(value.bytes) if isinstance(value.bytes, int) else f"{value.bytes} B"
    return (
        f"Kept for the backward pass{what}, {size}: there {readers} {reads} it; to compute it again would take {again}"
    )
