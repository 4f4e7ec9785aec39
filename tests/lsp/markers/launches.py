"""Functions that call kernels: results, several of them, and tensors that a kernel stores to."""
# fmt: off
# ruff: noqa

import tessera as ts
from tessera import Tensor, f16, f32


@ts.kernel
def silu_gate(x: Tensor["M", "N", f32], gate: Tensor["M", "N", f32]) -> Tensor["M", "N", f32]:
    rows = x[tile_m : tile_m + 4, :]  #: [4, N] f32
    g = gate[tile_m : tile_m + 4, :]  #: [4, N] f32
    return rows * g / (1.0 + ts.tile.exp(-g))


@ts.kernel
def moments(x: Tensor[..., "N", f32]) -> tuple[Tensor[..., f32], Tensor[..., f32]]:
    rows = ts.tile.load(x)  #: [4, N] f32
    mean = ts.tile.row_sum(rows) / N  #: [4] f32
    centred = rows - mean  #: [4, N] f32
    return mean, ts.tile.row_sum(centred * centred) / N


@ts.kernel
def decay(state: Tensor["K", f32], update: Tensor["K", f32], rate: float):
    i = ts.tile.linear_id()  #: lanes of K, 1024 at a time
    state[i] = state[i] * (1.0 - rate) + update[i] * rate


@ts.function
def feed_forward(x: Tensor["B", "D", f32], up: Tensor["D", "E", f32], gate: Tensor["D", "E", f32], down: Tensor["E", "D", f32]):
    hidden = silu_gate(x @ up, x @ gate)  #: [B, E] f32
    out = hidden @ down  #: [B, D] f32
    return x + out


@ts.function
def wrong_gate(x: Tensor["B", "D", f32], up: Tensor["D", "E", f32], gate: Tensor["D", "D", f32]):
    hidden = silu_gate(x @ up, x @ gate)
    #                          ^^^^^^^^ TS208
    return hidden


@ts.function
def wrong_rank(x: Tensor["B", "S", "D", f32]):
    gated = silu_gate(x, gate=x[0])
    #                 ^ TS209
    return gated


@ts.function
def wrong_dtype(x: Tensor["B", "D", f16]):
    gated = silu_gate(x, x)
    #                 ^ TS304
    #                    ^ TS304
    return gated


@ts.function
def normalised(x: Tensor["B", "S", "D", f32]):
    mean, variance = moments(x)  #: [B, S] f32 | [B, S] f32
    scale = (variance + 1e-5).rsqrt()  #: [B, S] f32
    return (x - mean[..., None]) * scale[..., None]


@ts.function
def averaged(state: Tensor["P", f32], x: Tensor["B", "P", f32], rate: float):
    total = x.sum(0)  #: [P] f32
    decay(state, total, rate)
    kept = state * 2  #: [P] f32
    decay(state, total * 2, 0.5)
    return kept + state


@ts.function
def lost(state: Tensor["P", f32]):
    decay(state * 2, state, 0.5)
    #     ^^^^^^^^^ TS406
    return state


@ts.function
def a_loop(state: Tensor["P", f32], x: Tensor["P", f32]):
    for i in ts.range(4):  #: [] int64
        decay(state, x, 0.1)
    final = state + x  #: [P] f32
    return final
