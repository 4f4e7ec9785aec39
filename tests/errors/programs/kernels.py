"""Mistakes in tile programs: loops, races, shared tiles, shapes and places."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts


@ts.kernel
def another_case(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
    #      ^ TS103
    # says: did you mean 'N'?
    # fix: if i < N:
        y[i] = x[i]


@ts.kernel
def split_k(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", ts.f32]):
    p = ts.tile.program_id(0) * 8
    k = ts.tile.program_id(1) * 32
    y[p:p + 8] += ts.tile.row_sum(x[p:p + 8, k:k + 32])
#   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS406
    # says: index it with program_id(1), store it in one of them (if program_id(1) == 0:), or reduce over it in a loop


@ts.kernel
def without_end(x: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 8):
        v = x[i:i + 8]
        while ts.tile.max(v) > 0:
#       ^^^^^^^^^^^^^^^^^^^^^^^^ TS102
        # says: would never end
            x[i:i + 8] = 0.0


@ts.kernel
def counting_by_halves(x: ts.Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 8):
        for k in ts.tile.range_k(0, x[i] / 2):
        #        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
        # says: range counts integers
            x[i:i + 8] = 0.0


@ts.kernel
def leaving_for_some_lanes(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i]
    for _ in ts.tile.static_range(9):
        if v > 3:
#       ^^^^^^^^ TS102
        # says: loop with ts.tile.range_k(...), which they may leave one by one
            break
        v = v + 1
    x[i] = v


@ts.kernel
def an_unknown_swizzle(x: ts.Tensor["M", "N", ts.f32]):
    s = ts.tile.alloc_shared((8, 8), ts.f32, swizzle="diagonal")
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: swizzle is one of none, xor


@ts.kernel
def no_stages(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", ts.f32]):
    panel = ts.tile.load(x, shape=(8, 8), prefetch=0)
    #       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    # says: how many partitions are under way


@ts.kernel
def sorting(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    v = x[tile_m:tile_m + 8, 0:64]
    a = ts.tile.sort(v, axis=2)
    #   ^^^^^^^^^^^^^^^^^^^^^^^ TS204
    b = ts.tile.cumsum(v, axis=None)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS204
    # says: runs along one axis
    c = ts.tile.argsort(v, descending="yes")
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
    y[tile_m:tile_m + 8, 0:64] = v


@ts.kernel
def spread_over_programs(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    return ts.tile.sort(x, axis=0)
    #      ^^^^^^^^^^^^^^^^^^^^^^^ TS403
    # says: divided among programs


@ts.kernel
def early_value(x: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", ts.f32]:
    total = ts.tile.zeros((8,))
    for k in ts.tile.range_k(0, N, 8):
        total += ts.tile.row_sum(x[tile_m:tile_m + 8, k:k + 8])
        if ts.tile.max(total) > 3:
            return total
            #      ^^^^^ TS102
            # says: keep it in a name
    return total


@ts.kernel
def what_is_no_element(x: ts.Tensor["n", ts.int8]):
    for i in ts.tile.range(0, n, 8):
        a = ts.tile.load(x[i:i + 8], other=300)
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS302
        # says: is not an element of int8
        b = ts.tile.load(x[i:i + 8], other=x[i])
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS105
        # says: use where
        c = ts.tile.load(x[i:i + 8], other=float("-inf"))
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS302
        x[i:i + 8] = 0


@ts.kernel
def narrow_indices(x: ts.Tensor["n", ts.f32], at: ts.Tensor["m", ts.uint8], y: ts.Tensor["m", ts.f32]):
    p = ts.tile.program_id()
    total = ts.tile.zeros(())
    for i in ts.tile.range_k(at[p], at[p] + at[0]):
        #                           ^^^^^^^^^^^^^ TS420
        # says: this + of uint8 wraps around at 0 and 255
        # fix: for i in ts.tile.range_k(at[p], ts.tile.cast(at[p], ts.int64) + at[0]):
        total += x[i]
    y[p] = total + x[at[p] + p] + x[ts.tile.cast(at[p], ts.int64) * at[0]]


@ts.kernel
def narrow_index_tiles(x: ts.Tensor["n", ts.f32], at: ts.Tensor["m", ts.int16], y: ts.Tensor["m", ts.f32]):
    i = ts.tile.linear_id()
    flat = at[i] * 7
    #      ^^^^^^^^^ TS420
    # says: this * of int16 wraps around at -32768 and 32767
    # fix: flat = ts.tile.cast(at[i], ts.int64) * 7
    y[i] = x[flat] + x[at[i]]


@ts.kernel
def past_the_range(u: ts.Tensor["H", "W", ts.f32], out: ts.Tensor["H", "W", ts.f32]):
    for i in ts.tile.range(1, H - 1, 8):
        out[i:i + 8, :] = u[i - 1:i + 7, :]
    #   ^^^^^^^^^^^^^^^ TS421
        # says: Write `if i + ts.tile.arange(8) < H-1:`


@ts.kernel
def returned_in_a_loop(x: ts.Tensor["L", "C", ts.f32]) -> ts.Tensor["L-2", "C", ts.f32]:
    return x[tile_l:tile_l + 16, :] + x[tile_l + 2:tile_l + 18, :]
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS102
    # says: tile_l walks L, which no result has


@ts.kernel
def neighbours(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i - 1] + x[i + 1]
    #      ^^^^^^^^ TS415
    # says: Write `if i - 1 >= 0:`
    # fix: y[i] = ts.tile.load(x[i - 1], other=0) + x[i + 1]
    #                 ^^^^^^^^ TS415
    # says: beyond the end of x
    # fix: y[i] = x[i - 1] + ts.tile.load(x[i + 1], other=0)


@ts.kernel
def neighbours_inside(x: ts.Tensor["n", ts.f32], wide: ts.Tensor["n+2", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = wide[i] + wide[i + 1] + wide[i + 2] + ts.tile.load(x[i + 1], other=0.0)
    if (i >= 1) & (i + 1 < n):
        y[i] = x[i - 1] + x[i + 1] + ts.tile.load(x[i + 1], mask=i + 1 < n)


@ts.kernel
def a_product_of_rows(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["N", "K", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((32, 32))
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(A[tile_m:tile_m + 32, k:k + 16], B[tile_n:tile_n + 32, k:k + 16])
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS402
        # says: did you mean the transpose of the second one (.T)?
        # fix: acc += ts.tile.mma(A[tile_m:tile_m + 32, k:k + 16], B[tile_n:tile_n + 32, k:k + 16].T)
    return acc


@ts.kernel
def a_wider_block(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((32, 64))
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(A[tile_m:tile_m + 32, k:k + 16], B[k:k + 32, tile_n:tile_n + 64])
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS402
    return acc


@ts.kernel
def an_index_of_no_axis(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    p = ts.tile.program_id(0)
    y[p * 8:p * 8 + 8, :] = x[p * 8:p * 8 + 8]
    #                       ^^^^^^^^^^^^^^^^^^ TS419
    # says: no index says which axis it means
    # says: x[i, :] means M, with all of N
    # says: x[ts.tile.each(), i] means N, with a program for each of M
    # fix: y[p * 8:p * 8 + 8, :] = x[p * 8:p * 8 + 8, :]


@ts.kernel
def pairs_of_rows(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["N", "K", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    difference = a[tile_m:tile_m + 8, :] - b[tile_n:tile_n + 8, :]
    #            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS418
    # says: axis 0 of [8 along tile_n, K] runs along tile_n, that of [8 along tile_m, K] along tile_m
    # fix: difference = a[tile_m:tile_m + 8, :][:, None, :] - b[tile_n:tile_n + 8, :][None, :, :]
    y[tile_m:tile_m + 8, tile_n:tile_n + 8] = 0.0


@ts.kernel
def a_vector_of_no_axis(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    y[tile_m:tile_m + 8, tile_n:tile_n + 8] = x[tile_m:tile_m + 8, tile_n:tile_n + 8] * ts.tile.ones((8,))
    #                                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS418
    # says: may run along either axis of [8 along tile_m, 8 along tile_n]
    # fix: y[tile_m:tile_m + 8, tile_n:tile_n + 8] = x[tile_m:tile_m + 8, tile_n:tile_n + 8] * ts.tile.ones((8,))[None, :]


@ts.kernel
def a_product_of_square_blocks(a: ts.Tensor["M", "M", ts.f32], b: ts.Tensor["N", "M", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((8, 8))
    for k in ts.tile.range_k(0, M, 8):
        acc += ts.tile.mma(a[tile_m:tile_m + 8, k:k + 8], b[tile_n:tile_n + 8, k:k + 8])
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS418
        # says: mma would contract k with tile_n
        # fix: acc += ts.tile.mma(a[tile_m:tile_m + 8, k:k + 8], b[tile_n:tile_n + 8, k:k + 8].T)
    y[tile_m:tile_m + 8, tile_n:tile_n + 8] = acc


@ts.kernel
def conditions_that_do_not_help(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i + 1]
        #      ^^^^^^^^ TS415
        # says: Write `if i + 1 < n:`
    if i >= 1:
        y[i] = x[i + 1]
        #      ^^^^^^^^ TS415
    if i < n - 2:
        y[i] = x[i + 3]
        #      ^^^^^^^^ TS415
    if i < n - 1:
        y[i] = x[i - 1]
        #      ^^^^^^^^ TS415
        # says: Write `if i - 1 >= 0:`
    if i >= 1:
        y[i] = x[i - 2]
        #      ^^^^^^^^ TS415


@ts.kernel
def conditions_that_help(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n - 1:
        y[i] = x[i + 1]
    if i + 1 < n:
        y[i] = x[i + 1]
    if i >= 1:
        y[i] = x[i - 1]
    if i - 1 > 0:
        y[i] = x[i - 2]
    if (i > 0) & (i + 1 <= n - 1):
        y[i] = x[i - 1] + x[i + 1]
    if y[i] > 0:
        y[i] = x[i + 1]  # what the data say cannot be known here


@ts.tile.helper
def halved(t: ts.Tile["m", ts.f32]) -> ts.Tile["m", ts.f32]:
    return t / 2


@ts.kernel
def a_helper_of_another_dtype(x: ts.Tensor["n", ts.f64]):
    i = ts.tile.linear_id()
    x[i] = halved(x[i])
    #             ^^^^ TS304
    # says: a tile of f64 is given


@ts.kernel
def a_share_is_no_total(x: ts.Tensor["M", "N", ts.f32], out: ts.Tensor["N", ts.f32]):
    for i in ts.tile.range(0, M, 8):
        out[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 8, :])) / M
        #        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS406
        # says: complete when all programs have run


@ts.kernel
def combining_into_another_dtype(x: ts.Tensor["M", "N", ts.f32], out: ts.Tensor["M", ts.f32]):
    for i in ts.tile.range(0, M, 8):
        out[i : i + 8] = ts.tile.reduce(x[i : i + 8, :], lambda a, b: a < b, axis=1)
        #                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS302
        # says: it must give what it takes
