"""The CUDA target: Program -> CUDA C++ -> cubin, on any machine; runs where there is a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tessera.compiler.machines import MULTIPROCESSORS, SHARED_LIMITS
from tessera.compiler.targets.base import (
    Artifact,
    Executable,
    GlobalAccess,
    Instruction,
    SpilledValue,
    architecture,
)
from tessera.compiler.targets.cuda import cubin, nvrtc
from tessera.compiler.targets.cuda.call import steps
from tessera.compiler.targets.cuda.emit.emitter import EmitSettings
from tessera.compiler.targets.cuda.emit.phases import COUNTED
from tessera.compiler.targets.cuda.generate import Generated, accesses, generate
from tessera.compiler.targets.cuda.layouts.groups import TensorCores
from tessera.compiler.targets.cuda.parts import SourcePart, divided, files_of
from tessera.compiler.targets.cuda.sass import listing
from tessera.compiler.targets.cuda.sass.spills import spilled_values
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.program import Program
from tessera.language import dtypes

PASSES = ("pipeline_loads", "show_elements", "check_nan")

# CUDA C++ Programming Guide, compute capabilities.
REGISTERS_PER_SM = 65536


def tensor_core_dtypes(arch: int) -> set[dtypes.DType]:
    """The dtypes whose products run on tensor cores. Others are chains of fused multiply-adds, with the same meaning.

    Below sm_89 8-bit floats are multiplied as f16, exactly. f64 is left out where its instructions are slower than
    plain ones.
    """
    out = {dtypes.f16}
    if arch >= 75:
        out |= {dtypes.fp8_e4m3, dtypes.fp8_e5m2, dtypes.int8, dtypes.uint8}
    if arch >= 80:
        out |= {dtypes.bf16, dtypes.tf32}
    if arch in (80, 90, 100):
        out.add(dtypes.f64)
    return out


def passes_for(name: str) -> tuple[str, ...]:
    """The optional passes that an architecture asks for ("sm_120f": those of a family that multiplies by scales)."""
    return ("keep_scales", *PASSES) if name == "sm_120f" else PASSES


def settings_for(arch: int, profile: bool, debug: bool) -> EmitSettings:
    cores = tensor_core_dtypes(arch)
    # wgmma sums 8-bit floats with fewer bits than f32 has; integers and f64 have no warpgroup path.
    warpgroups = cores & {dtypes.f16, dtypes.bf16, dtypes.tf32} if arch == 90 else set[dtypes.DType]()
    tensor_cores = TensorCores(frozenset(cores), 16 if arch >= 75 else 32, arch >= 90)
    return EmitSettings(arch, tensor_cores, SHARED_LIMITS[arch], profile, debug, frozenset(warpgroups))


class CudaTarget:
    """Compiles for one architecture ("sm_80"); `load` needs a device of it."""

    device = "cuda"

    def __init__(self, name: str) -> None:
        self.name = name
        self.arch = architecture(name)
        self.passes = passes_for(name)

    @property
    def fingerprint(self) -> str:
        return f"{self.name} nvrtc-{nvrtc.version(self.name)} library-{nvrtc.library_fingerprint()}"

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        """Raises TargetError (TS602 what it cannot do, TS405 shared memory, TS603 compiler) and MissingDependency."""
        generated = generate(program, settings_for(self.arch, profile, debug))
        parts = divided(generated)
        texts = [part.text(generated.source) for part in parts]
        codes = nvrtc.compile_parts(texts, self.name, program.name, generated.lines)
        figures = {symbol: r for code in codes for symbol, r in cubin.resources(code.cubin).items()}
        resources = {k.name: self._resources(k.name, k.threads, k.shared, figures) for _, k in generated.written}
        for _, k in generated.written:
            if spills := resources[k.name]["spills"]:
                k.notes += [f"{spills} bytes of each thread's registers are spilled to memory", *k.spilled]
        files = files_of(codes, ptx=self.name[-1] not in "af")
        out = artifact(self.name, program, generated, parts, files, resources, profile)
        out.source += "".join(f"// {line}\n" for code in codes for line in code.warnings.splitlines())
        return out

    def _resources(
        self, name: str, threads: int, shared: int, figures: dict[str, cubin.KernelResources]
    ) -> dict[str, Any]:
        r = figures[cxx.kernel_symbol(name)]
        out: dict[str, Any] = {"threads": threads, **asdict(r), "spills": r.stack, "shared": shared + r.shared}
        out["blocks_per_sm"], out["occupancy"], out["occupancy_limiter"] = occupancy(
            self.arch, threads, r.registers, shared + r.shared
        )
        return out

    def load(self, artifact: Artifact) -> Executable:
        from tessera.compiler.targets.cuda.call.device import DeviceExecutable  # slow: 10 ms when only compiling

        return DeviceExecutable(artifact)

    def assembly(self, artifact: Artifact) -> str:
        """The SASS with marks of lines and live registers. Raises MissingDependency without nvdisasm.

        Of several parts, that of the whole text, which is compiled once more: nvdisasm, which takes one file, needs
        more time to start than the compiler for a kernel. The instructions are the same.
        """
        code = artifact.files["code.cubin"]
        if len(artifact.meta["parts"]) > 1:
            source = artifact.files["code.cu"].decode()
            code = nvrtc.compile_code(source, self.name, artifact.name, artifact.meta["lines"]).cubin
        return listing.disassemble_with_registers(code)

    def machine_code(self, artifact: Artifact, assembly: str) -> list[Instruction]:
        """Every SASS instruction with the line of `artifact.source` and the user's line that it comes from."""
        user: dict[int, tuple[str, int]] = {row[0]: (row[1], row[2]) for row in artifact.meta["lines"]}
        kernels = {cxx.kernel_symbol(name): name for name in artifact.resources}
        return [
            Instruction(
                kernels.get(r.kernel, r.kernel),
                r.offset,
                r.text,
                r.line,
                *user.get(r.line, ("", 0)),
                r.live,
                r.text.partition(".")[0].split()[-1] in ("LDL", "STL"),
            )
            for r in cubin.rows(assembly, f"{artifact.name}.cu")
        ]

    def accesses(self, program: Program, sizes: Mapping[str, int]) -> list[GlobalAccess]:
        """The sectors of each access to global memory, by the sizes of the dims that the program leaves open."""
        return accesses(program, settings_for(self.arch, False, False), sizes)

    def spilled(self, artifact: Artifact, assembly: str) -> list[SpilledValue]:
        """The values that lie in local memory because there are too few registers, the largest of each kernel first."""
        return _spilled(artifact, assembly)


def _spilled(artifact: Artifact, assembly: str) -> list[SpilledValue]:
    file = f"{artifact.name}.cu"
    user: dict[int, tuple[str, int]] = {row[0]: (row[1], row[2]) for row in artifact.meta["lines"]}
    source = artifact.source.splitlines()
    names = {cxx.kernel_symbol(name): name for name in artifact.meta["kernels"]}
    return [
        value
        for symbol, code in listing.spilling_kernels(assembly, file).items()
        for name in (names[symbol],)
        for value in spilled_values(name, code, source, artifact.meta["kernels"][name]["values"], user)
    ]


def occupancy(arch: int, threads: int, registers: int, shared: int) -> tuple[int, float, str]:
    """Resident blocks per multiprocessor, their share of its threads, and what bounds them: a static figure."""
    sm = MULTIPROCESSORS[arch]
    per_warp = -(-registers * 32 // 256) * 256
    limits = {
        "registers": REGISTERS_PER_SM // max(1, per_warp * (threads // 32)),
        "shared memory": sm.shared // max(1, shared + (cubin.RESERVED_SHARED if arch >= 80 else 0)),
        "threads": sm.threads // threads,
        "blocks": sm.blocks,
    }
    limiter = min(limits, key=lambda k: limits[k])
    return limits[limiter], round(limits[limiter] * threads / sm.threads, 3), limiter


def artifact(
    target: str,
    program: Program,
    generated: Generated,
    parts: Sequence[SourcePart],
    files: dict[str, bytes],
    resources: dict[str, Any],
    profile: bool,
) -> Artifact:
    """The artefact of either the real target or the emulator."""
    meta = steps.describe(program, generated)
    meta |= {
        "lines": generated.lines,
        "phases": steps.phases(generated) if profile else [],
        "parts": [part.describe() for part in parts],
        "symbols": {k.name: cxx.kernel_symbol(k.name) for _, k in generated.written},
    }
    if len(meta["phases"]) > 1:
        meta["phases_count"] = COUNTED
    if same := generated.same:
        meta["same"] = same
        resources = {**resources, **{name: resources[code] for name, code in same.items()}}
        meta["symbols"] |= {name: meta["symbols"][code] for name, code in same.items()}
    files = {"code.cu": generated.source.encode(), **files}
    files |= {f"constant.{b.id}": b.data for b in program.buffers if b.data is not None}
    return Artifact(target, program.name, generated.source, files, None, resources, meta)
