"""`emulator:sm_80`: the generated CUDA C++ compiled by the system's C++ compiler and run on the processor.

The text is the GPU's, word for word; include/tessera/host.h takes the place of the instructions. Races, out-of-range
accesses, reads of memory that nothing was written to and unreachable barriers are errors at the user's line.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tessera.compiler.targets.base import Artifact, GlobalAccess, TileRecorder, architecture
from tessera.compiler.targets.cuda import host_library, nvrtc
from tessera.compiler.targets.cuda.call import steps
from tessera.compiler.targets.cuda.call.launch import aligned_room
from tessera.compiler.targets.cuda.call.narrow import Variants, with_code
from tessera.compiler.targets.cuda.generate import accesses, generate
from tessera.compiler.targets.cuda.parts import SourcePart
from tessera.compiler.targets.cuda.target import artifact, passes_for, settings_for
from tessera.compiler.tile.program import Program
from tessera.errors import NOWHERE, DebugCheckError, Diagnostic, Note, Span
from tessera.language import dtypes

_TRACE = 48


@cache
def _lock_of(library: Path) -> threading.Lock:
    """The emulated machine is one per library."""
    return threading.Lock()


class EmulatedTarget:
    """`emulator:<architecture>`. Slow by design: for tests and for looking at a kernel's behaviour without a GPU."""

    device = "cuda"

    def __init__(self, name: str) -> None:
        self.name = name
        self.arch = architecture(name.removeprefix("emulator:"))
        self.passes = passes_for(name.removeprefix("emulator:"))

    @property
    def fingerprint(self) -> str:
        return f"{self.name} {host_library.compiler_version()} library-{nvrtc.library_fingerprint()}"

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        """Raises TargetError (TS602, TS405 as for the GPU; TS603 where the C++ compiler fails)."""
        generated = generate(program, settings_for(self.arch, profile, debug))
        signatures = {k.name: k.signature for _, k in generated.written}
        text = host_library.HostSource(generated.source, signatures, self.arch, program.name, generated.lines)
        host_library.build_later(text)
        reason = "known of compiled GPU code only; compile for " + self.name.removeprefix("emulator:")
        resources = {
            k.name: {"threads": k.threads, "shared": k.shared, "registers": None, "registers_reason": reason}
            for _, k in generated.written
        }
        for _, k in generated.written:
            k.notes += k.tight
        whole = [SourcePart([k.name for _, k in generated.written])]
        return artifact(self.name, program, generated, whole, {}, resources, profile)

    def accesses(self, program: Program, sizes: Mapping[str, int]) -> list[GlobalAccess]:
        """Those of the GPU."""
        return accesses(program, settings_for(self.arch, False, False), sizes)

    def load(self, artifact: Artifact) -> EmulatedExecutable:
        return EmulatedExecutable(artifact)


class _Region(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("begin", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("writable", ctypes.c_int32),
    ]


class _TensorMap(ctypes.Structure):
    """As in include/tessera/host_sm90.h."""

    _fields_ = [
        ("address", ctypes.c_uint64), ("size", ctypes.c_uint64 * 5), ("stride", ctypes.c_uint64 * 4),
        ("box", ctypes.c_uint32 * 5), ("rank", ctypes.c_uint32), ("itemsize", ctypes.c_uint32),
        ("line_bytes", ctypes.c_uint32), ("rounds_to_tf32", ctypes.c_uint32), ("padding", ctypes.c_uint8 * 12),
    ]  # fmt: skip


def tensor_map_bytes(t: steps.BoundTensorMap) -> bytes:
    """A tensor map as the emulated machine reads it."""
    size, stride, box = (
        (ctypes.c_uint64 * 5)(*t.sizes),
        (ctypes.c_uint64 * 4)(*t.strides),
        (ctypes.c_uint32 * 5)(*t.box),
    )
    itemsize, rounds = dtypes.BY_NAME[t.dtype].itemsize, t.dtype == "tf32"
    return bytes(_TensorMap(t.address, size, stride, box, len(t.sizes), itemsize, t.box[0] * itemsize, rounds))


class _Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p), ("args", ctypes.POINTER(ctypes.c_void_p)), ("regions", ctypes.POINTER(_Region)),
        ("n_regions", ctypes.c_int64), ("grid", ctypes.c_int64), ("threads", ctypes.c_int64),
        ("shared_size", ctypes.c_int64),
        ("seed", ctypes.c_uint64), ("message", ctypes.c_char_p), ("message_size", ctypes.c_int64),
        ("trace", ctypes.POINTER(ctypes.c_void_p)), ("trace_size", ctypes.c_int64), ("traced", ctypes.c_int64),
    ]  # fmt: skip


RESIDENT = 3
"""Blocks of a persistent kernel that are launched."""


class EmulatedExecutable:
    """Runs on addresses of host memory. `seed` 0: threads take turns in order; 1, 2: the first (the last) warp runs
    ahead of all others; else in an order drawn from it."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.plan = steps.Steps(artifact.meta, steps.constants(artifact))
        self.seed = 0
        self._variants = Variants(self.plan, artifact.files["code.cu"].decode(), self._narrower)
        self.constants: dict[int, int] = {}
        self.blocks: list[ctypes.Array[ctypes.c_char]] = []
        """the objects that keep the constants' memory alive"""

    @cached_property
    def text(self) -> host_library.HostSource:
        a = self.artifact
        signatures = {name: facts["signature"] for name, facts in a.meta["kernels"].items()}
        arch = architecture(a.target.removeprefix("emulator:"))
        return host_library.HostSource(a.files["code.cu"].decode(), signatures, arch, a.name, a.meta["lines"])

    @cached_property
    def path(self) -> Path:
        """The library. Raises TargetError TS603 where it has been left to its first use (`together`) and fails."""
        return host_library.build(self.text)

    @cached_property
    def library(self) -> Any:
        return ctypes.CDLL(str(self.path))

    def run(
        self,
        pointers: Sequence[int],
        scalars: Sequence[bool | int | float | complex],
        dims: Sequence[int],
        *,
        stream: int = 0,
        record: TileRecorder | None = None,
    ) -> None:
        """Raises DebugCheckError TS506 where a kernel races or leaves its buffers."""
        if (narrower := self._variants.suited(pointers)) is not None:
            narrower.seed = self.seed
            narrower.run(pointers, scalars, dims, stream=stream, record=record)
            return
        with _lock_of(self.path):
            self.plan.run(_HostMachine(self), pointers, scalars, dims, record)

    def _narrower(self, source: str, alignment: int) -> EmulatedExecutable:
        """The same program for arrays at multiples of `alignment` bytes."""
        made = EmulatedExecutable(with_code(self.artifact, alignment, {"code.cu": source.encode()}))
        _ = made.path  # raises where it does not compile
        return made


def _aligned_bytes(data: bytes) -> ctypes.Array[ctypes.c_char]:
    """A copy at a multiple of 64 bytes, as tensor maps want it."""
    out = aligned_room(len(data))
    out.raw = data
    return out


class _HostMachine:
    def __init__(self, executable: EmulatedExecutable) -> None:
        self.executable = executable
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def allocate(self, size: int) -> int:
        block = ctypes.create_string_buffer(size + 256)
        ctypes.memset(block, 0xFF, size + 256)  # NaN: what nothing was written to must not look like a result
        place = -(-ctypes.addressof(block) // 256) * 256
        self.memory[place] = block
        return place

    def constant(self, number: int, data: bytes) -> int:
        constants = self.executable.constants
        if number not in constants:
            constants[number] = self.allocate(len(data))
            self.upload(constants[number], data)
            self.executable.blocks.append(self.memory.pop(constants[number]))
        return constants[number]

    def upload(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def download(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)

    def copy(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def free(self, address: int) -> None:
        del self.memory[address]

    def tensor_map(self, tensor: steps.BoundTensorMap) -> bytes:
        return tensor_map_bytes(tensor)

    def resident(self, kernel: str) -> int:
        """A number that does not divide many grids."""
        return RESIDENT

    def records(self, launch: int, programs: int, phases: Sequence[Sequence[int]]) -> int | None:
        return None

    def host_times(self, times: Any) -> Any:
        """Both read one clock."""
        return times

    def launch(self, call: steps.KernelCall) -> None:
        x = self.executable
        packed = [_aligned_bytes(a) for a in call.arguments]
        args = (ctypes.c_void_p * max(1, len(packed)))(*(ctypes.addressof(p) for p in packed))
        merged: dict[int, tuple[str, int, int, bool]] = {}
        for window in call.windows:
            name, begin, size, writable = window
            old = merged.get(begin, window)  # one array twice, or one without elements where another begins
            if old[2] > size:
                name, size = old[0], old[2]
            merged[begin] = (name, begin, size, writable or old[3])
        regions = (_Region * max(1, len(merged)))(*(_Region(n.encode(), b, s, w) for n, b, s, w in merged.values()))
        message = ctypes.create_string_buffer(512)
        trace = (ctypes.c_void_p * _TRACE)()
        kernel = ctypes.cast(x.library[x.text.symbol(call.kernel)], ctypes.c_void_p)
        launch = _Launch(
            kernel, args, regions, len(merged), call.grid, call.threads, call.shared, x.seed,
            ctypes.cast(message, ctypes.c_char_p), len(message), trace, _TRACE, 0,
        )  # fmt: skip
        if x.library.emulate(ctypes.byref(launch)):
            raise fault(x, call.kernel, message.value.decode(), [int(a or 0) for a in trace[: launch.traced]])


def fault(x: EmulatedExecutable, kernel: str, message: str, trace: Sequence[int]) -> DebugCheckError:
    """The error, at the user's line where the debug information leads to it."""
    number = _generated_line(x, trace)
    lines = x.artifact.source.splitlines()
    notes: list[Note] = []
    span = NOWHERE
    if number:
        notes.append(Note(f"generated line {number}: {lines[number - 1].strip()}"))
        origin = [row for row in x.artifact.meta["lines"] if row[0] <= number]
        if origin:
            _, file, line = origin[-1]
            span = Span(file, line, 1, line, 1)
    return DebugCheckError(Diagnostic("TS506", message, span, notes=tuple(notes), function=kernel))


def _generated_line(x: EmulatedExecutable, trace: Sequence[int]) -> int:
    """The innermost line of code.cu among return addresses, by addr2line; 0 where it cannot be found."""
    tool = shutil.which("addr2line")
    base = _load_address(x.path)
    if not tool or not base:
        return 0
    offsets = [hex(a - base - 1) for a in trace if a >= base]
    with contextlib.suppress(subprocess.SubprocessError, OSError):
        out = subprocess.run(
            [tool, "-i", "-e", str(x.path), *offsets], capture_output=True, text=True, check=True, timeout=60
        )
        for text in out.stdout.splitlines():
            if found := re.search(r"code\.cu:(\d+)", text):
                return int(found[1])
    return 0


def _load_address(path: Path) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            if line.endswith(str(path.resolve())):  # a cache may be reached by a link
                return int(line.partition("-")[0], 16)
    return 0
