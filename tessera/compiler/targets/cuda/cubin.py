"""Facts about the kernels of a cubin: registers, stack, shared memory from the ELF file, SASS by nvdisasm."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tessera.errors import Diagnostic, MissingDependency, TargetError
from tessera.immutable import immutable

# Attributes of the .nv.info sections (cubin ELF, as printed by `readelf` of the CUDA toolkit's cuobjdump -elf).
_REGISTERS, _FRAME, _MIN_STACK = 0x2F, 0x11, 0x12


RESERVED_SHARED = 1024
"""Bytes of shared memory that the system keeps of each block from compute capability 8.0 on (CUDA C++ Programming
Guide, "Shared Memory" of these capabilities). From 9.0 on a cubin counts them as the kernel's own."""


@immutable
class KernelResources:
    """Per thread: registers and stack bytes (spilled registers and local arrays); per block: static shared bytes,
    without those that the system keeps."""

    registers: int
    stack: int
    shared: int


@immutable
class _Section:
    name: str
    kind: int
    data: bytes
    size: int
    link: int


def _sections(cubin: bytes) -> list[_Section]:
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    entry, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * entry) for i in range(count)]
    table = headers[names]
    text = cubin[table[4] : table[4] + table[5]]
    out: list[_Section] = []
    for h in headers:
        name = text[h[0] : text.index(b"\0", h[0])].decode()
        data = b"" if h[1] == 8 else cubin[h[4] : h[4] + h[5]]  # SHT_NOBITS has no bytes in the file
        out.append(_Section(name, h[1], data, h[5], h[6]))
    return out


def _symbols(sections: list[_Section]) -> list[str]:
    table = next(s for s in sections if s.kind == 2)  # SHT_SYMTAB
    text = sections[table.link].data
    starts = [struct.unpack_from("<I", table.data, i)[0] for i in range(0, len(table.data), 24)]
    return [text[s : text.index(b"\0", s)].decode() for s in starts]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of a .nv.info section: format byte, attribute byte, then a size or the value itself."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            yield attribute, data[at : at + size]
            at += size


def resources(cubin: bytes) -> dict[str, KernelResources]:
    """The figures of every kernel in the file."""
    sections = _sections(cubin)
    symbols = _symbols(sections)
    found: dict[str, dict[int, int]] = {}
    for s in sections:
        if s.name != ".nv.info":
            continue
        for attribute, value in _attributes(s.data):
            if attribute in (_REGISTERS, _FRAME, _MIN_STACK) and len(value) >= 8:
                symbol, amount = struct.unpack_from("<II", value)
                found.setdefault(symbols[symbol], {})[attribute] = amount
    kept = RESERVED_SHARED if any(s.name == ".nv.shared.reserved.0" for s in sections) else 0
    shared = {
        s.name.removeprefix(".nv.shared."): max(0, s.size - kept)
        for s in sections
        if s.name.startswith(".nv.shared.") and "reserved" not in s.name
    }
    kernels = [s.name.removeprefix(".text.") for s in sections if s.name.startswith(".text.")]
    return {
        k: KernelResources(a.get(_REGISTERS, 0), max(a.get(_FRAME, 0), a.get(_MIN_STACK, 0)), shared.get(k, 0))
        for k in kernels
        for a in (found.get(k, {}),)
    }


def binary(name: str) -> str:
    """The path of nvdisasm or cuobjdump. Raises MissingDependency."""
    try:
        from cuda.pathfinder import find_nvidia_binary_utility  # optional: the extra cuda

        found = find_nvidia_binary_utility(name)
    except ImportError:
        found = None
    path = found or shutil.which(name)
    if not path:
        raise MissingDependency(name, "cuda", "Showing machine code")
    return str(path)


def disassemble(cubin: bytes) -> str:
    """SASS with `//## File "...", line N` marks, inlined calls with the places that they were inlined into.

    Raises MissingDependency without nvdisasm, TargetError TS602 where it does not read the architecture.
    """
    # no data flow: it finds targets of jumps by a stack, which architectures before sm_70 had, and takes a third of
    # the time
    return nvdisasm(cubin, ["-c", "-gi", "-ndf"])[0]


def nvdisasm(cubin: bytes, *runs: list[str]) -> list[str]:
    """What it prints with these options, all of them at a time: it takes 0.6 s to make its tables for an architecture.
    Only the first may not fail."""
    program = binary("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(cubin)
        with ThreadPoolExecutor(len(runs)) as pool:

            def run(options: list[str]) -> subprocess.CompletedProcess[str]:
                return subprocess.run([program, *options, str(path)], capture_output=True, text=True, check=False)

            done = list(pool.map(run, runs))
    if done[0].returncode:  # those of CUDA 13.1 and later do not read sm_70
        why = done[0].stderr.strip().removeprefix("nvdisasm fatal").strip(" :\n")
        raise TargetError(Diagnostic("TS602", f"nvdisasm cannot show this machine code: {why}"))
    return ["" if out.returncode else out.stdout for out in done]


_MARK = re.compile(r'//## File "([^"]*)", line (\d+)')
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;(?:.*// (\d+) live)?")
_KERNEL = re.compile(r"^//-+ \.text\.(\S+) +-+$")


@immutable
class SassRow:
    """One instruction: the symbol of its kernel, its offset there, the line of the source that it comes from (0: not
    known), and how many registers of a thread hold something (None: not known)."""

    kernel: str
    offset: int
    text: str
    line: int
    live: int | None


def rows(sass: str, file: str) -> list[SassRow]:
    """The instructions with lines of `file`: an inlined call counts for the line that it was inlined into."""
    out: list[SassRow] = []
    line = 0
    pending: list[tuple[str, int]] = []
    for kernel, text in with_kernel(sass):
        if mark := _MARK.search(text):
            pending.append((mark[1], int(mark[2])))
            if inlined := re.search(r'inlined at "([^"]*)", line (\d+)', text):
                pending.append((inlined[1], int(inlined[2])))
        elif instruction := INSTRUCTION.match(text):
            if pending:  # of code that comes from another file alone no line is known
                line = next((number for name, number in reversed(pending) if name.endswith(file)), 0)
            pending = []
            live = None if instruction[3] is None else int(instruction[3])
            out.append(SassRow(kernel, int(instruction[1], 16), instruction[2], line, live))
        elif _KERNEL.match(text):
            line, pending = 0, []
    return out


def with_kernel(sass: str) -> Iterator[tuple[str, str]]:
    """(symbol of the kernel, line)"""
    kernel = ""
    for text in sass.splitlines():
        if section := _KERNEL.match(text):
            kernel = section[1]
        yield kernel, text
