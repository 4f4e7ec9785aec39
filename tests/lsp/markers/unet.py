"""A block of a diffusion U-Net: group norm, time embedding, attention over pixels, down- and upsampling."""
# fmt: off
# ruff: noqa

import math

import tessera as ts
from tessera import Const, Tensor

GROUPS = 32


def swish(x):
    return x * ts.sigmoid(x)


@ts.function
def time_embedding(t: Tensor["B"], E: Const["E"]):
    half = E // 2  #: E//2
    steps = ts.arange(0, half)  #: [E//2] int64
    rates = ts.exp(steps * (-math.log(10_000.0) / 128))  #: [E//2] f32
    angles = t[:, None] * rates  #: [B, E//2] f32
    embedding = ts.concatenate([ts.sin(angles), ts.cos(angles)], axis=-1)  #: [B, 2*(E//2)] f32
    return embedding


@ts.function
def group_norm(x: Tensor["B", "C", "H", "W"], gain: Tensor["C"], bias: Tensor["C"]) -> Tensor["B", "C", "H", "W"]:
    assert C % GROUPS == 0
    grouped = x.reshape(B, GROUPS, (C // GROUPS) * H * W)  #: [B, 32, (C//32)*H*W] f32
    mean = grouped.mean(axis=-1, keepdim=True)  #: [B, 32, 1] f32
    var = grouped.var(axis=-1, keepdim=True)  #: [B, 32, 1] f32
    normed = (grouped - mean) * ts.rsqrt(var + 1e-6)  #: [B, 32, (C//32)*H*W] f32
    normed = normed.reshape(B, C, H, W)  #: [B, C, H, W] f32
    return normed * gain[:, None, None] + bias[:, None, None]


@ts.function
def conv1x1(x: Tensor["B", "C", "H", "W"], weight: Tensor["K", "C"]) -> Tensor["B", "K", "H", "W"]:
    pixels = x.reshape(B, C, H * W)  #: [B, C, H*W] f32
    out = weight @ pixels  #: [B, K, H*W] f32
    return out.reshape(B, K, H, W)


@ts.function
def residual(
    x: Tensor["B", "C", "H", "W"],
    time: Tensor["B", "E"],
    gain: Tensor["C"],
    bias: Tensor["C"],
    w1: Tensor["K", "C"],
    wt: Tensor["E", "K"],
    skip: Tensor["K", "C"],
) -> Tensor["B", "K", "H", "W"]:
    h = swish(group_norm(x, gain, bias))  #: [B, C, H, W] f32
    h = conv1x1(h, w1)  #: [B, K, H, W] f32
    shift = swish(time) @ wt  #: [B, K] f32
    h = h + shift[:, :, None, None]
    return h + conv1x1(x, skip)


@ts.function
def attention(x: Tensor["B", "C", "H", "W"], wqkv: Tensor["3*C", "C"], wo: Tensor["C", "C"]) -> Tensor["B", "C", "H", "W"]:
    pixels = x.reshape(B, C, H * W)  #: [B, C, H*W] f32
    qkv = wqkv @ pixels  #: [B, 3*C, H*W] f32
    q, k, v = ts.split(qkv, 3, axis=1)  #: [B, C, H*W] f32 | [B, C, H*W] f32 | [B, C, H*W] f32
    scores = q.mT @ k / math.sqrt(64)  #: [B, H*W, H*W] f32
    weights = ts.softmax(scores, axis=-1)  #: [B, H*W, H*W] f32
    mixed = v @ weights.mT  #: [B, C, H*W] f32
    out = (wo @ mixed).reshape(B, C, H, W)  #: [B, C, H, W] f32
    return x + out


@ts.function
def downsample(x: Tensor["B", "C", "H", "W"]):
    assert H % 2 == 0 and W % 2 == 0
    windows = x.reshape(B, C, H // 2, 2, W // 2, 2)  #: [B, C, H//2, 2, W//2, 2] f32
    return windows.mean(axis=(3, 5))


@ts.function
def upsample(x: Tensor["B", "C", "H", "W"]):
    tall = ts.repeat(x, 2, axis=2)  #: [B, C, 2*H, W] f32
    wide = ts.repeat(tall, 2, axis=3)  #: [B, C, 2*H, 2*W] f32
    return wide


@ts.function
def join(x: Tensor["B", "C", "H", "W"], skip: Tensor["B", "K", "H", "W"]):
    both = ts.concatenate([x, skip], axis=1)  #: [B, C+K, H, W] f32
    return both


@ts.function
def denoise(x: Tensor["B", "C", "H", "W"], noise: Tensor["B", "C", "H", "W"], alpha: Tensor["B"]):
    a = ts.sqrt(alpha)  #: [B] f32
    b = ts.sqrt(1.0 - alpha)  #: [B] f32
    start = (x - b * noise) / a
    #            ^^^^^^^^^ TS202
    return start
