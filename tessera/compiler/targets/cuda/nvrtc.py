"""CUDA C++ text to a cubin by NVRTC, on a machine with or without a GPU."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

from tessera.compiler.parallel import in_parallel
from tessera.compiler.targets.cuda import nvrtc_library
from tessera.errors import NOWHERE, Diagnostic, MissingDependency, Note, Span, TargetError
from tessera.immutable import immutable
from tessera.signals import abandonable

INCLUDE = Path(__file__).parent / "include"
LAST_OF_CUDA_12 = 74
"""Compute capabilities up to this one are compiled by CUDA 12's NVRTC alone."""
FAMILIES_SINCE = (12, 9)
"""The first CUDA that compiles for families ("sm_120f")."""

# Contraction of products and sums is off: fma happens where the program says so. `minimal` leaves out textures and
# cooperative launches, which no kernel uses and every compilation would read.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--fmad=false", "--generate-line-info", "--minimal",
           f"--include-path={INCLUDE}")  # fmt: skip

_DEPRECATED = "Architectures prior to"
"""Said of every compilation for sm_70, whose user knows."""


def library_for(arch: str) -> nvrtc_library.NvrtcLibrary:
    """The newest installed NVRTC that compiles for `arch` ("sm_80"). Raises MissingDependency with what to install."""
    number = int(arch.removeprefix("sm_").rstrip("af"))
    since = FAMILIES_SINCE if arch.endswith("f") else (0, 0)
    for library in map(nvrtc_library.library, nvrtc_library.MAJORS):
        if library is not None and number in library.architectures and library.version >= since:
            return library
    if number <= LAST_OF_CUDA_12:
        raise MissingDependency("CUDA 12's NVRTC", "cuda12", f"Compiling for {arch}")
    raise MissingDependency("NVRTC", "cuda", f"Compiling for {arch}")


def version(arch: str) -> str:
    """The version of the NVRTC that compiles for `arch`. Raises MissingDependency where it is not installed."""
    return "{}.{}".format(*library_for(arch).version)


@lru_cache(maxsize=1)
def headers_fingerprint() -> str:
    """A hash of the device library: what makes the same generated text give another cubin."""
    return _hash_of(INCLUDE, [*INCLUDE.rglob("*.cuh"), *INCLUDE.rglob("*.h")])


@lru_cache(maxsize=1)
def library_fingerprint() -> str:
    """A hash of the device library and of the generator: what makes the same program give another cubin."""
    here = Path(__file__).parent
    return f"{headers_fingerprint()}{_hash_of(here, list(here.rglob('*.py')))}"


def _hash_of(folder: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@immutable
class CompiledCode:
    """`ptx`: what any later GPU's driver compiles further; of a target with instructions of its own none does.
    `warnings`: the compiler's (mostly none)."""

    cubin: bytes
    ptx: bytes
    warnings: str


def compile_cubin(source: str, arch: str, name: str, lines: Sequence[Sequence[object]]) -> tuple[bytes, str]:
    """The cubin and the warnings of `compile_code`."""
    code = compile_code(source, arch, name, lines)
    return code.cubin, code.warnings


def compile_parts(
    sources: Sequence[str], arch: str, name: str, lines: Sequence[Sequence[object]]
) -> list[CompiledCode]:
    """`compile_code` of several texts in parallel; `lines` are those of each."""
    return abandonable(lambda: in_parallel([partial(compile_code, source, arch, name, lines) for source in sources]))


def compile_code(source: str, arch: str, name: str, lines: Sequence[Sequence[object]]) -> CompiledCode:
    """`source` compiled for `arch`.

    Raises TargetError TS603 with the generated line and the user's behind it; MissingDependency without NVRTC.
    """
    library = library_for(arch)
    try:
        options = [f"--gpu-architecture={arch}", *OPTIONS]
        cubin, ptx, log = abandonable(lambda: library.compile(source, f"{name}.cu", options))
    except nvrtc_library.CompilationFailed as e:
        raise failed(str(e), source, f"{name}.cu", lines, f"NVRTC for {arch}") from e
    return CompiledCode(cubin, ptx, "\n".join(line for line in log.splitlines() if _DEPRECATED not in line))


def failed(log: str, source: str, file: str, lines: Sequence[Sequence[object]], compiler: str) -> TargetError:
    """A compiler's log as a diagnostic: the first error, the generated line, and the user's line it comes from."""
    at = re.search(rf"{re.escape(file)}[:(](\d+)", log)
    message = next(
        (m[1] for m in [re.search(r"error:\s*(.*)", log)] if m),
        log.strip().splitlines()[-1] if log.strip() else "unknown",
    )
    notes: list[Note] = []
    span = NOWHERE
    if at:
        number = int(at[1])
        text = source.splitlines()[number - 1].strip() if number <= len(source.splitlines()) else ""
        notes.append(Note(f"generated line {number}: {text}"))
        origin = [row for row in lines if int(row[0]) <= number]  # type: ignore[call-overload]
        if origin:
            _, path, line = origin[-1]
            span = Span(str(path), int(line), 1, int(line), 1)  # type: ignore[call-overload]
    notes.append(Note(log.strip()[:4000]))
    return TargetError(
        Diagnostic("TS603", f"{compiler} rejects the generated code: {message}", span, notes=tuple(notes))
    )
