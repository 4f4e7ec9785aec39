"""A launch that has been prepared: everything that one signature decides is decided here, once.

`PreparedLaunch.run(values)` is what a repeated call costs: read addresses, allocate results, run.
"""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

from tessera import knobs
from tessera.compiler.machines import HOST
from tessera.compiler.structure import assembled
from tessera.errors import NOWHERE, Diagnostic, LaunchError, Note, Span, source_line
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.runtime import events
from tessera.runtime.arrays import host_memory
from tessera.runtime.arrays.adapter import Adapter, ArrayView
from tessera.runtime.arrays.libraries import adapter_of, own_library
from tessera.runtime.arrays.lifetimes import lifetimes
from tessera.runtime.arrays.versions import changed, watched
from tessera.runtime.call.arguments import Bound, Parameters
from tessera.runtime.call.captured import NO_TILES, NOT_LOADED, SAMPLED, capture_of, into_graph
from tessera.runtime.call.observe import ObservedRun, observe, take_time
from tessera.runtime.call.overlaps import Extent, Overlaps
from tessera.runtime.callsite import call_span
from tessera.runtime.code.build import Built
from tessera.runtime.code.plan import LaunchPlan
from tessera.runtime.events import CallArgument, CallEvent
from tessera.runtime.locks import Locked


class PreparedLaunch(Locked):
    """Code together with how the arguments of one signature reach it.

    `adapters` has one entry per parameter of the plan, None for scalars; `copied` holds parameters that are passed as
    contiguous copies; `library` makes the results, on whose stream the code runs, in order with the streams of
    `neighbours`, the other libraries of the arguments; `env` has the sizes of the named dims. `profiled` gives
    the same code with tile records. `program` is the function or kernel, as long as it is there, `fixed` what was known
    when it was compiled, `types` what its arguments are. `anywhere`: see `ObservedRun`.
    """

    def __init__(
        self, built: Built, adapters: Sequence[Adapter | None], copied: frozenset[int], library: Adapter, device: str,
        env: Mapping[str, int], span: Span = NOWHERE, anywhere: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.anywhere = anywhere
        self.built = replace(built, lowered=None)  # what a launch does not need may go
        self.plan, self.env = built.plan, env
        self.adapters, self.copied = tuple(adapters), copied
        self.library, self.device, self.span = library, device, span
        self.profiled: Callable[[], Built] | None = None
        self._instrumented: Built | None = None
        self.program: Callable[[], Any] | None = None
        self.fixed: Mapping[str, Any] = {}
        self.types: Mapping[str, Any] = {}
        self.sizes = [env[n] for n in self.plan.free]
        self.scalars = tuple(i for i, p in enumerate(self.plan.params) if p.shape is None)
        self.slots = [(s.param, tuple(dims.evaluate(d, env) for d in s.shape), s.dtype) for s in self.plan.slots]
        self._refuse_too_large()
        self.written = tuple(i for i, p in enumerate(self.plan.params) if p.writes)
        self.neighbours = {a for a in self.adapters if a is not None} - {library} if device != HOST else set()
        self.kept = tuple(i for i, a in enumerate(self.adapters) if a is not None and not a.ordered and device != HOST)
        self.poisoned = device == HOST and knobs.debug()
        self.overlaps = self._disjoint()

    def _refuse_too_large(self) -> None:
        """TS505 before anything is allocated, where results and temporaries together cannot fit."""
        total = self.plan.workspace(self.env)
        total += sum(math.prod(shape) * dtype.itemsize for param, shape, dtype in self.slots if param is None)
        if self.device == HOST and total >= 1 << 28:
            host_memory.require(total, f"{self.plan.name}: results and temporaries", self._largest)

    def _largest(self) -> tuple[Note, ...]:
        """The line that makes the largest of the results and temporaries: of a backward pass, its forward line."""
        new = {i for i, (param, _, _) in enumerate(self.slots) if param is None}
        made = [(dims.evaluate(n, self.env), k) for k in self.plan.launches for b, n in k.writes if b < 0 or b in new]
        size, launch = max(made, key=lambda each: each[0], default=(0, None))
        if self.anywhere:  # its code is of the line that called it first
            return ()
        text = "" if launch is None else source_line(launch.file, launch.line) or ""
        if launch is None or not text.strip():
            return ()
        start, end = len(text) - len(text.lstrip()) + 1, len(text) + 1
        where = Span(launch.file, launch.line, start, launch.line, end)
        return (Note(f"the largest of them, {host_memory.size_text(size)}, is made here", where),)

    def _disjoint(self) -> Overlaps:
        """Of the arrays that must not overlap, those that are there, have elements and are passed as they are."""
        aliasing = self.plan.aliasing
        place = {param: i for i, (param, _, _) in enumerate(self.slots) if param is not None}
        extents: list[Extent] = []
        for param, i in sorted(place.items()):
            size = math.prod(self.slots[i][1]) * self.slots[i][2].itemsize
            if size and param not in self.copied:
                extents.append(Extent(i, size, param in aliasing.stored))
        same = [(place[w], place[o]) for w, o in aliasing.in_place if w in place and o in place]
        return Overlaps(extents, frozenset((w, o) for w, o in same if self.slots[w][1:] == self.slots[o][1:]))

    def _refuse_overlaps(self, pointers: Sequence[int]) -> None:
        """TS507 where an array that is stored to shares memory with another one in a way that has no meaning."""
        pair = self.overlaps.found(pointers)
        if pair is not None:
            params = [self.plan.slots[e.slot].param for e in (pair.written, pair.other)]
            names = [self.plan.params[i].name for i in params if i is not None]
            raise LaunchError(_overlapping(self.plan.name, *names, pair.in_place, self.span))

    # One launch

    def run(self, *values: Any) -> Any:
        """A launch, step by step; events are published if there is a listener."""
        for i in self.written:
            if not self.adapters[i].writable(values[i]):  # type: ignore[union-attr]
                raise LaunchError(_unwritable(self.plan, self.plan.params[i].name, "is read-only", self.span))
        if self.device == HOST:
            return self._launch(values, 0)
        with self.library.current(self.device):
            stream = self.library.stream(self.device)
            others = {adapter.stream(self.device) for adapter in self.neighbours} - {stream}
            if not others:
                return self._launch(values, stream)
            from tessera.compiler.targets.cuda.call.device import wait_for  # slow: 80 ms, for arrays on a GPU

            for other in others:  # what the other libraries have enqueued comes first, what they will enqueue after
                wait_for(stream, other)
            try:
                return self._launch(values, stream)
            finally:
                for other in others:
                    wait_for(other, stream)

    def _launch(self, values: Sequence[Any], stream: int) -> Any:
        alive: list[Any] = []
        if self.device != HOST:
            lifetimes.release()
        listening = events.active()
        # What follows is recording: a call that nobody observes makes its results in a moment.
        since, recorded = (perf_counter_ns(), events.recording_time()) if listening else (0, 0)
        pointers, new, keep = self._pointers(values, alive)
        copied: dict[str, Any] = {}
        if listening and self.copied:
            began, since = since + events.recording_time() - recorded, perf_counter_ns()
            copied = {"copied": sum(a.nbytes for a in keep), "copying": since - began}
        self._refuse_overlaps(pointers)
        scalars = [values[i] for i in self.scalars]
        for i in self.written:
            stored_to(values[i])
        if listening:
            self._observed(values, pointers, scalars, stream, copied, since)
        else:
            self.built.code.executable().run(pointers, scalars, self.sizes, stream=stream)
        if self.kept:
            lifetimes.keep([*(values[i] for i in self.kept), *keep, *alive], stream)
        del keep, alive  # until the code has run, or is ordered before their memory is used again
        result = self._results(values, new)
        if (witness := events.witness()) is not None:
            witness(self, values, result)
        return result

    def _pointers(self, values: Sequence[Any], alive: list[Any]) -> tuple[list[int], dict[int, Any], list[Any]]:
        """Addresses in the code's order, new results by slot, and contiguous copies. `alive`: what must last."""
        pointers: list[int] = []
        new: dict[int, Any] = {}
        keep: list[Any] = []
        for i, (param, shape, dtype) in enumerate(self.slots):
            if param is None:
                new[i], pointer = self.library.empty(shape, dtype, self.device)
                if self.poisoned:  # what the code forgets to write shows as NaN or -1
                    ctypes.memset(pointer, 0xFF, math.prod(shape) * dtype.itemsize)
            else:
                adapter, value = self.adapters[param], values[param]
                assert adapter is not None
                if param in self.copied:
                    value = adapter.contiguous(value)
                    keep.append(value)
                    adapter = adapter_of(value)
                    assert adapter is not None
                if adapter.transient:
                    view = adapter.view(value)
                    alive.append(view.owner)
                    pointer = view.pointer
                else:
                    pointer = adapter.pointer(value)
            pointers.append(pointer)
        return pointers, new, keep

    def _results(self, values: Sequence[Any], new: Mapping[int, Any]) -> Any:
        out: list[Any] = []
        for i in self.plan.outputs:
            param = self.plan.slots[i].param
            out.append(self.library.finish(new[i]) if param is None else values[param])
        return assembled(self.plan.structure, out)

    def _constant(self) -> dict[int, Any]:
        """The arrays whose packed forms the code reads, by slot; a call holds them."""
        return {slot: array() for slot, array in self.built.code.arrays.items()}

    # A launch that is watched

    def _observed(
        self, values: Sequence[Any], pointers: list[int], scalars: list[Any], stream: int, copied: dict[str, Any],
        since: int,
    ) -> None:  # fmt: skip
        built = self.built
        stopwatch = None if self.device == HOST else self.library.stopwatch
        capture = 0 if stopwatch is None else capture_of(built.code.executable(), stream, pointers)
        if not capture and not events.details_wanted(self.plan.name, self.env):
            take_time(ObservedRun(built, self.env, self.device, stopwatch, {}), pointers, scalars, self.sizes, stream)
            return
        reason = SAMPLED if events.tiles_wanted() else NO_TILES
        if (events.graphs_wanted() if capture else events.tiles_wanted()) and self.profiled is not None:
            with self.lock:
                self._instrumented = self._instrumented or filled(self.profiled(), self._constant())
            if not capture or self._instrumented.code.executable().ready(stream, pointers):
                built, reason = self._instrumented, ""
            else:
                reason = NOT_LOADED
        program = None if self.program is None else self.program()
        extra = copied
        if program is not None and (config := program.config):
            extra = {**copied, "config": config}
        call = None if self.program is None else functools.partial(self._call, values)
        copies = frozenset(i for i, (param, _, _) in enumerate(self.slots) if param in self.copied)
        run = ObservedRun(built, self.env, self.device, stopwatch, extra, call, copies, self.anywhere)
        if capture:
            into_graph(
                run, capture, pointers, scalars, self.sizes, stream, self.library.stream_owner(self.device), reason
            )
        else:
            observe(run, pointers, scalars, self.sizes, stream, since)

    def _call(self, values: Sequence[Any], run: int) -> CallEvent:
        assert self.program is not None
        named = zip(self.plan.params, self.adapters, values, strict=True)
        return CallEvent(run, self.program, {p.name: _held(a, v) for p, a, v in named}, self.fixed)


def _held(adapter: Adapter | None, value: Any) -> CallArgument:
    if adapter is None:
        return CallArgument(lambda: value)
    view = adapter.view(value)
    try:
        reference = weakref.ref(value)
    except TypeError:  # a class without weak references
        reference = _gone
    strides = () if view.contiguous else view.strides
    library = type(value).__module__.partition(".")[0]
    return CallArgument(reference, view.shape, str(view.dtype), view.device == HOST, strides, library)


def _gone() -> None:
    return None


def prepare(
    built: Built, parameters: Parameters, bound: Bound, outside: Mapping[str, Callable[[], Any]],
    library: Adapter | None = None,
) -> PreparedLaunch:  # fmt: skip
    """Checks the arguments of a call against the code and settles how they reach it. Raises LaunchError."""
    plan, span = built.plan, parameters.definition.span
    values = [bound.values[p.name] if p.name in bound.values else outside[p.name]() for p in plan.params]
    adapters = [None if p.shape is None else adapter_of(v) for p, v in zip(plan.params, values, strict=True)]
    views = {
        p.name: bound.views.get(p.name) or a.view(v)
        for p, a, v in zip(plan.params, adapters, values, strict=True)
        if a is not None
    }
    copied = _copied(plan, adapters, views, span)
    env = _env(plan, bound, span)
    library = library or bound.adapter or own_library()
    constant = {i for i, a in enumerate(adapters) if a is not None and a.constant}
    if constant:
        built = filled(built, {i: values[s.param] for i, s in enumerate(plan.slots) if s.param in constant})
    return PreparedLaunch(built, adapters, copied, library, bound.device, env, span)


def filled(built: Built, arrays: Mapping[int, Any]) -> Built:
    """The code with what it wants packed of these constant arrays, by slot."""
    return replace(built, code=built.code.filled(arrays)) if arrays else built


def stored_to(array: Any) -> None:
    """Counts that code stores to an argument."""
    if watched:
        held = adapter_of(array).held  # type: ignore[union-attr]
        changed(getattr(array, held) if held else array)


def _env(plan: LaunchPlan, bound: Bound, span: Span) -> dict[str, int]:
    """The sizes of the named dims, those that the plan leaves free among them. Raises LaunchError TS502, TS209."""
    missing = [name for name in plan.free if name not in bound.sizes]
    if missing:
        names = ", ".join(missing)
        fix = f"ts.compile({plan.name}, dims={{{missing[0]!r}: ...}})"
        message = f"the size of {names} cannot be told from the arguments; fix it with {fix}"
        raise LaunchError(Diagnostic("TS502", message, span, function=plan.name))
    findings: list[Diagnostic] = []
    for check in plan.checks:
        left, right = _evaluate(check.left, bound.sizes), _evaluate(check.right, bound.sizes)
        if left is not None and right is not None and left != right:
            other = f"not {right}" if isinstance(check.right, int) else f"but {check.right} is {right}"
            text = f"{check.why}: {check.left} is {left}, {other}"
            if check.right == 0 and ("max(" in text or "min(" in text):  # made of a test that has no two sides
                sizes = ", ".join(f"{n}={bound.sizes[n]}" for n in sorted(dims.symbols(check.left)))
                text = f"{check.why} does not hold for {sizes}"
            findings.append(Diagnostic("TS209", text, span, function=plan.name))
    if findings:
        raise LaunchError(findings)
    return dict(bound.sizes)


def _evaluate(dim: Dim, env: Mapping[str, int]) -> int | None:
    try:
        return dims.evaluate(dim, env)
    except dims.DimError:
        return None


def _copied(
    plan: LaunchPlan, adapters: Sequence[Adapter | None], views: Mapping[str, ArrayView], span: Span
) -> frozenset[int]:
    """The parameters that must be copied to be contiguous.

    Raises LaunchError TS503 for a parameter that the code stores to and that is read-only or not contiguous: a copy
    would take the stores, and the caller's array would stay as it was.
    """
    copied: set[int] = set()
    findings: list[Diagnostic] = []
    for i, p in enumerate(plan.params):
        view = views.get(p.name)
        if view is None or (view.contiguous and (view.writable or not p.writes)):
            continue
        if not p.writes:
            copied.add(i)
            continue
        if not view.writable:
            why = adapters[i].immutable or "is read-only"  # type: ignore[union-attr]
        else:
            why = f"is not contiguous (shape {list(view.shape)}, strides {list(view.strides)} bytes)"
        findings.append(_unwritable(plan, p.name, why, span))
    if findings:
        raise LaunchError(findings)
    return frozenset(copied)


def _unwritable(plan: LaunchPlan, name: str, why: str, span: Span) -> Diagnostic:
    fix = (
        f"pass np.ascontiguousarray({name}) and copy the result back"
        if "contiguous" in why
        else f"pass np.array({name})"
    )
    called = Note("called here", call_span())
    return Diagnostic(
        "TS503", f"{plan.name} stores to {name}, but the array {why}; {fix}", span, notes=(called,), function=plan.name
    )


def _overlapping(function: str, written: str, other: str, in_place: bool, span: Span) -> Diagnostic:
    how = (
        "they overlap in part"
        if in_place
        else f"it reads {other} at other places than it stores to {written}, or again after that"
    )
    same = f"; {written} and {other} may be one and the same array" if in_place else ""
    message = (
        f"{function} stores to {written}, which shares memory with {other}, and {how}: the results would depend on "
        f"the order in which its programs run.\nPass {other}.copy(){same}."
    )
    return Diagnostic("TS507", message, span, notes=(Note("called here", call_span()),), function=function)
