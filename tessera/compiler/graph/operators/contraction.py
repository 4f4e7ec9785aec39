"""Sums of products: the primitive `contract`, and matmul, dot, outer and einsum, which are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from string import ascii_letters, ascii_uppercase
from typing import Any, ClassVar, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Combine, Cut
from tessera.compiler.graph.infer import Suggestion, items, several, shown
from tessera.compiler.graph.operator import Infer, Operator, OperatorParameter, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np

HALVES = (dtypes.f16, dtypes.bf16)


class Contract(Operator):
    """Sums of products as in einsum `lhs,rhs->out`, one letter per axis, none repeated within an operand.

    Letters in all three are batches, those missing from `out` are summed over in the accumulator dtype, in the order of
    language/order.py; all others are rows or columns. The result has the operands' dtype. Under the policy `compute(d)`
    operands of f32 are rounded to d, and the result of operands of f32 or d is f32. `dtype` is the result's where the
    operands are integers of fewer bits, or floats of one dtype of 16 bits, each of which is widened first.
    """

    kind = "contract"
    functions = methods = ()

    def infer(
        self, t: Infer, x: TensorType, y: TensorType, lhs: str, rhs: str, out: str, dtype: DType | None = None
    ) -> TensorType:
        if dtype is not None:
            narrow = dtype.is_integer and all(v.dtype.is_integer and v.dtype.bits < dtype.bits for v in (x, y))
            if not narrow and not (dtype == dtypes.f32 and x.dtype == y.dtype in HALVES):
                t.fail("TS210", f"{x.dtype} and {y.dtype} are not numbers narrower than {dtype}")
            x, y = (TensorType(v.shape, dtype) for v in (x, y))
        t.require(x, "number", 0)
        t.require(y, "number", 1)
        if len(lhs) != x.rank or len(rhs) != y.rank or len(set(lhs)) != len(lhs) or len(set(rhs)) != len(rhs):
            t.fail("TS210", f"{lhs},{rhs}->{out} does not fit operands {shape_text(x.shape)}, {shape_text(y.shape)}")
        summed = set(lhs) & set(rhs) - set(out)
        if set(lhs + rhs) - summed != set(out) or len(set(out)) != len(out):
            t.fail("TS210", f"{lhs},{rhs}->{out}: a letter of one operand must stand in the result")
        size = dict(zip(lhs, x.shape, strict=True))
        for letter, d in zip(rhs, y.shape, strict=True):
            t.same(size.setdefault(letter, d), d, "TS203", f"contracted dimensions {size[letter]} and {d} differ")
        result = t.promote(x, y)
        policy = t.policy((x, y))
        if policy is not None and policy.compute is not None and result in (dtypes.f32, policy.compute):
            for i, v in enumerate((x, y)):
                t.convert(i, v, policy.compute)
            result = dtypes.f32
        return TensorType(tuple(size[c] for c in out), result)

    def reference(self, x: Any, y: Any, lhs: str, rhs: str, out: str, dtype: DType | None = None) -> Any:
        x, y = (v if dtype is None else v.astype(dtype.numpy) for v in (x, y))
        return np.einsum(f"{lhs},{rhs}->{out}", x, y)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        x, _ = operands
        summed = (d for c, d in zip(attrs["lhs"], x.shape, strict=True) if c not in attrs["out"])
        return dims.prod(results[0].shape) * dims.prod(summed) * 2

    def partition(
        self, cut: Cut, x: TensorType, y: TensorType, lhs: str, rhs: str, out: str, dtype: DType | None = None
    ) -> Combine | None:
        i, j = cut.axis(x), cut.axis(y)
        left, right = lhs[i] if i is not None else "", rhs[j] if j is not None else ""
        if any((c in lhs and c != left) or (c in rhs and c != right) for c in left + right):
            cut.whole("only one of its operands is cut along an axis that both have")
        return None if all(c in out for c in left + right) else "sum"

    def adjoint(
        self, g: GraphBuilder, out_: Value, ct: Value, x: Value, y: Value, lhs: str, rhs: str, out: str,
        dtype: DType | None = None,
    ) -> Any:  # fmt: skip
        wide = [x, y] if dtype is None else [g.to(v, dtype) for v in (x, y)]
        found = contract(g, ct, wide[1], out, rhs, lhs), contract(g, ct, wide[0], out, lhs, rhs)
        return found if dtype is None else tuple(g.to(c, tensor(v).dtype) for c, v in zip(found, (x, y), strict=True))

    def tangent(
        self, g: GraphBuilder, out_: Value, tangents: Any, x: Value, y: Value, lhs: str, rhs: str, out: str,
        dtype: DType | None = None,
    ) -> Any:  # fmt: skip
        dx, dy = tangents
        if dtype is not None:
            x, y, (dx, dy) = g.to(x, dtype), g.to(y, dtype), (v if v is None else g.to(v, dtype) for v in tangents)
        parts = [contract(g, dx, y, lhs, rhs, out)] if dx is not None else []
        parts += [contract(g, x, dy, lhs, rhs, out)] if dy is not None else []
        return parts[0] if len(parts) == 1 else g.add(*parts) if parts else None


def contract(g: GraphBuilder, x: Value, y: Value, lhs: str, rhs: str, out: str) -> Value:
    """`einsum(lhs,rhs->out)` of two operands; a multiplication where nothing is summed over.

    A size of 1 in one operand stretches against the other's size.
    """
    x, lhs = _without_stretched(g, x, lhs, y, rhs)
    y, rhs = _without_stretched(g, y, rhs, x, lhs)
    x, lhs = _sum_lonely(g, x, lhs, rhs + out)
    y, rhs = _sum_lonely(g, y, rhs, lhs + out)
    if set(lhs) & set(rhs) - set(out):
        product = g.contract(x, y, lhs=lhs, rhs=rhs, out=out)
        return g.to(product, dtypes.promote(tensor(x).dtype, tensor(y).dtype) or tensor(product).dtype)
    return g.mul(_aligned(g, x, lhs, out), _aligned(g, y, rhs, out))


def widened(g: GraphBuilder, x: Value, y: Value, lhs: str, rhs: str, out: str) -> Value:
    """The same of operands in the dtype of arithmetic, and in that dtype. Products read floats of 16 bits as they are:
    a target may have instructions for them, and no wider copy is stored."""
    one, two = tensor(x), tensor(y)
    if one.dtype == two.dtype in HALVES and one.policy is None and two.policy is None:
        return g.contract(x, y, lhs=lhs, rhs=rhs, out=out, dtype=dtypes.f32)
    return contract(g, g.compute(x), g.compute(y), lhs, rhs, out)


def _without_stretched(g: GraphBuilder, x: Value, labels: str, y: Value, others: str) -> tuple[Value, str]:
    """`x` without axes of size 1 that stretch against the other operand."""
    size, other = dict(zip(labels, tensor(x).shape, strict=True)), dict(zip(others, tensor(y).shape, strict=True))
    kept = "".join(c for c in labels if not (c in other and size[c] == 1 and other[c] != 1))
    return (x, labels) if kept == labels else (g.reshape(x, tuple(size[c] for c in kept)), kept)


def _sum_lonely(g: GraphBuilder, x: Value, labels: str, needed: str) -> tuple[Value, str]:
    """`x` summed over the axes that no other term mentions."""
    lonely = tuple(i for i, c in enumerate(labels) if c not in needed)
    return (g.sum(x, axis=lonely), "".join(c for c in labels if c in needed)) if lonely else (x, labels)


def _aligned(g: GraphBuilder, x: Value, labels: str, out: str) -> Value:
    """`x` with its axes in the order of `out` and size 1 where it has none, so that it broadcasts."""
    order = sorted(range(len(labels)), key=lambda i: out.index(labels[i]))
    if order != list(range(len(labels))):
        x = g.transpose(x, tuple(order))
    size = dict(zip((labels[i] for i in order), tensor(x).shape, strict=True))
    shape = tuple(size.get(c, 1) for c in out)
    return x if shape == tensor(x).shape else g.reshape(x, shape)


def matmul_labels(x_rank: int, y_rank: int) -> tuple[str, str, str]:
    """Letters for NumPy's matmul: the last axis of x against the last but one of y (its only one, for a vector)."""
    batch = ascii_uppercase[: max(x_rank, y_rank, 2) - 2]
    lhs = "k" if x_rank == 1 else batch[len(batch) - x_rank + 2 :] + "ik"
    rhs = "k" if y_rank == 1 else batch[len(batch) - y_rank + 2 :] + "kj"
    return lhs, rhs, batch + ("i" if x_rank > 1 else "") + ("j" if y_rank > 1 else "")


class Matmul(Operator):
    """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""

    functions = ("matmul", "gemm", "bmm", "mm")
    methods = ("matmul", "bmm", "mm")

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        for i, v in enumerate((x, y)):
            if v.rank == 0:
                t.fail("TS213", "matmul needs operands with at least one axis; * multiplies by a scalar", operand=i)
        dtype = t.promote(x, y)
        k, n = x.shape[-1], y.shape[0 if y.rank == 1 else -2]

        def differ() -> str:
            return f"{shape_text(x.shape)} @ {shape_text(y.shape)}: contracted dimensions {k} and {n} differ"

        t.same(k, n, "TS203", differ, suggestions=lambda: self.suggestions(t, x, y))
        message = f"{shape_text(x.shape)} @ {shape_text(y.shape)}"
        batch = t.broadcast(x.shape[:-2], y.shape[:-2], batch_of=message)
        return TensorType(batch + (x.shape[-2:-1] if x.rank > 1 else ()) + (y.shape[-1:] if y.rank > 1 else ()), dtype)

    def suggestions(self, t: Infer, x: TensorType, y: TensorType) -> list[Suggestion]:
        """Transposing one operand, where that makes the product possible."""

        def equal(a: Dim, b: Dim) -> bool:
            return dims.compare(a, b, t.facts) == "yes"

        name = {2: "T"}
        if y.rank > 1 and equal(x.shape[-1], y.shape[-1]):
            suffix = name.get(y.rank, "mT")
            return [Suggestion(f"the transpose of the right operand (.{suffix})", 1, f".{suffix}")]
        if x.rank > 1 and equal(x.shape[-2], y.shape[0 if y.rank == 1 else -2]):
            suffix = name.get(x.rank, "mT")
            return [Suggestion(f"the transpose of the left operand (.{suffix})", 0, f".{suffix}")]
        return []

    def reference(self, x: Any, y: Any) -> Any:
        return np.matmul(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        if tensor(x).dtype.kind == "bool":  # whether any pair of elements is true, as in NumPy
            return g.ne(g.matmul(g.cast(x, dtypes.int32), g.cast(y, dtypes.int32)), 0)
        return contract(g, x, y, *matmul_labels(tensor(x).rank, tensor(y).rank))

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * operands[0].shape[-1] * 2


class Dot(Operator):
    """The inner product of the last axis of x with the second-last of y (the only one of a vector), as in NumPy."""

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        dtype = t.promote(x, y)
        t.require(x, "number", 0)
        t.require(y, "number", 1)
        if not x.rank or not y.rank:
            return TensorType(x.shape + y.shape, dtype)
        message = f"dot of {shape_text(x.shape)} and {shape_text(y.shape)}: contracted dimensions differ"
        t.same(x.shape[-1], y.shape[max(y.rank - 2, 0)], "TS203", message)
        return TensorType(x.shape[:-1] + (y.shape[:-2] + y.shape[-1:] if y.rank > 1 else ()), dtype)

    def reference(self, x: Any, y: Any) -> Any:
        return np.dot(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        nx, ny = tensor(x).rank, tensor(y).rank
        if not nx or not ny:
            return g.mul(x, y)
        lhs, rest = ascii_letters[:nx], ascii_letters[nx : nx + ny - 1]
        at = max(ny - 2, 0)
        return contract(g, x, y, lhs, rest[:at] + lhs[-1] + rest[at:], lhs[:-1] + rest)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        x, y = operands
        return dims.prod(results[0].shape) * (x.shape[-1] * 2 if x.rank and y.rank else 1)


class Vecdot(Operator):
    """The inner products of the vectors along `axis` (counted from the end): of the conjugates of x with y."""

    methods = ()

    def infer(self, t: Infer, x: TensorType, y: TensorType, axis: int = -1) -> TensorType:
        for i, v in enumerate((x, y)):
            t.require(v, "number", operand=i)
        a = t.integer(axis, "axis", "TS204")
        if not -min(x.rank, y.rank) <= a < (x.rank if x.rank == y.rank else 0):
            both = f"{shape_text(x.shape)} and {shape_text(y.shape)}"
            t.fail("TS204", f"axis={axis} is not an axis of both {both}, counted from the end")
        a = a if a < 0 else a - x.rank
        t.same(x.shape[a], y.shape[a], "TS203", f"vecdot of vectors of {x.shape[a]} and {y.shape[a]} elements")
        t.canonical(axis=a)
        kept = [tuple(d for i, d in enumerate(v.shape) if i != v.rank + a) for v in (x, y)]
        lone = [(*s[: len(s) + a + 1], 1, *s[len(s) + a + 1 :]) for s in kept]  # axes stay aligned at the right
        whole = t.broadcast(*lone)
        return TensorType(tuple(d for i, d in enumerate(whole) if i != len(whole) + a), t.promote(x, y))

    def reference(self, x: Any, y: Any, axis: int) -> Any:
        return np.sum(np.conj(x) * y, axis=axis)

    def decompose(self, g: GraphBuilder, x: Value, y: Value, axis: int) -> Value:
        x, y = (g.moveaxis(v, axis, -1) for v in (g.conj(x), y))
        product = g.matmul(g.unsqueeze(x, -2), g.unsqueeze(y, -1))
        return g.reshape(product, tensor(product).shape[:-2])


class Tensordot(Operator):
    """Products summed over pairs of axes: the last `axes` of x with the first of y, or two tuples of axes."""

    methods = ()
    says: ClassVar[Mapping[str, str]] = {"dims": "it is axes="}

    def infer(
        self, t: Infer, x: TensorType, y: TensorType, axes: int | tuple[tuple[int, ...], tuple[int, ...]] = 2
    ) -> TensorType:
        for i, v in enumerate((x, y)):
            t.require(v, "number", operand=i)
        if several(axes):
            pair = items(axes)
            if len(pair) != 2 or len(items(pair[0])) != len(items(pair[1])):
                t.fail("TS204", f"tensordot needs as many axes of x as of y, not {shown(axes)}")
            a, b = (tuple(t.axis(v, i, "axes") for i in items(p)) for v, p in zip((x, y), pair, strict=True))
        else:
            n = t.integer(axes, "axes", "TS204")
            if not 0 <= n <= min(x.rank, y.rank):
                t.fail(
                    "TS204", f"tensordot cannot sum over {n} axes of {shape_text(x.shape)} and {shape_text(y.shape)}"
                )
            a, b = tuple(range(x.rank - n, x.rank)), tuple(range(n))
        if len(set(a)) != len(a) or len(set(b)) != len(b):
            t.fail("TS204", f"axes={shown(axes)} names an axis twice")
        for i, j in zip(a, b, strict=True):
            t.same(x.shape[i], y.shape[j], "TS203", f"tensordot: axis {i} of x and axis {j} of y differ")
        t.canonical(axes=(a, b))
        kept = [d for i, d in enumerate(x.shape) if i not in a] + [d for i, d in enumerate(y.shape) if i not in b]
        return TensorType(tuple(kept), t.promote(x, y))

    def reference(self, x: Any, y: Any, axes: Any) -> Any:
        return np.tensordot(x, y, axes)

    def decompose(self, g: GraphBuilder, x: Value, y: Value, axes: Any) -> Value:
        """One product of matrices: each side's summed axes are joined, in the order of the pairs."""
        a, b = cast("tuple[tuple[int, ...], tuple[int, ...]]", axes)
        rows = [i for i in range(tensor(x).rank) if i not in a]
        columns = [i for i in range(tensor(y).rank) if i not in b]
        left, right = tensor(x).shape, tensor(y).shape
        n, m = dims.prod(left[i] for i in rows), dims.prod(right[i] for i in columns)
        k = dims.prod(left[i] for i in a)
        matrix = g.reshape(g.transpose(x, (*rows, *a)), (n, k))
        other = g.reshape(g.transpose(y, (*b, *columns)), (k, m))
        return g.reshape(g.matmul(matrix, other), (*(left[i] for i in rows), *(right[i] for i in columns)))


class Outer(Operator):
    """All products of an element of x (flattened) with one of y (flattened): a matrix."""

    def infer(self, t: Infer, x: TensorType, y: TensorType) -> TensorType:
        return TensorType((dims.prod(x.shape), dims.prod(y.shape)), t.promote(x, y))

    def reference(self, x: Any, y: Any) -> Any:
        return np.outer(x, y)

    def decompose(self, g: GraphBuilder, x: Value, y: Value) -> Value:
        n, m = dims.prod(tensor(x).shape), dims.prod(tensor(y).shape)
        return g.mul(g.reshape(x, (n, 1)), g.reshape(y, (1, m)))


def parse_einsum(t: Infer, equation: object, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with an ellipsis spelled out in letters of its own."""
    if not isinstance(equation, str):
        t.fail("TS210", f"einsum needs an equation such as 'ij,jk->ik' first, not {shown(equation)}")
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        t.fail("TS210", f"einsum '{equation}' speaks of {len(inputs)} operands, {len(ranks)} were given")
    free = [c for c in ascii_letters if c not in equation]
    covered = [rank - len(term.replace("...", "")) for term, rank in zip(inputs, ranks, strict=True)]
    dots = "".join(free[: max((n for n, term in zip(covered, inputs, strict=True) if "..." in term), default=0)])
    terms: list[str] = []
    for i, (term, n) in enumerate(zip(inputs, covered, strict=True)):
        if ("..." not in term and n != 0) or n < 0:
            t.fail("TS210", f"einsum '{equation}': '{term}' does not fit an operand with {ranks[i]} axes", operand=i)
        terms.append(term.replace("...", dots[len(dots) - n :]))
    letters = "".join(terms)
    if not arrow:
        right = "..." + "".join(sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1))
    out = right.replace("...", dots)
    if not (letters + out).isalpha() or len(set(out)) != len(out) or set(out) - set(letters):
        t.fail("TS210", f"einsum '{equation}': the result needs distinct letters that stand in an operand")
    return terms, out


class Einsum(Operator):
    """Einstein summation: `einsum("bik,bkj->bij", x, y)`. Letters name axes; those not in the result are summed.

    A letter repeated within an operand selects the diagonal, `...` stands for any further axes, sizes of 1 broadcast.
    Operands are contracted from left to right.
    """

    methods = ()

    @cached_property
    def parameters(self) -> tuple[OperatorParameter, ...]:
        operands, equation = super().parameters
        return (equation, operands)

    def infer(self, t: Infer, operands: Sequence[TensorType], equation: str) -> TensorType:
        if not operands:
            t.fail("TS210", "einsum needs operands")
        terms, out = parse_einsum(t, equation, [x.rank for x in operands])
        t.canonical(equation=f"{','.join(terms)}->{out}")
        size: dict[str, Dim] = {}
        for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
            t.require(x, "number", operand=i)
            for letter, d in zip(term, x.shape, strict=True):
                known = size.setdefault(letter, d)
                if 1 in (known, d):
                    size[letter] = d if known == 1 else known
                else:
                    meant = letter if letter in equation else "an axis of `...`"
                    t.same(known, d, "TS210", f"einsum '{equation}': {meant} is {known} and {d}", operand=i)
        return TensorType(tuple(size[c] for c in out), t.promote(*operands))

    def reference(self, operands: Sequence[Any], equation: str) -> Any:
        return np.einsum(equation, *operands, optimize=len(operands) > 2)

    def decompose(self, g: GraphBuilder, operands: Sequence[Value], equation: str) -> Value:
        left, _, out = equation.partition("->")
        terms, dtype = left.split(","), tensor(operands[0]).dtype
        if len(operands) > 2:  # intermediate results between two contractions are not rounded
            operands = [g.compute(x) for x in operands]
        work: list[tuple[Value, str]] = [_diagonal(g, x, term) for x, term in zip(operands, terms, strict=True)]
        while len(work) > 1:
            (x, lhs), (y, rhs), *rest = work
            needed = out + "".join(term for _, term in rest)
            kept = "".join(dict.fromkeys(c for c in lhs + rhs if c in needed))
            goal = out if not rest else kept
            work = [(contract(g, x, y, lhs, rhs, goal), goal), *rest]
        x, term = work[0]
        x, term = _sum_lonely(g, x, term, out)
        return g.to(_aligned(g, x, term, out), dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        left = cast("str", attrs["equation"]).partition("->")[0]
        size: dict[str, Dim] = {}
        for x, term in zip(operands[0], left.split(","), strict=True):
            for c, d in zip(term, x.shape, strict=True):
                size[c] = d if size.get(c, 1) == 1 else size[c]
        return dims.prod(size.values()) * len(operands[0])


def _diagonal(g: GraphBuilder, x: Value, term: str) -> tuple[Value, str]:
    """`x` with each repeated letter reduced to one axis: the sum of the diagonal over the others."""
    for i, c in enumerate(term):
        if c in term[:i]:
            shape, first = tensor(x).shape, term.index(c)
            on = g.eq(_position(g, shape, i), _position(g, shape, first))
            x = g.sum(g.where(on, x, 0), axis=(i,))
            return _diagonal(g, x, term[:i] + term[i + 1 :])
    return x, term


def _position(g: GraphBuilder, shape: Sequence[Dim], axis: int) -> Value:
    return g.iota(tuple(d if i == axis else 1 for i, d in enumerate(shape)), axis=axis)
