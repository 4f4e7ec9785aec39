"""Positions: the protocol's code units, offsets and the compiler's columns, forth and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types as lsp
from tessera_lsp.notebook import CellText
from tessera_lsp.text import Text

from tessera.errors import Span

TEXTS = st.text(st.sampled_from("ab é𝒮漢\n\r\t\f\u2028"), max_size=30)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@given(TEXTS, ENCODINGS)
def test_positions_and_offsets_are_inverse(text, encoding):
    made = Text(text, encoding)
    for offset in range(len(text) + 1):
        if text[max(offset - 1, 0) : offset + 1] != "\r\n":  # between these two there is no position
            assert made.offset(made.position(offset)) == offset


@given(TEXTS, ENCODINGS, st.text(st.sampled_from("x\n𝒮\r"), max_size=4), st.data())
def test_a_change_is_what_slicing_does(text, encoding, new, data):
    made = Text(text, encoding)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    area = made.range(start, end)
    changed = made.changed(lsp.TextDocumentContentChangePartial(area, new))
    assert changed.text == text[: made.offset(area.start)] + new + text[made.offset(area.end) :]
    assert changed.starts == Text(changed.text).starts


@given(TEXTS, ENCODINGS, st.integers(0, 9), st.integers(0, 99))
def test_positions_outside_are_moved_inside(text, encoding, line, character):
    made = Text(text, encoding)
    assert 0 <= made.offset(lsp.Position(line, character)) <= len(text)
    at = made.place(lsp.Position(line, character))
    assert 1 <= at[0] <= len(made.lines) and at[1] >= 1


@pytest.mark.parametrize(("encoding", "before"), [("utf-8", 7), ("utf-16", 4), ("utf-32", 3)])
def test_units_before_a_span(encoding, before):
    made = Text("𝒮é = x", encoding)
    assert made.span_range(Span("", 1, 4, 1, 5)) == lsp.Range(lsp.Position(0, before), lsp.Position(0, before + 1))
    assert made.place(lsp.Position(0, before)) == (1, 4)


def test_a_position_within_a_surrogate_pair_counts_the_whole_character():
    assert Text("𝒮x", "utf-16").offset(lsp.Position(0, 1)) == 1


def test_byte_order_mark_and_line_ends():
    made = Text("\ufeffa\r\nb\rc\nd\u2028e\ff")
    assert made.plain == "a\nb\nc\nd\u2028e\ff"
    assert made.at(1, 1) == lsp.Position(0, 1) and made.place(lsp.Position(0, 1)) == (1, 1)
    assert made.at(4, 3) == lsp.Position(3, 2)


def test_places_outside_of_a_cell_are_moved_inside():
    """A function that is broken is remembered with as many lines as it had, which may reach into the next cell."""
    cell = CellText(Text("above\none\n😀 two\nbelow"), 1, 2)
    assert [cell.at(line, 3) for line in (1, 2, 3, 4, 5)] == [
        lsp.Position(*place) for place in ((0, 0), (0, 2), (1, 3), (1, 6), (1, 6))
    ]
