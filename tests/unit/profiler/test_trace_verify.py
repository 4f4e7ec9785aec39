"""`tessera trace verify` says of any file what it is and what is wrong with it, and falls over none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.profiler.export import track_event as te
from tessera.profiler.export.chrome import export_chrome_trace
from tessera.profiler.export.lint import lint_trace
from tessera.profiler.export.lint_packets import is_packets, lint_packets
from tessera.profiler.export.track_event import export_perfetto
from tessera.profiler.export.verify import verify_trace
from tessera.profiler.export.wire import double, fields, fixed64, message, number, string
from tessera.profiler.storage import ProfileError, save
from tessera.runtime.events import MemoryEvent
from tests.profiler.synthetic import launch, recorded, tiles
from tests.unit.cli.test_cli import answered

RECORDING = recorded(launch(1, "a\nb <c>"), tiles((0, 0, 10, 20), (1, 1, 20, 30)), MemoryEvent(5, "cpu:0", 64, 64, "x"))


def written(folder: Path) -> dict[str, Path]:
    return {
        "Chrome trace": export_chrome_trace(RECORDING, folder / "run.json"),
        "TrackEvent trace": export_perfetto(RECORDING, folder / "run.pftrace"),
    }


def test_what_the_exports_write_is_sound_and_counted(tmp_path: Path) -> None:
    for kind, path in written(tmp_path).items():
        packed = path.with_suffix(path.suffix + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        for file in (path, packed):
            found = verify_trace(file)
            assert (found.kind, found.findings) == (kind, ())
            assert (found.slices, found.flows, found.duration) == (4, 1, 1_000_000)
            assert found.counters == 5 and "nothing is wrong" in str(found)


def test_a_file_that_is_cut_off_anywhere_is_found_out(tmp_path: Path) -> None:
    """But where every slice has ended and a counter's next value would begin: nothing tells that there was one."""
    for kind, path in written(tmp_path).items():
        whole = path.read_bytes()
        cut = tmp_path / "cut"
        between = {end for *_, end in fields(whole)} if kind == "TrackEvent trace" else set[int]()
        for size in sorted(set(range(0, len(whole) - 2, 7)) - between):
            cut.write_bytes(whole[:size])
            try:
                assert verify_trace(cut).findings, size
            except ProfileError as error:
                assert str(cut) in str(error)


def test_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    others = {
        b"": "is empty", b"  \n": "is empty", b"PK\x03\x04..": "Profiler.load", b"\x7fELF\x02": "neither a Chrome",
        b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}': "calls itself https://www.speedscope",
        b'{"traceEvents": 3}': "without events", b"[" * 100_000: "nested too deeply",
        b'{"traceEvents": [NaN]}': "NaN is not a JSON number", gzip.compress(b"{}")[:-9]: "cut off",
        b"\x1f\x8b\x08junk": "cut off or damaged", b"\xff\xfe{": "neither a Chrome",
    }  # fmt: skip
    for content, said in others.items():
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(ProfileError) as refused:
            verify_trace(tmp_path / "file")
        assert said in str(refused.value), content[:20]
    with pytest.raises(ProfileError, match=r"Profiler\.load"):
        verify_trace(save(RECORDING, tmp_path / "saved.npz"))
    for empty in ("[]", '{"traceEvents": []}', "\n[]"):
        (tmp_path / "file").write_text(empty)
        assert verify_trace(tmp_path / "file").findings == ("there is no event in it",)


ON_TRACK = number(te.EVENT_TRACK, 7)


def packet(*parts: bytes, flags: int = te.NEEDS_NAMES) -> bytes:
    return message(te.PACKET, b"".join(parts) + number(te.SEQUENCE, 1) + number(te.FLAGS, flags))


def event(time: int, kind: int, *rest: bytes) -> bytes:
    return packet(
        number(te.TIMESTAMP, time), message(te.EVENT, ON_TRACK + number(te.EVENT_TYPE, kind) + b"".join(rest))
    )


TRACK = packet(message(te.TRACK, number(te.TRACK_UUID, 7) + string(te.TRACK_NAME, "t")), flags=te.CLEARED)
BEGIN, END, COUNTER = te.SLICE_BEGIN, te.SLICE_END, te.COUNTER


@pytest.mark.parametrize(
    ("packets", "finding"),
    [
        ([TRACK, event(5, BEGIN), event(3, END)], "negative duration, -2 ns"),
        ([TRACK, event(5, BEGIN)], "never end"),
        ([TRACK, event(5, END)], "none is open"),
        ([TRACK, event(5, BEGIN), event(3, BEGIN), event(6, END), event(7, END)], "2 ns before the slice"),
        ([event(5, BEGIN), event(6, END)], "track 7 is used and never described"),
        ([TRACK, event(5, BEGIN, number(te.EVENT_NAME, 3)), event(6, END)], "name 3 was never given"),
        ([TRACK, event(5, BEGIN, fixed64(te.EVENT_FLOW, 9)), event(6, END)], "flow 9 has no end"),
        ([TRACK, event(5, BEGIN, fixed64(te.EVENT_FLOW_END, 9)), event(6, END)], "flow 9 ends and never began"),
        ([TRACK, event(5, COUNTER)], "a counter without a value"),
        ([TRACK, event(5, 0)], "no known kind"),
        ([TRACK, packet(message(te.EVENT, ON_TRACK + number(te.EVENT_TYPE, COUNTER) + double(44, 1.0)))], "no time"),
        ([TRACK], "there is no TrackEvent in it"),
        ([TRACK, number(3, 4)], "a field 3, which is not a packet"),
        ([TRACK, event(5, BEGIN)[:-4]], "cut off or damaged"),
    ],
)
def test_each_fault_of_packets_is_found(packets: list[bytes], finding: str) -> None:
    found = lint_packets(b"".join(packets)).findings
    assert any(finding in text for text in found), found


def test_sound_packets_of_others_are_sound() -> None:
    zero = event(0, BEGIN) + event(0, END) + event(4, te.INSTANT) + event(5, COUNTER, number(te.EVENT_COUNT, 3))
    found = lint_packets(TRACK + packet(message(99, b"what another source wrote")) + zero)
    assert (found.findings, found.slices, found.instants, found.counters, found.duration) == ([], 1, 1, 1, 5)


def test_times_that_a_sequence_counts_by_itself_are_said_not_to_be_compared() -> None:
    defaults = packet(message(59, number(58, 64)), flags=te.CLEARED)
    found = lint_packets(TRACK + defaults + event(900, BEGIN) + event(4, END))
    assert found.findings == [] and "2 events are on clocks of their own" in found.notes[0]


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
some_event = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("name", "cat", "pid", "tid", "ts", "dur", "args", "id", "bp", "s"), any_json)
    | {"ph": st.sampled_from("XCstfiMBE") | any_json},
)  # fmt: skip


@settings(max_examples=150)
@given(st.lists(some_event | any_json, max_size=6))
def test_the_linter_falls_over_no_json(events: list[Any]) -> None:
    assert isinstance(lint_trace({"traceEvents": events}), list)


@settings(max_examples=150)
@given(st.binary(max_size=60), st.integers(0, 10**6), st.integers(0, 255))
def test_the_reader_falls_over_no_bytes(junk: bytes, where: int, byte: int) -> None:
    whole = bytearray(TRACK + event(1, BEGIN, number(te.EVENT_NAME, 3), fixed64(te.EVENT_FLOW, 9)) + event(2, END))
    whole[where % len(whole)] = byte
    for data in (junk, bytes(whole), bytes(whole) + junk):
        is_packets(data)
        lint_packets(data)


def test_numbers_come_back_as_they_were_written() -> None:
    for value in (0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1):
        ((field, _, read, _),) = fields(number(5, value))
        assert (field, read) == (5, value)
    ((_, _, negative, _),) = fields(number(4, -1))
    assert negative == 2**64 - 1


def test_from_the_command_line(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for kind, path in paths.items():
        done = answered("trace", "verify", path, cwd=tmp_path)
        assert (done.returncode, kind in done.stdout) == (0, True), done
    as_json = json.loads(answered("trace", "verify", paths["Chrome trace"], "--json", cwd=tmp_path).stdout)
    assert as_json["slices"] == 4 and as_json["findings"] == []
    document = json.loads(paths["Chrome trace"].read_text())
    next(e for e in document["traceEvents"] if e["ph"] == "X")["dur"] = -1
    (tmp_path / "bad.json").write_text(json.dumps(document))
    done = answered("trace", "verify", tmp_path / "bad.json", cwd=tmp_path)
    assert done.returncode == 1 and "duration -1" in done.stdout
    (tmp_path / "cut.json").write_bytes(paths["Chrome trace"].read_bytes()[:300])
    done = answered("trace", "verify", tmp_path / "cut.json", cwd=tmp_path)
    assert done.returncode == 1 and "TS701" in done.stderr and "Traceback" not in done.stderr
    assert answered("trace", "verify", tmp_path / "none.json", cwd=tmp_path).returncode == 2
