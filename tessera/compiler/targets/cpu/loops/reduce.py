"""Reductions: partial results, their order, and how they become one.

The order is fixed by the element's index alone. An f32 sum keeps 64 partial sums (f64: 32), partial j takes the
elements i with i mod 64 == j in ascending order; then the upper half is added to the lower half until one is left.
More than 2**16 elements are reduced in chunks of that size, whose results are combined in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TileType
from tessera.compiler.targets.cpu.elementary import elementwise
from tessera.compiler.targets.cpu.elementary.convert import Elem, Pair, cast, register_type, round_to
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm.values import I32, I64, Ty, Val, const
from tessera.language import dtypes
from tessera.language.dims import prod
from tessera.language.dtypes import DType
from tessera.language.order import PARTIAL_BITS

_SHORT = (1 << 31) - 1
"""elements of which 32 bits hold the number of each"""


class ReductionWriter:
    """One `tile.reduce`. An accumulator is a list of values: one, two for complex numbers, or (value, index)."""

    def __init__(self, op: Op, vm: VectorMath) -> None:
        source, target = op.operands[0].type, op.result.type
        assert isinstance(source, TileType) and isinstance(target, TileType)
        self.op, self.vm, self.fn = op, vm, vm.fn
        self.extremum: Op | None = None
        """of a search: the reduction to the value of the element that it finds"""
        self.name = str(op.attrs["op"])
        self.source, self.result_type = source.dtype, target.dtype
        self.indexed = self.name in ("argmax", "argmin")
        length = prod(source.shape[a] for a in op.attrs["axes"])  # type: ignore[union-attr]
        self.number = I32 if isinstance(length, int) and length <= _SHORT else I64
        """the type of indices: vectors of the shorter one are half as many"""
        self.dtype: DType = source.dtype if self.indexed else target.dtype.compute
        if self.indexed and self.dtype.kind == "bool":
            self.dtype = dtypes.uint8
        if self.name in ("any", "all"):
            self.dtype = dtypes.bool_
        elif self.dtype.kind == "bool" and self.name in ("sum", "prod"):
            self.dtype = dtypes.int64  # summed as numbers; the cast back compares the result with zero

    @property
    def ordered(self) -> bool:
        """Whether the order of combination shows in the result."""
        return self.name in ("sum", "prod") and (self.dtype.is_float or self.dtype.is_complex)

    @property
    def partials(self) -> int:
        """How many partial results the order prescribes."""
        return PARTIAL_BITS // register_type(self.dtype).bits

    def types(self, lanes: int) -> list[Ty]:
        t = register_type(self.dtype, lanes)
        return [t, self.number.wide(lanes)] if self.indexed else [t, t] if self.dtype.is_complex else [t]

    def identity(self, lanes: int) -> list[Val]:
        if self.indexed:
            start = elementwise.identity(self.name[3:], self.dtype, self.vm)
            assert isinstance(start, Val) and start.const is not None
            # index 0 is right where it stays: then no element is better than the identity, the first is like it too
            return [const(start.const, start.ty.wide(lanes)), const(0, self.number.wide(lanes))]
        e = elementwise.identity(self.name, self.dtype, self.vm)
        parts = [e.re, e.im] if isinstance(e, Pair) else [e]
        return [const(p.const or 0, p.ty.wide(lanes)) for p in parts]

    def lift(self, x: Elem, index: Val, lanes: int) -> list[Val]:
        """An element as an accumulator; `index` is its place along the axis."""
        x = cast(x, self.source, self.dtype, self.vm) if self.source != self.dtype else x
        parts = [x.re, x.im] if isinstance(x, Pair) else [x]
        if self.indexed:
            parts.append(index)
        return [self.fn.splat(p, lanes) for p in parts]

    def combine(self, a: Sequence[Val], b: Sequence[Val]) -> list[Val]:
        """a then b."""
        if self.indexed:
            return self._better(a, b)
        x, y = (Pair(*a), Pair(*b)) if len(a) == 2 else (a[0], b[0])
        out = elementwise.combine(self.name, x, y, self.dtype, self.vm)
        return [out.re, out.im] if isinstance(out, Pair) else [out]

    def append(self, a: Sequence[Val], x: Sequence[Val]) -> list[Val]:
        """a then an element x behind all of a's: what `combine` gives, cheaper where indices need not be compared."""
        if not self.indexed:
            return self.combine(a, x)
        fn, (av, ai), (xv, xi) = self.fn, a, x
        most = "gt" if self.name == "argmax" else "lt"
        if self.dtype.is_float:  # better or NaN, unless a is NaN already
            take = fn.binary("and", fn.compare(f"fcmp u{most}", xv, av), fn.compare("fcmp ord", av, av))
        else:
            take = fn.compare(f"icmp {'s' if self.dtype.kind == 'int' else 'u'}{most}", xv, av)
        return [fn.select(take, xv, av), fn.select(take, xi, ai)]

    def _better(self, a: Sequence[Val], b: Sequence[Val]) -> list[Val]:
        """The larger (smaller) value, the first NaN above all, the first index among equals."""
        fn, (av, ai), (bv, bi) = self.fn, a, b
        most = "gt" if self.name == "argmax" else "lt"
        earlier = fn.compare("icmp slt", bi, ai)
        if self.dtype.is_float:
            above, same = fn.compare(f"fcmp o{most}", bv, av), fn.compare("fcmp oeq", bv, av)
            a_nan, b_nan = self.vm.is_nan(av), self.vm.is_nan(bv)
            same = fn.binary("or", same, fn.binary("and", a_nan, b_nan))
            above = fn.binary("or", above, fn.binary("and", b_nan, fn.binary("xor", a_nan, const(True, a_nan.ty))))
        else:
            sign = "s" if self.dtype.kind == "int" else "u"
            above, same = fn.compare(f"icmp {sign}{most}", bv, av), fn.compare("icmp eq", bv, av)
        take = fn.binary("or", above, fn.binary("and", same, earlier))
        return [fn.select(take, bv, av), fn.select(take, bi, ai)]

    def masked(self, x: Sequence[Val], mask: Val | None) -> list[Val]:
        """x with lanes outside `mask` made neutral."""
        if mask is None:
            return list(x)
        return [self.fn.select(mask, v, i) for v, i in zip(x, self.identity(x[0].ty.lanes), strict=True)]

    def fold(self, partials: Sequence[Sequence[Val]]) -> list[Val]:
        """The fixed tree over accumulators (a power of two of them), then over the lanes: the result in one lane."""
        return self.fold_lanes(self.tree(partials))

    def tree(self, partials: Sequence[Sequence[Val]]) -> list[Val]:
        """The fixed tree over accumulators, a power of two of them; where there are fewer, the others are empty."""
        accs = [list(p) for p in partials]
        while len(accs) > 1:
            half = power_of_two(len(accs)) // 2
            accs = [self.combine(accs[i], accs[i + half]) if i + half < len(accs) else accs[i] for i in range(half)]
        return accs[0]

    def fold_lanes(self, acc: list[Val]) -> list[Val]:
        lanes = acc[0].ty.lanes
        while lanes > 1:
            lanes //= 2
            low = [self.fn.shuffle(v, None, range(lanes)) for v in acc]
            high = [self.fn.shuffle(v, None, range(lanes, 2 * lanes)) for v in acc]
            if lanes == 1:
                low, high = [self.fn.extract(v, 0) for v in acc], [self.fn.extract(v, 1) for v in acc]
            acc = self.combine(low, high)
        return acc

    def result(self, acc: Sequence[Val]) -> Elem:
        """The finished accumulator as an element of the result's dtype."""
        if self.indexed:
            return cast(acc[1], dtypes.int32 if self.number is I32 else dtypes.int64, self.result_type, self.vm)
        x: Elem = Pair(*acc) if len(acc) == 2 else acc[0]
        if isinstance(x, Val) and self.result_type.is_low_precision:
            return round_to(x, self.result_type, self.vm)
        return cast(x, self.dtype, self.result_type, self.vm) if self.dtype != self.result_type else x


def searched_beside(op: Op) -> Op | None:
    """The search for the place of an extremum that may decide which of equal elements the extremum is."""
    name, axes = f"arg{op.attrs['op']}", op.attrs["axes"]
    users = op.operands[0].users if op.attrs.get("any_of_equal") else []
    found = (u for u in users if u.name == "tile.reduce" and (u.attrs["op"], u.attrs["axes"]) == (name, axes))
    return next(found, None)


def power_of_two(n: int) -> int:
    """The least power of two that is >= n."""
    return 1 << max(0, n - 1).bit_length()
