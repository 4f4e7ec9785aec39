"""Temporaries share memory where they are not needed at the same time, and never where they are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.pipeline import to_program
from tessera.compiler.tile.lifetimes import lifetimes, place, temporaries
from tessera.compiler.tile.program import BufferArg, Loop

SPANS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 12), st.integers(0, 12)).map(
        lambda s: (s[0], min(s[1:]), max(s[1:]))
    ),
    max_size=25,
)


@given(SPANS)
def test_none_overlaps_another_while_both_are_needed(spans) -> None:
    places, total = place(spans, 64)
    assert all(p % 64 == 0 and p + size <= total for p, (size, _, _) in zip(places, spans, strict=True))
    for i, (size, first, last) in enumerate(spans):
        for j, (other, begin, end) in enumerate(spans[:i]):
            if begin <= last and first <= end and size and other:
                assert places[i] + size <= places[j] or places[j] + other <= places[i]


@given(SPANS)
def test_it_takes_no_more_than_all_of_them_and_no_less_than_those_of_one_moment(spans) -> None:
    _, total = place(spans, 64)
    rounded = [(-(-size // 64) * 64, first, last) for size, first, last in spans]
    assert total <= sum(size for size, _, _ in rounded)
    assert total >= max((sum(n for n, a, b in rounded if a <= at <= b) for at in range(13)), default=0)


def program(function, **sizes):
    return to_program(analyse(function.definition(), None, sizes).unit(), "cpu").program


@ts.function
def chain(x: Tensor["N", "N", ts.f32]):
    for _ in range(6):
        x = ts.tanh(x @ x)
    return x


def test_a_chain_needs_two_places() -> None:
    made = program(chain, N=64)
    found = temporaries(made)
    assert len(found) == 5
    _, total = place([(t.bytes, t.first, t.last) for t in found])
    assert total == 2 * 64 * 64 * 4
    x = np.eye(64, dtype=np.float32)
    chain(x)
    assert chain.explain().workspace == total


@ts.function
def looped(x: Tensor["N", "N", ts.f32], times: ts.Int):
    kept = ts.exp(x @ x)
    total = x
    for _ in ts.range(times):
        total = ts.tanh(total @ kept) + ts.sin(total @ x)
    return total, ts.exp(x @ total)


def test_what_a_loop_reads_from_outside_stays_for_all_of_its_rounds() -> None:
    made = program(looped, N=16)
    (loop,) = (s for s in made.steps if isinstance(s, Loop))
    inside = {a.buffer for s in loop.body for a in s.args if isinstance(a, BufferArg)}
    found, written = lifetimes(made), [i for i, s in enumerate(made.launches) if s in loop.body]
    outside = {a.buffer for s in made.steps if not isinstance(s, Loop) for a in getattr(s, "args", ())}
    assert inside & outside
    for buffer in inside & outside:
        first, last = found[buffer]
        assert first <= written[0] and last >= written[-1]


def test_results_are_those_of_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 8
    total, kept = x, np.exp(x @ x)
    for _ in range(5):
        total = np.tanh(total @ kept) + np.sin(total @ x)
    a, b = looped(x, 5)
    np.testing.assert_allclose(a, total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(b, np.exp(x @ total), rtol=1e-5)


@ts.function
def loop_in_a_branch(x: Tensor["N", ts.f32]):
    shifted = ts.roll(x, -1, 0)
    if ts.min(shifted) < 100:
        n = ts.full((), 0, dtype=ts.int64)
        while n < 3:
            x = x - shifted
            n = n + 1
    return x + 0


def test_what_a_loop_in_a_branch_reads_from_outside_of_both_stays() -> None:
    """Found by the fuzzer of functions: what the loop made lay where `shifted` was still to be read."""
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(loop_in_a_branch(x), x - 3 * np.roll(x, -1))
