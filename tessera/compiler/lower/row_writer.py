"""Kernels of rows whose reductions run along several axes: neighbours that merge into one in all that a reduction reads
are one for it, whatever else is in the kernel. So the order of a sum does not depend on what is fused with it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.lower.kernel_writer import KernelWriter, Space
from tessera.compiler.schedule.access import reads, together
from tessera.compiler.schedule.alignment import Axes, base_of
from tessera.compiler.schedule.views import kind_of
from tessera.language.dims import prod


class RowWriter(KernelWriter):
    def __init__(self, space: Space, axes: dict[Value, Axes], scalars: set[Value], span: Any) -> None:
        super().__init__(space, axes, scalars, span)
        self._flat: dict[tuple[int, ...], KernelWriter] = {}

    def _reduce(self, op: Op) -> Value:
        gone = self.folded_axes(op, self.full_axes(op))
        if len(gone) < 2 or gone[-1] - gone[0] >= len(gone):
            return super()._reduce(op)
        ops = self._leading_to(op, gone)
        if ops is None:
            return super()._reduce(op)
        flat = self._merging(gone)
        for known in ops:
            (v,) = known.results
            if self._runs_along(v, gone):
                if v not in flat.tiles:
                    flat.compute(known)
            else:
                shape = flat.tile_shape(flat.space.present(self.axes[v]))
                flat.tiles[v] = self.b.reshape(self.tiles[v], shape)
        found = KernelWriter._reduce(flat, op)
        return self.b.reshape(found, self.tile_shape(self.space.present(self.axes[op.result])))

    def _runs_along(self, v: Value, gone: tuple[int, ...]) -> bool:
        return any(self.space.present(self.axes[v])[a] for a in gone)

    def _leading_to(self, op: Op, gone: tuple[int, ...]) -> list[Op] | None:
        """The ops of the kernel that compute what `op` reads, in order, back to those that do not run along `gone`;
        None where one of them reads memory in which these axes do not merge."""
        axes = [a for g in gone for a in self.space.groups[g]]
        found: dict[Op, None] = {}

        def visit(user: Op) -> bool:
            if any(
                not together(at.strides, a, b, self.space.original)
                for _, at in reads(user, self.axes, self.space.original)
                for a, b in pairwise(axes)
            ):
                return False
            for v in map(base_of, user.operands):
                if v.op is None or v not in self.tiles or v.op in found:
                    continue
                if self._runs_along(v, gone) and (kind_of(v.op) != "map" or not visit(v.op)):
                    return False
                found[v.op] = None
            return True

        return list(found) if visit(op) else None

    def _merging(self, gone: tuple[int, ...]) -> KernelWriter:
        """A writer of the same kernel over a space where these axes are one."""
        if gone not in self._flat:
            first, behind = gone[0], gone[-1] + 1
            old = self.space
            space = Space(
                old.original,
                [*old.groups[:first], tuple(a for g in gone for a in old.groups[g]), *old.groups[behind:]],
                (*old.dims[:first], prod(old.dims[a] for a in gone), *old.dims[behind:]),
                (*old.block[:first], prod(old.block[a] for a in gone), *old.block[behind:]),
                (*old.inner[:first], True, *old.inner[behind:]),
            )
            self._flat[gone] = self.over(space, [*self.offsets[:first], self.size(0), *self.offsets[behind:]])
        return self._flat[gone]
