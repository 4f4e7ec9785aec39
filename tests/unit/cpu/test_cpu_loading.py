"""Object code runs wherever there is memory for it, and goes with the object that holds it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.errors import TargetError

SCATTERED = """
import ctypes, sys
import numpy as np
import tessera as ts
from tessera import Tensor
from tessera.compiler.targets.cpu.llvm import jit

codes, load = [], jit.Loaded.__init__
def noting(self, *objects, imports=None):
    codes.append((objects, imports))
    load(self, *objects, imports=imports)
jit.Loaded.__init__ = noting

@ts.function
def f(x: Tensor["N"]):
    return ts.softmax(ts.exp(x) * 1.2345 + 0.321)

f(np.linspace(-1, 1, 64, dtype=np.float32))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE, NONE, PRIVATE_ANONYMOUS_NORESERVE = 4096, 0, 0x4022
reserve = lambda size: libc.mmap(None, size, NONE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0)
blocks = [reserve(1 << 32) for _ in range(4)]
for pages in (4096, 1024, 256, 64, 16, 8, 4, 2, 1):  # what is free above them goes
    while reserve(PAGE * pages) > blocks[-1]:
        pass
for block in blocks:  # and gaps of a few pages come, 4 GiB apart
    libc.munmap(block + (1 << 31), PAGE * int(sys.argv[1]))
kept = []
for objects, imports in codes * 4:
    kept.append(jit.Loaded.__new__(jit.Loaded))
    load(kept[-1], *objects, imports=imports)
    for symbol in ("run", "fast", "tessera_worker"):
        try:
            kept[-1].address(symbol)
        except KeyError:
            pass
print("loaded", len(kept))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="lays out memory by Linux's mmap")
@pytest.mark.parametrize("pages", [1, 2, 8])
def test_code_loads_where_free_memory_lies_far_apart(pages: int, tmp_path: Path) -> None:
    program = tmp_path / "scattered.py"
    program.write_text(SCATTERED, encoding="utf-8")
    ran = subprocess.run([sys.executable, program, str(pages)], capture_output=True, text=True, timeout=120)
    assert ran.stdout.startswith("loaded"), ran.stderr[-2000:]


ANSWER = "define i64 @answer() {\n  ret i64 42\n}\n"


def test_a_symbol_that_is_not_there() -> None:
    code = jit.Loaded(jit.compile_object(ANSWER, isa.host(), "answer"))
    assert code.address("answer")
    with pytest.raises(KeyError):
        code.address("question")


@pytest.mark.usefixtures("young")
@pytest.mark.skipif(sys.platform != "linux", reason="counts mappings in /proc")
def test_code_is_unmapped_with_what_holds_it() -> None:
    code = jit.compile_object(ANSWER, isa.host(), "answer")

    def mappings() -> int:
        with open("/proc/self/maps", encoding="ascii") as f:
            return sum("x" in line.split()[1] for line in f)

    held = [jit.Loaded(code) for _ in range(50)]
    assert all(c.address("answer") for c in held)
    full = mappings()
    held.clear()
    gc.collect()
    assert mappings() < full


PASSES = """
import llvmlite.binding as llvm
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.errors import TargetError

llvm.set_option("tessera", "-debug-pass=Structure")
jit.compile_object("define i64 @answer() {\\n  ret i64 42\\n}\\n", isa.host(), "answer")
"""


def test_the_time_for_a_kernel_grows_with_its_length() -> None:
    """Four times as many stores, two loops each, took LLVM sixteen times as long, 28 seconds for 400, by one pass."""
    done = subprocess.run([sys.executable, "-c", PASSES], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Instruction Selection" in done.stderr, done.stderr[-1000:]
    assert "Loop Strength Reduction" not in done.stderr


COMPILED_IN_LITTLE = """
import resource
import numpy as np
import tessera as ts

@ts.function
def f(x: ts.Tensor["N", ts.f32]):
    return x + 1

@ts.function
def g(x: ts.Tensor["N", ts.f32]):
    return ts.softmax(x)

x = np.ones(100, np.float32)
f(x)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
old = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), old[1]))
try:
    g(x)
except ts.TesseraError as error:
    print(error.code)
assert (f(x) == 2).all()
resource.setrlimit(resource.RLIMIT_AS, old)
assert abs(g(x).sum() - 1) < 1e-5
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is known what a process has and may have")
def test_a_compile_without_the_memory_for_it_is_refused(tmp_path: Path) -> None:
    """LLVM ends the process where it gets no memory."""
    file = tmp_path / "little.py"
    file.write_text(COMPILED_IN_LITTLE)
    environment = {**os.environ, "TESSERA_CACHE_SIZE": "0"}
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode, done.stdout) == (0, "TS603\n"), done.stderr[-1000:]


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is known what a process has and may have")
def test_threads_that_help_to_compile_take_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their stacks, and what the C library sets aside for each: LLVM has that much less."""
    import resource  # optional: systems other than Windows

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda what: (used + (96 << 20), resource.RLIM_INFINITY))
    jit._require_memory(1000, 0, "f")
    with pytest.raises(TargetError, match=r"TS603[^$]*f cannot be compiled: it takes LLVM up to 104 MiB"):
        jit._require_memory(1000, 1, "f")
