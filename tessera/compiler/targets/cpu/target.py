"""The `cpu` target: Programs to native code through LLVM."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tessera.compiler.targets.base import Artifact, Executable, Instruction, SpilledValue
from tessera.compiler.targets.cpu.assembly import listing
from tessera.compiler.targets.cpu.assembly.source import SourceText
from tessera.compiler.targets.cpu.assembly.spills import spilled_values
from tessera.compiler.targets.cpu.frame import FIRST, FrameLayout
from tessera.compiler.targets.cpu.kernel.constants import PackedConstant, pack_constants
from tessera.compiler.targets.cpu.kernel.program import ProgramWriter
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.tile.lifetimes import temporaries
from tessera.compiler.tile.program import Program
from tessera.errors import DeviceError, Diagnostic
from tessera.language.dims import prod

VERSION = 29
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
        machine = f"{self.isa.name} {self.isa.cpu} {self.isa.features} {self.isa.cached_bytes} {self.isa.own_bytes}"
        return f"cpu-{VERSION} llvm-{version} {machine}"

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        """Raises TargetError TS602 where a Program holds what this target cannot compile."""
        from tessera.compiler.targets.cpu.call.executable import CODE  # slow: as below

        program, packed = pack_constants(program, self.isa)
        writer = ProgramWriter(program, self.isa, profile, debug)
        for constant in packed:
            constant.write(writer.module)
        text, lines = writer.render()
        objects = jit.compile_objects(text, self.isa, program.name)
        files = {f"code.{i}{CODE}" if i else f"code{CODE}": code for i, code in enumerate(objects)}
        files |= {f"constant{b.id}": b.data or b"" for b in program.buffers if b.role == "constant"}
        meta = writer.meta() | {
            "frame": _layout(program, writer.frame),
            "lines": lines,
            "packs": _packs(program, packed),
        }
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
        """The assembly of an artefact, with marks of the IR's lines and of what spills move: compiled again from its
        LLVM IR, which is kept as its source."""
        return listing.marked_assembly(artifact.source, self.isa)

    def machine_code(self, artifact: Artifact, assembly: str) -> list[Instruction]:
        """Every instruction with the line of `artifact.source` and the user's line that it comes from."""
        source = SourceText(artifact)
        return [
            Instruction(
                source.kernels.get(name, name), i, one.text, one.line, *source.lines.get(one.line, ("", 0)), None,
                bool(one.spill) and one.of_vector,
            )
            for name, code in listing.functions(assembly)
            for i, one in enumerate(code)
        ]  # fmt: skip

    def spilled(self, artifact: Artifact, assembly: str) -> list[SpilledValue]:
        """The vectors that lie on the stack because there are too few registers, the largest of each kernel first."""
        found = [(name, code) for name, code in listing.functions(assembly) if any(one.spill for one in code)]
        source = SourceText(artifact) if found else None
        return [
            value
            for name, code in found
            if source is not None and name in source.kernels
            for value in spilled_values(source.kernels[name], code, source, name)
        ]

    def code_figures(self, artifact: Artifact, assembly: str) -> dict[str, dict[str, str | int]]:
        """Of each kernel, how many of the vector registers it uses, and the bytes that are spilled for want of more."""
        used: dict[str, set[int]] = {}
        for one in self.machine_code(artifact, assembly):
            used.setdefault(one.kernel, set()).update(listing.registers(one.text))
        spilled = dict.fromkeys(used, 0)
        for value in self.spilled(artifact, assembly):
            spilled[value.kernel] += value.bytes
        return {
            kernel: {"registers": f"{len(some)} of {self.isa.registers}", "spills": spilled[kernel]}
            for kernel, some in used.items()
        }

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


def _packs(program: Program, packed: tuple[PackedConstant, ...]) -> list[tuple[int, int, int, str]]:
    """Of each constant that is packed before: where the packed form's address goes, which of the arrays of a call it is
    made of, its bytes, and the function that packs it."""
    places = {b.id: i for i, b in enumerate(program.buffers)}
    arrays = [b.id for b in program.buffers if b.role in ("input", "output")]
    return [(places[c.buffer], arrays.index(c.source), c.bytes, c.name) for c in packed]


def _array(program: Program, i: int) -> tuple[int, int, bool]:
    """Bytes and item size of a buffer, and whether the Program writes to it."""
    b = program.buffers[i]
    written = b.role == "output" or b.id in program.outputs or (b.param is not None and program.params[b.param].writes)
    return int(prod(b.shape) * b.dtype.itemsize), b.dtype.itemsize, written  # type: ignore[arg-type]
