"""Panels of a matrix whose rows or columns are several strided axes in memory, such as the windows of an image.

The place of an element is a sum of what its row adds and what its column adds. A table says what each k of a slab adds;
vectors are read along the panel's own axis in runs of neighbours, or along k and transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tessera.compiler.targets.cpu.kernel.packing import tiled
from tessera.compiler.targets.cpu.kernel.packing.panels import PackedPanel, Packer, packer_of
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import I64, PTR, Index, Ty, Val, const

Walk: TypeAlias = Sequence[tuple[Index, Index]]
"""(size, stride) of axes that count as one, in C order"""


def offsets(fn: LLVMFunction, walk: Walk, first: Index, count: Index, table: Val) -> None:
    """table[i] = what the place `first + i` along the axes adds to an address, for i < `count`."""
    digits: list[Val] = []
    rest = first
    for size, _ in reversed(walk[1:]):
        digits.insert(0, fn.index(fn.mod(rest, size)))
        rest = fn.div(rest, size)
    digits.insert(0, fn.index(rest))
    with fn.loop(0, count, 1, digits) as each:
        total: Index = 0
        for digit, (_, stride) in zip(each.carried, walk, strict=True):
            total = fn.add(total, fn.mul(digit, stride))
        fn.store(fn.index(total), fn.gep(table, each.index, "i64"))
        following: list[Val] = []
        carry: Index = 1
        for digit, (size, _) in reversed([*zip(each.carried, walk, strict=True)][1:]):
            up = fn.add(digit, carry)
            full = fn.icmp("eq", up, size)
            following.append(fn.select(full, const(0, I64), fn.index(up)))
            carry = fn.convert("zext", full, I64)
        each.next = [fn.index(fn.add(each.carried[0], carry)), *reversed(following)]


def offset_at(fn: LLVMFunction, walk: Walk, place: Index) -> tuple[Index, Index]:
    """What a place along the axes adds to an address, and how many places are left of the last axis."""
    total: Index = 0
    left: Index = 0
    for i, (size, stride) in enumerate(reversed(walk)):
        outermost = i == len(walk) - 1
        digit = place if outermost else fn.mod(place, size)
        left = fn.sub(size, digit) if i == 0 else left
        total = fn.add(total, fn.mul(digit, stride))
        place = 0 if outermost else fn.div(place, size)
    return total, left


def scattered_function(module: LLVMModule, panel: PackedPanel, axes: int) -> str:
    """`void(source, first, valid, kc, table, run, left, target, size and stride of each of the panel's own axes)`.

    Panels from the element `first` on, as `pack_function` writes them. `table`: what the k of this slab add; they are
    in runs of `run` neighbours, `left` of the first one.
    """
    name = f"{panel.name}_of{axes}"
    if any(f.name == name for f in module.functions):
        return name
    params = [("source", PTR), ("first", I64), ("valid", I64), ("kc", I64), ("table", PTR), ("run", I64), ("left", I64),
              ("target", PTR), *((f"{what}{i}", I64) for i in range(axes) for what in ("size", "step"))]  # fmt: skip
    fn = LLVMFunction(module, name, params)
    source, first, valid, kc, table, run, left, target = (fn.param(i) for i in range(8))
    numbers = [fn.param(i) for i in range(8, len(params))]
    walk = [*zip(numbers[::2], numbers[1::2], strict=True)]
    pieces = _Pieces(packer_of(fn, panel), source, table, kc, walk)
    width, lanes = panel.width, panel.lanes
    with fn.loop(0, valid, width) as each:
        to = fn.gep(target, fn.mul(each.index, panel.steps), panel.element.elem)
        for start in range(0, width, lanes):
            most, begin = min(lanes, width - start), fn.add(each.index, start)
            have = fn.smax(fn.smin(fn.sub(valid, begin), most), 0)
            at, line = fn.add(first, begin), fn.gep(to, start, panel.element.elem)
            if panel.along == "k" and panel.together == 1:
                pieces.turned(at, most, have, line, run, left)
            elif panel.along == "k":
                whole = fn.icmp("eq", fn.mod(fn.binary("or", run, left), panel.together), 0)
                turn = partial(pieces.turned, at, most, have, line, run, left)
                fn.either(whole, turn, partial(pieces.singles, at, most, have, line))
            else:
                pieces.across(at, most, have, line)
    if panel.tiled:
        tiled.finish(fn, panel.tile, panel.right, valid, kc, target)
    return name


class _Pieces:
    """Writes a vector's width of a panel, for all k of the slab."""

    def __init__(self, packer: Packer, source: Val, table: Val, kc: Val, walk: Walk) -> None:
        self.packer, self.panel, self.fn = packer, packer.panel, packer.fn
        self.source, self.table, self.kc, self.walk = source, table, kc, walk
        self.places = self.fn.alloca("i64", self.panel.lanes)

    def across(self, at: Index, most: int, have: Index, line: Val) -> None:
        """Vectors along the panel's own axis: of one run of neighbours, of two, or of single elements."""
        fn, size, lanes = self.fn, self.walk[-1][0], self.panel.lanes
        if self.panel.along not in ("p", "p2"):
            self.singles(at, most, have, line)
            return
        step = 2 if self.panel.along == "p2" else 1
        base, left = offset_at(fn, self.walk, at)
        whole = fn.binary("and", fn.icmp("sge", left, lanes), fn.icmp("eq", have, lanes))

        def one_run() -> None:
            if step == 2:
                first, rest = self.packer.between(0, lanes), self.packer.between(0, lanes - 1)
                self._steps(most, line, lambda p: self._every_second(fn.gep(p, base, self.element), [first, rest]))
            else:
                self._steps(most, line, lambda p: self._read(fn.gep(p, base, self.element)))

        def two_skipping_runs() -> None:
            second = fn.sub(offset_at(fn, self.walk, fn.add(at, left))[0], fn.mul(left, 2))
            here, there = self._within(0, fn.smin(left, have)), self._within(left, have)
            later = self.packer.between(left, lanes)

            def read(p: Val) -> Val:
                near, far = (
                    self._every_second(fn.gep(p, x, self.element), m) for x, m in ((base, here), (second, there))
                )
                return fn.select(later, far, near)

            self._steps(most, line, read)

        def two_runs() -> None:
            if step == 2:
                two_skipping_runs()
                return
            second = fn.sub(offset_at(fn, self.walk, fn.add(at, left))[0], left)
            here, there = self.packer.between(0, fn.smin(left, have)), self.packer.between(left, have)

            def read(p: Val) -> Val:
                start = self.packer.masked(fn.gep(p, base, self.element), here, None)
                return self.packer.masked(fn.gep(p, second, self.element), there, start)

            self._steps(most, line, read)

        def broken() -> None:
            two = fn.icmp("sge", fn.add(left, size), have)
            fn.either(two, two_runs, lambda: self.singles(at, most, have, line))

        if most == lanes:
            fn.either(whole, one_run, broken)
        else:
            broken()

    def singles(self, at: Index, most: int, have: Index, line: Val) -> None:
        fn, lanes = self.fn, self.panel.lanes
        offsets(fn, self.walk, at, have, self.places)
        mask = self.packer.between(0, have)
        apart = fn.load(self.places, I64.wide(lanes), 8)
        pointers, t = PTR.wide(lanes), self.storage
        gather = f"llvm.masked.gather.{t.suffix}.{pointers.suffix}"
        fn.module.declare(f"declare {t.text} @{gather}({pointers.text}, {mask.ty.text}, {t.text})")

        def read(p: Val) -> Val:
            found = fn.op(f"getelementptr {self.element}, ptr {p.ref}, {apart!r}", pointers, (p, apart))
            where = f"{pointers.text} align {self.align} {found.ref}"
            return fn.effect(f"call {t.text} @{gather}({where}, {mask!r}, {t.text} zeroinitializer)", t)

        self._steps(most, line, read)

    def _steps(self, most: int, line: Val, read: Callable[[Val], Val]) -> None:
        """Writes all steps; `read` gives a vector of elements, from where their k adds to the source."""
        fn, packer = self.fn, self.packer

        def at(k: Index) -> Val:
            return fn.gep(self.source, fn.load(fn.gep(self.table, k, "i64"), I64), self.element)

        def step(k: Index, have: int, number: Index) -> None:
            self.packer.put_first(
                packer.joined([read(at(fn.add(k, i))) for i in range(have)]), most, packer.line(line, number)
            )

        packer.each_step(0, self.kc, step)

    def turned(self, at: Index, most: int, have: Index, line: Val, run: Val, left: Val) -> None:
        """k has runs of neighbours, of whole words: square blocks of them are transposed in registers."""
        fn, panel, lanes, together = self.fn, self.panel, self.panel.lanes, self.panel.together
        zero = const(0, panel.element.wide(lanes))

        def block(rows: list[Val], read: Callable[[Val], Val], to: Index, count: Index) -> None:
            columns = transpose(fn, [read(p) for p in rows] + [zero] * (lanes - most))
            steps, to = fn.div(count, together), fn.div(to, together)
            for i, column in enumerate(columns):
                with fn.when(fn.icmp("slt", i, steps)):
                    self.packer.put_first(column, most, self.packer.line(line, fn.add(to, i)))

        def whole_rows(p: Val) -> Val:
            return self.packer.read(p, lanes)

        def parts_of_rows(mask: Val) -> Callable[[Val], Val]:
            return lambda p: self.packer.found(self.packer.masked(p, mask, None, self.packer.piece(lanes)))

        def one_run(state: list[Val]) -> list[Val]:
            k, here = state
            count = fn.smin(here, fn.sub(self.kc, k))
            start = fn.gep(self.source, fn.load(fn.gep(self.table, k, "i64"), I64), self.element)
            rows = [fn.gep(start, own, self.element) for own in owns]
            square = lanes * together
            whole = fn.sub(count, fn.mod(count, square))
            with fn.loop(0, whole, square) as each:
                block([fn.gep(p, each.index, self.element) for p in rows], whole_rows, fn.add(k, each.index), square)
            rest = fn.sub(count, whole)
            with fn.when(fn.icmp("sgt", rest, 0)):
                mask = self.packer.between(0, fn.div(rest, together))
                ends = [fn.gep(p, whole, self.element) for p in rows]
                block(ends, parts_of_rows(mask), fn.add(k, whole), rest)
            return [fn.index(fn.add(k, count)), run]

        with fn.when(fn.icmp("sgt", have, 0)):
            offsets(fn, self.walk, at, have, self.places)
            last = fn.sub(have, 1)
            owns = [fn.load(fn.gep(self.places, fn.smin(i, last), "i64"), I64) for i in range(most)]
            fn.while_loop([const(0, I64), left], lambda s: fn.icmp("slt", s[0], self.kc), one_run)

    def _within(self, lo: Index, hi: Index) -> list[Val]:
        """Of two vectors, the lanes between every second of which are elements `lo` to `hi` - 1."""
        fn, lanes = self.fn, self.panel.lanes
        ends = fn.mul(lo, 2), fn.sub(fn.mul(hi, 2), 1)
        return [self.packer.between(*(fn.sub(x, first) for x in ends)) for first in (0, lanes)]

    def _every_second(self, p: Val, masks: list[Val]) -> Val:
        """Every second element from `p` on; two vectors are read under masks."""
        lanes = self.panel.lanes
        pair = [self.packer.masked(self.fn.gep(p, i * lanes, self.element), mask) for i, mask in enumerate(masks)]
        return self.fn.shuffle(pair[0], pair[1], range(0, 2 * lanes, 2))

    # -- vectors -----------------------------------------------------------------------------------------------------
    @property
    def element(self) -> str:
        return self.packer.stored(1).elem

    @property
    def storage(self) -> Ty:
        return self.packer.stored(self.panel.lanes)

    @property
    def align(self) -> int:
        return self.panel.storage.itemsize

    def _read(self, p: Val) -> Val:
        return self.fn.load(p, self.storage, self.align)
