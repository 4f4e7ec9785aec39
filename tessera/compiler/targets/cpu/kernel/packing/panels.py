"""Panels of a matrix, packed for the products in registers: for each step of k as many elements as the block is wide.

A step is one k, converted to the accumulator's dtype, or a word with several neighbours in k (narrow.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tessera.compiler.targets.cpu.elementary.convert import Pair, memory_element, register_type, storage_type, unpack
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.kernel.packing import tiled
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import I1, I32, I64, PTR, Index, Ty, Val, const, ty
from tessera.immutable import immutable, mutable
from tessera.language.dtypes import DType

AHEAD = 4
"""how many steps further the row is that memory is asked for while one is packed"""
WIDE = 4
"""panels that are packed side by side where a step's elements are neighbours, so that long pieces of memory are read"""


@immutable
class PackedPanel:
    """`width` elements of each step, stored as `storage`; a panel has room for `steps`. Panels are contiguous.

    `along` says which axis has stride 1: "p" (the panel's own), "k" or ""; "p2": the panel's own has stride 2.
    `together`: how many neighbours in k a word holds; `moved`: they are bytes, packed 128 off.
    """

    isa: VectorISA
    storage: DType
    acc: DType
    width: int
    along: str
    right: bool
    steps: int
    together: int = 1
    moved: bool = False
    tiled: bool = False
    """for tile registers: of 16 steps at a time, words ascend with k, and on the left each element has its 16 words"""

    @property
    def element(self) -> Ty:
        return I32 if self.together > 1 else register_type(self.acc)

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.element.bits)

    @property
    def tile(self) -> tiled.TilePanel:
        return tiled.TilePanel(self.storage, self.width, self.steps, self.together)

    @property
    def falling(self) -> bool:
        """Whether the earlier k of a word is its upper half."""
        return self.together == 2 and not self.tiled

    @property
    def name(self) -> str:
        how = self.along or "x"
        if self.storage.is_complex:
            how = "right" if self.right else "left"
        side = f"{'tiled_' * self.tiled}{'right' if self.right else 'left'}"
        words = f"_{self.together}{side}{'_moved' * self.moved}" * (self.together > 1)
        return f"pack_{self.storage}_{self.acc}_{how}{self.width}{words}_{self.isa.name}"


def pack_function(module: LLVMModule, panel: PackedPanel) -> str:
    """`void(source, panel stride, k stride, valid, kc, target)`: as many panels as `valid` elements of a step fill,
    target[panel][step][width], with zeros beyond them in the last."""
    if any(f.name == panel.name for f in module.functions):
        return panel.name
    params = [("source", PTR), ("sp", I64), ("sk", I64), ("valid", I64), ("kc", I64), ("target", PTR)]
    fn = LLVMFunction(module, panel.name, params)
    packer = packer_of(fn, panel)
    source, sp, sk, valid, kc, target = (fn.param(i) for i in range(6))
    if panel.tiled and not panel.right and panel.along == "k":
        tiled.rows(fn, panel.tile, packer.found, source, sp, valid, kc, target)
        return panel.name
    width, whole = panel.width, fn.div(valid, panel.width)

    def some(first: Index, write: Callable[..., None], **more: Index) -> None:
        """Writes panels; `first` is the number of the first one."""
        own = fn.div(fn.mul(first, width), parts(panel.storage) if panel.right else 1)
        to = fn.gep(target, fn.mul(first, width * panel.steps), panel.element.elem)
        write(packer.at(source, fn.mul(own, sp)), sp, sk, kc, to, **more)

    match "complex" if panel.storage.is_complex else panel.along:
        case "p":
            wide = fn.mul(fn.div(whole, WIDE), WIDE)
            with fn.loop(0, wide, WIDE) as p:
                some(p.index, packer.straight, panels=WIDE)
            with fn.loop(wide, whole) as p:
                some(p.index, packer.straight, panels=1)
        case "k":
            with fn.loop(0, whole) as p:
                some(p.index, packer.turned)
        case "complex":
            with fn.loop(0, whole) as p:
                some(p.index, packer.complex, valid=width)
        case _:
            with fn.loop(0, whole) as p:
                some(p.index, packer.one_by_one, valid=width)
    rest = fn.sub(valid, fn.mul(whole, width))
    with fn.when(fn.icmp("sgt", rest, 0)):
        if panel.storage.is_complex:
            some(whole, packer.complex, valid=rest)
        elif panel.along == "p" and packer.has_masks:
            some(whole, packer.under_masks, panels=1, valid=rest)
        else:
            some(whole, packer.one_by_one, valid=rest)
    if panel.tiled:
        tiled.finish(fn, panel.tile, panel.right, valid, kc, target)
    return panel.name


def packer_of(fn: LLVMFunction, panel: PackedPanel) -> Packer:
    if panel.together == 1:
        return Packer(fn, panel)
    return (WordPacker if panel.storage.bits * panel.together == 32 else HalfPacker)(fn, panel)


def parts(dtype: DType) -> int:
    """Real numbers of an element."""
    return 2 if dtype.is_complex else 1


@mutable
class Packer:
    fn: LLVMFunction
    panel: PackedPanel

    @property
    def vm(self) -> VectorMath:
        return VectorMath(self.fn, self.panel.isa)

    def read(self, p: Val, lanes: int) -> Val:
        """`lanes` consecutive steps: elements in the accumulator's type, or words of neighbours in k."""
        return self.found(self.fn.load(p, self.piece(lanes), self.panel.storage.itemsize))

    def piece(self, lanes: int) -> Ty:
        """The type of `lanes` consecutive steps as they are loaded."""
        return self.stored(lanes)

    def found(self, loaded: Val) -> Val:
        """Steps, of what `piece` loaded."""
        return self.joined([loaded])

    def stored(self, lanes: int) -> Ty:
        """The type of `lanes` elements as they are loaded."""
        return storage_type(self.panel.storage, lanes)

    def joined(self, parts: list[Val]) -> Val:
        """Steps, of the elements that each of them has."""
        (raw,) = parts
        loaded = unpack(raw, self.panel.storage, self.vm)
        assert isinstance(loaded, Val)
        return widened(self.fn, loaded, self.panel.storage, self.panel.acc)

    def each_step(self, lo: Index, hi: Val, write: Callable[[Index, int, Index], None]) -> None:
        """Writes steps: the k where each begins, how many of k it has, its number."""
        with self.fn.loop(lo, hi) as at:
            write(at.index, 1, at.index)

    def at(self, base: Val, offset: Index) -> Val:
        return self.fn.gep(base, offset, memory_element(self.panel.storage))

    def put(self, v: Val, line: Val, place: Index) -> None:
        element = self.panel.element
        self.fn.store(v, self.fn.gep(line, place, element.elem), element.bits // 8)

    def line(self, target: Val, step: Index) -> Val:
        return self.fn.gep(target, self.fn.mul(step, self.panel.width), self.panel.element.elem)

    def straight(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val, panels: int) -> None:
        """The panel's axis has stride 1: rows are copied under masks, or else in the largest powers of two."""
        fn = self.fn
        if self.has_masks and self.panel.width % self.panel.lanes:
            self.under_masks(source, sp, sk, kc, target, panels, self.panel.width)
            return
        with fn.loop(0, kc) as at:
            row, line = self.at(source, fn.mul(at.index, sk)), self.line(target, at.index)
            self.ask(row, sk, panels)
            for p in range(panels):
                self._row(partial(self._read_at, row, p * self.panel.width), self.panel_of(line, p))

    def ask(self, row: Val, sk: Val, panels: int) -> None:
        """Asks memory for the same piece of a later row: processors do not foresee short pieces of far rows."""
        later = self.at(row, self.fn.mul(sk, AHEAD * self.panel.together))
        for start in range(0, panels * self.panel.width, 64 // self.panel.storage.itemsize):
            self.fn.prefetch(self.at(later, start))

    @property
    def has_masks(self) -> bool:
        """Whether parts of vectors are read and written under masks, where the panel's axis has stride 1."""
        return self.panel.isa.masks

    def under_masks(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val, panels: int, valid: Index) -> None:
        """Panels whose axis has stride 1, each with `valid` elements of a step and zeros behind them."""
        del sp
        fn, lanes, width = self.fn, self.panel.lanes, self.panel.width
        masks = {start: self.between(0, fn.sub(valid, start)) for start in range(0, width, lanes)}

        def step(k: Index, have: int, number: Index) -> None:
            rows, line = [self.at(source, fn.mul(fn.add(k, i), sk)) for i in range(have)], self.line(target, number)
            for p in range(panels):
                for start, mask in masks.items():
                    v = self.joined([self.masked(self.at(row, p * width + start), mask) for row in rows])
                    place = fn.gep(self.panel_of(line, p), start, self.panel.element.elem)
                    self.put_first(v, min(lanes, width - start), place)

        self.each_step(0, kc, step)

    def masked(self, p: Val, mask: Val, otherwise: Val | None = None, t: Ty | None = None) -> Val:
        """Stored elements, or what else `t` is; in the other lanes what `otherwise` has there, or zeros."""
        t, fn = t or self.stored(self.panel.lanes), self.fn
        name = f"llvm.masked.load.{t.suffix}.p0"
        fn.module.declare(f"declare {t.text} @{name}(ptr, {mask.ty.text}, {t.text})")
        rest = f"{t.text} zeroinitializer" if otherwise is None else repr(otherwise)
        where = f"ptr align {self.panel.storage.itemsize} {p.ref}"
        return fn.effect(f"call {t.text} @{name}({where}, {mask!r}, {rest})", t)

    def between(self, first: Index, end: Index) -> Val:
        """The lanes from `first` on that come before `end`."""
        fn, lanes = self.fn, self.panel.lanes
        numbers = fn.lane_numbers(I32.wide(lanes))
        low, high = (fn.splat(fn.convert("trunc", fn.index(i), I32), lanes) for i in (first, end))
        return fn.binary("and", fn.compare("icmp sge", numbers, low), fn.compare("icmp slt", numbers, high))

    def put_first(self, v: Val, most: int, place: Val) -> None:
        """Stores the first `most` lanes: behind them is another step."""
        if most == v.ty.lanes:
            self.put(v, place, 0)
            return
        fn, t = self.fn, v.ty
        name = f"llvm.masked.store.{t.suffix}.p0"
        mask = Val("<" + ", ".join(f"i1 {str(i < most).lower()}" for i in range(t.lanes)) + ">", I1.wide(t.lanes))
        fn.module.declare(f"declare void @{name}({t.text}, ptr, {mask.ty.text})")
        fn.do(f"call void @{name}({v!r}, ptr align {t.bits // 8} {place.ref}, {mask!r})")

    def panel_of(self, line: Val, number: int) -> Val:
        """The same step of a panel further on."""
        panel = self.panel
        return self.fn.gep(line, number * panel.width * panel.steps, panel.element.elem)

    def _read_at(self, row: Val, start: int, place: int, lanes: int) -> Val:
        return self.read(self.at(row, start + place), lanes)

    def _row(self, read: Callable[[int, int], Val], line: Val) -> None:
        """All elements of a step: `read(place, lanes)` gives `lanes` of them from a place on."""
        self.pieces(read, line, self.panel.width)

    def pieces(self, read: Callable[[int, int], Val], line: Val, width: int) -> None:
        done = 0
        while done < width:
            lanes = min(self.panel.lanes, 1 << ((width - done).bit_length() - 1))
            self.put(read(done, lanes), line, done)
            done += lanes

    def turned(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val) -> None:
        """k has stride 1: square blocks are transposed in registers; the rest of k is packed step by step.

        A row of fewer than `lanes` elements is stored as a full vector: what comes later overwrites the surplus.
        Several squares beside each other are a loop, since more than one does not fit into the registers.
        """
        fn, lanes, width = self.fn, self.panel.lanes, self.panel.width
        side = lanes * self.panel.together
        whole, looped = fn.mul(fn.div(kc, side), side), width // lanes * lanes if width >= 2 * lanes else 0
        with fn.loop(0, whole, side) as at:
            parts = [(start, self._square(source, sp, at.index, start)) for start in range(looped, width, lanes)]
            self._put_columns(parts, target, at.index)
            if looped:
                with fn.loop(0, looped, lanes) as start:
                    square = self._square(source, sp, at.index, start.index)
                    self._put_columns([(start.index, square)], target, at.index)
        self.one_by_one(source, sp, sk, kc, target, width, whole)

    def _square(self, source: Val, sp: Val, k: Val, start: Index) -> list[Val]:
        """The vectors of steps k, k + 1 ..., of `lanes` elements from `start` on as far as the panel has them."""
        fn, lanes, width = self.fn, self.panel.lanes, self.panel.width
        have = min(lanes, width - start) if isinstance(start, int) else lanes
        corner = self.at(source, k)
        for i in range(have):  # of the next panel: so many rows side by side are not foreseen
            fn.prefetch(self.at(corner, fn.mul(sp, fn.add(start, i + width))), 2)
        rows = [self.read(self.at(corner, fn.mul(sp, fn.add(start, i))), lanes) for i in range(have)]
        return transpose(fn, rows + [const(0, self.panel.element.wide(lanes))] * (lanes - have))

    def _put_columns(self, parts: Sequence[tuple[Index, list[Val]]], target: Val, k: Val) -> None:
        first = self.fn.div(k, self.panel.together)
        for i in range(self.panel.lanes):
            for start, square in parts:
                self.put(square[i], self.line(target, self.fn.add(first, i)), start)

    def one_by_one(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val, valid: Index, start: Index = 0) -> None:
        """The steps from `start` on, element by element."""
        fn, zero = self.fn, const(0, self.panel.element)
        with fn.loop(start, kc) as at:
            base, line = self.at(source, fn.mul(at.index, sk)), self.line(target, at.index)
            with fn.loop(0, valid) as one:
                self.put(self.read(self.at(base, fn.mul(one.index, sp)), 1), line, one.index)
            with fn.loop(valid, self.panel.width) as rest:
                self.put(zero, line, rest.index)

    def complex(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val, valid: Index) -> None:
        """Complex elements as real numbers: on the right two columns for each, and two rows of k on either side."""
        fn, right, storage = self.fn, self.panel.right, self.panel.storage
        across = 2 if right else 1
        zero = const(0, self.panel.element)
        with fn.loop(0, fn.div(kc, 2)) as at:
            base = self.at(source, fn.mul(at.index, sk))
            lines = [self.line(target, fn.add(fn.mul(at.index, 2), i)) for i in range(2)]
            with fn.loop(0, fn.div(valid, across)) as one:
                p = self.at(base, fn.mul(one.index, sp))
                loaded = unpack(fn.load(p, storage_type(storage, 1), storage.itemsize // 2), storage, self.vm)
                assert isinstance(loaded, Pair)
                re, im = loaded.re, loaded.im
                for line, values in zip(
                    lines, ((re, im), (self.vm.neg(im), re)) if right else ((re,), (im,)), strict=True
                ):
                    for j, v in enumerate(values):
                        self.put(v, line, fn.add(fn.mul(one.index, across), j))
            with fn.loop(valid, self.panel.width) as rest:
                for line in lines:
                    self.put(zero, line, rest.index)


class WordPacker(Packer):
    """Steps are words. Of pairs the earlier k is the upper half, of four bytes and in tiles the first k the lowest.

    Where k ends inside a word, the products of missing elements are -0.0 for floats, which changes no sum, and 0 for
    integers.
    """

    @property
    def has_masks(self) -> bool:
        return self.panel.isa.masks and not self.panel.tiled

    def piece(self, lanes: int) -> Ty:
        return I32.wide(lanes)

    def found(self, loaded: Val) -> Val:
        v = loaded
        return self._moved(self.fn.intrinsic("fshl", v.ty, v, v, const(16, v.ty)) if self.panel.falling else v)

    def _moved(self, v: Val) -> Val:
        return self.fn.binary("xor", v, const(0x80808080, v.ty)) if self.panel.moved else v

    def stored(self, lanes: int) -> Ty:
        return ty("i", self.panel.storage.bits, lanes)

    def joined(self, parts: list[Val]) -> Val:
        """Words of these elements, the first k first; of fewer than there are in a word near the end of k."""
        fn, count, bits = self.fn, self.panel.together, 32 // self.panel.together
        missing = 0x8000 if self.panel.falling and not self.panel.right else 0
        t = I32.wide(parts[0].ty.lanes)
        whole = const(missing if len(parts) < count else 0, t)
        for i, part in enumerate(parts):
            shift = bits * (1 - i if self.panel.falling else i)
            whole = fn.binary("or", whole, fn.binary("shl", fn.convert("zext", part, I32), const(shift, t)))
        return self._moved(whole)

    def each_step(self, lo: Index, hi: Val, write: Callable[[Index, int, Index], None]) -> None:
        fn, count = self.fn, self.panel.together
        whole = fn.mul(fn.div(hi, count), count)
        with fn.loop(lo, whole, count) as at:
            write(at.index, count, fn.div(at.index, count))
        for have in range(1, count):
            with fn.when(fn.icmp("eq", fn.sub(hi, whole), have)):
                write(whole, have, fn.div(whole, count))

    def straight(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val, panels: int) -> None:
        """Rows of as many neighbours in k as a word has are joined."""
        fn = self.fn
        if self.has_masks and self.panel.width % self.panel.lanes:
            self.under_masks(source, sp, sk, kc, target, panels, self.panel.width)
            return

        def step(k: Index, have: int, number: Index) -> None:
            rows, line = [self.at(source, fn.mul(fn.add(k, i), sk)) for i in range(have)], self.line(target, number)
            for row in rows:
                self.ask(row, sk, panels)
            for p in range(panels):
                self._row(partial(self._words_at, rows, p * self.panel.width), self.panel_of(line, p))

        self.each_step(0, kc, step)

    def _words_at(self, rows: list[Val], start: int, place: int, lanes: int) -> Val:
        return self.joined([self._load(self.at(r, start + place), lanes) for r in rows])

    def _load(self, p: Val, lanes: int) -> Val:
        return self.fn.load(p, self.stored(lanes), self.panel.storage.itemsize)

    def one_by_one(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val, valid: Index, start: Index = 0) -> None:
        fn, zero = self.fn, const(0, self.panel.element)

        def step(k: Index, have: int, number: Index) -> None:
            line = self.line(target, number)
            with fn.loop(0, valid) as one:
                base = self.at(source, fn.mul(one.index, sp))
                if self.panel.along == "k" and have == self.panel.together:
                    word = self.read(self.at(base, k), 1)
                else:
                    word = self.joined([self._load(self.at(base, fn.mul(fn.add(k, i), sk)), 1) for i in range(have)])
                self.put(word, line, one.index)
            with fn.loop(valid, self.panel.width) as rest:
                self.put(zero, line, rest.index)

        self.each_step(start, kc, step)


class HalfPacker(WordPacker):
    """Words of bf16 that memory holds in the upper halves of f32."""

    def piece(self, lanes: int) -> Ty:
        return I32.wide(2 * lanes)

    def found(self, loaded: Val) -> Val:
        count = loaded.ty.lanes
        if count == 2:
            return self.joined([self.fn.extract(loaded, i) for i in range(2)])
        return self.joined([self.fn.shuffle(loaded, None, range(i, count, 2)) for i in range(2)])

    def joined(self, parts: list[Val]) -> Val:
        fn, falling = self.fn, self.panel.falling
        first, second = parts if len(parts) == 2 else (*parts, None)
        upper, lower = (first, second) if falling else (second, first)
        missing = const(0x8000 if falling and not self.panel.right else 0, first.ty)
        low = fn.binary("lshr", lower, const(16, first.ty)) if lower else missing
        return fn.binary("or", low, fn.binary("and", upper, const(0xFFFF0000, first.ty))) if upper else low


def widened(fn: LLVMFunction, v: Val, old: DType, new: DType) -> Val:
    """An element in registers as one of the accumulator's dtype: wider, or the same."""
    t = register_type(new)
    if v.ty.kind == t.kind and v.ty.bits == t.bits:
        return v
    if new.is_float:
        name = "fpext" if old.is_float else "uitofp" if old.kind in ("uint", "bool") else "sitofp"
    else:
        name = "zext" if old.kind in ("uint", "bool") else "sext"
    convert: Callable[..., Val] = fn.convert
    return convert(name, v, t)
