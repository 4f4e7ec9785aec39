"""Bytes of columns are those that Python writes one by one, and a trace of more tiles takes no more calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.profiler import Profiler
from tessera.profiler.balance import nesting_lanes, numbered
from tessera.profiler.export import columns, wire
from tessera.profiler.export.columns import Texts, blocks, constant, decimal, joined, thousandths, varint, where
from tessera.profiler.export.slices import Slices, edges
from tests.conftest import require
from tests.profiler.synthetic import launch, recorded, tiles

LEAST, MOST = -(2**63), 2**63 - 1
integers = st.lists(
    st.integers(LEAST, MOST) | st.integers(-200, 200) | st.sampled_from([LEAST, MOST, 0, 2**32, 2**32 - 1]),
    min_size=1, max_size=20,
)  # fmt: skip


def rows(column: columns.Cells, count: int) -> list[bytes]:
    return [joined(1, [_row(column, index)]) for index in range(count)]


def _row(column: columns.Cells, index: int) -> columns.Cells:
    cells, used, lengths = (part[index : index + 1] if len(part) > 1 else part for part in column)
    return columns.Cells(cells, used, lengths)


@given(integers)
def test_numbers_are_written_as_python_writes_them(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert rows(decimal(column), len(values)) == [str(value).encode() for value in values]
    assert rows(varint(column), len(values)) == [wire.varint(value) for value in values]
    times = np.array([abs(value) // 2 for value in values], np.int64)
    parts = thousandths(times)
    assert joined(len(values), [*parts, constant(b" ")]).decode().split() == [
        f"{time // 1000}.{time % 1000:03d}" for time in times.tolist()
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 10**12), st.booleans()), min_size=1, max_size=30))
def test_rows_are_their_parts_in_order(found: list[tuple[int, int, bool]]) -> None:
    texts = [b"", b"one", "zwölf".encode(), b"a longer one"]
    which, values, chosen = (np.array(column) for column in zip(*found, strict=True))
    parts = [Texts(texts).of(which), constant(b":"), where(chosen, decimal(values)), constant(b"\n")]
    lines = [texts[w] + b":" + (str(v).encode() if c else b"") + b"\n" for w, v, c in found]
    assert joined(len(found), parts) == b"".join(lines)
    assert np.broadcast_to(columns.lengths(parts), len(found)).tolist() == [len(line) for line in lines]


def test_rows_with_long_texts_are_joined_a_few_at_a_time() -> None:
    widths = np.full(20_000, 10)
    widths[9_000] = 1 << 30
    parts = list(blocks(widths))
    assert [i for rows in parts for i in range(rows.start, rows.stop)] == list(range(20_000))
    assert max(rows.stop - rows.start for rows in parts) == 8192
    assert [(rows.start, rows.stop) for rows in parts if rows.start <= 9_000 < rows.stop] == [(9_000, 9_001)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=25))
def test_slices_begin_and_end_inside_of_those_that_are_open(spans: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in spans])
    end = start + np.array([took for _, took in spans])
    order = np.lexsort((-end, start))
    lane = nesting_lanes(start, end)[order]
    start, end = start[order][lane == 0], end[order][lane == 0]
    nothing = np.zeros(len(start), np.int64)
    which, opens = edges(Slices(start, end, nothing, nothing, nothing))
    stack: list[int] = []
    before = -1
    for index, begins in zip(which.tolist(), opens.tolist(), strict=True):
        time = int(start[index] if begins else end[index])
        assert time >= before
        before = time
        if begins:
            assert all(end[outer] > time for outer in stack), "what has ended is closed before the next begins"
            stack.append(index)
        else:
            assert stack.pop() == index
    assert not stack


@given(st.lists(st.tuples(st.integers(LEAST, MOST), st.integers(-3, 3), st.integers(0, 2)), min_size=1, max_size=20))
def test_equal_rows_have_one_number(found: list[tuple[int, int, int]]) -> None:
    first, row = numbered([np.array(column) for column in zip(*found, strict=True)])
    distinct = sorted(set(found))
    assert [found[i] for i in first.tolist()] == distinct
    assert row.tolist() == [distinct.index(one) for one in found]
    assert first.tolist() == [found.index(one) for one in distinct]


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (Profiler.export_chrome_trace, "t.json"), (Profiler.export_perfetto, "t.pftrace"),
        (Profiler.export_speedscope, "s.json"), (Profiler.export_events, "e.json"),
        (Profiler.export_events, "e.parquet"),
    ],
)  # fmt: skip
def test_a_trace_of_ten_times_the_tiles_takes_no_more_calls(
    write: Callable[[Profiler, Path], Path], name: str, tmp_path: Path
) -> None:
    if name.endswith("parquet"):
        require("pyarrow.parquet")

    def calls(count: int) -> int:
        prof = Profiler()
        prof.recording = recorded(launch(1), tiles(*((i, i % 3, 100 * i, 90) for i in range(count))))
        found = 0

        def counted(_frame: FrameType, event: str, _arg: Any) -> None:
            nonlocal found
            found += event == "call"

        sys.setprofile(counted)
        try:
            write(prof, tmp_path / name)
        finally:
            sys.setprofile(None)
        return found

    calls(10)  # modules are loaded
    assert calls(6000) < 1.2 * calls(600) + 200
