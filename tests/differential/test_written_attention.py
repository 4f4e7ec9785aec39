"""Attention as people write it: recognised whatever the spelling, with the values that the text says, NaN included."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, bf16, bool_, f32, knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.readable import readable
from tessera.compiler.pipeline import to_graph
from tests.conftest import require
from tests.unit.graph.test_recognize import found

torch = require("torch")

Four = Tensor["B", "H", "S", 16, f32]
Keys = Tensor["B", "H", "T", 16, f32]
Three = Tensor["H", "S", 8, f32]


@ts.function
def plain(q: Four, k: Keys, v: Keys):
    def written_out(s):
        e = ts.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    e = ts.exp((scores := q @ k.mT * 0.25) - ts.max(scores, axis=-1)[..., None])
    return (
        ts.softmax(q @ k.transpose(-1, -2) / math.sqrt(16), axis=-1) @ v,
        written_out((q / 4.0) @ k.swapaxes(-1, -2)) @ v,
        ts.einsum("bhij,bhjd->bhid", ts.softmax(ts.einsum("bhid,bhjd->bhij", q, k) * 0.25), v),
        ts.einsum("bhji,bhjd->bhid", ts.softmax(ts.einsum("bhid,bhjd->bhji", q, k) * 0.25, axis=2), v),
        ts.einsum("bhjd,bhij->bhid", v, ts.softmax(0.25 * ts.einsum("bhjd,bhid->bhij", k, q))),
        (e / ts.sum(e, axis=3)[:, :, :, None]) @ v,
    )


@ts.function
def masked(q: Four, k: Keys, v: Keys, mask: Tensor["S", "T", bool_], bias: Tensor["H", 1, "T", f32]):
    i, j = ts.arange(q.shape[-2])[:, None], ts.arange(k.shape[-2])
    ones = ts.ones((q.shape[-2], k.shape[-2]))

    def scores():
        return q @ k.mT / 4.0

    return (
        ts.softmax(ts.where(mask, scores(), -math.inf)) @ v,
        ts.softmax(scores().masked_fill(~mask, -math.inf)) @ v,
        ts.softmax(scores() + ts.where(mask, 0.0, -math.inf)) @ v,
        ts.softmax(ts.where(mask & (j <= i), scores(), -1e9)) @ v,
        ts.softmax(bias + scores()) @ v,
        ts.softmax(ts.where(j <= i, scores(), -math.inf)) @ v,
        ts.softmax(ts.where(~(i < j), scores() + bias, -math.inf)) @ v,
        ts.softmax(ts.where(ts.tril(ones) == 0, -math.inf, scores())) @ v,
        ts.softmax(ts.where(ts.tril(ones) > 0, ts.where(mask, scores(), -math.inf), -math.inf)) @ v,
        ts.softmax(2.0 * ts.tanh(scores() / 2.0) + ts.triu(ts.full((q.shape[-2], k.shape[-2]), -math.inf), 1)) @ v,
    )


def expected_masked(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> list[Any]:
    s, inf = q @ k.mT / 4.0, math.inf
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    seen = torch.where(mask, s, -inf)
    causal = j <= i
    all_scores = [
        seen, seen, s + torch.where(mask, 0.0, -inf), torch.where(mask & causal, s, -1e9), s + bias,
        torch.where(causal, s, -inf), torch.where(causal, s + bias, -inf), torch.where(causal, s, -inf),
        torch.where(causal, seen, -inf),
        2 * torch.tanh(s / 2) + torch.triu(torch.full(s.shape[-2:], -inf), 1),
    ]  # fmt: skip
    return [torch.softmax(x, -1) @ v for x in all_scores]


@ts.function
def shaped(
    q: Three, k: Tensor["H", "T", 8, f32], v: Tensor["H", "T", 24, f32], x: Tensor["B", "S", "H", 8, f32],
    y: Tensor["B", "T", "H", 8, f32], grouped: Tensor["B", "G", 3, "S", 8, f32], few: Tensor["B", "G", "T", 8, f32],
):  # fmt: skip
    scores = ts.einsum("bshd,bthd->bhst", x, y)
    mixed = ts.einsum("bhst,bthd->bshd", ts.softmax(scores, axis=-1), y)
    return (
        ts.softmax(q @ k.mT) @ v,
        ts.softmax(q[0] @ k[0].T) @ v[0],
        mixed.reshape(x.shape[0], x.shape[1], x.shape[2] * 8),
        ts.einsum("bgrst,bgtd->bgrsd", ts.softmax(ts.einsum("bgrsd,bgtd->bgrst", grouped, few)), few),
        (ts.softmax(x.permute(0, 2, 1, 3) @ y.permute(0, 2, 3, 1)) @ y.permute(0, 2, 1, 3)).permute(0, 2, 1, 3),
    )


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes))
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def agree(results: Any, expected: Any, tolerance: float = 3e-6) -> None:
    assert len(results) == len(expected)
    for i, (a, b) in enumerate(zip(results, expected, strict=True)):
        np.testing.assert_allclose(np.asarray(a, np.float32), b.float().numpy(), tolerance, tolerance, err_msg=str(i))


def test_spellings() -> None:
    assert found(plain) == (6, 0)
    q, k, v = drawn((2, 3, 70, 16), (2, 3, 90, 16), (2, 3, 90, 16))
    a, b, c = (torch.tensor(x) for x in (q, k, v))
    agree(plain(q, k, v), [torch.softmax(a @ b.mT / 4, -1) @ c] * 6)


def given(queries: int, keys: int) -> list[np.ndarray]:
    q, k, v, bias = drawn((2, 3, queries, 16), (2, 3, keys, 16), (2, 3, keys, 16), (3, 1, keys))
    mask = np.random.default_rng(1).integers(0, 2, (queries, keys)).astype(bool)
    mask[3] = False  # a query that sees nothing has NaN, or the mean under a mask of ordinary numbers
    return [q, k, v, mask, bias]


@pytest.mark.parametrize(("queries", "keys"), [(130, 130), (30, 100)])
def test_masks(queries: int, keys: int) -> None:
    assert found(masked) == (10, 0)
    arrays = given(queries, keys)
    agree(masked(*arrays), expected_masked(*map(torch.tensor, arrays)))


@pytest.mark.parametrize("where", ["q", "k", "v", "bias"])
def test_what_is_not_finite_goes_where_the_text_says(where: str) -> None:
    arrays = given(130, 130)
    at = {"q": 0, "k": 1, "v": 2, "bias": 4}[where]
    flat = arrays[at].reshape(-1, arrays[at].shape[-1])
    flat[len(flat) // 2, 5], flat[-1, 3], flat[len(flat) // 3, 2] = math.nan, math.inf, -math.inf
    agree(masked(*arrays), expected_masked(*map(torch.tensor, arrays)))


@ts.function
def repeated(q: Tensor["B", 6, "S", 8, f32], k: Tensor["B", 2, "T", 8, f32], v: Tensor["B", 2, "T", 8, f32]):
    def loss(k):
        batch, _, keys, _ = k.shape
        a, b = (x[:, :, None].broadcast_to(batch, 2, 3, keys, 8).reshape(batch, 6, keys, 8) for x in (k, v))
        return ts.sum(ts.square(ts.softmax(q @ a.mT) @ b))

    uneven = ts.softmax(q @ ts.repeat(k, 3, axis=1).mT) @ v.permute(0, 2, 1, 3).repeat(3, axis=2).permute(0, 2, 1, 3)
    return ts.softmax(q @ ts.repeat(k, 3, axis=1).mT) @ ts.repeat(v, 3, axis=1), uneven, ts.grad(loss)(k)


def test_repeated_heads_are_read_once() -> None:
    text = readable(to_graph(analyse(repeated.definition()).unit())).text
    assert "broadcast_to" not in text and "contract" not in text
    arrays = drawn((2, 6, 9, 8), (2, 2, 30, 8), (2, 2, 30, 8))
    q, k, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arrays)
    wide = [x.repeat_interleave(3, 1) for x in (k, v)]
    out = torch.softmax(q @ wide[0].mT, -1) @ wide[1]
    (dk,) = torch.autograd.grad((out**2).sum(), k)
    agree(repeated(*arrays), [out.detach(), out.detach(), dk], 1e-5)


def test_axes_in_any_order() -> None:
    assert found(shaped) == (5, 0)
    arrays = drawn((4, 9, 8), (4, 30, 8), (4, 30, 24), (2, 9, 4, 8), (2, 30, 4, 8), (2, 2, 3, 9, 8), (2, 2, 30, 8))
    q, k, v, x, y, grouped, few = map(torch.tensor, arrays)
    four = torch.softmax(torch.einsum("bshd,bthd->bhst", x, y), -1)
    mixed = torch.einsum("bhst,bthd->bshd", four, y)
    wide = few[:, :, None]
    expected = [
        torch.softmax(q @ k.mT, -1) @ v, torch.softmax(q[0] @ k[0].T, -1) @ v[0], mixed.reshape(2, 9, 32),
        torch.softmax(grouped @ wide.mT, -1) @ wide, mixed,
    ]  # fmt: skip
    agree(shaped(*arrays), expected)


@ts.function
def narrow(q: Tensor["S", 16, bf16], k: Tensor["T", 16, bf16], v: Tensor["T", 16, bf16]):
    return ts.softmax(q @ k.T * 0.25) @ v, ts.softmax((q @ k.T * 0.25).to(f32)).to(bf16) @ v


def test_scores_are_rounded_as_the_text_says() -> None:
    kind = require("ml_dtypes").bfloat16
    q, k, v = (6 * x for x in drawn((40, 16), (50, 16), (50, 16)))
    q, k, v = (x.astype(kind) for x in (q, k, v))
    product = (q.astype(np.float32) @ k.astype(np.float32).T).astype(kind)
    scores = (product.astype(np.float32) * np.float32(0.25)).astype(kind)
    expected = torch.softmax(torch.tensor(scores.astype(np.float32)), -1) @ torch.tensor(v.astype(np.float32))
    agree(narrow(q, k, v), [expected] * 2, 1e-2)
    exact = torch.tensor(q.astype(np.float32)) @ torch.tensor(k.astype(np.float32)).T * 0.25
    assert (torch.softmax(exact, -1) @ torch.tensor(v.astype(np.float32)) - expected).abs().max() > 0.1


def loss(q, k, v, mask, bias, ct):
    i, j = ts.arange(q.shape[-2])[:, None], ts.arange(k.shape[-2])
    scores = ts.where(j <= i, q @ k.mT / 4.0 + bias, -math.inf)
    some = ts.where(mask, q @ k.mT / 4.0, -1e9)
    return ts.sum(ts.softmax(scores) @ v * ct), ts.sum(ts.softmax(some) @ v * ct)


@ts.function
def first(q: Four, k: Keys, v: Keys, mask: Tensor["S", "T", bool_], bias: Tensor["H", 1, "T", f32], ct: Four):
    one = ts.grad(lambda q, k, v, bias: loss(q, k, v, mask, bias, ct)[0], argnums=(0, 1, 2, 3))(q, k, v, bias)
    other = ts.grad(lambda q, k, v, bias: loss(q, k, v, mask, bias, ct)[1], argnums=(0, 1, 2))(q, k, v, bias)
    return *one, *other


@ts.function
def second(q: Four, k: Keys, v: Keys, mask: Tensor["S", "T", bool_], bias: Tensor["H", 1, "T", f32], ct: Four):
    def size(q, k, v):
        return ts.sum(ts.square(ts.grad(lambda q: loss(q, k, v, mask, bias, ct)[0])(q)))

    return ts.grad(size, argnums=(0, 1, 2))(q, k, v)


def torch_losses(q: Any, k: Any, v: Any, mask: Any, bias: Any, ct: Any) -> list[Any]:
    s = q @ k.mT / 4.0
    causal = torch.arange(k.shape[-2]) <= torch.arange(q.shape[-2])[:, None]
    both = torch.where(causal, s + bias, -math.inf), torch.where(mask, s, -1e9)
    return [(torch.softmax(x, -1) @ v * ct).sum() for x in both]


def test_gradients() -> None:
    """Also of a query that sees nothing, whose weights are equal and have no derivative."""
    arrays = [*given(40, 50), *drawn((2, 3, 40, 16))]
    tensors = [torch.tensor(x) if x.dtype == bool else torch.tensor(x, dtype=torch.float64) for x in arrays]
    q, k, v, _, bias, _ = tensors
    for x in (q, k, v, bias):
        x.requires_grad_()
    one, other = torch_losses(*tensors)
    wanted = [*torch.autograd.grad(one, [q, k, v, bias], retain_graph=True), *torch.autograd.grad(other, [q, k, v])]
    agree(first(*arrays), [x.detach() for x in wanted], 2e-5)
    (dq,) = torch.autograd.grad(torch_losses(*tensors)[0], q, create_graph=True)
    agree(second(*arrays), torch.autograd.grad((dq**2).sum(), [q, k, v]), 1e-4)


@ts.function
def on_a_gpu(q: Four, k: Keys, v: Keys):
    i, j = ts.arange(q.shape[-2])[:, None], ts.arange(k.shape[-2])
    return (ts.softmax(ts.where(j <= i, q @ k.mT / 4.0, -math.inf)) @ v,)


@pytest.mark.parametrize("target", ["reference", "emulator:sm_80"])
def test_other_targets(target: str) -> None:
    if target != "reference":
        require("g++")
    q, k, v, *_ = given(70, 70)
    v[0, 1, 65, 3] = math.nan  # of a key that the first block of queries does not see
    a, b, c = map(torch.tensor, (q, k, v))
    seen = torch.ones(70, 70, dtype=torch.bool).tril()
    with knobs.target.override(target):
        agree(on_a_gpu(q, k, v), [torch.softmax(torch.where(seen, a @ b.mT / 4, -math.inf), -1) @ c], 1e-5)
