"""Element access: addresses from coordinates, contiguous, strided and masked loads and stores of vectors."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.elementary.convert import (
    Elem,
    Pair,
    choose,
    constant,
    lanes_of,
    memory_element,
    pack,
    storage_type,
    unpack,
    widen,
)
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.transpose import apart, interleaved, picked, transpose, weavable, woven
from tessera.compiler.targets.cpu.llvm.values import I1, I32, I64, PTR, Index, Ty, Val, const
from tessera.immutable import immutable
from tessera.language.dtypes import DType, f32

NEAR = 8
"""elements between lanes up to which whole vectors are loaded, rather than each lane alone"""


@immutable
class Coord:
    """The position on an axis: index + shift; with lanes > 1 also the positions after it, one per lane."""

    index: Index
    shift: int = 0
    lanes: int = 1


@immutable
class Cell:
    """Scratch memory that holds a tile value: one stride per axis, in elements; 0 along axes that it does not keep."""

    ptr: Val
    strides: tuple[Index, ...]
    dtype: DType


def held(d: DType) -> DType:
    """How scratch memory holds a dtype: small floats as the f32 they are computed in."""
    return f32 if d.is_low_precision else d


class Affine(Val):
    """A vector of integers base, base + 1, base + 2 ..."""

    __slots__ = ("base",)

    def __init__(self, v: Val, base: Val) -> None:
        super().__init__(v.ref, v.ty, v.scope)
        self.base = base


def affine(base: Val, lanes: int, fn: LLVMFunction) -> Affine:
    t = base.ty.wide(lanes)
    return Affine(fn.binary("add", fn.splat(base, lanes), fn.lane_numbers(t)), base)


class ElementMemory:
    """Loads and stores into `vm.fn`."""

    def __init__(self, vm: VectorMath) -> None:
        self.vm, self.fn = vm, vm.fn
        self._dummy: dict[int, Val] = {}
        self.floor: int | None = None
        """the scope inside which memory that this kernel writes is read before it is written; None: no such scope is
        open, and it is read where the text reads it"""

    def _scope(self) -> int:
        return self.fn.depth if self.floor is None else self.floor

    def address(
        self, ptr: Val, d: DType, coords: Sequence[Coord | None], strides: Sequence[Index], apart: int = 0
    ) -> tuple[Val, Index, int]:
        """The address of the first lane, the lanes' stride and their number, `apart` elements behind `ptr`. Outer
        coordinates are added first, so that what does not change in the inner loop is computed outside it."""
        fn, elem = self.fn, memory_element(d)
        used = [(c, s) for c, s in zip(coords, strides, strict=True) if c is not None and s != 0]
        used.sort(key=lambda cs: cs[0].index.scope if isinstance(cs[0].index, Val) else 0)
        shift: Index = apart
        step: Index = 0
        lanes = 1
        for c, s in used:
            ptr = fn.gep(ptr, fn.mul(c.index, s), elem)
            shift = fn.add(shift, fn.mul(c.shift, s))
            if c.lanes > 1:
                lanes, step = c.lanes, fn.add(step, s)
        return fn.gep(ptr, shift, elem), step, lanes

    def lanes_below(self, c: Coord, bound: Index) -> Val:
        """The lanes of `c` whose number is less than `bound`."""
        fn = self.fn
        left = fn.sub(fn.sub(bound, c.index), c.shift)
        if c.lanes == 1:
            return fn.icmp("sgt", left, 0)
        few = fn.index(fn.smin(left, c.lanes))
        t = I32.wide(c.lanes)
        return fn.compare("icmp sgt", fn.splat(fn.convert("trunc", few, I32), c.lanes), fn.lane_numbers(t))

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        if a is None or b is None or a.const is True or b.const is True:
            return b if a is None or a.const is True else a
        return self.fn.binary("and", a, b)

    # -- loads -------------------------------------------------------------------------------------------------------
    def load(self, p: Val, d: DType, step: Index, lanes: int, mask: Val | None, fill: Elem, *, pure: bool) -> Elem:
        """`lanes` elements from p on, `step` apart; `fill` where `mask` does not hold. pure: memory does not change."""
        if mask is not None and mask.const is True:
            mask = None
        if mask is not None and mask.ty.lanes > lanes and step == 0:
            return self.gather(self.fn.splat(p, mask.ty.lanes), d, mask, fill)
        if lanes > 1 and step == -1 and mask is None:
            first = self.fn.gep(p, 1 - lanes, memory_element(d))
            return self._reversed(self.load(first, d, 1, lanes, None, fill, pure=pure), lanes)
        if mask is None and self.near(step, lanes, d):
            assert isinstance(step, int)
            return unpack(self._every(step, p, storage_type(d, lanes), d, pure), d, self.vm)
        if lanes > 1 and step != 1:
            return self.gather(self.spread(p, d, step, lanes), d, mask, fill)
        t = storage_type(d, lanes)
        if mask is None:
            return unpack(self._plain(p, t, d, pure), d, self.vm)
        if lanes == 1:
            safe = self.fn.select(mask, p, self._safe(d))
            return choose(mask, unpack(self._plain(safe, t, d, pure), d, self.vm), fill, self.fn)
        mask = self.fn.splat(mask, lanes)
        wide = self._storage_mask(mask, d)
        p = self._touched(p, mask, t)
        text = self._masked_load(t, p, wide, d)
        raw = self.fn.op(text, t, (p, wide)) if pure else self.fn.load_once(text, t, (p, wide), self._scope())
        x = unpack(raw, d, self.vm)
        return x if is_zero(fill) else choose(mask, x, widen(fill, lanes, self.fn), self.fn)

    @staticmethod
    def pieces(count: int, d: DType) -> list[int]:
        """Neighbours that `load_pieces` and `store_pieces` take at once, of so many: 16 bytes, then the rest. One real
        number is left to others."""
        if not d.is_complex and not (d.is_float and d.bits >= 32):
            return []
        most, parts = 16 // d.itemsize, 2 if d.is_complex else 1
        found = [most] * (count // most)
        for few in (most // 2, most // 4):
            if few * parts > 1 and count - sum(found) >= few:
                found.append(few)
        return found

    def load_pieces(self, count: int, p: Val, d: DType, step: Index, lanes: int) -> list[Elem]:
        """So many neighbours from p on, and those `step` elements further for each lane, of memory that does not
        change: read together for each lane, and transposed in registers."""
        fn, part = self.fn, storage_type(d, 1).scalar
        size = count * 2 if d.is_complex else count
        places = [fn.gep(p, fn.mul(step, i), memory_element(d)) for i in range(lanes)]
        rows = [fn.load_pure(place, part.wide(size), _align(d)) for place in places]
        while len(rows) > size:  # each beside the one `size` lanes further on
            near, far = ([r for i, r in enumerate(rows) if i // size % 2 == k] for k in (0, 1))
            rows = [fn.shuffle(a, b, range(2 * a.ty.lanes)) for a, b in zip(near, far, strict=True)]
        found = interleaved(fn, rows, size)
        if d.is_complex:
            return [Pair(re, im) for re, im in zip(found[::2], found[1::2], strict=True)]
        return [unpack(x, d, self.vm) for x in found]

    @staticmethod
    def near(step: Index, lanes: int, d: DType) -> bool:
        """Whether lanes are so near to each other that fewer vectors than lanes hold all of them."""
        return isinstance(step, int) and 1 < step < min(lanes, NEAR + 1) and not d.is_complex

    def _every(self, step: int, p: Val, t: Ty, d: DType, pure: bool) -> Val:
        """From as many vectors, of which the last one ends with the last element wanted: no other memory is touched."""
        n = t.lanes
        rows = [self._plain(self.fn.gep(p, j * (n - 1), memory_element(d)), t, d, pure) for j in range(step)]
        owners = [min(i * step // (n - 1), step - 1) for i in range(n)]
        return picked(self.fn, rows, [(j, i * step - j * (n - 1)) for i, j in enumerate(owners)])

    def load_apart(self, count: int, p: Val, d: DType, lanes: int) -> list[Val]:
        """From p on, of each `count` neighbours the first ones, the second ones, and so on, as storage values of memory
        that does not change."""
        t = storage_type(d, lanes)
        rows = [self.fn.load_pure(self.fn.gep(p, j * lanes, memory_element(d)), t, _align(d)) for j in range(count)]
        return apart(self.fn, rows)

    def _reversed(self, x: Elem, lanes: int) -> Elem:
        order = range(lanes - 1, -1, -1)
        if isinstance(x, Pair):
            return Pair(self.fn.shuffle(x.re, None, order), self.fn.shuffle(x.im, None, order))
        return self.fn.shuffle(x, None, order)

    def _plain(self, p: Val, t: Ty, d: DType, pure: bool) -> Val:
        if pure:
            return self.fn.load_pure(p, t, _align(d))
        return self.fn.load_once(f"load {t.text}, ptr {p.ref}, align {_align(d)}", t, (p,), self._scope())

    def spread(self, p: Val, d: DType, step: Index, lanes: int) -> Val:
        """The addresses of elements `step` apart, as a vector."""
        fn = self.fn
        numbers = fn.lane_numbers(I64.wide(lanes))
        if step != 1:
            numbers = fn.binary("mul", numbers, fn.splat(fn.index(step), lanes))
        return self.offset_pointers(p, d, numbers)

    def offset_pointers(self, p: Val, d: DType, offsets: Val) -> Val:
        t = PTR.wide(offsets.ty.lanes)
        return self.fn.op(f"getelementptr {memory_element(d)}, ptr {p.ref}, {offsets!r}", t, (p, offsets))

    def gather(self, pointers: Val, d: DType, mask: Val | None, fill: Elem) -> Elem:
        lanes = pointers.ty.lanes
        if d.is_complex:
            half = storage_type(d, 1).scalar
            second = self.fn.op(f"getelementptr {half.text}, {pointers!r}, i64 1", pointers.ty, (pointers,))
            re = self._gather_component(pointers, half.wide(lanes), d, mask)
            x: Elem = Pair(re, self._gather_component(second, half.wide(lanes), d, mask))
        else:
            x = unpack(self._gather_component(pointers, storage_type(d, lanes), d, mask), d, self.vm)
        return x if mask is None or is_zero(fill) else choose(mask, x, widen(fill, lanes, self.fn), self.fn)

    def _gather_component(self, pointers: Val, t: Ty, d: DType, mask: Val | None) -> Val:
        lanes = t.lanes
        m = const(True, I1.wide(lanes)) if mask is None else self.fn.splat(mask, lanes)
        name = f"llvm.masked.gather.{t.suffix}.{pointers.ty.suffix}"
        self.fn.module.declare(f"declare {t.text} @{name}({pointers.ty.text}, {m.ty.text}, {t.text})")
        return self.fn.effect(f"call {t.text} @{name}({_at(pointers, d)}, {m!r}, {t.text} zeroinitializer)", t)

    # -- stores ------------------------------------------------------------------------------------------------------
    def store(
        self, x: Elem, p: Val, d: DType, step: Index, lanes: int, mask: Val | None, nontemporal: bool = False
    ) -> None:
        if mask is not None and mask.const is True:
            mask = None
        x = widen(x, lanes, self.fn) if lanes_of(x) < lanes else x
        raw = pack(x, d, self.vm)
        if lanes > 1 and step != 1:
            self._scatter(raw, self.spread(p, d, step, lanes), d, mask)
        elif mask is None:
            size = raw.ty.lanes * raw.ty.bits // 8
            self.fn.store(raw, p, size if nontemporal else _align(d), nontemporal=nontemporal)
        elif lanes == 1:
            self.fn.store(raw, self.fn.select(mask, p, self._safe(d)), _align(d))
        else:
            wide = self._storage_mask(self.fn.splat(mask, lanes), d)
            self.fn.do(self._masked_store(raw, p, wide, d))

    def store_woven(self, xs: Sequence[Elem], p: Val, d: DType, lanes: int) -> None:
        """Lane 0 of all `xs` from p on, one behind the other, then lane 1 of all, and so on: what would be a store for
        each element is transposed in registers. Their number is one of those that `weaves` takes."""
        fn, rows = self.fn, self._parts(xs, d, lanes)
        count, part = len(rows), storage_type(d, 1).scalar.elem
        if count % lanes == 0 and rows[0].ty.bits >= 32:
            for k in range(0, count, lanes):
                for i, row in enumerate(transpose(fn, rows[k : k + lanes])):
                    fn.store(row, fn.gep(p, i * count + k, part), _align(d))
            return
        for i, row in enumerate(woven(fn, rows)):
            fn.store(row, fn.gep(p, i * lanes, part), _align(d))

    def store_pieces(self, xs: Sequence[Elem], p: Val, d: DType, step: Index, lanes: int) -> None:
        """Lane 0 of all `xs` from p on, one behind the other, and each other lane `step` elements further on."""
        fn, rows = self.fn, self._parts(xs, d, lanes)
        size = len(rows)
        for i, row in enumerate(interleaved(fn, rows, size)):
            for lane in range(i, lanes, size):
                piece = fn.shuffle(row, None, range(lane - i, lane - i + size))
                fn.store(piece, fn.gep(p, fn.mul(step, lane), memory_element(d)), _align(d))

    def _parts(self, xs: Sequence[Elem], d: DType, lanes: int) -> list[Val]:
        """Vectors of what is stored, those of complex numbers as two."""
        rows: list[Val] = []
        for x in (widen(x, lanes, self.fn) if lanes_of(x) < lanes else x for x in xs):
            rows += (x.re, x.im) if isinstance(x, Pair) else (pack(x, d, self.vm),)
        return [self.fn.splat(row, lanes) for row in rows]  # one part of a number may be a constant

    @staticmethod
    def weaves(count: int, d: DType, lanes: int) -> bool:
        """Whether `store_woven` takes so many vectors."""
        parts = count * 2 if d.is_complex else count
        wide = (d.is_complex or (d.is_float and d.bits >= 32)) and parts % lanes == 0 and parts & (parts - 1) == 0
        return wide or weavable(parts, lanes)

    def scatter(self, x: Elem, pointers: Val, d: DType, mask: Val | None) -> None:
        self._scatter(pack(widen(x, pointers.ty.lanes, self.fn), d, self.vm), pointers, d, mask)

    def _scatter(self, raw: Val, pointers: Val, d: DType, mask: Val | None) -> None:
        fn, lanes = self.fn, pointers.ty.lanes
        m = const(True, I1.wide(lanes)) if mask is None else fn.splat(mask, lanes)
        parts = [(raw, pointers)]
        if d.is_complex:
            half = raw.ty.scalar
            second = fn.op(f"getelementptr {half.text}, {pointers!r}, i64 1", pointers.ty, (pointers,))
            parts = [(fn.shuffle(raw, None, range(k, 2 * lanes, 2)), p) for k, p in ((0, pointers), (1, second))]
        for v, p in parts:
            name = f"llvm.masked.scatter.{v.ty.suffix}.{p.ty.suffix}"
            fn.module.declare(f"declare void @{name}({v.ty.text}, {p.ty.text}, {m.ty.text})")
            fn.do(f"call void @{name}({v!r}, {_at(p, d)}, {m!r})")

    # -- details -----------------------------------------------------------------------------------------------------
    def _masked_load(self, t: Ty, p: Val, mask: Val, d: DType) -> str:
        """The call that loads where the mask holds, and gives zeros elsewhere."""
        module, m, align = self.fn.module, mask.ty.text, _align(d)
        name = f"@llvm.masked.load.{t.suffix}.p0"
        module.declare(f"declare {t.text} {name}(ptr, {m}, {t.text})")
        if self._by_mask(t):
            return f"call {t.text} {name}(ptr align {align} {p.ref}, {mask!r}, {t.text} zeroinitializer)"
        own = f"@masked_load.{t.suffix}.{align}"
        text = f"%x = call {t.text} {name}(ptr align {align} %p, {m} %m, {t.text} zeroinitializer) ret {t.text} %x"
        module.declare(f"define internal {t.text} {own}(ptr %p, {m} %m) #0 {{ {text} }}")
        return f"call {t.text} {own}(ptr {p.ref}, {mask!r})"

    def _masked_store(self, x: Val, p: Val, mask: Val, d: DType) -> str:
        """The call that stores where the mask holds."""
        module, t, m, align = self.fn.module, x.ty, mask.ty.text, _align(d)
        name = f"@llvm.masked.store.{t.suffix}.p0"
        module.declare(f"declare void {name}({t.text}, ptr, {m})")
        if self._by_mask(t):
            return f"call void {name}({x!r}, ptr align {align} {p.ref}, {mask!r})"
        own = f"@masked_store.{t.suffix}.{align}"
        text = f"call void {name}({t.text} %x, ptr align {align} %p, {m} %m) ret void"
        module.declare(f"define internal void {own}({t.text} %x, ptr %p, {m} %m) #0 {{ {text} }}")
        return f"call void {own}({x!r}, ptr {p.ref}, {mask!r})"

    def _by_mask(self, t: Ty) -> bool:
        """Whether one instruction accesses the lanes that a mask selects. Otherwise it is a branch for each lane, which
        a function holds once: LLVM takes seconds where each access of a kernel has its own."""
        isa = self.vm.isa
        return isa.masks or (isa.bits == 256 and t.bits >= 32)

    def _touched(self, p: Val, mask: Val, t: Ty) -> Val:
        """`p`, or where no lane is read a place of this function's own: where there is no memory, an instruction that
        reads none of its lanes takes hundreds of cycles. So it does behind the end of an array."""
        if not self._by_mask(t):
            return p
        return self.fn.select(self.fn.any_lane(mask), p, self._place(64))

    def _safe(self, d: DType) -> Val:
        """A place of this function's own for accesses that must not happen."""
        return self._place(max(16, d.itemsize))

    def _place(self, size: int) -> Val:
        if size not in self._dummy:
            self._dummy[size] = self.fn.alloca("i8", size, 16)
            self.fn.entry.append(f"  store i128 0, ptr {self._dummy[size].ref}, align 16")
        return self._dummy[size]

    def zeros(self, size: int) -> Val:
        """So many bytes of zeros."""
        name = f"@zeros_{size}"
        text = f"{name} = private constant [{size} x i8] zeroinitializer, align 64"
        if text not in self.fn.module.globals:
            self.fn.module.globals.append(text)
        return Val(name, PTR, 0)

    def _storage_mask(self, mask: Val, d: DType) -> Val:
        """The mask of the stored components: complex numbers have two a lane."""
        if not d.is_complex:
            return mask
        n = mask.ty.lanes
        return self.fn.shuffle(mask, None, [i // 2 for i in range(2 * n)])


def _align(d: DType) -> int:
    return d.itemsize // 2 if d.is_complex else d.itemsize


def _at(p: Val, d: DType) -> str:
    """An address (or a vector of them) as a masked intrinsic takes it."""
    return f"{p.ty.text} align {_align(d)} {p.ref}"


def is_zero(fill: Elem) -> bool:
    return isinstance(fill, Val) and fill.const is not None and fill.const == 0 and not str(fill.const).startswith("-")


def fill_value(value: object, d: DType, vm: VectorMath) -> Elem:
    """The `fill` attribute of a load as an element."""
    return constant(value if isinstance(value, (bool, int, float, complex)) else 0, d, vm)
