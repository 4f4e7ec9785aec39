"""Reductions of transposed values: computed as memory lies, with the bits of those of a copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts

W = np.random.default_rng(9).normal(size=300).astype(np.float32)


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def several(x):
    low = ts.where(ts.arange(x.shape[0])[:, None] >= ts.arange(x.shape[1]), x, -np.inf)
    return (
        ts.sum(x, axis=1), ts.sum(x * 2 + 1, axis=0), ts.prod(x, axis=-1, keepdims=True), ts.argmax(x, axis=1),
        ts.var(x, axis=1), ts.softmax(x, axis=1), ts.max(ts.exp(low), axis=1), ts.any(x > 3, axis=1),
    )  # fmt: skip


def normed(x):
    return ts.layer_norm(x, weight=W, bias=W) + x, ts.logsumexp(x, axis=1) - x[:, 0]


@pytest.mark.parametrize("shape", [(300, 40), (300, 16), (300, 5), (300, 1), (70_000, 33)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_bits_of_a_transpose_are_those_of_its_copy(shape: tuple[int, int], dtype: Any) -> None:
    x = normal(*shape).astype(dtype)
    turned = ts.function(lambda v: several(v.T))(x)
    for found, want in zip(turned, ts.function(several)(np.ascontiguousarray(x.T)), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(want).tobytes()


def test_sizes_known_at_launch() -> None:
    x = normal(300, 40)

    @ts.function(open_dims=("M", "N"))
    def open_(v: ts.Tensor["M", "N", ts.f32]):
        return several(v.T)

    for found, want in zip(open_(x), ts.function(several)(np.ascontiguousarray(x.T)), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (2, 1, 3, 0), (0, 3, 2, 1), (0, 2, 1, 3)])
def test_channels_in_front(perm: tuple[int, ...]) -> None:
    sizes = [0, 0, 0, 0]
    for place, size in zip(perm, (2, 5, 31, 300), strict=True):
        sizes[place] = size
    x = normal(*sizes)

    def rows(v):
        y, z = normed(v.reshape(-1, 300))
        return y, z, ts.sum(v, axis=(1, 3)), ts.mean(v * v, axis=(0, 3), keepdims=True), ts.layer_norm(v, weight=W)

    turned = ts.function(lambda v: rows(v.permute(*perm)))(x)
    for found, want in zip(turned, ts.function(rows)(np.ascontiguousarray(x.transpose(perm))), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(want).tobytes()


def test_what_is_computed_on_both_sides() -> None:
    x, y = normal(40, 40), normal(40, 40)

    def both(v, t, w):
        a, b = ts.softmax(v, axis=1), ts.softmax(t, axis=1)
        return a + b, ts.sum(t * w, axis=1), ts.sum(t * v, axis=1), b @ w, (t + 1) * ts.sum(t, axis=0)

    turned = ts.function(lambda v, w: both(v, v.T, w))(x, y)
    for found, want in zip(turned, ts.function(both)(x, np.ascontiguousarray(x.T), y), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-6, atol=1e-6)


def test_columns_are_not_read_one_by_one() -> None:
    """Both losses of a contrastive pair walk along rows of the scores."""

    @ts.function
    def loss(s: ts.Tensor[64, 64, ts.f32]):
        return ts.logsumexp(s, axis=1).sum() + ts.logsumexp(s.T, axis=1).sum()

    text = str(ts.compile(loss, target="cpu").ir("schedule"))
    assert "max(s, axis=[0], keepdims=True)" in text


def test_gradients_of_both_losses() -> None:
    x = normal(48, 48)

    def loss(s, turned):
        return ts.cross_entropy(s, ts.arange(48)) + ts.cross_entropy(turned, ts.arange(48))

    found = ts.grad(lambda s: loss(s, s.T))(x)
    one, other = ts.grad(loss, argnums=(0, 1))(x, np.ascontiguousarray(x.T))
    np.testing.assert_allclose(np.asarray(found), np.asarray(one) + np.asarray(other).T, rtol=1e-5, atol=1e-7)
