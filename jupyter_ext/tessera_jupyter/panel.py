"""The panel under a cell: one output that is interactive where scripts run and readable where they do not.

It is HTML with a small script that turns its sections into tabs. The same markup is the saved notebook's, nbconvert's
and GitHub's; it asks for nothing from anywhere, and needs no kernel to be alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from tessera.errors import Diagnostic
from tessera.language.decorators import Decorated
from tessera.profiler import Profiler
from tessera.profiler.style import resource, style_of_views
from tessera.profiler.views.markup import text
from tessera.runtime.code.assembly import begin
from tessera_jupyter.actions import bundle, shown_hints
from tessera_jupyter.command import TABS
from tessera_jupyter.findings import as_text, fixes_of
from tessera_jupyter.kernel_table import kernel_tab
from tessera_jupyter.linked_ir import ir_tab
from tessera_jupyter.profile_tabs import hints_tab, profile_tab
from tessera_jupyter.shapes import shapes_tab
from tessera_jupyter.subject import Subject, as_run

_TITLES = {"shapes": "Shapes", "ir": "IR", "kernel": "Kernel", "profile": "Profile", "hints": "Hints"}


@dataclass(frozen=True, slots=True)
class OutputPanel:
    """What is shown of some functions and kernels, of a recorded run, or of both. `first`: the tab that is open."""

    subjects: tuple[Subject, ...] = ()
    profile: Profiler | None = None
    show: tuple[str, ...] = TABS
    first: str = ""
    since: str = ""
    """what the last edit did, where the cell is watched"""
    thorough: bool = False
    """more of the IR, down to assembly"""
    waiting: bool = False
    """whether it is shown before all of its machine code has been read"""

    @property
    def remarks(self) -> list[Diagnostic]:
        """Warnings and notes of the analysis."""
        return [d for s in self.subjects for d in s.analysis.diagnostics if d.severity != "error"]

    @property
    def _run_subjects(self) -> list[Subject]:
        """As the profile ran them."""
        return [as_run(s) if self.profile is not None else s for s in self.subjects]

    @property
    def is_whole(self) -> bool:
        """Whether no tab waits for a disassembler."""
        return ("kernel" not in self.show and not self.thorough) or all(s.is_whole for s in self._run_subjects)

    @property
    def _example(self) -> str:
        """A call of the first function, for the hint on how to profile it."""
        if not self.subjects:
            return "f(x)"
        names = [e.name for e in self.subjects[0].analysis.expressions if e.kind == "param"]
        return f"{self.subjects[0].path}({', '.join(names)})"

    def html(self) -> str:
        """The panel as it stands in the notebook."""
        contents = {
            "shapes": lambda: shapes_tab(self.subjects),
            "ir": lambda: ir_tab(self.subjects, self.thorough, self.waiting),
            "kernel": lambda: kernel_tab(self._run_subjects, self.waiting),
            "profile": lambda: profile_tab(self.profile, self._example, self.since),
            "hints": lambda: hints_tab(self.profile, self.remarks, self._example),
        }
        first = self.first if self.first in self.show else self.show[0]
        tabs = "".join(
            f'<details class="ts-tab ts-{name}"{" open data-first" if name == first else ""}>'
            f"<summary>{_title(name, self)}</summary>{contents[name]()}</details>"
            for name in self.show
        )
        style = resource("panel.css", __package__) + resource("rows.css")
        script = resource("panel.js", __package__)
        if self.profile is not None:
            style += style_of_views()
            script = f"{script}\n{resource('tiles.js')}"
        return f'<div class="tessera-panel"><style>{style}</style>{tabs}<script>{script}</script></div>'

    def begin(self) -> None:
        """Starts to disassemble what `html` will show."""
        for subject in self._run_subjects:
            if subject.compiled is not None:
                begin(subject.compiled.artifact)

    def text(self) -> str:
        """The same in a few lines, for a terminal."""
        lines = [f"{s.analysis.definition.kind} {s.path}: {s.signature}" for s in self.subjects]
        lines += [as_text(self.remarks)] if self.remarks else []
        if self.profile is not None:
            lines.append(str(self.profile.summary()))
        lines += [self.since] if self.since else []
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, object]:
        told = "hints" in self.show
        return bundle(self.html(), self.text(), fixes_of(self.remarks) if told else (), self.profile if told else None)


def _title(name: str, panel: OutputPanel) -> str:
    """Hints says how many there are."""
    if name != "hints":
        return _TITLES[name]
    count = len(panel.remarks) + (len(shown_hints(panel.profile).hints) if panel.profile is not None else 0)
    return text(f"Hints ({count})" if count else "Hints")


@dataclass(slots=True)
class _Place:
    """Where a panel stands in the notebook, and what stands there now."""

    handle: DisplayHandle
    panel: OutputPanel

    def update(self, panel: OutputPanel) -> None:
        self.panel = panel
        self.handle.update(panel)


_of_programs: WeakKeyDictionary[Decorated[Any, Any], _Place] = WeakKeyDictionary()
_of_profiles: WeakKeyDictionary[Profiler, list[_Place]] = WeakKeyDictionary()


def show(panel: OutputPanel) -> None:
    """Displays a panel and remembers where: a later profile of its functions fills its tabs, and a hint that was tried
    shows there what came of it."""
    handle = show_early(panel)
    if handle is not None:
        place = _Place(handle, panel)
        _of_programs.update((s.program, place) for s in panel.subjects)
        if panel.profile is not None:
            _of_profiles.setdefault(panel.profile, []).append(place)


def show_early(panel: OutputPanel) -> DisplayHandle | None:
    """Displays a panel. Machine code that has to be disassembled takes a second: where outputs can be replaced, the
    panel is shown before that, and once more when it has been read."""
    waiting = not panel.is_whole and hasattr(get_ipython(), "kernel")
    if waiting:
        panel.begin()
    handle = display(replace(panel, waiting=waiting), display_id=True)
    if waiting and handle is not None:
        handle.update(panel)
    return handle


def fill(programs: Sequence[Decorated[Any, Any]], profile: Profiler) -> None:
    """Puts a profile into the panels of the cells that defined `programs`."""
    for place in {id(p): p for program in programs if (p := _of_programs.get(program))}.values():
        place.update(replace(place.panel, profile=profile, since=""))
        _of_profiles.setdefault(profile, []).append(place)


def show_tried(profile: Profiler) -> None:
    """Shows the panels of a profile anew, open at its hints, after one of them was tried."""
    for place in _of_profiles.get(profile, ()):
        if place.panel.profile is profile:
            place.update(replace(place.panel, first="hints"))
