"""Tile IR -> CUDA C++: the frame of a kernel, names, index arithmetic and control flow. One statement per tile op.

Ops are written by handlers, registered by name in `HANDLERS` by this file and its neighbours `emit_*.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import IndexType, SharedType, TileType, ViewType
from tessera.compiler.targets.cuda.emit.phases import Phase, PhaseMarks, state_bytes
from tessera.compiler.targets.cuda.layouts import stream
from tessera.compiler.targets.cuda.layouts.barriers import barriers, shared_source
from tessera.compiler.targets.cuda.layouts.groups import (
    LayoutGrouping,
    TensorCores,
    TileLine,
    dtype_of,
    is_tile,
    squeezed,
)
from tessera.compiler.targets.cuda.layouts.layout import Layout
from tessera.compiler.targets.cuda.layouts.swizzle import Placed
from tessera.compiler.targets.cuda.tensor_cores.maps import SwizzledTile, TensorMap
from tessera.compiler.targets.cuda.tensor_cores.products import ProductPlan, in_pipeline, plan_products
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.targets.cuda.write.print_buffer import PrintSite, prints
from tessera.compiler.targets.cuda.write.source import CxxSource
from tessera.compiler.tile.offsets import Bounds
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.errors import NOWHERE, Diagnostic, Span, TargetError
from tessera.immutable import mutable
from tessera.language.dims import Dim, prod, symbols
from tessera.language.dtypes import DType

Handler = Callable[["KernelEmitter", Op], None]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers the decorated function as the writer of these ops (without the dialect's prefix)."""

    def add(handler: Handler) -> Handler:
        HANDLERS.update({f"tile.{name}": handler for name in names})
        return handler

    return add


@mutable
class EmitSettings:
    """The settings that a kernel is compiled for. `warpgroup_dtypes`: those that sm_90a's wgmma takes."""

    arch: int
    tensor_cores: TensorCores
    shared_limit: int
    profile: bool = False
    debug: bool = False
    warpgroup_dtypes: frozenset[DType] = frozenset()


@mutable
class KernelEmitter:
    """Writes one kernel. `env` holds the C++ expression of every value; `splat` those tiles that are one scalar."""

    kernel: Op
    grouping: LayoutGrouping
    threads: int
    settings: EmitSettings
    source: CxxSource
    alias: Mapping[Value, Value]
    bounds: Bounds
    marks: PhaseMarks
    env: dict[Value, str] = field(default_factory=dict[Value, str])
    splat: set[Value] = field(default_factory=set[Value])
    origin: dict[TileLine, str] = field(default_factory=dict[TileLine, str])
    partial: dict[Op, str] = field(default_factory=dict[Op, str])
    views: dict[Value, str] = field(default_factory=dict[Value, str])
    declared: dict[str, Value] = field(default_factory=dict[str, Value])
    """variable -> the first value that it held, those that are out of scope too"""
    names: set[str] = field(default_factory=set[str])
    headers: set[str] = field(default_factory=set[str])
    needed: dict[Op, bool] = field(default_factory=dict[Op, bool])
    shared: dict[Value | tuple[Op, int], int] = field(default_factory=dict["Value | tuple[Op, int]", int])
    shared_bytes: int = 0
    scratch: int = 0
    exchange: Span = NOWHERE
    """the place of the op that needs the most scratch memory"""
    asserts: list[tuple[str, str, Span]] = field(default_factory=list["tuple[str, str, Span]"])
    warpgroups: Mapping[Op, Products | str] = field(default_factory=dict[Op, "Products | str"])
    products: ProductPlan = field(default_factory=ProductPlan)
    rings: dict[Op, str] = field(default_factory=dict[Op, str])
    """of the pipelines that tensor copies fill"""
    landing: str = ""
    """the mbarrier of the stage that is being fetched"""
    tensor_maps: dict[TensorMap, str] = field(default_factory=dict[TensorMap, str])
    alignment: int = 128
    prints: list[PrintSite] = field(default_factory=list[PrintSite])
    most_stages: int = 1
    number: str = "ts::program()"
    """the number of the program that is run"""
    placed: dict[str, Placed | SwizzledTile] = field(default_factory=dict[str, "Placed | SwizzledTile"])
    """shared tiles by their names"""
    phases: list[Phase] = field(default_factory=list[Phase])
    """of profiled code: none where all of it is one"""
    reserved: dict[Value | tuple[Op, int], int] = field(default_factory=dict["Value | tuple[Op, int]", int])

    # names and expressions
    def fresh(self, hint: str) -> str:
        base = cxx.identifier(hint)
        name, n = base, 1
        while name in self.names:
            n += 1
            name = f"{base}_{n}"
        self.names.add(name)
        return name

    def let(self, v: Value, expression: str, default: str = "", type: str = "auto") -> str:
        """`auto name = expression;` with the value's hint as the name."""
        name = self.fresh(v.hint or default or (v.op.name.partition(".")[2] if v.op else "v"))
        self.source.write(f"{type} {name} = {expression};")
        self.env[v] = self.declare(name, v)
        return name

    def declare(self, name: str, v: Value) -> str:
        """Notes whose variable it is; gives its name."""
        return self.declared.setdefault(name, v) and name

    def expr(self, v: Value) -> str:
        return self.env[v]

    @property
    def maps(self) -> list[TensorMap]:
        """The tensor maps that tensor copies read: the last parameters of the kernel."""
        plans = [plan for plan in self.warpgroups.values() if isinstance(plan, Products)]
        fetched = [x.map for plan in plans for x in (plan.a, plan.b)]
        return list(dict.fromkeys([*fetched, *(x.map for x in self.products.fetches.values())]))

    def only_fetched(self, view: Value) -> bool:
        """Whether nothing but tensor copies reads a view, so that the source need not name it."""
        return bool(view.users) and all(
            isinstance(self.warpgroups.get(u), Products)
            or u in self.products.fetches
            or (u.name == "tile.subview" and self.only_fetched(u.result))
            for u in view.users
        )

    @property
    def block_threads(self) -> int:
        """Threads of a block: the program's and, where stages are fetched by tensor copies, those that fetch."""
        fetching = sum(x.producers for x in self.warpgroups.values() if isinstance(x, Products))
        return self.threads + 32 * (fetching or self.products.producers)

    def layout(self, v: Value) -> str:
        """The name of a tile's layout in the source."""
        return self.grouping.of(v).name

    def layout_of(self, v: Value) -> Layout:
        layout = self.grouping.of(v).layout
        assert layout is not None
        return layout

    def tile(self, v: Value) -> str:
        """A tile as a tile: a scalar that represents all its elements is broadcast."""
        return f"ts::full<{self.layout(v)}>({self.env[v]})" if v in self.splat else self.env[v]

    def type_of(self, v: Value) -> str:
        if isinstance(v.type, IndexType):
            return "ts::idx"
        name = cxx.type_name(dtype_of(v))
        return f"ts::Tile<{name}, {self.layout(v)}>" if is_tile(v) else name

    def box(self, v: Value) -> str:
        """The part of a tile that is held at a time, in all its dims."""
        return "ts::Box<" + ", ".join(map(str, self.held_shape(v))) + ">"

    def held_shape(self, v: Value) -> list[int]:
        assert isinstance(v.type, TileType)
        lines = self.lines_by_axis(v)
        out: list[int] = []
        for a, d in enumerate(v.type.shape):
            line = lines.get(a)
            if line is not None and line.chunk is not None:
                d = line.chunk
            if not isinstance(d, int):
                raise TargetError(
                    Diagnostic("TS404", f"The tile {v.type.pretty()} has a size that is not known", self.span(v))
                )
            out.append(d)
        return out

    def span(self, v: Value) -> Span:
        return v.op.span if v.op else self.kernel.span

    def lines_by_axis(self, v: Value) -> dict[int, TileLine]:
        """For each of a tile's own axes that is an axis of its matrix by itself, that axis."""
        assert isinstance(v.type, TileType)
        if not is_tile(v):
            return {}
        kept = squeezed(v.type.shape)
        group = self.grouping.of(v)
        row, col = group.lines
        out: dict[int, TileLine] = {}
        if len(kept) - group.split == 1:
            out[kept[-1]] = col
        if group.split == 1:
            out[kept[0]] = row
        return out

    def refuse(self, op: Op, why: str, code: str = "TS602") -> TargetError:
        return TargetError(Diagnostic(code, why, op.span))

    def reads_shared(self, product: Op, operand: int) -> bool:
        """Whether a product reads this operand from the shared tile that it was loaded from."""
        return operand != 2 and shared_source(product.operands[operand], product)[0] is not None

    # shared memory
    def reserve(self, key: Value | tuple[Op, int], size: int) -> int:
        """The place of a shared tile in the block's dynamic shared memory, behind the scratch area."""
        if key not in self.shared:
            self.shared[key], self.reserved[key] = self.shared_bytes, size
            self.shared_bytes += -(-size // 128) * 128
        return self.shared[key]

    def reserve_bytes(self, size: int) -> int:
        """The place of something that is not a tile."""
        place = self.shared_bytes
        self.shared_bytes += -(-size // 128) * 128
        return place

    def barrier(self) -> str:
        """The statement behind which all copies have landed, for all threads."""
        if self.products.loose:
            return "copies.barrier();"
        return "ts::publish_barrier();" if self.products.tiles else "ts::barrier();"

    def align_shared(self, to: int) -> None:
        """The next shared tile starts at a multiple of `to` bytes."""
        self.alignment = max(self.alignment, to)
        self.shared_bytes = -(-self.shared_bytes // to) * to

    def stages(self, product: Op, stage_bytes: int, usual: int, *, padding: int = 0, kept: int = 0) -> int:
        """The number of stages of a product's operands: num_stages or `usual`, but no more than fit into shared memory.

        `padding`: bytes that aligning each stage may take; `kept`: bytes for other things. Raises TargetError TS405
        where not even two fit.
        """
        wanted = int(self.kernel.attrs.get("num_stages", 0) or usual)  # type: ignore[call-overload]
        free = self.settings.shared_limit - self.shared_bytes - self.scratch - kept
        stages = min(max(2, wanted), free // (stage_bytes + padding))
        if stages < 2:
            message = (
                f"Two stages of this product take {2 * stage_bytes} bytes of shared memory; sm_{self.settings.arch} has"
                f" {free} left of {self.settings.shared_limit} per block.\nUse a smaller tile."
            )
            raise self.refuse(product, message, "TS405")
        return stages

    def need_scratch(self, size: int) -> None:
        if size > self.scratch:
            self.scratch, self.exchange = -(-size // 128) * 128, self.source.span or NOWHERE

    # blocks
    def emit_block(self, block: Block) -> None:
        for node in stream.plan(block.ops, self.grouping):
            self.emit_node(node)
        self.marks.end()

    def emit_node(self, node: Op | stream.ChunkPass) -> None:
        if isinstance(node, stream.ChunkPass):
            return self.emit_pass(node)
        self.source.at(node.span)
        if self.needed.get(node):
            self.marks.wait(node)
        else:
            self.marks.begin(node)
        if node in self.needed:
            self.headers.add("shared")
            self.source.write(self.barrier() if self.needed[node] else "ts::sync();")
            self.marks.begin(node)
        handler = HANDLERS.get("tile.primitive" if node.name in PRIMITIVES else node.name)
        if handler is None:
            raise self.refuse(node, f"The CUDA target has no code for {node.name}")
        handler(self, node)

    def emit_pass(self, node: stream.ChunkPass) -> None:
        """A loop over the chunks of one axis, with the partial results that it fills before it."""
        line = node.line
        self.marks.end()
        for op in node.folds:
            HANDLERS["tile.begin_partials"](self, op)
        start = self.fresh("start")
        self.origin[line] = start
        saved = dict(self.env), set(self.splat)
        with self.source.block(
            f"for (ts::idx {start} = 0; {start} < {cxx.size(line.extent)}; {start} += {line.chunk})"
        ):
            for inner in node.nodes:
                if isinstance(inner, Op) and inner in node.folds:
                    self.source.at(inner.span)
                    self.marks.begin(inner)
                    HANDLERS["tile.accumulate_partials"](self, inner)
                else:
                    self.emit_node(inner)
            self.marks.end()
        self.env, self.splat = saved  # what was computed in the loop is out of scope
        del self.origin[line]
        for op in node.folds:
            self.source.at(op.span)
            self.marks.begin(op)
            HANDLERS["tile.end_partials"](self, op)


def emit_kernel(
    kernel: Op,
    name: str,
    grouping: LayoutGrouping,
    threads: int,
    settings: EmitSettings,
    source: CxxSource,
    alias: Mapping[Value, Value],
    bounds: Bounds,
    warpgroups: Mapping[Op, Products | str],
    most_stages: int = 1,
    products: Collection[Op] = (),
) -> KernelEmitter:
    """Writes `kernel`, called `name`, as a __global__ function; the result has its headers and shared memory."""
    planned = {op for op, plan in warpgroups.items() if isinstance(plan, Products)} | {*products}
    layouts = grouping.assign(threads, settings.tensor_cores, planned)
    loose = [x for x in kernel.walk() if x.name == "tile.copy_async" and in_pipeline(x) is None]
    marks = PhaseMarks(source, kernel.span.file, loose)
    e = KernelEmitter(kernel, grouping, threads, settings, source, alias, bounds, marks, warpgroups=warpgroups)
    e.most_stages = most_stages
    e.products = plan_products(kernel, grouping, products, threads // 32, bounds, alias)
    e.needed = barriers(kernel, grouping, alias)
    e.names |= {cxx.kernel_symbol(name), "ts"}
    source.at(kernel.span)
    e.names |= {*layouts, *_FIXED, *map(cxx.dim_name, free_dims(kernel))}
    bound = f"__launch_bounds__({e.block_threads})"
    with source.block(f'extern "C" __global__ void {bound} {cxx.kernel_symbol(name)}({", ".join(_parameters(e))})'):
        for alias_name, layout in layouts.items():
            source.write(f"using {alias_name} = {layout.spelling};")
        frame = len(source.lines)
        source.write("// views")
        for arg in kernel.region.block.args:
            if isinstance(arg.type, ViewType) and not e.only_fetched(arg):
                _declare_view(e, arg)
        with _programs(e):
            if prints(kernel):
                e.headers.add("print")
                source.write(f"ts::Printer printer(prints, {e.number});")
            timer = len(source.lines)
            if settings.profile:
                e.headers.add("timer")
                source.write()
            HANDLERS["tile.func"](e, kernel)
            e.emit_block(kernel.region.block)
            # Known now: shared tiles lie behind the scratch area.
            e.scratch = -(-e.scratch // e.alignment) * e.alignment
            source.lines[frame] = f"  constexpr int shared = {e.scratch};" if e.shared_bytes else ""
            if settings.profile:
                source.lines[timer] = "  " * source.indent + _timer(e)
    return e


def _timer(e: KernelEmitter) -> str:
    """Writes what reads the clock; the declaration of what counts, behind all else in shared memory."""
    place = e.scratch + e.shared_bytes
    e.phases = e.marks.write(e.settings.shared_limit - place)
    count = len(e.phases)
    if count:
        e.reserve_bytes(state_bytes(count))
    return f"ts::Timer<{count}> timer(records, {e.number}{f', {place}' if count else ''});"


def goes_on(e: KernelEmitter) -> bool:
    """Whether a block runs other programs when one is done. Barriers of tensor copies count those of one program."""
    return bool(e.kernel.attrs.get("persistent")) and not e.maps


@contextmanager
def _programs(e: KernelEmitter) -> Generator[None]:
    """The code around a program: its number, and the loop over all programs that its block runs."""
    w, rows = e.source, e.kernel.attrs.get("grouped")
    grid = cast("tuple[Dim, ...]", e.kernel.attrs["grid"])

    def name(turn: str) -> None:
        e.number = turn
        if rows is not None:
            e.number = e.fresh("number")
            sizes = f"{cxx.size(grid[-2])}, {cxx.size(grid[-1])}, {rows}"
            w.write(f"const ts::idx {e.number} = ts::grouped({turn}, {sizes});")

    if not goes_on(e):
        name("ts::program()")
        yield
        return
    turn = e.fresh("turn")
    with w.block(
        f"for (ts::idx {turn} = ts::hw::block(); {turn} < {cxx.size(prod(grid))}; {turn} += ts::hw::blocks())"
    ):
        name(turn)
        yield
        e.headers.add("shared")
        w.write("ts::barrier();")  # shared memory is the next program's


_FIXED = ("shared", "leader", "copies", "faults", "records", "timer", "prints", "printer")
"""names that generated code uses as they are; what people name so is called otherwise there"""


def parameters(kernel: Op, settings: EmitSettings) -> list[tuple[str, str]]:
    """The kernel's arguments as (kind, detail): ("view", index), ("scalar", index), ("dim", name), ("records", "")."""
    out: list[tuple[str, str]] = []
    for i, arg in enumerate(kernel.region.block.args):
        out.append(("view" if isinstance(arg.type, ViewType) else "scalar", str(i)))
    out += [("dim", d) for d in free_dims(kernel)]
    if settings.debug:
        out.append(("faults", ""))
    if settings.profile:
        out.append(("records", ""))
    if prints(kernel):
        out.append(("prints", ""))
    return out


def free_dims(kernel: Op) -> list[str]:
    """The dims whose sizes the kernel's code needs at launch."""
    found: set[str] = set()

    def take(dims: object) -> None:
        for d in cast("tuple[Dim, ...]", dims or ()):
            found.update(symbols(d))

    take(kernel.attrs["grid"])
    for op in kernel.walk():
        values = [*op.results, *(v for r in op.regions for v in r.block.args)]
        for v in values:
            if isinstance(v.type, (TileType, ViewType, SharedType)):
                take(v.type.shape)
            if isinstance(v.type, ViewType):
                take(v.type.strides)
        take((op.attrs["dim"],) if "dim" in op.attrs else ())
        take(op.attrs.get("sizes"))
    return sorted(found)


def _parameters(e: KernelEmitter) -> list[str]:
    out: list[str] = []
    writes: tuple[int, ...] = e.kernel.attrs.get("writes", ())  # type: ignore[assignment]
    for i, arg in enumerate(e.kernel.region.block.args):
        if isinstance(arg.type, ViewType):
            name = e.fresh(arg.hint or f"arg{i}")
            e.env[arg] = name
            const = "" if i in writes or _stored(e.kernel, arg) else "const "
            pointer = e.fresh(f"{name}_data")
            e.views[arg] = pointer
            out.append(f"{const}{cxx.type_name(arg.type.dtype)}* {pointer}")
        else:
            e.env[arg] = e.fresh(arg.hint or f"arg{i}")
            out.append(f"{cxx.type_name(dtype_of(arg))} {e.env[arg]}")
    for d in free_dims(e.kernel):
        out.append(f"ts::idx {cxx.dim_name(d)}")
    if e.settings.debug:
        out.append("ts::Faults* faults")
    if e.settings.profile:
        out.append("ts::Records* records")
    if prints(e.kernel):
        out.append("ts::u8* prints")
    for tensor in e.maps:
        name = e.tensor_maps[tensor] = e.fresh(f"{e.env[e.kernel.region.block.args[tensor.argument]]}_map")
        out.append(f"const __grid_constant__ ts::TensorMap {name}")
    return out


def _stored(kernel: Op, arg: Value) -> bool:
    """Whether a view is stored to, through any window of it."""
    for op in kernel.walk():
        if op.name in ("tile.store", "tile.scatter"):
            v = op.operands[0]
            while v.op is not None and v.op.name == "tile.subview":
                v = v.op.operands[0]
            if v is arg:
                return True
    return False


def contiguous_strides(shape: Sequence[Dim]) -> list[Dim]:
    out: list[Dim] = []
    step: Dim = 1
    for d in reversed(shape):
        out.append(step)
        step = step * d
    return out[::-1]


def _declare_view(e: KernelEmitter, arg: Value) -> None:
    t = arg.type
    assert isinstance(t, ViewType)
    writes: tuple[int, ...] = e.kernel.attrs.get("writes", ())  # type: ignore[assignment]
    const = "" if arg.index in writes or _stored(e.kernel, arg) else "const "
    strides = t.strides if t.strides is not None else contiguous_strides(t.shape)
    shape = cxx.braces(map(cxx.size, t.shape)) if t.rank else "{1}"
    steps = cxx.braces(map(cxx.size, strides)) if t.rank else "{1}"
    e.source.write(
        f"ts::View<{const}{cxx.type_name(t.dtype)}, {t.rank}> {e.env[arg]}{{{e.views[arg]}, {shape}, {steps}}};"
    )
