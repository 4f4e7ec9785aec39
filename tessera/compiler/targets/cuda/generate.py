"""A whole Program as one CUDA C++ file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.base import GlobalAccess
from tessera.compiler.targets.cuda.emit import contract, control, fold, memory, pipeline, primitives, warpgroups
from tessera.compiler.targets.cuda.emit import tiles as emit_print
from tessera.compiler.targets.cuda.emit import tiles as emit_sort
from tessera.compiler.targets.cuda.emit import tiles as emit_tiles
from tessera.compiler.targets.cuda.emit.emitter import EmitSettings, KernelEmitter, emit_kernel, goes_on, parameters
from tessera.compiler.targets.cuda.emit.phases import Phase
from tessera.compiler.targets.cuda.layouts.groups import LayoutGrouping, dtype_of
from tessera.compiler.targets.cuda.layouts.sectors import SECTOR
from tessera.compiler.targets.cuda.report.accesses import kernel_accesses
from tessera.compiler.targets.cuda.report.notes import notes, shared_layouts, spilled, tight
from tessera.compiler.targets.cuda.report.placement import tiles
from tessera.compiler.targets.cuda.report.registers import Pressure, pressure, too_many
from tessera.compiler.targets.cuda.report.shared_memory import too_large
from tessera.compiler.targets.cuda.report.values import values
from tessera.compiler.targets.cuda.tensor_cores.products import on_warpgroups, warps_for
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products, plan_contraction
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.targets.cuda.write.print_buffer import PrintSite
from tessera.compiler.targets.cuda.write.source import CxxSource
from tessera.compiler.tile.equal import shape_of_code
from tessera.compiler.tile.offsets import aligned_arguments, bounds_of
from tessera.compiler.tile.program import BufferArg, Program
from tessera.errors import Diagnostic, Span, TargetError
from tessera.immutable import mutable
from tessera.language.dims import substitute

# Imported for the handlers that they register.
_WRITERS = (
    control,
    fold,
    memory,
    pipeline,
    primitives,
    emit_print,
    emit_sort,
    emit_tiles,
    warpgroups,
    contract,
)


REGISTER_ELEMENTS = 64
"""Elements of one tile that a thread holds at most; larger tiles are walked in chunks where that is possible."""


USUAL_WARPS = 4
"""Of a tile program whose author says nothing."""


@mutable
class GeneratedKernel:
    """A generated kernel: what a launch must know."""

    name: str
    threads: int
    shared: int
    parameters: list[tuple[str, str]]
    signature: list[str]
    """C++ types of the parameters, for calls from the host"""
    headers: list[str]
    """of the device library, that its text includes"""
    lines: range = range(0)
    """of the file, that hold its text"""
    asserts: list[tuple[str, str, Span]] = field(default_factory=list["tuple[str, str, Span]"])
    """message, extent of the axis that its index leaves, place"""
    prints: list[PrintSite] = field(default_factory=list[PrintSite])
    layouts: dict[str, str] = field(default_factory=dict[str, str])
    tensor_maps: list[dict[str, object]] = field(default_factory=list["dict[str, object]"])
    tiles: list[dict[str, object]] = field(default_factory=list["dict[str, object]"])
    """where each tile is stored, for people"""
    notes: list[str] = field(default_factory=list[str])
    tight: list[str] = field(default_factory=list[str])
    """the notes on registers where no compiler has counted them"""
    spilled: list[str] = field(default_factory=list[str])
    """the notes where registers did not suffice"""
    values: list[dict[str, object]] = field(default_factory=list["dict[str, object]"])
    """what the variables of the source hold, for those that ask what was spilled"""
    phases: list[Phase] = field(default_factory=list[Phase])
    """of profiled code, by their numbers"""
    goes_on: bool = False
    """whether a block runs several programs"""


@mutable
class Generated:
    source: str
    kernels: dict[Op, GeneratedKernel]
    """those that are the same code have one Kernel"""
    lines: list[list[object]]
    headers: dict[str, int]
    """each header with the line that includes it"""

    @property
    def written(self) -> list[tuple[Op, GeneratedKernel]]:
        """Each Kernel once, with the first op that it is."""
        return list({id(k): (op, k) for op, k in reversed(self.kernels.items())}.values())[::-1]

    @property
    def same(self) -> dict[str, str]:
        """The name of each kernel that has the code of another -> the name of that one."""
        own = {k.name for _, k in self.written}
        names = {cxx.identifier(str(op.attrs["sym_name"])): k.name for op, k in self.kernels.items()}
        return {name: code for name, code in names.items() if name not in own}


def generate(program: Program, settings: EmitSettings) -> Generated:
    """Writes every kernel of the program, and once those that are the same code.

    Raises TargetError where an op or size cannot be compiled."""
    body = CxxSource()
    kernels: dict[Op, GeneratedKernel] = {}
    taken: set[str] = set()
    known: dict[Any, GeneratedKernel] = {}
    lines: dict[Any, list[tuple[str, int]]] = {}
    for kernel in dict.fromkeys(launch.kernel for launch in program.launches):
        code = _code(program, kernel)
        if code in known:
            kernels[kernel] = known[code]
            if _lines(kernel) != lines[code]:  # whose the time is, only the launch knows
                known[code].phases = [replace(phase, lines=()) for phase in known[code].phases]
            continue
        name = _unique(cxx.identifier(str(kernel.attrs["sym_name"])), taken)
        body.write()
        begin = len(body.lines)
        e, held = _generate_kernel(program, kernel, name, settings, body)
        kernels[kernel] = known[code] = _describe(e, held, kernel, name, settings)
        lines[code] = _lines(kernel)
        known[code].lines = range(begin + 1, len(body.lines) + 1)
    top = CxxSource()
    top.write(f"// {program.name}: written by Tessera for sm_{settings.arch}.")
    if settings.debug:
        top.write("#define TS_DEBUG")
    headers: dict[str, int] = {}
    for header in sorted({"memory"}.union(*(k.headers for k in known.values()))):
        top.write(f"#include <tessera/{header}.cuh>")
        headers[header] = len(top.lines)
    top.write("namespace ts = tessera;")
    for k in known.values():
        k.lines = range(k.lines.start + len(top.lines), k.lines.stop + len(top.lines))
    top.splice(body)
    return Generated(top.text, kernels, top.line_table(), headers)


def accesses(program: Program, settings: EmitSettings, sizes: Mapping[str, int]) -> list[GlobalAccess]:
    """What each access of each kernel to global memory touches; equal launches of a kernel are told once. `sizes`: of
    the dims that the program leaves open."""
    found: dict[GlobalAccess, None] = {}
    made: dict[Op, KernelEmitter] = {}
    for launch in program.launches:
        kernel = launch.kernel
        name = cxx.identifier(str(kernel.attrs["sym_name"]))
        if kernel not in made:
            made[kernel], _ = _generate_kernel(program, kernel, name, settings, CxxSource())
        starts: dict[Value, int] = {}
        for v, arg in zip(kernel.region.block.args, launch.args, strict=True):
            if isinstance(arg, BufferArg) and isinstance(v.type, ViewType):
                offset = substitute(arg.offset, dict(sizes))
                starts[v] = offset * v.type.dtype.itemsize % SECTOR if isinstance(offset, int) else 0
        found |= dict.fromkeys(kernel_accesses(made[kernel], name, sizes, starts))
    return list(found)


def _unique(name: str, taken: set[str]) -> str:
    n, out = 1, name
    while out in taken:
        n += 1
        out = f"{name}_{n}"
    taken.add(out)
    return out


def author_warps(kernel: Op) -> int | None:
    """The author's num_warps; None: the choice is ours. Raises TargetError TS602 for a number CUDA does not take."""
    warps = kernel.attrs.get("num_warps")
    if warps is None:
        return None
    if not isinstance(warps, int) or warps < 1 or warps > 32 or warps & (warps - 1):
        message = f"num_warps is {warps}; CUDA kernels take 1, 2, 4, 8, 16 or 32"
        raise TargetError(Diagnostic("TS602", message, kernel.span))
    return warps


def _enough_warps(grouping: LayoutGrouping) -> int:
    """So many that a thread holds about sixteen elements of the largest tile. The choice changes no result."""
    per_thread = 32 if any(g.products for g in grouping.groups) else 16
    warps = 4
    while warps < 16 and grouping.elements > 32 * warps * per_thread:
        warps *= 2
    return warps


def _generate_kernel(
    program: Program, kernel: Op, name: str, settings: EmitSettings, body: CxxSource
) -> tuple[KernelEmitter, Pressure]:
    """Writes the kernel with the most stages of pipelined loops that fit into shared memory. Where the author does not
    set the number of warps, there are enough that the tiles fit into registers. Raises TargetError TS405 and TS411."""
    most = max((int(op.attrs["stages"]) for op in kernel.walk() if op.name == "tile.pipeline"), default=1)  # type: ignore[call-overload]
    said = author_warps(kernel)
    warps = said or (USUAL_WARPS if "num_warps" in kernel.attrs else None)
    fewer: tuple[CxxSource, KernelEmitter, Pressure] | None = None
    while True:
        source = CxxSource()
        e = _write_kernel(program, kernel, name, settings, source, most, warps)
        if e.scratch + e.shared_bytes > settings.shared_limit:
            if most == 1 and fewer is not None:  # more warps exchange more
                body.splice(fewer[0])
                return fewer[1:]
            if most == 1:
                raise TargetError(too_large(e))
            most -= 1
            continue
        held = pressure(e)
        if not held.fits and said is not None:
            raise TargetError(too_many(e, held))
        grown = e.threads >= 256 or e.threads < 32 * (warps or 0)  # no more are of use
        if held.fits or grown or "num_warps" not in kernel.attrs:  # a note reports spills
            body.splice(source)
            return e, held
        fewer, warps = (source, e, held), e.threads // 16


def _write_kernel(
    program: Program, kernel: Op, name: str, settings: EmitSettings, source: CxxSource, stages: int, warps: int | None
) -> KernelEmitter:
    grouping = LayoutGrouping(kernel)
    grouping.stream(REGISTER_ELEMENTS * 32 * (warps or 8))
    bounds = bounds_of(program, kernel)
    plans = plan_contraction(kernel, bounds, settings.warpgroup_dtypes, warps)
    taken = next((plan.warps for plan in plans.values() if isinstance(plan, Products)), None)
    products = on_warpgroups(kernel, grouping, settings.warpgroup_dtypes)
    if products:
        taken = warps_for(products, grouping, warps)
    threads = 32 * (taken or warps or _enough_warps(grouping))
    return emit_kernel(
        kernel, name, grouping, threads, settings, source, _aliases(program, kernel), bounds, plans, stages, products
    )


def _code(program: Program, kernel: Op) -> tuple[Any, ...]:
    """Equal for kernels whose code is the same, with what it takes for granted of their arguments."""
    numbers = {a: i for i, a in enumerate(kernel.region.block.args)}
    aliases = tuple(numbers[a] for a in _aliases(program, kernel).values())
    aligned = tuple(sorted(numbers[a] for a in aligned_arguments(program, kernel)))
    return shape_of_code(kernel), aliases, aligned


def _lines(kernel: Op) -> list[tuple[str, int]]:
    return [(op.span.file, op.span.line) for op in kernel.walk()]


def _aliases(program: Program, kernel: Op) -> dict[Value, Value]:
    """Arguments that some launch binds to one buffer, each mapped to the first of them."""
    args = kernel.region.block.args
    parent = {a: a for a in args}

    def find(a: Value) -> Value:
        while parent[a] is not a:
            a = parent[a]
        return a

    for launch in program.launches:
        if launch.kernel is not kernel:
            continue
        first: dict[int, Value] = {}
        for value, arg in zip(args, launch.args, strict=True):
            if isinstance(arg, BufferArg):
                a, b = find(first.setdefault(arg.buffer, value)), find(value)
                if a is not b:
                    parent[b] = a
    return {a: find(a) for a in args}


def _describe(e: KernelEmitter, held: Pressure, kernel: Op, name: str, settings: EmitSettings) -> GeneratedKernel:
    signature: list[str] = []
    for arg in kernel.region.block.args:
        if isinstance(arg.type, ViewType):
            signature.append(f"{cxx.type_name(arg.type.dtype)}*")
        else:
            assert isinstance(arg.type, TileType)
            signature.append(cxx.type_name(dtype_of(arg)))
    wanted = parameters(kernel, settings)
    kinds = {"dim": "ts::idx", "faults": "ts::Faults*", "records": "ts::Records*", "prints": "ts::u8*"}
    signature += [kinds[kind] for kind, _ in wanted[len(signature) :]]
    wanted += [("tensor_map", str(i)) for i in range(len(e.maps))]
    signature += ["ts::TensorMap"] * len(e.maps)
    layouts = {g.name: g.layout.spelling for g in e.grouping.groups if g.layout is not None} | shared_layouts(e)
    maps = [tensor.describe() for tensor in e.maps]
    size = e.scratch + e.shared_bytes
    headers = ["memory", *sorted(e.headers - {"memory"})]
    made = GeneratedKernel(name, e.block_threads, size, wanted, signature, headers)
    made.asserts, made.prints, made.layouts, made.tensor_maps = e.asserts, e.prints, layouts, maps
    made.tiles, made.notes, made.tight, made.spilled = tiles(e), notes(e), tight(held, kernel), spilled(held, kernel)
    made.values = values(e)
    made.goes_on, made.phases = goes_on(e), e.phases
    return made
