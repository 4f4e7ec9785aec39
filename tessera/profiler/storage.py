"""Saved profiles: one .npz file with the tile records as an array and everything else as versioned JSON.

Nothing in it is pickled, and numbers, names and paths are all it can hold: a profile from elsewhere is safe to open.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from tessera.errors import TesseraError
from tessera.language.lazy import np
from tessera.profiler.machine import DeviceCeilings
from tessera.profiler.plausible import plausible
from tessera.profiler.recording import Recording
from tessera.profiler.sampling import counters
from tessera.profiler.sampling.calls import CallTimes
from tessera.profiler.sampling.stacks import HostPlace, Samples
from tessera.runtime.arrays.holders import Holder
from tessera.runtime.events import CompileEvent, GraphEvent, LaunchEvent, MemoryEvent, ProfilingEvent, TileBatch

VERSION, SAMPLED = 2, 3
"""Raised whenever a reader of the version before would misunderstand the file: it takes sampled calls for all calls."""

_Event = TypeVar("_Event", LaunchEvent, CompileEvent, ProfilingEvent, MemoryEvent, GraphEvent)


class ProfileError(TesseraError, ValueError):
    """A file is not a saved profile, or cannot be read."""

    default_code = "TS701"


def save(recording: Recording, path: Path) -> Path:
    """Writes `recording` to `path`, with the ceilings of the devices it ran on."""
    for launch in recording.launches:
        recording.machine(launch.device)
    tiles = recording.tiles
    document = {
        "format": "tessera-profile",
        "version": VERSION if recording.calls_made is None else SAMPLED,
        "start": recording.start,
        "end": recording.end,
        "phases": tiles.phases,
        "one_in": recording.one_in,
        "left_out": recording.left_out,
        "impossible": recording.impossible,
        "texts": recording.texts,
        "launches": [asdict(event) for event in recording.launches],
        "compiles": [asdict(event) for event in recording.compiles],
        "profiling": [asdict(event) for event in recording.profiling],
        "memory": [asdict(event) for event in recording.memory],
        "graphs": [asdict(event) for event in recording.graphs],
        "cupti": [recording.cupti, recording.cupti_lost],
        "clock": recording.clock,
        "counters": counters.to_json(recording.counters),
        "calls": None if recording.calls_made is None else recording.calls_made.to_json(),
        "held": {when: [asdict(holder) for holder in found] for when, found in recording.held.items()},
        "samples": {
            "times": recording.samples.times.tolist(),
            "where": recording.samples.where.tolist(),
            "places": recording.samples.places,
            "interval": recording.samples.interval,
            "spent": recording.samples.spent,
            "resident": recording.samples.resident.tolist(),
        },
        "machines": {device: machine.to_json() for device, machine in recording.machines.items()},
    }
    text = json.dumps(document, default=_plain).encode()
    with path.open("wb") as file:
        times = {} if recording.calls_made is None else {"calls": recording.calls_made.table()}
        np.savez_compressed(file, tiles=tiles.records, document=np.frombuffer(text, np.uint8), **times)
    return path


def load(path: Path) -> Recording:
    """Reads what `save` wrote. Raises ProfileError for anything else; an absent file raises FileNotFoundError."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            document = json.loads(archive["document"].tobytes())
            records = archive["tiles"]
            calls = archive.get("calls")
        if document["version"] not in (VERSION, SAMPLED):
            known = f"{VERSION} and {SAMPLED}"
            raise ProfileError(f"{path} has format version {document['version']}; this Tessera reads {known}")
        recording = _recording(document, records)
        if calls is not None:
            recording.calls_made = CallTimes.from_json(document["calls"], calls)
        return recording
    except (FileNotFoundError, ProfileError):
        raise
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception:  # NumPy, its archive and its headers each have errors of their own for what is damaged
        opened = "; traces are opened at ui.perfetto.dev" if path.suffix == ".json" else ""
        raise ProfileError(f"{path} is not a profile that prof.save(path) wrote, or it is damaged{opened}") from None


def _recording(document: dict[str, Any], records: np.ndarray) -> Recording:
    recording = Recording(int(document["start"]), int(document["end"]))
    recording.launches = [plausible(_event(LaunchEvent, entry)) for entry in document["launches"]]
    recording.compiles = [_event(CompileEvent, entry) for entry in document["compiles"]]
    recording.profiling = [_event(ProfilingEvent, entry) for entry in document["profiling"]]
    recording.memory = [_event(MemoryEvent, entry) for entry in document["memory"]]
    recording.graphs = [_event(GraphEvent, entry) for entry in document.get("graphs", ())]
    reason, recording.cupti_lost = document.get("cupti", (None, 0))
    recording.cupti = None if reason is None else str(reason)
    if document.get("clock"):
        boot, offset = document["clock"]
        recording.clock = str(boot), int(offset)
    recording.counters = counters.from_json(document.get("counters", {}))
    for when, found in document.get("held", {}).items():
        recording.held[str(when)] = [Holder(**{**entry, "paths": tuple(map(str, entry["paths"]))}) for entry in found]
    if "samples" in document:  # not in those of before
        recording.samples = _samples(document["samples"])
    recording.machines = {device: DeviceCeilings.from_json(entry) for device, entry in document["machines"].items()}
    recording.texts = {str(file): str(text) for file, text in document.get("texts", {}).items()}
    phases = tuple(str(phase) for phase in document["phases"])
    if len(records) and (records["phase"].min() < 0 or records["phase"].max() >= len(phases)):
        raise ValueError("a tile record names an unknown phase")
    recording.batches = [TileBatch(records, phases)]
    recording.impossible_before = int(document.get("impossible", 0))
    recording.one_in, recording.left_out = int(document.get("one_in", 1)), int(document.get("left_out", 0))
    return recording


def _samples(entry: dict[str, Any]) -> Samples:
    places = [HostPlace(str(file), int(line), str(name), str(doing)) for file, line, name, doing in entry["places"]]
    times, where = array("q", entry["times"]), array("l", entry["where"])
    if len(times) != len(where) or not all(0 <= index < len(places) for index in where):
        raise ValueError("a sample is of an unknown place")
    resident = array("q", entry.get("resident", ()))
    return Samples(times, where, places, int(entry["interval"]), int(entry["spent"]), resident)


def _event(kind: type[_Event], entry: dict[str, Any]) -> _Event:
    later = {"held", "block", "stack"} - entry.keys()  # not in files of before
    values = {field.name: entry[field.name] for field in fields(kind) if field.name not in later}
    if "grid" in values:
        values["grid"] = tuple(values["grid"])
    if "held" in values:
        values["held"] = tuple(
            (str(file), int(line), str(name), int(size)) for file, line, name, size in values["held"]
        )
    if "stack" in values:
        values["stack"] = tuple((str(file), int(line), str(function)) for file, line, function in values["stack"])
    if "stages" in values:
        values["stages"] = tuple((str(name), int(ns)) for name, ns in values["stages"])
    return kind(**values)


def _plain(value: Any) -> Any:
    """NumPy scalars in attributes become numbers; anything else that JSON lacks becomes its text."""
    return value.item() if hasattr(value, "item") else str(value)
