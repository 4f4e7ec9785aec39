"""The `cpu` target: Programs to native code through LLVM."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tessera.compiler.targets.base import Artifact, Executable
from tessera.compiler.targets.cpu.frame import FIRST, FrameLayout
from tessera.compiler.targets.cpu.kernel.program import ProgramWriter
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.tile.lifetimes import temporaries
from tessera.compiler.tile.program import Program
from tessera.errors import DeviceError, Diagnostic
from tessera.language.dims import prod

VERSION = 16
"""version of the code that this package generates; part of cache keys"""


class CpuTarget:
    """Follows `targets.base.Target`. `level`: a narrower instruction set than the machine's (see isa.LEVELS)."""

    name = "cpu"
    device = "cpu"
    passes: tuple[str, ...] = ("turn_products", "show_elements", "check_nan", "reduce_one_axis", "copies_as_loads")

    def __init__(self, level: str | None = None) -> None:
        self._level = level

    @cached_property
    def isa(self) -> VectorISA:
        jit.binding()
        return isa.host(self._level)

    @property
    def fingerprint(self) -> str:
        llvm = jit.binding()
        version = ".".join(map(str, llvm.llvm_version_info))
        machine = f"{self.isa.name} {self.isa.cpu} {self.isa.features} {self.isa.cached_bytes}"
        return f"cpu-{VERSION} llvm-{version} {machine}"

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        """Raises TargetError TS602 where a Program holds what this target cannot compile."""
        from tessera.compiler.targets.cpu.call.executable import CODE  # slow: as below

        writer = ProgramWriter(program, self.isa, profile, debug)
        text, lines = writer.render()
        objects = jit.compile_objects(text, self.isa, program.name)
        files = {f"code.{i}{CODE}" if i else f"code{CODE}": code for i, code in enumerate(objects)}
        files |= {f"constant{b.id}": b.data or b"" for b in program.buffers if b.role == "constant"}
        meta = writer.meta() | {"frame": _layout(program, writer.frame), "lines": lines}
        return Artifact("cpu", program.name, text, files, None, self._resources(writer), meta)

    def load(self, artifact: Artifact) -> Executable:
        from tessera.compiler.targets.cpu.call.executable import CpuExecutable  # slow: 15 ms when only compiling

        if artifact.target != "cpu" or not self._runs_here(artifact):
            need = artifact.meta.get("isa", artifact.target)
            raise DeviceError(
                Diagnostic("TS605", f"The code of {artifact.name} needs {need}, which this machine does not have.")
            )
        return CpuExecutable(artifact)

    def _runs_here(self, artifact: Artifact) -> bool:
        needed = {f[1:] for f in str(artifact.meta.get("features", "")).split(",") if f.startswith("+")}
        return needed <= {f[1:] for f in isa.host().features.split(",") if f.startswith("+")}

    def assembly(self, artifact: Artifact) -> str:
        """The assembly of an artefact: compiled again from its LLVM IR, which is kept as its source."""
        return jit.assembly(artifact.source, self.isa)

    def _resources(self, writer: ProgramWriter) -> dict[str, Any]:
        return {
            name: {
                "vector_bits": self.isa.bits,
                "isa": self.isa.name,
                "stack_bytes": k.stack_bytes,
                "scratch_bytes": str(k.scratch_bytes),
            }
            for name, k in writer.kernels.values()
        }


def _layout(program: Program, frame: FrameLayout) -> dict[str, Any]:
    """Where a call stores its data: numbers are places among the buffers' slots."""
    bound = [i for i, b in enumerate(program.buffers) if b.role in ("input", "output")]
    known = all(isinstance(d, int) for i in bound for d in program.buffers[i].shape)
    arrays = [_array(program, i) for i in bound] if known else []
    numbers = {b.id: i for i, b in enumerate(program.buffers)}
    temps = [(numbers[t.buffer], str(t.bytes), t.first, t.last) for t in temporaries(program)]
    constants = [(i, f"constant{b.id}") for i, b in enumerate(program.buffers) if b.role == "constant"]
    scalars = [(frame.scalar_slot(i), program.params[i].dtype.name) for i in frame.scalars]
    dims = FIRST + len(frame.buffers) + 2 * len(frame.scalars)
    return {
        "size": frame.size, "bound": bound, "arrays": arrays, "temps": temps, "constants": constants,
        "scalars": scalars, "dims": dims, "free": list(program.free),
    }  # fmt: skip


def _array(program: Program, i: int) -> tuple[int, int, bool]:
    """Bytes and item size of a buffer, and whether the Program writes to it."""
    b = program.buffers[i]
    written = b.role == "output" or b.id in program.outputs or (b.param is not None and program.params[b.param].writes)
    return int(prod(b.shape) * b.dtype.itemsize), b.dtype.itemsize, written  # type: ignore[arg-type]
