"""Generated files as libraries of this machine, by its C++ compiler: they lie in the cache, found by their text's hash.

Starting the compiler, and templates that others have instantiated as well, are most of a small kernel's time. So files
can share a library (`together`), in which each has a namespace of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from tessera import knobs
from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.call.narrow import MACRO
from tessera.compiler.targets.cuda.write import cxx
from tessera.errors import MissingDependency
from tessera.files import read_plain, read_record, write_record

# -O0: kernels run for milliseconds, so that optimising costs more than it saves. No contraction, as on the device. C's
# headers suffice; C++'s would be most of the text to compile.
FLAGS = ("-std=c++17", "-nostdinc++", "-O0", "-g1", "-fPIC", "-ffp-contract=off", "-fno-stack-protector",
         "-U_FORTIFY_SOURCE", "-w")  # fmt: skip
# The machine runs at every access of every kernel. Its fibers see one memory through pointers of several types.
_MACHINE = ("-O1", "-fno-strict-aliasing", "-fvisibility=hidden")

# The time of emulated threads, which code with phases reads.
COUNTS = ("-finstrument-functions", "-fno-exceptions", "-DTS_COUNTS_CALLS")


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
def compiler_version() -> str:
    out = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=False)
    return out.stdout.splitlines()[0] if out.stdout else "unknown"


@lru_cache(maxsize=1)
def _writer() -> str:
    """A hash of this file, which writes what is around a kernel's text."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _folder() -> Path:
    """Where built libraries are kept: they are found again by the hash of their sources."""
    path = knobs.cache_dir() / "emulator"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


@dataclass(frozen=True)
class HostSource:
    """A generated file: its kernels' parameters by the kernel's name, and the lines that it comes from."""

    source: str
    signatures: Mapping[str, Sequence[str]]
    arch: int
    name: str
    lines: Sequence[Sequence[object]]

    @property
    def flags_of_machine(self) -> tuple[str, ...]:
        return (*FLAGS, f"-DTESSERA_ARCH={self.arch * 10}")

    @cached_property
    def flags(self) -> tuple[str, ...]:
        narrow = re.match(rf"#define {MACRO} (\d+)\n", self.source)  # headers that are compiled ahead must see it
        counts = COUNTS if "timer.read<" in self.source else ()
        return (*self.flags_of_machine, *([f"-D{MACRO}={narrow[1]}"] if narrow else []), *counts)

    @cached_property
    def key(self) -> str:
        signatures = "".join(f"{name}({', '.join(types)})\n" for name, types in self.signatures.items())
        parts = [self.source, signatures, *self.flags, compiler_version(), nvrtc.headers_fingerprint(), _writer()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def symbol(self, kernel: str) -> str:
        """The function in its library that unpacks a kernel's arguments and calls it."""
        return f"emulated_{self.key}_{kernel}"

    def host_text(self) -> str:
        """The kernels' text, and such a function for each."""
        kernels = [cxx.kernel_symbol(name) for name in self.signatures]
        out = [f"#define {k} {k}_{self.key}" for k in kernels]  # `extern "C"` knows no namespace
        out += [f"namespace text_{self.key} {{", f'#include "../{self.key}/code.cu"']
        for name, types in self.signatures.items():
            arguments = ", ".join(f"*({t}*)a[{i}]" for i, t in enumerate(types))
            call = f"{cxx.kernel_symbol(name)}({arguments});"
            out.append(f'extern "C" void {self.symbol(name)}(void** a) {{ {call} }}')
        return "\n".join([*out, "}", *(f"#undef {k}" for k in kernels)]) + "\n"


_waiting: ContextVar[list[HostSource] | None] = ContextVar("_waiting", default=None)


@contextlib.contextmanager
def together() -> Generator[None]:
    """What is compiled for an emulator within is built at the end, by one call of the C++ compiler for each
    architecture. Where it fails, each file is built, and its error raised, when it is first used."""
    texts: list[HostSource] = []
    before = _waiting.set(texts)
    try:
        yield
    finally:
        _waiting.reset(before)
    groups: dict[tuple[str, ...], dict[str, HostSource]] = {}
    for text in texts:
        if find(text) is None:
            groups.setdefault(text.flags, {})[text.key] = text
    for group in groups.values():
        _compile(list(group.values()))


def build_later(text: HostSource) -> None:
    """Builds the library: now, or at the end of `together`."""
    texts = _waiting.get()
    if texts is None:
        build(text)
    else:
        texts.append(text)


def build(text: HostSource) -> Path:
    """The library with this text, from the cache where it has been built before. Raises TargetError TS603."""
    if found := find(text):
        return found
    if said := _compile([text]):
        raise nvrtc.failed(said, text.source, "code.cu", text.lines, f"The C++ compiler ({text.name})")
    return _folder() / text.key / "code.so"


def find(text: HostSource) -> Path | None:
    """The library with this text, where it has been built and is whole."""
    record = read_record(_folder() / text.key / "code.json", text.key)
    if not isinstance(record, list):
        return None
    library = _folder() / str(record[0]) / "code.so"  # pyright: ignore[reportUnknownArgumentType]
    return library if record[1] == _hash_of(library) else None


def _compile(texts: Sequence[HostSource]) -> str:
    """Makes one library of files that want the same flags; what the compiler said where it failed."""
    keys = [t.key for t in texts]
    key = keys[0] if len(keys) == 1 else hashlib.sha256("".join(keys).encode()).hexdigest()[:24]
    for t in texts:
        (_folder() / t.key).mkdir(parents=True, exist_ok=True)
        _replace(_folder() / t.key / "code.cu", lambda part, t=t: part.write_text(t.source))
    headers = {line: None for t in texts for line in re.findall(r"^#include <.*>$", t.source, re.MULTILINE)}
    lines = ["#include <tessera/host.h>", *headers, *(t.host_text() for t in texts)]
    lines.append('extern "C" int emulate(tessera::hw::Launch* launch) { return tessera::hw::emulate(launch); }\n')
    folder = _folder() / key
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / "host.cpp", lambda part: part.write_text("\n".join(lines)))
    flags = texts[0].flags
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".so", delete=False) as made:
        source_file = [f"-I{nvrtc.INCLUDE}", "-shared", str(folder / "host.cpp"), "-o", made.name]
        command = [*compiler(), *flags, *source_file, *_compiled_ahead(flags, texts[0].flags_of_machine)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        os.unlink(made.name)
        return out.stderr
    digest = _hash_of(Path(made.name))
    os.replace(made.name, folder / "code.so")  # several processes may build the same library
    for t in texts:
        write_record(_folder() / t.key / "code.json", t.key, [key, digest])
    return ""


def _hash_of(library: Path) -> str | None:
    """Of its content, which is read once for all the files in it."""
    try:
        about = library.stat()
    except OSError:
        return None
    return _hash_at(library, about.st_ino, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _hash_at(library: Path, *_: int) -> str | None:
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
    key = hashlib.sha256("\0".join([text, *flags, compiler_version(), nvrtc.headers_fingerprint()]).encode())
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
