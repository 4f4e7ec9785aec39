"""`tessera trace verify`: what kind of trace a file is, what it holds, and what a viewer would drop or move of it."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.profiler.export.lint import events_of, is_kineto, lint_events, strict_json
from tessera.profiler.export.lint_packets import is_packets, lint_packets
from tessera.profiler.quantity import format_time
from tessera.profiler.storage import ProfileError


@dataclass(frozen=True, slots=True)
class TraceCheck:
    """Counts, and what is wrong: nothing, where `findings` is empty. `duration` in ns."""

    kind: str
    slices: int
    tracks: int
    flows: int
    counters: int
    duration: int
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        held = (
            f"{self.slices:,} slices on {self.tracks:,} tracks, {self.flows:,} flows, {self.counters:,} counter values"
        )
        lines = [f"{self.kind}: {held}, {format_time(self.duration)}"]
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  {finding}" for finding in self.findings]
        return "\n".join([*lines, "" if self.findings else "nothing is wrong"]).rstrip()


def verify_trace(path: Path) -> TraceCheck:
    """Reads a Chrome trace or a TrackEvent file, either of them compressed by gzip or not.

    Raises ProfileError for a file that is neither, FileNotFoundError for none.
    """
    data = _unpacked(path)
    if is_packets(data):
        found = lint_packets(data)
        return TraceCheck(
            "TrackEvent trace", found.slices, found.tracks, found.flows, found.counters, found.duration,
            tuple(found.findings), tuple(found.notes),
        )  # fmt: skip
    if data[:4] == b"PK\x03\x04":
        raise ProfileError(f"{path} is an archive, as prof.save(path) writes: Profiler.load(path) opens it")
    if not data.strip():
        raise ProfileError(f"{path} is empty")
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        raise ProfileError(f"{path} is neither a Chrome trace nor a TrackEvent file")
    try:
        document = strict_json(data)
    except ValueError as error:
        raise ProfileError(f"{path} is not strict JSON, or it is cut off: {error}") from None
    events = events_of(document)
    if events is None:
        raise ProfileError(
            f"{path} is JSON without events under traceEvents{_other(document if isinstance(document, dict) else None)}"
        )
    return _chrome(events, is_kineto(document))


def _unpacked(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except FileNotFoundError:
        raise
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise ProfileError(f"{path} is cut off or damaged: {error}") from None
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}") from None


def _other(document: dict[str, Any] | None) -> str:
    schema = (document or {}).get("$schema") or (document or {}).get("format")
    return f": it calls itself {schema}" if isinstance(schema, str) else ""


def _chrome(events: list[Any], kineto: bool) -> TraceCheck:
    findings = lint_events(events, kineto)
    known: list[dict[str, Any]] = [event for event in events if isinstance(event, dict)]
    phases = [str(event.get("ph")) for event in known]
    slices = [event for event in known if event.get("ph") == "X"]
    times = [(e["ts"], e["ts"] + e["dur"]) for e in slices if _number(e.get("ts")) and _number(e.get("dur"))]
    span: float = max((end for _, end in times), default=0) - min((start for start, _ in times), default=0)
    tracks = {(str(event.get("pid")), str(event.get("tid"))) for event in slices}
    if not known:
        findings.append("there is no event in it")
    counts = len(slices), len(tracks), phases.count("s"), phases.count("C")
    return TraceCheck("Kineto trace" if kineto else "Chrome trace", *counts, round(span * 1000), tuple(findings))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and abs(value) < 2**63
