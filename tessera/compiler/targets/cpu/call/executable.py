"""Compiled Programs in this process: frames, workspaces, runs."""

from __future__ import annotations

import copy
import ctypes
import mmap
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.compiler.targets.base import Artifact, TileRecorder
from tessera.compiler.targets.cpu.call import fastcall, threads
from tessera.compiler.targets.cpu.call.clock import Records, mapped, record_ns
from tessera.compiler.targets.cpu.call.host import Host
from tessera.compiler.targets.cpu.frame import (
    FIRST,
    HOST,
    POOL,
    RECORD_CAPACITY,
    RECORD_STRIDE,
    RECORDS,
    RUN,
    SCRATCH,
    SCRATCH_STRIDE,
)
from tessera.compiler.targets.cpu.llvm.jit import Loaded
from tessera.compiler.tile.lifetimes import place
from tessera.errors import LaunchError
from tessera.immutable import immutable
from tessera.language import dims, dtypes, rounding
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

CODE = ".o"
"""how the names of files of code end"""
KEPT = 8
"""workspaces kept for later calls, of all Programs together"""
FAST_BYTES = 1 << 20
"""temporaries and scratch of a worker up to which a Program keeps memory of its own for the quick way"""


@immutable
class Place:
    """A temporary's slot and size, and the first and the last launch that use it."""

    slot: int
    bytes: Dim
    first: int
    last: int


@immutable
class Pack:
    """A constant array that is packed before the first call: the slot of the packed form, the place of the array among
    those of a call, the bytes, and the function that packs, whose name says how."""

    slot: int
    source: int
    bytes: int
    name: str


class Workspace:
    """Memory of one call at a time: temporaries, then each worker's scratch. Pages appear when they are touched.

    Raises LaunchError TS505 where the system does not give it."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        self._map = mapped(self.size + 4096, "temporaries")
        if hasattr(mmap, "MADV_HUGEPAGE") and size >= 1 << 22:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._hold = ctypes.c_char.from_buffer(self._map)
        self.address = -(-ctypes.addressof(self._hold) // 64) * 64


class _Idle:
    """Workspaces that no call uses, the latest last: their pages are there, and mostly in a cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Workspace] = []

    def take(self, size: int) -> Workspace:
        """One of at least `size` bytes, and not many times as large: a small request must not hold a large block."""
        with self._lock:
            for i in range(len(self._kept) - 1, -1, -1):
                if size <= self._kept[i].size <= 4 * size + (1 << 16):
                    return self._kept.pop(i)
        return Workspace(size)

    def give(self, workspace: Workspace) -> None:
        with self._lock:
            self._kept.append(workspace)
            gone = self._kept[:-KEPT]
            del self._kept[:-KEPT]
        del gone

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it in the parent


_idle = _Idle()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.after_fork)


class CpuExecutable:
    """Follows `targets.base.Executable`. Safe to call from several threads at once: each call has its own workspace."""

    def __init__(self, artifact: Artifact) -> None:
        meta = artifact.meta
        self.meta = meta
        self._code = Loaded(*(data for name, data in artifact.files.items() if name.endswith(CODE)))
        self.entry = self._code.address("run")
        self._call = fastcall.caller()
        layout: Mapping[str, Any] = meta["frame"]
        self.slots = int(layout["size"])
        self.bound = [FIRST + i for i in layout["bound"]]
        self.free = [str(n) for n in layout["free"]]
        self.dim_slots = [int(layout["dims"]) + i for i in range(len(self.free))]
        self.scalars: list[tuple[int, DType]] = [(int(s), dtypes.BY_NAME[d]) for s, d in layout["scalars"]]
        self.temps = [Place(FIRST + i, dims.parse(size), *used) for i, size, *used in layout["temps"]]
        self.scratch: Dim = dims.parse(meta["scratch"])
        self._constants = {FIRST + i: _aligned_copy(artifact.files[name]) for i, name in layout["constants"]}
        self._needs_memory = bool(self.temps) or self.scratch != 0
        self._fast: dict[tuple[Any, ...], fastcall.FastFunctions | None] = {}
        self._sizes: dict[tuple[int, ...], tuple[list[tuple[int, int]], int, int]] = {}
        self._run_address = threads.run_address()
        self._host = Host(meta["sites"], self.free) if meta["sites"] else None
        self._pack = struct.Struct(f"={self.slots}q").pack
        self._template = [0] * self.slots
        self._template[RUN] = self._run_address
        if self._host is not None:
            self._template[HOST] = self._host.address
        for slot, constant in self._constants.items():
            self._template[slot] = constant.address
        self.records_tiles = bool(meta["phases"])
        self.packs = [Pack(FIRST + slot, *rest) for slot, *rest in meta["packs"]]

    @property
    def record_ns(self) -> float | None:
        """The cost of one tile record on this machine, in ns; None where none are made."""
        return record_ns() if self.records_tiles else None

    def workspace_bytes(self, dims: Sequence[int]) -> int:
        """The memory of a call beside its arguments and results: temporaries, and scratch of each worker."""
        if not self._needs_memory:
            return 0
        _, size, stride = self._layout(tuple(dims))
        return size + stride * (threads.pool().size + 1)

    # -- constants ---------------------------------------------------------------------------------------------------
    def filled(self, place: Callable[[Pack, Callable[[int, int], None]], int]) -> CpuExecutable:
        """The same code for certain constant arrays. `place(pack, write)` gives the address of a packed form, which
        `write(array, address)` makes of the array at an address."""
        found = copy.copy(self)
        found._template, found._fast = self._template.copy(), {}
        for pack in self.packs:
            write = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._code.address(pack.name))
            found._template[pack.slot] = place(pack, write)
        return found

    # -- one call ----------------------------------------------------------------------------------------------------
    def run(
        self,
        pointers: Sequence[int],
        scalars: Sequence[bool | int | float | complex],
        dims: Sequence[int],
        *,
        stream: int = 0,
        record: TileRecorder | None = None,
    ) -> None:
        """Returns when the outputs are written."""
        assert all(self._template[pack.slot] for pack in self.packs), "constants have not been packed"
        pool = threads.pool()
        frame = self._template.copy()
        frame[POOL] = pool.address
        for slot, pointer in zip(self.bound, pointers, strict=True):
            frame[slot] = pointer
        for slot, n in zip(self.dim_slots, dims, strict=True):
            frame[slot] = n
        for (slot, dtype), value in zip(self.scalars, scalars, strict=True):
            frame[slot], frame[slot + 1] = scalar_slots(value, dtype)
        workspace = self._workspace(frame, tuple(dims), pool.size + 1) if self._needs_memory else None
        try:
            if self.records_tiles:
                self._recorded(frame, dims, pool.size + 1, record)
            else:
                self._make(frame, dims)
        finally:
            if workspace is not None:
                _idle.give(workspace)

    def _make(self, frame: list[int], dims: Sequence[int]) -> None:
        """The call. Raises the errors that kernels have reported to the host."""
        if self._host is None:
            self._call(self.entry, self._pack(*frame))
            return
        memory = (ctypes.c_int64 * self.slots)(*frame)
        where = ctypes.addressof(memory)
        self._host.begin(where, dims)
        try:
            self._call(self.entry, where)
        finally:
            self._host.end(where)

    def _recorded(self, frame: list[int], dims: Sequence[int], workers: int, record: TileRecorder | None) -> None:
        with Records(workers) as records:
            frame[RECORDS], frame[RECORD_STRIDE], frame[RECORD_CAPACITY] = records.slots()
            self._make(frame, dims)
            if record is not None:
                for columns in records.columns():
                    record.record(columns)

    def _workspace(self, frame: list[int], sizes: tuple[int, ...], workers: int) -> Workspace:
        """Memory for this call's temporaries and its workers' scratch; puts the addresses into the frame."""
        temps, size, stride = self._layout(sizes)
        workspace = _idle.take(size + stride * workers)
        frame[SCRATCH], frame[SCRATCH_STRIDE] = workspace.address + size, stride
        for slot, offset in temps:
            frame[slot] = workspace.address + offset
        return workspace

    def fast(
        self, pairs: tuple[tuple[int, int, bool], ...] = (), extents: tuple[tuple[int, bool], ...] = (),
        arrays: Sequence[tuple[Any, tuple[int, ...]]] = (),
    ) -> fastcall.FastFunctions | None:  # fmt: skip
        """`fast(*arrays, *scalars)`: the same call without Python in between, on objects with the buffer protocol in
        the order of `pointers`. It returns 0, or non-zero when it has done nothing because something was not as
        expected: `pairs` are arrays that must not overlap, and whether they may be one and the same; `extents` are
        arrays, and whether each is stored to and so must not overlap with any of them; `arrays` are the dtypes of
        NumPy's and the shapes of all. None where sizes are free, tiles are recorded or a scalar needs the long way."""
        if (pairs, extents) not in self._fast:
            self._fast[pairs, extents] = self._make_fast(pairs, extents, arrays)
        return self._fast[pairs, extents]

    def _make_fast(
        self, pairs: tuple[tuple[int, int, bool], ...], extents: tuple[tuple[int, bool], ...],
        described: Sequence[tuple[Any, tuple[int, ...]]],
    ) -> fastcall.FastFunctions | None:  # fmt: skip
        kinds = [fastcall.scalar_kind(d) for _, d in self.scalars]
        count = len(self.bound) + len(self.scalars)
        if self.free or self.records_tiles or self._host is not None or None in kinds or count > fastcall.LIMIT:
            return None
        temps, size, stride = self._layout(())
        if size + stride > FAST_BYTES:
            return None
        try:
            workspace = Workspace(size + stride * fastcall.WORKERS)
        except LaunchError:  # the long way needs less
            return None
        frame = (ctypes.c_int64 * self.slots)(*self._template)
        frame[SCRATCH], frame[SCRATCH_STRIDE] = workspace.address + size, stride
        for slot, offset in temps:
            frame[slot] = workspace.address + offset
        arrays = [
            (FIRST + i, *facts)
            for i, facts in zip(self.meta["frame"]["bound"], self.meta["frame"]["arrays"], strict=True)
        ]
        scalars = [(slot, kind) for (slot, _), kind in zip(self.scalars, kinds, strict=True) if kind is not None]
        return fastcall.fast_functions(self.entry, frame, arrays, scalars, pairs, extents, described, (self, workspace))

    def _layout(self, sizes: tuple[int, ...]) -> tuple[list[tuple[int, int]], int, int]:
        """Offsets of the temporaries, their total, and the scratch bytes of one worker, for these sizes."""
        found = self._sizes.get(sizes)
        if found is None:
            env = dict(zip(self.free, sizes, strict=True))
            places, total = place([(dims.evaluate(t.bytes, env), t.first, t.last) for t in self.temps])
            temps = list(zip((t.slot for t in self.temps), places, strict=True))
            stride = -(-dims.evaluate(self.scratch, env) // 4096) * 4096
            if len(self._sizes) > 64:
                self._sizes.clear()
            found = self._sizes[sizes] = temps, total, stride
        return found


class _aligned_copy:
    """Constant bytes at an address aligned to 64."""

    def __init__(self, data: bytes) -> None:
        self._memory = ctypes.create_string_buffer(len(data) + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        ctypes.memmove(self.address, data, len(data))


_F32, _WORD = struct.Struct("<f4x"), struct.Struct("<q")


def scalar_slots(value: bool | int | float | complex, dtype: DType) -> tuple[int, int]:
    """A scalar parameter's two slots: its bytes as memory holds them."""
    if dtype is dtypes.f32 and type(value) is float:
        return _WORD.unpack(_F32.pack(value))[0], 0
    if dtype.is_complex:
        z = complex(value)
        text = struct.pack("<ff8x" if dtype.bits == 64 else "<dd", z.real, z.imag)
    elif dtype.name in ("f32", "f64"):
        text = struct.pack("<f12x" if dtype.bits == 32 else "<d8x", _real(value))
    elif dtype.is_float:
        text = rounding.rounded_number(value, dtype).tobytes().ljust(16, b"\0")
    else:
        number = int(bool(value)) if dtype.kind == "bool" else int(_real(value))
        text = (number & ((1 << 64) - 1)).to_bytes(8, "little") + bytes(8)
    low, high = struct.unpack("<qq", text)
    return low, high


def _real(value: Any) -> int | float:
    """Of a number, or of an array without axes, whose own conversions may refuse what int64 does not hold."""
    value = value.item() if hasattr(value, "item") else value
    return value.real if isinstance(value, complex) else value
