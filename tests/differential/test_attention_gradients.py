"""Attention and its gradient as kernels: against PyTorch and JAX, without scores in memory, with the same bits on any
number of threads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tests.conftest import require

torch = require("torch")


@ts.function
def value_and_gradients(
    q: Tensor["..."], k: Tensor["..."], v: Tensor["..."], ct: Tensor["..."], mask: Tensor["..."] | None = None,
    lengths: Tensor["..."] | None = None, starts: Tensor["..."] | None = None, by: tuple = (0, 1, 2),
    causal: bool = False, window=None, softcap=None, scale=None,
):  # fmt: skip
    def loss(q, k, v, mask):
        out = ts.attention(q, k, v, mask, lengths, starts, causal=causal, window=window, softcap=softcap, scale=scale)
        return ts.sum(ts.cast(out, ct.dtype) * ct), out

    (_, out), gradients = ts.value_and_grad(loss, argnums=by, has_aux=True)(q, k, v, mask)
    return out, gradients


def peer(q: Any, k: Any, v: Any, mask: Any = None, lengths: Any = None, starts: Any = None, causal: bool = False,
         window: int | None = None, softcap: float | None = None, scale: float | None = None) -> Any:  # fmt: skip
    if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    s = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None:
        s = torch.where(mask, s, -math.inf) if mask.dtype == torch.bool else s + mask
    i, j = torch.arange(s.shape[-2])[:, None], torch.arange(s.shape[-1])
    if starts is not None:
        i = i + starts[..., None, None, None]
    seen = torch.ones(s.shape[-2:], dtype=torch.bool)
    if causal:
        seen = seen & (j <= i)
    if window is not None:
        seen = seen & ((i - j).abs() < window)
    if lengths is not None:
        seen = seen & (j < lengths[..., None, None, None])
    s = torch.where(seen, s, -math.inf)
    none = torch.all(s == -math.inf, -1, keepdim=True)
    p = torch.where(none, 0.0, torch.softmax(torch.where(none, 0.0, s), -1))
    return p @ v


def drawn(q: tuple[int, ...], k: tuple[int, ...], e: int | None = None, dtype: Any = np.float32) -> list[np.ndarray]:
    """q, k, v and a cotangent of the result."""
    rng = np.random.default_rng(sum(q))
    e = e or k[-1]
    shapes = q, k, (*k[:-1], e), (*q[:-1], e)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def mask_of(kind: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    found = rng.integers(0, 2, shape).astype(bool) if kind == "bool" else rng.standard_normal(shape).astype(np.float32)
    if kind == "bool" and shape[-2] > 2:
        found[..., 2, :] = False  # a query that sees nothing
    return found


def agrees(arrays: list[np.ndarray], tolerance: float = 2e-5, **options: Any) -> None:
    mask = options.get("mask")
    by = (0, 1, 2) if mask is None or mask.dtype == bool else (0, 1, 2, 3)
    out, found = value_and_gradients(*arrays, by=by, **options)
    *given, ct = (torch.tensor(a.astype(np.float64)) for a in arrays)
    if mask is not None:
        given.append(torch.tensor(mask) if mask.dtype == bool else torch.tensor(mask.astype(np.float64)))
    for i in by:
        given[i].requires_grad_()
    rest = {n: torch.tensor(x) if isinstance(x, np.ndarray) else x for n, x in options.items() if n != "mask"}
    expected = peer(*given, **rest)
    wanted = torch.autograd.grad(expected, [given[i] for i in by], ct)
    for a, b in zip((out, *found), (expected.detach(), *wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), b.numpy(), rtol=tolerance, atol=tolerance * 2)


CASES: dict[str, Any] = {
    "plain": (((2, 3, 70, 16), (2, 3, 70, 16)), {}),
    "causal groups": (((2, 4, 33, 16), (2, 2, 90, 16)), {"causal": True}),
    "more queries than keys": (((1, 2, 90, 8), (1, 1, 33, 8)), {"causal": True}),
    "window": (((2, 2, 70, 16), (2, 2, 70, 16)), {"window": 9}),
    "causal window": (((2, 2, 150, 16), (2, 2, 150, 16)), {"window": 20, "causal": True}),
    "softcap": (((1, 2, 40, 16), (1, 2, 40, 16)), {"softcap": 1.5, "scale": 0.5}),
    "one": (((1, 1, 1, 4), (1, 1, 1, 4)), {}),
    "primes, other features": (((7, 20), (13, 20), 24), {}),
    "five axes": (((2, 1, 2, 5, 4), (2, 1, 2, 7, 4)), {"mask": mask_of("float", 1, 5, 7)}),
    "bias": (((2, 4, 37, 16), (2, 2, 50, 16)), {"mask": mask_of("float", 2, 4, 37, 50)}),
    "bias of keys": (((2, 4, 37, 16), (2, 4, 50, 16)), {"mask": mask_of("float", 2, 1, 1, 50), "causal": True}),
    "bias of heads": (((3, 2, 20, 8), (3, 2, 70, 8)), {"mask": mask_of("float", 2, 1, 1)}),
    "bias of queries": (((3, 2, 70, 8), (3, 2, 20, 8)), {"mask": mask_of("float", 70, 1)}),
    "mask": (((2, 2, 37, 16), (2, 2, 50, 16)), {"mask": mask_of("bool", 37, 50)}),
    "lengths": (((3, 2, 40, 16), (3, 2, 40, 16)), {"lengths": np.array([0, 7, 40]), "causal": True}),
    "starts": (((5, 4, 70, 16), (5, 2, 200, 16)), {"starts": np.array([-80, -3, 0, 64, 150]), "causal": True}),
    "one query of groups": (
        ((4, 6, 1, 16), (4, 2, 150, 16)),
        {"starts": np.array([0, 63, 64, 149]), "lengths": np.array([1, 150, 64, 150]), "causal": True},
    ),
    "starts of a window": (((3, 2, 70, 16), (3, 2, 200, 16)), {"starts": np.array([-9, 60, 131]), "window": 20}),
    "starts of a causal window": (
        ((3, 2, 5, 16), (3, 2, 200, 16)),
        {"starts": np.array([0, 61, 190]), "lengths": np.array([5, 66, 195]), "window": 20, "causal": True},
    ),
    "starts and a bias": (
        ((2, 4, 37, 16), (2, 4, 150, 16)),
        {"mask": mask_of("float", 2, 1, 37, 150), "starts": np.array([3, 100]), "causal": True},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    shapes, options = CASES[name]
    agrees(drawn(*shapes), **options)


@pytest.mark.parametrize("name", ["causal groups", "bias of keys", "lengths", "starts", "starts of a causal window"])
def test_on_the_reference_target(name: str) -> None:
    shapes, options = CASES[name]
    with knobs.target.override("reference"):
        agrees(drawn(*shapes), **options)


@pytest.mark.parametrize("features", [17, 80, 256])
def test_features(features: int) -> None:
    agrees(drawn((1, 2, 20, features), (1, 1, 40, features)), causal=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(dtype: str) -> None:
    import ml_dtypes  # optional: brings the narrow floats

    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    tolerance = {"bfloat16": 4e-2, "float16": 5e-3, "float64": 1e-12}[dtype]
    agrees(drawn((2, 4, 40, 16), (2, 2, 40, 16), dtype=kind), tolerance, causal=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"])
def test_lengths_and_starts_of_each_dtype(dtype: str) -> None:
    """More keys than 8 bits count, and differences of positions that are less than 0."""
    arrays = drawn((3, 2, 70, 8), (3, 2, 300, 8))
    counts = {"lengths": np.array([1, 90, 127]), "starts": np.array([0, 9, 100])}
    narrow = {n: x.astype(dtype) for n, x in counts.items()}
    mask = mask_of("float", 3, 1, 1, 300)
    for options in ({"causal": True}, {"window": 20}, {"causal": True, "mask": mask, "by": (0, 1, 2, 3)}):
        out, found = value_and_gradients(*arrays, **narrow, **options)
        same, wanted = value_and_gradients(*arrays, **counts, **options)
        for a, b in zip((out, *found), (same, *wanted), strict=True):
            np.testing.assert_array_equal(a, b)


def test_against_jax() -> None:
    jax = require("jax")
    q, k, v, ct = drawn((2, 40, 4, 16), (2, 40, 2, 16))
    swapped = [np.ascontiguousarray(np.swapaxes(x, 1, 2)) for x in (q, k, v, ct)]
    _, found = value_and_gradients(*swapped, causal=True)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (jax.nn.dot_product_attention(q, k, v, is_causal=True) * ct).sum()

    wanted = jax.grad(loss, argnums=(0, 1, 2))(q, k, v)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.swapaxes(a, 1, 2), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 2}, {"softcap": 2.0}])
def test_against_differences_to_second_order(options: dict[str, Any]) -> None:
    q, k, v, _ = drawn((1, 2, 3, 2), (1, 1, 4, 2), dtype=np.float64)
    mask = np.random.default_rng(0).standard_normal((1, 2, 1, 4))
    ts.check_grad(lambda q, k, v, m: ts.sum(ts.sin(ts.attention(q, k, v, m, **options))), q, k, v, mask, order=2)


def test_no_scores_in_memory() -> None:
    q, k, v, ct = drawn((1, 2, 300, 16), (1, 2, 300, 16))
    value_and_gradients(q, k, v, ct, causal=True)
    assert "300, 300]" not in value_and_gradients.ir()
    explained = str(value_and_gradients.explain())
    for step in ("attention_forward", "attention_backward_queries", "attention_backward_keys"):
        assert explained.count(f"= {step}: ") == 1


def test_nothing_is_computed_that_nobody_asked_for() -> None:
    q, k, v, ct = drawn((1, 2, 30, 16), (1, 2, 30, 16))
    value_and_gradients(q, k, v, ct, by=(2,))
    assert "backward_queries" not in value_and_gradients.ir()
    assert "dk" not in value_and_gradients.ir("tile")
    f = ts.compile(ts.function(_forward), dims={"B": 1, "H": 1, "S": 8, "D": 8})
    assert "lse" not in f.ir("tile")


def _forward(q: Tensor["B", "H", "S", "D", ts.f32]):
    return ts.attention(q, q, q)


def test_same_bits_on_any_number_of_threads() -> None:
    arrays = drawn((2, 4, 200, 32), (2, 2, 200, 32))
    bits = []
    for threads in (1, 2, 3):
        with knobs.num_threads.override(str(threads)):
            out, found = value_and_gradients(*arrays, causal=True)
            bits.append([np.asarray(x).tobytes() for x in (out, *found)])
    assert bits[0] == bits[1] == bits[2]


MANY: dict[str, Any] = {
    "plain": {},
    "causal": {"causal": True},
    "causal window": {"causal": True, "window": 9},
    "softcap": {"softcap": 2.0, "scale": 0.3},
    "lengths": {"lengths": np.array([0, 40, 7, 90]), "causal": True},
    "starts": {"starts": np.array([0, 3, -5, 60]), "causal": True},
    "mask": {"mask": mask_of("bool", 90, 90)},
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("name", MANY)
def test_many_heads_have_the_bits_of_each(name: str, dtype: str) -> None:
    """Where there are enough programs, one of them has all keys of a head; else it has a block of them, and another
    kernel the queries."""
    arrays = [np.asarray(ts.cast(a, getattr(ts, dtype))) for a in drawn((4, 4, 90, 16), (4, 2, 90, 16))]
    out, found = value_and_gradients(*arrays, **MANY[name])
    assert "= attention_backward: " in str(value_and_gradients.explain())
    for i in range(4):
        own = {n: x[i : i + 1] if n in ("lengths", "starts") else x for n, x in MANY[name].items()}
        one, each = value_and_gradients(*(a[i : i + 1] for a in arrays), **own)
        for whole, alone in zip((out, *found), (one, *each), strict=True):
            assert np.asarray(whole[i : i + 1]).tobytes() == np.asarray(alone).tobytes()
    assert "= attention_backward_keys: " in str(value_and_gradients.explain())


def test_queries_that_see_nothing() -> None:
    q, k, v, ct = drawn((2, 2, 70, 16), (2, 2, 70, 16))
    for options in ({"mask": np.zeros((70, 70), bool)}, {"lengths": np.zeros(2, np.int32)},
                    {"mask": np.full((1, 1, 70), -np.inf, np.float32), "by": (0, 1, 2, 3)}):  # fmt: skip
        out, found = value_and_gradients(q, k, v, ct, **options)
        assert not any(np.asarray(x).any() for x in (out, *found))


HEADS = np.ones((2, 4, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"window": 0}, "TS213", "at least 1, not 0"),
        ({"window": 1.5}, "TS213", "window must be an integer"),
        ({"softcap": -1.0}, "TS213", "greater than 0, not -1.0"),
        ({"lengths": np.ones(2)}, "TS301", "lengths of attention are integers"),
        ({"lengths": np.ones((2, 4), int)}, "TS213", r"of each batch, \[2\], not \[2, 4\]"),
        ({"lengths": np.ones(3, int)}, "TS203", "batches of q are 2"),
        ({"starts": np.ones(2)}, "TS301", "starts of attention are integers"),
        ({"starts": np.ones(3, int)}, "TS203", "batches of q are 2"),
        ({"mask": np.ones((3, 8), bool)}, "TS202", "do not broadcast"),
    ],
    ids=str,
)
def test_wrong_options(options: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(ts.CompileError, match=said) as e:
        ts.attention(HEADS, HEADS, HEADS, **options)
    assert code in str(e.value)


@ts.function
def whole_scores(q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32]):
    return ts.grad(lambda q: ts.sum(ts.sin(ts.attention(q, k, k, causal=True, window=4))))(q)


def test_sizes_that_are_known_at_launch() -> None:
    """Features that are not known have no kernel; lengths may be anything."""
    q, k, _, _ = drawn((9, 8), (12, 8))
    want = whole_scores(q, k)
    compiled = ts.compile(whole_scores, dims={"D": 8})
    assert "attention_backward_queries" in str(compiled.explain())
    np.testing.assert_allclose(compiled(q, k), want, rtol=1e-5, atol=1e-6)
    open_sizes = ts.compile(ts.function(_of_any_size))
    np.testing.assert_allclose(open_sizes(q, k), want, rtol=1e-5, atol=1e-6)


def _of_any_size(q: Tensor["S", "D", ts.f32], k: Tensor["T", "D", ts.f32]):
    return ts.grad(lambda q: ts.sum(ts.sin(ts.attention(q, k, k, causal=True, window=4))))(q)
