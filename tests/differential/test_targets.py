"""One table of programs on every target that runs here: NumPy's results, and the same bits for 1, 2 or 3 threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import knobs
from tests.conftest import require
from tests.together import ahead, builds

require("g++")
TARGETS = ("cpu", "reference", "emulator:sm_80")
BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
RNG = np.random.default_rng(7)
GAIN = 1.5
OFFSETS = np.array([1, 2, 3, 4, 5], np.float32)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


X, Y = normal(3, 5), normal(3, 5)
WIDE = normal(4, 67)
POSITIVE = np.abs(X) + np.float32(0.1)
INTS = RNG.integers(-9, 9, (3, 5)).astype(np.int32)
DIVISORS = np.array([[1, 2, -3, 4, 5]] * 3, np.int32)


@dataclass(frozen=True)
class Case:
    """A program, arguments, and what NumPy makes of them. Arguments are copied for each call."""

    name: str
    program: Any
    args: tuple[Any, ...]
    want: Callable[..., Any]

    def __str__(self) -> str:
        return self.name


CASES: list[Case] = []


def case(want: Callable[..., Any], *args: Any, kind: Any = ts.function) -> Callable[[Any], Any]:
    def collect(f: Any) -> Any:
        program = kind(f)
        CASES.append(Case(f.__name__, program, args, want))
        return program

    return collect


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


# Elementwise


@case(lambda x, y: (x + y) * (x - y) / (np.abs(y) + 1), X, Y)
def arithmetic(x, y):
    return (x + y) * (x - y) / (ts.abs(y) + 1)


@case(lambda x: np.exp(x) + np.tanh(x) - np.sin(x) * np.cos(x), X)
def maths(x):
    return ts.exp(x) + ts.tanh(x) - ts.sin(x) * ts.cos(x)


@case(lambda x: np.log(x) + np.sqrt(x) + 1 / np.sqrt(x) + x**3, POSITIVE)
def roots(x):
    return ts.log(x) + ts.sqrt(x) + ts.rsqrt(x) + x**3


@case(lambda x: x / (1 + np.exp(-x)) + np.maximum(x, 0) + np.log1p(np.exp(x)), X)
def activations(x):
    return ts.silu(x) + ts.relu(x) + ts.softplus(x)


@case(lambda x, y: np.where(x > y, x, y * 2), X, Y)
def selected(x, y):
    return ts.where(x > y, x, y * 2)


@case(lambda x, y: ((x < y) & (y > 0)) | ~(x != y), X, Y)
def logic(x, y):
    return ((x < y) & (y > 0)) | ~(x != y)


@case(lambda x: np.clip(np.floor(x) + np.round(x), -1, 1), X)
def rounding(x):
    return ts.clip(ts.floor(x) + ts.round(x), -1, 1)


@case(lambda x, y: x // y * 100 + x % y, INTS, DIVISORS)
def integer_division(x, y):
    return x // y * 100 + x % y


@case(lambda x: (x << 2) ^ (x & 5) | (x >> 1), INTS)
def bits(x):
    return (x << 2) ^ (x & 5) | (x >> 1)


@case(lambda x: x.astype(np.int8) * np.int8(50), INTS.astype(np.int8))
def integers_wrap(x):
    return x * 50


@case(lambda x: x.astype(np.int32).astype(np.float64) / 2, X * 10)
def casts(x):
    return ts.cast(ts.cast(x, ts.int32), ts.f64) / 2


@case(lambda x, y: x + y[:, None], X, X[:, 0].copy())
def broadcasting(x, y):
    return x + y[:, None]


# Reductions


@case(lambda x: x.sum(), WIDE)
def total(x):
    return ts.sum(x)


@case(lambda x: (x.mean(0), x.var(1), x.std(axis=1, keepdims=True)), WIDE)
def moments(x):
    return ts.mean(x, dim=0), ts.var(x, axis=1), ts.std(x, axis=1, keepdims=True)


@case(lambda x: (x.max(0), x.min(1), x.argmax(1), x.argmin(0)), WIDE)
def extremes(x):
    return x.max(0), x.min(1), ts.argmax(x, axis=1), ts.argmin(x, axis=0)


@case(lambda x: (x.prod(1), (x > 0).any(1), (x > -9).all()), X)
def products(x):
    return ts.prod(x, axis=1), ts.any(x > 0, axis=1), ts.all(x > -9)


@case(lambda x: np.log(np.exp(x).sum(1)), WIDE)
def logsumexp(x):
    return ts.logsumexp(x, axis=1)


@case(lambda x: np.cumsum(x, axis=1), WIDE)
def running(x):
    return ts.cumsum(x, axis=1)


@case(lambda x: x.sum(dtype=np.int64), np.full((3, 5), 100, np.int8))
def integer_sum(x):
    return ts.sum(x)


# Contractions


@case(lambda a, b: a @ b, normal(7, 33), normal(33, 9))
def matmul(a, b):
    return a @ b


@case(lambda a, b: a @ b, normal(2, 3, 4, 5), normal(3, 5, 6))
def batched(a, b):
    return a @ b


@case(lambda a, b: np.einsum("bij,bkj->bik", a, b), normal(2, 3, 4), normal(2, 5, 4))
def einsum(a, b):
    return ts.einsum("bij,bkj->bik", a, b)


@case(lambda a, v: a @ v, normal(7, 33), normal(33))
def vector(a, v):
    return a @ v


@case(lambda a, b: a @ b, RNG.integers(-5, 5, (4, 6)).astype(np.int32), RNG.integers(-5, 5, (6, 3)).astype(np.int32))
def integer_matmul(a, b):
    return a @ b


@case(lambda x, w, b: np.maximum(x @ w + b, 0), X, normal(5, 4), normal(4))
def linear_relu(x, w, b):
    return ts.relu(x @ w + b)


# Shaping


@case(lambda x: x.reshape(5, 3).T[::-1, 1:4] + 1, X)
def views(x):
    return ts.flip(x.reshape(5, 3).T, 0)[:, 1:4] + 1


@case(lambda x, y: np.concatenate([x, y * 2], 1), X, Y)
def concat(x, y):
    return ts.concat([x, y * 2], axis=1)


@case(lambda x, y: np.stack([x, y], 1).transpose(2, 0, 1), X, Y)
def stack(x, y):
    return ts.stack([x, y], axis=1).permute(2, 0, 1)


@case(lambda x: tuple(np.split(x, [2, 3], 1)), X)
def split(x):
    return ts.split(x, [2, 3], axis=1)


@case(lambda x: np.pad(x, ((1, 2), (0, 1))), X)
def padded(x):
    return ts.pad(x, ((1, 2), (0, 1)))


@case(lambda x: np.roll(x, 2, 1), X)
def rolled(x):
    return ts.roll(x, 2, 1)


@case(lambda x: np.tril(x) - np.triu(x, 1), X)
def triangles(x):
    return ts.tril(x) - ts.triu(x, 1)


@case(lambda x: x[:, ::2, None] * x[1], normal(5, 5))
def subscripts(x):
    return x[:, ::2, None] * x[1]


@case(lambda x, i: x[i], X, np.array([2, 0, 2, 1]))
def rows_taken(x, i):
    return ts.take(x, i, axis=0)


@case(lambda i: np.eye(6, dtype=np.float32)[i], np.array([5, 0, 3]))
def one_hot(i):
    return ts.one_hot(i, 6)


@case(lambda x: np.arange(5) * np.ones((3, 5), np.float32) + x, X)
def created(x):
    return ts.iota(5) * ts.ones((3, 5)) + x


# Models


@case(softmax, WIDE)
def softmaxes(x):
    return ts.softmax(x, axis=-1)


@case(lambda x: np.log(softmax(x)), WIDE)
def log_softmax(x):
    return ts.log_softmax(x, axis=-1)


@case(lambda x, g, b: normed(x) * g + b, WIDE, normal(67), normal(67))
def layer_norm(x, g, b):
    return ts.layer_norm(x, g, b)


@case(lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g, WIDE, normal(67))
def rms_norm(x, g):
    return ts.rms_norm(x, g, eps=1e-6)


def attended(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    return softmax(np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)) @ v


@case(attended, normal(2, 3, 6, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4))
def attention(q, k, v):
    return ts.attention(q, k, v, causal=True)


@case(lambda x, t: -np.log(softmax(x))[np.arange(4), t].mean(), WIDE, np.array([3, 0, 66, 9]))
def cross_entropy(x, t):
    return ts.cross_entropy(x, t)


@case(lambda x, y: ((x - y) ** 2).mean(), X, Y)
def mse(x, y):
    return ts.mse(x, y)


# Control flow, captures, arguments


@case(lambda x: x * 2 if x.sum() > 0 else x - 1, X)
def branch(x):
    if ts.sum(x) > 0:
        y = x * 2
    else:
        y = x - 1
    return y


def doubled(x: Any) -> Any:
    while x.max() < 100:
        x = x * 2 + 1
    return x


@case(doubled, POSITIVE)
def loop_while(x):
    while ts.max(x) < 100:
        x = x * 2 + 1
    return x


@case(lambda x: ((x * 0.5 + 0) * 0.5 + 1) * 0.5 + 2, X)
def loop_unrolled(x):
    for i in range(3):
        x = x * 0.5 + i
    return x


@case(lambda x: x * np.float32(GAIN) + OFFSETS, X)
def captured(x):
    return x * GAIN + OFFSETS


@case(lambda x: x + 1, X)
def absent(x: ts.Tensor["B", "S"], bias: ts.Tensor["S"] | None = None):
    return x + 1 if bias is None else x + bias


@case(lambda x: softmax(softmax(x) * 2), WIDE)
def called(x):
    return softmaxes(softmaxes(x) * 2)


# Dtypes


@case(lambda x: np.exp(x.astype(np.float32)).astype(BF16), X.astype(BF16))
def bf16_map(x):
    return ts.exp(x)


@case(
    lambda a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(BF16),
    normal(8, 40, dtype=BF16),
    normal(40, 8, dtype=BF16),
)
def bf16_matmul(a, b):
    return a @ b


@case(lambda x: x.astype(np.float32).sum(1).astype(np.float16), WIDE.astype(np.float16))
def f16_sum(x):
    return ts.sum(x, axis=1)


@case(lambda x: (x.astype(np.float32) * 2).astype(FP8), X.astype(FP8))
def fp8_scaled(x):
    return ts.cast(ts.cast(x, ts.f32) * 2, ts.fp8_e4m3)


@case(lambda x: softmax(x), WIDE.astype(np.float64))
def f64_softmax(x):
    return ts.softmax(x)


@case(lambda x, y: x * y + x, X + 1j * Y, Y - 2j * X)
def complex_map(x, y):
    return x * y + x


Z, LONG = X + 1j * Y, (WIDE[:, :64] + 1j * normal(4, 64)).astype(np.complex64)


@case(lambda x: (x.sum(), x.sum(1), x.prod(0), x.mean(1), x.any(0), x.all()), Z)
def complex_reductions(x):
    return ts.sum(x), ts.sum(x, axis=1), ts.prod(x, axis=0), ts.mean(x, axis=1), ts.any(x, axis=0), ts.all(x)


@case(lambda x: (np.cumsum(x, 1), np.cumsum(x, 0), x.sum((0, 1))), LONG)
def complex_scans(x):
    return ts.cumsum(x, axis=1), ts.cumsum(x, axis=0), ts.sum(x)


@case(lambda x: (x != 0, np.where(np.abs(x) > 1, x, 0)), Z.astype(np.complex128))
def complex_choices(x):
    return ts.cast(x, ts.bool_), ts.where(ts.abs(x) > 1, x, 0)


@case(lambda x: np.bitwise_xor(x, True) & x[::-1], X > 0)
def bool_map(x):
    return (x ^ True) & ts.flip(x, 0)


@case(lambda x: x + np.uint8(250), np.arange(9, dtype=np.uint8))
def unsigned_wrap(x):
    return x + 250


# Kernels


@case(lambda x, y, a: np.float32(a) * x + y, normal(777), normal(777), 2.5, kind=ts.kernel)
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


@case(lambda a, b, c: c + a @ b, normal(37, 45), normal(45, 51), normal(37, 51), kind=ts.kernel)
def gemm(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((16, 16), dtype=ts.f32)
    a = A[tile_m : tile_m + 16, tile_k : tile_k + 16]
    b = B[tile_k : tile_k + 16, tile_n : tile_n + 16]
    acc = ts.tile.mma(a, b, accumulator=acc)
    C[tile_m : tile_m + 16, tile_n : tile_n + 16] += acc


def tolerance(dtype: np.dtype[Any]) -> float:
    if dtype.name in ("float64", "complex128"):
        return 1e-12
    return {"bfloat16": 2e-2, "float16": 4e-3, "float8_e4m3fn": 0.13}.get(dtype.name, 3e-6)


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in flat(v)]
    return [np.asarray(value)]


def copied(args: tuple[Any, ...]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def compare(got: Any, want: Any) -> None:
    assert len(flat(got)) == len(flat(want))
    for g, w in zip(flat(got), flat(want), strict=True):
        assert g.shape == w.shape
        assert g.dtype.kind in ("V", w.dtype.kind), (g.dtype, w.dtype)
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
            continue
        rtol = tolerance(g.dtype)
        wide = complex if w.dtype.kind == "c" else float
        np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol=rtol, atol=rtol)


def outcome(program: Any, args: tuple[Any, ...]) -> Any:
    """What a call gives: a result, or the arguments where the program only stores to them."""
    given = copied(args)
    result = program(*given)
    return given[-1] if result is None else result


@builds(lambda case, target: ahead(target, case.program, *case.args))
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_results_are_numpys(case: Case, target: str, built: None) -> None:
    with knobs.target.override(target):
        got = outcome(case.program, case.args)
    compare(got, case.want(*copied(case.args)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(case: Case) -> None:
    before = ts.get_num_threads()
    results = []
    try:
        with knobs.target.override("cpu"):
            for count in (1, 2, 3):
                ts.set_num_threads(count)
                results.append([x.tobytes() for x in flat(outcome(case.program, case.args))])
    finally:
        ts.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("total", "matmul", "softmaxes", "moments")], ids=str)
def test_bits_of_large_arrays_do_not_depend_on_the_number_of_threads(case: Case) -> None:
    large = tuple(np.resize(a, (257, 257)).astype(np.float32) * np.float32(1.001) for a in case.args)
    before, results = ts.get_num_threads(), []
    try:
        with knobs.target.override("cpu"):
            for count in (1, 2, 3):
                ts.set_num_threads(count)
                results.append([x.tobytes() for x in flat(case.program(*large))])
    finally:
        ts.set_num_threads(before)
    assert results[0] == results[1] == results[2]


# Random programs

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * 0.5 * y,
    "tanh": lambda x, y: ts.tanh(x),
    "where": lambda x, y: ts.where(x > y, x, -y),
    "centre": lambda x, y: x - ts.mean(x, axis=-1, keepdims=True),
    "softmax": lambda x, y: ts.softmax(x, axis=0) + y,
    "flip": lambda x, y: ts.flip(x, 1),
    "roll": lambda x, y: ts.roll(x, 1, 0),
    "matmul": lambda x, y: ts.tanh(x @ y.T) @ x,
    "cumsum": lambda x, y: ts.tanh(ts.cumsum(x, axis=1)),
    "slice": lambda x, y: ts.pad(x[1:], ((0, 1), (0, 0))) + y,
    "max": lambda x, y: x - ts.max(y, axis=0),
}
recipes = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9)), min_size=1, max_size=7)


@settings(max_examples=12)
@given(recipe=recipes, rows=st.integers(1, 5), columns=st.integers(1, 19))
def test_random_programs_agree(recipe: list[tuple[str, int]], rows: int, columns: int) -> None:
    chosen = tuple((STEPS[name], i) for name, i in recipe)

    @ts.function
    def program(x, y):
        values = [x, y]
        for step, i in chosen:
            values.append(step(values[-1], values[i % len(values)]))
        return values[-1]

    rng = np.random.default_rng(rows * 100 + columns)
    x, y = (rng.standard_normal((rows, columns)).astype(np.float64) for _ in range(2))
    results = []
    for target in ("cpu", "reference"):
        with knobs.target.override(target):
            results.append(program(x, y))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("target", TARGETS)
def test_integers_made_from_floats_saturate(target: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e10, -3e10, 2.9, -2.9], np.float32)
    with knobs.target.override(target):
        got = ts.function(lambda x: (ts.cast(x, ts.int32), ts.cast(x[:6], ts.uint8), ts.cast(x, ts.int64)))(x)
    assert got[0].tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2, -2]
    assert got[1].tolist() == [0, 255, 0, 255, 0, 2]
    assert got[2].tolist() == [0, 2**63 - 1, -(2**63), 30000001024, -30000001024, 2, -2]


@pytest.mark.parametrize("target", TARGETS)
def test_every_small_float_is_a_dtype(target: str) -> None:
    for name in ("fp8_e4m3", "fp8_e5m2", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1"):
        x = np.array([[0.5, 1, 1.5], [2, 3, 4]], np.float32).astype(getattr(ts, name).numpy)
        with knobs.target.override(target):
            np.testing.assert_array_equal(ts.function(lambda x: ts.cast(x, ts.f32) + 1)(x), x.astype(np.float32) + 1)
