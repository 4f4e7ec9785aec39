"""What transposes the result of a kernel is part of it: the kernel stores where the transposed result lies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Const, Tensor, f32, knobs
from tessera.compiler import levels
from tessera.compiler.frontend.analyse import analyse
from tests.conftest import require

require("g++")


def attention(
    x: Tensor["B", "S", "D", f32],
    wq: Tensor["D", "D", f32],
    wk: Tensor["D", "D", f32],
    wv: Tensor["D", "D", f32],
    wo: Tensor["D", "D", f32],
    H: Const,
):
    q = (x @ wq).reshape(B, S, H, D // H).permute(0, 2, 1, 3)
    k = (x @ wk).reshape(B, S, H, D // H).permute(0, 2, 1, 3)
    v = (x @ wv).reshape(B, S, H, D // H).permute(0, 2, 1, 3)
    p = ts.softmax(q @ k.transpose(-1, -2) / math.sqrt(D // H), axis=-1)
    return (p @ v).permute(0, 2, 1, 3).reshape(B, S, D) @ wo, p


def kernels(f: Any, **sizes: int) -> list[str]:
    func = levels.schedule(analyse(ts.function(f).definition(), None, sizes), {}, "cpu")
    return [str(op.attrs["label"]) for op in func.region.block.ops if op.name == "schedule.group"]


@pytest.mark.parametrize("sizes", [{"H": 4}, {"H": 4, "B": 2, "S": 16, "D": 32}], ids=["open", "known"])
def test_attention_copies_nothing(sizes: dict[str, int]) -> None:
    found = kernels(attention, **sizes)
    if "D" not in sizes:
        found.remove("sqrt")  # of a size that is not known
    assert found == [*["contract"] * 3, "contract+div", "max+sub+exp+sum+div", "contract", "contract"]


def heads(p: Any, v: Any) -> Any:
    return (p @ v).permute(0, 2, 1, 3).reshape(2, 6, 15)


def heads_with_epilogue(p: Any, v: Any) -> Any:
    return (ts.exp(p @ v) * 2).permute(0, 2, 1, 3).reshape(2, 6, 15)


def of_einsum(p: Any, v: Any) -> Any:
    return ts.einsum("bhqk,bhkd->bqhd", p, v) + 1


def rows(p: Any, v: Any) -> Any:
    return ts.softmax(v, axis=-1).permute(2, 0, 1, 3).reshape(12, 15)


def elements(p: Any, v: Any) -> Any:
    return ts.exp(v).permute(3, 0, 2, 1).reshape(10, 18)


def elements_go_on(p: Any, v: Any) -> Any:
    return (v + 1).transpose(-1, -2) * p[:, :, :5]


def sums(p: Any, v: Any) -> Any:
    return (ts.sum(v, axis=-1) * 2).permute(2, 1, 0)


def back_and_forth(p: Any, v: Any) -> Any:
    return ts.exp(ts.exp(v).permute(0, 2, 1, 3)).permute(0, 2, 1, 3)


ONE_KERNEL = [heads, heads_with_epilogue, of_einsum, rows, elements, elements_go_on, sums, back_and_forth]


def both(p: Any, v: Any) -> Any:
    y = ts.exp(v)
    return y, y.transpose(-1, -2)


def mixed(p: Any, v: Any) -> Any:
    y = ts.exp(p)
    return y + y.transpose(-1, -2)


def summed(p: Any, v: Any) -> Any:
    return ts.sum((v * 2).permute(0, 2, 1, 3), axis=(2, 3))


def last_axis(p: Any, v: Any) -> Any:
    return (p @ v).transpose(-1, -2)


def rows_of_two(p: Any, v: Any) -> Any:
    return (v[0, 0] @ ts.reshape(p[0, 0, :5], (5, 6))).reshape(2, 3, 6).permute(1, 0, 2)


MORE_KERNELS = [both, mixed, summed, last_axis, rows_of_two]


def given() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((2, 3, 6, 6), np.float32), rng.standard_normal((2, 3, 6, 5), np.float32)


def alone(f: Callable[..., Any]) -> Callable[..., Any]:
    """With every operator in a kernel of its own, and copies between them."""
    return ts.function(f).with_config(scheduler="unfused")


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
@pytest.mark.parametrize("f", ONE_KERNEL + MORE_KERNELS, ids=lambda f: f.__name__)
def test_bits_are_those_of_the_copied_form(f: Callable[..., Any], target: str) -> None:
    from tests.extension.unfused import unfused

    ts.scheduler.register("unfused")(unfused)
    with knobs.target.override(target):
        found, wanted = ts.function(f)(*given()), alone(f)(*given())
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("f", ONE_KERNEL + MORE_KERNELS, ids=lambda f: f.__name__)
def test_how_many_kernels_there_are(f: Callable[..., Any]) -> None:
    function = ts.function(f)
    function(*given())
    count = int(str(function.explain()).splitlines()[0].split(": ")[1].split()[0])
    assert (count == 1) == (f in ONE_KERNEL)


@pytest.mark.parametrize("dims", [{}, {"S": 6, "D": 5, "E": 7}], ids=["open", "known"])
def test_the_gradient_of_a_weight_is_stored_where_it_belongs(dims: dict[str, int]) -> None:
    def gradient(x: Tensor["S", "D", f32], w: Tensor["D", "E", f32], c: Tensor["S", "E", f32]):  # type: ignore[name-defined]
        return ts.grad(lambda w: ts.sum((x @ w) * c))(w)

    assert "copy" not in kernels(gradient, **dims)
    rng = np.random.default_rng(0)
    x, w, c = (rng.normal(size=s).astype(np.float32) for s in ((6, 5), (5, 7), (6, 7)))
    np.testing.assert_allclose(ts.compile(gradient, target="cpu", dims=dims)(x, w, c), x.T @ c, rtol=1e-5)
    with knobs.target.override("emulator:sm_80"):
        np.testing.assert_allclose(ts.function(gradient)(x, w, c), x.T @ c, rtol=1e-5)


def test_operands_change_places_only_where_that_saves_a_copy() -> None:
    def of_embedding(a: Tensor[6, 5, f32], b: Tensor[6, 7, f32]):
        return ts.einsum("sa,sb->ba", a, b).T  # what reads it turns it again: in order as it is

    def along_the_sum(a: Tensor[6, 5, f32], b: Tensor[5, 7, f32]):
        return (a @ b).T  # `a` would come to the right, and its columns do not lie in memory

    def sums_in_other_orders(a: Tensor[3, 4, 5, f32], b: Tensor[4, 3, 7, f32]):
        return ts.einsum("hka,khb->ba", a, b)  # with places changed, other terms would come first

    assert kernels(of_embedding) == ["contract"]
    assert kernels(along_the_sum) == ["contract", "copy"]
    assert "copy" in kernels(sums_in_other_orders)
    rng = np.random.default_rng(0)
    for f, shapes, want in (
        (of_embedding, ((6, 5), (6, 7)), lambda a, b: a.T @ b),
        (along_the_sum, ((6, 5), (5, 7)), lambda a, b: (a @ b).T),
        (sums_in_other_orders, ((3, 4, 5), (4, 3, 7)), lambda a, b: np.einsum("hka,khb->ba", a, b)),
    ):
        a, b = (rng.normal(size=s).astype(np.float32) for s in shapes)
        np.testing.assert_allclose(ts.function(f)(a, b), want(a, b), rtol=1e-5, atol=1e-6)
