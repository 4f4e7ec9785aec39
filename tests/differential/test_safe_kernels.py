"""The safe kernels against their formulas in float64, where no element of f32 overflows, and against PyTorch."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tessera as ts
from tessera import Tensor, kernels, knobs
from tessera.compiler.targets.cuda import host_library
from tessera.errors import CompileError
from tessera.kernels import attention_safe, layernorm_safe, logsumexp_safe, rmsnorm_safe, softmax_safe
from tests.conftest import require
from tests.together import ahead, builds

INF, NAN = math.inf, math.nan
TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCE = {"f64": 1e-13, "f32": 2e-6, "f16": 2e-3, "bf16": 1.5e-2}
RNG = np.random.default_rng(11)


def on(target: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> np.ndarray:
    if target.startswith("emulator"):
        require("g++")
    with knobs.target.override(target):
        return np.asarray(f(*args, **kwargs))


def exponentials(x: np.ndarray, axis: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest element, and exp of what lies below it, in float64: infinities by their limits."""
    x = x.astype(np.float64)
    top = x.max(axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        return top, np.exp(np.where(x == top, 0, x - top))


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    top, e = exponentials(x, axis)
    return np.where(top == -INF, 0, e / e.sum(axis, keepdims=True))


def logsumexp(x: np.ndarray, axis: Any = -1, keepdims: bool = False) -> np.ndarray:
    top, e = exponentials(x, axis)
    out = top + np.log(e.sum(axis, keepdims=True))
    return out if keepdims else out.squeeze(axis)


def layernorm(x: np.ndarray, w: Any = 1.0, b: Any = 0.0, axis: int = -1, eps: float = 1e-5) -> np.ndarray:
    x = x.astype(np.float64)
    far = x - x.mean(axis, keepdims=True)
    return rmsnorm(far, w, axis, eps) + b


def rmsnorm(x: np.ndarray, w: Any = 1.0, axis: int = -1, eps: float = 1e-6) -> np.ndarray:
    x = x.astype(np.float64)
    size = np.sqrt((x * x).mean(axis, keepdims=True) + eps)
    return x / np.where(size == 0, 1, size) * w


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, causal: bool = False, scale: float | None = None
) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -INF)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -INF)
    return softmax(scores) @ v


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


# every dtype, on every target


@TARGETS
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(3, 67), (2, 3, 5), (1,), (1, 1)])
def test_rows_agree_with_float64(shape: tuple[int, ...], name: str, target: str) -> None:
    x, tolerance = normal(*shape, dtype=DTYPES[name]), TOLERANCE[name]
    weight, bias = normal(shape[-1], dtype=x.dtype), normal(shape[-1], dtype=x.dtype)
    cases = [(softmax_safe, softmax, ()), (logsumexp_safe, logsumexp, ()), (rmsnorm_safe, rmsnorm, (weight,))]
    cases += [(layernorm_safe, layernorm, (weight, bias))]
    with host_library.together():
        for ours, _, parameters in cases:
            ahead(target, ours, x, *parameters)
    for ours, theirs, parameters in cases:
        got = on(target, ours, x, *parameters)
        assert got.dtype == x.dtype
        want = theirs(x, *(p.astype(np.float64) for p in parameters))
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance)


@TARGETS
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_any_axis(axis: int, target: str) -> None:
    x = normal(4, 6, 5)
    weight, bias = normal(x.shape[axis]), normal(x.shape[axis])
    line_up = (-1, *(1,) * (2 - axis % 3))
    near = {"rtol": 1e-5, "atol": 1e-5}
    with host_library.together():
        for f in (softmax_safe, logsumexp_safe):
            ahead(target, f, x, axis=axis)
        ahead(target, layernorm_safe, x, weight, bias, axis=axis, eps=1e-3)
        ahead(target, rmsnorm_safe, x, weight, axis=axis)
    np.testing.assert_allclose(on(target, softmax_safe, x, axis=axis), softmax(x, axis), **near)
    np.testing.assert_allclose(on(target, logsumexp_safe, x, axis=axis), logsumexp(x, axis), **near)
    want = layernorm(x, weight.reshape(line_up), bias.reshape(line_up), axis, 1e-3)
    np.testing.assert_allclose(on(target, layernorm_safe, x, weight, bias, axis=axis, eps=1e-3), want, **near)
    want = rmsnorm(x, weight.reshape(line_up), axis)
    np.testing.assert_allclose(on(target, rmsnorm_safe, x, weight, axis=axis), want, **near)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, (0, 2), 1])
def test_logsumexp_over_several_axes(axis: Any, keepdims: bool) -> None:
    x = normal(4, 6, 5)
    want = torch.logsumexp(torch.from_numpy(x), (0, 1, 2) if axis is None else axis, keepdims).numpy()
    got = np.asarray(logsumexp_safe(x, axis=axis, keepdims=keepdims))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)


def attention_call(case: str, name: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Arguments of a case, by position and by name."""
    q, k, v = normal(2, 2, 70, 16), normal(2, 2, 50, 16), normal(2, 2, 50, 24)
    mask = RNG.random((2, 2, 70, 50)) < 0.3
    mask[0, 1, 3] = False  # sees nothing
    cases: dict[str, dict[str, Any]] = {"causal": {"causal": True}, "mask": {"mask": mask}, "scale": {"scale": 0.5}}
    kwargs = {**cases, "mask of all heads": {"mask": mask[0, 1]}}.get(case, {})
    return [x.astype(DTYPES[name]) for x in (q, k, v)], kwargs


def attention_ahead(case: str, name: str, target: str) -> None:
    args, kwargs = attention_call(case, name)
    ahead(target, attention_safe, *args, **kwargs)


@builds(attention_ahead)
@TARGETS
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("case", ["plain", "causal", "mask", "mask of all heads", "scale"])
def test_attention_agrees_with_float64(case: str, name: str, target: str, built: None) -> None:
    (q, k, v), kwargs = attention_call(case, name)
    got = on(target, attention_safe, q, k, v, **kwargs)
    assert got.dtype == q.dtype
    tolerance = TOLERANCE[name]
    np.testing.assert_allclose(got.astype(np.float64), attention(q, k, v, **kwargs), rtol=tolerance, atol=tolerance)


def test_attention_agrees_with_pytorch() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 33, 8) for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    got = attention_safe(q, k, v, causal=True)
    assert isinstance(got, torch.Tensor)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80", "emulator:sm_90a"])
@pytest.mark.parametrize(("heads", "shared"), [(4, 2), (6, 2), (4, 1), (3, 3)])
def test_heads_of_keys_serve_groups_of_queries(heads: int, shared: int, target: str) -> None:
    """As if each head of K and V stood there as often as it is used: to the bit."""
    q, k, v = (normal(2, h, 35, 16).astype(np.float16) for h in (heads, shared, shared))
    mask = RNG.random((2, heads, 35, 35)) < 0.4
    mask[1, heads - 1, 5] = False  # sees nothing
    repeated = [np.repeat(x, heads // shared, axis=1) for x in (k, v)]
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for kwargs in ({"causal": True}, {"mask": mask}, {"mask": mask[:, :1], "causal": True}):
        cases.append((kwargs, {n: np.broadcast_to(x, mask.shape) if n == "mask" else x for n, x in kwargs.items()}))
    with host_library.together():
        for kwargs, full in cases:
            ahead(target, attention_safe, q, k, v, **kwargs)
            ahead(target, attention_safe, q, *repeated, **full)
    for kwargs, full in cases:
        got = on(target, attention_safe, q, k, v, **kwargs)
        want = on(target, attention_safe, q, *repeated, **full)
        assert got.shape == q.shape and got.tobytes() == want.tobytes()
        close = attention(q, *repeated, **full)
        np.testing.assert_allclose(got.astype(np.float64), close, rtol=2e-3, atol=2e-3)
        if "mask" in kwargs and kwargs["mask"].shape == mask.shape:
            assert (got[1, heads - 1, 5] == 0).all()


def test_grouped_heads_agree_with_pytorch() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, 33, 8) for h in (6, 2, 2))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attention_safe(q, k, v, causal=True), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        attention_safe(q, k[0], v[0]), attention_safe(q, k[:1].repeat(2, 1, 1, 1), v[:1].repeat(2, 1, 1, 1))
    )


@pytest.mark.parametrize(("heads", "keys"), [(4, 3), (2, 4)])
def test_heads_that_do_not_divide_are_refused(heads: int, keys: int) -> None:
    with pytest.raises(CompileError, match=r"TS207[\s\S]*so they cannot share them"):
        attention_safe(normal(heads, 5, 8), normal(keys, 5, 8), normal(keys, 5, 8))


# extremes

ROWS = np.array(
    [
        [1e38, -1e38, 1e38],
        [3e38, -3.4e38, 0],
        [-INF, -INF, -INF],
        [-INF, 0, 1],
        [INF, 0, 1],
        [INF, INF, -INF],
        [NAN, 0, 1],
        [0, 0, 0],
        [1e-38, 2e-38, 0],
    ],
    np.float32,
)
FINITE = ROWS[np.isfinite(ROWS).all(1)]


@TARGETS
def test_softmax_at_the_extremes(target: str) -> None:
    third = 1 / 3
    want = [[0.5, 0, 0.5], [1, 0, 0], [0, 0, 0], [0, 0.2689414, 0.7310586], [1, 0, 0], [0.5, 0.5, 0], [NAN] * 3]
    got = on(target, softmax_safe, ROWS)
    np.testing.assert_allclose(got, [*want, [third] * 3, [third] * 3], rtol=1e-6)


@TARGETS
def test_logsumexp_at_the_extremes(target: str) -> None:
    got = on(target, logsumexp_safe, ROWS)
    want = torch.logsumexp(torch.from_numpy(ROWS).double(), -1).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6)


@TARGETS
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_norms_at_the_extremes(eps: float, target: str) -> None:
    rows = FINITE if eps else FINITE[:3]  # without eps, 1e-38 has no square to speak of
    near = {"rtol": 1e-6, "atol": 1e-40}
    np.testing.assert_allclose(on(target, layernorm_safe, rows, eps=eps), layernorm(rows, eps=eps), **near)
    np.testing.assert_allclose(on(target, rmsnorm_safe, rows, eps=eps), rmsnorm(rows, eps=eps), **near)
    for f in (layernorm_safe, rmsnorm_safe):
        assert np.isnan(on(target, f, ROWS[~np.isfinite(ROWS).all(1)], eps=eps)).all()
    np.testing.assert_array_equal(on(target, layernorm_safe, np.zeros((2, 3), np.float32), eps=0.0), 0)


@TARGETS
@pytest.mark.parametrize("name", ["f32", "bf16", "f64"])
def test_attention_at_the_extremes(name: str, target: str) -> None:
    """Where products of queries and keys overflow, the limit is one key, or those of equal score in equal parts."""
    dtype, most = DTYPES[name], 2.0 ** (1023 if name == "f64" else 127)
    q, k, v = (normal(5, 8, dtype=dtype) for _ in range(3))
    ones, tolerance = np.ones((5, 8), dtype), TOLERANCE[name]

    def close(want: Any, *args: np.ndarray, **kwargs: Any) -> None:
        got = on(target, attention_safe, *args, **kwargs).astype(np.float64)
        np.testing.assert_allclose(got, np.asarray(want, np.float64), rtol=tolerance, atol=tolerance)

    def share(*args: np.ndarray, **kwargs: Any) -> np.ndarray:
        return on(target, attention_safe, *args, **kwargs).astype(np.float64)

    large = ones * dtype(most)
    np.testing.assert_allclose(share(q, k, large), large.astype(np.float64), rtol=tolerance)
    np.testing.assert_allclose(share(large, large, large), large.astype(np.float64), rtol=tolerance)
    signs = np.sign(q).astype(dtype)
    infinite = (signs.astype(np.float64) @ signs.T.astype(np.float64)) > 0
    close((infinite / infinite.sum(1, keepdims=True)) @ v.astype(np.float64), large * signs, large * signs, v)
    far = dtype(1e30) if name != "f64" else dtype(1e300)
    up, down = q * far, k / far
    close(attention(up, down, v), up, down, v)  # large times small is neither
    mask = np.ones((5, 5), bool)
    mask[2] = False
    assert (share(q, k, v, mask=mask)[2] == 0).all()
    k[3] = NAN
    seen = np.ones((5, 5), bool)
    seen[:, 3] = [False, False, True, False, False]
    got = share(q, k, v, mask=seen)
    assert np.isnan(got[2]).all() and np.isfinite(np.delete(got, 2, 0)).all()


@TARGETS
def test_nothing_is_a_valid_size(target: str) -> None:
    for shape in ((0, 5), (5, 0), (0, 0)):
        x = np.zeros(shape, np.float16)
        for f in (softmax_safe, layernorm_safe, rmsnorm_safe):
            assert on(target, f, x).shape == shape
        np.testing.assert_array_equal(on(target, logsumexp_safe, x), np.full(shape[0], -INF))
    some, none = np.ones((3, 8), np.float32), np.ones((0, 8), np.float32)
    np.testing.assert_array_equal(on(target, attention_safe, some, none, none), np.zeros((3, 8)))
    assert on(target, attention_safe, none, some, some).shape == (0, 8)


elements = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e38, -1e38, 3.4e38, -3.4e38, 1e-38, 1e-45, INF, -INF, NAN]),
    st.floats(width=32),
).map(np.float32)
matrices = hnp.arrays(np.float32, (3, 4), elements=elements)


@given(matrices)
def test_softmax_and_logsumexp_of_anything(x: np.ndarray) -> None:
    for target in ("cpu", "reference"):
        np.testing.assert_allclose(on(target, softmax_safe, x), softmax(x), rtol=1e-5, atol=1e-30)
        with np.errstate(over="ignore"):
            want = logsumexp(x).astype(np.float32)
        np.testing.assert_allclose(on(target, logsumexp_safe, x), want, rtol=1e-5, atol=1e-5)


@given(matrices)
def test_norms_of_anything(x: np.ndarray) -> None:
    """An element's own rounding is as large as the largest element's last bit, which the division magnifies."""
    finite = np.isfinite(x).all(1)
    for target in ("cpu", "reference"):
        for ours, theirs, eps in ((layernorm_safe, layernorm, 1e-5), (rmsnorm_safe, rmsnorm, 1e-6)):
            got = on(target, ours, x)
            assert np.isnan(got[~finite]).all()
            rows = x[finite].astype(np.float64)
            centred = rows - rows.mean(1, keepdims=True) if ours is layernorm_safe else rows
            size = np.sqrt((centred**2).mean(1) + eps)
            bound = 1e-5 + 1e-6 * np.abs(rows).max(1, initial=0) / size
            assert (np.abs(got[finite] - theirs(rows)).max(1, initial=0) <= bound).all()


@given(matrices, matrices, hnp.arrays(np.bool_, (3, 3)))
def test_attention_of_anything_finite_is_finite(q: np.ndarray, k: np.ndarray, mask: np.ndarray) -> None:
    q, k = np.nan_to_num(q), np.nan_to_num(k)
    v = np.array([[3.4e38, 1.0], [-3.4e38, 2.0], [3.4e38, 3.0]], np.float32)
    for target in ("cpu", "reference"):
        got = on(target, attention_safe, q, k, v, mask=mask)
        assert np.isfinite(got).all()
        assert (got[~mask.any(1)] == 0).all()
        assert (got[mask.any(1), 1] >= 0.999).all()  # a mean of some of 1, 2 and 3
        single = mask.sum(1) == 1
        np.testing.assert_array_equal(got[single], v[mask.argmax(1)][single])


# use


@ts.function
def head(x: Tensor["B", "D"], w: Tensor["D", "C"]) -> Tensor["B", "C"]:
    return softmax_safe(rmsnorm_safe(x) @ w)


def test_functions_inline_them() -> None:
    x, w = normal(5, 8), normal(8, 4)
    np.testing.assert_allclose(head(x, w), softmax(rmsnorm(x) @ w), rtol=1e-4)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_they_assemble_for_every_architecture(arch: str) -> None:
    require("cuda.bindings")
    x, w = np.zeros((2, 128, 64), ml_dtypes.bfloat16), np.zeros(64, np.float32)
    calls = [(softmax_safe, (x,)), (logsumexp_safe, (x,)), (layernorm_safe, (x, w, w)), (rmsnorm_safe, (x, w))]
    for f, args in [*calls, (attention_safe, (x, x, x))]:
        assert len(ts.compile(f, target=arch, arguments=args).explain().kernels) == 1, f.name


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("TS204", lambda x: softmax_safe(x, axis=2)),
        ("TS204", lambda x: layernorm_safe(x, axis=-3)),
        ("TS106", lambda x: softmax_safe(x.astype(np.int32))),
        ("TS106", lambda x: logsumexp_safe(x.astype(np.int32))),
        ("TS106", lambda x: rmsnorm_safe(x.astype(np.int32))),
        ("TS106", lambda x: rmsnorm_safe(x, eps=-1.0)),
        ("TS106", lambda x: layernorm_safe(x, x[0, :2].copy())),
        ("TS106", lambda x: layernorm_safe(x, None, x[0, :1].copy())),
    ],
)
def test_bad_arguments(code: str, call: Callable[[np.ndarray], Any]) -> None:
    with pytest.raises(CompileError) as caught:
        call(normal(3, 4))
    assert caught.value.diagnostics[0].code == code


def test_the_stubs_say_what_is_there() -> None:
    """Names, parameters and defaults of `__init__.pyi` are those of the functions."""
    folder = Path(kernels.__path__[0])
    classes = {n.name: n for n in ast.parse((folder / "__init__.pyi").read_text()).body if isinstance(n, ast.ClassDef)}
    stub = ast.parse((folder / "__init__.pyi").read_text()).body
    named = {n.target.id: n.annotation.id for n in stub if isinstance(n, ast.AnnAssign)}  # type: ignore[union-attr]
    assert sorted(named) == sorted(kernels.__all__) == dir(kernels)
    for name, cls in named.items():
        (call,) = classes[cls].body
        definition = getattr(kernels, name).definition().tree
        theirs, ours = call.args, definition.args  # type: ignore[union-attr]
        assert [a.arg for a in theirs.args[1:]] == [a.arg for a in ours.args], name
        assert [ast.unparse(d) for d in theirs.defaults] == [ast.unparse(d) for d in ours.defaults], name
    with pytest.raises(AttributeError, match="softmax_safe"):
        _ = kernels.softmax


@ts.function
def by_its_module(x: Tensor["N", "D"]):
    return ts.kernels.softmax_safe(x) + kernels.logsumexp_safe(x)[:, None], kernels.attention_safe(x, x, x)


def test_functions_reach_them_through_their_module():
    x = RNG.standard_normal((8, 16)).astype(np.float32)
    sums, attended = by_its_module(x)
    np.testing.assert_array_equal(sums, softmax_safe(x) + logsumexp_safe(x)[:, None])
    np.testing.assert_array_equal(attended, attention_safe(x, x, x))
