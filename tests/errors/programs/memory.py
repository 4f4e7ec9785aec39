"""How kernels use memory and tensor cores. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, bf16, f16, f32, fp4_e2m1, int8


@ts.kernel
def too_much_shared(a: Tensor["M", "K", f32], y: Tensor["M", f32]):
    left = ts.tile.alloc_shared((256, 256), f32)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS405
    # says: need 278528 bytes per block; no GPU has more than 232448
    # says: 16384 bytes: [64, 64] f32 shared
    right = ts.tile.alloc_shared((64, 64), f32)
    for m in ts.tile.range(0, M, 256):
        ts.tile.cp_async(left, a[m:m + 256, 0:256])
        ts.tile.cp_async(right, a[m:m + 64, 0:64])
        ts.tile.barrier()
        y[m:m + 256] = ts.tile.row_sum(left) + ts.tile.sum(right)


@ts.kernel
def a_column(a: Tensor["M", "N", f32], y: Tensor["M", f32]):
    y[tile_m:tile_m + 64] = a[tile_m:tile_m + 64, 3]
    #                       ^^^^^^^^^^^^^^^^^^^^^^^^ TS412
    # says: neighbouring elements that are read here lie N elements apart
    # says: which moves 32 bytes for 4 that are used
    # fix: y[tile_m:tile_m + 64] = a[3, tile_m:tile_m + 64]


@ts.kernel
def lanes_of_rows(a: Tensor["N", "D", f16], y: Tensor["N", "D", f16]):
    i = ts.tile.linear_id()
    if i < N:
        y[i, 1] = a[i, 0]
        #         ^^^^^^^ TS412
        # says: 32 bytes for 2 that are used
        # fix: y[i, 1] = a[0, i]
    #   ^^^^^^^^^^^^^^^^^ TS412
    # says: that are written here
    # fix: y[1, i] = a[i, 0]


@ts.kernel
def every_other_element(x: Tensor["N", f32], idx: Tensor["K", "int32"], y: Tensor["K", f32], z: Tensor["K", f32]):
    i = ts.tile.linear_id()
    if i < K:
        y[i] = x[i * 4 + 1]
        #      ^^^^^^^^^^^^ TS412
        # says: lie 4 elements apart in memory, which moves 32 bytes for 8
        z[i] = x[idx[i]] + x[i + 3] + x[7 - i]


@ts.kernel
def rows_and_blocks(a: Tensor["M", "N", f32], y: Tensor["M", "N", f32], b: Tensor["N", f32], p: Tensor["M", 2, f32]):
    y[tile_m:tile_m + 64, tile_n:tile_n + 64] = a[tile_m:tile_m + 64, tile_n:tile_n + 64] + b[tile_n:tile_n + 64]


@ts.kernel
def a_transposed_block(k: Tensor["S", "D", f32], y: Tensor["D", "S", f32]):
    y[tile_d:tile_d + 32, tile_s:tile_s + 32] = k[tile_s:tile_s + 32, tile_d:tile_d + 32].T


@ts.kernel
def a_few_elements(a: Tensor["M", "N", f32], y: Tensor["M", f32]):
    y[tile_m:tile_m + 8] = a[tile_m:tile_m + 8, 0]


@ts.kernel
def a_copy_for_nobody(a: Tensor["M", "K", f32], y: Tensor["M", f32]):
    left = ts.tile.alloc_shared((64, 32), f32)
    other = ts.tile.alloc_shared((64, 32), f32)
    for m in ts.tile.range(0, M, 64):
        ts.tile.cp_async(left, a[m:m + 64, 0:32])
        ts.tile.cp_async(other, a[m:m + 64, 32:64])
#       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS413
        # says: other is filled here and never read
        ts.tile.barrier()
        y[m:m + 64] = ts.tile.row_sum(left)


@ts.kernel
def a_panel_for_nobody(A: Tensor["M", "K", f16], B: Tensor["K", "N", f16], C: Tensor["M", "N", f32]):
    left = ts.tile.load(A, shape=(64, 32), prefetch=2)
    right = ts.tile.load(B, shape=(32, 64), prefetch=3)
    spare = ts.tile.load(A, shape=(64, 32), prefetch=2)
#   ^^^^^ TS413
    # says: no load_partition(spare, ...) follows
    acc = ts.tile.zeros((64, 64))
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(ts.tile.load_partition(left, k), ts.tile.load_partition(right, k))
    ts.tile.store(C, acc)


@ts.kernel
def odd_products(a: Tensor["M", "K", bf16], b: Tensor["K", "N", bf16], c: Tensor["M", "N", f32]):
    acc = ts.tile.zeros((12, 20))
    for k in ts.tile.range_k(0, K, 8):
        acc += ts.tile.mma(a[tile_m:tile_m + 12, k:k + 8], b[k:k + 8, tile_n:tile_n + 20])
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS410
        # says: multiples of 16 rows and 8 columns and 16 contracted elements
        # fix: acc += ts.tile.mma(a[tile_m:tile_m + 16, k:k + 16], b[k:k + 16, tile_n:tile_n + 24])
    c[tile_m:tile_m + 12, tile_n:tile_n + 20] = acc


@ts.kernel
def products_of_fp4(a: Tensor["M", "K", fp4_e2m1], b: Tensor["K", "N", fp4_e2m1], c: Tensor["M", "N", f32]):
    acc = ts.tile.zeros((16, 16))
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(a[tile_m:tile_m + 16, k:k + 32], b[k:k + 32, tile_n:tile_n + 16])
    c[tile_m:tile_m + 16, tile_n:tile_n + 16] = acc


@ts.kernel
def scales_of_no_format(a: Tensor["M", "K", fp4_e2m1], s: Tensor["M", "S", f32], c: Tensor["M", "M", f32]):
    block = a[0:16, 0:32]
    c[0:16, 0:16] = ts.tile.mma(block, block.T, a_scale=s[0:16, 0:8])
    #               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS302
    # says: a_scale is fp8_e8m0 for each 32 elements or fp8_e4m3 for each 16 elements along K, not f32


@ts.kernel
def products_as_they_should_be(a: Tensor["M", "K", int8], b: Tensor["K", "N", int8], c: Tensor["M", "N", ts.int32]):
    acc = ts.tile.zeros((32, 16), ts.int32)
    for k in ts.tile.range_k(0, K, 32):
        acc = ts.tile.mma(a[tile_m:tile_m + 32, k:k + 32], b[k:k + 32, tile_n:tile_n + 16], accumulator=acc)
    c[tile_m:tile_m + 32, tile_n:tile_n + 16] = acc
