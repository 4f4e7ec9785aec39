"""What programs store, and where: parts that no program has, stores by one program, new axes of loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tests.kernel_runner import check, codes, run

TARGETS = pytest.mark.parametrize("target", ["reference", "cpu"])


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def pairs_of_rows(a: Tensor["N", "D", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return ts.tile.mma(a, a.T)


def pairs_of_lanes(x: Tensor["N", ts.f32]) -> Tensor["N", "N", ts.f32]:
    t = x[tile_n : tile_n + 4]
    return t[:, None] * t[None, :]


def pairs_of_all(a: Tensor["N", "D", ts.f32]) -> Tensor["N", "N", ts.f32]:
    return ts.tile.mma(a, a[:, :].T)


@TARGETS
def test_blocks_on_a_diagonal_are_no_whole(target: str) -> None:
    for kernel, x in ((pairs_of_rows, normal(9, 4)), (pairs_of_lanes, normal(9))):
        (error,) = check(kernel, x).diagnostics
        assert error.code == "TS403" and "only blocks on the diagonal of result [N, N]" in error.message
    a = normal(9, 4)
    np.testing.assert_allclose(run(pairs_of_all, a, target=target), a @ a.T, rtol=1e-5, atol=1e-6)


def all_but_the_last(x: Tensor["N", ts.f32]) -> Tensor["N", ts.f32]:
    i = ts.tile.linear_id()
    return ts.tile.where(i < N - 1, x[i], 0)


def both_ends(x: Tensor["N", ts.f32]) -> Tensor["N-1", ts.f32]:
    i = ts.tile.linear_id()
    return ts.tile.where(i < 2, x[i], x[i + 1])


@TARGETS
def test_a_comparison_leaves_the_length_of_a_result_alone(target: str) -> None:
    x = normal(9)
    np.testing.assert_array_equal(run(all_but_the_last, x, target=target, BLOCK=4), [*x[:-1], 0])
    np.testing.assert_array_equal(run(both_ends, x, target=target, BLOCK=4), [*x[:2], *x[3:]])


def twice(x: Tensor["...", "2*D", ts.f32]) -> Tensor["...", "D", ts.f32]:
    return x * 2


def turned(x: Tensor["...", "S", "D", ts.f32]) -> Tensor["...", "D", "S", ts.f32]:
    return x * 2


def gated(x: Tensor["...", "2*D", ts.f32]) -> Tensor["...", "D", ts.f32]:
    return ts.tile.silu(x[0:D]) * x[D : 2 * D]


def gated_rows(x: Tensor["T", "2*D", ts.f32]) -> Tensor["T", "D", ts.f32]:
    for t in ts.tile.range(0, T, 4):
        y = ts.tile.silu(x[t : t + 4, 0:D]) * x[t : t + 4, D : 2 * D]
    return y


def gated_blocks(x: Tensor["T", "2*D", ts.f32]) -> Tensor["T", "D", ts.f32]:
    gate = x[tile_t : tile_t + 4, tile_d : tile_d + 4]
    return ts.tile.silu(gate) * x[tile_t : tile_t + 4, D + tile_d : D + tile_d + 4]


def gated_steps(x: Tensor["T", "2*D", ts.f32]) -> Tensor["T", "D", ts.f32]:
    for j in ts.tile.range(0, D, 4):
        y = ts.tile.silu(x[tile_t : tile_t + 4, j : j + 4]) * x[tile_t : tile_t + 4, D + j : D + j + 4]
    return y


def two_lengths(s: Tensor["M", ts.f32], x: Tensor["N", ts.f32], t: Tensor["M", ts.f32], y: Tensor["N", ts.f32]):
    i = ts.tile.linear_id()
    t[i] = s[i] * 2
    y[i] = x[i] * 3


def rows_of_two_lengths(
    s: Tensor["M", 4, ts.f32], x: Tensor["N", ts.f32], t: Tensor["M", ts.f32], y: Tensor["N", ts.f32]
):
    p = ts.tile.program_id()
    t[p] = ts.tile.sum(s[p, :])
    y[p] = x[p] * 3


def sum_of_two_lengths(s: Tensor["M", ts.f32], x: Tensor["N", ts.f32]) -> Tensor[1, ts.f32]:
    i = ts.tile.linear_id()
    return ts.tile.reduce_across(ts.tile.sum(s[i], keepdim=True) + ts.tile.sum(x[i], keepdim=True))


@TARGETS
@pytest.mark.parametrize(("m", "n"), [(5, 19), (19, 5), (1, 6)])
def test_programs_go_on_to_the_end_of_the_longest(m: int, n: int, target: str) -> None:
    s, x = np.arange(m, dtype=np.float32), np.arange(n, dtype=np.float32)
    t, y = np.zeros_like(s), np.zeros_like(x)
    run(two_lengths, s, x, t, y, target=target, BLOCK=4)
    np.testing.assert_array_equal(np.concatenate([t, y]), np.concatenate([s * 2, x * 3]))
    run(rows_of_two_lengths, np.ones((m, 4), np.float32), x * 2, t, y, target=target, debug=False)
    np.testing.assert_array_equal(np.concatenate([t, y]), np.concatenate([s * 0 + 4, x * 6]))
    assert run(sum_of_two_lengths, s, x, target=target, BLOCK=4) == s.sum() + x.sum()


def beside_the_diagonal(x: Tensor["M", ts.f32], y: Tensor["M", "N", ts.f32]):
    p = ts.tile.program_id()
    y[p, p * 4 - 1] = x[p]
    y[p, ts.tile.num_programs() % 2] = 9


@TARGETS
def test_the_first_axis_that_a_number_indexes_says_how_many_programs_there_are(target: str) -> None:
    x, y = np.ones(2, np.float32), np.zeros((2, 30), np.float32)
    run(beside_the_diagonal, x, y, target=target, debug=False)
    assert y[1, 3] == 1 and y.sum() == 1 + 2 * 9 and y[0, 0] == y[1, 0] == 9


def in_pairs(x: Tensor["2*N", ts.f32]) -> Tensor["N", ts.f32]:
    i = ts.tile.linear_id()
    return x[2 * i] + x[2 * i + 1]


def unmeasured(x: Tensor["2*N", ts.f32], out: Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    out[0] = ts.tile.reduce_across(ts.tile.sum(x[2 * i]))


@TARGETS
def test_lanes_of_a_returned_tile_run_through_the_result(target: str) -> None:
    x = normal(18)
    np.testing.assert_array_equal(run(in_pairs, x, target=target, BLOCK=4), x[::2] + x[1::2])
    (error,) = (d for d in check(unmeasured, x, np.zeros(1, np.float32)).diagnostics if d.severity == "error")
    assert "index a tensor with it, or compare it, as in `if i < n:`" in error.message


def every_other(x: Tensor["M", "2*D", ts.f32]) -> Tensor["M", "D", ts.f32]:
    return x[tile_m : tile_m + 4, :][:, ::2]


def reversed_rows(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    return ts.tile.flip(x[tile_m : tile_m + 4, :], 1)


def each_twice(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "2*N", ts.f32]:
    return ts.tile.repeat(x[tile_m : tile_m + 4, :], 2, axis=1)


def upper_half(x: Tensor["M", "2*D", ts.f32]) -> Tensor["M", "D", ts.f32]:
    return x[tile_m : tile_m + 4, :][:, D:]


def lower_half(x: Tensor["M", "2*D", ts.f32]) -> Tensor["M", "D", ts.f32]:
    return x[tile_m : tile_m + 4, :][:, 0:D]


@TARGETS
def test_moved_elements_of_a_whole_axis_have_its_name(target: str) -> None:
    x = normal(9, 6)
    moved = ((every_other, x[:, ::2]), (reversed_rows, x[:, ::-1]), (each_twice, np.repeat(x, 2, 1)))
    for kernel, wanted in (*moved, (upper_half, x[:, 3:]), (lower_half, x[:, :3])):
        assert not codes(kernel), kernel
        np.testing.assert_array_equal(run(kernel, x, target=target), wanted)


def later_parts(x: Tensor["T", "3*D", ts.f32]) -> tuple[Tensor["T", "D", ts.f32], Tensor["T", "D", ts.f32]]:
    return x[:, 2 * D :] * x[:, 0:D], x[:, D : 2 * D]


def later_rows(x: Tensor["3*S", "D", ts.f32]) -> Tensor["S", "D", ts.f32]:
    return x[S : 2 * S, tile_d : tile_d + 4]


@TARGETS
def test_a_part_at_a_fixed_place_is_all_of_a_result(target: str) -> None:
    x = normal(5, 9)
    product, middle = run(later_parts, x, target=target)
    np.testing.assert_array_equal(product, x[:, 6:] * x[:, :3])
    np.testing.assert_array_equal(middle, x[:, 3:6])
    x = normal(9, 7)
    np.testing.assert_array_equal(run(later_rows, x, target=target), x[3:6])


@TARGETS
def test_a_result_has_the_dims_that_its_annotation_names(target: str) -> None:
    assert codes(twice, normal(3, 4)) == codes(turned, normal(3, 4)) == ["TS403"]
    for kernel, shape in ((gated, (2, 3, 14)), (gated_rows, (9, 14)), (gated_blocks, (9, 14)), (gated_steps, (9, 14))):
        x = normal(*shape)
        wanted = x[..., :7] / (1 + np.exp(-x[..., :7])) * x[..., 7:]
        np.testing.assert_allclose(run(kernel, x, target=target), wanted, rtol=1e-5)


def by_the_first(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], ends: Tensor[2, ts.f32]):
    p = ts.tile.program_id()
    if p == 0:
        ends[0] = x[p]
    if n - 1 == p and n > 2:
        ends[1] = x[p]
    y[p] = x[p] * 2


def by_the_others(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], ends: Tensor[2, ts.f32]):
    p = ts.tile.program_id()
    if p == 0:
        y[p] = 0
    else:
        ends[0] = x[p]


def by_pairs(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], ends: Tensor[2, ts.f32]):
    p = ts.tile.program_id()
    if p // 2 == 0:
        ends[0] = x[p]
    y[p] = x[p]


@TARGETS
def test_one_program_may_store_to_a_fixed_place(target: str) -> None:
    x, y, ends = normal(7), np.zeros(7, np.float32), np.zeros(2, np.float32)
    run(by_the_first, x, y, ends, target=target)
    assert np.array_equal(ends, x[[0, -1]]) and np.array_equal(y, x * 2)
    for kernel in (by_the_others, by_pairs):
        (error,) = check(kernel, x, y, ends).diagnostics
        assert error.code == "TS406" and "programs along p" in error.message and "if p == 0:" in error.message


def sums_between(x: Tensor["m", ts.f32], starts: Tensor["n+1", ts.int32], place: Tensor["n", ts.int32]):
    p = ts.tile.program_id()
    for i in ts.tile.range_k(starts[p], starts[p + 1]):
        x[i] = place[p]


@TARGETS
def test_programs_are_as_many_as_all_that_they_read_has(target: str) -> None:
    x = np.zeros(6, np.float32)
    run(sums_between, x, np.array([0, 2, 6], np.int32), np.array([5, 7], np.int32), target=target)  # in debug mode
    assert x.tolist() == [5, 5, 7, 7, 7, 7]


def without_a_length(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    head = ts.tile.program_id(1)
    y[ts.tile.program_id(0)] = x[ts.tile.program_id(0)]


def test_a_program_id_without_a_length_is_named() -> None:
    (error,) = check(without_a_length, normal(4), normal(4)).diagnostics
    assert "how many programs head counts" in error.message and error.span.col == 12


def new_axes(x: Tensor["B", "S", "D", ts.f32], y: Tensor["B", "S", "D", ts.f32]):
    for i in ts.tile.range(0, S, 4):
        y[i : i + 4] = x[i : i + 4, None][:, 0] + x[i : i + 4, :, None][:, :, 0]


def all_pairs(x: Tensor["n", ts.f32], y: Tensor["n", "n", ts.f32]):
    y[:, :] = x[:, None] - x[None, :] + x[None][0][None, :]


def beside_an_index_tile(x: Tensor["M", "N", ts.f32], y: Tensor["M", 1, "k", ts.f32], at: Tensor["k", ts.int32]):
    i = ts.tile.program_id()
    y[i, :, :] = x[i, None, at[:]]


@TARGETS
def test_none_in_a_load_is_an_axis_of_one_element(target: str) -> None:
    x, at = normal(2, 6, 5), np.array([4, 0, 0], np.int32)
    for kernel, args, wanted in (
        (new_axes, (x, np.zeros_like(x)), 2 * x),
        (all_pairs, (x[0, 0], np.zeros((5, 5), np.float32)), x[0, 0][:, None]),
        (beside_an_index_tile, (x[0], np.zeros((6, 1, 3), np.float32), at), x[0][:, None, at]),
    ):
        run(kernel, *map(np.ascontiguousarray, args[:1]), *args[1:], target=target)
        np.testing.assert_allclose(args[1], np.broadcast_to(wanted, args[1].shape), rtol=1e-5, atol=1e-6)


def of_any_name(x, m):
    for batch in ts.tile.range(0, x.shape[0], 4):
        out = x[batch : batch + 4, :] * m[batch : batch + 4][:, None]
    return out


@TARGETS
def test_a_loop_may_be_called_batch(target: str) -> None:
    x, m = normal(6, 5), normal(6)
    np.testing.assert_allclose(run(of_any_name, x, m, target=target), x * m[:, None], rtol=1e-6)


def beside_lanes(x: Tensor["M", 4, ts.f32], y: Tensor["M", ts.f32], n: int):
    p = ts.tile.program_id()
    y[p] = ts.tile.sum(ts.tile.where(p * 4 + ts.tile.arange(4) < n, x[p, :], 0.0))


def beside_a_part(x: Tensor["M", "N", ts.f32], y: Tensor["M", ts.f32], n: int):
    p = ts.tile.program_id()
    y[p] = ts.tile.sum(ts.tile.where(p * 4 + ts.tile.arange(4) < n, x[p, 0:4], 0.0))


def beside_a_literal(x: Tensor[4, "M", ts.f32], y: Tensor["M", ts.f32], w: Tensor[4, ts.f32]):
    p = ts.tile.program_id()
    y[p] = ts.tile.sum(x[:, p] * w[:])


def as_advised(x: Tensor["M", 4, ts.f32], y: Tensor["M", ts.f32], n: int):
    p = ts.tile.program_id()
    y[p] = ts.tile.sum(ts.tile.where((p * 4 + ts.tile.arange(4) < n).reshape(4), x[p, :], 0.0))


@TARGETS
def test_axes_without_a_name_are_not_guessed_to_be_others(target: str) -> None:
    x, y = normal(3, 4), np.zeros(3, np.float32)
    assert codes(beside_lanes, x, y, 6) == codes(beside_a_part, x, y, 6) == ["TS418"]
    assert codes(beside_a_literal, normal(4, 3), y, normal(4)) == ["TS418"]
    run(as_advised, x, y, 6, target=target)
    np.testing.assert_allclose(y, np.where(np.arange(12).reshape(3, 4) < 6, x, 0).sum(1), rtol=1e-6)


def neighbours_of_lanes(d_y: Tensor["N", ts.f32], d_x: Tensor["N", ts.f32]):
    i = ts.tile.linear_id()
    d_x[i - 1] = d_y[i]
    d_x[i] = d_y[i] * 2


def neighbours_of_blocks(d_y: Tensor["N", ts.f32], d_x: Tensor["N", ts.f32]):
    d_x[tile_n : tile_n + 8] = d_y[tile_n : tile_n + 8]
    d_x[tile_n + 1 : tile_n + 9] += d_y[tile_n : tile_n + 8]


def neighbours_in_rows(d_y: Tensor["M", "N", ts.f32], d_x: Tensor["M", "N", ts.f32]):
    i = ts.tile.program_id()
    d_x[i, :] = d_y[i, :]
    d_x[i + 1, :] = d_y[i, :] * 2


def other_halves(d_y: Tensor["N", ts.f32], d_x: Tensor["2*N", ts.f32]):
    d_x[2 * tile_n : 2 * tile_n + 8] = d_y[tile_n : tile_n + 8]
    d_x[2 * tile_n + 8 : 2 * tile_n + 16] = d_y[tile_n : tile_n + 8]


def in_order(d_y: Tensor["N", ts.f32], d_x: Tensor["N", ts.f32]):
    for i in ts.tile.range(0, N, 8):
        d_x[i : i + 8] = d_y[i : i + 8]
        d_x[i + 1 : i + 9] = d_y[i : i + 8] * 2


@pytest.mark.parametrize("kernel", [neighbours_of_lanes, neighbours_of_blocks, neighbours_in_rows])
def test_two_stores_of_which_programs_overwrite_each_other_are_refused(kernel: Any) -> None:
    """As one writes the backward of a stencil at first."""
    (error,) = [d for d in check(kernel).diagnostics if d.severity == "error"]
    first = kernel.__code__.co_firstlineno
    assert error.code == "TS406" and error.span.line == first + (2 if kernel is neighbours_of_blocks else 3)
    assert f"others store to in line {error.span.line - 1}" in error.message


@TARGETS
def test_blocks_that_do_not_meet_are_stored_and_ranges_that_meet_run_in_order(target: str) -> None:
    y, x = normal(24), np.zeros(48, np.float32)
    run(other_halves, y, x, target=target)
    np.testing.assert_array_equal(x.reshape(3, 2, 8), np.repeat(y.reshape(3, 1, 8), 2, 1))
    x = np.zeros(24, np.float32)
    run(in_order, y, x, target=target)
    wanted = np.zeros(25, np.float32)
    for i in range(0, 24, 8):
        wanted[i : i + 8] = y[i : i + 8]
        wanted[i + 1 : i + 9] = y[i : i + 8] * 2
    np.testing.assert_array_equal(x, wanted[:24])
