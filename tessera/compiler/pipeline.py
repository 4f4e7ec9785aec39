"""The list of all passes, in order, from what a user wrote to a Program that a target generates code for.

Each line says why it stands where it stands. Passes from outside the package join it (`extensions.py`). The compiler,
the editor and the predictions run the same `to_graph`, `to_schedule` and `to_program`; none of them loads a target.
`TESSERA_DUMP` shows the IR behind each pass, `Lowered.text` the levels, and tests run the verifier after each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import tessera.compiler.schedule.dialect  # noqa: F401  # pyright: ignore[reportUnusedImport]: `verify` asks it
from tessera.compiler import extensions
from tessera.compiler.extensions import Pass, Stage
from tessera.compiler.graph.operator import kernel_for
from tessera.compiler.graph.passes.canonicalize import canonicalize
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.graph.passes.drop_policy_casts import drop_policy_casts
from tessera.compiler.graph.passes.eliminate_common import eliminate_common
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.graph.passes.for_to_while import for_to_while
from tessera.compiler.graph.passes.hold_finite import hold_finite
from tessera.compiler.graph.passes.keep_narrow import keep_narrow
from tessera.compiler.graph.passes.recognize import recognize
from tessera.compiler.graph.passes.share_walks import share_walks
from tessera.compiler.ir.core import Op, RenamedCopy, clone, original_of
from tessera.compiler.ir.launches import kernel_of
from tessera.compiler.ir.readable import readable
from tessera.compiler.ir.verifier import verify
from tessera.compiler.layers.fold import Folded, fold
from tessera.compiler.layers.unfold import unfold
from tessera.compiler.lower.kernel_to_program import kernel_program
from tessera.compiler.machines import sizes_of
from tessera.compiler.phases import phase, spend
from tessera.compiler.tile.bands.choose import run_in_bands
from tessera.compiler.tile.passes.copies_as_loads import copies_ahead, copies_as_loads
from tessera.compiler.tile.passes.debug import check_indices, check_nan, show_elements
from tessera.compiler.tile.passes.fuse_accumulators import fuse_accumulators
from tessera.compiler.tile.passes.hoist_indices import hoist_indices
from tessera.compiler.tile.passes.keep_inside import keep_inside, needs_keeping
from tessera.compiler.tile.passes.keep_scales import keep_scales
from tessera.compiler.tile.passes.mask_tails import mask_tails
from tessera.compiler.tile.passes.pipeline_loads import pipeline_loads
from tessera.compiler.tile.passes.place_barriers import place_barriers
from tessera.compiler.tile.passes.reduce_one_axis import reduce_one_axis, reduces_several_axes
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.compiler.tile.passes.separate_batches import has_batches, separate_batches
from tessera.compiler.tile.passes.turn_products import turn_products, turns_products
from tessera.compiler.tile.program import Branch, Launch, Loop, Program, Step
from tessera.compiler.unit import Unit
from tessera.deferred import deferred
from tessera.errors import NOWHERE, CompileError, Diagnostic, Span, TargetError, TesseraError
from tessera.signals import raised_by_handler

if TYPE_CHECKING:
    from tessera.compiler.targets.base import Artifact, GlobalAccess, Target

PASSES: tuple[Pass, ...] = (
    # first: a policy is about the operators that the user wrote, not about steps of their decompositions
    Pass("hold_finite", "graph", hold_finite),
    # on what the user wrote: it folds what the decompositions would only multiply
    Pass("canonicalize", "graph", canonicalize),
    # attention in the operators that the user wrote: before decomposition, in which derivatives have kept them apart
    Pass("recognize", "graph", recognize),
    # before decomposition, which then also reaches into the loops it makes
    Pass("for_to_while", "graph", for_to_while),
    # softmax, layer_norm ... become the structural kinds that lowering knows
    Pass("decompose", "graph", partial(decompose, kernels=True)),
    # where all types say which policies they have, what only said so goes
    Pass("drop_policy_casts", "graph", drop_policy_casts),
    # a cache of keys in bf16 is not copied to f32 for each token
    Pass("keep_narrow", "graph", keep_narrow),
    # decompositions leave reshapes of reshapes and casts to the same dtype
    Pass("canonicalize_again", "graph", canonicalize),
    # after canonical forms, so that equal things look equal: one max(x) serves two softmaxes
    Pass("eliminate_common", "graph", eliminate_common),
    # the others leave unused ops behind
    Pass("eliminate_dead", "graph", eliminate_dead),
    # last: eliminating common ops after it would undo it
    Pass("rematerialize", "graph", lambda func: _fit(func)),
    # first: every later pass and target may rely on it that shared tiles are synchronised
    Pass("place_barriers", "kernel", place_barriers),
    # `acc += mma(a, b)` becomes one chain of products, whose operands are masked below
    Pass("fuse_accumulators", "kernel", fuse_accumulators),
    # where an index is computed first does not tell which elements exist
    Pass("hoist_indices", "kernel", hoist_indices),
    # padding leaves reductions and products before any target looks at the kernel
    Pass("mask_tails", "kernel", mask_tails),
    # behind the masks, which batches share, and where products have their accumulators
    Pass("separate_batches", "kernel", separate_batches, needed=has_batches),
    # last: the zeros that accumulators started from
    Pass("remove_dead", "kernel", remove_dead),
    # for GPUs whose products take scales; before loads are copied ahead, which then bring the small elements
    Pass("keep_scales", "tile", keep_scales, optional=True),
    # for targets whose lanes run along the columns of products; behind the masks, which are turned as well
    Pass("turn_products", "tile", turn_products, optional=True, needed=turns_products),
    # for GPUs: what the masks left alone may be copied ahead
    Pass("pipeline_loads", "tile", pipeline_loads, optional=True),
    # for targets that do not watch values themselves: asserts tell of elements, stores of NaN
    Pass("show_elements", "target", show_elements, optional=True, debug=True),
    Pass("check_nan", "target", check_nan, optional=True, debug=True),
    # before indices are moved: messages show what the author computed
    Pass("check_indices", "target", check_indices, debug=True),
    # on every target: no window at a computed place leaves its array
    Pass("keep_inside", "target", keep_inside, needed=needs_keeping),
    # for targets whose code reduces along one axis
    Pass("reduce_one_axis", "target", reduce_one_axis, optional=True, needed=reduces_several_axes),
    # for targets without asynchronous copies
    Pass("copies_as_loads", "target", copies_as_loads, optional=True, needed=copies_ahead),
)

LEVELS = ("graph", "schedule", "tile", "target")

After: TypeAlias = Callable[[str, Op], None]
"""(pass, op behind it)"""


def passes(stage: Stage, wanted: Iterable[str] = (), debug: bool = False) -> Iterator[Pass]:
    """The passes of one stage, in order, those from outside in their places. `wanted`: optional ones that run."""
    own = [p for p in PASSES if p.stage == stage]
    for p in [p for p in extensions.PASSES.values() if p.stage == stage]:
        at = next((i for i, other in enumerate(own) if other.name == p.after), len(own) - 1)
        own.insert(at + 1, p)
    for p in own:
        if (debug or not p.debug) and (not p.optional or p.name in wanted):
            yield p


def demand_place(name: str, stage: Stage, after: str) -> None:
    """Raises CompileError TS614 where a pass from outside takes a name of the list, or follows what is not in it."""
    known = [p.name for p in (*PASSES, *extensions.PASSES.values()) if p.stage == stage and p.name != name]
    why = ""
    if name in {p.name for p in PASSES}:
        why = "the compiler has a pass of that name"
    elif after and after not in known:
        why = f"it stands after {after!r}, and the stage {stage!r} has {', '.join(known)}"
    if why:
        raise CompileError(Diagnostic("TS614", f"pass {name!r} cannot be registered: {why}"))


class Lowered:
    """Every level of one compilation. `graph` and `schedule` are None for a kernel, which starts as Tile IR.

    `above` makes these two; where equal layers were lowered once, not before somebody looks at them."""

    def __init__(
        self, program: Program, stages: list[tuple[str, int]], above: Callable[[], tuple[Op | None, Op | None]]
    ):
        self.program, self.stages, self._above = program, stages, above
        """(pass, ns) in the order they ran"""

    @cached_property
    def _levels(self) -> tuple[Op | None, Op | None]:
        return self._above()

    @property
    def graph(self) -> Op | None:
        return self._levels[0]

    @property
    def schedule(self) -> Op | None:
        return self._levels[1]

    def ops(self, level: str) -> list[Op]:
        """The functions of one level above the target's. Raises ValueError for an unknown level."""
        if level == "graph":
            return [self.graph] if self.graph else []
        if level == "schedule":
            return [self.schedule] if self.schedule else []
        if level == "tile":
            return list(dict.fromkeys(launch.kernel for launch in self.program.launches))
        raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")

    def text(self, level: str, generic: bool = False) -> str:
        """One level above the target's, for people; `generic`: as MLIR's generic text. Raises ValueError as `ops`."""
        ops = self.ops(level)
        if not ops:
            return f"// {self.program.name} is a kernel: it starts as Tile IR and has no {level} level\n"
        return "\n".join(readable(op, generic).text for op in ops)


class Run:
    """One way through the list: times every pass and shows what it left."""

    def __init__(self, after: After | None = None) -> None:
        self.stages: list[tuple[str, int]] = []
        self.after = after
        self.last = perf_counter_ns()

    def done(self, name: str, changed: Op) -> None:
        self.stages.append((name, perf_counter_ns() - self.last))
        spend(*self.stages[-1])
        if self.after is not None:
            self.after(name, changed)
        self.last = perf_counter_ns()

    def all(self, passes: Iterable[Pass], op: Op) -> Op:
        for p in passes:
            self.one(p, op)
        return op

    def one(self, p: Pass, op: Op) -> Op:
        """One pass, and the op again. Raises CompileError TS615 for the faults of a pass from outside."""
        if p.version:
            _from_outside(f"pass {p.name}", op.name, op.span, lambda: op if p.run(op) in (None, op) else None)
        else:
            p.run(op)
        self.done(p.name, op)
        return op


def to_graph(unit: Unit, run: Run | None = None, own: bool = False) -> Op:
    """The `graph.func` of a function behind its passes; the unit stays as it was, unless its function is the caller's
    `own`, which nobody looks at later. Raises CompileError."""
    run = run or Run()
    graph = run.all(passes("graph"), unit.op if own else clone(unit.op, {}))
    for launch in [inner for inner in graph.walk() if inner.name == "graph.launch"]:
        run.all(passes("kernel"), kernel_of(launch))
    return graph


def _fit(func: Op) -> None:
    from tessera.compiler.lower.memory_limit import fit  # slow: 10 ms for the first kernel, with the two below

    fit(func, to_schedule)


def to_schedule(graph: Op, target: str, run: Run | None = None, own: bool = False) -> Op:
    """The groups of operators that become kernels, of what `to_graph` gave, which stays as it was, unless it is the
    caller's `own`. Raises CompileError, TargetError."""
    from tessera.compiler.schedule.graph_to_schedule import graph_to_schedule  # slow: as above

    name = str(graph.attrs.get("scheduler", ""))
    graph = _with_launches(graph, target, run, own)
    if not name:
        schedule = graph_to_schedule(graph, target, own=own)
    elif (found := extensions.SCHEDULERS.get(name)) is None:
        known = f"there are {', '.join(extensions.SCHEDULERS)}" if extensions.SCHEDULERS else "none is registered here"
        message = f"there is no scheduler {name!r}: {known}. A program registers one with ts.scheduler.register."
        raise CompileError(Diagnostic("TS614", message, graph.span))
    else:
        schedule = _from_outside(
            f"scheduler {name}", "schedule.func", graph.span, lambda: found.schedule(clone(graph, {}), target)
        )
    if run is not None:
        run.done(name or "graph_to_schedule", schedule)
    return schedule


def _with_launches(graph: Op, target: str, run: Run | None, own: bool) -> Op:
    """The function with launches in the place of operators that kernels written in tiles compute. Not before: Graph IR
    names the operator, as its author does."""
    if not any(kernel_for(op) for op in graph.walk()):
        return graph
    graph, run = graph if own else clone(graph, {}), run or Run()
    launch, even = deferred("compiler.frontend.tile_kernels").launch, sizes_of(target).any_rows
    if even:
        share_walks(graph)
        run.done("share_walks", graph)
    found = [(op, kernel) for op in graph.walk() if (kernel := kernel_for(op)) is not None]
    made = [new for op, kernel in found for new in launch(op, kernel, kernel.even if even else {})]
    run.done("tile_kernels", graph)
    for op in made:
        run.all(passes("kernel"), kernel_of(op))
    return graph


def to_program(unit: Unit, target: str, run: Run | None = None, whole: bool = False) -> Lowered:
    """All levels, as far as they are the same on every target of a kind. Raises CompileError, TargetError.

    Of many equal layers a few are lowered, unless the `whole` function is to be."""
    run = run or Run()
    if unit.is_kernel:
        kernel = run.all(passes("kernel"), clone(unit.op, {}))
        program = kernel_program(kernel, unit.params, unit.checks, unit.structure)
        run.done("kernel_to_program", kernel)
        return Lowered(program, run.stages, lambda: (None, None))
    folds = [] if whole or extensions.PASSES else _folds(unit.op, run)
    few = replace(unit, op=folds[-1].func) if folds else unit
    program, graph, schedule = _lowered(few, target, run, own=bool(folds))
    above = lambda: (graph, schedule)  # noqa: E731
    if folds:
        program = _unfolded(program, folds)
        run.done("unfold", unit.op)
        if program is None:
            return to_program(unit, target, run, whole=True)
        above = lambda: _lowered(unit, target, Run())[1:]  # noqa: E731
    if band := sizes_of(target).band:
        program = run_in_bands(program, band)
    return Lowered(program, run.stages, above)


def _folds(func: Op, run: Run) -> list[Folded]:
    """The function with fewer layers, and with fewer of the next stack of layers, and so on."""
    found: list[Folded] = []
    while (folded := fold(found[-1].func if found else func)) is not None:
        found.append(folded)
    run.done("fold", func)
    return found


def _unfolded(program: Program, folds: Sequence[Folded]) -> Program | None:
    for folded in reversed(folds):
        found = unfold(program, folded)
        if found is None:
            return None
        program = found
    return program


def _lowered(unit: Unit, target: str, run: Run, own: bool = False) -> tuple[Program, Op, Op]:
    from tessera.compiler.lower.schedule_to_tile import schedule_to_tile  # slow: as above

    graph = to_graph(unit, run, own)
    schedule = to_schedule(graph, target, run, own)
    program = schedule_to_tile(schedule, unit.params, unit.checks, target, unit.structure)
    for launch in program.launches:
        run.done("schedule_to_tile", launch.kernel)
    return program, graph, schedule


def lower(unit: Unit, target: Target, after: After | None = None) -> Lowered:
    """All levels for one target. `after(name, op)` is called behind each pass (verification in tests, dumps).

    Raises CompileError, TargetError, TS111 for a chain of too many operators, and TS900 for a fault of a pass.
    """
    run = Run(after)
    try:
        lowered = to_program(unit, target.name, run, whole=after is not None)
        chosen = list(passes("tile", target.passes))
        lowered.program = with_kernels(lowered.program, lambda kernel: run.all(chosen, kernel), _by_name(chosen))
    except TesseraError:
        raise
    except Exception as e:  # the cause keeps the passes' frames for a report
        raise _failure(e, f"lowering {unit.name}", unit.name, unit.span) from e
    return lowered


def generate(
    program: Program, target: Target, *, profile: bool = False, debug: bool = False, after: After | None = None
) -> Artifact:
    """The target's code, behind the passes that it asks for. `program` stays as it was.

    Raises TargetError for what it cannot do, TS111 for a chain of too many operators, and TS900 for a fault of its own.
    """
    try:
        with phase("code"):
            return target.compile(_finished(program, target, debug, Run(after)), profile=profile, debug=debug)
    except (TesseraError, OSError, MemoryError):  # the machine's own troubles keep their names
        raise
    except Exception as e:  # the cause keeps the target's frames for a report
        doing = f"compiling {program.name} for {target.name}"
        raise _failure(e, doing, program.name, program.span or NOWHERE) from e


def global_accesses(program: Program, target: Target, sizes: Mapping[str, int]) -> list[GlobalAccess]:
    """What the accesses of its kernels to global memory touch, by the sizes of the dims that the program leaves open.

    Raises TargetError TS602 for a target that does not tell."""
    read = getattr(target, "accesses", None)
    if read is None:
        message = f"The {target.name} target does not tell what accesses to memory touch."
        raise TargetError(Diagnostic("TS602", message, program.span or NOWHERE))
    return read(_finished(program, target, False, Run()), sizes)


def _failure(error: Exception, doing: str, name: str, span: Span) -> Exception:
    """What a user sees of an exception of a pass or of a target. One of a signal handler is that itself."""
    if raised_by_handler(error):
        return error
    if isinstance(error, RecursionError):  # they follow operands from a result on
        message = f"{doing} failed: its operators form too long a chain; let a loop run when the program runs, by"
        return CompileError(
            Diagnostic("TS111", f"{message} ts.range or, in a kernel, ts.tile.range", span, function=name)
        )
    return CompileError(Diagnostic("TS900", f"{doing} failed: {type(error).__name__}: {error}", span, function=name))


def _finished(program: Program, target: Target, debug: bool, run: Run) -> Program:
    chosen = list(passes("target", target.passes, debug))

    def finished(shown: Op) -> Op:
        """A kernel is copied before the first pass that has something to do: as it is, it is shown as Tile IR."""
        kernel = shown
        for p in chosen:
            if p.needed is None or p.needed(kernel):
                kernel = run.one(p, clone(kernel, {}) if kernel is shown else kernel)
        return kernel

    return with_kernels(program, finished, _by_name(chosen))


def _by_name(chosen: Iterable[Pass]) -> bool:
    """Whether a pass may go by the names of kernels: one from outside."""
    return any(p.version for p in chosen)


def with_kernels(program: Program, change: Callable[[Op], Op], by_name: bool = False) -> Program:
    """The Program with each of its kernels changed, once however often it is launched. What is a copy of another but
    for its names is a copy of that one changed, unless the change goes `by_name`."""
    made: dict[Op, Op] = {}

    def changed(kernel: Op) -> Op:
        if kernel not in made:
            code = kernel if by_name else original_of(kernel)
            if code is kernel:
                made[kernel] = change(kernel)
            else:
                new = changed(code)
                made[kernel] = kernel if new is code else renamed(new, kernel)
        return made[kernel]

    def renamed(code: Op, kernel: Op) -> Op:
        names: Any = kernel.attrs["arg_names"]
        new = RenamedCopy(code, str(kernel.attrs["sym_name"]), names)
        return kernel if code is original_of(kernel) and new.attrs == kernel.attrs else new

    def of(step: Step) -> Step:
        match step:
            case Launch():
                new = changed(step.kernel)
                return step if new is step.kernel else replace(step, kernel=new)
            case Branch():
                return replace(step, then=tuple(map(of, step.then)), orelse=tuple(map(of, step.orelse)))
            case Loop():
                return replace(step, head=tuple(map(of, step.head)), body=tuple(map(of, step.body)))

    bands = () if by_name else program.bands  # a pass from outside may change what programs read
    return replace(program, steps=tuple(map(of, program.steps)), bands=bands)


def _from_outside(what: str, name: str, span: Span, make: Callable[[], Op | None]) -> Op:
    """The valid IR that code from outside the package makes. Raises CompileError TS615."""
    try:
        made = make()
        if not isinstance(made, Op) or made.name != name:
            why = f"the {what} gives no {name}; a pass changes what it is given, a scheduler returns what it makes"
            raise CompileError(Diagnostic("TS615", why, span))
        verify(made)
    except TesseraError:
        raise
    except Exception as e:  # whatever it raises; the cause keeps its frames
        if raised_by_handler(e):
            raise
        raise CompileError(Diagnostic("TS615", f"the {what} failed: {type(e).__name__}: {e}", span)) from e
    return made
