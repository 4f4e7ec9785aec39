"""The list of passes, in order, from an analysed function or kernel to a Program that a target compiles.

This is the only such list, with GRAPH_PASSES in graph/passes/__init__.py. Each line says why it stands where it stands;
`TESSERA_DUMP` and `Lowered.text` show the IR between them, and tests run the verifier after each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from tessera.compiler.frontend.result import Analysis
from tessera.compiler.graph.passes import GRAPH_PASSES
from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.launches import kernel_of
from tessera.compiler.ir.printer import print_op
from tessera.compiler.lower.kernel_to_program import kernel_program
from tessera.compiler.lower.schedule_to_tile import schedule_to_tile
from tessera.compiler.schedule.blocks import sizes_key
from tessera.compiler.schedule.graph_to_schedule import graph_to_schedule
from tessera.compiler.targets.base import Artifact, Target
from tessera.compiler.tile.passes.fuse_accumulators import fuse_accumulators
from tessera.compiler.tile.passes.mask_tails import mask_tails
from tessera.compiler.tile.passes.pipeline_loads import pipeline_loads
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.compiler.tile.program import Program
from tessera.errors import NOWHERE, CompileError, Diagnostic, TesseraError

KERNEL_PASSES: tuple[Callable[[Op], Any], ...] = (
    fuse_accumulators,  # first: `acc += mma(a, b)` becomes one chain of products, whose operands are masked below
    mask_tails,  # padding leaves reductions and products before any target looks at the kernel
    remove_dead,  # last: the zeros that accumulators started from
)

DEVICE_PASSES: tuple[Callable[[Op], Any], ...] = (
    pipeline_loads,  # for GPUs alone, and last: what the masks left alone may be copied ahead
)

LEVELS = ("graph", "schedule", "tile", "target")


@dataclass(slots=True)
class Lowered:
    """Every level of one compilation. `graph` and `schedule` are None for a kernel, which starts as Tile IR."""

    program: Program
    graph: Op | None
    schedule: Op | None
    stages: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """(stage, ns) in the order they ran"""

    def ops(self, level: str) -> list[Op]:
        """The functions of one level above the target's. Raises ValueError for an unknown level."""
        if level == "graph":
            return [self.graph] if self.graph else []
        if level == "schedule":
            return [self.schedule] if self.schedule else []
        if level == "tile":
            return list(dict.fromkeys(launch.kernel for launch in self.program.launches))
        raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")

    def text(self, level: str) -> str:
        ops = self.ops(level)
        if not ops:
            return f"// {self.program.name} is a kernel: it starts as Tile IR and has no {level} level\n"
        return "\n".join(print_op(op) for op in ops)


def lower(analysis: Analysis, target: Target, after: Callable[[str, Op], None] | None = None) -> Lowered:
    """Runs all passes. `after(name, op)` is called behind each one (verification in tests, dumps).

    Raises CompileError with every finding when the analysis has errors, and TS900 for a fault of a pass.
    """
    errors = [d for d in analysis.diagnostics if d.severity == "error"]
    if errors or analysis.op is None:
        raise CompileError(errors or list(analysis.undecided))
    try:
        return _lower(analysis, analysis.op, target, after)
    except TesseraError:
        raise
    except Exception as e:  # the cause keeps the passes' frames for a report
        name = analysis.definition.name
        said = f"lowering {name} failed: {type(e).__name__}: {e}"
        raise CompileError(Diagnostic("TS900", said, analysis.definition.span, function=name)) from e


def generate(program: Program, target: Target, *, profile: bool = False, debug: bool = False) -> Artifact:
    """The target's code. Raises TargetError for what it cannot do, and TS900 for a fault of its own."""
    try:
        return target.compile(program, profile=profile, debug=debug)
    except (TesseraError, OSError, MemoryError):  # the machine's own troubles keep their names
        raise
    except Exception as e:  # the cause keeps the target's frames for a report
        said = f"compiling {program.name} for {target.name} failed: {type(e).__name__}: {e}"
        raise CompileError(Diagnostic("TS900", said, program.span or NOWHERE, function=program.name)) from e


def _lower(analysis: Analysis, op: Op, target: Target, after: Callable[[str, Op], None] | None) -> Lowered:
    started = perf_counter_ns()
    stages: list[tuple[str, int]] = []

    def done(stage: str, changed: Op | None = None) -> None:
        nonlocal started
        now = perf_counter_ns()
        stages.append((stage, now - started))
        if changed is not None and after is not None:
            after(stage, changed)
        started = perf_counter_ns()

    def run_all(passes: Sequence[Callable[[Op], Any]], *kernels: Op) -> None:
        for kernel in kernels:
            for run in passes:
                run(kernel)
                done(run.__name__, kernel)

    device_passes = DEVICE_PASSES if target.device == "cuda" else ()
    if op.name == "tile.func":
        kernel = clone(op, {})
        run_all(KERNEL_PASSES, kernel)
        program = kernel_program(kernel, analysis.params, analysis.checks, analysis.structure)
        done("kernel_to_program", kernel)
        run_all(device_passes, kernel)
        return Lowered(program, None, None, stages)
    graph = clone(op, {})  # the analysis is cached and shown as the user wrote it
    for run in GRAPH_PASSES:
        run(graph)
        done(run.__name__, graph)
    run_all(KERNEL_PASSES, *[kernel_of(inner) for inner in graph.walk() if inner.name == "graph.launch"])
    schedule = graph_to_schedule(graph, target.name)
    done("graph_to_schedule", schedule)
    sizes = sizes_key(target.name, target.device)
    program = schedule_to_tile(schedule, analysis.params, analysis.checks, sizes, analysis.structure)
    for launch in program.launches:
        done("schedule_to_tile", launch.kernel)
    authored = [launch.kernel for launch in program.launches if "returns" in launch.kernel.attrs]
    run_all(device_passes, *dict.fromkeys(authored))
    return Lowered(program, graph, schedule, stages)
