"""NVRTC through cuda.core: CUDA C++ text to a cubin, on a machine with or without a GPU."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tessera.errors import NOWHERE, Diagnostic, MissingDependency, Note, Span, TargetError

INCLUDE = Path(__file__).parent / "include"


def _core() -> Any:
    try:
        return importlib.import_module("cuda.core")
    except ImportError as e:
        raise MissingDependency("cuda.core", "cuda", "Compiling for CUDA") from e


@lru_cache(maxsize=1)
def version() -> str:
    """NVRTC's version. Raises MissingDependency where it is not installed."""
    _core()
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as e:  # the bindings raise their own types where the library itself is absent
        raise MissingDependency("NVRTC", "cuda", "Compiling for CUDA") from e
    return f"{major}.{minor}"


@lru_cache(maxsize=1)
def library_fingerprint() -> str:
    """A hash of the device library and of the generator: what makes the same program give another cubin."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*INCLUDE.rglob("*.cuh"), *INCLUDE.rglob("*.h"), *here.glob("*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_cubin(source: str, arch: str, name: str, lines: Sequence[Sequence[object]]) -> bytes:
    """The cubin of `source` for `arch`. Contraction of products and sums is off: fma happens where the program says so.

    Raises TargetError TS603 with the generated line and the user's behind it; MissingDependency without NVRTC.
    """
    core = _core()
    version()
    options = core.ProgramOptions(
        name=f"{name}.cu",
        arch=arch,
        std="c++17",
        device_as_default_execution_space=True,
        fma=False,
        lineinfo=True,
        include_path=str(INCLUDE),
    )
    try:
        return bytes(core.Program(source, "c++", options).compile("cubin").code)
    except Exception as e:  # cuda.core wraps NVRTC's status in types of its own
        raise failed(str(e), source, f"{name}.cu", lines, f"NVRTC for {arch}") from e


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
