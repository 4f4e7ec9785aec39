"""The NVRTC libraries of this machine, called directly: one process may need two, since the one of CUDA 13 no longer
compiles for sm_70, which the one of CUDA 12 does.

Functions and status numbers are those of nvrtc.h (NVRTC documentation, CUDA 12.9 and 13).
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tessera.immutable import immutable

MAJORS = (13, 12)
"""Versions to search for, the preferred one first."""


class CompilationFailed(Exception):
    """The text is wrong, or an option is; the message is the compiler's log."""


@immutable
class NvrtcLibrary:
    """One loaded NVRTC. `architectures`: the compute capabilities that it compiles for, as 80."""

    functions: Any = field(compare=False)
    version: tuple[int, int] = (0, 0)
    architectures: frozenset[int] = frozenset()

    def compile(self, source: str, file: str, options: Sequence[str]) -> tuple[bytes, bytes, str]:
        """The cubin of `source`, called `file` in what is said about it, the PTX that it was made from, and the log:
        warnings, or nothing.

        Threads may compile at once. Raises CompilationFailed.
        """
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), file.encode(), 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            status = self.functions.nvrtcCompileProgram(program, len(options), given)
            log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status:
                raise CompilationFailed(log or self._name(status))
            return self._bytes(program, "CUBIN"), self._bytes(program, "PTX").rstrip(b"\0"), log
        finally:
            self.functions.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, out)
        return out.raw

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self.functions, name)(*arguments):
            raise CompilationFailed(f"{name} failed: {self._name(status)}")

    def _name(self, status: int) -> str:
        self.functions.nvrtcGetErrorString.restype = ctypes.c_char_p
        return self.functions.nvrtcGetErrorString(status).decode()


@lru_cache
def library(major: int) -> NvrtcLibrary | None:
    """This machine's NVRTC of CUDA `major`, loaded at the first use; None where it has none."""
    for path in _candidates(major):
        try:
            functions = ctypes.CDLL(path)
            numbers = ctypes.c_int(), ctypes.c_int()
            if functions.nvrtcVersion(*map(ctypes.byref, numbers)) or numbers[0].value != major:
                continue
            count = ctypes.c_int()
            functions.nvrtcGetNumSupportedArchs(ctypes.byref(count))
            known = (ctypes.c_int * count.value)()
            functions.nvrtcGetSupportedArchs(known)
        except (OSError, AttributeError):
            continue
        return NvrtcLibrary(functions, (major, numbers[1].value), frozenset(known))
    return None


def _candidates(major: int) -> Iterator[str]:
    """Where the library may be: NVIDIA's wheels, what cuda-pathfinder knows (Conda, CUDA_HOME), the loader's path."""
    windows = sys.platform == "win32"
    file = f"nvrtc64_{major}0_0.dll" if windows else f"libnvrtc.so.{major}"
    try:
        folders = [Path(p) for p in importlib.import_module("nvidia").__path__]
    except ImportError:
        folders = []
    for folder in folders:
        for package in (f"cu{major}", "cuda_nvrtc"):
            yield from map(str, sorted((folder / package).glob(f"bin/**/{file}" if windows else f"lib/{file}")))
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        yield pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path or file
    except Exception:  # not installed, or it finds none and raises a type of its own
        pass
    yield file
