"""`emulator:sm_80`: the generated CUDA C++ compiled by the system's C++ compiler and run on the processor.

The text is the GPU's, word for word; include/tessera/host.h takes the place of the instructions. Races, out-of-range
accesses, reads of memory that nothing was written to and unreachable barriers are errors at the user's line.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tessera import knobs
from tessera.compiler.targets.base import Artifact, TileRecorder, architecture
from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.call import steps
from tessera.compiler.targets.cuda.call.launch import aligned_room
from tessera.compiler.targets.cuda.call.narrow import MACRO, Variants, with_code
from tessera.compiler.targets.cuda.generate import generate
from tessera.compiler.targets.cuda.target import artifact, passes_for, settings_for
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.program import Program
from tessera.errors import NOWHERE, DebugCheckError, Diagnostic, MissingDependency, Note, Span
from tessera.files import read_plain, read_record, write_record
from tessera.language import dtypes

# -O0: kernels run for milliseconds, so that optimising costs more than it saves. No contraction, as on the device. C's
# headers suffice; C++'s would be most of the text to compile.
FLAGS = ("-std=c++17", "-nostdinc++", "-O0", "-g1", "-fPIC", "-ffp-contract=off", "-fno-stack-protector",
         "-U_FORTIFY_SOURCE", "-w")  # fmt: skip
# The machine runs at every access of every kernel. Its fibers see one memory through pointers of several types.
_MACHINE = ("-O1", "-fno-strict-aliasing", "-fvisibility=hidden")
_TRACE = 48


@lru_cache(maxsize=1)
def compiler() -> tuple[str, ...]:
    """The C++ compiler's command. Raises MissingDependency where there is none."""
    chosen = os.environ.get("CXX")
    for name in (chosen, "g++", "clang++", "c++"):
        if name and (path := shutil.which(name)):
            return (path,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-P", "-m", "ziglang", "c++")
    raise MissingDependency("a C++ compiler (g++, clang++ or the ziglang wheel)", "dev", "Emulating CUDA kernels")


@lru_cache(maxsize=1)
def _compiler_version() -> str:
    out = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False)
    return out.stdout.splitlines()[0] if out.stdout else "unknown"


def _folder() -> Path:
    """Where built libraries are kept: they are found again by the hash of their sources."""
    path = knobs.cache_dir() / "emulator"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


class EmulatedTarget:
    """`emulator:<architecture>`. Slow by design: for tests and for looking at a kernel's behaviour without a GPU."""

    device = "cuda"

    def __init__(self, name: str) -> None:
        self.name = name
        self.arch = architecture(name.removeprefix("emulator:"))
        self.passes = passes_for(name.removeprefix("emulator:"))

    @property
    def fingerprint(self) -> str:
        return f"{self.name} {_compiler_version()} library-{nvrtc.library_fingerprint()}"

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        """Raises TargetError (TS602, TS405 as for the GPU; TS603 where the C++ compiler fails)."""
        generated = generate(program, settings_for(self.arch, profile, debug))
        signatures = {k.name: k.signature for _, k in generated.written}
        library = build(generated.source, signatures, self.arch, program.name, generated.lines)
        reason = "known of compiled GPU code only; compile for " + self.name.removeprefix("emulator:")
        resources = {
            k.name: {"threads": k.threads, "shared": k.shared, "registers": None, "registers_reason": reason}
            for _, k in generated.written
        }
        for _, k in generated.written:
            k.notes += k.tight
        return artifact(self.name, program, generated, {"code.so": library.read_bytes()}, resources, profile)

    def load(self, artifact: Artifact) -> EmulatedExecutable:
        return EmulatedExecutable(artifact)


def _host_text(source: str, signatures: Mapping[str, Sequence[str]]) -> str:
    """The kernels' text and, for each, a function that unpacks its arguments."""
    calls = ["#include <tessera/host.h>", '#include "code.cu"']
    for name, types in signatures.items():
        symbol = cxx.kernel_symbol(name)
        arguments = ", ".join(f"*({t}*)a[{i}]" for i, t in enumerate(types))
        calls.append(f'extern "C" void emulated_{name}(void** a) {{ {symbol}({arguments}); }}')
    calls.append('extern "C" int emulate(tessera::hw::Launch* launch) { return tessera::hw::emulate(launch); }')
    return "\n".join(calls) + "\n"


def build(
    source: str, signatures: Mapping[str, Sequence[str]], arch: int, name: str, lines: Sequence[Sequence[object]]
) -> Path:
    """The shared library of a generated file, from the cache where it has been built before."""
    flags = of_machine = (*FLAGS, f"-DTESSERA_ARCH={arch * 10}")
    if narrow := re.match(rf"#define {MACRO} (\d+)\n", source):  # headers that are compiled ahead must see it
        flags = (*flags, f"-D{MACRO}={narrow[1]}")
    text = _host_text(source, signatures)
    key = hashlib.sha256(
        "\0".join([source, text, *flags, _compiler_version(), nvrtc.library_fingerprint()]).encode()
    ).hexdigest()[:24]
    folder = _folder() / key
    library = folder / "code.so"
    if library.exists() and read_record(folder / "code.json", key) == _hash_of(library):
        return library
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "code.cu", lambda part: part.write_text(source))
    _replace(folder / "host.cpp", lambda part: part.write_text(text))
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".so", delete=False) as made:
        source_file = [f"-I{nvrtc.INCLUDE}", "-shared", str(folder / "host.cpp"), "-o", made.name]
        command = [*compiler(), *flags, *source_file, *_compiled_ahead(flags, of_machine)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        os.unlink(made.name)
        raise nvrtc.failed(out.stderr, source, "code.cu", lines, f"The C++ compiler ({name})")
    write_record(folder / "code.json", key, _hash_of(Path(made.name)))
    os.replace(made.name, library)  # several processes may build the same library
    return library


def _hash_of(library: Path) -> str | None:
    data = read_plain(library, 1 << 30)
    return None if data is None else hashlib.sha256(data).hexdigest()


def _compiled_ahead(flags: Sequence[str], of_machine: Sequence[str]) -> list[str]:
    """Arguments that make a kernel's compilation take half as long, for g++: the device library is a precompiled
    header, the machine an object to link with, and Python has loaded C's library already."""
    if "g++" not in Path(compiler()[0]).name:
        return []
    headers = sorted(p.name for p in (nvrtc.INCLUDE / "tessera").glob("*.cuh") if not p.name.startswith("device"))
    library = "".join(f"#include <tessera/{h}>\n" for h in ("host.h", *headers))
    header = _ahead("all.h", f"#define TS_MACHINE_APART\n{library}", ".gch", (*flags, "-x", "c++-header"))
    machine = _ahead("machine.cpp", f"#define TS_MACHINE\n{library}", ".o", (*of_machine, *_MACHINE, "-c"))
    return ["-include", str(header), f"{machine}.o", "-nostdlib", "-lm", "-lgcc"] if header and machine else []


def _ahead(name: str, text: str, suffix: str, flags: Sequence[str]) -> Path | None:
    """A file of this text with what is compiled from it beside it, under its name and the suffix; None where that
    fails."""
    key = hashlib.sha256("\0".join([text, *flags, _compiler_version(), nvrtc.library_fingerprint()]).encode())
    path = _folder() / f"ahead-{key.hexdigest()[:16]}" / name
    made = path.with_name(name + suffix)
    if made.exists():
        return path

    def compile_to(part: Path) -> None:
        command = [*compiler(), *flags, f"-I{nvrtc.INCLUDE}", str(path), "-o", str(part)]
        subprocess.run(command, capture_output=True, check=True)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, lambda part: part.write_text(text))
        _replace(made, compile_to)
    except (OSError, subprocess.CalledProcessError):
        return None
    return path


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Has a file written beside its place and put there: whole for other processes that do the same."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


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
        self._lock = threading.Lock()  # the emulated machine is one per library
        key = hashlib.sha256(artifact.files["code.so"]).hexdigest()[:24]
        self.path = _folder() / f"{key}.so"
        if read_plain(self.path, 1 << 30) != artifact.files["code.so"]:
            part = self.path.with_suffix(f".{os.getpid()}")
            part.write_bytes(artifact.files["code.so"])
            os.replace(part, self.path)
        self.library: Any = ctypes.CDLL(str(self.path))

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
        with self._lock:
            self.plan.run(_HostMachine(self), pointers, scalars, dims, record)

    def _narrower(self, source: str, alignment: int) -> EmulatedExecutable:
        """The same program for arrays at multiples of `alignment` bytes."""
        a = self.artifact
        signatures = {name: facts["signature"] for name, facts in a.meta["kernels"].items()}
        arch = architecture(a.target.removeprefix("emulator:"))
        code = build(source, signatures, arch, a.name, a.meta["lines"]).read_bytes()
        return EmulatedExecutable(with_code(a, alignment, {"code.so": code}))


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
        kernel = ctypes.cast(x.library[f"emulated_{call.kernel}"], ctypes.c_void_p)
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
