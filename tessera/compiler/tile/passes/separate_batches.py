"""Splits batched matrix products into products of single matrices, the only ones that targets have.

    c[2, M, N] = mma(a[2, M, K], b[2, K, N], acc[2, M, N])

becomes two products of the matrices in `a`, `b` and `acc`. Ops that compute, carry and store a batch element by element
are split as well: loads, arithmetic, reductions of rows and columns, loops and stores. So no element moves, and each
product is the same as one that was written without batches. For all other ops, batches are joined or cut (`tile.part`)
through scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.offsets import strides_of
from tessera.compiler.tile.passes.padding import kept_axes
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.language.dims import Dim, prod
from tessera.language.scalars import TABLE

At = Mapping[int, int]
"""axis -> the one index taken along it; the part lacks these axes"""


def has_batches(kernel: Op) -> bool:
    return any(_is_batched(op) for op in kernel.walk())


def separate_batches(kernel: Op) -> None:
    if has_batches(kernel):
        found = _Batches(kernel)
        found.block(kernel.region.block)


def _shape(v: Value) -> tuple[Dim, ...]:
    return cast(TileType, v.type).shape


def _is_batched(op: Op) -> bool:
    """Whether an op is a product of several matrices. In an editor their number may be a symbol: it stays as it is."""
    return (
        op.name == "tile.mma" and all(isinstance(n, int) for n in _shape(op.result)[:-2]) and len(_shape(op.result)) > 2
    )


def _elementwise(op: Op) -> bool:
    return op.name == "tile.cast" or op.name.partition(".")[2] in TABLE


class _Batches:
    def __init__(self, kernel: Op) -> None:
        self.kernel = kernel
        self.lead: dict[Value, int] = {}
        """how many axes of a value number its matrices"""
        self._parts: dict[tuple[Value, tuple[tuple[int, int], ...]], Value] = {}
        while self._spread():
            pass

    # which values are made of products' results
    def _spread(self) -> bool:
        """One round over all ops; whether more values are known now."""
        before = len(self.lead)
        for op in self.kernel.walk():
            if _is_batched(op):
                self.lead[op.result] = len(_shape(op.result)) - 2
            elif op.name == "tile.for":
                args, ends = op.region.block.args[1:], op.region.block.terminator.operands
                for same in zip(args, ends, op.results, strict=True):
                    if known := next((self.lead[v] for v in same if v in self.lead), 0):
                        self.lead.update(dict.fromkeys(same, known))
            elif op.results and (known := self._through(op)):
                self.lead[op.result] = known
        return len(self.lead) > before

    def _through(self, op: Op) -> int:
        """The axes of an op's result that number matrices, where those of an operand do; 0 where none do."""
        if _elementwise(op):
            return max((self.lead.get(v, 0) for v in op.operands), default=0)
        if op.name not in ("tile.reduce", "tile.broadcast"):
            return 0
        x, known = op.operands[0], self.lead.get(op.operands[0], 0)
        axes = cast("tuple[int, ...]", op.attrs["axes"])
        if op.name == "tile.reduce":
            return known if all(a >= known for a in axes) else 0
        same = axes[:known] == tuple(range(known)) and _shape(x)[:known] == _shape(op.result)[:known]
        return known if same else 0

    # taking apart
    def block(self, block: Block) -> None:
        for op in list(block.ops):
            if _is_batched(op):
                self._product(op)
            elif op.name == "tile.store" and op.operands[1] in self.lead:
                self._store(op)
            elif op.name == "tile.for":
                self._loop(op)
            else:
                for region in op.regions:
                    self.block(region.block)

    def _numbers(self, v: Value) -> Iterator[At]:
        """The places of the matrices in a value."""
        sizes = cast("tuple[int, ...]", _shape(v)[: self.lead[v]])
        return (dict(enumerate(at)) for at in product(*map(range, sizes)))

    def _product(self, op: Op) -> None:
        found: list[Value] = []
        at_result = list(self._numbers(op.result))
        for at in at_result:
            parts = [self.part(v, {a: i if _shape(v)[a] != 1 else 0 for a, i in at.items()}) for v in op.operands]
            found.append(_before(op).value("tile.mma", parts, parts[2].type, dict(op.attrs)))
        whole = _stacked(_before(op), found, _shape(op.result))
        self.lead[whole] = self.lead[op.result]
        for at, v in zip(at_result, found, strict=True):
            self._parts[whole, tuple(at.items())] = v
        op.result.replace_by(whole)
        op.erase()

    def _store(self, op: Op) -> None:
        """Each matrix to its place. An index outside of the view stores nothing, as in the whole."""
        view, value = op.operands[:2]
        rank = cast(ViewType, view.type).rank
        offsets, mask = op.operands[2 : 2 + rank], op.operands[2 + rank :]
        if op.attrs.get("inside"):  # debug mode asks it of the whole
            return
        for at in self._numbers(value):
            part = self.part(value, at)
            left = [self.part(m, at) for m in mask]
            b = _before(op)
            place, rest = _window(b, view, offsets, at)
            b.op("tile.store", [place, part, *rest, *left], (), dict(op.attrs))
        op.erase()

    def _loop(self, op: Op) -> None:
        """A loop that carries batches carries their matrices, too; `remove_dead` then removes unread ones."""
        body, first = op.region.block, len(op.operands) - len(op.results)
        carried: list[tuple[int, At]] = []
        for i, arg in enumerate(list(body.args[1:])):
            if arg not in self.lead:
                continue
            result = op.results[i]
            for at in self._numbers(arg):
                start = self.part(op.operands[first + i], at)
                op.set_operands([*op.operands, start])
                op.results.append(Value(start.type, op, len(op.results), result.hint))
                self._parts[arg, tuple(at.items())] = body.add_arg(start.type, arg.hint)
                self._parts[result, tuple(at.items())] = op.results[-1]
                carried.append((i, at))
        self.block(body)
        ends = [self.part(body.terminator.operands[i], at) for i, at in carried]
        body.terminator.set_operands([*body.terminator.operands, *ends])

    # a part of a value
    def part(self, v: Value, at: At) -> Value:
        """The elements of `v` at some indices, without these axes. Stands right behind `v`."""
        key = (v, tuple(sorted(at.items())))
        if key not in self._parts:
            self._parts[key] = self._made(v, at) if at else v
        return self._parts[key]

    def _made(self, v: Value, at: At) -> Value:
        op, shape = v.op, tuple(n for a, n in enumerate(_shape(v)) if a not in at)
        found: Value | None = None
        if op is not None and _elementwise(op):
            parts = [self.part(x, at) for x in op.operands]
            found = _behind(v).value(op.name, parts, TileType(shape, cast(TileType, v.type).dtype), dict(op.attrs))
        elif op is not None and (rule := _RULES.get(op.name)) is not None:
            found = rule(self, op, at, shape)
        return found if found is not None else _cut(v, at, shape)

    def broadcast(self, op: Op, at: At, shape: tuple[Dim, ...]) -> Value | None:
        x, axes = op.operands[0], cast("tuple[int, ...]", op.attrs["axes"])
        inner = {i: at[a] if _shape(x)[i] != 1 else 0 for i, a in enumerate(axes) if a in at}
        source = self.part(x, inner)
        left = [a for a in range(len(_shape(op.result))) if a not in at]
        return _behind(op.result).broadcast(source, shape, tuple(left.index(a) for a in axes if a not in at))

    def reduce(self, op: Op, at: At, shape: tuple[Dim, ...]) -> Value | None:
        """The order of a reduction depends on its length alone, so it may be made of a part."""
        x, axes = op.operands[0], cast("tuple[int, ...]", op.attrs["axes"])
        if op.attrs["op"] in ("argmax", "argmin") and len(axes) == len(_shape(x)):
            return None
        left = [a for a in range(len(_shape(x))) if a not in axes]
        inner = {left[a]: i for a, i in at.items()}
        source = self.part(x, inner)
        kept = [a for a in range(len(_shape(x))) if a not in inner]
        attrs = {**op.attrs, "axes": tuple(kept.index(a) for a in axes)}
        return _behind(op.result).value(
            "tile.reduce", (source,), TileType(shape, cast(TileType, op.result.type).dtype), attrs
        )

    def reshape(self, op: Op, at: At, shape: tuple[Dim, ...]) -> Value | None:
        """Where only axes of one element come and go."""
        x, places = op.operands[0], kept_axes(_shape(op.operands[0]), _shape(op.result))
        if [n for n in _shape(x) if n != 1] != [n for n in _shape(op.result) if n != 1]:
            return None
        source = {a: i for i, a in places.items()}
        inner = {source[a]: i for a, i in at.items() if a in source}
        part = self.part(x, inner)
        return _behind(op.result).reshape(part, shape)

    def transpose(self, op: Op, at: At, shape: tuple[Dim, ...]) -> Value | None:
        perm = cast("tuple[int, ...]", op.attrs["perm"])
        source = self.part(op.operands[0], {perm[a]: i for a, i in at.items()})
        left = [p for a, p in enumerate(perm) if a not in at]
        order = tuple(sorted(left).index(p) for p in left)
        return source if order == tuple(range(len(order))) else _behind(op.result).transpose(source, order)

    def load(self, op: Op, at: At, shape: tuple[Dim, ...]) -> Value | None:
        if op.attrs.get("masked") or op.attrs.get("inside") or op.attrs.get("fill", 0) != 0:
            return None
        view, b = op.operands[0], _behind(op.result)
        place, rest = _window(b, view, op.operands[1:], at)
        return b.value(
            "tile.load", [place, *rest], TileType(shape, cast(TileType, op.result.type).dtype), dict(op.attrs)
        )

    def repeat(self, op: Op, at: At, shape: tuple[Dim, ...]) -> Value | None:
        axis = cast("int", op.attrs["axis"]) % len(_shape(op.result))
        if axis in at:
            return None
        attrs = {**op.attrs, "axis": axis - sum(a < axis for a in at)}
        t, source = TileType(shape, cast(TileType, op.result.type).dtype), self.part(op.operands[0], at)
        return _behind(op.result).value("tile.repeat", (source,), t, attrs)


_RULES = {
    "tile.broadcast": _Batches.broadcast,
    "tile.reduce": _Batches.reduce,
    "tile.reshape": _Batches.reshape,
    "tile.transpose": _Batches.transpose,
    "tile.load": _Batches.load,
    "tile.repeat": _Batches.repeat,
}


def _before(op: Op) -> TileBuilder:
    assert op.block is not None
    return TileBuilder(op.block, op.block.index(op), op.span)


def _behind(v: Value) -> TileBuilder:
    if v.op is None:
        block = cast(Block, v.owner)
        return TileBuilder(block, 0, block.ops[0].span)
    assert v.op.block is not None
    return TileBuilder(v.op.block, v.op.block.ops.index(v.op) + 1, v.op.span)


def _cut(v: Value, at: At, shape: tuple[Dim, ...]) -> Value:
    whole = _shape(v)
    attrs = {
        "starts": tuple(at.get(a, 0) for a in range(len(whole))),
        "steps": (1,) * len(whole),
        "sizes": tuple(1 if a in at else n for a, n in enumerate(whole)),
        "drop": tuple(sorted(at)),
    }
    return _behind(v).value("tile.part", (v,), TileType(shape, cast(TileType, v.type).dtype), {**attrs})


def _stacked(b: TileBuilder, parts: Sequence[Value], shape: tuple[Dim, ...]) -> Value:
    """Matrices behind each other, in pairs, pairs of pairs ..., so that each element moves a few times only."""
    level = [b.reshape(v, (1, *_shape(v))) for v in parts]
    while len(level) > 1:
        odd = level[len(level) - len(level) % 2 :]
        level = [_joined(b, x, y) for x, y in zip(level[::2], level[1::2], strict=False)] + odd
    return b.reshape(level[0], shape)


def _joined(b: TileBuilder, x: Value, y: Value) -> Value:
    t = PRIMITIVES["tile.joined"].result(x.type, y.type, axis=0)
    return b.value("tile.joined", (x, y), t, {"axis": 0})


def _window(b: TileBuilder, view: Value, offsets: Sequence[Value], at: At) -> tuple[Value, list[Value]]:
    """The view at offset + index along some axes, without these, and the other offsets. An index outside of the view
    reads and stores nothing (`clipped`)."""
    t = cast(ViewType, view.type)
    zero = b.index(0)
    places = [b.iop("iadd", o, b.index(at[a])) if at.get(a) else o if a in at else zero for a, o in enumerate(offsets)]
    shape = tuple(n for a, n in enumerate(t.shape) if a not in at)
    inner = tuple(s for a, s in enumerate(strides_of(view)) if a not in at)
    packed = tuple(prod(shape[a + 1 :]) for a in range(len(shape)))
    sizes = tuple(1 if a in at else n for a, n in enumerate(t.shape))
    kind = ViewType(shape, t.dtype, None if inner == packed else inner)
    attrs = {"sizes": sizes, "drop": tuple(sorted(at)), "clipped": True}
    return b.value("tile.subview", [view, *places], kind, {**attrs}, view.hint), [
        o for a, o in enumerate(offsets) if a not in at
    ]
