"""A linter for Chrome traces: everything that makes a viewer drop, move or merge events silently."""

from __future__ import annotations

import bisect
import gzip
import itertools
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}
_MOST_FINDINGS = 100


def lint_trace(trace: str | os.PathLike[str] | dict[str, Any]) -> list[str]:
    """Findings about a trace file (.json, .json.gz) or a loaded document; none means that viewers show it truly."""
    if isinstance(trace, dict):
        document: Any = trace
    else:
        try:
            raw = Path(trace).read_bytes()
            document = strict_json(gzip.decompress(raw) if Path(trace).suffix == ".gz" else raw)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            return [f"the file is not strict JSON: {error}"]
    events = events_of(document)
    return (
        lint_events(events, is_kineto(document))
        if events is not None
        else ["the document has no list of events under traceEvents"]
    )


def lint_events(events: list[Any], kineto: bool = False) -> list[str]:
    """As `lint_trace`, of the events alone. In Kineto's files a device's process has the device's number."""
    return first_findings(_findings(events, 0 if kineto else 1000))


def is_kineto(document: Any) -> bool:
    """Whether the document is one of PyTorch's profiler, or in its form."""
    return isinstance(document, dict) and "deviceProperties" in document


def first_findings(found: Iterator[str]) -> list[str]:
    """As many as somebody would read."""
    findings = list(itertools.islice(found, _MOST_FINDINGS + 1))
    return findings if len(findings) <= _MOST_FINDINGS else [*findings[:-1], "further findings are left out"]


def strict_json(raw: bytes) -> Any:
    """The document. Raises ValueError where viewers would not read it, NaN and infinities among it."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None


def events_of(document: Any) -> list[Any] | None:
    """The events of a document in one of the format's two forms; None where it has none."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    return events if isinstance(events, list) else None


def _findings(events: list[Any], first_pid: int) -> Iterator[str]:
    well_formed: list[tuple[int, Event]] = []
    for index, event in enumerate(events):
        problems = list(_problems(event, first_pid))
        yield from (f"event {index}: {problem}" for problem in problems)
        if not problems:
            well_formed.append((index, event))
    yield from _nesting(well_formed)
    yield from _flows(well_formed)
    yield from _names(well_formed)


def _problems(event: Any, first_pid: int) -> Iterator[str]:
    """What is wrong with one event by itself."""
    if not isinstance(event, dict):
        yield "is not an object"
        return
    phase = event.get("ph")
    check = _CHECKS.get(phase) if isinstance(phase, str) else None
    if check is None:
        yield f"has the phase {phase!r}, which is not one of {' '.join(_CHECKS)}"
        return
    if not isinstance(event.get("name"), str):
        yield "has no name"
    elif any(0xD800 <= ord(character) < 0xE000 for character in event["name"]):
        yield "has half a surrogate pair in its name"
    if not _is_integer(event.get("pid")) or event["pid"] < first_pid:
        yield f"has the pid {event.get('pid')!r}; use integers from {first_pid} on"
    if not _is_integer(event.get("tid")) or event["tid"] < 1:
        yield f"has the tid {event.get('tid')!r}; use integers from 1 on"
    if phase != "M" and not _is_time(event.get("ts")):
        yield f"has the time {event.get('ts')!r}; use microseconds from 0 on, with at most three decimals"
    yield from check(event)


def _check_complete(event: Event) -> Iterator[str]:
    if not _is_time(event.get("dur")):
        yield f"has the duration {event.get('dur')!r}; use microseconds, not negative, with at most three decimals"


def _check_counter(event: Event) -> Iterator[str]:
    args = event.get("args")
    if not isinstance(args, dict) or not args:
        yield "is a counter without values"
    elif not all(_is_number(value) for value in args.values()):
        yield "is a counter with a value that is not a number"


def _check_flow(event: Event) -> Iterator[str]:
    if not isinstance(event.get("cat"), str) or "id" not in event:
        yield "is a flow without category or id"
    if event.get("ph") == "f" and event.get("bp") != "e":
        yield 'ends a flow without bp "e", so it would bind to the next slice and not to the one around it'


def _check_instant(event: Event) -> Iterator[str]:
    if event.get("s") not in ("g", "p", "t"):
        yield "is an instant without a scope s (g, p or t)"


def _check_metadata(event: Event) -> Iterator[str]:
    name, args = event.get("name"), event.get("args")
    key = _METADATA.get(name) if isinstance(name, str) else None
    if key is None or not isinstance(args, dict) or key not in args:
        yield f"is metadata {event.get('name')!r} without its argument"


_CHECKS: dict[str, Callable[[Event], Iterator[str]]] = {
    "X": _check_complete,
    "C": _check_counter,
    "s": _check_flow,
    "t": _check_flow,
    "f": _check_flow,
    "i": _check_instant,
    "M": _check_metadata,
}


def _nesting(events: list[tuple[int, Event]]) -> Iterator[str]:
    """Slices of a thread are disjoint or inside each other, and a parent stands before its children in the file."""
    threads: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for index, event in events:
        if event["ph"] == "X":
            start = _ns(event["ts"])
            threads.setdefault((event["pid"], event["tid"]), []).append((start, -start - _ns(event["dur"]), index))
    for (pid, tid), slices in threads.items():
        stack: list[tuple[int, int, int]] = []  # open slices as (start, end, index)
        for start, negative_end, index in sorted(slices):
            end = -negative_end
            while stack and stack[-1][1] <= start:
                stack.pop()
            if stack and end > stack[-1][1]:
                yield f"event {index}: crosses the end of event {stack[-1][2]} on pid {pid}, tid {tid}"
                continue
            if stack and start == stack[-1][0] and index < stack[-1][2]:
                yield f"event {index}: stands before its parent, event {stack[-1][2]}, which starts with it"
            stack.append((start, end, index))


def _flows(events: list[tuple[int, Event]]) -> Iterator[str]:
    """Each flow starts once and ends once, later, both inside slices."""
    flows: dict[tuple[str, str, str], list[tuple[int, Event]]] = {}
    for index, event in events:
        if event["ph"] in "stf":
            flows.setdefault((event["cat"], event["name"], str(event["id"])), []).append((index, event))
    if not flows:
        return
    covered = _covered(events)
    for (_, name, identity), members in flows.items():
        members.sort(key=lambda member: (_ns(member[1]["ts"]), member[0]))
        phases = "".join(event["ph"] for _, event in members)
        if phases[:1] != "s" or phases[-1:] != "f" or set(phases[1:-1]) - {"t"}:
            yield f"event {members[0][0]}: flow {name} {identity} has the steps {phases!r} instead of s, t ..., f"
        for index, event in members:
            starts, ends = covered.get((event["pid"], event["tid"]), ([], []))
            before = bisect.bisect_right(starts, _ns(event["ts"]))
            if not before or ends[before - 1] <= _ns(event["ts"]):
                yield f"event {index}: flow {name} {identity} is in no slice"


def _covered(events: list[tuple[int, Event]]) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """For each thread: starts of its slices in order, and with each the latest end of the slices up to it."""
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for _, event in events:
        if event["ph"] == "X":
            start = _ns(event["ts"])
            spans.setdefault((event["pid"], event["tid"]), []).append((start, start + _ns(event["dur"])))
    covered = {}
    for thread, members in spans.items():
        members.sort()
        latest = itertools.accumulate((end for _, end in members), max)
        covered[thread] = ([start for start, _ in members], list(latest))
    return covered


def _names(events: list[tuple[int, Event]]) -> Iterator[str]:
    """Every thread with slices has a name."""
    named = {(event["pid"], event["tid"]) for _, event in events if event["name"] == "thread_name"}
    used = {(event["pid"], event["tid"]): index for index, event in reversed(events) if event["ph"] == "X"}
    for (pid, tid), index in used.items():
        if (pid, tid) not in named:
            yield f"event {index}: pid {pid}, tid {tid} has no thread_name"


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """A whole number of more than 64 bits, which JSON allows, is none that a viewer can hold."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**64
    return isinstance(value, float) and math.isfinite(value)


def _is_time(value: Any) -> bool:
    # A double holds microseconds to the nanosecond up to 2**43 us, a hundred days.
    return _is_number(value) and 0 <= value < 2**43 and abs(value * 1000 - round(value * 1000)) < 0.01
