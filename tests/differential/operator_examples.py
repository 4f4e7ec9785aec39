"""One or more examples of every operator, over symbolic sizes, from which the tests draw shapes, dtypes and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import REGISTRY
from tessera.compiler.ir.core import Block, Builder, Op, Region, Value
from tessera.compiler.ir.types import TensorType
from tessera.errors import Span
from tessera.language import dims, dtypes
from tessera.language.dims import Facts
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

HERE = Span("example.py", 1, 1, 1, 2)
FLOATS = (dtypes.f32, dtypes.f64, dtypes.bf16, dtypes.f16)
INTEGERS = (dtypes.int32, dtypes.int64, dtypes.int8, dtypes.uint8)
GROUPS: dict[str, tuple[DType, ...]] = {
    "float": FLOATS,
    "real": FLOATS + INTEGERS,
    "number": (*FLOATS, *INTEGERS, dtypes.complex64),
    "any": (*FLOATS, *INTEGERS, dtypes.bool_, dtypes.complex64),
    "integer": INTEGERS,
    "integral_or_bool": (*INTEGERS, dtypes.bool_),
    "bool": (dtypes.bool_,),
    "complex": (dtypes.complex64,),
    "ordered": (*FLOATS, *INTEGERS, dtypes.bool_),
    "wide": (dtypes.f32, dtypes.f64),
}
LONG = ("bidiagonal", "tridiagonal", "eig", "svd")
d = dims.parse


@dataclass(frozen=True)
class Arg:
    """An operand: sizes as text ("B S 3"), a group of dtypes or one dtype, and the range of its values."""

    shape: str
    group: str = "float"
    low: float = -3.0
    high: float = 3.0
    diagonal: float = 0.0
    """what is added to the diagonals of the last two axes"""
    symmetric: bool = False
    """whether an operator is defined for symmetric matrices only"""

    def sizes(self) -> tuple[dims.Dim, ...]:
        return tuple(d(s) for s in self.shape.split())

    def dtypes(self) -> tuple[DType, ...]:
        own = dtypes.named(self.group)
        return GROUPS.get(self.group, (own,) if own is not None else ())


@dataclass(frozen=True)
class Example:
    """`args` in the order of the operands: an Arg, a list of them for a variadic one, or None for an absent one."""

    name: str
    args: Sequence[Any] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    least: int = 0
    """the smallest size its symbols may have"""
    multiple: dict[str, int] = field(default_factory=dict)
    """symbols whose sizes are multiples of a number"""

    @property
    def is_long(self) -> bool:
        """Whether it is up to a hundred kernels, so that tests of each target try it on fewer shapes."""
        return self.name.startswith(LONG)

    def __str__(self) -> str:
        args = ", ".join(
            str([a.shape for a in x]) if isinstance(x, list) else "-" if x is None else f"[{x.shape}]"
            for x in self.args
        )
        attrs = "".join(f", {k}={v}" for k, v in self.attrs.items())
        return f"{self.name}({args}{attrs})"


def E(name: str, *args: Any, least: int = 0, multiple: dict[str, int] | None = None, **attrs: Any) -> Example:
    return Example(name, args, attrs, least, multiple or {})


POSITIVE = {"log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "log1p"}
NONZERO_RIGHT = {"div", "floordiv", "mod"}


def _scalar_examples() -> list[Example]:
    out: list[Example] = []
    for s in TABLE.values():
        low, high = (0.5, 4.0) if s.name in POSITIVE or s.name in ("pow",) else (-3.0, 3.0)
        x = Arg("B S", s.accepts, low, high)
        y = Arg("S", s.accepts, 1.0 if s.name in NONZERO_RIGHT else low, high)
        if s.name in ("shift_left", "shift_right"):
            x, y = Arg("B S", "integer", 0, 7), Arg("S", "integer", 0, 4)
        if s.name == "where":
            out.append(E("where", Arg("B 1", "bool"), Arg("S"), Arg("B S")))
        else:
            out.append(Example(s.name, (x, y, Arg("B 1", s.accepts))[: s.arity]))
    return out


X, XS = Arg("B S"), Arg("B S D")
EXACT_HEADS = [Arg("B 4 S D", "f32"), Arg("B 2 K D", "f32"), Arg("B 2 K E", "f32")]
HEADS = Arg("B 4 S D"), Arg("B 2 K D"), Arg("B 2 K E")
CALLED_BACK = Arg("B 4 S E"), Arg("B 4 S", "wide", 6.0, 9.0), Arg("B 4 S", "wide")
EXACT_BACK = Arg("B 4 S E", "f32"), Arg("B 4 S", "f32", 6.0, 9.0), Arg("B 4 S", "f32")
GENERAL, RIGHT = Arg("B S S", "wide", -1.0, 1.0, 4.0), Arg("B S D", "wide")
TRIANGULAR = Arg("B S S", "wide", -0.2, 0.2, 2.0)
ANY, REAL, INT = Arg("B S", "any"), Arg("B S", "real"), Arg("B S", "integer")
REDUCTIONS = [
    E(name, x, axis=axis, keepdims=keep, least=0)
    for name, x in [
        ("sum", ANY),
        ("prod", Arg("B S", "any", 0.5, 1.5)),
        ("max", REAL),
        ("min", REAL),
        ("any", ANY),
        ("all", ANY),
        ("argmax", REAL),
        ("argmin", REAL),
        ("mean", ANY),
        ("var", REAL),
        ("std", REAL),
        ("logsumexp", REAL),
        ("norm", Arg("B S", "number")),
    ]
    for axis, keep in [(None, False), (-1, True), (0, False)]
]
LINALG = [
    *(E("cholesky", Arg(shape, "wide", -0.2, 0.2, 16.0, True), upper=upper)
      for shape, upper in (("S S", False), ("B S S", False), ("E B S S", True))),
    *(E("triangular_solve", TRIANGULAR, b, lower=lower, trans=trans, unit=unit)
      for b, lower, trans, unit in ((RIGHT, True, False, False), (RIGHT, False, False, True),
                                    (RIGHT, True, True, True), (RIGHT, False, True, False),
                                    (Arg("B S 1", "wide"), True, False, False),
                                    (Arg("B S 1", "wide"), False, True, False),
                                    (Arg("B S 1", "wide"), True, True, True))),
    E("solve_triangular", TRIANGULAR, RIGHT, lower=True),
    E("solve_triangular", TRIANGULAR, Arg("S", "wide"), trans="T"),
    E("solve_triangular", Arg("S S", "wide", -0.2, 0.2, 2.0), RIGHT, unit_diagonal=True),
    *(E("cholesky", Arg(f"B {n} {n}", "wide", -0.2, 0.2, 16.0, True), upper=upper)
      for n, upper in ((5, False), (9, True))),
    *(E("cholesky_lanes", Arg("5 5 B", "wide", 0.9, 1.1), upper=upper) for upper in (False, True)),
    E("triangular_solve", Arg("B 6 6", "wide", -0.2, 0.2, 2.0), Arg("B 6 3", "wide"), lower=True),
    *(E("triangular_solve_lanes", Arg("5 5 B", "wide", 1.0, 2.0), Arg("5 3 B", "wide"), lower=lower, trans=trans,
        unit=unit) for lower, trans, unit in ((True, False, False), (True, True, True), (False, True, False))),
    E("lu_factor", Arg("B 6 6", "wide")), E("lu_factor_lanes", Arg("5 5 B", "wide")),
    E("lu_factor", GENERAL), E("lu_factor", Arg("S S", "wide", -1.0, 1.0, 4.0)),
    E("lu_factor_in_steps", GENERAL), E("lu_factor_in_steps", Arg("S S", "wide", -1.0, 1.0, 4.0)),
    E("solve_square", GENERAL, RIGHT), E("solve_square", GENERAL, RIGHT, trans=True),
    E("solve", GENERAL, RIGHT), E("solve", GENERAL, Arg("S", "wide")), E("solve", GENERAL, Arg("E 1 S D", "wide")),
    E("solve", Arg("S S", "wide", -1.0, 1.0, 4.0), RIGHT),
    E("inv", GENERAL), E("det", Arg("B S S", "wide", -0.1, 0.1, 1.0)), E("slogdet", GENERAL),
    E("qr_factor", Arg("B S D", "wide")), E("qr_factor", Arg("D S", "wide")),
    *(E("qr_multiply", Arg("B 8 8", "wide"), Arg("B 32 32", "wide", -0.5, 0.5), Arg("B 8 D", "wide"), trans=trans)
      for trans in (False, True)),
    E("qr_multiply", Arg("B 8 8", "wide"), Arg("B 32 32", "wide", -0.5, 0.5), Arg("B 8 D", "wide"), below=1),
    E("tridiagonalize", Arg("B D D", "wide", symmetric=True)), E("tridiagonalize", Arg("D D", "wide", symmetric=True)),
    *(E("tridiagonal_values", Arg(f"{b}S", "wide"), Arg(f"{b}S", "wide")) for b in ("B ", "E B ", "")),
    *(E(name, Arg(f"{b}5", "wide"), Arg(f"{b}5", "wide"), Arg(f"{b}5 5", "wide"))
      for name in ("tridiagonal_vectors", "tridiagonal_vectors_in_steps") for b in ("B ", "E B ", "")),
    *(E(name, Arg(f"{b}{n} {n}", "wide", symmetric=True)) for name in ("eigh", "eigvalsh")
      for b, n in (("B ", 5), ("E B ", 3), ("", 6), ("B ", 17))),
    *(E(name, Arg(f"{b}4 4 6", "wide")) for name in ("eigh_lanes", "eigvalsh_lanes", "svd_lanes", "svdvals_lanes")
      for b in ("B ", "E B ")),
    E("bidiagonalize", Arg("B D D", "f64")), E("bidiagonalize", Arg("D D", "f64")),  # rounding grows with each row
    E("bidiagonalize", Arg("B 6 6", "wide")),
    *(E("bidiagonal_values", Arg(f"{b}5", "wide"), Arg(f"{b}5", "wide")) for b in ("B ", "E B ", "")),
    *(E(name, Arg(f"{b}5", "wide"), Arg(f"{b}5", "wide"), Arg(f"{b}5 5", "wide"), Arg(f"{b}5 5", "wide"))
      for name in ("bidiagonal_vectors", "bidiagonal_vectors_in_steps") for b in ("B ", "E B ", "")),
    *(E("svd", Arg(shape, "wide"), full_matrices=full)
      for shape, full in (("B 4 4", False), ("E B 5 3", True), ("4 6", True), ("B 3 4", False),
                           ("B 17 18", False))),
    *(E("svdvals", Arg(shape, "wide")) for shape in ("B 4 4", "E B 5 3", "3 5", "18 17")),
    E("qr_lanes", Arg("5 4 B", "wide"), k=5), E("qr_lanes", Arg("4 6 B", "wide"), k=4), E("qr", Arg("B 6 4", "wide")),
    E("qr", Arg("B S S", "wide")), E("qr", Arg("B 18 20", "wide")), E("qr", Arg("S S", "wide"), mode="complete"),
]  # fmt: skip
EXAMPLES: list[Example] = [
    *_scalar_examples(),
    *LINALG,
    E("cast", X, dtype=dtypes.bf16),
    E("cast", X, dtype=dtypes.int32),
    E("cast", ANY, dtype=dtypes.complex64),
    E("cast", X, dtype=dtypes.bool_),
    E("cast", X, dtype=dtypes.fp8_e4m3),
    E("bitcast", Arg("B S", "f32"), dtype=dtypes.uint32),
    E("bitcast", Arg("B S", "bf16"), dtype=dtypes.int16),
    E("bitcast", Arg("S", "int64"), dtype=dtypes.uint64),
    E("saturate_cast", REAL, dtype=dtypes.f16),
    E("saturate_cast", REAL, dtype=dtypes.int8),
    E("saturate_cast", REAL, dtype=dtypes.fp8_e5m2),
    E("stochastic_cast", X, Arg("", "integer", 0, 9), dtype=dtypes.bf16),
    E("stochastic_cast", X, Arg("", "integer", 0, 9), dtype=dtypes.fp4_e2m1),
    E("stochastic_cast", X, Arg("", "integer", 0, 9), dtype=dtypes.f64),
    E("stop_gradient", Arg("B S", "any")),
    E("straight_through", X, X),
    E("recalled", X, X),
    E("clip", REAL, Arg("S", "real", -1, 0), Arg("", "real", 0, 1)),
    E("clip", X, None, Arg("B 1")),
    E("clip", X, Arg("S"), None),
    E("hypot", X, Arg("S")),
    E("asin", Arg("B S", "number", -0.9, 0.9)),
    E("acos", Arg("B S", "number", -0.9, 0.9)),
    E("asinh", Arg("B S", "number")),
    E("acosh", Arg("B S", "real", 1.5, 4.0)),
    E("acosh", Arg("B S", "complex64", 1.5, 4.0)),
    E("atanh", Arg("B S", "float", -0.9, 0.9)),
    E("atanh", Arg("B S", "complex64", 0.2, 0.8)),
    E("conj", Arg("B S", "number")),
    E("positive", Arg("B S", "number")),
    E("signbit", Arg("B S", "integer")),
    E("copysign", X, Arg("S")),
    E("logaddexp", X, Arg("S")),
    E("xlogy", X, Arg("S", "float", 0.5, 3)),
    E("nextafter", Arg("B S", "wide"), Arg("S", "wide")),
    E("count_nonzero", ANY, axis=-1, keepdims=True),
    E("count_nonzero", ANY, axis=None),
    E("cumulative_sum", ANY, axis=0),
    E("cumulative_sum", X, axis=-1, include_initial=True),
    E("cumulative_sum", Arg("B S", "integer"), axis=1, dtype=dtypes.f32),
    E("cumulative_prod", Arg("B", "float", 0.5, 1.5), include_initial=True),
    E("unstack", Arg("B 3 S", "any"), axis=1),
    E("moveaxis", Arg("B S D", "any"), source=0, destination=-1),
    E("moveaxis", Arg("B S D", "any"), source=(0, 2), destination=(1, 0)),
    E("diff", Arg("B S", "number"), None, None, axis=-1, n=1, least=1),
    E("diff", Arg("B 4"), Arg("B 1"), Arg("B 2"), axis=1, n=2),
    E("vecdot", Arg("B S", "number"), Arg("S", "number")),
    E("vecdot", Arg("B S D"), Arg("S D"), axis=-2),
    E("tensordot", Arg("B S D"), Arg("S D E"), axes=2),
    E("tensordot", Arg("B S", "number"), Arg("D B", "number"), axes=((0,), (1,))),
    E("matmul", Arg("B S", "bool"), Arg("S D", "bool")),
    *[E(name, Arg("B S", "bool"), axis=-1, least=1) for name in ("max", "min", "argmax", "argmin")],
    *[E(name, Arg("B S", "bool"), Arg("S", "bool")) for name in ("maximum", "minimum", "lt", "le", "gt", "ge")],
    *[E(name, Arg("B S", "integer")) for name in ("floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite")],
    *[
        E(name, Arg("B S", "complex64", 0.1, 0.9))
        for name in (
            "sin",
            "cos",
            "tan",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "expm1",
            "log1p",
            "log2",
            "log10",
            "sign",
            "round",
            "isnan",
            "isinf",
            "isfinite",
        )
    ],
    E("real", Arg("B S", "real")),
    E("imag", Arg("B S", "real")),
    E("var", Arg("B S", "complex64"), axis=0, least=1),
    E("std", Arg("B S", "complex64"), axis=-1, correction=0.5, least=2),
    E("lerp", X, Arg("S"), Arg("")),
    E("masked_fill", ANY, Arg("B 1", "bool"), Arg("")),
    *REDUCTIONS,
    E("sum", XS, axis=(0, 2), keepdims=False),
    E("var", X, axis=1, correction=1, keepdims=True, least=2),
    E("norm", X, ord=1, axis=-1),
    E("norm", X, ord=float("inf"), least=1),
    E("norm", X, ord=3.0, axis=(0, 1)),
    E("norm", X, ord=float("-inf"), axis=0, least=1),
    E("cumsum", ANY, axis=-1),
    E("cumsum", X, axis=None),
    E("cumprod", Arg("B S", "any", 0.5, 1.5), axis=0),
    E("cumprod", Arg("B S", "float", 0.5, 1.5), axis=None),
    E("cummax", Arg("B S", "real"), axis=-1),
    E("cummax", Arg("B S", "float"), axis=None),
    E("cummin", Arg("B S", "real"), axis=0),
    E("recurrence", Arg("B S", "float"), Arg("B S", "float"), axis=1),
    E("recurrence", Arg("B S D", "float", -1, 1), Arg("B S D", "float"), axis=1, reverse=True),
    E("recurrence", Arg("S", "complex", -1, 1), Arg("S", "complex"), axis=0),
    E("contract", Arg("B S D"), Arg("B D E"), lhs="bik", rhs="bkj", out="bij"),
    E("contract", Arg("S B D"), Arg("D"), lhs="ibk", rhs="k", out="ib"),
    E("matmul", X, Arg("S D")),
    E("matmul", Arg("B S", "number"), Arg("S", "number")),
    E("matmul", Arg("S"), Arg("S D")),
    E("matmul", Arg("S"), Arg("S")),
    E("matmul", Arg("B 1 S D"), Arg("E D S")),
    E("matmul", Arg("B S D"), Arg("D 3")),
    E("matmul", Arg("D"), Arg("B D S")),
    E("dot", Arg("B S D"), Arg("E D 2")),
    E("dot", Arg("S"), Arg("S")),
    E("dot", Arg(""), X),
    E("outer", X, Arg("D")),
    E("einsum", [Arg("B S D"), Arg("B D E")], equation="bik,bkj->bij"),
    E("einsum", [Arg("B S D"), Arg("E D")], equation="...k,jk->...j"),
    E("einsum", [Arg("B B")], equation="ii"),
    E("einsum", [Arg("B S S")], equation="...ii->...i"),
    E("einsum", [X, X, Arg("S D")], equation="ij,ij,jk->k"),
    E("einsum", [X, Arg("S D"), Arg("D")], equation="ab,bc,c"),
    E("einsum", [XS], equation="abc->ca"),
    E("einsum", [Arg("B 1 D"), Arg("S D E")], equation="...d,...de->...e"),
    E("einsum", [X, Arg("D")], equation="ij,k->kij"),
    E("transpose", XS),
    E("transpose", XS, perm=(2, 0, -2)),
    E("permute", XS, perm=(2, 0, -2)),
    E("permute", X, perm=(0, 1)),
    E("swapaxes", XS, axis1=0, axis2=-1),
    E("matrix_transpose", XS),
    E("reshape", XS, shape=(d("S"), d("B*D"))),
    E("reshape", XS, shape=(-1, d("D")), least=1),
    E("reshape", Arg("6 S"), shape=(d("S"), 2, 3)),
    E("reshape", Arg("1 1"), shape=()),
    E("broadcast_to", X, shape=(4, d("B"), d("S"))),
    E("broadcast_to", Arg("B 1"), shape=(-1, d("D"))),
    E("broadcast_to", Arg(""), shape=(d("D"),)),
    E("slice", Arg("B 5"), start=(0, 1), stop=(d("B"), 5), step=(1, 2)),
    E("slice", Arg("S+2 D"), start=(1, 0), stop=(d("S+1"), d("D"))),
    E("flip", XS, axis=None),
    E("flip", XS, axis=1),
    E("flip", XS, axis=(0, -1)),
    E("squeeze", Arg("B 1 S 1"), axis=None),
    E("squeeze", Arg("B 1 S 1"), axis=(1,)),
    E("unsqueeze", X, axis=1),
    E("unsqueeze", X, axis=(0, -1)),
    E("flatten", XS),
    E("flatten", XS, start=1),
    E("flatten", Arg("")),
    E("concat", [X, Arg("B D"), Arg("B 2")], axis=1),
    E("concat", [X], axis=0),
    E("stack", [X, X, X], axis=-1),
    E("stack", [X, X]),
    E("pad", X, pad_width=((1, 2), (0, d("D")))),
    E("pad", X, pad_width=1, value=float("-inf")),
    E("pad", Arg("S", "any"), pad_width=(2, 0)),
    E("split", Arg("B 2*S"), sections=2, axis=1),
    E("split", Arg("7 B"), sections=(2, 5)),
    E("chunk", Arg("7 B"), chunks=3),
    E("chunk", Arg("B 4"), chunks=2, axis=-1),
    E("roll", X, shift=1, axis=0),
    E("roll", X, shift=(-1, 2), axis=(0, 1)),
    E("roll", X, shift=3),
    E("roll", Arg("B 5"), shift=-2, axis=1),
    E("repeat", X, repeats=2, axis=1),
    E("repeat", X, repeats=3),
    E("tile", X, reps=(2, 1, 3)),
    E("tile", XS, reps=(2,)),
    E("take", XS, Arg("2 3", "integer", -1, 2), axis=1),
    E("take", Arg("B S", "any"), Arg("4", "integer", -9, 9)),
    E("take", X, Arg("", "integer", 0, 5), axis=-1),
    E("take_along_axis", X, Arg("B 3", "integer", -4, 5), axis=1),
    E("take_along_axis", XS, Arg("B 1 D", "integer", 0, 3), axis=1),
    E("take_along_axis", Arg("1 S"), Arg("B S", "integer", 0, 1), axis=0),
    E("one_hot", Arg("B S", "integer", -1, 4), depth=3),
    E("one_hot", Arg("B", "integer", 0, 4), depth=d("S"), dtype=dtypes.bool_),
    E("tril", XS),
    E("tril", X, k=1),
    E("tril", Arg("S S", "bool")),
    E("triu", X, k=-1),
    E("triu", Arg("S S", "any")),
    E("iota", shape=(d("B"), 4), axis=1),
    E("iota", shape=(3,), dtype=dtypes.f32),
    E("full", shape=(d("B"), 2), value=2.5),
    E("full", shape=(2,), value=d("B*S"), dtype=dtypes.f32),
    E("zeros", shape=(d("B"), 3)),
    E("ones", shape=(2, 2), dtype=dtypes.int8),
    E("zeros_like", ANY),
    E("ones_like", X, dtype=dtypes.bool_),
    E("full_like", X, value=7),
    E("arange", start=5),
    E("arange", start=d("B")),
    E("arange", start=2, stop=d("S"), step=3, least=2),
    E("arange", start=7, stop=-2, step=-2, dtype=dtypes.f32),
    E("arange", start=0.0, stop=1.0, step=0.25),
    E("linspace", start=-1.0, stop=2.0, num=7),
    E("linspace", start=0.0, stop=1.0, num=1),
    E("eye", n=3),
    E("eye", n=d("B"), m=4, k=1, dtype=dtypes.int32),
    E("softmax", X, axis=-1, least=1),
    E("softmax", XS, axis=0, least=1),
    E("log_softmax", X, axis=1, least=1),
    E("layer_norm", X, None, None, least=1),
    E("layer_norm", XS, Arg("D"), Arg("D"), least=1),
    E("layer_norm", XS, Arg("B D"), None, axis=(0, 2), least=1),
    E("rms_norm", X, Arg("S"), least=1),
    E("rms_norm", XS, None, axis=1, least=1),
    E("segment_sum", Arg("B S", "any"), Arg("B", "integer", -1, 3), num_segments=3),
    E("segment_sum", Arg("B S D"), Arg("S", "integer", -1, 5), num_segments=d("K"), axis=1),
    E("segment_max", Arg("B S", "ordered"), Arg("B", "integer", -1, 4), num_segments=3, least=1),
    E("segment_min", Arg("S"), Arg("S", "integer", -1, 4), num_segments=d("B")),
    E("scatter", Arg("B 4"), Arg("B 3", "integer", -4, 6), Arg("B 3")),
    E("scatter", Arg("S D", "any"), Arg("B D", "integer", -1, 3), Arg("B D", "any"), axis=0),
    E("scatter_add", Arg("B 4", "number"), Arg("B 3", "integer", -4, 6), Arg("B 3", "number")),
    E("put", Arg("B 4 D", "any"), Arg("S", "integer", -5, 6), Arg("B S D", "any"), axis=1),
    E("put", Arg("S D"), Arg("", "integer", -1, 2), Arg("D")),
    E("put", Arg("B 3"), Arg("2 2", "integer", -4, 4), Arg("B 2 2"), axis=-1),
    E("sort", Arg("B S", "ordered")),
    E("sort", XS, axis=1, descending=True),
    E("argsort", Arg("B S", "ordered", 0, 3), descending=True),
    E("argsort", Arg("S D", "integer", 0, 3), axis=0),
    E("dft", Arg("B S", "complex"), None, least=1),
    E("dft", Arg("B 6 D", "complex"), None, axis=1, inverse=True, power=-1),
    E("dft", Arg("B 17", "complex"), None, power=-0.5),
    E("dft", Arg("67 D", "complex"), None, axis=0, inverse=True),
    E("dft", Arg("8 D", "wide"), Arg("8 D", "wide"), axis=0, inverse=True),
    E("dft", Arg("B S", "wide"), Arg("B S", "wide"), least=1),
    E("rdft", Arg("B S"), axis=0, least=1),
    E("rdft", Arg("B 12 D"), axis=1, power=-0.5),
    E("irdft", Arg("B S//2+1", "complex"), n=d("S"), least=1),
    E("irdft", Arg("5 D", "complex"), n=8, axis=0, power=-1),
    E("fit_length", Arg("B S", "any"), n=3, axis=0),
    E("fit_length", Arg("B 4", "any"), n=d("S")),
    E("roots_of_unity", n=12, count=5),
    E("roots_of_unity", n=6, count=6, form="matrix", conjugate=True, dtype=dtypes.complex128),
    E("roots_of_unity", n=5, count=16, form="response"),
    E("roots_of_unity", n=5, count=5, form="chirp", conjugate=True),
    E("topk", Arg("B 6"), k=4),
    E("topk", Arg("7 S", "real", 0, 4), k=3, axis=0, largest=False),
    E("attention", Arg("B 4 S D"), Arg("B 4 K D"), Arg("B 4 K E"), None, None, None, least=1),
    E("attention", Arg("B 4 S D"), Arg("B 2 K D"), Arg("B 2 K D"), None, None, None, causal=True, least=1),
    E("attention", Arg("S D"), Arg("K D"), Arg("K E"), Arg("S K", "bool"), None, None, least=1),
    E("attention", Arg("B S D"), Arg("B K D"), Arg("B K D"), Arg("K", "f32"), None, None, scale=0.5, least=1),
    E(
        "attention",
        Arg("H S D"),
        Arg("2 K D"),
        Arg("2 K D"),
        Arg("H S K", "bool"),
        None,
        Arg("", "integer", -1, 3),
        causal=True,
        least=1,
        multiple={"H": 2},
    ),
    E(
        "attention",
        Arg("B 2 S D"),
        Arg("B 2 K D"),
        Arg("B 2 K E"),
        None,
        Arg("B", "integer", 0, 5),
        None,
        window=2,
        least=1,
    ),
    E(
        "attention",
        Arg("B 2 S D"),
        Arg("B 1 K D"),
        Arg("B 1 K E"),
        Arg("2 1 K"),
        None,
        Arg("B", "integer", -1, 3),
        causal=True,
        softcap=2.0,
        least=1,
    ),
    E(
        "attention_with_logsumexp",
        *HEADS,
        None,
        Arg("B", "integer", 0, 5),
        Arg("B", "integer", -1, 3),
        causal=True,
        least=1,
    ),
    E("attention_with_logsumexp", *HEADS, Arg("K", "f32"), None, None, softcap=2.0, least=1),
    E("attention_forward", *HEADS, Arg("B 1 1 K"), Arg("B", "integer", 0, 5), None, None, softcap=2.0, least=1),
    E("attention_forward", *HEADS, None, None, None, None, causal=True, window=2, scale=0.5, least=1),
    E(
        "attention_forward",
        *HEADS,
        None,
        Arg("B", "integer", 0, 5),
        Arg("B", "integer", -2, 3),
        None,
        causal=True,
        least=1,
    ),
    E("attention_forward", *EXACT_HEADS, Arg("1 4 1 K", "bool"), None, None, None, hidden=-9.0, literal=True, least=1),
    E(
        "attention_backward_queries",
        *HEADS,
        None,
        None,
        Arg("B", "integer", -2, 3),
        *CALLED_BACK,
        causal=True,
        softcap=2.0,
        least=1,
    ),
    E(
        "attention_backward_keys",
        *HEADS,
        Arg("1 4 S K", "bool"),
        None,
        Arg("B", "integer", -2, 3),
        *CALLED_BACK,
        window=2,
        least=1,
    ),
    E("attention_backward", *EXACT_HEADS, Arg("1 4 1 K", "f32"), Arg("B", "integer", 0, 5), None, *EXACT_BACK, least=1),
    E("attention_backward", *EXACT_HEADS, None, None, None, *EXACT_BACK, causal=True, window=2, softcap=2.0, least=1),
    E("attention_backward_bias", *HEADS, Arg("1 4 1 K"), Arg("B", "integer", 0, 5), None, *CALLED_BACK, least=1),
    E(
        "attention_backward_bias",
        *HEADS,
        Arg("B 1 1 K"),
        None,
        Arg("B", "integer", -2, 3),
        *CALLED_BACK,
        causal=True,
        least=1,
    ),
    E("cross_entropy", Arg("B 5"), Arg("B", "integer", 0, 5), least=1),
    E("cross_entropy", Arg("B S 5"), Arg("B S", "integer", 0, 5), reduction="none", label_smoothing=0.1),
    E("cross_entropy", Arg("5"), Arg("", "integer", 0, 5), reduction="sum"),
    E("mse", X, Arg("S"), least=1),
    E("mse", X, X, reduction="none"),
    E("linear", XS, Arg("E D"), Arg("E")),
    E("linear", Arg("D"), Arg("E D"), None),
    E("embedding", Arg("B S", "integer", -1, 3), Arg("3 D")),
    E("batch_norm", Arg("B 3 S"), None, None, Arg("3"), Arg("3"), least=1),
    E("batch_norm", Arg("B E"), Arg("E"), Arg("E", "float", 0.5, 2), None, Arg("E")),
    E("group_norm", Arg("B 6 S"), Arg("6"), Arg("6"), num_groups=3, least=1),
    E("group_norm", Arg("B 4 S D"), None, None, num_groups=4, eps=1e-3, least=1),
    E("sliding_window_view", Arg("B S", "any"), window_shape=2, axis=1, least=2),
    E("sliding_window_view", Arg("7 S 5"), window_shape=(3, 2), axis=(2, 0), step=(2, 3), dilation=(1, 2)),
    E("sliding_window_view", Arg("B 40"), window_shape=(20,), axis=(-1,), step=(3,)),
    E("conv1d", Arg("B 2 S"), Arg("E 2 3"), Arg("E"), least=3),
    E("conv1d", Arg("B 4 9"), Arg("6 2 2"), None, stride=2, padding=((1, 0),), dilation=3, groups=2),
    E("conv2d", Arg("B 2 5 S"), Arg("3 2 3 2"), Arg("3"), padding=1, least=2),
    E("conv2d", Arg("B 2 7 6"), Arg("2 2 3 3"), None, stride=(2, 1), padding="valid", dilation=(1, 2)),
    E("conv2d", Arg("B 3 4 S"), Arg("3 1 3 3"), Arg("3"), padding="same", groups=3, least=2),
    E("conv3d", Arg("B 1 3 4 3"), Arg("2 1 2 2 2"), None, stride=2, padding=1),
    E("conv_transpose1d", Arg("B 2 S"), Arg("2 3 4"), Arg("3"), stride=3, padding=1, output_padding=2, least=1),
    E("conv_transpose2d", Arg("B 4 3 2"), Arg("4 1 3 2"), Arg("2"), stride=2, padding=(1, 0), groups=2),
    E("conv_transpose3d", Arg("B 2 2 2 3"), Arg("2 2 2 1 2"), None, dilation=2),
    E("max_pool1d", Arg("B S"), kernel_size=2, least=2),
    E("max_pool2d", Arg("B 7 6"), kernel_size=3, stride=2, padding=1),
    E("max_pool2d", Arg("B 15 8"), kernel_size=(6, 7), stride=1, dilation=(2, 1)),
    E("max_pool3d", Arg("B 4 4 5"), kernel_size=2),
    E("avg_pool1d", Arg("B S"), kernel_size=3, stride=1, padding=1, least=1),
    E("avg_pool2d", Arg("B 6 7"), kernel_size=(2, 3), padding=1, count_include_pad=False),
    E("avg_pool3d", Arg("B 4 4 4"), kernel_size=(4, 3, 4), stride=1),
    E("leaky_relu", X),
    E("elu", X, alpha=0.5),
    E("random_bits", Arg("", "integer", 0, 9), shape=(d("B"), 3)),
    E("random_bits", Arg("", "uint64", 0, 99), shape=(2, d("S")), offset=d("B")),
    E("uniform", Arg("", "integer", 0, 9), shape=(d("B"), 3)),
    E("uniform", Arg("", "integer", 0, 9), shape=(5,), low=-1.0, high=3.0, dtype=dtypes.f64),
    E("normal", Arg("", "integer", 0, 9), shape=(d("B"), 3)),
    E("normal", Arg("", "integer", 0, 9), shape=(3,), mean=2.0, std=0.5, dtype=dtypes.bf16),
    E("randint", Arg("", "integer", 0, 9), shape=(d("B"), 3), low=-2, high=9),
    E("randint", Arg("", "integer", 0, 9), shape=(3,), low=0, high=2, dtype=dtypes.int8),
    E("bernoulli", Arg("", "integer", 0, 9), shape=(d("B"), 3), p=0.25),
    E("dropout", X, Arg("", "integer", 0, 9), p=0.3),
    E("dropout", X, Arg("", "integer", 0, 9), p=1.0),
]


def is_long_in_two_batches(example: Example) -> bool:
    """A long operator over two axes of batches, of which one is enough where compilation takes its time."""
    return example.is_long and "E" in symbols(example)


def symbols(example: Example) -> list[str]:
    """The dims that an example leaves open."""
    found: set[str] = set()
    for a in example.args:
        for x in a if isinstance(a, list) else [a] if a else []:
            for size in x.sizes():
                found |= dims.symbols(size)
    return sorted(found | _symbols_in(tuple(example.attrs.values())))


def _symbols_in(attrs: Any) -> set[str]:
    if isinstance(attrs, tuple):
        return set().union(*map(_symbols_in, attrs))
    return set(dims.symbols(attrs)) if isinstance(attrs, dims.Expr) else set()


def values(rng: np.random.Generator, arg: Arg, dtype: DType, sizes: dict[str, int]) -> np.ndarray:
    shape = tuple(dims.evaluate(s, sizes) for s in arg.sizes())
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low = max(arg.low, 0) if dtype.kind == "uint" else arg.low
        return rng.integers(int(np.ceil(low)), max(int(arg.high), int(np.ceil(low)) + 1), shape).astype(dtype.numpy)
    x = rng.uniform(arg.low, arg.high, shape)
    if arg.diagonal:
        x += arg.diagonal * np.eye(*shape[-2:])
    x = symmetric(x) if arg.symmetric else x
    return (
        (x + 1j * rng.uniform(arg.low, arg.high, shape)).astype(dtype.numpy)
        if dtype.is_complex
        else x.astype(dtype.numpy)
    )


def symmetric(x: np.ndarray) -> np.ndarray:
    return (x + np.swapaxes(x, -1, -2)) / 2


def unique(example: Example) -> bool:
    """Whether its results are unique, so that it has derivatives: `svd` with all vectors of matrices that are not
    square chooses some of them."""
    return not (example.attrs.get("full_matrices") and len(set(example.args[0].shape.split()[-2:])) > 1)


def function(types: Sequence[TensorType], body: Any, facts: Facts | None = None) -> Op:
    """A graph.func of `body(g, *arguments)`."""
    block = Block(types, [f"x{i}" for i in range(len(types))])
    attrs = {"sym_name": "f", "arg_names": tuple(a.hint for a in block.args)}
    func = Op("graph.func", (), (), HERE, attrs, [Region([block])])  # type: ignore[arg-type]
    g = GraphBuilder(Builder(block, span=HERE), facts)
    found = body(g, *block.args)
    g.builder.op("graph.return", found if isinstance(found, (tuple, list)) else (found,))
    return func


def applied(example: Example, chosen: Sequence[DType], sizes: Mapping[str, int] | None = None) -> Op:
    """The function that applies the example's operator to arguments of the chosen dtypes.

    A last argument, unused, has the size of each of its symbols: that binds those that only attributes mention.
    With `sizes`, they are put in for the symbols.
    """
    known = sizes or {}
    rest = iter(chosen)
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    types = [TensorType(substituted(x.sizes(), known), next(rest)) for x in flat]
    types.append(TensorType(substituted(tuple(map(dims.symbol, symbols(example))), known), dtypes.bool_))
    return function(types, lambda g, *given: called(example, g, given, known))


def called(example: Example, g: GraphBuilder, given: Sequence[Value], sizes: Mapping[str, int]) -> Any:
    """The example's operator of these values, absent operands left out."""
    values = iter(given)
    operands = [
        None if a is None else [next(values) for _ in a] if isinstance(a, list) else next(values) for a in example.args
    ]
    names = [p.name for p in REGISTRY[example.name].parameters if p.operand]
    attrs = {k: substituted(v, sizes) for k, v in example.attrs.items()}
    return getattr(g, example.name)(**dict(zip(names, operands, strict=True)), **attrs)


def substituted(value: Any, sizes: Mapping[str, int]) -> Any:
    """`value` with sizes for the symbols in it."""
    if isinstance(value, tuple):
        return tuple(substituted(v, sizes) for v in value)
    return dims.substitute(value, sizes) if isinstance(value, dims.Expr) else value


TOLERANCE = {"f64": 1e-9, "f32": 2e-5, "f16": 8e-3, "bf16": 4e-2, "complex64": 2e-5, "complex128": 1e-9}


def close(a: np.ndarray, b: np.ndarray, dtype: DType, factor: float = 1.0) -> None:
    """Asserts equality within what rounding in `dtype` explains."""
    assert a.shape == b.shape, (a.shape, b.shape)
    kind = np.complex128 if dtype.is_complex else np.float64
    if not (dtype.is_float or dtype.is_complex):
        np.testing.assert_array_equal(a, b)
        return
    tolerance = TOLERANCE.get(dtype.name, 0.3) * factor
    np.testing.assert_allclose(a.astype(kind), b.astype(kind), tolerance, tolerance)
