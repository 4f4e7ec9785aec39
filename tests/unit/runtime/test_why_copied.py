"""What a call copied, and why."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts


@ts.function
def several(x: ts.Tensor["N", "M", ts.f32]):
    y = x.T
    joined = ts.concat([x, x + 1], axis=0)
    return y, joined, x.astype(ts.f16), x * 2


class Window(ts.StatefulObject):
    held: ts.Tensor["N", ts.f32]

    @ts.effect("update")
    def shifted(self, v: ts.Tensor["N", ts.f32]):
        self.held = self.held[::-1] + v

    @ts.effect("update")
    def add(self, v: ts.Tensor["N", ts.f32]):
        self.held = self.held + v


@ts.function
def shift(window: Window, v: ts.Tensor["N", ts.f32]):
    window.shifted(v)
    return ts.sum(window.held)


@ts.function
def grow(window: Window, v: ts.Tensor["N", ts.f32]):
    window.add(v)
    return ts.sum(v)


def test_copies_of_results_and_parts():
    assert str(ts.why_copied(several)) == "several has not been called in this session."
    several(np.ones((4, 8), np.float32))
    copies = {c.why.partition(",")[0].partition(" into ")[0]: c for c in ts.why_copied(several).copies}
    assert copies.keys() == {"a result has memory of its own", "parts are put"}  # neither the cast nor the product
    assert copies["a result has memory of its own"].bytes == 4 * 8 * 4
    assert copies["parts are put"].line == several.__wrapped__.__code__.co_firstlineno + 3


def test_arguments_that_are_copied_at_each_call():
    several(np.ones((8, 4), np.float32).T)
    found = [c for c in ts.why_copied(several).copies if c.what == "argument x [4, 8] f32"]
    assert len(found) == 1 and found[0].bytes == 128 and "ascontiguousarray" in found[0].why
    several(np.ones((4, 8), np.float32))
    assert "argument x" not in str(ts.why_copied(several))
    assert "<pre>" in ts.why_copied(several)._repr_html_()


def test_state_that_could_not_be_changed_in_place():
    window, v = Window(ts.zeros(5)), np.ones(5, np.float32)
    shift(window, v)
    (copied,) = ts.why_copied(shift).copies
    assert "window.held" in copied.what and copied.bytes == 20 and "in place" in copied.why
    grow(window, v)
    assert not ts.why_copied(grow) and str(ts.why_copied(grow)) == "The last call of grow copied nothing."


def test_other_things_have_no_copies():
    with pytest.raises(ts.LaunchError, match=r"TS105(.|\n)*not int"):
        ts.why_copied(3)
