"""Keys of nested arguments: those that are written out tell apart what going through the values does."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.runtime.call.contents import MANY, content, content_of


@dataclass
class Held:
    a: object
    b: object = 1


@dataclass(slots=True)
class Slotted:
    a: object
    b: object = 2.0


@dataclass
class Listed:
    items: list = field(default_factory=list)


def opaque(x):
    return x


arrays = st.builds(
    lambda kind, shape, dtype: kind(np.zeros(shape, dtype)),
    st.sampled_from([np.asarray, ts.asarray, lambda a: a.T]),
    st.sampled_from([(), (2,), (2, 3), (3, 2)]),
    st.sampled_from([np.float32, np.int32]),
)
plain = st.sampled_from([0, 1, True, 0.0, -0.0, 1.0, float("nan"), "", "a", None, b"a", ts.f32, 1j, opaque, slice(2)])
values = st.recursive(
    arrays | plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["x", "y", 1]), inner, max_size=3),
        st.builds(Held, inner, inner),
        st.builds(Slotted, inner, inner),
        st.builds(Listed, st.lists(inner, max_size=2)),
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(values, st.lists(values, max_size=6), st.randoms())
def test_keys_differ_where_contents_do(example, others, random):
    key = content_of(example)
    found = [example, *others, *(copy.copy(v) for v in others), copy.deepcopy(example)]
    random.shuffle(found)
    keys, contents = [key(v) for v in found], [content(v) for v in found]
    for k, c in zip(keys, contents, strict=True):
        assert hash(k) == hash(k)
        for k2, c2 in zip(keys, contents, strict=True):
            assert (k == k2) == (c == c2)


many = st.lists(st.one_of(st.builds(Held, arrays, plain), arrays, st.just({"x": 1})), min_size=1, max_size=3).map(
    lambda kinds: (kinds * MANY)[: MANY + 1]
)


@settings(max_examples=100)
@given(many, st.lists(many, max_size=4), st.integers(0, MANY), st.sampled_from([list, tuple, enumerate]))
def test_items_that_share_a_function_differ_as_others_do(example, others, at, kind):
    one_other = [*example[:at], Held(0, 0), *example[at + 1 :]]
    found = [example, *others, one_other, [*reversed(example)], example[1:], copy.deepcopy(example)]
    found = [dict(v) if kind is enumerate else v for v in map(kind, found)]
    key = content_of(found[0])
    keys, contents = [key(v) for v in found], [content(v) for v in found]
    for k, c in zip(keys, contents, strict=True):
        for k2, c2 in zip(keys, contents, strict=True):
            assert (k == k2) == (c == c2)


def test_many_items_that_hold_themselves_or_are_large_are_gone_through():
    loop = [Held(1) for _ in range(MANY)]
    loop[0].a = loop
    assert content_of(loop) is content
    assert content_of([[[n] * 20 for n in range(20)] for _ in range(20)]) is content


def test_what_is_set_beside_the_fields_counts():
    one, two = Held(1), Held(1)
    two.more = 3
    key = content_of(one)
    assert key(one) != key(two)
    two.more = 4
    before = key(two)
    two.more = 3
    assert key(two) != before
    del two.more
    assert key(two) == key(one)


def test_what_holds_itself_and_what_is_large_is_gone_through():
    loop = Held(1)
    loop.a = loop
    assert content_of(loop) is content
    large = [1] * 5000
    assert content_of(large) is content


def test_more_ways_of_building_than_are_written_out():
    key = content_of([])
    found = [key([1] * n) for n in range(10)]
    assert len(set(found)) == 10 and found == [key([1] * n) for n in range(10)]


def test_a_function_sees_what_changes_in_a_module():
    @ts.function
    def scaled(held: Held, x):
        return x * held.b if held.a is None else x + held.a

    x = np.ones(3, np.float32)
    held = Held(None, 2.0)
    assert scaled(held, x).tolist() == [2, 2, 2]
    held.b = 3.0
    assert scaled(held, x).tolist() == [3, 3, 3]
    held.a = np.full(3, 5, np.float32)
    assert scaled(held, x).tolist() == [6, 6, 6]
    held.a = np.full(1, 7, np.float32)
    assert scaled(held, x).tolist() == [8, 8, 8]
    held.a = None
    assert scaled(held, x).tolist() == [3, 3, 3]
