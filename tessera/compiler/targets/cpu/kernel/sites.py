"""What a kernel tells its host while it runs: tiles to print, and (in debug mode) tiles that must hold.

A kernel copies the tile into its scratch memory and calls back with the number of the site; the artefact's table of
sites says what it is. Launches with sites run on one thread, so that what they say comes in order.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType
from tessera.compiler.targets.cpu.frame import HOST
from tessera.compiler.targets.cpu.llvm.values import PTR
from tessera.compiler.targets.cpu.loops.axes import shape_of
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.tile.asserts import filled
from tessera.compiler.tile.printing import say
from tessera.errors import DebugCheckError, Diagnostic, Span
from tessera.language import dims, dtypes
from tessera.language.dims import prod

if TYPE_CHECKING:
    from tessera.compiler.targets.cpu.kernel.function import KernelFunction
    from tessera.compiler.targets.cpu.loops.nests import NestWriter
    from tessera.compiler.targets.cpu.loops.plan import Planner

Site = Mapping[str, Any]


class Sites:
    """The table of one Program, filled while its kernels are written. `checks`: whether asserts are kept."""

    def __init__(self, checks: bool) -> None:
        self.checks = checks
        self.table: list[Site] = []

    def write(self, k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
        """The code for a `tile.print` or `tile.assert`."""
        if op.name == "tile.assert" and not self.checks:
            return
        cell, *more = [self._kept(k, v, plan, writer) for v in op.operands]
        span = op.span
        self.table.append(
            {
                "what": op.name[5:],
                "text": str(op.attrs.get("label" if op.name == "tile.print" else "message") or ""),
                "shape": [str(s) for s in shape_of(op.operands[0])],
                "held": cell.dtype.name,
                "dtype": dtype_of(op.operands[0]).name,
                "extent": str(op.attrs.get("extent", 0)),
                "grid": [str(g) for g in k.kernel.attrs["grid"]],  # type: ignore[union-attr]
                "span": [span.file, span.line, span.col, span.end_line, span.end_col],
            }
        )
        fn = k.fn
        call = k.frame.load_slot(fn, fn.param(0), HOST, PTR)
        shown = repr(more[0].ptr) if more else "ptr null"
        args = f"{fn.param(0)!r}, i64 {len(self.table) - 1}, {cell.ptr!r}, {shown}, {fn.index(k.number)!r}"
        fn.do(f"call void {call.ref}({args})")

    def _kept(self, k: KernelFunction, v: Value, plan: Planner, writer: NestWriter) -> Cell:
        """Where the host finds the tile, in C order."""
        if isinstance(v.type, SharedType):
            return k.ev.cells[v]
        shape, kept = shape_of(v), held(dtype_of(v))
        cell = Cell(k.raw(prod(shape) * kept.itemsize), k.ev.packed_strides(shape), kept)
        writer.write(plan.copy(v, cell))
        return cell


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Host:
    """Answers the callbacks of one loaded Program."""

    def __init__(self, sites: Sequence[Site], free: Sequence[str]) -> None:
        self.sites, self.free = sites, free
        self._shapes = [[dims.parse(s) for s in site["shape"]] for site in sites]
        self._running: dict[int, tuple[dict[str, int], list[DebugCheckError]]] = {}
        self._lock = threading.Lock()
        self._callback = _CALLBACK(self._said)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def begin(self, frame: int, sizes: Sequence[int]) -> None:
        with self._lock:
            self._running[frame] = dict(zip(self.free, sizes, strict=True)), []

    def end(self, frame: int) -> None:
        """Raises the first failed assertion (DebugCheckError TS506)."""
        with self._lock:
            _, failed = self._running.pop(frame)
        if failed:
            raise failed[0]

    def _said(self, frame: int, number: int, data: int, indices: int | None, program: int) -> None:
        import numpy as np

        site = self.sites[number]
        env, failed = self._running[frame]
        shape = [dims.evaluate(s, env) for s in self._shapes[number]]
        dtype = dtypes.BY_NAME[site["held"]]
        size = math.prod(shape) * dtype.itemsize
        values = np.frombuffer(ctypes.string_at(data, size), dtype.numpy).reshape(shape)
        if site["what"] == "print":
            grid = [dims.evaluate(dims.parse(g), env) for g in site["grid"]]
            where = tuple(int(i) for i in np.unravel_index(program, grid)) if grid else ()
            shown = values.astype(dtypes.BY_NAME[site["dtype"]].numpy)
            say(site["text"], where, shown)
        elif not failed and not values.all():
            message = site["text"] or "An assertion over a tile does not hold."
            if indices is not None:
                first = int(values.argmin())  # of bools: the first that is false
                index = ctypes.c_int64.from_address(indices + 8 * first).value
                message = filled(message, index, dims.parse(site["extent"]), env)
            failed.append(DebugCheckError(Diagnostic("TS506", message, Span(*site["span"]))))
