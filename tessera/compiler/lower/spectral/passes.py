"""Fourier transforms as passes over memory, and tables as constants.

A transform of n = r m elements is, for each j < m, a transform of the r elements m apart that begin at j, whose results
q are multiplied by exp(-2 pi i j q / n), followed by r transforms of m elements. A pass does the first for all j, and
stores its results so that the next one finds them as r times as many neighbours: after the last pass they are in order
(T. G. Stockham, "High-speed convolution and correlation", 1966). Passes alternate between two places in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from tessera.compiler.graph.operator import attributes_of, operator_of
from tessera.compiler.graph.operators.spectral.factors import SHORT, radices
from tessera.compiler.graph.operators.spectral.roots import roots
from tessera.compiler.graph.operators.spectral.transform import operations
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType, ViewType
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.lower.program_builder import ProgramBuilder, inside
from tessera.compiler.lower.sorting import temporary
from tessera.compiler.lower.spectral.butterflies import Butterflies, Pair
from tessera.compiler.schedule.blocks import map_block
from tessera.compiler.schedule.views import ViewLayout, layout_of
from tessera.errors import Span
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np

LONG = 1 << 13
"""A longer transform multiplies by products of two roots, from two short tables."""
NEAR = 64
"""neighbours of which each root is the product of the root of the first of them and of one of as many others"""


def keep_table(group: Op, out: ProgramBuilder) -> None:
    """Numbers that the compiler knows, as a constant of the program."""
    op = group.region.block.ops[0]
    (result,) = group.results
    t = cast("TensorType", result.type)
    numbers = operator_of(op).reference(**attributes_of(op))  # pyright: ignore[reportOptionalCall]
    held = out.constant(numbers, t.dtype, result.hint or "table", group.span)
    out.of[result] = out.of[held]


def transform_lines(group: Op, out: ProgramBuilder) -> None:
    """`dft` along the middle one of three axes, or a short `rdft`."""
    op = next(o for o in group.region.block.ops if o.name in ("graph.dft", "graph.rdft"))
    attrs, layouts = attributes_of(op), [layout_of(v) for v in op.operands]
    (result,) = group.results
    out.temp(result)
    t = cast("TensorType", result.type)
    before, n, behind = t.shape
    assert isinstance(n, int)
    if op.name == "graph.rdft":
        (x,) = layouts
        assert x is not None
        _transform_real_lines(x, result, cast("float", attrs["power"]), group, out)
        return
    lengths = (n,) if behind == 1 and n <= SHORT else radices(n)
    places = [result]
    if len(lengths) > 1:
        places.append(temporary(t.shape, t.dtype, "passes", group.span, out))
    sources, left, done = [x for x in layouts if x is not None], n, behind
    for i, r in enumerate(lengths):
        left //= r
        last = i == len(lengths) - 1
        target = places[(len(lengths) - 1 - i) % 2]
        scale = float(n) ** cast("float", attrs["power"]) if last else 1.0
        step = TransformPass(r, (before, left, done), t.dtype, bool(attrs["inverse"]), scale, group.span)
        _PassWriter(step, out).launch(sources, target, inside(group))
        done = done * r
        sources = [ViewLayout(target, (before, left, done), (left * done, done, 1), 0)]


def _transform_real_lines(x: ViewLayout, result: Value, power: float, group: Op, out: ProgramBuilder) -> None:
    """Short lines of real numbers, transformed in registers."""
    before, n, _ = x.shape
    assert isinstance(n, int)
    dtype, strides = cast("TensorType", result.type).dtype, (x.strides[0], 2 * x.strides[1], x.strides[2])
    parts = [ViewLayout(x.base, (before, n // 2, 1), strides, x.offset + i * x.strides[1]) for i in (0, 1)]
    step = TransformPass(n // 2, (before, 1, 1), dtype, False, float(n) ** power, group.span, real=True)
    _PassWriter(step, out).launch(parts, result, inside(group))


@immutable
class TransformPass:
    """From [before, r, m, behind] to [before, m, r, behind], of (before, m, behind) = `size`. `real`: the only pass of
    lines of real numbers, of which those with even numbers are real parts: r + 1 results."""

    r: int
    size: tuple[Dim, int, Dim]
    dtype: DType
    inverse: bool
    scale: float
    span: Span
    real: bool = False

    @property
    def results(self) -> int:
        return self.r + 1 if self.real else self.r

    @property
    def n(self) -> int:
        return self.r * self.size[1]


@mutable
class _PassWriter:
    """The kernel of one pass."""

    step: TransformPass
    out: ProgramBuilder

    def launch(self, sources: Sequence[ViewLayout], target: Value, known: dict[Value, Value]) -> None:
        """`sources`: complex numbers, or their real and their imaginary parts."""
        step, out = self.step, self.out
        r, (_, m, behind), count = step.r, step.size, step.results
        writes = ViewType((count, *step.size), step.dtype, (behind, behind * m * count, behind * count, 1))
        space = Space(step.size, [(0,), (1,), (2,)], step.size, self._block(), (False,) * 3)
        writer = KernelWriter(space, {}, set(), step.span)
        b, short = writer.b, Butterflies(writer.b)
        numbers = self._read(sources, writer, short)
        y = writer.window(target, 0, writes, "out", write=True)
        found = short.transform(numbers)
        if step.real:
            found = short.of_real(found)
        if m > 1:
            found = [found[0], *self._turned(found[1:], writer, short)]
        for q, pair in enumerate(found):
            if step.scale != 1:
                pair = short.scaled(pair[0], step.scale), short.scaled(pair[1], step.scale)
            real, imaginary = reversed(pair) if step.inverse else pair
            b.store(y, b.map("make_complex", real, imaginary), [b.index(q), *writer.offsets])
        flops = operations((step.size[0], r, behind * m), 1)
        name, length = ("rdft", 2 * r) if step.real else ("dft", r)
        kernel = writer.finish(out.kernel_name(f"{name}_{length}"))
        out.launch(kernel, writer.arguments, known, f"{name} of {length}", flops, step.span)

    def _read(self, sources: Sequence[ViewLayout], writer: KernelWriter, short: Butterflies) -> list[Pair]:
        """The r parts of lines, as far as a program takes them."""
        step, b = self.step, writer.b
        r, (before, m, behind), block = step.r, step.size, (1, *writer.space.block)
        if m == 1 and len(sources) == 2 and (beside := _beside(*sources)) is not None:
            x = sources[0]
            view = ViewType((2 * r, before, 1, behind), step.dtype.part, (beside, x.strides[0], 0, x.strides[2]))
            window = writer.window(x.base, x.offset, view, "x")
            parts = [b.load(window, [b.index(i), *writer.offsets], block) for i in range(2 * r)]
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            return [(y, x) if step.inverse else (x, y) for x, y in pairs]
        loads: list[list[Value]] = []
        for x in sources:
            dtype = step.dtype if len(sources) == 1 else step.dtype.part
            view = ViewType((r, before, m, behind), dtype, (m * x.strides[1], x.strides[0], x.strides[1], x.strides[2]))
            window = writer.window(x.base, x.offset, view, "x")
            loads.append([b.load(window, [b.index(q), *writer.offsets], block) for q in range(r)])
        if len(loads) == 1:
            return [short.parts(x, step.inverse) for x in loads[0]]
        return [(y, x) if step.inverse else (x, y) for x, y in zip(*loads, strict=True)]

    def _block(self) -> tuple[Dim, ...]:
        """Elements of each of the r parts that a program takes."""
        step, sizes = self.step, self.out.sizes
        most = max(1, sizes.elements // step.r)
        block = map_block(step.size, replace(sizes, elements=most))
        return block if step.n <= LONG else (1, NEAR, min(block[2], max(1, most // NEAR)))

    def _turned(self, found: list[Pair], writer: KernelWriter, short: Butterflies) -> list[Pair]:
        """Results 1, 2 ... times the roots of their places."""
        b, m, block = writer.b, self.step.size[1], (1, *writer.space.block)
        q, at, zero = np.arange(1, self.step.r)[:, None], writer.offsets[1], b.index(0)
        if self.step.n <= LONG:
            tables = [(self._table(q * np.arange(m), "roots", writer), at, block[2])]
        else:
            first = b.iop("idiv", at, b.index(NEAR))
            tables = [(self._table(q * np.arange(NEAR), "near", writer), zero, NEAR)]
            tables.append((self._table(q * np.arange(0, m, NEAR), "far", writer), first, 1))
        out: list[Pair] = []
        for k, v in enumerate(found):
            w: Pair | None = None
            for table, place, count in tables:
                part = short.parts(b.load(table, [b.index(k), zero, place, zero], (1, 1, count, 1)))
                w = part if w is None else short.times(w, short.spread(part, (1, 1, NEAR, 1)))
            assert w is not None
            out.append(short.times(v, short.spread(w, block)))
        return out

    def _table(self, exponents: Any, name: str, writer: KernelWriter) -> Value:
        step = self.step
        numbers = self.out.constant(roots(exponents, step.n), step.dtype, name, step.span)
        return writer.window(numbers, 0, ViewType((exponents.shape[0], 1, exponents.shape[1], 1), step.dtype), name)


def _beside(real: ViewLayout, imaginary: ViewLayout) -> Dim | None:
    """How far each imaginary part is behind its real part, where it is halfway to the next real part."""
    apart = imaginary.offset - real.offset
    same = real.base is imaginary.base and real.strides == imaginary.strides
    return apart if same and real.strides[1] == 2 * apart else None
