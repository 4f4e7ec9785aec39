"""Spans, diagnostics and how they are drawn."""

from __future__ import annotations

import html
import json
import linecache
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.codes import CODES
from tessera.errors import (
    NOWHERE,
    CompileError,
    Diagnostic,
    Diagnostics,
    Edit,
    Fix,
    LaunchError,
    MissingDependency,
    Note,
    Span,
    TesseraError,
    register_source,
    render,
    render_all,
    render_html,
    source_line,
)

TEXT = "def f(x):\n    pooled = x.mean(axis=(2, 3))\n\treturn é + pooled\n"
SPAN = Span("cell", 2, 14, 2, 33)


@pytest.fixture(autouse=True)
def text():
    register_source("cell", TEXT)
    yield
    linecache.cache.pop("cell", None)


def test_the_drawing():
    d = Diagnostic(
        "TS201", 'Expected: Tensor["B", "C", 1, 1]\nReceived: Tensor["B", "C"]', SPAN, function="adaptive_pooling",
        label="has shape [B, C]", notes=(Note("B is bound here", Span("cell", 1, 7, 1, 8)), Note("for example B=2")),
        fixes=(Fix("Add keepdim=True", (Edit(Span("cell", 2, 32, 2, 32), ", keepdim=True"),)),),
    )  # fmt: skip
    assert render(d) == (
        "Shape error TS201 in adaptive_pooling at cell:2:14\n"
        "  2 |     pooled = x.mean(axis=(2, 3))\n"
        "    |              ^^^^^^^^^^^^^^^^^^^ has shape [B, C]\n"
        '  Expected: Tensor["B", "C", 1, 1]\n'
        '  Received: Tensor["B", "C"]   [fix available]\n'
        "  note: B is bound here   (cell:1:7)\n"
        "  note: for example B=2"
    )
    assert re.sub(r"\x1b\[[0-9;]*m", "", d.render(color=True)) == d.render()


@pytest.mark.parametrize(
    ("span", "under"),
    [
        (Span("cell", 1, 5, 1, 6), "    |     ^"),
        (Span("cell", 1, 5, 1, 5), "    |     ^"),
        (Span("cell", 1, 1, 2, 4), "    | ^^^^^^^^^"),
        (Span("cell", 1, 5, 1, 99), "    |     ^^^^^"),
        (Span("cell", 3, 2, 3, 8), "    | \t^^^^^^"),
        (Span("cell", 3, 9, 3, 10), "    | \t       ^"),
    ],
)
def test_carets_stand_under_what_they_mean(span, under):
    assert render(Diagnostic("TS102", "no", span)).splitlines()[2] == under


def test_without_a_place_there_are_no_carets():
    assert render(Diagnostic("TS604", "no")) == "Missing dependency TS604\n  no"
    assert render(Diagnostic("TS102", "no", Span("not there", 3, 1, 3, 2))) == (
        "Unsupported construct TS102 at not there:3:1\n  no"
    )
    assert render(Diagnostic("TS102", "", Span("cell", 99, 1, 99, 2))) == "Unsupported construct TS102 at cell:99:1\n  "


def test_json_has_what_check_promises():
    d = Diagnostic("TS201", "no", SPAN, notes=(Note("here", SPAN), Note("so")), fixes=(Fix("do", (Edit(SPAN, "x"),)),))
    found = json.loads(json.dumps(d.to_json()))
    assert {k: found[k] for k in ("code", "message", "file", "line", "column", "end_line", "end_column")} == {
        "code": "TS201", "message": "no", "file": "cell", "line": 2, "column": 14, "end_line": 2, "end_column": 33,
    }  # fmt: skip
    assert found["notes"][0]["line"] == 2
    assert found["notes"][1] == {"message": "so"}
    assert found["fixes"][0]["edits"][0]["text"] == "x"


evil = st.text(st.sampled_from("<>&\"'\x1b[1;31m\x00\x7f\u202e\tab é\r"), max_size=20)


@given(evil, evil, evil)
def test_nothing_of_the_program_is_markup_or_control(line, message, name):
    register_source("evil", line.replace("\r", " ") + "\n")
    d = Diagnostic("TS102", message, Span("evil", 1, 1, 1, 4), function=name, label=message, notes=(Note(message),))
    page = render_html([d])
    assert re.findall(r"<[^>]*>", page) == re.findall(r'</?(?:pre|span)(?: (?:class|style)="[^"]*")*>', page)
    shown = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert shown == render(d)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", render(d))
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", d.render(color=True))


def test_lines_are_python_s_lines():
    """A form feed or a Unicode separator ends no line of Python."""
    register_source("odd", "a\x0cb\u2028c\r\nd\re\n")
    assert [source_line("odd", i) for i in (1, 2, 3, 4)] == ["a\x0cb\u2028c", "d", "e", None]


def test_spans():
    a, b = Span("f", 1, 5, 1, 9), Span("f", 2, 1, 3, 2)
    assert a.to(b) == b.to(a) == Span("f", 1, 5, 3, 2)
    assert a.to(Span("f", 1, 2, 1, 6)) == Span("f", 1, 2, 1, 9)
    assert a.contains(1, 5) and a.contains(1, 9) and not a.contains(1, 4) and not a.contains(2, 5)
    assert b.contains(2, 80)
    assert str(a) == "f:1:5"


def test_findings_are_collected_once():
    findings = Diagnostics("f")
    for _ in range(3):
        findings.error("TS201", "no", SPAN)
    findings.error("TS201", "no", Span("cell", 1, 1, 1, 2))
    findings.add(Diagnostic("TS311", "careful", SPAN, severity="warning", function="g"))
    assert [d.function for d in findings.items] == ["f", "f", "g"]
    assert len(findings.errors) == 2
    with pytest.raises(CompileError) as e:
        findings.raise_if_errors()
    assert len(e.value.diagnostics) == 2
    assert str(e.value) == render_all(findings.errors)
    Diagnostics().raise_if_errors()


def test_the_exceptions():
    e = TesseraError([Diagnostic("TS201", "a", SPAN), Diagnostic("TS202", "b")])
    assert e.code == "TS201"
    assert "TS201" in str(e) and "TS202" in str(e)
    assert "".join(e._render_traceback_()).count("\x1b") > 4
    assert e._repr_html_().count("<pre") == 2
    assert isinstance(LaunchError("no"), ValueError)
    assert LaunchError("no").code == "TS501"
    assert CompileError("no", code="TS101").code == "TS101"
    missing = MissingDependency("plotly", "plot", "The report")
    assert isinstance(missing, ImportError)
    assert "pip install 'tessera[plot]'" in str(missing)


def test_codes_are_documented():
    for code, entry in CODES.items():
        assert re.fullmatch(r"TS\d{3}", code)
        assert entry.kind and entry.summary
        assert not entry.summary.endswith(".")
    assert list(CODES) == sorted(CODES)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_of_a_long_line_the_part_around_the_place_is_shown(place: str) -> None:
    words = {
        "first": "BAD" + " + ok" * 9999,
        "middle": "ok + " * 9999 + "BAD" + " + ok" * 9999,
        "last": "ok + " * 9999 + "BAD",
    }
    text = words[place]
    register_source("long.py", text)
    at = text.index("BAD") + 1
    drawn = render(Diagnostic("TS101", "no", Span("long.py", 1, at, 1, at + 3)))
    line, carets = drawn.splitlines()[1:3]
    assert len(line) < 260
    assert line[carets.index("^") : carets.rindex("^") + 1] == "BAD"
    assert (line.endswith("…"), "| …" in line) == (place != "last", place != "first")


def test_nowhere_is_not_shown():
    assert NOWHERE.line == 0
    assert "unknown" not in render(Diagnostic("TS900", "no"))
