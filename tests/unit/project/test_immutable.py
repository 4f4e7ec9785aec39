"""Small records: equal and alike as keys by what they hold, with slots alone, replaced rather than changed."""

from __future__ import annotations

import pickle
from dataclasses import field, replace

import pytest

from tessera.errors import Span
from tessera.immutable import immutable


@immutable
class Pair:
    left: int
    right: tuple[int, ...] = ()
    seen: int = field(default=0, compare=False)


def test_fields_decide_what_is_equal():
    assert Pair(1, (2,)) == Pair(1, (2,), seen=3) != Pair(1)
    assert len({Pair(1), Pair(1, seen=2), Pair(2)}) == 2


def test_only_what_is_declared_can_be_held():
    with pytest.raises(AttributeError):
        Pair(1).other = 2  # type: ignore[attr-defined]


def test_a_change_makes_another_one():
    old = Pair(1, (2,))
    assert replace(old, left=3) == Pair(3, (2,)) and old.left == 1


def test_it_can_be_saved():
    span = Span("a.py", 1, 2, 3, 4)
    assert pickle.loads(pickle.dumps(span)) == span  # noqa: S301 (written just here)
