"""From a request to code that can run: disk cache, front end, passes, target, in that order of cost.

A request is first looked up by what is known without compiling (source text, argument types, what is read from
outside); then, once it is lowered, by content; only then does the target compile. Loaded code is shared within the
process by content as well, so that a re-run cell finds what it had.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import weakref
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from tessera import knobs
from tessera.collector import collector_paused
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.printer import print_op
from tessera.compiler.structure import Nameless
from tessera.compiler.targets.base import Artifact, Executable, Target
from tessera.compiler.tile.program import Program
from tessera.compiler.unit import Unit
from tessera.immutable import immutable
from tessera.runtime import events
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.code import cache, keys
from tessera.runtime.code.plan import LaunchPlan
from tessera.runtime.code.recent import Recent
from tessera.runtime.locks import Locked

RESIDENT = 512
"""programs whose code is kept in memory for reuse by content"""
_HEADER = "artifact.json"


@immutable
class Request:
    """What is to be compiled. `front` says all that the result depends on, as text; `make` runs the front end.

    `path_of(value)` names an array, class or function that is read from outside the same way in every process, None
    where it cannot; `value_of(path)` finds it again.
    """

    name: str
    target: Target
    make: Callable[[], Unit]
    front: tuple[str, ...]
    path_of: Callable[[Any], str | None] = lambda _: None
    value_of: Callable[[str], Any] = lambda _: None
    debug: bool = False
    profile: bool = False
    screen: Callable[[Program], None] | None = None
    """sees the lowered program before the target does, and may refuse it"""
    seen: Callable[[Unit], None] | None = None
    """sees what the front end has made, before the rest begins"""


class LoadableCode(Locked):
    """An artefact, and once it has been asked for, the executable loaded from it."""

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__()
        self.artifact, self.target = artifact, target
        self._executable: Executable | None = None
        self.arrays: Mapping[int, weakref.ref[Any]] = {}
        """those whose packed forms it reads; who calls it holds them"""

    def executable(self) -> Executable:
        """Loads at the first call. Raises DeviceError where the code cannot run on this machine."""
        if self._executable is None:
            with self.lock:
                if self._executable is None:
                    self._executable = self.target.load(self.artifact)
        return self._executable

    def filled(self, arrays: Mapping[int, Any]) -> LoadableCode:
        """The code for certain constant arrays, by their places among those of a call: with what it wants packed of
        them. Each array keeps its packed forms."""
        executable: Any = self.executable()
        if not getattr(executable, "packs", None):
            return self

        def place(pack: Any, write: Callable[[int, int], None]) -> int:
            array = arrays[pack.source]
            pointer = adapter_of(array).pointer(array)  # type: ignore[union-attr]
            return array.packed(pack.name, pack.bytes, lambda address: write(pointer, address))

        found = LoadableCode(self.artifact, self.target)
        found._executable = executable.filled(place)
        found.arrays = {slot: weakref.ref(array) for slot, array in arrays.items()}
        return found


class UserWarningAt(NamedTuple):
    """What a compilation warns of, also where its code comes from the disk."""

    text: str
    file: str
    line: int
    code: str


@immutable
class Built:
    """Compiled code with what launching it needs. `lowered` is None where nothing was compiled."""

    plan: LaunchPlan
    code: LoadableCode
    key: str
    origin: str
    """"miss" (compiled now), "disk", "hit" (the same content was in memory)"""
    stages: tuple[tuple[str, int], ...]
    """(stage, ns), in order"""
    captures: tuple[tuple[str, str], ...] = ()
    """(parameter, path) of arrays that are read from outside at every call"""
    held: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """parameter -> array made at compile time, the same at every call"""
    lowered: Any = None
    warnings: tuple[UserWarningAt, ...] = ()

    @property
    def artifact(self) -> Artifact:
        return self.code.artifact

    @property
    def duration(self) -> int:
        """ns from the request to code ready to be loaded."""
        return sum(ns for _, ns in self.stages)


class Clock:
    """Splits time into named stages."""

    def __init__(self) -> None:
        self.start = self.last = perf_counter_ns()
        self.stages: list[tuple[str, int]] = []

    def done(self, stage: str, parts: list[tuple[str, int]] | None = None) -> None:
        """Ends a stage. `parts`: finer stages of it that something else has measured."""
        now = perf_counter_ns()
        self.stages += parts or []
        self.stages.append((stage, max(0, now - self.last - sum(ns for _, ns in parts or ()))))
        self.last = now


def build(request: Request) -> Built:
    """Finds or makes the code for a request. Raises CompileError, TargetError; Ctrl-C leaves every cache as it was."""
    clock = Clock()
    disk = cache.default()
    front = keys.front(request.target, request.debug, request.profile, request.front)
    folder = knobs.dump()
    built = _known(request, front, disk, clock) if folder is None else None  # a dump wants the passes to run
    if built is None:
        with events.waiting(f"Compiling {request.name} for {request.target.name}"), collector_paused(old=True):
            built = _compile(request, front, disk, clock, folder)
    if events.active():
        duration = perf_counter_ns() - clock.start
        found: Any = built.origin
        events.publish(
            events.CompileEvent(
                request.name,
                request.target.name,
                clock.start,
                duration,
                built.stages,
                found,
                {"key": built.key, "instrumented": request.profile},
            )
        )
    return built


def _known(request: Request, front: str, disk: cache.DiskCache | None, clock: Clock) -> Built | None:
    """The front key leads to a content key and a plan; the content to code in memory or on the disk."""
    found = _fronts.get(front) or (disk.lookup(front) if disk is not None else None)
    if found is None:
        return None
    key, note = found
    code, origin = _code(key, request, disk)
    if code is None:
        return None
    try:
        data = json.loads(note)
        its = LaunchPlan.from_json(data["plan"], request.value_of)
        captures = tuple((str(name), str(path)) for name, path in data["captures"])
        warned = tuple(
            UserWarningAt(str(text), str(file), int(line), str(code)) for text, file, line, code in data["warnings"]
        )
    except (ValueError, LookupError, TypeError, AttributeError):  # of a compiler that wrote other notes
        return None
    _fronts.put(front, found)
    clock.done("disk" if origin == "disk" else "memory")
    return Built(its, code, key, origin, tuple(clock.stages), captures, warnings=warned)


def _code(key: str, request: Request, disk: cache.DiskCache | None) -> tuple[LoadableCode | None, str]:
    code = _resident.get(key)
    if code is not None:
        return code, "hit"
    blobs = disk.get(key) if disk is not None else None
    if not blobs or _HEADER not in blobs:
        return None, "miss"
    try:
        code = LoadableCode(Artifact.restore(blobs.pop(_HEADER).decode(), blobs), request.target)
    except (ValueError, TypeError):  # of a compiler whose artefacts were others
        return None, "miss"
    _resident.put(key, code)
    return code, "disk"


def _compile(request: Request, front: str, disk: cache.DiskCache | None, clock: Clock, folder: Path | None) -> Built:
    from tessera.compiler import pipeline  # slow: 70 ms for code that comes from the disk

    unit = request.make()
    clock.done("analyse")
    if request.seen is not None:
        request.seen(unit)
    dump = _dumper(request.name, folder)
    lowered = pipeline.lower(unit, request.target, dump)
    clock.done("lower", lowered.stages)
    key = keys.content(request.target, request.debug, request.profile, lowered.program)
    code, origin = _code(key, request, disk)
    if code is None:
        if request.screen is not None:
            request.screen(lowered.program)
        artifact = pipeline.generate(
            lowered.program, request.target, profile=request.profile, debug=request.debug, after=dump
        )
        code = LoadableCode(artifact, request.target)
        clock.done("target")
        if disk is not None:
            label = f"{request.name} ({artifact.target})"
            disk.put(key, {_HEADER: artifact.header().encode(), **artifact.files}, label)
        _resident.put(key, code)
    its = LaunchPlan.of(lowered.program, request.profile)
    captured = dict(
        zip((p.name for p in its.params[len(its.params) - len(unit.captures) :]), unit.captures, strict=True)
    )
    paths = {name: request.path_of(array) for name, array in captured.items()}
    captures = tuple((name, path) for name, path in paths.items() if path is not None)
    held = {name: array for name, array in captured.items() if paths[name] is None}
    warned = tuple(UserWarningAt(d.render(), d.span.file, d.span.line, d.code) for d in unit.warnings)
    if not held:
        with contextlib.suppress(Nameless):
            note = json.dumps({"plan": its.to_json(request.path_of), "captures": captures, "warnings": warned})
            _fronts.put(front, (key, note))
            if disk is not None:
                disk.link(front, key, note)
    clock.done("store")
    return Built(its, code, key, origin, tuple(clock.stages), captures, held, lowered, warned)


def _dumper(name: str, folder: Path | None) -> Callable[[str, Op], None] | None:
    """Writes the IR after each pass to `folder`/<name>.<number>.<pass>.mlir."""
    if folder is None:
        return None
    numbers = itertools.count()

    def write(stage: str, op: Op) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.{next(numbers):02}.{stage}.mlir").write_text(print_op(op), encoding="utf-8")

    return write


_resident: Recent[str, LoadableCode] = Recent(RESIDENT)  # by content key
_fronts: Recent[str, tuple[str, str]] = Recent(4 * RESIDENT)  # front key -> (content key, note)


def forget() -> None:
    """Drops the code kept in memory; the next compilation goes to the disk cache, or compiles."""
    _resident.clear()
    _fronts.clear()
