"""Makes a decomposed graph function ready for grouping: every view becomes a window, every result owns its memory.

Inserted copies are casts to the same dtype: elementwise ops like any other, fused where they can be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias, cast

from tessera.compiler.ir.core import Block, Builder, Op, Value, clone
from tessera.compiler.ir.launches import LAUNCHES, kernel_of, stored
from tessera.compiler.ir.types import TensorType, TileType
from tessera.compiler.machines import Sizes
from tessera.compiler.schedule.access import collapse
from tessera.compiler.schedule.alignment import base_of, long_reduction, reduced_axes, shape_of
from tessera.compiler.schedule.lifetimes import read_later
from tessera.compiler.schedule.matrices import Contraction, contraction, operands_as_matrices, ordered, roles
from tessera.compiler.schedule.views import ViewLayout, is_view, kind_of, layout_of, number_everywhere, views_to
from tessera.language import dtypes


def copy_before(op: Op, v: Value) -> Value:
    """A contiguous copy of `v`, made just before `op`."""
    assert isinstance(v.type, TensorType)
    return Builder.before(op).value("graph.cast", (v,), v.type, {"dtype": v.type.dtype}, v.hint)


FEW = 8
"""With fewer rows or columns, what is packed for a product is mostly filler: a copy of its operands is quicker to read
than they are in several axes."""


def normalise(block: Block, sizes: Sizes) -> None:
    """`sizes`: what the target's programs take."""
    copies: dict[ViewLayout, Value] = {}
    for op in list(block.ops):
        if is_view(op) and layout_of(op.result) is None:
            _copy_for_view(op)
        elif op.name == "graph.contract":
            _normalise_contraction(op, sizes)
        elif kind_of(op) == "gather":
            _store_generated(op, range(len(op.operands)))
            _store_scalars(op, (0,))
        elif kind_of(op) in ("scatter", "sort"):
            same = kind_of(op) == "scatter" and number_everywhere(op.operands[0]) is not None
            _in_one_piece(op, range(1 if same else 0, len(op.operands)))
        elif kind_of(op) == "put":  # its tensor is copied when the op is lowered, where that is necessary
            _in_one_piece(op, (1, 2))
            _in_windows(op, (0,))
        elif kind_of(op) == "spectral":
            _store_generated(op, range(len(op.operands)))
            _store_scalars(op, range(len(op.operands)))
            _in_windows(op, range(len(op.operands)))
        elif kind_of(op) == "reduce":
            _straighten(op)
        elif op.name == "graph.launch":
            copies = _normalise_launch(op, copies)
        elif op.name == "graph.if":
            _own(op, {0})
        for region in () if op.name in LAUNCHES else op.regions:
            normalise(region.block, sizes)
    last = block.terminator
    if last.parent is not None and last.parent.name == "graph.if":  # either path's values are copied
        _in_windows(last, range(len(last.operands)))
    else:
        count = len(cast("tuple[int, ...]", last.parent.attrs.get("states", ()))) if last.parent is not None else 0
        places = range(len(last.operands))
        _own(last, [*places[len(places) - count :], *places[: len(places) - count]])  # states first: they are large


def _copy_for_view(op: Op) -> None:
    """A view that is no window has a copy. Its readers in a backward pass have one of their own if what is copied is in
    memory then anyway: else the first copy would be kept as well."""
    late = [user for user in op.result.users if user.origin.order > op.origin.order and user.block is op.block]
    if late and len(late) < len(op.result.users):
        first = min(late, key=op.block.index) if op.block is not None else late[0]
        if read_later(base_of(op.operands[0]), first):
            again = clone(op, {})
            again.origin = first.origin
            Builder.before(first).insert(again)
            again.set_operand(0, copy_before(again, again.operands[0]))
            for user in late:
                for i, v in enumerate(user.operands):
                    if v is op.result:
                        user.set_operand(i, again.result)
    op.set_operand(0, copy_before(op, op.operands[0]))


def _normalise_launch(op: Op, known: Mapping[ViewLayout, Value]) -> dict[ViewLayout, Value]:
    """A kernel's arguments are contiguous in memory. Nothing else reads an argument that the kernel stores to: it is a
    copy, unless it was computed for this launch alone. `known`: copies that the launch before reads; gives those that
    this one reads. A copy for launches far apart would take memory in between."""
    writes, copies = stored(op), dict[ViewLayout, Value]()
    for i, arg in enumerate(kernel_of(op).region.block.args[: len(op.operands)]):
        v = op.operands[i]
        layout = layout_of(v)
        base = layout.base if layout else None
        if isinstance(arg.type, TileType):  # a scalar: passed, put into the kernel, or read from memory
            ready = base is not None and (base.op is None or base.op.name == "graph.constant" or not _computed(base.op))
        elif i in writes:
            ready = layout is not None and layout.whole and _made_for(v, op)
        else:
            ready = layout is not None and layout.dense and _in_memory(layout.base)
        if ready:
            continue
        if layout is None or i in writes or isinstance(arg.type, TileType):
            op.set_operand(i, copy_before(op, v))
            continue
        copies[layout] = copies.get(layout) or known.get(layout) or copy_before(op, v)
        op.set_operand(i, copies[layout])
    return copies


def _computed(op: Op) -> bool:
    """Whether an op's result is computed wherever it is used, and so has no memory."""
    return kind_of(op) == "generate"


def _in_memory(base: Value) -> bool:
    """Whether a value has a buffer: a scalar argument may be none."""
    assert isinstance(base.type, TensorType)
    return base.type.rank > 0 if base.op is None else not _computed(base.op)


def _made_for(v: Value, op: Op) -> bool:
    """Whether `v` and all that it is a view of were computed beside `op`, for it alone."""
    while len(v.uses) == 1 and v.op is not None and v.op.block is op.block:
        if not is_view(v.op):
            return not _computed(v.op)
        v = v.op.operands[0]
    return False


def _store_generated(op: Op, which: Collection[int]) -> None:
    """Operands that `op` reads from memory, in an order of its own, are put there if they are computed where used."""
    for i in which:
        base = base_of(op.operands[i])
        if base.op is not None and _computed(base.op):
            op.set_operand(i, copy_before(op, op.operands[i]))


def _store_scalars(op: Op, which: Collection[int]) -> None:
    """So are those that are windows onto a scalar argument, which has no memory."""
    for i in which:
        if not _in_memory(base_of(op.operands[i])):
            op.set_operand(i, copy_before(op, op.operands[i]))


def _in_windows(op: Op, which: Collection[int]) -> None:
    """Operands that are copied by a launch of their own are windows of any value."""
    for i in which:
        if layout_of(op.operands[i]) is None:
            op.set_operand(i, copy_before(op, op.operands[i]))


def _in_one_piece(op: Op, which: Collection[int]) -> None:
    """Operands that are read in many orders are in memory, in C order."""
    for i in which:
        v = op.operands[i]
        layout = layout_of(v)
        if layout is None or not layout.dense or not _in_memory(layout.base):
            op.set_operand(i, copy_before(op, v))


def _straighten(op: Op) -> None:
    """A long reduction walks its operand as one axis, in chunks: a window of several gets a copy."""
    layout = layout_of(op.operands[0])
    assert layout is not None
    if long_reduction(op) and len(collapse(layout.shape, [0] * len(layout.shape), [layout.strides])) > 1:
        op.set_operand(0, copy_before(op, op.operands[0]))


def _read_bytes(op: Op) -> None:
    """Bytes that are widened to 32 bits for a product are widened where it reads them, instead of in memory."""
    t = op.result.type
    assert isinstance(t, TensorType)
    chains = [views_to(v) for v in op.operands]
    wide = [chain[0].operands[0] if chain else v for v, chain in zip(op.operands, chains, strict=True)]
    casts = [v.op for v in wide if v.op is not None and v.op.name == "graph.cast" and _is_bytes(v.op.operands[0])]
    if t.dtype not in (dtypes.int32, dtypes.uint32) or t.policy is not None or len(casts) < 2:
        return
    for i, (cast_op, chain) in enumerate(zip(casts, chains, strict=True)):
        v = cast_op.operands[0]
        assert isinstance(v.type, TensorType)
        dtype = v.type.dtype
        for view in chain:
            shape = view.result.type
            assert isinstance(shape, TensorType)
            seen = TensorType(shape.shape, dtype)
            v = Builder.before(op).value(view.name, (v, *view.operands[1:]), seen, dict(view.attrs), view.result.hint)
        op.set_operand(i, v)
        for dead in (*reversed(chain), cast_op):
            if dead.block is not None and not dead.result.uses:
                dead.erase()
    op.attrs |= {"dtype": t.dtype}


def _is_bytes(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype in (dtypes.int8, dtypes.uint8) and v.type.policy is None


def _normalise_contraction(op: Op, sizes: Sizes) -> None:
    """Operands with several axes of rows or columns are copied where the target reads matrices only; an output in
    another order is computed in order, of operands that have changed places or else to be transposed."""
    _read_bytes(op)
    _store_generated(op, (0, 1))
    _store_scalars(op, (0, 1))
    c = contraction(op)
    if _better_swapped(c, op):
        op.set_operands(op.operands[::-1])
        op.attrs |= {"lhs": c.rhs, "rhs": c.lhs}
        c = contraction(op)
    if not ordered(c):
        inner = c.batch + c.rows + c.columns
        t = op.result.type
        assert isinstance(t, TensorType)
        shape = tuple(c.sizes[x] for x in inner)
        new = Builder.before(op).op(
            op.name, op.operands, (t.with_shape(shape),), {**op.attrs, "out": inner}, hints=(op.result.hint,)
        )
        perm = tuple(inner.index(x) for x in c.out)
        moved = Builder.before(op).value("graph.transpose", (new.result,), t, {"perm": perm}, op.result.hint)
        op.result.replace_by(moved)
        op.erase()
        op, c = new, contraction(new)
    matrices = operands_as_matrices(op)
    few = any(isinstance(d, int) and d < FEW for d in (matrices[0].sizes[0], matrices[1].sizes[1]))
    for i, (m, labels, role) in enumerate(zip(matrices, (c.lhs, c.rhs), roles(c), strict=True)):
        v = op.operands[i]
        assert isinstance(v.type, TensorType)
        if m.plain or (sizes.any_axes and not few and not v.type.dtype.is_complex):
            continue
        want = c.batch + "".join(role)
        perm = tuple(labels.index(x) for x in want)
        turned = Builder.before(op).value(
            "graph.transpose", (v,), v.type.with_shape(tuple(c.sizes[x] for x in want)), {"perm": perm}, v.hint
        )
        op.set_operand(i, copy_before(op, turned))
        op.attrs["lhs" if i == 0 else "rhs"] = want


def _better_swapped(c: Contraction, op: Op) -> bool:
    """Whether the output is in order once the operands change places, as for the gradient of a weight. Each element is
    the same sum of the same products. The operand that becomes the right one is contiguous along its columns, which is
    the order that is quick to read. Where all readers transpose the output again, it already has the order that they
    need."""
    if all(user.name == "graph.transpose" for user in op.result.users):
        return False
    if ordered(c) or c.out != c.batch + c.columns + c.rows or [x for x in c.rhs if x in c.summed] != [*c.summed]:
        return False
    layout = layout_of(op.operands[0])
    return layout is not None and dict(zip(c.lhs, layout.strides, strict=True))[c.rows[-1]] == 1


def _own(op: Op, which: Collection[int]) -> None:
    """The results of a block are distinct, contiguous and computed in it; other values are copied. A value that a loop
    carries, in the same place or in another one, is not copied."""
    around = op.parent
    carried = op.block.args if op.block is not None and around is not None and around.name == "graph.while" else []
    taken = {v for v, carry in zip(op.operands, carried, strict=False) if v is carry}
    for i in which:
        v = op.operands[i]
        if i < len(carried) and v is carried[i]:
            continue
        layout = layout_of(v)
        base = layout.base if layout else None
        made = base.op if base is not None else None
        fresh = base in carried or (
            made is not None and made.block is op.block and kind_of(made) not in ("generate", "table")
        )
        if layout is None or not fresh or not layout.whole or base in taken:
            op.set_operand(i, copy_before(op, v))
        else:
            assert base is not None
            taken.add(base)


Perm: TypeAlias = "tuple[int, ...]"
BESIDE, DEEP = 16, 8
"""elements of the last axis in memory from which on lanes are worth having along it; operators one above the other that
are computed twice"""


def turn_reductions(block: Block) -> None:
    """Changes a block and those inside of it. Leaves operators that nobody uses."""
    for op in block.ops:
        for region in () if op.name in LAUNCHES else op.regions:
            turn_reductions(region.block)
    _Turned(block).turn()


class _Turned:
    """Reductions that walk across memory, as of `x.T` along its last axis, with what leads to them and what is computed
    of them: the same operators on values as they lie in memory, and transposes of their results."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.made: set[Value] = set()
        """results of turned operators"""

    def turn(self) -> None:
        leading: set[Op] = set()
        for op in reversed(self.block.ops):
            if kind_of(op) == "reduce" or (_elementwise(op) and any(user in leading for user in op.result.users)):
                leading.add(op)
        for op in list(self.block.ops) if leading else ():
            if kind_of(op) == "reduce" or _elementwise(op):
                self._turn(op, op in leading)

    def _turn(self, op: Op, leading: bool) -> None:
        """Turns an operator whose operands are transposed in one way, or are computed anywhere."""
        rank = len(shape_of(op.operands[0] if kind_of(op) == "reduce" else op.result))
        moved = [v for v in op.operands if _perm(v) is not None and len(shape_of(v)) == rank]
        behind = [v for v in moved if _source(v) in self.made]
        long = [v for v in moved if _long(v) > 1] if leading else []
        perm = _perm((behind or long)[0]) if behind or long else None
        if perm is None or perm[-1] == rank - 1:
            return
        last = BESIDE if behind else shape_of(long[0])[perm.index(rank - 1)]
        if isinstance(last, int) and last < BESIDE:
            return
        build = Builder.before(op)
        attrs, back, t = dict(op.attrs), perm, cast(TensorType, op.result.type)
        if kind_of(op) == "reduce":
            gone = reduced_axes(op)
            if len(gone) != 1:  # terms of several axes have an order of their own
                return
            attrs["axis"] = (perm[gone[0]],)
            if not attrs["keepdims"]:
                left = [perm[a] for a in range(rank) if a not in gone]
                back = tuple(sorted(left).index(a) for a in left)
        operands = [self._as_it_lies(build, v, perm) for v in op.operands]
        if None in operands:
            return
        new = build.value(op.name, cast("list[Value]", operands), _turned(t, back), attrs, op.result.hint)
        self.made.add(new)
        if back != tuple(range(len(back))):
            new = build.value("graph.transpose", (new,), t, {"perm": back}, op.result.hint)
        op.result.replace_by(new)
        op.erase()

    def _as_it_lies(self, build: Builder, v: Value, perm: Perm, depth: int = 0) -> Value | None:
        """The value that is `v` if it is transposed so; None where that is not in memory and not computed from numbers
        and values of one axis alone."""
        if _perm(v) == perm:
            return _source(v)
        t, op, shape = cast(TensorType, v.type), v.op, shape_of(v)
        if _long(v) == 0:
            return v
        wide = t.with_shape((*[1] * (len(perm) - len(shape)), *shape))
        if _long(v) == 1:
            there = _turned(wide, perm)
            return build.value("graph.reshape", (v,), there, {"shape": there.shape}, v.hint)
        if len(shape) < len(perm) or op is None or depth > DEEP:
            return None
        if kind_of(base_of(v).op) == "generate":
            back = tuple(map(perm.index, range(len(perm))))
            return build.value("graph.transpose", (v,), _turned(t, perm), {"perm": back}, v.hint)
        if not _elementwise(op) or any(_perm(w) is not None and _long(w) > 1 for w in op.operands):
            return None
        operands = [self._as_it_lies(build, w, perm, depth + 1) for w in op.operands]
        if None in operands:
            return None
        return build.value(op.name, cast("list[Value]", operands), _turned(t, perm), dict(op.attrs), v.hint)


def _elementwise(op: Op) -> bool:
    return kind_of(op) == "map" and op.name != "graph.bitcast"


def _perm(v: Value) -> Perm | None:
    """How a value is transposed that is a transpose."""
    return cast(Perm, v.op.attrs["perm"]) if v.op is not None and v.op.name == "graph.transpose" else None


def _source(v: Value) -> Value:
    assert v.op is not None
    return v.op.operands[0]


def _long(v: Value) -> int:
    """How many axes have other sizes than 1."""
    return sum(d != 1 for d in shape_of(v))


def _turned(t: TensorType, perm: Perm) -> TensorType:
    """The type of what is of type `t` once it is transposed so."""
    return t.with_shape(tuple(t.shape[perm.index(i)] for i in range(len(perm))))
