"""Accesses that a GPU would make in whole vectors, were a size known to be a multiple. What is not marked is right."""
# target: sm_80
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, bf16, f32


@ts.kernel
def open_sizes(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    y[tile_m:tile_m + 16, tile_n:tile_n + 32] = x[tile_m:tile_m + 16, tile_n:tile_n + 32] * 2
    #                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS417
    # says: x is not moved 4 elements at a time: its rows start every N elements
    # says: Say so at the top, if it is: assert N % 4 == 0
    # says: y here too
    # fix: assert N % 4 == 0


@ts.kernel
def sizes_of_two(a: Tensor["M", "K", bf16], b: Tensor["K", "N", bf16], c: Tensor["M", "N", f32]):
    """Each size is said once: what is a multiple of 8 is one of 4."""
    acc = ts.tile.zeros((16, 16))
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(a[tile_m:tile_m + 16, k:k + 32], b[k:k + 32, tile_n:tile_n + 16])
        #                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS417
        # says: assert K % 8 == 0
        #                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS417
        # says: assert N % 8 == 0
        # says: c here too
    c[tile_m:tile_m + 16, tile_n:tile_n + 16] = acc


@ts.kernel
def a_product_of_sizes(x: Tensor["B*H", "H*4", f32], y: Tensor["B*H", "H*4", f32], z: Tensor["S", "D", f32]):
    assert D % 8 == 0
    i = ts.tile.linear_id()
    y[i, 0:32] = x[i, 0:32] + z[i, 0:32]


@ts.kernel
def nothing_to_be_done(x: Tensor["N", f32], y: Tensor["N", 6, f32], z: Tensor["N", "D", f32]):
    x[tile_n:tile_n + 32] = ts.tile.sum(y[tile_n:tile_n + 32, 0:6], axis=1)
    x[tile_n:tile_n + 32] += z[tile_n:tile_n + 32, 1]  # tessera: ignore[TS412]
