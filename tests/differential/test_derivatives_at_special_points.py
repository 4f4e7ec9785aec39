"""Adjoints where formulas fail: at zeros, ties and infinities, of complex numbers; and that no rule is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY, tensor
from tessera.compiler.graph.operators.derivatives import rules
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Builder
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.language import dtypes
from tessera.language.scalars import TABLE
from tests.conftest import require
from tests.differential.operator_examples import HERE, function

torch = require("torch")
INF = float("inf")


def pulled(name: str, ct: Any, *arrays: Any, **attrs: Any) -> list[np.ndarray]:
    """The cotangents of the operands that have one, given that of the result."""
    given = [np.asarray(a) for a in arrays]
    types = [TensorType(a.shape, dtypes.of(a.dtype)) for a in given]  # type: ignore[arg-type]
    func = function(types, lambda g, *xs: getattr(g, name)(*xs, **attrs))
    block = func.region.block
    op = block.ops[-2]
    cotangent = block.add_arg(tensor(op.result), "ct")
    func.attrs["arg_names"] = (*func.attrs["arg_names"], "ct")  # type: ignore[misc]
    block.terminator.erase()
    g = GraphBuilder(Builder(block, span=HERE))
    smooth = [v for v in block.args[:-1] if tensor(v).dtype.is_float or tensor(v).dtype.is_complex]
    found = pull_back(g, [op], smooth, [(op.result, cotangent)])
    g.builder.op("graph.return", [c for c in found if c is not None])
    verify(func)
    with np.errstate(all="ignore"):
        return evaluate(func, [*given, np.asarray(ct, tensor(cotangent).dtype.numpy)])


def of_torch(f: Any, ct: Any, *arrays: Any) -> list[np.ndarray]:
    leaves = [torch.tensor(np.asarray(a), requires_grad=np.asarray(a).dtype.kind == "f") for a in arrays]
    f(*leaves).backward(torch.tensor(np.asarray(ct)))
    return [x.grad.numpy() for x in leaves if x.grad is not None]


def test_no_rule_is_missing() -> None:
    for operator in REGISTRY.values():
        assert not operator.differentiable or operator.adjoint or operator.decompose, operator.name
    for name in TABLE:
        assert rules(name), name


def test_what_has_no_derivative_says_so() -> None:
    parts = {  # of `ts.linalg`'s operators, which have the rules
        "bidiagonal_values", "bidiagonal_vectors", "bidiagonal_vectors_in_steps", "bidiagonalize", "cholesky_lanes",
        "eigh_lanes", "eigvalsh_lanes", "lu_factor", "lu_factor_in_steps", "lu_factor_lanes", "qr_factor",
        "qr_lanes", "qr_multiply",
        "svd_lanes", "svdvals_lanes", "triangular_solve_lanes", "tridiagonal_values", "tridiagonal_vectors",
        "tridiagonal_vectors_in_steps", "tridiagonalize",
    }  # fmt: skip
    assert {o.name for o in REGISTRY.values() if not o.differentiable} - parts == {
        "all", "any", "arange", "argmax", "argmin", "argsort", "bernoulli", "bit_and", "bit_not", "bit_or", "bit_xor",
        "bitcast", "ceil",
        "count_nonzero", "eq", "eye", "floor", "floordiv", "full", "full_like", "ge", "gt", "iota", "isfinite", "isinf",
        "isnan", "le", "linspace", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "nextafter",
        "normal", "one_hot", "ones", "ones_like", "randint", "random_bits", "round", "shift_left", "shift_right",
        "roots_of_unity", "signbit", "stop_gradient", "trunc", "uniform", "zeros", "zeros_like",
    }  # fmt: skip


def test_exponents_of_bases_that_are_not_positive_get_zero() -> None:
    x, y = np.array([-2.0, 0, 0, 2, 0]), np.array([2.0, 2, 0, 3, 1])
    dx, dy = pulled("pow", np.ones(5), x, y)
    np.testing.assert_allclose(dx, [-4, 0, 0, 12, 1])
    np.testing.assert_allclose(dy, [0, 0, 0, 8 * np.log(2), 0])


@pytest.mark.parametrize("order", [1, 2, 3, 1.5, 0.5, INF, -INF])
def test_a_norm_at_zero_gives_zero(order: float) -> None:
    (found,) = pulled("norm", [1.0, 1.0], np.array([[0.0, 0, 0], [3, 0, -4]]), axis=1, ord=order)
    assert np.all(np.isfinite(found)) and (np.all(found[0] == 0))
    if 1 < order < INF:
        x = np.array([3.0, 0, -4])
        (want,) = of_torch(lambda v: torch.linalg.vector_norm(v, order), 1.0, x)
        np.testing.assert_allclose(found[1], want)


def test_other_origins() -> None:
    zero = np.zeros(2)
    for name in ("hypot", "atan2"):
        for found in pulled(name, np.ones(2), zero, zero):
            np.testing.assert_array_equal(found, zero)
    (found,) = pulled("std", 1.0, np.full(4, 3.0))
    np.testing.assert_array_equal(found, np.zeros(4))


def test_a_logarithm_that_nothing_is_multiplied_by() -> None:
    x, y = np.array([0.0, 0, 2, 0]), np.array([0.0, 2, 3, -1])
    want = of_torch(torch.xlogy, np.ones(4), x, y)
    for found, expected in zip(pulled("xlogy", np.ones(4), x, y), want, strict=True):
        np.testing.assert_allclose(found, np.nan_to_num(expected))  # PyTorch gives NaN for 0 / 0


def test_sums_of_nothing_but_negative_infinity() -> None:
    low = np.full(3, -INF)
    (found,) = pulled("logsumexp", 1.0, low)
    np.testing.assert_array_equal(found, np.zeros(3))
    for found in pulled("logaddexp", np.ones(3), low, low):
        np.testing.assert_array_equal(found, np.zeros(3))
    (mixed,) = pulled("logsumexp", 1.0, np.array([-INF, 0.0, 0.0]))
    np.testing.assert_array_equal(mixed, [0, 0.5, 0.5])


@pytest.mark.parametrize("x", [[2.0, 3, 4], [2, 0, 4], [0, 3, 0], [0, 0, 0], [5]])
def test_products_with_zeros(x: list[float]) -> None:
    given, weights = np.array(x, float), np.arange(1.0, len(x) + 1)
    np.testing.assert_allclose(pulled("prod", 2.0, given), of_torch(torch.prod, 2.0, given))
    want = of_torch(lambda v: torch.cumprod(v, 0), weights, given)
    np.testing.assert_allclose(pulled("cumprod", weights, given, axis=0), want)


def test_a_step_hands_nothing_on() -> None:
    """The slope of acos is infinite at 1: times the 0 of sign it would be NaN, in both modes."""
    x = np.full((), 2, np.float32)
    for f in (lambda x: ts.acos(ts.sign(x)), lambda x: ts.acos(ts.floor(x / 2))):
        assert float(ts.grad(f)(x)) == 0 and float(ts.jvp(f, (x,), (x,))[1]) == 0


def test_bounds_belong_to_the_inside() -> None:
    x = np.array([-1.0, 0, 0.5, 1, 2])
    for low, high in ((0.0, 1.0), (1.0, 0.0)):
        ends = np.full(5, low), np.full(5, high)
        want = of_torch(torch.clamp, np.ones(5), x, *ends)
        for found, expected in zip(pulled("clip", np.ones(5), x, *ends), want, strict=True):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(pulled("elu", np.ones(5), x), of_torch(torch.nn.functional.elu, np.ones(5), x))


def test_nothing_flows_through_integers() -> None:
    assert pulled("cast", [1, 1], np.array([1.5, 2.5]), dtype=dtypes.int32) == []
    assert pulled("cast", [1.0, 1.0], np.array([1, 2]), dtype=dtypes.f64) == []


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_attention_against_torch(mask: str, causal: bool) -> None:
    """Grouped heads; a query that sees no key gives no cotangent to anything."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, h, n, d)) for h, n, d in ((4, 5, 3), (2, 7, 3), (2, 7, 4)))
    ct = rng.normal(size=(2, 4, 5, 4))
    seen = rng.integers(0, 2, (5, 7)).astype(bool)
    seen[2] = False
    extra = [] if mask == "none" else [seen] if mask == "bool" else [rng.normal(size=(5, 7))]

    def peer(q: Any, k: Any, v: Any, m: Any = None) -> Any:
        scores = q @ k.repeat_interleave(2, 1).mT / 3**0.5
        if m is not None:
            scores = torch.where(m, scores, -INF) if m.dtype == torch.bool else scores + m
        scores = torch.where(torch.ones(5, 7).tril().bool(), scores, -INF) if causal else scores
        none = torch.all(scores == -INF, -1, keepdim=True)
        p = torch.where(none, 0.0, torch.softmax(torch.where(none, 0.0, scores), -1))
        return p @ v.repeat_interleave(2, 1)

    found = (
        pulled("attention", ct, q, k, v, *(extra or [None]), causal=causal)
        if extra
        else pulled("attention", ct, q, k, v, causal=causal)
    )
    want = of_torch(peer, ct, q, k, v, *extra)
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-10, 1e-12)


HOLOMORPHIC = ["exp", "log", "sqrt", "sin", "cosh", "tanh", "square", "reciprocal", "neg", "asinh", "acos", "acosh"]
PLAIN = {"abs": np.abs, "sign": np.sign, "real": np.real, "imag": np.imag, "conj": np.conj}


@pytest.mark.parametrize("name", [*HOLOMORPHIC, *PLAIN])
def test_complex_cotangents_pair_with_tangents_unconjugated(name: str) -> None:
    """Re(ct J v) = Re(J'ct v), for the tangent by differences."""
    rng = np.random.default_rng(1)
    z, v = (rng.uniform(0.2, 0.9, 4) + 1j * rng.uniform(0.2, 0.9, 4) for _ in range(2))
    f = PLAIN.get(name) or getattr(
        np, {"neg": "negative", "asinh": "arcsinh", "acos": "arccos", "acosh": "arccosh"}.get(name, name)
    )
    moved = (f(z + 1e-6 * v) - f(z - 1e-6 * v)) / 2e-6
    ct = rng.normal(size=4) + (1j * rng.normal(size=4) if np.iscomplexobj(f(z)) else 0)
    (found,) = pulled(name, ct, z)
    np.testing.assert_allclose(np.real(np.sum(ct * moved)), np.real(np.sum(found * v)), 1e-7)


def test_casts_to_complex_numbers_keep_the_real_part() -> None:
    (found,) = pulled("cast", [1 + 2j], np.array([3.0]), dtype=dtypes.complex128)
    np.testing.assert_array_equal(found, [1.0])
    x, y = pulled("make_complex", [1 + 2j], np.array([3.0]), np.array([4.0]))
    assert (x[0], y[0]) == (1, -2)
    np.testing.assert_allclose(
        pulled("var", 1.0, np.array([1 + 1j, 2, 3j])),
        [[0, 0, 0]] + (2 / 3) * np.conj(np.array([[1 + 1j, 2, 3j]]) - np.mean([1 + 1j, 2, 3j])),
    )
