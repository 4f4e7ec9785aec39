"""Functions that several devices share: what is cut, joined and combined for any kind of argument; what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.dist.arrays import tree
from tests.conftest import require

RNG = np.random.default_rng(0)
X, W, C = (RNG.standard_normal(s).astype(np.float32) for s in ((10, 16), (16, 8), (8,)))


@ts.distributed(ts.mesh(4))
@ts.function
def layer(x: Tensor["B", "D"], w: Tensor["D", "H"], c: Tensor["H"]):
    h = ts.gelu(x @ w + c)
    return ts.softmax(h, axis=-1), h.mean(axis=0), h.max()


@ts.function
def doubled(x: Tensor["B", "D"]):
    return x * 2


def same(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# results


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 10])
def test_parts_are_joined_and_combined(size: int) -> None:
    if size == 0:
        same(ts.distributed(4)(doubled)(X[:0]), X[:0])
        return
    (p, mean, top), (q, want, whole_top) = layer(X[:size], W, C), layer.single(X[:size], W, C)
    same(p, q)
    np.testing.assert_allclose(mean, want, rtol=1e-6, atol=1e-6)
    same(top, whole_top)


@pytest.mark.parametrize("axis, over", [(0, "B"), (1, "S"), (2, "D")])
def test_any_axis_can_be_the_one(axis: int, over: str) -> None:
    def f(x: Tensor["B", "S", "D"]):
        return ts.exp(x).transpose(2, 0, 1)

    program = ts.distributed(3, over=over)(f)
    x = RNG.standard_normal((4, 5, 7)).astype(np.float32)
    same(program(x), program.single(x))
    assert program.plan(x).partition.arguments[0].axis == axis


def test_an_axis_that_is_a_product() -> None:
    """Rows of one B lie together, so that parts of B are parts of B*S."""

    @ts.distributed(3)
    def f(x: Tensor["B", "S", "D"], w: Tensor["D", "D"]):
        return x.reshape(B * S, D) @ w

    x, w = RNG.standard_normal((7, 2, 4)).astype(np.float32), RNG.standard_normal((4, 4)).astype(np.float32)
    same(f(x, w), f.single(x, w))
    assert f.plan(x, w).partition.results[0].axis == 0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_the_number_of_parts_decides_the_bits_of_a_sum_and_nothing_else(n: int) -> None:
    @ts.function
    def total(x: Tensor["B", "D"]):
        return x.sum(axis=0), x.mean(), x.prod(axis=0), x.min(axis=0), (x > 0).any(axis=0)

    program = ts.distributed(ts.mesh(n))(total)
    parts = [total(p)[0] for p in np.array_split(X, n)]
    same(program(X)[0], tree(parts, np.add))
    same(program(X)[0], ts.distributed(ts.mesh(["cpu"] * n))(total)(X)[0])
    for found, want in zip(program(X)[1:], total(X)[1:], strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)


def test_the_tree_is_fixed() -> None:
    assert tree(["a", "b", "c", "d", "e"], lambda a, b: f"({a}{b})") == "(((ab)(cd))e)"


def test_nan_and_empty_parts() -> None:
    @ts.distributed(4)
    def f(x: Tensor["B", "D"]):
        return x.max(axis=0), x.sum(axis=0)

    x = X[:3].copy()
    x[1, 2] = np.nan
    top, total = f(x)
    assert np.isnan(top[2]) and np.isnan(total[2]) and not np.isnan(top[:2]).any()


def test_narrow_floats_are_combined_wide_and_rounded_once() -> None:
    @ts.distributed(8)
    def f(x: Tensor["B", "D", ts.bf16]):
        return x.sum(axis=0), x.mean(axis=0)

    x = np.full((8, 4), 1 / 3, ml_dtypes.bfloat16)
    total, mean = f(x)
    assert total.dtype == x.dtype
    same(total, (x[0].astype(np.float32) * 8).astype(x.dtype))
    same(mean, x[0])


# arguments


def libraries() -> list[Any]:
    return [pytest.param(n, id=n) for n in ("numpy", "torch", "jax", "tensor", "interface")]


class Exported:
    """An array of a library that is known by its protocol alone."""

    def __init__(self, data: Any) -> None:
        self.data = data

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.data.__array_interface__


def made(library: str, x: Any) -> Any:
    if library == "numpy":
        return x
    if library == "tensor":
        return ts.tensor(x)
    if library == "interface":
        return Exported(x)
    require(library)
    if library == "torch":
        import torch

        return torch.from_numpy(x.copy())
    import jax

    return jax.numpy.asarray(x)


@pytest.mark.parametrize("library", libraries())
def test_results_belong_to_the_library_of_the_arguments(library: str) -> None:
    args = [made(library, a) for a in (X, W, C)]
    whole = layer.single(*args)
    for found, want in zip(layer(*args), whole, strict=True):
        assert type(found) is type(want)
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-6, atol=1e-7)


def test_nested_arguments_keywords_defaults_and_numbers() -> None:
    @ts.distributed(3)
    def f(xs, s: ts.f32, y: Tensor["B"] | None = None, twice: bool = False, *, at: Tensor["B", "D"]):
        out = at * s
        for w in xs:
            out = out @ w
        out = out * 2 if twice else out
        return out if y is None else out + y[:, None]

    ws = [np.eye(16, dtype=np.float32) * 3, np.eye(16, dtype=np.float32)]
    y = np.arange(10, dtype=np.float32)
    same(f(ws, 2.0, at=X), f.single(ws, 2.0, at=X))
    same(f(ws, 2.0, y, True, at=X), X * 12 + y[:, None])
    assert len(f.distributor._plans) == 2
    same(f(ws, np.float32(3), at=X[:7]), f.single(ws, 3.0, at=X[:7]))
    assert len(f.distributor._plans) == 2, "sizes of the dim that is cut need no new plan"


GAIN = 2.0


@ts.distributed(2)
def gained(x: Tensor["B"]):
    return x * GAIN


def test_a_changed_global_changes_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    same(gained(C), C * 2)
    monkeypatch.setitem(globals(), "GAIN", 3.0)
    same(gained(C), C * np.float32(3))


SHIFT = np.arange(8, dtype=np.float32)


def test_arrays_from_outside_are_whole_for_each_part() -> None:
    @ts.distributed(3)
    def f(x: Tensor["B", "H"]):
        return x + SHIFT

    x = RNG.standard_normal((7, 8)).astype(np.float32)
    same(f(x), x + SHIFT)


def test_called_from_another_function_it_is_a_part_of_that() -> None:
    @ts.function
    def outer(x: Tensor["B", "D"], w: Tensor["D", "H"], c: Tensor["H"]):
        p, _, top = layer(x, w, c)
        return p * top

    p, _, top = layer.single(X, W, C)
    same(outer(X, W, C), p * top)


def test_methods_and_other_decorators() -> None:
    class Model:
        @ts.numerics(policy="@accum(f64)")
        @ts.distributed(3)
        @ts.function
        def f(self, x: Tensor["B", "D"]):
            return x.sum(axis=1)

    same(Model().f(X), Model.f.single(Model(), X))
    assert "distributed" in Model.f.options and "numerics" in Model.f.single.options


# what it says


def test_the_plan_is_readable() -> None:
    text = str(layer.plan())
    for line in (
        "layer over B, on data=4: 0, 1, 2, 3",
        "x          [B, D] f32               cut along axis 0",
        "w          [D, H] f32               whole for each part",
        "-> 0       [B, H] f32               joined along axis 0",
        "-> 1       [H] f32                  mean of the parts'",
        "sent between parts: all-reduce (mean) of [H] f32, 4*H bytes; all-reduce (max) of [] f32, 4 bytes",
    ):  # fmt: skip
        assert line in text, text
    assert "parts of B: 0:3 on cpu, 3:6 on cpu, 6:8 on cpu, 8:10 on cpu" in str(layer.plan(X, W, C))
    assert "sent between parts: nothing" in str(ts.distributed(doubled).plan())
    said = str(layer.explain())
    assert text in said and "contract+add+gelu" in said


def test_segments_orders_and_windows_go_by_parts() -> None:
    @ts.distributed(2, over="B")
    def lines(x: Tensor["B", "D"], at: Tensor["B", 3, ts.int64], image: Tensor["B", 2, 6, 6], w: Tensor[3, 2, 3, 3]):
        return ts.sort(x), ts.scatter_add(x, at, x[:, :3]), ts.max_pool2d(ts.conv2d(image, w, padding=1), 2)

    @ts.distributed(2, over="B")
    def folded(x: Tensor["B", "D"], ids: Tensor["B", ts.int64]):
        return ts.segment_sum(x, ids, 4), ts.segment_max(x, ids, 4)

    at, ids = RNG.integers(0, 16, (10, 3)), RNG.integers(-1, 5, 10)
    image, w = (RNG.standard_normal(s).astype(np.float32) for s in ((10, 2, 6, 6), (3, 2, 3, 3)))
    for f, arguments in ((lines, (X, at, image, w)), (folded, (X, ids))):
        for mine, whole in zip(f(*arguments), f.single(*arguments), strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(whole), 1e-6, 1e-6)

    @ts.distributed(2, over="D")
    def across(x: Tensor["B", "D"]):
        return ts.argsort(x)

    with pytest.raises(ts.TesseraError, match="compares elements all along D"):
        across(X)
