"""A whole Program as LLVM IR: one function per launch and `run(frame)`, which makes the launches in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cpu.frame import POOL, RUN, FrameLayout
from tessera.compiler.targets.cpu.interrupts import Looks, never_stop, watch_of
from tessera.compiler.targets.cpu.kernel import control, host_calls, primitives, products, turns
from tessera.compiler.targets.cpu.kernel.along import fold, scan
from tessera.compiler.targets.cpu.kernel.bands import BandWriter
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, Sites, beside, call_shared
from tessera.compiler.targets.cpu.kernel.launch_table import LaunchTable, Row
from tessera.compiler.targets.cpu.kernel.sorting import parts, write
from tessera.compiler.targets.cpu.kernel.tile_records import RecordWriter
from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I1, I8, PTR, Index, Val, const
from tessera.compiler.targets.cpu.loops.elements import ElementEmitter
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.tile.equal import shape_of_code
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.stages import memory_of
from tessera.compiler.tile.program import (
    Bands,
    Branch,
    BufferArg,
    Launch,
    Loop,
    Program,
    ScalarArg,
    Step,
    exchanges,
)
from tessera.compiler.tile.work import ALONE_NS, CHUNKS
from tessera.language.dims import Dim, dim_max, prod

_VIEWS_READ = {
    "tile.load": slice(1), "tile.gather": slice(1), "tile.contract": slice(2), "tile.copy_async": slice(1, 2),
    "tile.merge": slice(2, None),
}  # fmt: skip
"""the operands that are memory which an op reads"""
_NO_NAME = re.compile(r"\W", re.ASCII)
_WRITERS = (control, fold, host_calls, primitives, products, scan, write, parts)
"""imported for the writers of ops that they register"""


class ProgramWriter:
    """`text` and `meta` once written: scratch bytes per worker, phases of tile records, kernels by name."""

    def __init__(self, program: Program, isa: VectorISA, profile: bool, debug: bool = False) -> None:
        self.program, self.isa = program, isa
        self.frame = FrameLayout.of(program)
        self.module = LLVMModule(jit.attributes(isa))
        self.scratch: Dim = 0
        self.kernels: dict[int, tuple[str, KernelFunction]] = {}
        self.recording = RecordWriter() if profile else None
        self.table = LaunchTable(self.module, self.frame)
        self.bands = BandWriter(self.module, self.frame, self.table)
        self.sites = Sites(debug)
        self.talking: set[str] = set()
        """kernels that call the host"""
        self._shapes: dict[Op, int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        """of the kernels that are the same code, the number, found by the kernel and by its code"""
        self._write_kernels()
        self._write_run()
        self.table.write()
        self.bands.write()

    def _write_kernels(self) -> None:
        """A function for each launch. Where several are the same code, they have one together and a row of the table
        each; those whose work depends on sizes that are known at launch have functions that call it."""
        launches = list({id(launch): launch for launch in self.program.launches}.items())
        codes = {i: self._code(launch) for i, launch in launches} if len(launches) > 1 and not self.recording else {}
        times = Counter(code for code in codes.values() if code is not None)
        shared: dict[Any, KernelFunction] = {}
        taken: set[str] = set()
        for at, (i, launch) in enumerate(launches):
            base = _NO_NAME.sub("_", str(launch.kernel.attrs["sym_name"]))
            name = base if base not in taken and base != "run" else f"{base}_{at}"
            taken.add(name)
            code = codes.get(i)
            if code is None or times[code] == 1:
                kernel = self._write_kernel(name, launch, at)
            else:
                if code not in shared:
                    shared[code] = self._write_kernel(f"{name}.code", launch, at, shared=True)
                kernel = shared[code]
                if (row := self._row(name, launch, kernel)) is not None:
                    self.table.rows[i] = row
                else:
                    call_shared(kernel, name, launch)
            self.kernels[i] = (name, kernel)
            if kernel.fn.name in self.talking:
                self.talking.add(name)

    def _row(self, name: str, launch: Launch, kernel: KernelFunction) -> Row | None:
        """A row for a launch of shared code; None where its programs or its work are not known."""
        grid: Sequence[Dim] = launch.kernel.attrs["grid"]  # type: ignore[assignment]
        programs, work = prod(grid), self._work(launch)
        if not isinstance(programs, int) or not isinstance(work, int):
            return None
        alone = kernel.fn.name in self.talking or work // 8 < ALONE_NS
        return Row(name, launch, kernel, programs, programs if alone else max(-(-programs // CHUNKS), 1))

    def _work(self, launch: Launch) -> Dim:
        """Bytes and operations of a launch; where they are not known, a guess by its programs."""
        grid: Sequence[Dim] = launch.kernel.attrs["grid"]  # type: ignore[assignment]
        return (launch.bytes + launch.flops) if launch.bytes or launch.flops else prod(grid) * 1000

    def _write_kernel(self, name: str, launch: Launch, at: int, shared: bool = False) -> KernelFunction:
        said = len(self.sites.table)
        kernel = KernelFunction(self.module, name, launch, self.frame, self.isa, self.sites, shared)
        kernel.stream(self._streamed(launch))
        kernel.ev.far = {kernel.kernel.region.block.args[i] for i in self._far(launch)}
        if self.recording is not None:
            self.recording.write(kernel, at)
        else:
            kernel.write()
        if len(self.sites.table) > said:
            self.talking.add(name)
        need = kernel.scratch_bytes
        both_known = isinstance(need, int) and isinstance(self.scratch, int)
        self.scratch = dim_max(self.scratch, need) if both_known else self.scratch + need
        return kernel

    def _code(self, launch: Launch) -> Any:
        """Equal for launches that one function can run, whatever arrays they are given; None for one that stays alone:
        where its arrays start is known at launch."""
        if not all(isinstance(a.offset, int) for a in launch.args if isinstance(a, BufferArg)):
            return None
        scalars = tuple(a for a in launch.args if isinstance(a, ScalarArg))
        if (kernel := launch.code) not in self._shapes:
            shape = shape_of_code(kernel)
            self._shapes[kernel] = self._numbers.setdefault(shape, len(self._numbers))
        return self._shapes[kernel], scalars, tuple(self._streamed(launch)), tuple(self._far(launch)), beside(launch)

    def _streamed(self, launch: Launch) -> list[int]:
        """The arguments whose buffers are too large to stay cached and that no launch reads."""
        return [i for i, a in enumerate(launch.args) if isinstance(a, BufferArg) and a.buffer in self._only_written]

    def _far(self, launch: Launch) -> list[int]:
        """The arguments that no launch makes and no cache of a core holds."""
        return [i for i, a in enumerate(launch.args) if isinstance(a, BufferArg) and a.buffer in self._large_inputs]

    @cached_property
    def _large_inputs(self) -> set[int]:
        sizes = {b.id: prod(b.shape) * b.dtype.itemsize for b in self.program.buffers if b.role == "input"}
        return {i for i, size in sizes.items() if isinstance(size, int) and size >= self.isa.cached_bytes // 4}

    @cached_property
    def _only_written(self) -> set[int]:
        """The buffers that are too large to stay cached and that no launch reads."""
        sizes = {b.id: prod(b.shape) * b.dtype.itemsize for b in self.program.buffers if b.id not in self._read}
        return {i for i, size in sizes.items() if isinstance(size, int) and size > self.isa.cached_bytes}

    @cached_property
    def _read(self) -> set[int]:
        """The buffers that some launch, branch or loop reads, as they are or as the memory of another one."""
        found: set[int] = {s.cond for s in _conditions(self.program.steps)}
        places: dict[Op, list[int]] = {}
        for launch in self.program.launches:
            if (kernel := launch.code) not in places:
                places[kernel] = _reads(kernel)
            for i in places[kernel]:
                arg = launch.args[i]
                if isinstance(arg, BufferArg):
                    found.add(arg.buffer)
        return found.union(*(e.buffers for e in exchanges(self.program) if not found.isdisjoint(e.buffers)))

    # -- run ---------------------------------------------------------------------------------------------------------
    def _write_run(self) -> None:
        exchanged = exchanges(self.program)
        fn = LLVMFunction(self.module, "run.steps" if exchanged else "run", [("frame", PTR)])
        self.fn = fn
        first = next(iter(self.program.launches), None)
        self.watch = watch_of(fn)
        if self.program.states:  # in one piece: half a change would leave neither the old state nor the new one
            never_stop(fn, self.watch)
        self.looks = Looks(fn, self.watch, 0)
        self.dims = {n: self.frame.load_dim(fn, fn.param(0), n) for n in self.frame.free}
        self.ev = ElementEmitter(first.kernel, fn, self.isa, self.dims) if first is not None else None
        if exchanged:
            turns.keep_frame(self.module, self.frame, fn.name, exchanged)
        home = turns.BoundMemory(fn, self.frame, exchanged)
        self._steps(self.program.steps)
        for exchange in exchanged:
            assert self.ev is not None
            size = next(prod(b.shape) * b.dtype.itemsize for b in self.program.buffers if b.id in exchange.buffers)
            home.bring(exchange, self.ev.dim(size))

    @cached_property
    def _banded(self) -> dict[int, Bands]:
        """The bands that each launch belongs to, by its id. Records of a profile are those of one launch after the
        other; what kernels tell the host comes in their order too."""
        launches, found = self.program.launches, dict[int, Bands]()
        for bands in self.program.bands if self.recording is None else ():
            some = launches[bands.first : bands.last + 1]
            if not any(self.kernels[id(launch)][0] in self.talking for launch in some):
                found.update((id(launch), bands) for launch in some)
        return found

    def _steps(self, steps: Sequence[Step]) -> None:
        for bands, group in groupby(steps, lambda step: self._banded.get(id(step))):
            if bands is not None:
                launches = [(launch, self.kernels[id(launch)][0]) for launch in group if isinstance(launch, Launch)]
                self.bands.run(self.fn, bands, launches, self.watch)
                continue
            for rows, some in groupby(group, self.table.has):
                if rows:
                    self.table.walk(self.fn, some, self.watch)
                    continue
                for step in some:
                    self._step(step)

    def _step(self, step: Step) -> None:
        match step:
            case Launch():
                self._launch(step)
            case Branch():
                go = self._flag(step.cond)
                with self.fn.when(go):
                    self._steps(step.then)
                with self.fn.when(self.fn.binary("xor", go, const(True, I1))):
                    self._steps(step.orelse)
            case Loop():
                self._loop(step)

    def _flag(self, buffer: int) -> Val:
        slot = self.fn.gep(self.fn.param(0), self.frame.buffer_slot(buffer), "i64")
        p = self.fn.load(slot, PTR, 8)  # here: loops may exchange it
        return self.fn.compare("icmp ne", self.fn.load(p, I8, 1), const(0, I8))

    def _loop(self, step: Loop) -> None:
        def test(_: list[Val]) -> Val:
            self.looks.in_loop()
            self._steps(step.head)
            self.looks.at_start()
            return self._flag(step.cond)

        def body(_: list[Val]) -> list[Val]:
            self._steps(step.body)
            turns.turn(self.fn, self.frame, step.turns)
            return []

        self.fn.while_loop([], test, body)

    def _launch(self, launch: Launch) -> None:
        fn = self.fn
        assert self.ev is not None
        name, _ = self.kernels[id(launch)]
        grid: Sequence[Dim] = launch.kernel.attrs["grid"]  # type: ignore[assignment]
        total = self.ev.dim(prod(grid))
        frame = fn.param(0)
        work = self._nanoseconds(launch)
        alone = f"call void @{name}({frame!r}, i64 0, {fn.index(total)!r}, i64 0)"
        few = isinstance(total, int) and total <= 1
        if name in self.talking or few or (isinstance(work, int) and work < ALONE_NS):
            fn.do(alone)
            return
        run = self.frame.load_slot(fn, frame, RUN, PTR)
        pool = self.frame.load_slot(fn, frame, POOL, PTR)
        grain = fn.div(fn.add(total, CHUNKS - 1), CHUNKS)
        grain = fn.smax(grain, 1)
        given = ", ".join(map(repr, (frame, fn.index(total), fn.index(grain), self.watch)))
        shared = f"call void {run.ref}({pool!r}, ptr @{name}, {given})"
        if isinstance(work, int):
            fn.do(shared)
            return
        fn.choose(fn.icmp("sge", work, ALONE_NS), lambda: self._do(shared), lambda: self._do(alone))

    def _do(self, line: str) -> list[Val]:
        self.fn.do(line)
        return []

    def _nanoseconds(self, launch: Launch) -> Index:
        """A guess of the launch's time on one core: its traffic at 8 bytes a ns, its arithmetic at 8 flops a ns."""
        assert self.ev is not None
        return self.fn.div(self.ev.dim(self._work(launch)), 8)

    # -- results -----------------------------------------------------------------------------------------------------
    def render(self) -> tuple[str, list[tuple[int, str, int]]]:
        """The module's text, and where its lines come from."""
        return self.module.render()

    def meta(self) -> dict[str, Any]:
        return {
            "isa": self.isa.name,
            "features": self.isa.features,
            "scratch": str(self.scratch),
            "phases": self.recording.phases if self.recording else [],
            "sites": self.sites.table,
            "kernels": [name for name, _ in self.kernels.values()],
            "values": list(self._values()),
        }

    def _values(self) -> Iterator[dict[str, Any]]:
        """What vectors of the text hold, for those that ask what was spilled: the author's name, what it is, and where
        it starts."""
        for kernel in {k.fn.name: k for _, k in self.kernels.values()}.values():
            found: dict[Value, list[str]] = {}
            for ref, v in kernel.ev.named.items():
                found.setdefault(v, []).append(ref.removeprefix("%"))
            for v, variables in found.items():
                shape, span = " x ".join(map(str, shape_of(v))), v.op.span if v.op is not None else kernel.kernel.span
                yield {
                    "function": kernel.fn.name, "name": v.hint, "what": f"{shape} {dtype_of(v)}".strip(),
                    "file": span.file, "line": span.line, "variables": variables,
                }  # fmt: skip


def _reads(kernel: Op) -> list[int]:
    """The numbers of the arguments that a kernel reads."""
    views = [v for op in kernel.walk() for v in op.operands[_VIEWS_READ.get(op.name, slice(0))]]
    return sorted({memory_of(v).index for v in views})


def _conditions(steps: Sequence[Step]) -> Iterator[Branch | Loop]:
    """The branches and loops among steps, inner ones too."""
    for step in steps:
        if isinstance(step, Branch):
            yield step
            yield from _conditions((*step.then, *step.orelse))
        elif isinstance(step, Loop):
            yield step
            yield from _conditions((*step.head, *step.body))
