"""Panels for tile registers (kernel/instructions/tiles.py), which are 16 words of k deep: zeros fill k up to whole
registers, and on the left each element has its 16 words in a row."""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import I32, Index, Ty, Val, const, ty
from tessera.immutable import immutable
from tessera.language.dtypes import DType

WORDS = 16
"""of k in a register"""


@immutable
class TilePanel:
    """`width` elements, with room for the words of `steps` of `together` neighbours in k, stored as `storage`."""

    storage: DType
    width: int
    steps: int
    together: int


def rows(
    fn: LLVMFunction, panel: TilePanel, found: Callable[[Val], Val], source: Val, sp: Val, valid: Val, kc: Val, to: Val
) -> None:
    """Panels of a left operand whose k are neighbours: 16 words at a time are copied. `found`: words, of what they are
    in memory."""
    words, deep, element = I32.wide(WORDS), WORDS * panel.together, memory_element(panel.storage)
    pieces = ty("i", panel.storage.bits, deep)
    loaded = I32.wide(deep * panel.storage.bits // 32)
    whole = fn.mul(fn.div(kc, deep), deep)
    left = fn.convert("trunc", fn.index(fn.sub(kc, whole)), pieces.scalar)
    mask = fn.compare("icmp slt", fn.lane_numbers(pieces), fn.splat(left, deep))
    with fn.loop(0, fn.mul(_panels(fn, panel, valid), panel.width)) as each:
        number, row = fn.div(each.index, panel.width), fn.mod(each.index, panel.width)
        first = fn.add(fn.mul(number, panel.width * panel.steps), fn.mul(row, WORDS))
        line = fn.gep(source, fn.mul(each.index, sp), element)

        def place(k: Index, first: Index = first) -> Val:
            return fn.gep(to, fn.add(first, fn.div(fn.mul(k, panel.width), panel.together)), "i32")

        def copy(line: Val = line, place: Callable[[Index], Val] = place) -> None:
            with fn.loop(0, whole, deep) as k:
                fn.store(
                    found(fn.load(fn.gep(line, k.index, element), loaded, panel.storage.itemsize)), place(k.index), 64
                )
            with fn.when(fn.icmp("slt", whole, kc)):
                rest = _masked(fn, fn.gep(line, whole, element), mask, pieces)
                fn.store(
                    found(fn.op(f"bitcast {pieces.text} {rest.ref} to {loaded.text}", loaded, (rest,))),
                    place(whole),
                    64,
                )

        def clear(place: Callable[[Index], Val] = place) -> None:
            with fn.loop(0, kc, deep) as k:
                fn.store(const(0, words), place(k.index), 64)

        fn.either(fn.icmp("slt", each.index, valid), copy, clear)


def finish(fn: LLVMFunction, panel: TilePanel, right: bool, valid: Val, kc: Val, target: Val) -> None:
    """Panels that hold the words of one step after the other: the steps that are missing become zeros, and on the left
    those of a register are transposed where they lie."""
    vector, width = I32.wide(WORDS), panel.width
    steps = fn.div(fn.add(kc, panel.together - 1), panel.together)
    end = fn.mul(fn.div(fn.add(steps, WORDS - 1), WORDS), WORDS)
    with fn.loop(0, _panels(fn, panel, valid)) as each:
        start = fn.gep(target, fn.mul(each.index, width * panel.steps), "i32")
        with fn.loop(fn.mul(steps, width), fn.mul(end, width)) as word:
            fn.store(const(0, I32), fn.gep(start, word.index, "i32"), 4)
        with fn.loop(0, 0 if right else end, WORDS) as step:
            block = fn.gep(start, fn.mul(step.index, width), "i32")
            places = [[fn.gep(block, i * width + j, "i32") for i in range(WORDS)] for j in range(0, width, WORDS)]
            turned = [transpose(fn, [fn.load(p, vector, 4) for p in square]) for square in places]
            for i in range(width):
                fn.store(turned[i // WORDS][i % WORDS], fn.gep(block, i * WORDS, "i32"), 4)


def _panels(fn: LLVMFunction, panel: TilePanel, valid: Val) -> Index:
    return fn.div(fn.add(valid, panel.width - 1), panel.width)


def _masked(fn: LLVMFunction, p: Val, mask: Val, t: Ty) -> Val:
    """Zeros in the lanes that are not read."""
    fn.module.declare(f"declare {t.text} @llvm.masked.load.{t.suffix}.p0(ptr, {mask.ty.text}, {t.text})")
    args = f"ptr align {t.bits // 8} {p.ref}, {mask!r}, {t.text} zeroinitializer"
    return fn.effect(f"call {t.text} @llvm.masked.load.{t.suffix}.p0({args})", t)
