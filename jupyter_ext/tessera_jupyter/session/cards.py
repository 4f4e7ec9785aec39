"""Cards: facts about a function or kernel of the session that are known without running it, the measurements of its
last profile, and the effect of edits of its cell on its time. No code of the notebook runs to make a card."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, TypedDict
from weakref import WeakKeyDictionary, ref

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.predict import Prediction, common, predict, sizes_text
from tessera.errors import TesseraError
from tessera.language.decorators import Decorated
from tessera.profiler import Profiler
from tessera.profiler.kernel_stats import copies, kernel_stats
from tessera.profiler.quantity import format_percent, format_time, format_value, weakest
from tessera.runtime.arrays import devices
from tessera.runtime.code.reads import reads
from tessera.runtime.compiled import Compiled
from tessera.runtime.events import LaunchEvent
from tessera_jupyter.actions import cell_number
from tessera_jupyter.command import MagicRequest
from tessera_jupyter.history import CellHistory, Change, changed
from tessera_jupyter.session.arrays import BoundArrays
from tessera_jupyter.session.calls import last_calls
from tessera_jupyter.session.sizes import named, text_of

MOST_KERNELS = 5
"""kernels of a profile on a card: those that take longest"""
_BOUNDS = {"compute": "arithmetic"}
"""the displayed name of a bound where it differs from its own"""


class Figure(TypedDict):
    """A line of a card. `value` is "" where it is not known, and `reason` says why. `source`: "measured", "modelled",
    "static", or "" for a figure that is not of the program."""

    label: str
    value: str
    source: str
    reason: str


class KernelRow(TypedDict):
    """A kernel of a profile, by the expression that it computes. `time`: the median of its launches. `roof`: the share
    of the roofline's limit that it reached, "" where that is not known."""

    title: str
    time: str
    share: str
    bound: str
    roof: str


class ProfileCard(TypedDict):
    """The last profile. `cell`: the id of the cell that shows it, None if no cell shows it. `earlier`: the profile is
    of an earlier version of the function. `time`: the time of a call, with `source`."""

    call: str
    cell: str | None
    when: float
    earlier: bool
    time: str
    source: str
    figures: list[Figure]
    kernels: list[KernelRow]


class EditCard(TypedDict):
    """The effect of one edit of the cell. `compared`: whether it has been compared yet; `verdict`: that of `Change`."""

    text: str
    verdict: str
    compared: bool


class Card(TypedDict):
    """`name`: how the notebook reaches it. `cell`: the id of the cell that defines it, None where the page has not sent
    it; `file`: the file of an imported one. `text`: its lines. `brief`: the modelled time. `call`: the newest call
    that can be made again, "" if there is none. `edits`: the newest first."""

    name: str
    kind: str
    cell: str | None
    file: str
    text: str
    brief: str
    call: str
    figures: list[Figure]
    profile: ProfileCard | None
    edits: list[EditCard]


@dataclass(frozen=True, slots=True)
class LastProfile:
    """The last profile of a function: the expression that ran, when (seconds since the epoch), and in which cell."""

    program: ref[Decorated[Any, Any]]
    profile: Profiler
    expression: str
    when: float
    cell: str | None


@dataclass(slots=True)
class Session:
    """The kernel's state of the notebook beside its namespace. `cells`: the ids of cells by the number of a run.
    `asked`: the options of the cells that defined programs. `followed`: whether a page wants cards after each cell."""

    namespace: dict[str, Any]
    versions: CellHistory = field(init=False)
    live: BoundArrays = field(init=False)
    cells: dict[int, str] = field(default_factory=dict[int, str])
    cell: str | None = None
    """the cell that is running"""
    asked: WeakKeyDictionary[Decorated[Any, Any], MagicRequest] = field(default_factory=WeakKeyDictionary)
    profiles: dict[str, LastProfile] = field(default_factory=dict[str, LastProfile])
    followed: bool = False
    _predicted: WeakKeyDictionary[Decorated[Any, Any], tuple[object, Prediction]] = field(
        default_factory=WeakKeyDictionary
    )

    def __post_init__(self) -> None:
        self.versions = CellHistory(self.namespace)
        self.live = BoundArrays(self.namespace)

    def took(self, profile: Profiler, expression: str) -> list[Decorated[Any, Any]]:
        """Stores a profile as the last one of all programs that ran in it, and returns those programs."""
        ran = {str(launch.attributes.get("function", launch.kernel)) for launch in profile.recording.launches}
        found = [(name, program) for name, program in named(self.namespace) if program.name in ran]
        now = time.time()
        self.profiles |= {name: LastProfile(ref(p), profile, expression, now, self.cell) for name, p in found}
        return [program for _, program in found]

    def profile_of(self, program: Decorated[Any, Any]) -> Profiler | None:
        """The last profile of this very version of a function or kernel."""
        return next((last.profile for last in self.profiles.values() if last.program() is program), None)

    def cards(self, until: float) -> tuple[list[Card], bool]:
        """The cards of all functions and kernels, in the order of their definitions, and whether these are all: cards
        that need a new prediction are left out after `until` (`time.monotonic()`), except for the first of them."""
        out: list[tuple[tuple[int, int], Card]] = []
        whole, anew = True, 0
        programs = list(named(self.namespace))
        calls = last_calls(self.namespace, {name for name, _ in programs})
        for name, program in programs:
            state, known = self._state(program), self._predicted.get(program)
            if known is None or known[0] != state:
                if anew and time.monotonic() > until:
                    whole = False
                    continue
                self._predicted[program] = known = state, self._prediction(program)
                anew += 1
            code = program.__wrapped__.__code__
            number = cell_number(code.co_filename)
            place = (number if number is not None else -1, code.co_firstlineno)
            out.append((place, self._card(name, program, number, known[1], calls.get(name, ""))))
        return [card for _, card in sorted(out, key=lambda pair: pair[0])], whole

    def _state(self, program: Decorated[Any, Any]) -> object:
        """The key of a prediction: the code of the last call with its sizes, or the values that a first call would
        read."""
        launcher = vars(program).get("launcher")
        made = launcher.ready.made if launcher is not None and launcher.ready is not None else None
        if made is not None:
            return made.built.key, made.target.name, _sizes(program)
        asked = self.asked.get(program)
        return tuple((r.path, r.content()) for r in reads(program) if not r.array), knobs.target(), asked

    def _prediction(self, program: Decorated[Any, Any]) -> Prediction:
        """The prediction for the code of the last call; before the first call, for the sizes and target of its cell."""
        asked = self.asked.get(program, MagicRequest())
        target = knobs.target() if asked.target == "auto" else asked.target
        try:
            last = Compiled.of_last_call(program)
            if last is not None:
                return predict(last.analysis, _sizes(program), last.target.name)
            return predict(_analysed(program, asked.dims), asked.dims, devices.resolve(target))
        except TesseraError as e:
            return Prediction(target, 0, why=e.diagnostics[0].message if e.diagnostics else str(e))
        except Exception as e:  # a card that cannot be made must not fail the cell that has just run
            return Prediction(target, 0, why=f"it could not be worked out: {type(e).__name__}: {e}; please report it")

    def _card(self, name: str, program: Decorated[Any, Any], number: int | None, found: Prediction, call: str) -> Card:
        return Card(
            name=name,
            kind=program.kind,
            cell=self.cells.get(number) if number is not None else None,
            file="" if number is not None else program.__wrapped__.__code__.co_filename,
            text=text_of(program),
            brief=found.time,
            call=call,
            figures=_figures(found, _sizes(program)),
            profile=self._profile(name, program),
            edits=self._edits(name),
        )

    def _profile(self, name: str, program: Decorated[Any, Any]) -> ProfileCard | None:
        last = self.profiles.get(name)
        if last is None:
            return None
        made, earlier = last.program(), last.program() is not program
        own = made.name if made is not None else program.name
        ran = [x for x in last.profile.recording.launches if _function(x) == own and x.duration is not None]
        runs: dict[object, int] = {}
        for launch in ran:
            run = launch.attributes.get("run", launch.launch)
            runs[run] = runs.get(run, 0) + (launch.duration or 0)
        took = median(runs.values()) if runs else None
        source = weakest(*[x.source for x in ran]) if ran else "measured"
        sizes = common(x.attributes.get("sizes", {}) for x in ran)
        figures = [
            _figure("a call", format_time(took) if took is not None else "", source, "no launch was timed"),
            _figure("calls", str(len(runs)), ""),
            *([_figure("sizes", sizes_text(sizes), "")] if sizes else []),
        ]
        return ProfileCard(
            call=last.expression,
            cell=last.cell,
            when=last.when,
            earlier=earlier,
            time=format_time(took) if took is not None else "",
            source=source,
            figures=figures,
            kernels=_kernels(last.profile, own),
        )

    def _edits(self, name: str) -> list[EditCard]:
        """The effects of the edits of its cell, as far as versions have been compared."""
        versions = self.versions.known(name).versions
        found: list[EditCard] = []
        for before, after in pairwise(versions):
            change = after.change
            if change is None:
                where = Change(tuple(changed(before.lines, after.lines) or ()), None).where
                found.append(EditCard(text=f"You changed {where}: not compared yet", verdict="", compared=False))
            else:
                said = str(change)
                found.append(EditCard(text=said[:1].upper() + said[1:], verdict=change.verdict, compared=True))
        return found[::-1]


def _analysed(program: Decorated[Any, Any], dims: Mapping[str, int]) -> Analysis:
    return analyse(program.definition(), None, dims)


def _sizes(program: Decorated[Any, Any]) -> dict[str, int]:
    launcher = vars(program).get("launcher")
    return dict(launcher.sizes) if launcher is not None else {}


def _function(launch: LaunchEvent) -> str:
    return str(launch.attributes.get("function", launch.kernel))


def _figure(label: str, value: str, source: str, reason: str = "") -> Figure:
    return Figure(label=label, value=value, source=source if value else "", reason="" if value else reason)


def _figures(found: Prediction, called: Mapping[str, int]) -> list[Figure]:
    """The figures that are known without running it."""
    why = found.why or "not known"

    def size(value: int | None, unit: str) -> str:
        return format_value(value, unit) if value is not None else ""

    preset = [f"{name}={size}" for name, size in found.defaults.items() if name not in called]
    assumed = ", ".join([*([sizes_text(found.assumed)] if found.assumed else []), *preset])
    sizes = [_figure("last sizes", sizes_text(called), "")] if called else []
    sizes += [_figure("assumed sizes", assumed, "")] if assumed and not called else []
    return [
        _figure("target", found.target, ""),
        *sizes,
        _figure("predicted time", found.time, "modelled", why),
        _figure("bound by", _BOUNDS.get(found.bound, found.bound), "modelled", why),
        _figure("launches", f"{found.launches:,}" if found.launches else "", "static", why),
        _figure("memory", size(found.bytes, "B"), "static", why),
        _figure("least traffic", size(found.moved, "B"), "static", why),
        _figure("operations", size(found.flops, "FLOP"), "static", why),
    ]


def _kernels(profile: Profiler, function: str) -> list[KernelRow]:
    rows = copies(kernel_stats(profile.recording), profile.recording)
    own = [(k, parts) for k, parts in rows if _function(k.launches[0]) == function]
    return [
        KernelRow(
            title=f"{k.title} × {len(parts)}" if len(parts) > 1 else k.title,
            time=format_time(k.typical),
            share=format_percent(k.share),
            bound=_BOUNDS.get(k.bound, k.bound),
            roof=format_percent(k.roof_fraction) if k.roof_fraction is not None else "",
        )
        for k, parts in own[:MOST_KERNELS]
    ]
