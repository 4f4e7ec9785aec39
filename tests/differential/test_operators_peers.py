"""Values against NumPy, PyTorch and JAX, called as their users call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tests.conftest import require
from tests.differential.operator_examples import close, function

torch = require("torch")
jax = require("jax")
jnp = jax.numpy
F = torch.nn.functional
SHAPES = [(3, 4), (1, 5), (7, 1), (0, 3), (2, 0)]


def run(body: Callable[..., Any], *arrays: np.ndarray) -> tuple[np.ndarray, DType]:
    """`body(g, *arrays)` through the golden model, and the result's dtype."""
    types = [TensorType(tuple(a.shape), _dtype(a)) for a in arrays]
    func = function(types, body)
    (out,) = evaluate(func, arrays)
    return out, tensor(func.region.block.terminator.operands[0]).dtype


def _dtype(a: np.ndarray) -> DType:
    found = dtypes.of(a.dtype.name)
    assert found is not None
    return found


def from_torch(x: Any) -> np.ndarray:
    if x.dtype == torch.bfloat16:
        return x.float().numpy().astype(dtypes.bf16.numpy)
    return x.numpy()


def to_torch(a: np.ndarray) -> Any:
    return torch.tensor(a.astype(np.float32)).bfloat16() if a.dtype == dtypes.bf16.numpy else torch.from_numpy(a)


def sample(shape: tuple[int, ...], dtype: DType = dtypes.f32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_integer:
        return rng.integers(-5, 6, shape).astype(dtype.numpy)
    return rng.normal(size=shape).astype(dtype.numpy)


UNARY: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("exp", torch.exp, jnp.exp),
    ("expm1", torch.expm1, jnp.expm1),
    ("tanh", torch.tanh, jnp.tanh),
    ("erf", torch.erf, jax.scipy.special.erf),
    ("sigmoid", torch.sigmoid, jax.nn.sigmoid),
    ("relu", torch.relu, jax.nn.relu),
    ("silu", F.silu, jax.nn.silu),
    ("softplus", F.softplus, jax.nn.softplus),
    ("gelu", F.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
    ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), jax.nn.gelu),
    ("elu", F.elu, jax.nn.elu),
    ("leaky_relu", F.leaky_relu, jax.nn.leaky_relu),
    ("abs", torch.abs, jnp.abs),
    ("neg", torch.neg, jnp.negative),
    ("round", torch.round, jnp.round),
    ("floor", torch.floor, jnp.floor),
    ("sign", torch.sign, jnp.sign),
    ("square", torch.square, jnp.square),
    ("sin", torch.sin, jnp.sin),
    ("cos", torch.cos, jnp.cos),
    ("atan", torch.atan, jnp.arctan),
    ("isnan", torch.isnan, jnp.isnan),
]


@pytest.mark.parametrize("name, of_torch, of_jax", UNARY, ids=[u[0] for u in UNARY])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.bf16], ids=str)
def test_unary_maths(name: str, of_torch: Callable[..., Any], of_jax: Callable[..., Any], dtype: DType) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, 30.0, -30.0, 88.0, -100.0, np.inf, -np.inf, np.nan], dtype.numpy)
    for x in (special, sample((3, 5), dtype), sample((0, 2), dtype)):
        mine, out = run(lambda g, v: getattr(g, name)(v), x)
        theirs = from_torch(of_torch(to_torch(x))), np.asarray(of_jax(jnp.asarray(x)))
        agree = np.isnan(theirs[0].astype(float)) == np.isnan(theirs[1].astype(float))  # sign(nan): they do not
        if name == "gelu":
            agree &= x != -np.inf  # their -inf * 0; here the limit, 0
        for peer in theirs:
            close(mine[agree], peer[agree], out)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum", "eq", "lt", "ge"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.int32, dtypes.uint8], ids=str)
def test_binary_on_one_dtype_is_numpys(name: str, dtype: DType) -> None:
    of_numpy = {"sub": np.subtract, "mul": np.multiply, "eq": np.equal, "lt": np.less, "ge": np.greater_equal}
    for shapes in [((3, 4), (4,)), ((2, 1), (1, 3)), ((0, 4), (4,)), ((), (5,))]:
        x, y = sample(shapes[0], dtype), sample(shapes[1], dtype, 1)
        mine, _ = run(lambda g, a, b: getattr(g, name)(a, b), x, y)
        np.testing.assert_array_equal(mine, of_numpy.get(name, getattr(np, name, None))(x, y))  # type: ignore[misc]


@pytest.mark.parametrize("symbol", ["floordiv", "mod"])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.f32], ids=str)
def test_division_rounds_down_as_in_python(symbol: str, dtype: DType) -> None:
    x = np.array([7, 7, -7, -7, 6, -6, 0], dtype.numpy)
    y = np.array([3, -3, 3, -3, 3, 3, 5], dtype.numpy)
    mine, _ = run(lambda g, a, b: getattr(g, symbol)(a, b), x, y)
    assert mine.tolist() == [
        a // b if symbol == "floordiv" else a % b for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]


PROMOTIONS = [
    (dtypes.int32, dtypes.f32, dtypes.f32),
    (dtypes.int64, dtypes.bf16, dtypes.bf16),
    (dtypes.bf16, dtypes.f32, dtypes.f32),
    (dtypes.uint8, dtypes.int8, dtypes.int16),
    (dtypes.bool_, dtypes.int8, dtypes.int8),
    (dtypes.f32, dtypes.f64, dtypes.f64),
]


@pytest.mark.parametrize("a, b, out", PROMOTIONS, ids=str)
def test_mixed_dtypes_promote_as_in_jax(a: DType, b: DType, out: DType) -> None:
    x, y = np.ones(3, a.numpy), np.full(3, 2, b.numpy)
    mine, dtype = run(lambda g, u, v: g.add(u, v), x, y)
    assert dtype == out and mine.tolist() == [3, 3, 3]
    with jax.enable_x64(True):
        assert str(jnp.promote_types(a.numpy, b.numpy)) == out.numpy_name


REDUCERS: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("sum", torch.sum, jnp.sum),
    ("mean", torch.mean, jnp.mean),
    ("max", torch.amax, jnp.max),
    ("min", torch.amin, jnp.min),
    ("var", lambda x, dim, keepdim: torch.var(x, dim, correction=0, keepdim=keepdim), jnp.var),
    ("std", lambda x, dim, keepdim: torch.std(x, dim, correction=0, keepdim=keepdim), jnp.std),
    ("logsumexp", torch.logsumexp, jax.scipy.special.logsumexp),
    (
        "norm",
        lambda x, dim, keepdim: torch.linalg.vector_norm(x, 2, dim, keepdim),
        lambda x, axis, keepdims: jnp.sqrt(jnp.sum(x * x, axis, keepdims=keepdims)),
    ),
]


@pytest.mark.parametrize("name, of_torch, of_jax", REDUCERS, ids=[r[0] for r in REDUCERS])
@pytest.mark.parametrize("axis, keep", [(0, False), (-1, True), ((0, 2), False), ((-1, 1), True)])
def test_reductions(name: str, of_torch: Any, of_jax: Any, axis: Any, keep: bool) -> None:
    for shape in [(3, 4, 5), (1, 6, 1), (2, 1, 3)]:
        x = sample(shape)
        mine, out = run(lambda g, v: getattr(g, name)(v, dim=axis, keepdim=keep), x)
        close(mine, of_torch(torch.from_numpy(x), dim=axis, keepdim=keep).numpy(), out)
        close(mine, np.asarray(of_jax(x, axis=axis, keepdims=keep)), out)


def test_sums_of_nothing_and_of_narrow_types() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert run(lambda g, x: g.sum(x, axis=0), empty)[0].tolist() == [0, 0, 0]
    assert run(lambda g, x: g.prod(x, axis=0), empty)[0].tolist() == [1, 1, 1]
    assert np.isnan(run(lambda g, x: g.mean(x, axis=0), empty)[0]).all()
    assert run(lambda g, x: g.all(x), empty)[0].item() is True and run(lambda g, x: g.any(x), empty)[0].item() is False
    ones = np.ones(4096, dtypes.bf16.numpy)  # a bf16 accumulator would stop at 256
    total, dtype = run(lambda g, x: g.sum(x), ones)
    assert total == 4096 and dtype == dtypes.bf16
    total, dtype = run(lambda g, x: g.sum(x), np.full(300, 100, np.int8))
    assert total == 30000 and dtype == dtypes.int64
    mean, dtype = run(lambda g, x: g.mean(x), np.array([1, 2], np.int32))
    assert mean == 1.5 and dtype == dtypes.f32
    count, dtype = run(lambda g, x: g.sum(x), np.array([True, True, False]))
    assert count == 2 and dtype == dtypes.int64


def test_argmax_takes_the_first_and_the_first_nan() -> None:
    x = np.array([[1, 3, 3], [np.nan, 5, np.nan]], np.float32)
    mine, dtype = run(lambda g, v: g.argmax(v, axis=1), x)
    assert mine.tolist() == [1, 0] == torch.argmax(torch.from_numpy(x), 1).tolist() and dtype == dtypes.int64
    assert run(lambda g, v: g.argmin(v), np.array([[2, 0], [0, 1]]))[0] == 1


MATMULS = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((4,), (2, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
]


@pytest.mark.parametrize("a, b", MATMULS, ids=str)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = sample(a), sample(b, seed=1)
    mine, out = run(lambda g, u, v: g.matmul(u, v), x, y)
    close(mine, np.asarray(x @ y), out)
    close(mine, torch.matmul(torch.from_numpy(x), torch.from_numpy(y)).numpy(), out)


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("...ij,jk->...ik", [(2, 2, 3), (3, 4)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->ji", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("...a,...a->...", [(2, 1, 4), (3, 4)]),
        ("a b, b c -> a c", [(2, 0), (0, 3)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [sample(s, seed=i) for i, s in enumerate(shapes)]
    mine, out = run(lambda g, *v: g.einsum(equation, *v), *arrays)
    close(mine, np.asarray(np.einsum(equation, *arrays)), out)
    close(mine, torch.einsum(equation, *map(torch.from_numpy, arrays)).numpy(), out)


SHAPING: list[tuple[str, Callable[[GraphBuilder, Any], Any], Callable[[Any], Any]]] = [
    ("permute", lambda g, x: g.permute(x, 2, 0, 1), lambda x: x.permute(2, 0, 1)),
    ("permute of two axes", lambda g, x: g.permute(g.flatten(x, 1), 0, 1), lambda x: x.flatten(1).permute(0, 1)),
    ("transpose of all", lambda g, x: g.transpose(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1)),
    ("transpose of two", lambda g, x: g.transpose(x, 1, -1), lambda x: x.transpose(1, -1)),
    ("mT", lambda g, x: g.matrix_transpose(x), lambda x: x.mT),
    ("reshape", lambda g, x: g.reshape(x, 4, -1), lambda x: x.reshape(4, -1)),
    ("flatten", lambda g, x: g.flatten(x, 1), lambda x: x.flatten(1)),
    ("unsqueeze", lambda g, x: g.unsqueeze(x, -2), lambda x: x.unsqueeze(-2)),
    ("expand", lambda g, x: g.broadcast_to(x, 5, -1, -1, -1), lambda x: x.expand(5, -1, -1, -1)),
    ("flip", lambda g, x: g.flip(x, (0, 2)), lambda x: x.flip(0, 2)),
    ("roll", lambda g, x: g.roll(x, (1, -2), (0, 2)), lambda x: x.roll((1, -2), (0, 2))),
    ("tile", lambda g, x: g.tile(x, (2, 1, 1, 3)), lambda x: x.repeat(2, 1, 1, 3)),
    ("repeat", lambda g, x: g.repeat(x, 3, 1), lambda x: x.repeat_interleave(3, 1)),
    ("tril", lambda g, x: g.tril(x, -1), lambda x: x.tril(-1)),
    ("pad", lambda g, x: g.pad(x, ((0, 0), (1, 2), (3, 0)), value=7), lambda x: F.pad(x, (3, 0, 1, 2), value=7)),
    ("cumsum", lambda g, x: g.cumsum(x, -1), lambda x: x.cumsum(-1)),
    ("cumprod", lambda g, x: g.cumprod(x, 0), lambda x: x.cumprod(0)),
    ("cummax", lambda g, x: g.cummax(x, 0), lambda x: x.cummax(0).values),
    ("cummin", lambda g, x: g.cummin(x, 1), lambda x: x.cummin(1).values),
    ("chunk", lambda g, x: g.chunk(x, 2, 2)[1], lambda x: x.chunk(2, 2)[1]),
    ("any", lambda g, x: g.any(x, 1), lambda x: x.any(1)),
]


@pytest.mark.parametrize("name, mine, theirs", SHAPING, ids=[s[0] for s in SHAPING])
def test_shaping_is_pytorchs(name: str, mine: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    x = sample((2, 4, 3))
    found, dtype = run(mine, x)
    close(found, theirs(torch.from_numpy(x)).numpy(), dtype)


def test_take_along_axis_and_one_hot() -> None:
    x, at = sample((3, 4)), np.array([[0, 3], [1, 1], [2, 0]])
    found, _ = run(lambda g, v, i: g.take_along_axis(v, i, 1), x, at)
    np.testing.assert_array_equal(found, torch.gather(torch.from_numpy(x), 1, torch.from_numpy(at)).numpy())
    hot, _ = run(lambda g, i: g.one_hot(i, 4), at)
    np.testing.assert_array_equal(hot, F.one_hot(torch.from_numpy(at), 4).numpy())
    rows, _ = run(lambda g, i, v: g.embedding(i, v), at, x.T.copy())
    np.testing.assert_array_equal(rows, F.embedding(torch.from_numpy(at), torch.from_numpy(x.T.copy())).numpy())
    outside, _ = run(lambda g, v: g.take(v, g.constant(9, dtypes.int64), axis=0), x)
    assert outside.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.bf16], ids=str)
@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (5, 1), (2, 3, 4)], ids=str)
def test_normalisations(dtype: DType, shape: tuple[int, ...]) -> None:
    x, w, b = sample(shape, dtype), sample(shape[-1:], dtype, 1), sample(shape[-1:], dtype, 2)
    tx, tw, tb = map(to_torch, (x, w, b))
    pairs = [
        (run(lambda g, v: g.softmax(v), x), F.softmax(tx, -1)),
        (run(lambda g, v: g.softmax(v, axis=0), x), F.softmax(tx, 0)),
        (run(lambda g, v: g.log_softmax(v), x), F.log_softmax(tx, -1)),
        (run(lambda g, v, s, t: g.layer_norm(v, s, t), x, w, b), F.layer_norm(tx, shape[-1:], tw, tb)),
        (run(lambda g, v, s: g.rms_norm(v, s), x, w), F.rms_norm(tx, shape[-1:], tw, 1e-6)),
    ]
    for (mine, out), theirs in pairs:
        close(mine, from_torch(theirs), out)


def test_softmax_of_masked_rows() -> None:
    x = np.array([[-np.inf, -np.inf], [0, -np.inf], [1e30, -1e30]], np.float32)
    mine, _ = run(lambda g, v: g.softmax(v), x)
    np.testing.assert_array_equal(mine, F.softmax(torch.from_numpy(x), -1).numpy())
    assert np.isnan(mine[0]).all() and mine[1].tolist() == [1, 0]
    assert run(lambda g, v: g.logsumexp(v, axis=-1), x)[0].tolist()[:2] == [-np.inf, 0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", ["none", "bool", "additive"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)], ids=str)
def test_attention(causal: bool, masked: str, heads: tuple[int, int]) -> None:
    q, k, v = sample((2, heads[0], 5, 8)), sample((2, heads[1], 7, 8), seed=1), sample((2, heads[1], 7, 6), seed=2)
    mask = {
        "none": [],
        "bool": [np.random.default_rng(3).random((2, 1, 5, 7)) < 0.7],
        "additive": [sample((5, 7), seed=3)],
    }[masked]
    mine, out = run(lambda g, *a: g.attention(*a, causal=causal), q, k, v, *mask)
    whole = np.tri(5, 7, dtype=bool) if causal else np.ones((5, 7), bool)
    bias = np.where(whole, 0, -np.inf).astype(np.float32)
    if masked == "additive":
        bias = bias + mask[0]
    elif masked == "bool":
        bias = np.where(whole & mask[0], 0, -np.inf).astype(np.float32)
    theirs = F.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v, bias)), enable_gqa=True).numpy()
    visible = np.isfinite(bias).any(-1, keepdims=True)
    close(mine, np.where(visible, theirs, 0), out)


def test_attention_that_sees_nothing_is_zero() -> None:
    q, mask = sample((2, 3, 4)), np.zeros((3, 3), bool)
    assert not run(lambda g, v, m: g.attention(v, v, v, m), q, mask)[0].any()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("labels", [[0, 4, 2, 1, 1, 3], [0, -100, 2, -100, 1, 3]], ids=["all", "some"])
def test_losses(reduction: str, smoothing: float, labels: list[int]) -> None:
    x, labels = sample((6, 5)), np.array(labels)
    mine, out = run(lambda g, v, i: g.cross_entropy(v, i, reduction=reduction, label_smoothing=smoothing), x, labels)
    theirs = F.cross_entropy(
        torch.from_numpy(x), torch.from_numpy(labels), reduction=reduction, label_smoothing=smoothing
    )
    close(mine, theirs.numpy(), out)
    y = sample((6, 5), seed=1)
    close(
        run(lambda g, u, v: g.mse(u, v, reduction=reduction), x, y)[0],
        F.mse_loss(*map(torch.from_numpy, (x, y)), reduction=reduction).numpy(),
        out,
    )


def test_cast_rounds_and_saturates() -> None:
    x = np.array([1e9, -1e9, 0.1, 448, 500, np.nan, 65520], np.float32)
    fp8, _ = run(lambda g, v: g.cast(v, "fp8"), x)
    assert fp8.astype(np.float32).tolist()[:2] == [448, -448] and fp8[4] == 448 and np.isnan(fp8[5])
    half, _ = run(lambda g, v: g.cast(v, dtypes.f16), x)
    np.testing.assert_array_equal(half, torch.from_numpy(x).half().numpy())
    brain, _ = run(lambda g, v: g.cast(v, dtypes.bf16), x)
    np.testing.assert_array_equal(brain.astype(np.float32), torch.from_numpy(x).bfloat16().float().numpy())
