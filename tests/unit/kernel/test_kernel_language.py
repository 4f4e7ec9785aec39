"""What kernels mean: lanes and masks, coordinates, grid axes, serial loops, batch axes, broadcasting by identity."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.tile.program import Program
from tests.kernel_runner import check, program, run

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


# lanes and masks


def shifted(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n - 1:
        y[i] = x[i + 1] - x[i]
    else:
        y[i] = 0.0


@pytest.mark.parametrize("n", [1, 2, 7, 64, 65, 200])
def test_displaced_lanes_and_else(n: int) -> None:
    x, y = normal(n), normal(n)
    run(shifted, x, y, BLOCK=64)
    np.testing.assert_array_equal(y, np.append(np.diff(x), 0).astype(np.float32))


def nested_masks(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        v = x[i]
        if v > 0:
            v = v * 2
            if v > 1:
                v = 1.0
        y[i] = v


def test_nested_masks_merge_what_they_assign() -> None:
    x, y = normal(100), normal(100)
    run(nested_masks, x, y, BLOCK=32)
    want = np.where(x > 0, np.minimum(x * 2, 1), x)
    np.testing.assert_array_equal(y, want)


def sums_under_a_mask(x: ts.Tensor["n", ts.f32], inside: ts.Tensor["n", ts.f32], before: ts.Tensor["n", ts.f32]):
    for t in ts.tile.range(0, n, 8):
        every = ts.tile.sum(x[t : t + 8])
        if x[t : t + 8] > 0:
            inside[t : t + 8] = ts.tile.sum(x[t : t + 8])
            before[t : t + 8] = every


def test_a_sum_under_a_mask_is_of_the_lanes_where_it_holds() -> None:
    x, inside, before = normal(24), np.zeros(24, np.float32), np.zeros(24, np.float32)
    run(sums_under_a_mask, x, inside, before)
    blocks = x.reshape(3, 8)
    some, every = np.maximum(blocks, 0).sum(1, keepdims=True), blocks.sum(1, keepdims=True)
    np.testing.assert_allclose(inside, np.where(blocks > 0, some, 0).ravel(), rtol=1e-5)
    np.testing.assert_allclose(before, np.where(blocks > 0, every, 0).ravel(), rtol=1e-5)


def early_return(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i >= n:
        return
    y[i] = x[i] + 1


def test_guard_in_cuda_style() -> None:
    x, y = normal(70), normal(70)
    run(early_return, x, y, BLOCK=32)
    np.testing.assert_array_equal(y, x + 1)


def gathered(table: ts.Tensor["V", "D", ts.f32], idx: ts.Tensor["n", ts.int32], out: ts.Tensor["n", "D", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        out[i, :] = table[idx[i], :]


def test_gather_of_rows() -> None:
    table, out = normal(11, 6), normal(45, 6)
    idx = rng.integers(0, 11, 45).astype(np.int32)
    run(gathered, table, idx, out, BLOCK=16)
    np.testing.assert_array_equal(out, table[idx])


def transpose_elements(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", "M", ts.f32]):
    i = ts.tile.linear_id()
    if i < M * N:
        y[i % N, i // N] = x[i // N, i % N]


def test_gather_and_scatter_by_arithmetic_on_lanes() -> None:
    x = normal(7, 9)
    y = np.empty((9, 7), np.float32)
    run(transpose_elements, x, y, BLOCK=16)
    np.testing.assert_array_equal(y, x.T)


def batched_lanes(x: ts.Tensor["B", "n", ts.f32], y: ts.Tensor["B", "n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i] * 2


def test_lanes_run_along_the_last_axis_and_leading_ones_are_the_grid() -> None:
    x, y = normal(3, 50), normal(3, 50)
    run(batched_lanes, x, y, BLOCK=16)
    np.testing.assert_array_equal(y, x * 2)


def swap_in_place(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    old = x[i]
    x[i] = y[i]
    y[i] = old


def test_a_load_holds_what_was_there_when_it_was_written_down() -> None:
    x, y = normal(20), normal(20)
    a, b = x.copy(), y.copy()
    run(swap_in_place, x, y, BLOCK=16)
    np.testing.assert_array_equal((x, y), (b, a))


# program ids


def triton_style(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    rows = ts.tile.program_id(0) * 8 + ts.tile.arange(0, 8)
    cols = ts.tile.program_id(1) * 16 + ts.tile.arange(0, 16)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    value = ts.tile.load(x[rows[:, None], cols[None, :]], mask=mask, other=0.0)
    ts.tile.store(y[rows[:, None], cols[None, :]], ts.tile.exp(value), mask=mask)


@pytest.mark.parametrize("shape", [(8, 16), (9, 17), (30, 50), (1, 1)])
def test_program_ids_and_index_tiles(shape: tuple[int, int]) -> None:
    x, y = normal(*shape), normal(*shape)
    p = program(triton_style, x, y)
    assert p.launches[0].kernel.attrs["grid"] == (-(-shape[0] // 8), -(-shape[1] // 16))
    run(triton_style, x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def row_per_program(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    r = ts.tile.program_id()
    y[r] = ts.tile.sum(x[r, :])


def test_a_program_per_row() -> None:
    x, y = normal(5, 33), normal(5)
    run(row_per_program, x, y)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5)


def strided_programs(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    p = ts.tile.program_id()
    y[p * 4 : p * 4 + 4] = x[p * 4 : p * 4 + 4] + ts.tile.num_programs()


def test_num_programs() -> None:
    x, y = normal(10), normal(10)
    run(strided_programs, x, y)
    np.testing.assert_array_equal(y, x + 3)


# implicit coordinates


def square(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((16, 16))
    acc += ts.tile.mma(A[tile_m : tile_m + 16, tile_k : tile_k + 8], B[tile_k : tile_k + 8, tile_n : tile_n + 16])
    return ts.tile.maximum(acc, 0)


@pytest.mark.parametrize("shape", [(16, 8, 16), (17, 9, 15), (40, 40, 40), (3, 1, 2)])
def test_serial_coordinate_accumulates_and_the_rest_follows_it(shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    a, b = normal(M, K), normal(K, N)
    np.testing.assert_allclose(run(square, a, b), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def epilogue(
    A: ts.Tensor["M", "K", ts.f32],
    B: ts.Tensor["K", "N", ts.f32],
    bias: ts.Tensor["N", ts.f32],
    C: ts.Tensor["M", "N", ts.f32],
):
    a = A[tile_m : tile_m + 16, tile_k : tile_k + 8]
    acc = ts.tile.zeros((16, 16))
    b = B[tile_k : tile_k + 8, tile_n : tile_n + 16]
    acc += ts.tile.mma(a, b)
    C[tile_m : tile_m + 16, tile_n : tile_n + 16] = ts.tile.gelu(acc + bias[tile_n : tile_n + 16])


def test_initial_values_before_and_epilogue_after_the_serial_loop() -> None:
    a, b, bias, c = normal(20, 30), normal(30, 25), normal(25), np.empty((20, 25), np.float32)
    run(epilogue, a, b, bias, c)
    x = (a @ b + bias).astype(np.float64)
    want = 0.5 * x * (1 + np.vectorize(__import__("math").erf)(x / np.sqrt(2)))
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-5)


def accumulate_bf16(A: ts.Tensor["M", "K", ts.bf16], C: ts.Tensor["M", ts.bf16]):
    C[tile_m : tile_m + 4] += ts.tile.row_sum(A[tile_m : tile_m + 4, tile_k : tile_k + 2])


def test_accumulation_is_in_f32_and_rounded_once() -> None:
    import ml_dtypes

    a = np.full((4, 1024), 1.0, ml_dtypes.bfloat16)
    c = np.zeros(4, ml_dtypes.bfloat16)
    run(accumulate_bf16, a, c)
    assert (c.astype(np.float32) == 1024).all()  # adding 1 to 256 in bf16 would stay 256


# ranges


def rows_by_range(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    for i in ts.tile.range(0, M, 8):
        v = x[i : i + 8]
        y[i : i + 8] = v - ts.tile.row_max(v)


def test_outermost_range_is_a_grid_axis() -> None:
    x, y = normal(20, 8), normal(20, 8)  # as many columns as rows in a block
    assert program(rows_by_range, x, y).launches[0].kernel.attrs["grid"] == (3,)
    run(rows_by_range, x, y)
    np.testing.assert_array_equal(y, x - x.max(1, keepdims=True))


def running_sum(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    carry = ts.tile.zeros((N,))
    for i in ts.tile.range(0, M, 4):
        total = ts.tile.cumsum(x[i : i + 4], axis=0) + carry
        y[i : i + 4] = total
        carry = carry + ts.tile.col_sum(x[i : i + 4])


def test_a_range_that_carries_and_stores_runs_in_order() -> None:
    x, y = normal(10, 5), normal(10, 5)
    assert program(running_sum, x, y).launches[0].kernel.attrs["grid"] == ()
    run(running_sum, x, y)
    np.testing.assert_allclose(y, np.cumsum(x, 0), rtol=1e-5, atol=1e-5)


def explicit_k(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((16, 16))
    for k in ts.tile.range(0, K, 8):
        acc += ts.tile.mma(A[tile_m : tile_m + 16, k : k + 8], B[k : k + 8, tile_n : tile_n + 16])
    C[tile_m : tile_m + 16, tile_n : tile_n + 16] = acc


def test_an_outermost_range_that_no_output_depends_on_is_serial() -> None:
    a, b, c = normal(20, 30), normal(30, 25), np.empty((20, 25), np.float32)
    assert program(explicit_k, a, b, c).launches[0].kernel.attrs["grid"] == (2, 2)
    run(explicit_k, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def three_passes(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    total = ts.tile.zeros((4,))
    for k in ts.tile.range(0, N, 8):
        total += ts.tile.row_sum(x[tile_m : tile_m + 4, k : k + 8])
    mean = total / N
    for k in ts.tile.range(0, N, 8):
        y[tile_m : tile_m + 4, k : k + 8] = x[tile_m : tile_m + 4, k : k + 8] - mean


def test_several_ranges_are_serial() -> None:
    x, y = normal(10, 21), normal(10, 21)
    run(three_passes, x, y)
    np.testing.assert_allclose(y, x - x.mean(1, keepdims=True), atol=1e-5)


def one_name_in_two_loops(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    total = ts.tile.zeros((4,))
    for k in ts.tile.range(0, N, 8):
        block = x[tile_m : tile_m + 4, k : k + 8]
        total += ts.tile.row_sum(block)
    for k in ts.tile.range(0, N, 8):
        block = x[tile_m : tile_m + 4, k : k + 8]
        y[tile_m : tile_m + 4, k : k + 8] = block / total


def test_a_name_of_one_loops_body_is_not_carried_into_the_next() -> None:
    x, y = normal(10, 21), normal(10, 21)
    for target in ("reference", "cpu"):
        run(one_name_in_two_loops, x, y, target=target)
        np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-4)


def unrolled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i]
    for _ in ts.tile.static_range(3):
        v = v + 1
    y[i] = v


def test_static_range_is_unrolled() -> None:
    x, y = normal(9), normal(9)
    p = program(unrolled, x, y)
    assert not any(op.name == "tile.for" for op in p.launches[0].kernel.walk())
    run(unrolled, x, y)
    np.testing.assert_array_equal(y, x + 1 + 1 + 1)


def by_builtins(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i]
    if all([v > -1, v < 1]):
        y[i] = max(v, -v, 0.5) + min([v, 0]) + sum([v, 1, i], 2.0) + sum(v * k for k in range(3))


def test_builtins_of_python_combine_items() -> None:
    x, y = normal(9), np.zeros(9, np.float32)
    run(by_builtins, x, y)
    wanted = np.maximum(abs(x), 0.5) + np.minimum(x, 0) + x + np.arange(9) + 3 + 3 * x
    np.testing.assert_allclose(y, np.where(abs(x) < 1, wanted, 0), rtol=1e-6)


def triangle(x: ts.Tensor["N", "N", ts.f32], y: ts.Tensor["N", ts.f32]):
    for i in ts.tile.range(0, N, 4):
        total = ts.tile.zeros((4,))
        for j in ts.tile.range(0, i + 4, 4):
            block = x[i : i + 4, j : j + 4]
            total += ts.tile.row_sum(ts.tile.causal_mask(block, i, j, 0.0))
        y[i : i + 4] = total


@pytest.mark.parametrize("n", [4, 8, 11])
def test_bounds_that_depend_on_an_outer_index(n: int) -> None:
    x, y = normal(n, n), normal(n)
    run(triangle, x, y)
    np.testing.assert_allclose(y, np.tril(x).sum(1), rtol=1e-5, atol=1e-5)


# batch axes and whole parameters


def scale_rows(
    x: ts.Tensor["B", "H", "S", "D", ts.f32], w: ts.Tensor["H", "D", ts.f32]
) -> ts.Tensor["B", "H", "S", "D", ts.f32]:
    for s in ts.tile.range(0, S, 4):
        v = x[s : s + 4]
    return v * 2


def test_leading_dims_are_batch_axes() -> None:
    x = normal(2, 3, 5, 4)
    np.testing.assert_array_equal(run(scale_rows, x, normal(3, 4)), x * 2)


def norm(x: ts.Tile, g: ts.Tensor["D", ts.f32]) -> ts.Tile:
    mean = ts.tile.mean(x, axis=-1, keepdim=True)
    var = ts.tile.mean(ts.tile.square(x - mean), axis=-1, keepdim=True)
    return (x - mean) * ts.tile.rsqrt(var + 1e-5) * g


@pytest.mark.parametrize("shape", [(4, 16), (3, 5, 16), (16, 16), (1, 1)])
def test_whole_parameters_are_row_blocks(shape: tuple[int, ...]) -> None:
    x, g = normal(*shape), normal(shape[-1])
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(run(norm, x, g), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(norm, x, g, ROWS=3), want, rtol=1e-4, atol=1e-5)


def two_results(x: ts.Tensor["M", "N", ts.f32]) -> tuple[ts.Tensor["M", ts.f32], ts.Tensor["M", "N", ts.f32]]:
    m = ts.tile.row_max(x)
    return m, x - m


def test_several_results() -> None:
    x = normal(9, 9)
    m, d = run(two_results, x)
    np.testing.assert_array_equal(m, x.max(1))
    np.testing.assert_array_equal(d, x - x.max(1, keepdims=True))


# broadcasting by identity


def by_identity(x: ts.Tensor["M", "N", ts.f32], b: ts.Tensor["N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    v = x[tile_m : tile_m + 8, tile_n : tile_n + 8]
    bias = b[tile_n : tile_n + 8]
    y[tile_m : tile_m + 8, tile_n : tile_n + 8] = v * ts.tile.row_sum(v) + bias - ts.tile.col_max(v)


def test_vectors_find_their_axis_in_a_square_block() -> None:
    x, b, y = normal(8, 8), normal(8), normal(8, 8)
    run(by_identity, x, b, y)
    np.testing.assert_allclose(y, x * x.sum(1, keepdims=True) + b - x.max(0), rtol=1e-4, atol=1e-5)


def swapped_roles(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", "M", ts.f32]):
    v = x[tile_m : tile_m + 8, tile_n : tile_n + 8]
    y[tile_n : tile_n + 8, tile_m : tile_m + 8] = v.T * ts.tile.row_max(v)


def test_identity_survives_transposition() -> None:
    x, y = normal(8, 8), normal(8, 8)
    run(swapped_roles, x, y)
    np.testing.assert_array_equal(y, x.T * x.max(1))


# scalars, branches, dtypes


def uniform(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    v = x[i]
    if alpha > 0:
        v = v * alpha
    else:
        v = v - alpha
    y[i] = v


@pytest.mark.parametrize("alpha", [2.0, -3.0])
def test_branch_on_a_scalar(alpha: float) -> None:
    x, y = normal(9), normal(9)
    run(uniform, x, y, alpha)
    np.testing.assert_array_equal(y, x * np.float32(alpha) if alpha > 0 else x - np.float32(alpha))


def first_block(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 4):
        v = x[i : i + 4]
        if i == 0:
            v = v + 10
        y[i : i + 4] = v


def test_branch_on_a_coordinate() -> None:
    x, y = normal(9), normal(9)
    run(first_block, x, y)
    np.testing.assert_array_equal(y, x + np.where(np.arange(9) < 4, 10, 0).astype(np.float32))


def rounds(x: ts.Tensor["n", ts.bf16], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = (x[i] + 1) - ts.tile.cast(x[i] + 1, ts.bf16)


def test_arithmetic_on_bf16_is_f32_until_a_cast() -> None:
    import ml_dtypes

    x, y = np.array([2.0**-9, 1.0], ml_dtypes.bfloat16), np.zeros(2, np.float32)
    run(rounds, x, y)
    assert y[0] == np.float32(2.0**-9) and y[1] == 0


def debugging(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    assert n > 0
    ts.tile.debug_assert(x[i] < 100, "too large")
    y[i] = x[i]


def test_debug_assert() -> None:
    x, y = normal(5), normal(5)
    run(debugging, x, y, BLOCK=8)
    x[3] = 1000
    with pytest.raises(ts.DebugCheckError, match="too large"):
        run(debugging, x, y, BLOCK=8)


def test_types_of_expressions_are_recorded() -> None:
    analysis = check(by_identity)
    named = {e.name: e.text for e in analysis.expressions if e.kind == "assign"}
    assert named == {"v": "[8, 8] f32", "bias": "[8] f32"}
    assert analysis.params[2].writes and not analysis.params[0].writes


# what stands around kernels


WEIGHTS = np.arange(6, dtype=np.float32)
SCALE = 3


def helper(v, factor):
    return v * factor + WEIGHTS[tile_helper() : 6]


def tile_helper():
    return 0


def captures(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    return helper(x, SCALE)


def test_helpers_are_inlined_and_arrays_of_the_module_are_arguments() -> None:
    x = normal(4, 6)
    analysis = check(captures, x)
    assert [a is WEIGHTS for a in analysis.captures] == [True] and analysis.capture_names == ("WEIGHTS",)
    assert [p.name for p in analysis.params] == ["x", "WEIGHTS"]
    assert dict(analysis.dependencies).keys() >= {"SCALE"}


def newton(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i]
    r = v * 0 + 1
    while ts.tile.any(ts.tile.abs(r * r - v) > 1e-4):
        r = (r + v / r) * 0.5
    y[i] = r


def test_while_on_what_a_program_agrees_on() -> None:
    x, y = rng.random(30).astype(np.float32) + 0.5, normal(30)
    run(newton, x, y, BLOCK=16)
    np.testing.assert_allclose(y, np.sqrt(x), atol=1e-3)


def test_sizes_stay_open_or_are_fixed() -> None:
    from tessera.compiler.frontend.analyse import analyse
    from tessera.compiler.frontend.names.live import live_definition
    from tessera.compiler.pipeline import lower
    from tessera.compiler.targets import base

    def lowered(**dims: int) -> Program:
        return lower(analyse(live_definition(rows_by_range, "kernel"), dims=dims).unit(), base.get("reference")).program

    assert lowered(N=8).free == ("M",)
    assert str(lowered(N=8).launches[0].kernel.attrs["grid"][0]) == "(M+7)//8"  # type: ignore[index]
    fixed = lowered(N=8, M=20)
    assert fixed.free == () and fixed.launches[0].kernel.attrs["grid"] == (3,)
    assert fixed.buffers[0].shape == (20, 8) and fixed.launches[0].bytes == 2 * 20 * 8 * 4


def printing(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    print("x is", x[i])
    y[i] = x[i]


def test_print_shows_a_tile_once_per_program(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.arange(3, dtype=np.float32), normal(3)
    run(printing, x, y, BLOCK=2)
    assert capsys.readouterr().out.count("x is in program") == 2


def reductions(x: ts.Tensor["M", "N", ts.int32], y: ts.Tensor["M", ts.int64], z: ts.Tensor["M", ts.bool_]):
    v = x[tile_m : tile_m + 4]
    y[tile_m : tile_m + 4] = ts.tile.argmax(v, axis=1) + ts.tile.sum(v, axis=1)
    z[tile_m : tile_m + 4] = ts.tile.any(v > 5, axis=-1) & ~ts.tile.all(v > 5, axis=-1)


def test_integer_and_bool_reductions() -> None:
    x = rng.integers(-9, 9, (6, 5)).astype(np.int32)
    y, z = np.empty(6, np.int64), np.empty(6, np.bool_)
    run(reductions, x, y, z)
    np.testing.assert_array_equal(y, x.argmax(1) + x.sum(1))
    np.testing.assert_array_equal(z, (x > 5).any(1) & ~(x > 5).all(1))


def test_an_editor_sees_the_configuration_that_the_compiler_uses() -> None:
    from tessera.compiler.frontend.incremental import FileAnalysis

    text = """
import tessera as ts

@ts.kernel.autotune(space=dict(BLOCK_M=[16, 32], num_warps=[8, 4]), metric="throughput")
def tuned(x: ts.Tensor["M", ts.f32]):
    x[tile_m:tile_m + ts.tile.context().BLOCK_M] = 0.0

@ts.autotune.space(configs=[{"BM": 8}, {"BM": 4}])
@ts.kernel
def listed(x: ts.Tensor["M", ts.f32]):
    x[tile_m:tile_m + ts.tile.context().BM] = 0.0
"""
    file = FileAnalysis("tuned.py")
    file.update(text)
    first, second = (a.op for a in file.analyses)
    assert first is not None and second is not None
    assert str(first.attrs["grid"]) == "((M+15)//16,)" and first.attrs["num_warps"] == 8
    assert str(second.attrs["grid"]) == "((M+7)//8,)"


def smoothing(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n - 1):
        y[i : i + 2] += x[i : i + 2]


def test_a_range_whose_stores_overlap_runs_in_order() -> None:
    x, y = normal(9), np.zeros(9, np.float32)
    assert program(smoothing, x, y).launches[0].kernel.attrs["grid"] == ()
    run(smoothing, x, y)
    np.testing.assert_allclose(y, x * ([1] + [2] * 7 + [1]), rtol=1e-6)


def test_places_follow_a_kernel_that_moves() -> None:
    from tessera.compiler.frontend.incremental import FileAnalysis

    kernel = """
STEP = 8

@ts.kernel
def summed(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m + 8] += ts.tile.row_sum(x[tile_m:tile_m + 8, tile_k:tile_k + STEP] + oops)
"""
    file = FileAnalysis("moving.py")
    for inserted, step in ((0, "8"), (3, "8"), (1, "4")):
        file.update("import tessera as ts\n" + "\n" * inserted + kernel.replace("STEP = 8", f"STEP = {step}"))
        assert [d.span.line for d in file.diagnostics] == [7 + inserted]
