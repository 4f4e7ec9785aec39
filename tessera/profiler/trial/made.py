"""What a trial is made of: which change to which launches, and both sides of it once it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tessera.compiler.machines import HOST
from tessera.compiler.structure import in_a_row
from tessera.errors import TesseraError
from tessera.language.lazy import np
from tessera.profiler.quantity import format_percent
from tessera.profiler.recording import Recording
from tessera.profiler.trial.calls import Again, NotTried, call_of, on_host, own_arguments
from tessera.profiler.trial.paired import Timed
from tessera.runtime.events import LaunchEvent

TOLERANCE = 32
"""units in the last place of the largest result by which results may differ"""
COARSER = 0.01
"""part of the largest result by which they may differ where the change makes numbers narrower, and nobody says"""

Change = Literal[
    "larger", "smaller", "other", "more stages", "one function", "one batch", "narrower products", "narrower arrays",
    "contiguous arrays", "turned arrays", "frozen arrays", "by hand",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class HintTrial:
    """How a hint is tried: `change` says what is done to the program of these launches."""

    recording: Recording
    launches: Sequence[LaunchEvent]
    change: Change
    why: str = ""
    """why it is done by hand"""
    parameters: tuple[str, ...] = ()
    """those that the change is about, where it is about some"""

    def call(self) -> Again:
        """The call of the last launch, on the host. Raises NotTried."""
        if self.launches[-1].device.partition(":")[0] != HOST:
            raise NotTried("whole calls are timed on the CPU alone so far")
        return call_of(self.recording, self.launches[-1])


@dataclass(frozen=True, slots=True)
class MadeChange:
    """Both sides of a change, ready to be timed, and the text of a file without and with it."""

    before: Timed
    after: Timed
    file: str
    old: str
    new: str
    results: str
    notes: tuple[str, ...]
    change: str
    """as a person would say it"""
    whole: bool = True
    """whether the text with the change is right by itself, so that editors may offer it"""

    @property
    def differs(self) -> bool:
        return self.results.startswith("other results")


def made_up(names: Sequence[str]) -> tuple[str, ...]:
    """What an outcome says of arguments that are gone."""
    return (f"random numbers in the place of {', '.join(names)}, which are gone",) if names else ()


def sides(
    again: Again, changed: Any, otherwise: dict[str, Any] | None = None
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The program and the changed one as calls with arguments of their own; `otherwise`: what the changed one gets in
    another form. Both give their results, and a kernel what it stored to."""

    def call(program: Any, arguments: dict[str, Any]) -> Callable[[], Any]:
        if again.program.kind != "kernel":
            return lambda: program(**arguments)
        return lambda: (program(**arguments), *(v for k, v in arguments.items() if k not in (otherwise or {})))

    return call(again.program, own_arguments(again)), call(changed, own_arguments(again) | (otherwise or {}))


def results_of(before: Callable[[], Any], after: Callable[[], Any], change: str, tolerance: float | None = None) -> str:
    """Both called once, and compared. Raises NotTried where the changed program does not run."""
    first = before()
    try:
        second = after()
    except TesseraError as e:
        raise NotTried(f"{change} makes no program that runs: {str(e).strip().partition(chr(10))[0]}") from None
    return compared(first, second, tolerance)


def compared(before: Any, after: Any, tolerance: float | None = None) -> str:
    """How the results of two sides differ: "other results: ..." where they may not. With `tolerance` they may, by that
    part of the largest one; else by what another order of sums makes."""
    pairs = list(zip(map(on_host, in_a_row(before)), map(on_host, in_a_row(after)), strict=True))
    if all(a is None or (a.dtype == b.dtype and a.tobytes() == b.tobytes()) for a, b in pairs):
        return "equal bits"
    worst = 0.0
    for a, b in pairs:
        if a is None:
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"other results: {a.dtype}{list(a.shape)} is {b.dtype}{list(b.shape)}"
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return "other results: whole numbers differ"
            continue
        wide, other = (x.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for x in (a, b))
        same = (wide == other) | (np.isnan(wide) & np.isnan(other))
        largest = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))
        with np.errstate(invalid="ignore"):
            away = float(np.max(np.where(same, 0.0, np.abs(wide - other)), initial=0.0))
        allowed = TOLERANCE * 2.0 ** -_mantissa(a.dtype) if tolerance is None else tolerance
        if not away <= allowed * largest:
            more = "" if tolerance is None else f": more than {format_percent(tolerance)} of it"
            return f"other results: they differ by {away:.2g}, where the largest is {largest:.2g}{more}"
        worst = max(worst, away / largest if largest else 0.0)
    if tolerance is not None:
        return f"within {worst:.2g} of the largest result (tolerance {tolerance:g})"
    return f"equal within rounding (at most {worst:.1e} of the largest result)"


def _mantissa(dtype: Any) -> int:
    """Bits behind the point of a floating-point number in memory, by how it rounds 1 + 2**-k."""
    one = np.ones((), dtype)
    return next((k - 1 for k in range(1, 60) if (one + np.asarray(2.0**-k, dtype)).astype(dtype) == one), 52)
