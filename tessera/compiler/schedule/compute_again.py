"""Computes cheap elementwise values again where they are read, so that they need no memory.

A kernel cannot read its own results at other places: `d = x[1:] - x[:-1]; d[1:] - d[:-1]` would store d and read it
twice. Instead each slice of an elementwise result becomes that operator on slices of its operands, down to values that
are in memory anyway, and a stencil of stencils is one kernel. It is done where the arithmetic takes less time than the
memory traffic that it saves; the operators are the same, and so are all bits. A narrow value in memory is also
converted to a wider dtype in each kernel that reads it so, instead of once for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from tessera.compiler.graph.passes.rematerialize import FLOPS_PER_BYTE, flops_of, size_of
from tessera.compiler.ir.core import Block, Builder, Op, Value, clone
from tessera.compiler.ir.launches import LAUNCHES
from tessera.compiler.ir.types import Shape, TensorType
from tessera.compiler.schedule import cost
from tessera.compiler.schedule.alignment import base_of, shape_of
from tessera.compiler.schedule.lifetimes import readers
from tessera.compiler.schedule.views import is_view, kind_of
from tessera.language.dims import Dim, ceildiv
from tessera.language.dtypes import DType

_FOLLOWED = ("map", "reduce", "scan", "contract", "gather", "random")
"""kinds of operators that others may follow in one kernel, without a word to memory"""
_IN_REGISTERS = ("map", "reduce", "scan")
"""kinds of operators that may follow others so"""


def compute_again(block: Block, found: dict[Op, str] | None = None) -> dict[Op, str]:
    """Changes a block and those inside of it. Gives the operators for which it would cost too much, and why: one of
    `refusals.CAUSES`."""
    kept = {} if found is None else found
    for op in list(block.ops):
        for region in () if op.name in LAUNCHES else op.regions:
            compute_again(region.block, kept)
        if op.name == "graph.cast" and _widens(op) and in_memory(base_of(op.operands[0]), block):
            _convert_in_each_kernel(op)
        if kind_of(op) == "map" and any(is_slice(user) and user.block is block for user in op.result.users):
            again = _Sliced(op)
            why = again.why_kept()
            if not why:
                _push(op, again.chain)
            elif why != "order":
                kept[op] = why
    return kept


def _widens(cast: Op) -> bool:
    return _dtype(cast.result).itemsize > _dtype(cast.operands[0]).itemsize


def _convert_in_each_kernel(cast: Op) -> None:
    """Gives each kernel that is likely to read the result a conversion of its own; none where it is stored anyway."""
    block, readers = cast.block, list(dict.fromkeys(cast.result.users))
    if block is None or any(r.block is not block or kind_of(r) not in _IN_REGISTERS for r in readers):
        return
    for kernel in _sharing(readers)[1:]:
        first = min(kernel, key=block.index)
        again = block.insert(block.index(first), clone(cast, {}))
        for reader in kernel:
            reader.set_operands([again.result if v is cast.result else v for v in reader.operands])


def _sharing(readers: Sequence[Op]) -> list[list[Op]]:
    """Readers of a value by the kernels that they are likely to share: those whose elementwise results meet."""
    groups: list[tuple[set[Op], list[Op]]] = []
    for reader in readers:
        reached, together = _reached(reader), [reader]
        for other in [g for g in groups if g[0] & reached]:
            groups.remove(other)
            reached |= other[0]
            together = other[1] + together
        groups.append((reached, together))
    return [together for _, together in groups]


def is_slice(op: Op) -> bool:
    return op.name == "graph.slice"


def in_memory(v: Value, block: Block) -> bool:
    """Whether a value of a block, or of one around it, has to be in memory, however what reads it is computed."""
    op = v.op
    if op is None or op.block is not block or kind_of(op) not in _FOLLOWED:
        return True
    return any(_from_memory(r, block) for r in readers(v)) or any(is_slice(user) for user in v.users)


def _from_memory(reader: Op, block: Block) -> bool:
    """Whether it reads its operands from memory. A concatenation does not: its parts are computed in their places."""
    return reader.block is not block or kind_of(reader) not in (*_IN_REGISTERS, "join")


class _Sliced:
    """An elementwise operator whose result is read in slices. `chain`: the operators that are computed again together
    with it; `leaves`: the values that they read."""

    def __init__(self, op: Op) -> None:
        assert op.block is not None
        self.op, self.block = op, op.block
        self.slices = [user for user in op.result.users if is_slice(user)]
        self.chain: dict[Op, None] = {}
        self.leaves: dict[Value, None] = {}
        self._follow(op)

    def _follow(self, op: Op) -> None:
        self.chain[op] = None
        for v in op.operands:
            if v.op not in self.chain and len(self.chain) <= cost.MAX_OPS:
                if v.op is not None and kind_of(v.op) == "map" and not in_memory(v, self.block):
                    self._follow(v.op)
                else:
                    self.leaves[v] = None

    def why_kept(self) -> str:
        v = self.op.result
        if any(_from_memory(r, self.block) for r in readers(v)):
            return "order"
        if any(is_view(user) and not is_slice(user) for user in v.users):
            return "order"
        if any(not in_memory(base_of(leaf), self.block) for leaf in self.leaves):
            return "order"
        kernels = self._kernels()
        most = max(map(len, kernels), default=0)
        if not cost.worth_fusing(len(self.chain) * most, len(self.leaves) * most):
            return "size"
        return "" if self._pays(kernels) else "dear"

    def _pays(self, kernels: list[set[Value]]) -> bool:
        """Whether it takes less time. A kernel reads, of slices that overlap, about what the largest has."""
        whole = size_of(self.op.result)
        if not whole:
            return True
        reads = sum(max(map(size_of, found)) for found in kernels) / whole
        again = sum(size_of(v) for found in kernels for v in found) / whole - 1
        leaves = self._bytes_of_leaves()
        loaded = sum(size_of(leaf) // _dtype(leaf).itemsize for leaf in self.leaves)
        work = (sum(map(flops_of, self.chain)) + loaded) / FLOPS_PER_BYTE
        return leaves * reads + again * work < leaves + whole * (1 + reads)

    def _bytes_of_leaves(self) -> int:
        """The bytes that the leaves take in memory; several may be windows onto one value."""
        found: dict[Value, int] = {}
        for leaf in self.leaves:
            base = base_of(leaf)
            if kind_of(base.op) != "generate":
                found[base] = min(size_of(base), found.get(base, 0) + size_of(leaf))
        return sum(found.values())

    def _kernels(self) -> list[set[Value]]:
        """The values that are read of the result, grouped by readers that are likely to share a kernel: those whose
        results meet."""
        groups: list[tuple[set[Op], set[Value]]] = []
        for user in self.op.result.users:
            read = user.result if is_slice(user) else self.op.result
            for reader in readers(read) if is_slice(user) else [user]:
                reached, values = _reached(reader), {read}
                for other in [g for g in groups if g[0] & reached]:
                    groups.remove(other)
                    reached |= other[0]
                    values |= other[1]
                groups.append((reached, values))
        return [values for _, values in groups]


def _dtype(v: Value) -> DType:
    assert isinstance(v.type, TensorType)
    return v.type.dtype


def _reached(op: Op) -> set[Op]:
    """Elementwise operators of one shape that lead on from `op`, it among them."""
    found, todo = {op}, [op]
    while todo and len(found) < cost.MAX_OPS:
        for user in todo.pop().result.users:
            if kind_of(user) == "map" and user not in found and shape_of(user.result) == shape_of(op.result):
                found.add(user)
                todo.append(user)
    return found


def _push(op: Op, chain: Collection[Op]) -> None:
    """Slices of the operands of a chain take the place of those of its result."""
    for user in [u for u in op.result.users if is_slice(u) and u.block is op.block]:
        user.result.replace_by(_at(op.result, user, chain, Builder.before(user), {}))
        user.erase()


def _at(v: Value, place: Op, chain: Collection[Op], b: Builder, made: dict[Value, Value]) -> Value:
    """The part of `v` for `place`, a slice of a chain's result."""
    if v not in made:
        shape = shape_of(v)
        sides = zip(
            *(cast("Shape", place.attrs[name])[-len(shape) :] for name in ("start", "stop", "step")), strict=True
        )
        window = [(0, 1, 1) if d == 1 else side for d, side in zip(shape, sides, strict=True)] if shape else []
        op = v.op
        if op is not None and op in chain:
            parts = [_at(w, place, chain, b, made) for w in op.operands]
            assert isinstance(v.type, TensorType)
            t = v.type.with_shape(tuple(ceildiv(stop - start, step) for start, stop, step in window))
            with b.at(op.span), b.under(op.origin):
                made[v] = b.value(op.name, parts, t, dict(op.attrs), v.hint)
        else:
            made[v] = take(b, v, window)
    return made[v]


def take(b: Builder, v: Value, window: Sequence[tuple[Dim, Dim, Dim]]) -> Value:
    """The slice of `v` with this (start, stop, step) along each axis; itself where that is all of it."""
    if all(w == (0, d, 1) for w, d in zip(window, shape_of(v), strict=True)):
        return v
    assert isinstance(v.type, TensorType)
    t = v.type.with_shape(tuple(ceildiv(stop - start, step) for start, stop, step in window))
    start, stop, step = zip(*window, strict=True)
    return b.value("graph.slice", (v,), t, {"start": start, "stop": stop, "step": step}, v.hint)
