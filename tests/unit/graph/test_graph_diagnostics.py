"""What operators say when they reject their operands: code, words, counterexample, suggestion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY, InferError
from tessera.compiler.graph.operators.indexing import subscript
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes, policies
from tessera.language.dims import Facts
from tests.differential.operator_examples import function

B, S, D, H = map(dims.symbol, "BSDH")
f32, bf16, f16, int64, bool_ = dtypes.f32, dtypes.bf16, dtypes.f16, dtypes.int64, dtypes.bool_


def T(*shape: Any, dtype: dtypes.DType = f32) -> TensorType:
    return TensorType(shape, dtype)


X, BSD = T(B, S), T(B, S, D)
REJECTED: list[tuple[str, list[TensorType], Callable[..., Any], str]] = [
    ("TS202", [X, T(B)], lambda g, x, y: g.add(x, y), r"\[B, S\] and \[B\] do not broadcast: S meets B at axis -1"),
    ("TS202", [X], lambda g, x: g.broadcast_to(x, (B, 3)), r"\[B, S\] does not broadcast to \[B, 3\]"),
    (
        "TS203",
        [X, T(D, S)],
        lambda g, x, y: g.matmul(x, y),
        r"\[B, S\] @ \[D, S\]: contracted dimensions S and D differ",
    ),
    ("TS203", [T(4, 8), T(2, 3)], lambda g, x, w: g.linear(x, w), "8 and 3 differ"),
    (
        "TS203",
        [T(B, 5, S, D), T(B, 2, S, D)],
        lambda g, q, k: g.attention(q, k, k),
        "heads of q are not a multiple of heads of k",
    ),
    ("TS204", [X], lambda g, x: g.sum(x, axis=2), r"axis=2 is out of range for \[B, S\], which has 2 axes"),
    ("TS204", [X], lambda g, x: g.sum(x, axis=(0, -2)), "names an axis twice"),
    ("TS204", [X], lambda g, x: g.softmax(x, axis="S"), "must be an integer known at compile time, not 'S'"),
    ("TS204", [X], lambda g, x: g.transpose(x, (0, 0)), "not a permutation"),
    ("TS204", [BSD], lambda g, x: g.permute(x, 0, -1), r"permute names every axis, transpose\(0, 2\) exchanges two"),
    (
        "TS204",
        [BSD],
        lambda g, x: g.permute(x, (1,)),
        r"perm=\(1,\) is not a permutation of the 3 axes of \[B, S, D\]$",
    ),
    (
        "TS205",
        [T(4, 6)],
        lambda g, x: g.reshape(x, 5, 5),
        r"reshape of \[4, 6\] to \[5, 5\] does not keep the number of elements: 24, 25",
    ),
    ("TS205", [T(4, 6)], lambda g, x: g.reshape(x, -1, -1), "only one may be -1"),
    ("TS205", [X], lambda g, x: g.reshape(x, B, D), "B\\*S, B\\*D"),
    ("TS206", [X, T(B, D)], lambda g, x, y: g.concat([x, y]), "cannot be joined .* axis 1 is D, not S"),
    ("TS206", [X, T(B, S, 1)], lambda g, x, y: g.stack([x, y]), "tensors of one shape"),
    ("TS206", [], lambda g: g.concat([]), "at least one tensor"),
    ("TS207", [T(3, 4)], lambda g, x: subscript(g, x, 3), "index 3 is out of range for an axis of size 3"),
    ("TS207", [X], lambda g, x: subscript(g, x, (0, 0, 0)), "3 indices for 2 axes"),
    ("TS207", [X], lambda g, x: subscript(g, x, g.gt(x, 0)), "depends on its values"),
    ("TS207", [X], lambda g, x: subscript(g, x, "a"), "not an index"),
    ("TS210", [X, X], lambda g, x, y: g.einsum("ij,jk->ik", x), "speaks of 2 operands, 1 were given"),
    ("TS210", [X, T(D, B)], lambda g, x, y: g.einsum("ij,jk->ik", x, y), "j is S and D"),
    ("TS210", [X], lambda g, x: g.einsum("ijk->i", x), "'ijk' does not fit an operand with 2 axes"),
    ("TS210", [X], lambda g, x: g.einsum("ij->iz", x), "distinct letters that stand in an operand"),
    ("TS213", [X], lambda g, x: g.squeeze(x, 1), "whose size is not 1"),
    ("TS213", [T(B, 0)], lambda g, x: g.max(x, axis=1), "max of no elements is undefined"),
    ("TS213", [T(S)], lambda g, x: g.tril(x), "at least two axes"),
    ("TS213", [X, T(B)], lambda g, x, w: g.layer_norm(x, w), r"needs parameters of that shape, not \[B\]"),
    ("TS213", [T(7)], lambda g, x: g.split(x, 2), "does not split into 2 equal parts"),
    ("TS213", [X], lambda g, x: g.chunk(x, 2), "known size"),
    ("TS213", [X], lambda g, x: g.mse(x, x, reduction="avg"), "'mean', 'sum' or 'none'"),
    ("TS301", [T(B, dtype=bool_)], lambda g, x: g.exp(x), "exp takes number elements, not bool"),
    ("TS301", [X, X], lambda g, x, y: g.bit_and(x, y), "integers or bools, not f32"),
    ("TS301", [X, T(B, dtype=f32)], lambda g, x, i: g.take(x, i, axis=0), "take takes integer elements, not f32"),
    ("TS301", [X], lambda g, x: g.cast(x, "float99"), "'float99' is not a dtype"),
    ("TS301", [T(B, dtype=dtypes.complex64)], lambda g, x: g.cast(x, f32), "imaginary"),
    (
        "TS302",
        [T(B, dtype=f16), T(B, dtype=bf16)],
        lambda g, x, y: g.add(x, y),
        r"no common dtype; say which with cast\(x, f16\)",
    ),
    ("TS302", [T(B, dtype=dtypes.int8)], lambda g, x: g.add(x, 300), "300 does not fit int8"),
    ("TS301", [T(B, dtype=dtypes.uint32)], lambda g, x: g.pad(x, 1, value=-2), "-2 does not fit uint32"),
    (
        "TS105",
        [X, T(dtype=int64)],
        lambda g, x, i: g.sum(x, axis=i),
        r"axis of sum\(x, axis=None.*must be known at compile time",
    ),
]


def rejection(types: list[TensorType], body: Callable[..., Any], facts: Facts | None = None) -> InferError:
    with pytest.raises(InferError) as caught:
        function(types, body, facts)
    return caught.value


@pytest.mark.parametrize("code, types, body, words", REJECTED, ids=[f"{r[0]}-{i}" for i, r in enumerate(REJECTED)])
def test_rejections(code: str, types: list[TensorType], body: Callable[..., Any], words: str) -> None:
    import re

    error = rejection(types, body)
    assert error.diagnostic.code == code
    assert re.search(words, error.diagnostic.message), error.diagnostic.message


def test_a_mismatch_of_symbols_has_a_counterexample() -> None:
    error = rejection([X, T(D)], lambda g, x, y: g.add(x, y))
    assert "for example D=2, S=3: 3 is not 2" in error.diagnostic.notes[0].message


def test_matmul_suggests_the_transpose_that_fits() -> None:
    right = rejection([T(1024, 1024), T(2048, 1024)], lambda g, x, y: g.matmul(x, y))
    assert [(s.operand, s.suffix) for s in right.suggestions] == [(1, ".T")]
    left = rejection([T(S, B), T(S, D)], lambda g, x, y: g.matmul(x, y))
    assert [(s.operand, s.suffix) for s in left.suggestions] == [(0, ".T")]
    batched = rejection([BSD, T(B, S, D)], lambda g, x, y: g.matmul(x, y))
    assert [(s.operand, s.suffix) for s in batched.suggestions] == [(1, ".mT")]
    neither = rejection([T(1024, 1024), T(2048, 2048)], lambda g, x, y: g.matmul(x, y))
    assert not neither.suggestions


def test_nothing_is_suggested_where_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    operator = type(REGISTRY["matmul"])
    monkeypatch.setattr(operator, "suggestions", lambda *types: asked.append(types) or [])
    function([T(B, S), T(S, D)], lambda g, x, y: g.matmul(x, y))
    assert not asked
    rejection([T(B, S), T(D, D)], lambda g, x, y: g.matmul(x, y))
    assert len(asked) == 1


def test_policies_merge_and_conflict() -> None:
    wide = TensorType((B,), bf16, policies.parse("bf16 @accum(f32)"))
    scaled = TensorType((B,), bf16, policies.parse("@loss_scale(128.0)"))
    other = TensorType((B,), bf16, policies.parse("@accum(f64)"))
    func = function([wide, scaled], lambda g, x, y: (g.add(x, y), g.gt(x, y), g.sum(g.add(x, 1))))
    added, compared, total = (v.type for v in func.region.block.terminator.operands)
    assert str(added) == str(TensorType((B,), bf16, policies.parse("@accum(f32) @loss_scale(128.0)")))
    assert compared == TensorType((B,), bool_)
    assert total == TensorType((), bf16, policies.parse("@accum(f32)"))
    error = rejection([wide, other], lambda g, x, y: g.add(x, y))
    assert (
        error.diagnostic.code == "TS305" and "accum is f32 on one side and f64 on the other" in error.diagnostic.message
    )


def test_a_policy_widens_the_accumulator() -> None:
    import numpy as np

    from tessera.compiler.graph.reference import evaluate

    plain, wide = TensorType((B,), f32), TensorType((B,), f32, policies.parse("@accum(f64)"))
    x = np.array([1e8, 1, -1e8, 1e-3], np.float32)
    assert evaluate(function([plain], lambda g, v: g.cumsum(v, 0)), [x])[0][-1] != np.float32(1.001)
    assert evaluate(function([wide], lambda g, v: g.cumsum(v, 0)), [x])[0][-1] == np.float32(1.001)
    assert evaluate(function([wide], lambda g, v: g.sum(v)), [x])[0] == np.float32(1.001)


def test_asserts_prove_what_they_establish() -> None:
    facts = Facts()
    facts.assume_divisible(D, H)
    func = function([BSD], lambda g, x: g.reshape(g.reshape(x, (B, S, H, D // H)), (B, S, D)), facts)
    assert func.region.block.terminator.operands[0].type == BSD
    unproved: list[Any] = []

    def body(g: GraphBuilder, x: Any) -> Any:
        out = g.reshape(x, (B, S, H, D // H))
        unproved.extend(g.checks)
        return out

    function([BSD], body)
    assert len(unproved) == 1, "without the assert it is checked at launch"


def test_symbolic_indices_are_checked_at_launch() -> None:
    seen: list[Any] = []

    def body(g: GraphBuilder, x: Any) -> Any:
        out = subscript(g, x, (slice(1, None), 3))
        seen.extend(g.checks)
        return out

    func = function([X], body)
    assert func.region.block.terminator.operands[0].type == T(B - 1)
    env = {"B": 0, "S": 3}
    failed = [c for c in seen if dims.evaluate(c.left, env) != dims.evaluate(c.right, env)]
    assert len(failed) == 2 and all(
        dims.evaluate(c.left, {"B": 1, "S": 4}) == dims.evaluate(c.right, {"B": 1, "S": 4}) for c in seen
    )


@pytest.mark.parametrize(
    "call, words",
    [
        (((), {}), "softmax(x, axis=-1) needs 'x'"),
        ((("x",), {"axes": 1}), "no parameter 'axes'"),
        ((("x", 1), {"dim": 1}), "got 'axis' twice"),
        ((("x", 1, 2), {}), "takes 2 arguments, 3 were given"),
    ],
)
def test_calls_that_do_not_fit_the_signature(call: Any, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        REGISTRY["softmax"].bind(*call)
    assert words in str(caught.value)


def test_both_spellings_of_parameters() -> None:
    mean = REGISTRY["mean"]
    assert mean.bind(("x",), {"dim": 1, "keepdim": True}) == mean.bind(("x", 1, True), {})
    assert REGISTRY["transpose"].bind(("x", 2, 0, 1), {})[1] == {"perm": (2, 0, 1)}
    assert REGISTRY["einsum"].bind(("ij,jk", "x", "y"), {}) == ([["x", "y"]], {"equation": "ij,jk"})
    assert REGISTRY["var"].bind(("x",), {"ddof": 1})[1]["correction"] == 1
