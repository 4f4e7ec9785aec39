"""LLVM through llvmlite: text to object code, object code into this process."""

from __future__ import annotations

import importlib
import threading
from functools import lru_cache
from typing import Any

from tessera.compiler.targets.cpu.isa import VectorISA
from tessera.errors import Diagnostic, MissingDependency, TargetError

_lock = threading.RLock()  # LLVM's contexts are not thread-safe, and llvmlite uses one


@lru_cache(maxsize=1)
def binding() -> Any:
    """llvmlite.binding, with the native target ready."""
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError as e:
        raise MissingDependency("llvmlite", "all", "The CPU target") from e
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@lru_cache(maxsize=8)
def machine(isa: VectorISA) -> Any:
    llvm = binding()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=isa.cpu, features=isa.features, opt=2, reloc="pic", codemodel="small")


def attributes(isa: VectorISA) -> str:
    return f'"prefer-vector-width"="{isa.bits}" "min-legal-vector-width"="{isa.bits}"'


def compile_object(text: str, isa: VectorISA, name: str) -> bytes:
    """Object code of an LLVM module. Raises TargetError TS603 if LLVM rejects it."""
    llvm = binding()
    with _lock:
        try:
            module = llvm.parse_assembly(text)
            module.name = name
            return bytes(machine(isa).emit_object(module))
        except RuntimeError as e:
            raise TargetError(Diagnostic("TS603", f"LLVM cannot compile the code generated for {name}: {e}")) from e


def assembly(text: str, isa: VectorISA) -> str:
    """The assembly text of an LLVM module."""
    with _lock:
        return str(machine(isa).emit_assembly(binding().parse_assembly(text)))


class Loaded:
    """Object code in this process; it stays mapped as long as this object lives."""

    def __init__(self, code: bytes) -> None:
        llvm = binding()
        with _lock:
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _loader())
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """The address of a function of the object. Raises KeyError if it has none of that name."""
        with _lock:
            found = int(self._engine.get_function_address(symbol))
        if not found:
            raise KeyError(symbol)
        return found


def _loader() -> Any:
    """A target machine that only relocates; MCJIT takes it over, so each engine needs its own."""
    llvm = binding()
    return llvm.Target.from_default_triple().create_target_machine(jit=True)
