"""Left operands of narrow numbers whose k are neighbours in memory: each row is a line of words, `steps` of them apart.

A product reads its left operand word by word, so nothing has to be transposed. Where bytes of the right operand are
packed 128 off (narrow.py), what that adds to the sums of a row depends on the row alone: it is summed on the way.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.elementary.convert import memory_element
from tessera.compiler.targets.cpu.kernel.instructions import narrow
from tessera.compiler.targets.cpu.kernel.packing.panels import PackedPanel, packer_of
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.values import I32, I64, PTR, Index, Val, const
from tessera.language.dtypes import DType

UNROLLED = 4
"""vectors of a line that are copied in a round"""


def lines_function(module: LLVMModule, panel: PackedPanel, values: tuple[DType, DType] | None) -> str:
    """`void(source, row stride, valid, rows, kc, target, sums)`: `rows` lines, of which the first `valid` hold kc
    elements of the source and the others zeros. `values`: what the elements of the operands are, where the opposite of
    what moving the right one adds to each row is stored to `sums`."""
    name = f"{panel.name}_lines{panel.steps}{'_sums' if values else ''}"
    if any(f.name == name for f in module.functions):
        return name
    params = [("source", PTR), ("sp", I64), ("valid", I64), ("rows", I64), ("kc", I64), ("target", PTR), ("sums", PTR)]
    fn = LLVMFunction(module, name, params)
    packer, lanes, together = packer_of(fn, panel), panel.lanes, panel.together
    source, sp, valid, rows, kc, target, sums = (fn.param(i) for i in range(len(params)))
    vector, zero = I32.wide(lanes), const(0, I32.wide(lanes))
    words, element = fn.div(kc, together), memory_element(panel.storage)
    round_ = UNROLLED * lanes
    most, whole = (fn.sub(words, fn.mod(words, n)) for n in (round_, lanes))

    def add(v: Val, total: Val) -> Val:
        return narrow.moved_by(fn, *values, v, total) if values else total

    with fn.loop(0, valid) as row:
        line, at = fn.gep(source, fn.mul(row.index, sp), element), fn.gep(target, fn.mul(row.index, panel.steps), "i32")

        def read(word: Index, line: Val = line) -> Val:
            return fn.load(fn.gep(line, fn.mul(word, together), element), packer.piece(lanes), panel.storage.itemsize)

        with fn.loop(0, most, round_, [zero] * UNROLLED) as each:
            found = [packer.found(read(fn.add(each.index, i * lanes))) for i in range(UNROLLED)]
            for i, v in enumerate(found):
                fn.store(v, fn.gep(at, fn.add(each.index, i * lanes), "i32"), 64)
            each.next = [add(v, total) for v, total in zip(found, each.carried, strict=True)]
        with fn.loop(most, whole, lanes, each.results) as each:
            v, (first, *others) = packer.found(read(each.index)), each.carried
            fn.store(v, fn.gep(at, each.index, "i32"), 64)
            each.next = [add(v, first), *others]
        total = each.results[0]
        for other in each.results[1:] if values else []:
            total = fn.binary("add", total, other)
        with fn.loop(whole, words, 1, [const(0, I32)]) as each:
            word = packer.read(packer.at(line, fn.mul(each.index, together)), 1)
            fn.store(word, fn.gep(at, each.index, "i32"), 4)
            each.next = [_one(fn, values, word, each.carried[0])]
        end = fn.alloca("i32", 1)
        fn.store(each.results[0], end, 4)
        for have in range(1, together):
            with fn.when(fn.icmp("eq", fn.mod(kc, together), have)):
                here = fn.gep(line, fn.mul(words, together), element)
                parts = [fn.load(packer.at(here, i), packer.stored(1), panel.storage.itemsize) for i in range(have)]
                word = packer.joined(parts)
                fn.store(word, fn.gep(at, words, "i32"), 4)
                fn.store(_one(fn, values, word, fn.load(end, I32, 4)), end, 4)
        if values:
            fn.module.declare(f"declare i32 @llvm.vector.reduce.add.{vector.suffix}({vector.text})")
            across = fn.op(f"call i32 @llvm.vector.reduce.add.{vector.suffix}({total!r})", I32, (total,))
            across = fn.binary("add", across, fn.load(end, I32, 4))
            fn.store(fn.binary("sub", const(0, I32), across), fn.gep(sums, row.index, "i32"), 4)
    with fn.loop(valid, rows) as row:
        at = fn.gep(target, fn.mul(row.index, panel.steps), "i32")
        with fn.loop(0, fn.div(fn.add(kc, together - 1), together), lanes) as each:
            fn.store(zero, fn.gep(at, each.index, "i32"), 64)
        if values:
            fn.store(const(0, I32), fn.gep(sums, row.index, "i32"), 4)
    return name


def _one(fn: LLVMFunction, values: tuple[DType, DType] | None, word: Val, total: Val) -> Val:
    """The sum with what moving the right operand adds to the product with one word."""
    if values is None:
        return total
    wide = fn.op(f"insertelement <4 x i32> zeroinitializer, {word!r}, i64 0", I32.wide(4), (word,))
    start = fn.op(f"insertelement <4 x i32> zeroinitializer, {total!r}, i64 0", I32.wide(4), (total,))
    return fn.extract(narrow.moved_by(fn, *values, wide, start), 0)
