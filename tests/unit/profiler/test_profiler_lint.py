"""The trace linter finds each fault that makes a viewer show something else than what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessera.profiler.export.lint import lint_trace

NAMED = {"ph": "M", "name": "thread_name", "pid": 1000, "tid": 1, "args": {"name": "SM 0"}}


def complete(ts: float, dur: float, **rest: Any) -> dict[str, Any]:
    return {"ph": "X", "name": "t", "cat": "tile", "pid": 1000, "tid": 1, "ts": ts, "dur": dur, **rest}


def flow(phase: str, ts: float, **rest: Any) -> dict[str, Any]:
    event = {"ph": phase, "name": "f", "cat": "c", "id": 1, "pid": 1000, "tid": 1, "ts": ts, **rest}
    return {**event, "bp": "e"} if phase == "f" else event


def lint(*events: Any) -> list[str]:
    return lint_trace({"traceEvents": [NAMED, *events]})


def test_a_sound_trace_has_no_findings() -> None:
    counter = {"ph": "C", "name": "m", "pid": 1000, "tid": 1, "ts": 1.5, "args": {"bytes": 3}}
    instant = {"ph": "i", "name": "hit", "s": "t", "pid": 1000, "tid": 1, "ts": 2}
    assert lint(complete(0, 10), complete(1, 2), complete(3, 7), flow("s", 1), flow("f", 4), counter, instant) == []


@pytest.mark.parametrize(
    ("events", "finding"),
    [
        ([complete(0, 10), complete(5, 10)], "crosses the end of event 1"),
        ([complete(0, 2), complete(0, 10)], "stands before its parent"),
        ([complete(0, -1)], "duration -1"),
        ([{key: value for key, value in complete(0, 1).items() if key != "dur"}], "duration None"),
        ([complete(-1, 1)], "time -1"),
        ([complete(0.0001, 1)], "at most three decimals"),
        ([complete(float("nan"), 1)], "time nan"),
        ([complete(True, 1)], "time True"),
        ([complete(0, 1, pid=7)], "pid 7"),
        ([complete(0, 1, tid=0)], "tid 0"),
        ([complete(0, 1, tid=2)], "has no thread_name"),
        ([complete(0, 1, name=3)], "has no name"),
        ([complete(0, 1, name="\ud800")], "surrogate"),
        ([complete(0, 1, ph="Q")], "phase 'Q'"),
        ([complete(0, 1, ph=["X"])], "phase ['X']"),
        (["event"], "is not an object"),
        ([{"ph": "C", "name": "m", "pid": 1000, "tid": 1, "ts": 0, "args": {"b": "3"}}], "not a number"),
        ([{"ph": "C", "name": "m", "pid": 1000, "tid": 1, "ts": 0, "args": {"b": True}}], "not a number"),
        ([{"ph": "C", "name": "m", "pid": 1000, "tid": 1, "ts": 0}], "without values"),
        ([{"ph": "i", "name": "hit", "pid": 1000, "tid": 1, "ts": 2}], "without a scope"),
        ([{"ph": "M", "name": "thread_nmae", "pid": 1000, "tid": 1, "args": {"name": "x"}}], "metadata 'thread_nmae'"),
        ([complete(0, 10), flow("s", 1)], "steps 's'"),
        ([complete(0, 10), flow("f", 1), flow("s", 2)], "steps 'fs'"),
        ([complete(0, 10), flow("s", 1), flow("f", 2, name="g")], "steps 's'"),
        ([complete(0, 10), flow("s", 1), flow("f", 20)], "is in no slice"),
        ([complete(0, 10), flow("s", 1), flow("f", 10)], "is in no slice"),
        ([complete(0, 10), flow("s", 1), {**flow("f", 2), "bp": "x"}], "without bp"),
    ],
)
def test_a_fault_is_found(events: list[Any], finding: str) -> None:
    assert any(finding in line for line in lint(*events)), lint(*events)


@pytest.mark.parametrize(
    "text", ['{"traceEvents":[{"ph":"C","ts":NaN}]}', '{"traceEvents":[', '{"traceEvents":["\x01"]}']
)
def test_json_that_viewers_refuse_is_a_finding(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    (finding,) = lint_trace(path)
    assert "strict JSON" in finding


def test_a_document_without_events_and_a_missing_file_are_findings(tmp_path: Path) -> None:
    assert lint_trace({"events": []}) == ["the document has no list of events under traceEvents"]
    assert "strict JSON" in lint_trace(tmp_path / "absent.json")[0]


def test_findings_are_cut_off_after_a_hundred() -> None:
    findings = lint(*[complete(0, -1)] * 500)
    assert len(findings) == 101
    assert findings[-1] == "further findings are left out"
