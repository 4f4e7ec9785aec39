"""LLVM through llvmlite: text to object code, object code into this process."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tessera import knobs
from tessera.compiler.parallel import in_parallel
from tessera.compiler.phases import phase
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.parts import divided
from tessera.errors import Diagnostic, MissingDependency, TargetError
from tessera.once import once
from tessera.signals import abandonable

_lock = threading.RLock()  # of linkers, and of settings of the process


@once
def binding() -> Any:
    """llvmlite.binding, with the native target ready."""
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError as e:
        raise MissingDependency("llvmlite", "all", "The CPU target") from e
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _machine(isa: VectorISA) -> Any:
    """One for one compilation. Level 1 writes the instructions that level 2 does, but does not order them again once
    they have registers: that is a tenth of LLVM's time, and processors reorder anyway."""
    target = binding().Target.from_default_triple()
    return target.create_target_machine(cpu=isa.cpu, features=isa.features, opt=1, reloc="pic", codemodel="small")


def attributes(isa: VectorISA) -> str:
    return f'"prefer-vector-width"="{isa.bits}" "min-legal-vector-width"="{isa.bits}"'


class _StrengthReduction:
    """LLVM's pass that rewrites the counters of loops: `with` it, the pass is left out.

    It takes time in proportion to the square of the number of loops (a minute for 800 of them), and addresses are
    written here as they are wanted: no kernel of the benchmarks is faster with it. The setting is that of the whole
    process, so the last compilation that ends undoes it for others that use LLVM there.
    """

    def __init__(self) -> None:
        self._compilations = 0

    def __enter__(self) -> None:
        with _lock:
            self._compilations += 1
            if self._compilations == 1:
                binding().set_option("tessera", "-disable-lsr")

    def __exit__(self, *_: object) -> None:
        with _lock:
            self._compilations -= 1
            if not self._compilations:
                binding().set_option("tessera", "-disable-lsr=false")

    def after_fork(self) -> None:
        """In the child: the threads that compiled are not there, and would never end."""
        if self._compilations:
            self._compilations = 1
            self.__exit__()


_without_strength_reduction = _StrengthReduction()


def compile_object(text: str, isa: VectorISA, name: str) -> bytes:
    """Object code of an LLVM module. Raises TargetError TS603 if LLVM rejects it or lacks the memory for it."""
    return _compiled([text], isa, name)[0]


def compile_objects(text: str, isa: VectorISA, name: str) -> list[bytes]:
    """The same as several objects if the text is long; they are compiled in parallel. Raises TargetError TS603."""
    return _compiled(divided(text), isa, name)


def _compiled(texts: list[str], isa: VectorISA, name: str) -> list[bytes]:
    _require_memory(sum(map(len, texts)), min(len(texts), knobs.num_threads()) - 1, name)
    try:
        with phase("LLVM"):
            return abandonable(lambda: in_parallel([partial(_object, text, isa, name) for text in texts]))
    except RuntimeError as e:
        raise TargetError(Diagnostic("TS603", f"LLVM cannot compile the code generated for {name}: {e}")) from e


def _object(text: str, isa: VectorISA, name: str) -> bytes:
    llvm = binding()
    with _without_strength_reduction:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.name = name
        return _emitted(_machine(isa), module)


@once
def _emit() -> Any:
    """LLVM's function that writes object code, without llvmlite's lock, which one thread at a time holds.

    The lock guards what modules of one context share. Each compilation has a context and a machine of its own.
    """
    library = importlib.import_module("llvmlite.binding.ffi").lib
    locked = library.LLVMPY_TargetMachineEmitToMemory
    emit = ctypes.CDLL(library._name, handle=library._handle).LLVMPY_TargetMachineEmitToMemory
    emit.argtypes, emit.restype = locked.argtypes, locked.restype
    return emit


def _emitted(machine: Any, module: Any) -> bytes:
    """The object code of a module that no other thread uses. Raises RuntimeError."""
    ffi = importlib.import_module("llvmlite.binding.ffi")
    with ffi.OutputString() as error:
        buffer = _emit()(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _require_memory(size: int, helpers: int, name: str) -> None:
    """Raises TargetError TS603 where the process may not have what LLVM takes for a text of `size` characters: LLVM
    would end the process. Measured: up to 57 bytes a character, after a few megabytes for its tables, and addresses for
    each thread that helps: its stack, and what the C library sets aside for its memory."""
    if sys.platform != "linux":
        return
    import resource  # optional: systems other than Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    left = limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    need = LEAST_MEMORY + MEMORY_FOR_A_CHARACTER * size + MEMORY_FOR_A_HELPER * helpers
    if left < need:
        raise TargetError(
            Diagnostic(
                "TS603",
                f"{name} cannot be compiled: it takes LLVM up to {need >> 20} MiB of memory, and this process may "
                f"have {max(left, 0) >> 20} MiB more (its limit on addresses, `ulimit -v`, is {limit >> 20} MiB)",
            )
        )


LEAST_MEMORY = 32 << 20
MEMORY_FOR_A_CHARACTER = 64
MEMORY_FOR_A_HELPER = 72 << 20
"""bytes; see _require_memory"""


def parsed(text: str) -> Any:
    """An LLVM module, verified."""
    llvm = binding()
    return llvm.parse_assembly(text, llvm.create_context())


def assembly(module: Any, isa: VectorISA) -> str:
    """The assembly text of an LLVM module, with LLVM's comments."""
    machine = _machine(isa)
    machine.set_asm_verbosity(True)
    with _without_strength_reduction:
        return str(machine.emit_assembly(module))


class Loaded:
    """Object code in this process, of one program; it stays mapped as long as this object lives. `imports`: addresses
    of symbols that are found in no library of the process.

    Linked by JITLink, which maps all sections of an object in one piece. The older MCJIT maps each by itself, and where
    memory is in use they may be further apart than the code's 32-bit distances reach: it ends the process then.
    """

    def __init__(self, *objects: bytes, imports: Mapping[str, int] | None = None) -> None:
        self._name = f"code_{next(_numbers)}"
        builder = binding().JITLibraryBuilder().add_current_process()
        for code in objects:
            builder.add_object_img(code)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        with _lock:
            self._linker = _linkers.next()
            self._library = builder.link(self._linker, self._name)
        self._found: dict[str, Any] = {}

    def address(self, symbol: str) -> int:
        """The address of a function of the object. Raises KeyError if it has none of that name."""
        with _lock:
            if symbol not in self._found:
                try:
                    self._found[symbol] = self._linker.lookup(self._name, symbol)
                except RuntimeError as e:
                    raise KeyError(symbol) from e
            return int(self._found[symbol][symbol])


_numbers = itertools.count()

LIBRARIES = 64
"""libraries of one linker"""


class _Linkers:
    """Libraries have names of their own and are freed with the objects that hold them. A linker keeps some 9 KiB of
    each until it is freed itself, so another linker replaces it after a number of libraries; it is freed with the last.
    """

    def __init__(self) -> None:
        self._now: Any = None
        self._left = 0

    def next(self) -> Any:
        """The linker for one more library. Called with the lock held."""
        if not self._left:
            llvm = binding()
            loader = llvm.Target.from_default_triple().create_target_machine(jit=True)
            self._now = llvm.create_lljit_compiler(loader, use_jit_link=True, suppress_errors=True)
            self._left = LIBRARIES
        self._left -= 1
        return self._now


_linkers = _Linkers()

_held_by_fork: list[Any] = []


def _before_fork() -> None:
    """Waits until no other thread changes a linker or is in llvmlite: the child would find their locks held."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    for lock in (_lock, *([ffi.lib._lock._lock] if ffi is not None else [])):  # in the order of their use
        lock.acquire()
        _held_by_fork.append(lock)


def _after_fork() -> None:
    while _held_by_fork:
        _held_by_fork.pop().release()


def _after_fork_in_child() -> None:
    _after_fork()
    _without_strength_reduction.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
