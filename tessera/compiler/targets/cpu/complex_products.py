"""Products of complex matrices as real ones of twice the size, whose packed kernels then do the work.

With a row (re, im) of A for each element and the rows (re, im), (-im, re) of B, the product of the real matrices is C
as it lies in memory. A few k at a time are laid out so; an element's sums run on in ascending k, re before im.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tessera.compiler.targets.cpu.convert import memory_element, real_part, register_type
from tessera.compiler.targets.cpu.values import Index, Val
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.targets.cpu.kernel import KernelFunction
    from tessera.compiler.targets.cpu.products import Operand, Product

DEPTH = 128
"""complex elements of k that are laid out at a time"""


def write_complex(k: KernelFunction, product: Product) -> None:
    """C = A @ B for complex operands of one dtype; C is a scratch matrix of complex elements that holds zeros."""
    fn, part = k.fn, real_part(product.acc)
    wide = 2 * product.columns
    left = k.raw(product.rows * 2 * DEPTH * part.itemsize)
    right = k.raw(2 * DEPTH * wide * part.itemsize)
    with fn.loop(0, product.k, DEPTH) as at:
        depth = fn.smin(fn.sub(product.k, at.index), DEPTH)
        _lay_out_left(k, product, left, at.index, depth, part)
        _lay_out_right(k, product, right, at.index, depth, part)
        replace(
            product,
            a=replace(product.a, ptr=left, strides=(2 * DEPTH, 1), dtype=part),
            b=replace(product.b, ptr=right, strides=(wide, 1), dtype=part),
            acc=part, pitch=2 * product.pitch, n=fn.mul(product.n, 2), k=fn.mul(depth, 2),
            columns=wide, accumulate=True,
        ).write(k)  # fmt: skip


def _element(k: KernelFunction, x: Operand, row: Index, column: Index, part: DType) -> tuple[Val, Val]:
    """Real and imaginary part of an element in memory."""
    fn, t = k.fn, register_type(part)
    place = fn.add(fn.mul(row, x.strides[0]), fn.mul(column, x.strides[1]))
    p = fn.gep(x.ptr, fn.mul(place, 2), memory_element(part))
    return fn.load(p, t), fn.load(fn.gep(p, 1, memory_element(part)), t)


def _lay_out_left(k: KernelFunction, product: Product, place: Val, start: Index, depth: Index, part: DType) -> None:
    fn, elem = k.fn, memory_element(part)
    with fn.loop(0, product.m) as i:
        line = fn.gep(place, fn.mul(i.index, 2 * DEPTH), elem)
        with fn.loop(0, depth) as j:
            re, im = _element(k, product.a, i.index, fn.add(start, j.index), part)
            p = fn.gep(line, fn.mul(j.index, 2), elem)
            fn.store(re, p)
            fn.store(im, fn.gep(p, 1, elem))


def _lay_out_right(k: KernelFunction, product: Product, place: Val, start: Index, depth: Index, part: DType) -> None:
    fn, elem, wide = k.fn, memory_element(part), 2 * product.columns
    with fn.loop(0, depth) as i:
        line = fn.gep(place, fn.mul(i.index, 2 * wide), elem)
        with fn.loop(0, product.n) as j:
            re, im = _element(k, product.b, fn.add(start, i.index), j.index, part)
            p = fn.gep(line, fn.mul(j.index, 2), elem)
            fn.store(re, p)
            fn.store(im, fn.gep(p, 1, elem))
            fn.store(k.ev.vm.neg(im), fn.gep(p, wide, elem))
            fn.store(re, fn.gep(p, wide + 1, elem))
