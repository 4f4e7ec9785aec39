"""One kernel as a function: arguments, programs of its range, scratch memory, and its blocks stage by stage.

    void kernel(ptr frame, i64 begin, i64 end, i64 worker)

runs the programs begin ... end - 1 of the grid. The frame holds everything that one call of the Program knows.
Ops that are not part of a loop nest are written by functions of the neighbouring files, which `writes` registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.targets.cpu.elementary.convert import Pair, memory_element, storage_type, unpack
from tessera.compiler.targets.cpu.frame import SCRATCH, SCRATCH_STRIDE, FrameLayout, Site
from tessera.compiler.targets.cpu.interrupts import FIRST_LOOK, Looks, watch_of
from tessera.compiler.targets.cpu.kernel.packing.words import multiplies_words
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I64, PTR, Index, Val
from tessera.compiler.targets.cpu.loops.elements import ElementEmitter
from tessera.compiler.targets.cpu.loops.index import dtype_of, unsupported
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter, Scratch
from tessera.compiler.tile.loops.axes import moves, shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import LoopGroup, Stage, memory_of, touched, unit_axes
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.compiler.tile.program import BufferArg, Launch, ScalarArg
from tessera.language.dims import Dim, prod
from tessera.language.dtypes import DType

STACK_LIMIT = 1 << 15
"""bytes of scratch memory on the stack; larger tiles are in the call's workspace"""
PITCH = 64
"""rows of scratch matrices are at least this many elements apart"""

Writer = Callable[["KernelFunction", Op, Planner, NestWriter], None]
WRITERS: dict[str, Writer] = {}


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Registers the decorated function as the writer of these ops, without the prefix "tile."."""

    def add(writer: Writer) -> Writer:
        WRITERS.update({f"tile.{name}": writer for name in names})
        return writer

    return add


class Sites:
    """Where the kernels of one Program call their host; filled while they are written. `checks`: asserts are kept."""

    def __init__(self, checks: bool) -> None:
        self.checks = checks
        self.table: list[Site] = []


def beside(launch: Launch) -> tuple[tuple[int, int, int], ...]:
    """For arguments that a kernel only reads, and that begin at known places of one buffer: the number of each, that of
    the first of them, and how many elements behind it this one begins."""
    given = [arg.buffer for arg in launch.args if isinstance(arg, BufferArg)]
    if len({*given}) == len(given):
        return ()
    views, first = launch.code.region.block.args, dict[tuple[int, DType], int]()
    written = {memory_of(v) for v in touched(launch.code)}
    found: dict[int, tuple[int, int, int]] = {}
    for i, (view, arg) in enumerate(zip(views, launch.args, strict=True)):
        if isinstance(arg, BufferArg) and isinstance(arg.offset, int) and view not in written:
            at = first.setdefault((arg.buffer, dtype_of(view)), i)
            start = launch.args[at]
            if at != i and isinstance(start, BufferArg) and isinstance(start.offset, int):
                found[at], found[i] = (at, at, 0), (i, at, arg.offset - start.offset)
    return tuple(found.values())


PARAMS = [("frame", PTR), ("begin", I64), ("end", I64), ("worker", I64)]
"""parameters of the function that runs programs begin ... end - 1 of a launch"""
QUICK = " noinline optnone"
"""for functions that only pass addresses on; there may be hundreds of them: LLVM takes a fifth of the time"""


class KernelFunction:
    """Writes one launch's kernel into a module. `scratch_bytes` is what each worker needs of the call's workspace.

    `shared`: several launches run it, and give the addresses of their arrays as further parameters (`call_shared`).
    """

    def __init__(
        self,
        module: LLVMModule,
        name: str,
        launch: Launch,
        frame: FrameLayout,
        isa: VectorISA,
        sites: Sites,
        shared: bool = False,
    ) -> None:
        self.module, self.frame, self.isa, self.sites = module, frame, isa, sites
        self.planned: Callable[[Sequence[Stage]], Callable[[int], None]] | None = None
        """takes the stages of the outermost block, returns the function to be called before each of them"""
        self.number: Index = 0
        """the program being run, counted over the grid"""
        self.kernel = launch.kernel
        self.shared = shared
        arrays = [i for i, given in enumerate(launch.args) if shared and isinstance(given, BufferArg)]
        self.fn = LLVMFunction(module, name, [*PARAMS, *((f"array{i}", PTR) for i in arrays)])
        self.fn.at = launch.kernel.span
        dims = {n: frame.load_dim(self.fn, self.fn.param(0), n) for n in frame.free}
        self.ev = ElementEmitter(self.kernel, self.fn, isa, dims)
        self.scratch_bytes: Dim = 0
        self.stack_bytes = 0
        self._workspace: Val | None = None
        self.words: dict[tuple[Value, bool], Any] = {}
        """left (False) and right operands that are laid out as words before a loop: where these are (products.py)"""
        self.stored: set[LoopGroup] = set()
        """stages that products before them have done (results.py)"""
        self.has_mma = any(op.name in ("tile.mma", "tile.contract") for op in self.kernel.walk())
        self._bind(launch)

    # -- arguments ---------------------------------------------------------------------------------------------------
    def _bind(self, launch: Launch) -> None:
        fn, ev, frame = self.fn, self.ev, self.fn.param(0)
        arrays = iter(range(len(PARAMS), len(fn.params)))
        inputs = self.kernel.region.block.args
        ev.beside = {inputs[i]: (inputs[first], apart) for i, first, apart in beside(launch)}
        for arg, given in zip(self.kernel.region.block.args, launch.args, strict=True):
            if isinstance(given, BufferArg):
                assert isinstance(arg.type, ViewType)
                if self.shared:
                    ev.views[arg] = fn.param(next(arrays))
                    continue
                base = self.frame.load_buffer(fn, frame, given.buffer)
                ev.views[arg] = fn.gep(base, ev.dim(given.offset), memory_element(arg.type.dtype))
            else:
                ev.bound[arg] = self._scalar(given, dtype_of(arg))

    def _scalar(self, given: ScalarArg, d: DType) -> Val | Pair:
        p = self.frame.scalar_address(self.fn, self.fn.param(0), given.param)
        raw = self.fn.load_pure(p, storage_type(d, 1), 8)
        return unpack(raw, d, self.ev.vm)

    # -- programs ----------------------------------------------------------------------------------------------------
    def stream(self, arguments: Iterable[int]) -> None:
        """Stores to these arguments may bypass the caches (x86 only: elsewhere they would need other barriers)."""
        if self.isa.name != "neon":
            self.ev.streams = {self.kernel.region.block.args[i] for i in arguments}

    def write(self, around: Callable[[Index, Callable[[], None]], None] | None = None) -> None:
        """The whole function. `around(program, body)` lets a profiled variant measure each program."""
        fn, ev = self.fn, self.ev
        first = 6 if self.has_mma else FIRST_LOOK  # a program that multiplies may take long
        self.looks = Looks(fn, watch_of(fn), fn.param(3), first)
        grid = [ev.dim(g) for g in self.kernel.attrs["grid"]]  # type: ignore[union-attr]
        with fn.loop(fn.param(1), fn.param(2)) as loop:
            self.looks.in_loop()
            rest = self.number = self._program(loop.index, grid)
            coords: list[Index] = []
            for n in reversed(grid[1:]):
                coords.append(fn.mod(rest, n))
                rest = fn.div(rest, n)
            ev.program = [rest, *reversed(coords)] if grid else []

            def body() -> None:
                fn.at = None  # from here on, what no op says of itself belongs to the op before it
                self.block(self.kernel.region.block)

            if around is None:
                body()
            else:
                around(self.number, body)
        if ev.has_streamed:  # such stores are ordered by nothing else
            self.module.declare("declare void @llvm.x86.sse.sfence()")
            fn.do("call void @llvm.x86.sse.sfence()")

    def _program(self, n: Index, grid: Sequence[Index]) -> Index:
        """The number of the program that runs as the n-th one, as `tile/program_order.py` says."""
        fn, rows = self.fn, self.kernel.attrs.get("grouped")
        if rows is None:
            return n
        assert isinstance(rows, int)
        *_, down, across = grid
        matrix = fn.mul(down, across)
        within = fn.mod(n, matrix)
        first = fn.mul(fn.div(within, fn.mul(rows, across)), rows)
        high = fn.smin(fn.sub(down, first), rows)
        rest = fn.sub(within, fn.mul(first, across))
        row = fn.add(first, fn.mod(rest, high))
        return fn.add(fn.sub(n, within), fn.add(fn.mul(row, across), fn.div(rest, high)))

    # -- scratch memory ----------------------------------------------------------------------------------------------
    def raw(self, size: Dim) -> Val:
        """`size` bytes of this worker's own, aligned to 64 bytes; the same memory in every program."""
        if isinstance(size, int) and self.stack_bytes + size <= STACK_LIMIT:
            self.stack_bytes += size
            return self.fn.alloca("i8", max(size, 1))
        rounded = -(-size // 64) * 64 if isinstance(size, int) else size + 63
        at = self.scratch_bytes
        self.scratch_bytes = at + rounded
        if self._workspace is None:
            frame = self.fn.param(0)
            base = self.frame.load_slot(self.fn, frame, SCRATCH, PTR)
            stride = self.frame.load_slot(self.fn, frame, SCRATCH_STRIDE, I64)
            self._workspace = self.fn.gep(base, self.fn.mul(self.fn.param(3), stride), "i8")
        place = self.ev.dim(at)
        if not isinstance(at, int):
            place = self.fn.mul(self.fn.div(self.fn.add(place, 63), 64), 64)
        return self.fn.gep(self._workspace, place, "i8")

    def scratch(self, v: Value, sizes: Sequence[Dim] | None = None) -> Cell:
        """Memory for a tile value (or the part of it that `sizes` says)."""
        shape = shape_of(v) if sizes is None else tuple(sizes)
        d = held(dtype_of(v))
        if self.has_mma and len(shape) == 2 and sizes is None and all(isinstance(s, int) for s in shape):
            return self.matrix(v)
        p = self.raw(prod(shape) * d.itemsize)
        return Cell(p, self.ev.packed_strides(shape), d)

    def matrix(self, v: Value, turned: bool = False) -> Cell:
        """Memory for a matrix that a product accumulates in: rows and columns padded to whole register blocks (two
        vectors wide), and rows an odd number of vectors apart: each row of a block then has its own set of the cache.
        `turned`: the matrix is stored transposed."""
        d = held(dtype_of(v))
        rows, columns = (int(s) for s in shape_of(v))  # type: ignore[arg-type]
        if turned:
            rows, columns = columns, rows
        lanes = self.isa.lanes(8 * d.itemsize)
        pitch = -(-columns // (2 * lanes)) * 2 * lanes + lanes
        more = 32 if self.isa.bf16_tiles or self.isa.byte_tiles else 16
        p = self.raw((rows + more) * pitch * d.itemsize)
        steps = (pitch if rows > 1 else 0, 1 if columns > 1 else 0)
        return Cell(p, steps[::-1] if turned else steps, d)

    # -- blocks ------------------------------------------------------------------------------------------------------
    def block(self, block: Block, needed: Iterable[Value] = ()) -> Planner:
        """Writes all stages of a block; `needed` values are put into the cells that they already have."""
        direct = {
            v
            for op in block.ops
            for o in op.walk()
            if o.name == "tile.mma"
            for i, v in enumerate(o.operands)
            if self.reads_in_place(v)
            and not (i == 1 and o.block is not block and across(v) and not multiplies_words(self.isa, o))
        }
        plan = Planner(block, memory_of, needed, direct)
        writer = self.writer(plan)
        for op in block.ops:
            if op.name == "tile.alloc_shared" and op.result not in self.ev.cells:
                self.ev.cells[op.result] = self._shared(op)
        outermost = block is self.kernel.region.block
        before = self.planned(plan.stages) if self.planned is not None and outermost else None
        for i, stage in enumerate(plan.stages):
            if before is not None:
                before(i)
            if isinstance(stage, LoopGroup):
                if stage not in self.stored:
                    writer.write(stage)
            else:
                self.ev.memo = {}
                outside, self.fn.at = self.fn.at, stage.span
                self._apart(stage, plan, writer)
                self.fn.at = outside
            self.ev.memo = {}
        return plan

    def reads_in_place(self, v: Value) -> bool:
        """Whether a product may read `v` straight from global memory: a load that never leaves its view, of memory that
        this kernel does not write."""
        found = load_of(v)
        if found is None:
            return False
        load, _ = found
        view = load.operands[0].type
        assert isinstance(view, ViewType)
        if load.attrs.get("masked") or memory_of(load.operands[0]) in self.ev.written:
            return False
        sizes = zip(load.operands[1 : 1 + view.rank], shape_of(load.result), view.shape, strict=True)
        return all(all(self.ev.bounds.inside(o, t, n)) for o, t, n in sizes)

    def writer(self, plan: Planner) -> NestWriter:
        return NestWriter(self.ev, plan, Scratch(self.scratch, self.raw))

    def _shared(self, op: Op) -> Cell:
        t = op.result.type
        assert isinstance(t, SharedType)
        d = held(t.dtype)
        return Cell(self.raw(prod(t.shape) * d.itemsize), self.ev.packed_strides(t.shape), d)

    def _apart(self, op: Op, plan: Planner, writer: NestWriter) -> None:
        name = "tile.primitive" if op.name in PRIMITIVES else op.name
        if name not in WRITERS:
            unsupported(op)
        WRITERS[name](self, op, plan, writer)
        self._unpadded(op, writer, plan)

    def _unpadded(self, op: Op, writer: NestWriter, plan: Planner) -> None:
        """A result that is reshaped must be stored in C order without gaps."""
        for v in op.results:
            cell = self.ev.cells.get(v)
            moved = any(moves(u) for u, _ in v.uses)
            if cell is None or not moved:
                continue
            packed = self.ev.packed_strides(shape_of(v))
            if [str(s) for s in packed] != [str(s) for s in cell.strides]:
                target = Cell(self.raw(prod(shape_of(v)) * cell.dtype.itemsize), packed, cell.dtype)
                writer.write(plan.copy(v, target))
                self.ev.cells[v] = target

    # -- values that cross blocks ------------------------------------------------------------------------------------
    def registers(self, v: Value) -> list[Val]:
        """A scalar or index value as the registers that hold it."""
        if v.type == INDEX:
            return [self.fn.index(self.ev.index(v))]
        x = self.ev.element(v, ())
        return [x.re, x.im] if isinstance(x, Pair) else [x]

    def set_registers(self, v: Value, values: Sequence[Val]) -> None:
        if v.type == INDEX:
            self.ev.indices[v] = values[0]
        else:
            self.ev.bound[v] = Pair(values[0], values[1]) if len(values) == 2 else values[0]

    def width(self, v: Value) -> int:
        """How many registers a scalar takes."""
        return 2 if isinstance(v.type, TileType) and v.type.dtype.is_complex else 1


def call_shared(kernel: KernelFunction, name: str, launch: Launch) -> None:
    """Another launch of a shared kernel: a function that gives it the addresses of this launch's arrays."""
    fn = LLVMFunction(kernel.module, name, PARAMS)
    fn.at = launch.span
    fn.attributes = QUICK
    given = [fn.param(i) for i in range(len(PARAMS))]
    for arg, window in zip(launch.code.region.block.args, launch.args, strict=True):
        if isinstance(window, BufferArg):
            assert isinstance(arg.type, ViewType) and isinstance(window.offset, int)
            base = kernel.frame.load_buffer(fn, fn.param(0), window.buffer)
            given.append(fn.gep(base, window.offset, memory_element(arg.type.dtype)))
    fn.do(f"call void @{kernel.fn.name}({', '.join(map(repr, given))})")


def across(v: Value) -> bool:
    """Whether rows of a loaded operand are scattered in memory: a right one that a loop does not change is laid out
    before it."""
    found = load_of(v)
    if found is None:
        return False
    load, turned = found
    return (0 if turned else 1) not in unit_axes(load.operands[0])


def load_of(v: Value) -> tuple[Op, bool] | None:
    """The load that `v` is, and whether it is seen transposed."""
    turned = False
    while v.op is not None and v.op.name == "tile.transpose":
        turned, v = not turned, v.op.operands[0]
    return (v.op, turned) if v.op is not None and v.op.name == "tile.load" else None
