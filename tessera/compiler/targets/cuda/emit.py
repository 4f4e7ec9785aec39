"""Tile IR -> CUDA C++: the frame of a kernel, names, index arithmetic and control flow. One statement per tile op.

Ops are written by handlers, registered by name in `HANDLERS` by this file and its neighbours `emit_*.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import IndexType, SharedType, TileType, ViewType
from tessera.compiler.targets.cuda import cxx, stream
from tessera.compiler.targets.cuda.barriers import barriers, shared_source
from tessera.compiler.targets.cuda.bounds import Bounds
from tessera.compiler.targets.cuda.groups import Grouping, Line, dtype_of, is_tile, squeezed
from tessera.compiler.targets.cuda.layout import Layout
from tessera.compiler.targets.cuda.source import Source
from tessera.errors import Diagnostic, Span, TargetError
from tessera.language.dims import Dim, symbols
from tessera.language.dtypes import DType

Handler = Callable[["KernelEmitter", Op], None]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers the decorated function as the writer of these ops (without the dialect's prefix)."""

    def add(handler: Handler) -> Handler:
        HANDLERS.update({f"tile.{name}": handler for name in names})
        return handler

    return add


@dataclass(slots=True)
class Settings:
    """What a kernel is compiled for. `tensor_cores`: the dtypes that its mma instructions take."""

    arch: int
    tensor_cores: frozenset[DType]
    shared_limit: int
    profile: bool = False
    debug: bool = False


@dataclass(slots=True)
class KernelEmitter:
    """Writes one kernel. `env` holds the C++ expression of every value; `splat` those tiles that are one scalar."""

    kernel: Op
    grouping: Grouping
    threads: int
    settings: Settings
    source: Source
    alias: Mapping[Value, Value]
    bounds: Bounds
    env: dict[Value, str] = field(default_factory=dict[Value, str])
    splat: set[Value] = field(default_factory=set[Value])
    origin: dict[Line, str] = field(default_factory=dict[Line, str])
    partial: dict[Op, str] = field(default_factory=dict[Op, str])
    views: dict[Value, str] = field(default_factory=dict[Value, str])
    names: set[str] = field(default_factory=set[str])
    headers: set[str] = field(default_factory=set[str])
    needed: dict[Op, bool] = field(default_factory=dict[Op, bool])
    shared: dict[Value | tuple[Op, int], int] = field(default_factory=dict["Value | tuple[Op, int]", int])
    shared_bytes: int = 0
    scratch: int = 0
    asserts: list[tuple[str, object]] = field(default_factory=list["tuple[str, object]"])

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
        self.env[v] = name
        return name

    def expr(self, v: Value) -> str:
        return self.env[v]

    def layout(self, v: Value) -> str:
        """The name of a tile's layout in the source."""
        return self.grouping.of(v).name

    def layout_of(self, v: Value) -> Layout:
        layout = self.grouping.of(v).layout
        assert layout is not None
        return layout

    def tile(self, v: Value) -> str:
        """A tile as a tile: a scalar that stands for all its elements is written out."""
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

    def lines_by_axis(self, v: Value) -> dict[int, Line]:
        """For each of a tile's own axes that is an axis of its matrix by itself, that axis."""
        assert isinstance(v.type, TileType)
        if not is_tile(v):
            return {}
        kept = squeezed(v.type.shape)
        group = self.grouping.of(v)
        row, col = group.lines
        out: dict[int, Line] = {}
        if len(kept) - group.split == 1:
            out[kept[-1]] = col
        if group.split == 1:
            out[kept[0]] = row
        return out

    def refuse(self, op: Op, why: str, code: str = "TS602") -> TargetError:
        return TargetError(Diagnostic(code, why, op.span))

    def reads_shared(self, product: Op, operand: int) -> bool:
        """Whether a product reads this operand from the shared tile that it was loaded from."""
        return operand < 2 and shared_source(product.operands[operand], product)[0] is not None

    # shared memory
    def reserve(self, key: Value | tuple[Op, int], size: int) -> int:
        """The place of a shared tile in the block's dynamic shared memory, behind the scratch area."""
        if key not in self.shared:
            self.shared[key] = self.shared_bytes
            self.shared_bytes += -(-size // 128) * 128
        return self.shared[key]

    def need_scratch(self, size: int) -> None:
        self.scratch = max(self.scratch, -(-size // 128) * 128)

    # blocks
    def emit_block(self, block: Block) -> None:
        for node in stream.plan(block.ops, self.grouping):
            self.emit_node(node)

    def emit_node(self, node: Op | stream.Pass) -> None:
        if isinstance(node, stream.Pass):
            return self.emit_pass(node)
        self.source.at(node.span)
        if node in self.needed:
            self.headers.add("shared")
            self.source.write("ts::barrier();" if self.needed[node] else "ts::sync();")
        handler = HANDLERS.get(node.name)
        if handler is None:
            raise self.refuse(node, f"The CUDA target has no code for {node.name}")
        handler(self, node)

    def emit_pass(self, node: stream.Pass) -> None:
        """A loop over the chunks of one axis, with the partial results that it fills before it."""
        line = node.line
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
                    HANDLERS["tile.accumulate_partials"](self, inner)
                else:
                    self.emit_node(inner)
        self.env, self.splat = saved  # what was computed in the loop is out of scope
        del self.origin[line]
        for op in node.folds:
            self.source.at(op.span)
            HANDLERS["tile.end_partials"](self, op)


def emit_kernel(
    kernel: Op,
    name: str,
    grouping: Grouping,
    threads: int,
    settings: Settings,
    source: Source,
    alias: Mapping[Value, Value],
    aligned: frozenset[Value],
) -> KernelEmitter:
    """Writes `kernel`, known as `name`, as a __global__ function; the result knows its headers and shared memory."""
    layouts = grouping.assign(threads, settings.tensor_cores)
    e = KernelEmitter(kernel, grouping, threads, settings, source, alias, Bounds(kernel, aligned))
    e.needed = barriers(kernel, grouping, alias)
    e.names |= {cxx.kernel_symbol(name), "ts"}
    source.at(kernel.span)
    e.names |= {*layouts, "shared"}
    bound = f"__launch_bounds__({threads})"
    with source.block(f'extern "C" __global__ void {bound} {cxx.kernel_symbol(name)}({", ".join(_parameters(e))})'):
        for alias_name, layout in layouts.items():
            source.write(f"using {alias_name} = {layout.spelling};")
        frame = len(source.lines)
        source.write("// views")
        for arg in kernel.region.block.args:
            if isinstance(arg.type, ViewType):
                _declare_view(e, arg)
        if settings.profile:
            e.headers.add("timer")
            source.write("ts::Timer timer(records);")
        e.emit_block(kernel.region.block)
        if settings.profile:
            source.write("timer.stop();")
    # Known now: shared tiles lie behind the scratch area.
    source.lines[frame] = f"  constexpr int shared = {e.scratch};" if e.shared else ""
    return e


def parameters(kernel: Op, settings: Settings) -> list[tuple[str, str]]:
    """The kernel's arguments as (kind, detail): ("view", index), ("scalar", index), ("dim", name), ("records", "")."""
    out: list[tuple[str, str]] = []
    for i, arg in enumerate(kernel.region.block.args):
        out.append(("view" if isinstance(arg.type, ViewType) else "scalar", str(i)))
    out += [("dim", d) for d in free_dims(kernel)]
    if settings.debug:
        out.append(("faults", ""))
    if settings.profile:
        out.append(("records", ""))
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
        e.names.add(cxx.dim_name(d))
        out.append(f"ts::idx {cxx.dim_name(d)}")
    if e.settings.debug:
        out.append("ts::Faults* faults")
        e.names.add("faults")
    if e.settings.profile:
        out.append("ts::TileRecord* records")
        e.names |= {"records", "timer"}
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


# index arithmetic
@handles("program_id")
def _program_id(e: KernelEmitter, op: Op) -> None:
    grid: tuple[Dim, ...] = op_kernel(op).attrs["grid"]  # type: ignore[assignment]
    axis = int(op.attrs["axis"])  # type: ignore[call-overload]
    if grid[axis] == 1:
        e.env[op.result] = "0"
        return
    inner: Dim = 1
    for d in grid[axis + 1 :]:
        inner = inner * d
    text = "ts::program()" if inner == 1 else f"ts::program() / {cxx.size(inner)}"
    if axis > 0:
        text = f"{text} % {cxx.size(grid[axis])}"
    e.let(op.result, text, f"program_{axis}" if len(grid) > 1 else "program", "ts::idx")


def op_kernel(op: Op) -> Op:
    while op.name != "tile.func":
        parent = op.parent
        assert parent is not None
        op = parent
    return op


@handles("dim")
def _dim(e: KernelEmitter, op: Op) -> None:
    e.env[op.result] = cxx.size(op.attrs["dim"])  # type: ignore[arg-type]


@handles("iadd", "isub", "imul", "idiv", "imod", "imin", "imax")
def _index(e: KernelEmitter, op: Op) -> None:
    a, b = (e.expr(v) for v in op.operands)
    name = op.name.removeprefix("tile.")
    symbol = {"iadd": "+", "isub": "-", "imul": "*"}.get(name)
    text = f"{a} {symbol} {b}" if symbol else f"ts::{name}({a}, {b})"
    e.let(op.result, text, "i", "ts::idx")


@handles("to_scalar")
def _to_scalar(e: KernelEmitter, op: Op) -> None:
    e.env[op.result] = f"ts::cast<{cxx.type_name(dtype_of(op.result))}>((ts::idx)({e.expr(op.operands[0])}))"


@handles("to_index")
def _to_index(e: KernelEmitter, op: Op) -> None:
    e.let(op.result, f"(ts::idx){e.expr(op.operands[0])}", "i", "ts::idx")


@handles("constant")
def _constant(e: KernelEmitter, op: Op) -> None:
    e.env[op.result] = cxx.literal(op.attrs["value"], dtype_of(op.result))


# control flow
def _carry(e: KernelEmitter, initial: Sequence[Value], args: Sequence[Value]) -> list[str]:
    """Variables for loop-carried values, set to the initial ones."""
    names: list[str] = []
    for v, arg in zip(initial, args, strict=True):
        name = e.fresh(arg.hint or v.hint or "carried")
        value = e.tile(v) if is_tile(v) else e.expr(v)
        e.source.write(f"{e.type_of(arg)} {name} = {value};")
        names.append(name)
    for name, arg in zip(names, args, strict=True):
        e.env[arg] = name
    return names


def _advance(e: KernelEmitter, names: Sequence[str], values: Sequence[Value]) -> None:
    """Parallel assignment of the next values."""
    texts = [e.tile(v) if is_tile(v) else e.expr(v) for v in values]
    moving = [i for i, (name, text) in enumerate(zip(names, texts, strict=True)) if name != text]
    if len(moving) > 1:
        for i in moving:
            if not texts[i].isidentifier() or texts[i] in names:
                held = e.fresh(f"next_{names[i]}")
                e.source.write(f"auto {held} = {texts[i]};")
                texts[i] = held
    for i in moving:
        e.source.write(f"{names[i]} = {texts[i]};")


@handles("for")
def _for(e: KernelEmitter, op: Op) -> None:
    lower, upper, step = (e.expr(v) for v in op.operands[:3])
    body = op.region.block
    names = _carry(e, op.operands[3:], body.args[1:])
    counter = e.fresh(body.args[0].hint or "i")
    e.env[body.args[0]] = counter
    with e.source.block(f"for (ts::idx {counter} = {lower}; {counter} < {upper}; {counter} += {step})"):
        e.emit_block(body)
        e.source.at(body.terminator.span)
        _advance(e, names, body.terminator.operands)
    e.env.update(zip(op.results, names, strict=True))


@handles("while")
def _while(e: KernelEmitter, op: Op) -> None:
    test, body = op.regions[0].block, op.regions[1].block
    names = _carry(e, op.operands, test.args)
    e.env.update(zip(body.args, names, strict=True))
    with e.source.block("while (true)"):
        e.emit_block(test)
        e.source.write(f"if (!({e.expr(test.terminator.operands[0])})) break;")
        e.emit_block(body)
        _advance(e, names, body.terminator.operands)
    e.env.update(zip(op.results, names, strict=True))


@handles("if")
def _if(e: KernelEmitter, op: Op) -> None:
    names: list[str] = []
    for r in op.results:
        names.append(e.fresh(r.hint or "chosen"))
        e.source.write(f"{e.type_of(r)} {names[-1]};")
    for head, region in zip((f"if ({e.expr(op.operands[0])})", "else"), op.regions, strict=True):
        block = region.block
        if head == "else" and len(block.ops) == 1 and not names:
            continue
        with e.source.block(head):
            e.emit_block(block)
            _advance(e, names, block.terminator.operands)
    e.env.update(zip(op.results, names, strict=True))


@handles("yield", "return")
def _terminator(e: KernelEmitter, op: Op) -> None:
    """Loops and branches assign what is yielded; a kernel's outputs have been stored."""


@handles("barrier")
def _barrier(e: KernelEmitter, op: Op) -> None:
    e.headers.add("shared")
    e.source.write("ts::barrier();")
