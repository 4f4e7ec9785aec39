"""Tensors side by side and cut apart: concat, stack, pad, split, roll, repeat.

Primitives: `concat` and `pad`. Lowering stores each operand into its window of the result (`windows`); pad fills the
rest with its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import at_least_zero, counterexample, items, several, shown
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

Pairs = Sequence[tuple[Dim, Dim]]
PARTS = 4096
"""the most results that cutting may have"""


def part(g: GraphBuilder, x: Value, axis: int, start: Dim, stop: Dim) -> Value:
    """`x` from `start` to `stop` along one axis."""
    shape = tensor(x).shape
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    return g.slice(x, starts, tuple(stop if i == axis else d for i, d in enumerate(shape)))


def preceding(g: GraphBuilder, x: Value, axis: int, first: float) -> Value:
    """`x` moved on by one along `axis`, with `first` at the start: the exclusive prefix of an inclusive one."""
    return g.concat([_end(g, x, axis, first), part(g, x, axis, 0, at_least_zero(tensor(x).shape[axis] - 1))], axis=axis)


def following(g: GraphBuilder, x: Value, axis: int, last: float) -> Value:
    """`x` moved back by one along `axis`, with `last` at the end."""
    size = tensor(x).shape[axis]
    return g.concat([part(g, x, axis, dims.dim_min(1, size), size), _end(g, x, axis, last)], axis=axis)


def _end(g: GraphBuilder, x: Value, axis: int, value: float) -> Value:
    """One element along `axis`; none where `x` has none."""
    shape = tensor(x).shape
    return g.full((*shape[:axis], dims.dim_min(1, shape[axis]), *shape[axis + 1 :]), value, tensor(x).dtype)


class Concat(Operator):
    """The tensors one after the other along `axis`; all other sizes agree."""

    kind = "join"
    functions = ("concat", "concatenate", "cat")
    methods = ()

    def infer(self, t: Infer, xs: Sequence[TensorType], axis: int = 0) -> TensorType:
        if not xs:
            t.fail("TS206", "concat needs at least one tensor")
        first = xs[0]
        a = t.axis(first, axis)
        for i, x in enumerate(xs[1:], 1):
            have, want = shape_text(x.shape), shape_text(first.shape)
            if x.rank != first.rank:
                t.fail("TS206", f"{have} cannot be joined to {want}: {x.rank} axes, not {first.rank}", operand=i)
            for k, (d, e) in enumerate(zip(first.shape, x.shape, strict=True)):
                if k != a and dims.compare(d, e, t.facts) == "no":
                    message = f"{have} cannot be joined to {want} along axis {a}: axis {k} is {e}, not {d}"
                    t.fail("TS206", message, *counterexample(d, e, t.facts), operand=i)
                if k != a:
                    t.same(d, e, "TS206", f"axis {k} of the joined tensors")
        t.canonical(axis=a)
        total: Dim = 0
        for x in xs:
            total = total + x.shape[a]
        return TensorType((*first.shape[:a], total, *first.shape[a + 1 :]), t.promote(*xs))

    def reference(self, xs: Sequence[Any], axis: int) -> Any:
        return np.concatenate(xs, axis)

    def windows(self, shapes: Sequence[Shape], axis: int) -> list[Shape]:
        out: list[Shape] = []
        at: Dim = 0
        for s in shapes:
            out.append(tuple(at if i == axis else 0 for i in range(len(s))))
            at = at + s[axis]
        return out

    def partition(self, cut: Cut, xs: Sequence[TensorType], axis: int) -> None:
        if any(cut.axis(x) != cut.out for x in xs) or cut.out == axis:
            cut.whole(f"it puts tensors one after the other along {cut.dim}")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, xs: Sequence[Value], axis: int) -> tuple[list[Value]]:
        starts = self.windows([tensor(x).shape for x in xs], axis)
        sizes = [tensor(x).shape[axis] for x in xs]
        return ([part(g, ct, axis, s[axis], s[axis] + n) for s, n in zip(starts, sizes, strict=True)],)


class Stack(Operator):
    """Tensors of one shape along a new axis at position `axis` of the result."""

    methods = ()

    def infer(self, t: Infer, xs: Sequence[TensorType], axis: int = 0) -> TensorType:
        if not xs:
            t.fail("TS206", "stack needs at least one tensor")
        shape = xs[0].shape
        for i, x in enumerate(xs[1:], 1):
            message = f"stack needs tensors of one shape, {shape_text(x.shape)} differs from {shape_text(shape)}"
            if x.rank != len(shape):
                t.fail("TS206", message, operand=i)
            for d, e in zip(shape, x.shape, strict=True):
                t.same(d, e, "TS206", message, operand=i)
        a = t.axis(xs[0], axis, extra=1)
        t.canonical(axis=a)
        return TensorType((*shape[:a], len(xs), *shape[a:]), t.promote(*xs))

    def reference(self, xs: Sequence[Any], axis: int) -> Any:
        return np.stack(xs, axis)

    def decompose(self, g: GraphBuilder, xs: Sequence[Value], axis: int) -> Value:
        return g.concat([g.unsqueeze(x, axis) for x in xs], axis=axis)


class Pad(Operator):
    """`x` with `value` around it: `pad_width` is a number, a pair (before, after), or a pair per axis, as in NumPy."""

    kind = "join"

    def infer(
        self, t: Infer, x: TensorType, pad_width: int | tuple[Any, ...], mode: str = "constant", value: float = 0
    ) -> TensorType:
        if mode != "constant":
            t.fail("TS213", f"pad knows mode 'constant', not {shown(mode)}")
        t.number(value, "value")
        t.fits(value, x.dtype)
        pairs = self.pairs(t, x, pad_width)
        t.canonical(pad_width=pairs, value=value)
        return x.with_shape(tuple(a + d + b for d, (a, b) in zip(x.shape, pairs, strict=True)))

    def pairs(self, t: Infer, x: TensorType, width: object) -> tuple[tuple[Dim, Dim], ...]:
        """Before and after, for each axis."""
        given = items(width) if several(width) else [width, width]
        if x.rank and not any(map(several, given)):
            given = [given] * x.rank
        if len(given) != x.rank or any(len(items(p)) != 2 for p in given):
            t.fail(
                "TS213",
                f"pad_width={shown(width)} gives no pair for each of the {x.rank} axes of {shape_text(x.shape)}",
            )
        flat = [t.dim(n, "pad_width") for pair in given for n in items(pair)]
        out = tuple(zip(flat[::2], flat[1::2], strict=True))
        if any(isinstance(n, int) and n < 0 for n in flat):
            t.fail("TS213", f"pad_width={shown(width)} is negative; a slice cuts off")
        return out

    def reference(self, x: Any, pad_width: Pairs, mode: str, value: float) -> Any:
        return np.pad(x, pad_width, constant_values=value) if pad_width else x

    def windows(self, shapes: Sequence[Shape], pad_width: Pairs, **attrs: Any) -> list[Shape]:
        return [tuple(before for before, _ in pad_width)]

    def partition(self, cut: Cut, x: TensorType, pad_width: Pairs, **attrs: Any) -> None:
        a = cut.axis(x)
        if cut.mentioned(tuple(pad_width)) or (a is not None and tuple(pad_width[a]) != (0, 0)):
            cut.whole(f"it adds elements at the ends of {cut.dim}")

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, pad_width: Pairs, **attrs: Any) -> tuple[Value]:
        starts = tuple(before for before, _ in pad_width)
        return (g.slice(ct, starts, tuple(a + d for a, d in zip(starts, tensor(x).shape, strict=True))),)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, pad_width: Pairs, **attrs: Any) -> Value:
        return g.pad(tangents[0], pad_width)


class Split(Operator):
    """`x` split along `axis` into `sections` equal parts, or at the positions `sections`, as in NumPy."""

    multiple = True

    def infer(self, t: Infer, x: TensorType, sections: int | tuple[int, ...], axis: int = 0) -> tuple[TensorType, ...]:
        if not x.shape and x.dtype.is_integer:
            t.fail(
                "TS204", "split cuts a tensor apart, and this is one number; ts.split_key(key, n) makes keys of a key"
            )
        a = t.axis(x, axis)
        t.canonical(axis=a)
        bounds = self.bounds(t, x.shape[a], sections)
        return tuple(x.with_shape((*x.shape[:a], n - m, *x.shape[a + 1 :])) for m, n in bounds)

    def bounds(self, t: Infer | None, size: Dim, sections: Any) -> list[tuple[Dim, Dim]]:
        if several(sections):
            positions = items(sections) if t is None else t.shape(sections, "sections")
            cuts: list[Any] = [0, *positions, size]
            ordered = all(not isinstance(d := n - m, int) or d >= 0 for m, n in pairwise(cuts))
            if t is not None and not ordered:
                t.fail("TS207", f"split positions {sections} do not ascend within an axis of size {size}")
            return list(pairwise(cuts))
        if t is not None:
            count = t.integer(sections, "sections")
            if not 1 <= count <= PARTS:
                t.fail("TS213", f"split makes 1 to {PARTS} parts, not {count}")
            t.same(dims.mod(size, count), 0, "TS213", f"an axis of size {size} does not split into {count} equal parts")
        width = dims.floordiv(size, sections)
        return [(width * i, width * (i + 1)) for i in range(sections)]

    def reference(self, x: Any, sections: Any, axis: int) -> Any:
        return tuple(np.split(x, sections, axis))

    def decompose(self, g: GraphBuilder, x: Value, sections: Any, axis: int) -> tuple[Value, ...]:
        return tuple(part(g, x, axis, m, n) for m, n in self.bounds(None, tensor(x).shape[axis], sections))


class Chunk(Operator):
    """`x` split along `axis` into `chunks` parts; all but the last have size ceil(size / chunks), as in PyTorch.

    The size must be known, because the number of parts depends on it.
    """

    multiple = True

    def infer(self, t: Infer, x: TensorType, chunks: int, axis: int = 0) -> tuple[TensorType, ...]:
        a, count = t.axis(x, axis), t.integer(chunks, "chunks")
        if not 1 <= count <= PARTS:
            t.fail("TS213", f"chunk makes 1 to {PARTS} parts, not {count}")
        if not isinstance(x.shape[a], int) and not t.facts.divides(count, x.shape[a]):
            t.fail("TS213", f"chunk needs an axis of known size, not {x.shape[a]}; split makes equal parts of any size")
        t.canonical(axis=a)
        return tuple(x.with_shape((*x.shape[:a], n - m, *x.shape[a + 1 :])) for m, n in self.bounds(x.shape[a], count))

    def bounds(self, size: Dim, chunks: int) -> list[tuple[Dim, Dim]]:
        if not isinstance(size, int):
            width = dims.floordiv(size, chunks)
            return [(width * i, width * (i + 1)) for i in range(chunks)]
        wide = max(-(-size // chunks), 1)
        return [(i, min(i + wide, size)) for i in range(0, max(size, 1), wide)]

    def reference(self, x: Any, chunks: int, axis: int) -> Any:
        return tuple(np.split(x, [n for _, n in self.bounds(x.shape[axis], chunks)][:-1], axis))

    def decompose(self, g: GraphBuilder, x: Value, chunks: int, axis: int) -> tuple[Value, ...]:
        return tuple(part(g, x, axis, m, n) for m, n in self.bounds(tensor(x).shape[axis], chunks))


class Roll(Operator):
    """`x` shifted along `axis` by `shift` places; elements moved past the end return at the start. None: flattened."""

    def infer(self, t: Infer, x: TensorType, shift: Any, axis: Any = None) -> TensorType:
        shifts = t.shape(shift, "shift")
        if axis is None:
            if len(shifts) != 1:
                t.fail("TS204", "roll of the flattened tensor takes one shift")
            t.canonical(shift=shifts, axis=None)
            return x
        given = items(axis) if several(axis) else [axis] * len(shifts)
        found = tuple(t.axis(x, a) for a in given)
        if len(found) != len(shifts):
            t.fail("TS204", f"roll got {len(shifts)} shifts for {len(found)} axes")
        t.canonical(shift=shifts, axis=found)
        return x

    def reference(self, x: Any, shift: Any, axis: Any) -> Any:
        return np.roll(x, shift[0] if axis is None else shift, axis)

    def decompose(self, g: GraphBuilder, x: Value, shift: Shape, axis: tuple[int, ...] | None) -> Value:
        shape = tensor(x).shape
        if axis is None:
            flat = g.reshape(x, (dims.prod(shape),))
            return g.reshape(g.roll(flat, shift, axis=(0,)), shape)
        for by, a in zip(shift, axis, strict=True):
            cut = dims.mod(-by, dims.dim_max(shape[a], 1))  # a symbolic size may turn out to be 0
            x = g.concat([part(g, x, a, cut, shape[a]), part(g, x, a, 0, cut)], axis=a)
        return x


class Diff(Operator):
    """x[i + 1] - x[i] along `axis`, taken `n` times; `prepend` and `append` are joined on first."""

    methods = ()

    def infer(
        self, t: Infer, x: TensorType, prepend: TensorType | None = None, append: TensorType | None = None,
        axis: int = -1, n: int = 1,
    ) -> TensorType:  # fmt: skip
        a, count = t.axis(x, axis), t.integer(n, "n")
        if not 0 <= count <= PARTS:
            t.fail("TS213", f"diff takes 0 to {PARTS} differences, not {count}")
        size = x.shape[a]
        for v, name in ((prepend, "prepend"), (append, "append")):
            if v is None:
                continue
            if x.rank and not v.rank:
                axes = f"{x.rank} axes" if x.rank > 1 else "one axis"
                message = f"{name} of diff is an array of {axes} that is joined on, and this is one number"
                t.fail("TS206", message, "how often differences are taken is given by name: ts.diff(x, n=2)")
            fits = v.rank == x.rank and all(
                i == a or dims.compare(d, e, t.facts) != "no"
                for i, (d, e) in enumerate(zip(v.shape, x.shape, strict=True))
            )
            if not fits:
                t.fail("TS206", f"{shape_text(v.shape)} cannot be joined to {shape_text(x.shape)} along axis {a}")
            size = size + v.shape[a]
        dtype = t.promote(*(v for v in (x, prepend, append) if v is not None))
        t.canonical(axis=a, n=count)
        left = dims.dim_max(size - count, 0)
        return TensorType((*x.shape[:a], left, *x.shape[a + 1 :]), dtype)

    def reference(self, x: Any, prepend: Any, append: Any, axis: int, n: int) -> Any:
        given = {k: v for k, v in (("prepend", prepend), ("append", append)) if v is not None}
        joined = np.concatenate([v for v in (prepend, x, append) if v is not None], axis) if given else x
        if n >= joined.shape[axis]:
            return np.zeros((*joined.shape[:axis], 0, *joined.shape[axis + 1 :]), joined.dtype)
        return np.diff(joined, n, axis)

    def decompose(
        self, g: GraphBuilder, x: Value, prepend: Value | None, append: Value | None, axis: int, n: int
    ) -> Value:
        pieces = [v for v in (prepend, x, append) if v is not None]
        joined = g.concat(pieces, axis=axis) if len(pieces) > 1 else x
        for _ in range(n):
            size = tensor(joined).shape[axis]
            later = part(g, joined, axis, dims.dim_min(1, size), size)
            before = part(g, joined, axis, 0, dims.dim_max(size - 1, 0))
            joined = g.ne(later, before) if tensor(x).dtype.kind == "bool" else g.sub(later, before)
        return joined


class Repeat(Operator):
    """Each element `repeats` times along `axis`; None: of the flattened tensor."""

    def infer(self, t: Infer, x: TensorType, repeats: int, axis: int | None = None) -> TensorType:
        n = t.dim(repeats, "repeats")
        if isinstance(n, int) and n < 0:
            t.fail("TS213", f"repeats is not negative, unlike {n}")
        if axis is None:
            return x.with_shape((dims.prod(x.shape) * n,))
        a = t.axis(x, axis)
        t.canonical(axis=a, repeats=n)
        return x.with_shape((*x.shape[:a], x.shape[a] * n, *x.shape[a + 1 :]))

    def reference(self, x: Any, repeats: int, axis: int | None) -> Any:
        return np.repeat(x, repeats, axis)

    def decompose(self, g: GraphBuilder, x: Value, repeats: Dim, axis: int | None) -> Value:
        if axis is None:
            x, axis = g.reshape(x, (dims.prod(tensor(x).shape),)), 0
        s = tensor(x).shape
        wide = g.broadcast_to(g.unsqueeze(x, axis + 1), (*s[: axis + 1], repeats, *s[axis + 1 :]))
        return g.reshape(wide, (*s[:axis], s[axis] * repeats, *s[axis + 1 :]))


class TileOperator(Operator):
    """`x` repeated as a whole, `reps` times along each axis, as in NumPy."""

    name = "tile"
    functions = ()  # `tessera.tile` is the namespace of kernels

    def infer(self, t: Infer, x: TensorType, reps: Sequence[int]) -> TensorType:
        given = t.shape(reps, "reps")
        rank = max(len(given), x.rank)
        full = (1,) * (rank - len(given)) + given
        t.canonical(reps=full)
        shape = (1,) * (rank - x.rank) + x.shape
        return x.with_shape(tuple(d * n for d, n in zip(shape, full, strict=True)))

    def reference(self, x: Any, reps: tuple[int, ...]) -> Any:
        return np.tile(x, reps)

    def decompose(self, g: GraphBuilder, x: Value, reps: Shape) -> Value:
        shape = (1,) * (len(reps) - tensor(x).rank) + tensor(x).shape
        single = tuple(d for size in shape for d in (1, size))
        wide = g.broadcast_to(
            g.reshape(x, single), tuple(d for n, size in zip(reps, shape, strict=True) for d in (n, size))
        )
        return g.reshape(wide, tuple(d * n for d, n in zip(shape, reps, strict=True)))
