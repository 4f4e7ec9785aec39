"""Mistakes in kernels: each gets its code at the user's own line, and says what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.evaluate.machine import Layer
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.kernel.layer import KernelLayer
from tests.kernel_runner import check, program

# fmt: off
CASES: list[tuple[Callable[..., Any], str, str, str]] = []
"""(kernel, code, text that is underlined, part of the message)"""


def wrong(code: str, at: str, says: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((f, code, at, says))
        return f

    return add


@wrong("TS104", "ts.tile.row_maxx(v)", "did you mean 'row_max'")
def unknown_function(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8]
    y[tile_m:tile_m+8] = ts.tile.row_maxx(v)


@wrong("TS105", "ts.tile.zeros((4,), bf16=True)", "zeros(shape, dtype=f32)")
def unknown_argument(y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+4] = ts.tile.zeros((4,), bf16=True)


@wrong("TS105", "ts.tile.full((4,), {})", "a number is needed here, not a dict")
def filled_with_a_dict(y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+4] = ts.tile.full((4,), {})


@wrong("TS406", "y[tile_h // 2, :]", "programs 0 and 1 along tile_h (H) store to the same elements of y")
def two_heads_to_a_row(x: ts.Tensor["H", "D", ts.f32], y: ts.Tensor["G", "D", ts.f32]):
    y[tile_h // 2, :] = x[tile_h, :]


@wrong("TS406", "y[tile_h % 8, :]", "programs 0 and 8 along tile_h (H) store to the same elements of y")
def heads_round_and_round(x: ts.Tensor["H", "D", ts.f32], y: ts.Tensor[8, "D", ts.f32]):
    y[tile_h % 8, :] = x[tile_h, :]


@wrong("TS406", "y[tile_h // 2 : tile_h // 2 + 8]", "programs 0 and 1 along tile_h (H) store to the same elements of y")
def blocks_that_move_half_their_width(x: ts.Tensor["H", ts.f32], y: ts.Tensor["G", ts.f32]):
    y[tile_h // 2 : tile_h // 2 + 8] = x[tile_h : tile_h + 8]


@wrong("TS105", "a, b", "2 values are expected here, 8 are given")
def a_tile_in_two(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    a, b = x[tile_m:tile_m+8]
    y[tile_m:tile_m+8] = a + b


@wrong("TS105", "ts.tile.program_id()", "the index program_id(0) cannot be iterated")
def an_index_item_by_item(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    for p in ts.tile.program_id():
        y[p] = x[p]


@wrong("TS105", "M", "the size M cannot be iterated; did you mean range(M)?")
def a_size_item_by_item(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in M:
        y[i] = x[i]


@wrong("TS102", "x[tile_m:tile_m+8] > 0 and None", "`and` of elements gives a bool, and never None")
def nothing_behind_elements(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = x[tile_m:tile_m+8] > 0 and None


@wrong("TS105", "sum(x[tile_m:tile_m+8], 1)", "ts.tile.sum(x, axis=...)")
def an_axis_for_a_builtin(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = sum(x[tile_m:tile_m+8], 1)


@wrong("TS301", "ts.tile.store(y, i, x[i])", "a mask is of bools, as comparisons give, not of f32")
def a_value_for_a_mask(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    i = ts.tile.linear_id()
    ts.tile.store(y, i, x[i])


@wrong("TS105", "p, q", "call what returns nothing on a line of its own")
def grid_unpacked(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    p, q = ts.tile.grid(4, 4)
    y[p, q] = x[p, q]


@wrong("TS104", "ctx.BLOK_M", "BLOCK_M")
def unknown_setting(y: ts.Tensor["M", ts.f32]):
    ctx = ts.tile.context()
    y[tile_m:tile_m+4] = ctx.BLOK_M


@wrong("TS102", "w[i] * 2", "return ts.tile.where(condition, a, b)")
def tile_returned_by_some_lanes(w: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i >= 5:
        return
    return w[i] * 2


@wrong("TS102", "if i >= 5", "return what was stored to at the kernel's end")
def parameter_returned_by_some_lanes(w: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = w[i]
    if i >= 5:
        return y


@wrong("TS402", "a * c", "assert R % 2 == 0 before, and they are equal")
def halves_that_may_differ(x: ts.Tensor["M", "R", ts.f32], y: ts.Tensor["M", "R", ts.f32]):
    for t in ts.tile.range(0, M):
        a, c = x[t, R//2:R], x[t, 0:R//2]
        y[t, 0:R//2] = a * c


@wrong("TS401", "ts.softmax(v)", "whole tensors")
def graph_form(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    v = x[tile_m:tile_m+8]
    y[tile_m:tile_m+8] = ts.softmax(v)


@wrong("TS401", "ts.exp(v)", "use ts.tile.exp")
def graph_function_with_a_tile_twin(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8]
    y[tile_m:tile_m+8] = ts.exp(v)


@wrong("TS402", "ts.tile.mma(a, b)", "8 is not 16; did you mean the transpose of the second one (.T)?")
def mma_shapes(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["N", "K", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    a, b = A[tile_m:tile_m+4, 0:8], B[tile_n:tile_n+16, 0:8]
    C[tile_m:tile_m+4, tile_n:tile_n+16] = ts.tile.mma(a, b)


@wrong("TS301", "ts.tile.mma(a, a.T, accumulator=ts.bf16)", "at least f32")
def mma_accumulator(A: ts.Tensor["M", "M", ts.bf16], C: ts.Tensor["M", "M", ts.f32]):
    a = A[tile_m:tile_m+4, 0:8]
    C[tile_m:tile_m+4, 0:4] = ts.tile.mma(a, a.T, accumulator=ts.bf16)


@wrong("TS418", "v + w", "either axis")
def ambiguous_vector(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    v = x[tile_m:tile_m+8, tile_n:tile_n+8]
    w = ts.tile.full((8,), 1.0)
    y[tile_m:tile_m+8, tile_n:tile_n+8] = v + w


@wrong("TS418", "v + w", "[:, None] behind it")
def wrong_length(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    v = x[tile_m:tile_m+8, tile_n:tile_n+4]
    w = ts.tile.full((8,), 1.0)
    y[tile_m:tile_m+8, tile_n:tile_n+4] = v + w


@wrong("TS105", "math.exp(x[i])", "math.exp cannot be called with a block [1024] of x; use ts.tile.exp")
def function_of_math(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = math.exp(x[i])


@wrong("TS402", "x[tile_m:tile_m+8, 0:N:2]", "take a part of the tile: x[...][:, ::2]")
def every_other_column(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = ts.tile.row_sum(x[tile_m:tile_m+8, 0:N:2])


@wrong("TS402", "x[v[0:4], tile_m:tile_m+8, v[4:8]]", "(start + ts.tile.arange(16))[:, None], columns[None, :]")
def slice_between(x: ts.Tensor["N", "M", "N", ts.f32], v: ts.Tensor["K", ts.int32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = ts.tile.sum(x[v[0:4], tile_m:tile_m+8, v[4:8]], axis=0)


@wrong("TS418", "x[tile_m:tile_m+4, tile_n:tile_n+4] + v", "the vector [4 along (t)%3] runs along (t)%3")
def remainders_in_messages(x: ts.Tensor["M", "N", ts.f32], w: ts.Tensor["K", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    for t in ts.tile.range(0, K):
        v = w[t % 3 : t % 3 + 4]
        y[tile_m:tile_m+4, tile_n:tile_n+4] = x[tile_m:tile_m+4, tile_n:tile_n+4] + v


@wrong("TS402", "y[tile_m:tile_m+8]", "vectors along two axes make a matrix")
def rows_plus_columns(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8, 0:8]
    y[tile_m:tile_m+8] = ts.tile.row_sum(v) + ts.tile.col_sum(v)


@wrong("TS403", "tile_q", "bound: M")
def coordinate_without_a_dim(x: ts.Tensor["M", ts.f32]):
    x[tile_q:tile_q+8] = 0.0


@wrong("TS403", "C[tile_m:tile_m+8, tile_n:tile_n+8] = ts.tile.mma(a, b)", "accumulate with +=")
def overwritten(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    a, b = A[tile_m:tile_m+8, tile_k:tile_k+8], B[tile_k:tile_k+8, tile_n:tile_n+8]
    C[tile_m:tile_m+8, tile_n:tile_n+8] = ts.tile.mma(a, b)


@wrong("TS403", "ts.tile.zeros((8,))", "Store it into a parameter")
def result_without_a_place(x: ts.Tensor["M", ts.f32]) -> ts.Tensor["M", ts.f32]:
    return ts.tile.zeros((8,))


@wrong("TS403", "ts.tile.sum(x, axis=0)", "divided among programs")
def reduction_over_programs(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["N", ts.f32]:
    return ts.tile.sum(x, axis=0)


@wrong("TS404", "x[i:2*i]", "width must be known")
def slice_of_unknown_width(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 8):
        y[i:i+8] = ts.tile.sum(x[i:2*i])


@wrong("TS404", "ts.tile.alloc_shared((n, 8))", "known at compile time")
def extent_from_a_scalar(x: ts.Tensor["M", ts.f32], n: ts.int32):
    s = ts.tile.alloc_shared((n, 8))
    x[tile_m:tile_m+8] = 0.0


@wrong("TS406", "stores_nothing", "stores to nothing")
def stores_nothing(x: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8]


@wrong("TS406", "store_to_a_tile", "v is a tile, and what is stored to a part of it changes no tensor")
def store_to_a_tile(x: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8] + 1
    v[0:4] = 1.0


@wrong("TS406", "s[tile_m:tile_m+8]", "programs along tile_n (N)")
def race(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32], s: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8, tile_n:tile_n+8] = 0.0
    s[tile_m:tile_m+8] = ts.tile.row_sum(x[tile_m:tile_m+8, tile_n:tile_n+8])


@wrong("TS406", "y[p*4:p*4+8]", "overlap")
def overlapping_blocks(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    p = ts.tile.program_id()
    y[p*4:p*4+8] = x[p*4:p*4+8]


@wrong("TS407", "ts.tile.mma(s, s)", "never writes to it")
def shared_never_written(y: ts.Tensor["M", "N", ts.f32]):
    s = ts.tile.alloc_shared((8, 8), ts.f32)
    y[tile_m:tile_m+8, tile_n:tile_n+8] = ts.tile.mma(s, s)


@wrong("TS402", "ts.tile.cp_async(s, x[tile_m:tile_m+8])", "[8] does not fit the shared tile [4]")
def copy_of_another_shape(x: ts.Tensor["M", ts.f32]):
    s = ts.tile.alloc_shared((4,), ts.f32)
    ts.tile.cp_async(s, x[tile_m:tile_m+8])
    x[tile_m:tile_m+8] = 0.0


@wrong("TS303", "k[tile_m:tile_m+8]", "without an explicit cast")
def float_into_integers(x: ts.Tensor["M", ts.f32], k: ts.Tensor["M", ts.int32]):
    k[tile_m:tile_m+8] = x[tile_m:tile_m+8]


@wrong("TS404", "ts.tile.linear_id()", "the configuration's BLOCK must be a positive integer, not True")
@ts.kernel(BLOCK=True)
def block_that_is_a_bool(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i]


@wrong("TS105", "ts.tile.debug_assert(x[0] > 0, M)", "the message of an assertion is a text, not")
def message_that_is_a_size(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    ts.tile.debug_assert(x[0] > 0, M)
    y[tile_m:tile_m+8] = x[tile_m:tile_m+8]


@wrong("TS302", "x[tile_m:tile_m+8] + 300", "300 does not fit int8")
def number_beyond_a_dtype(x: ts.Tensor["M", ts.int8], y: ts.Tensor["M", ts.int32]):
    y[tile_m:tile_m+8] = x[tile_m:tile_m+8] + 300


@wrong("TS302", "x[tile_m:tile_m+8] > -1", "-1 does not fit uint8")
def compared_with_less_than_a_dtype_holds(x: ts.Tensor["M", ts.uint8], y: ts.Tensor["M", ts.bool_]):
    y[tile_m:tile_m+8] = x[tile_m:tile_m+8] > -1


@wrong("TS302", "ts.tile.full((8,), 2.5, ts.int32)", "2.5 does not fit int32")
def filled_with_a_fraction(y: ts.Tensor["M", ts.int32]):
    y[tile_m:tile_m+8] = ts.tile.full((8,), 2.5, ts.int32)


@wrong("TS302", "x[p] + p", "uint64 and int64, which coordinates and sizes are, have no common dtype")
def coordinate_beside_64_bits_without_sign(x: ts.Tensor["M", ts.uint64], y: ts.Tensor["M", ts.uint64]):
    p = ts.tile.program_id()
    y[p] = x[p] + p


@wrong("TS302", "ts.tile.mma(x[tile_m:tile_m+8, 0:8], w[0:8, 0:8])", "no common dtype")
def two_formats(x: ts.Tensor["M", "K", ts.f16], w: ts.Tensor["K", "K", ts.bf16], y: ts.Tensor["M", "K", ts.f32]):
    y[tile_m:tile_m+8, 0:8] = ts.tile.mma(x[tile_m:tile_m+8, 0:8], w[0:8, 0:8])


@wrong("TS403", "tile_m", "width that is known")
def coordinate_of_unknown_width(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m*2] = x[tile_m:tile_m*2]


@wrong("TS207", "x[tile_m:tile_m+8, 0]", "2 indices for x, which has the 1 axes [M]")
def too_many_indices(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = x[tile_m:tile_m+8, 0]


@wrong("TS204", "ts.tile.sum(x[tile_m:tile_m+8], axis=1)", "out of range")
def axis_out_of_range(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = ts.tile.sum(x[tile_m:tile_m+8], axis=1)


@wrong("TS102", "while v > 0", "never end")
def loop_over_lanes(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8] + 0
    while v > 0:
        w = v - 1
    y[tile_m:tile_m+8] = v


@wrong("TS102", "while ts.tile.any(v > 0)", "never end")
def endless(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    v = x[tile_m:tile_m+8] + 0
    while ts.tile.any(v > 0):
        w = v + 1
    y[tile_m:tile_m+8] = v


@wrong("TS403", "tile_m", "width that is known")
def coordinate_of_no_width(x: ts.Tensor["M", ts.f32]):
    x[tile_m:tile_m + 1.5] = 0.0


@wrong("TS212", "for k in ts.tile.range_k(0, N, 8)", "[8] f32 before the loop and [8, 8] f32")
def shape_grows_in_a_loop(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    total = ts.tile.zeros((8,))
    for k in ts.tile.range_k(0, N, 8):
        total = x[tile_m:tile_m+8, k:k+8] + 1
    y[tile_m:tile_m+8, 0:8] = total


@wrong("TS212", "for k in ts.tile.range_k(0, N, 8)", "add ts.tile.sum(ts.tile.where(mask, value, 0)) outside")
def one_number_under_a_mask(x: ts.Tensor["N", ts.f32], y: ts.Tensor["P", ts.f32]):
    total = ts.tile.zeros(())
    for k in ts.tile.range_k(0, N, 8):
        if x[k:k+8] > 0:
            total += ts.tile.sum(x[k:k+8])
    y[ts.tile.program_id()] = total


@wrong("TS212", "for k in ts.tile.range_k(0, N, 8)", "ts.tile.mma(a, b, acc) adds to acc in its dtype")
def sum_of_integers_is_wide(x: ts.Tensor["M", "N", ts.int8], y: ts.Tensor["M", "M", ts.int32]):
    acc = ts.tile.zeros((8, 8), ts.int32)
    for k in ts.tile.range_k(0, N, 8):
        acc += ts.tile.mma(x[0:8, k:k+8], x[0:8, k:k+8].T)
    y[0:8, 0:8] = acc


@wrong("TS212", "for k in ts.tile.range_k(0, N, 8)", "ts.cast(value, ts.int32) keeps it, in kernels ts.tile.cast")
def count_of_coordinates(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.int32]):
    count = ts.tile.zeros((8,), ts.int32)
    for k in ts.tile.range_k(0, N, 8):
        count += k
    y[tile_m:tile_m+8] = count


@wrong("TS212", "for k in ts.tile.range_k(0, 4)", "int32 before the loop and [8] int64")
def loops_over_lanes_behind_a_mistake(x: ts.Tensor["M", ts.int32], y: ts.Tensor["M", ts.int32]):
    a = b = x[tile_m:tile_m+8]
    for k in ts.tile.range_k(0, 4):
        b = b + k
    while a < 9:
        a = a + b
        while a < 3:
            a = a + b
    y[tile_m:tile_m+8] = a


@wrong("TS212", "for k in ts.tile.range_k(0, 4)", "int32 before the loop and [8] int64")
def choices_behind_a_mistake(x: ts.Tensor["M", ts.int32], y: ts.Tensor["M", ts.int32]):
    a = b = x[tile_m:tile_m+8]
    for k in ts.tile.range_k(0, 4):
        b = b + k
    y[tile_m:tile_m+8] = b if a > 3 else a


@wrong("TS108", "forever(x)", "itself")
def recursion(x: ts.Tensor["M", ts.f32]):
    x[tile_m:tile_m+8] = forever(x)


def forever(x):
    return forever(x)


@wrong("TS103", "nothing", "not defined")
def unknown_name(x: ts.Tensor["M", ts.f32]):
    x[tile_m:tile_m+8] = nothing


@wrong("TS201", "C", "Received: C [M, N]")
def returns_another_shape(C: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["N", "M", ts.f32]:
    C[tile_m:tile_m+8, tile_n:tile_n+8] = 0.0
    return C


@wrong("TS303", "C", "holds f32")
def returns_another_dtype(C: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", "N", ts.bf16]:
    C[tile_m:tile_m+8, tile_n:tile_n+8] = 0.0
    return C


@wrong("TS409", "x[4]", "index 4 leaves axis 0 of x, which has 4 elements")
def outside_for_certain(x: ts.Tensor[4, ts.f32], y: ts.Tensor["M", ts.f32]):
    y[tile_m:tile_m+8] = x[4]


# fmt: on


@pytest.mark.parametrize(("kernel", "code", "at", "says"), CASES, ids=[c[0].__name__ for c in CASES])
def test_mistake(kernel: Callable[..., Any], code: str, at: str, says: str) -> None:
    analysis = check(kernel)
    errors = [d for d in analysis.diagnostics if d.severity == "error"]
    assert errors, "nothing was found"
    text = "\n\n".join(d.render() for d in errors)
    first = errors[0]
    assert first.code == code, text
    assert says in first.message, text
    assert at in analysis.definition.text.segment(first.span), text
    assert analysis.op is None
    assert len(errors) == 1, text


def test_tile_functions_outside_kernels() -> None:
    with pytest.raises(ts.CompileError, match=r"inside a @ts\.kernel only") as e:
        ts.tile.zeros((4,))
    assert e.value.code == "TS401"


@ts.function
def whole(x: ts.Tensor["M", ts.f32]) -> ts.Tensor["M", ts.f32]:
    return x


@ts.kernel
def calls_whole(x: ts.Tensor["M", ts.f32]) -> ts.Tensor["M", ts.f32]:
    return whole(x[ts.tile.linear_id()])


def test_kernels_do_not_call_functions() -> None:
    with pytest.raises(ts.CompileError, match=r"use the functions of ts\.tile here") as e:
        calls_whole(np.ones(4, np.float32))
    assert e.value.code == "TS401"


def needs_n(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", ts.f32]:
    return ts.tile.row_sum(x)


def test_static_extents_are_asked_for_when_it_is_compiled() -> None:
    with pytest.raises(ts.CompileError, match="N must have a size") as e:
        program(needs_n)
    assert e.value.code == "TS404"
    program(needs_n, np.zeros((4, 5), np.float32))


@ts.kernel(BLOCK_N=8, PART=4)
def halves(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    """A branch that some configurations leave out reads a parameter of its own."""
    ctx = ts.tile.context()
    for i in ts.tile.range(0, n, ctx.BLOCK_N):
        y[i : i + ctx.BLOCK_N] = x[i : i + ctx.BLOCK_N] * (ctx.PART if ctx.BLOCK_N > 8 else 2)


def test_parameters_that_a_kernel_does_not_read_are_refused() -> None:
    x, y = np.ones(20, np.float32), np.zeros(20, np.float32)
    halves(x, y)
    assert (y == 2).all()
    halves.with_config(BLOCK_N=16, num_stages=1)(x, y)
    assert (y == 4).all()
    for name, advice in (("BLOCK_NN", r"did you mean BLOCK_N\?"), ("SPLIT", r"read ts\.tile\.context\(\)\.SPLIT, or")):
        with pytest.raises(ts.CompileError, match=f"halves reads no parameter {name}: {advice}") as e:
            halves.with_config(**{name: 3})(x, y)
        assert e.value.code == "TS105"


def test_what_must_be_known_has_the_names_of_the_text() -> None:
    def chosen(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
        for j in ts.tile.range_k(0, 4):
            y[j] = (1.0, 2.0, 3.0, 4.0)[j]

    assert [d.message for d in check(chosen).undecided] == ["the index j must be known"]


def test_what_is_stored_is_known_or_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def parted(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
        for i in ts.tile.range(0, M, 8):
            a, b = x[i : i + 8].reshape(2, 4)
            y[i : i + 4] = a
            y[i + 4 : i + 8] += b

    assert not check(parted).undecided
    monkeypatch.setattr(KernelLayer, "iterate", Layer.iterate)  # a rule that gives nothing and says nothing
    assert [(d.code, d.span.line) for d in check(parted).undecided] == [("TS502", parted.__code__.co_firstlineno + 3)]


def analysed(name: str, text: str) -> FileAnalysis:
    file = FileAnalysis(name)
    file.update(text)
    return file


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("y[i:i+8, 0:4] = x[i:i+8, 0:8:2]", "take a part of the tile: x[...][:, ::2]"),
        ("y[i:i+8, 0:8:2] = x[i:i+8, 0:4]", "start + 2 * ts.tile.arange(n)"),
        ("y[i:i+8, 0:2] = ts.tile.stack((x[i:i+8, 0], x[i:i+8, 0:2]), axis=1)", "stack takes tiles of one shape"),
        (
            "y[i:i+8, :] = ts.tile.associative_scan(x[i:i+8, :], lambda a, b: a + b * x[0, 0])",
            "a load is more than that",
        ),
        ("y[i:i+8, 0] = ts.tile.reduce(x[i:i+8, :], lambda a: a, axis=1)", "1 positional argument, 2 were given"),
        ("ts.tile.atomic_add(y, (i, 0), 1.0)", "ts.tile.reduce_across"),
        ("y[i:i+8, :] = x[i:i+8, :] * w[:]", "K is none of its sizes"),
    ],
)
def test_advice_is_about_what_is_written(statement: str, says: str) -> None:
    head = 'import tessera as ts\nfrom tessera import Tensor\n@ts.kernel\ndef f(x: Tensor["M", "N", ts.f32], '
    head += 'y: Tensor["M", "N", ts.f32], w: Tensor["K", ts.f32]):\n    for i in ts.tile.range(0, M, 8):\n        '
    assert says in "\n".join(d.message for d in analysed("f.py", head + statement + "\n").diagnostics)


def test_schedules_that_the_text_does_not_tell() -> None:
    text = """import tessera as ts
from tessera import Tensor
def made(size):
    @ts.kernel(A=size, B=2 * size, num_warps=size)
    def f(x: Tensor["M", "K", ts.f32], y: Tensor["K", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
        c = ts.tile.context()
        return x[tile_m : tile_m + c.A, :] @ y[:, tile_n : tile_n + c.B]
    return f
"""
    assert not analysed("f.py", text).diagnostics
    assert "TS104" in {d.code for d in analysed("f.py", text.replace("c.B", "c.D")).diagnostics}


def test_quotient_and_remainder_tell_programs_apart() -> None:
    @ts.kernel
    def split(x: ts.Tensor["H", "D", ts.f32], y: ts.Tensor["G", 2, "D", ts.f32]):
        y[tile_h // 2, tile_h % 2, :] = x[tile_h, :]

    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    y = np.empty((3, 2, 4), np.float32)
    split(x, y)
    np.testing.assert_array_equal(y, x.reshape(3, 2, 4))
