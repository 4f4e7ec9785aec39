"""Schedule IR to a Program: one tile kernel (or a fixed few) per group, and the buffers between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands
from tessera.compiler.ir.checks import Check
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import Shape, TensorType, TileType, ViewType
from tessera.compiler.lower.access import Access, access, collapse, reads, sizes, written
from tessera.compiler.lower.alignment import Axes, align, shape_of
from tessera.compiler.lower.contract_kernel import contract_kernel
from tessera.compiler.lower.kernel_writer import Argument, KernelWriter, Space
from tessera.compiler.lower.layout import contiguous, is_view, kind_of, layout_of
from tessera.compiler.schedule.blocks import map_block, row_block
from tessera.compiler.schedule.cost import CHUNK
from tessera.compiler.tile.program import Branch, Buffer, Launch, Loop, Param, Program, ScalarArg, Step, Window
from tessera.errors import Span
from tessera.language import dtypes
from tessera.language.dims import Dim, ceildiv, prod, symbols


@dataclass(slots=True)
class GroupBody:
    """A `schedule.group` read back: its graph ops, and how its values lie on the space."""

    group: Op
    ops: list[Op]
    axes: dict[Value, Axes]
    space: Shape
    inner: tuple[int, ...]

    @staticmethod
    def of(group: Op) -> GroupBody:
        space: Any = group.attrs["space"]
        inner: Any = group.attrs["inner"]
        body = group.region.block
        ops = [op for op in body.ops[:-1] if not is_view(op) and kind_of(op) != "generate"]
        axes: dict[Value, Axes] = {}
        if group.attrs["kind"] == "contract":
            axes[ops[0].result] = tuple(a if d != 1 else -1 for a, d in enumerate(space))
        for op in ops:
            if kind_of(op) not in ("contract", "join", "pad"):
                added = align(op, axes, space)
                assert added is not None, "graph_to_schedule has aligned it"
                axes.update(added)
        return GroupBody(group, ops, axes, space, inner)

    @property
    def results(self) -> Sequence[Value]:
        return self.group.region.block.terminator.operands

    def accesses(self) -> list[Access]:
        return [a for op in self.ops for _, a in reads(op, self.axes, self.space)]


@dataclass(slots=True)
class ProgramBuilder:
    """Collects buffers and launches. `of` maps function-level values to buffer ids, `scalars` to scalar parameters."""

    name: str
    params: tuple[Param, ...]
    device: str
    buffers: list[Buffer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    of: dict[Value, int] = field(default_factory=dict)
    scalars: dict[Value, int] = field(default_factory=dict)
    kernels: int = 0

    def buffer(self, v: Value, shape: Shape, dtype: dtypes.DType, role: Any, param: int | None = None) -> int:
        self.of[v] = len(self.buffers)
        self.buffers.append(Buffer(len(self.buffers), v.hint or f"t{len(self.buffers)}", shape, dtype, role, param))
        return self.of[v]

    def temp(self, v: Value) -> int:
        t = v.type
        assert isinstance(t, TensorType)
        return self.buffer(v, t.shape, t.dtype, "temp")

    def launch(
        self, kernel: Op, arguments: Sequence[Argument], inside: dict[Value, Value], label: str, flops: Dim, span: Span
    ) -> None:
        """Adds a launch; `inside` maps the group's own values to function-level ones."""
        args: list[Window | ScalarArg] = []
        moved: Dim = 0
        for a in arguments:
            outer = inside.get(a.base, a.base)
            if outer in self.scalars:
                args.append(ScalarArg(self.scalars[outer], a.type.dtype))
                continue
            args.append(Window(self.of[outer], a.offset))
            assert isinstance(a.type, ViewType)
            moved = moved + _touched(a.type) * a.type.dtype.itemsize
        self.steps.append(Launch(kernel, tuple(args), span, flops, moved, label))

    @contextmanager
    def collect(self) -> Iterator[list[Step]]:
        """Steps added inside go into the list it gives."""
        outer, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = outer

    def kernel_name(self, label: str) -> str:
        words = "_".join(w for w in label.replace("+", " ").split() if w.isidentifier())
        self.kernels += 1
        return f"{self.name}_{self.kernels - 1}_{words}"[:60]


def _touched(view: ViewType) -> Dim:
    """Distinct elements behind a view."""
    strides = view.strides if view.strides is not None else (1,) * view.rank
    return prod(d for d, s in zip(view.shape, strides, strict=True) if s != 0)


def schedule_to_tile(func: Op, params: Sequence[Param], checks: Sequence[Check], device: str, tuple_result: bool) -> Program:
    """Lowers every group. `device` ("cpu" or "cuda") chooses block sizes."""
    out = ProgramBuilder(str(func.attrs["sym_name"]), tuple(params), device)
    block = func.region.block
    for i, (arg, param) in enumerate(zip(block.args, params, strict=True)):
        if param.shape is None:
            out.scalars[arg] = i
        else:
            out.buffer(arg, param.shape, param.dtype, "input", i)
    lower_block(block, out)
    outputs = [_output(v, out) for v in block.terminator.operands]
    free = sorted({s for b in out.buffers for d in b.shape for s in symbols(d)})
    return Program(out.name, out.params, tuple(out.buffers), tuple(out.steps), tuple(outputs), tuple(free), tuple(checks),
                   func.span, tuple_result)  # fmt: skip


def lower_block(block: Block, out: ProgramBuilder) -> None:
    """Lowers everything but the terminator; views stand for themselves."""
    for op in block.ops[:-1]:
        if op.name == "schedule.group":
            _LOWER[str(op.attrs["kind"])](op, out)
        elif op.name == "schedule.if":
            _branch(op, out)
        elif op.name == "schedule.while":
            _loop(op, out)


def _branch(op: Op, out: ProgramBuilder) -> None:
    for r in op.results:
        out.temp(r)
    arms: list[tuple[Step, ...]] = []
    for region in op.regions:
        with out.collect() as steps:
            lower_block(region.block, out)
            for v, r in zip(region.block.terminator.operands, op.results, strict=True):
                copy_value(v, r, op.span, out)
        arms.append(tuple(steps))
    out.steps.append(Branch(out.of[_owner(op.operands[0])], arms[0], arms[1]))


def _loop(op: Op, out: ProgramBuilder) -> None:
    """The carried values live in the results' buffers; the next ones are computed beside them, then copied over."""
    head, body = (r.block for r in op.regions)
    for v, r in zip(op.operands, op.results, strict=True):
        out.temp(r)
        copy_value(v, r, op.span, out)
    for block in (head, body):
        out.of.update((a, out.of[r]) for a, r in zip(block.args, op.results, strict=True))
    with out.collect() as before:
        lower_block(head, out)
    with out.collect() as inside:
        lower_block(body, out)
        for v, r in zip(body.terminator.operands, op.results, strict=True):
            copy_value(v, r, op.span, out)
    out.steps.append(Loop(out.of[_owner(head.terminator.operands[0])], tuple(before), tuple(inside)))


def _owner(v: Value) -> Value:
    layout = layout_of(v)
    assert layout is not None and layout.whole
    return layout.base


def _output(v: Value, out: ProgramBuilder) -> int:
    """Makes the buffer behind a result an output, under the result's shape."""
    layout = layout_of(v)
    assert layout is not None and layout.whole
    i = out.of[layout.base]
    out.buffers[i] = replace(out.buffers[i], role="output", shape=layout.shape, name=v.hint or out.buffers[i].name)
    return i


def _flops(ops: Sequence[Op]) -> Dim:
    total: Dim = 0
    for op in ops:
        operands: list[Any] = [
            [v.type for v in o] if isinstance(o, list) else None if o is None else o.type for o in split_operands(op)
        ]
        total = total + operator_of(op).flops(operands, [r.type for r in op.results], **attributes_of(op))  # type: ignore[misc]
    return total


def _inside(group: Op) -> dict[Value, Value]:
    """The group's own values to the function-level ones they stand for."""
    body = group.region.block
    known = dict(zip(body.args, group.operands, strict=True))
    return known | dict(zip(body.terminator.operands, group.results, strict=True))


def _scalars(group: Op, out: ProgramBuilder) -> set[Value]:
    return {a for a, v in zip(group.region.block.args, group.operands, strict=True) if v in out.scalars}


def _segments(body: GroupBody) -> list[tuple[Dim | None, ...]]:
    """Walks that must not be merged across: those of values inside the group, of iotas and of gathered axes."""
    out: list[tuple[Dim | None, ...]] = []
    for own in body.axes.values():
        out.append(tuple(0 if a in own else None for a in range(len(body.space))))
    for op in body.ops:
        if kind_of(op) == "gather":
            axis, rank = int(attributes_of(op)["axis"]), len(shape_of(op.operands[1]))
            own = body.axes[op.result]
            for part in (own[:axis], own[axis : axis + rank], own[axis + rank :]):
                out.append(tuple(0 if a in part else None for a in range(len(body.space))))
    return out


def _space(body: GroupBody, out: ProgramBuilder) -> Space:
    results = [written(v, body.axes[v], body.space).strides for v in body.results]
    walks = [*[a.strides for a in body.accesses()], *results, *_segments(body), *_generated_walks(body)]
    kinds = [a in body.inner for a in range(len(body.space))]
    groups = collapse(body.space, kinds, walks) or [tuple(range(len(body.space)))]
    dims = sizes(body.space, groups)
    inner = tuple(bool(g) and kinds[g[0]] for g in groups)
    block = row_block(dims, inner, out.device) if any(inner) else map_block(dims, out.device)
    return Space(body.space, groups, dims, block, inner)


def _generated_walks(body: GroupBody) -> list[tuple[Dim | None, ...]]:
    """Positions within a random tensor run in its own memory order, whatever else is merged."""
    return [
        written(op.result, body.axes[op.result], body.space).strides for op in body.ops if kind_of(op) == "random"
    ]


def _elementwise(group: Op, out: ProgramBuilder) -> None:
    body = GroupBody.of(group)
    writer = KernelWriter(_space(body, out), body.axes, _scalars(group, out), group.span)
    for op in body.ops:
        writer.compute(op)
    for v, result in zip(body.results, group.results, strict=True):
        out.temp(result)
        writer.store(v, written(v, body.axes[v], body.space))
    label = str(group.attrs["label"])
    kernel = writer.finish(out.kernel_name(label))
    out.launch(kernel, writer.arguments, _inside(group), label, _flops(body.ops), group.span)


def _chunks(group: Op, out: ProgramBuilder) -> None:
    """A long reduction: one partial result per CHUNK elements, then one program that combines them in order."""
    body = GroupBody.of(group)
    (fold,) = [op for op in body.ops if kind_of(op) == "reduce"]
    axes = tuple(a for a, d in enumerate(body.space) if d != 1)
    n = prod(body.space)
    count = ceildiv(n, CHUNK)
    writer = KernelWriter(Space(body.space, [axes], (n,), (CHUNK,), (False,)), body.axes, _scalars(group, out), group.span)
    for op in body.ops[: body.ops.index(fold)]:
        writer.compute(op)
    name = fold.name.partition(".")[2]
    b = writer.b
    with b.at(fold.span):
        x = writer.stretch(writer.operand(fold, fold.operands[0]), (True,))
        wide = partial_dtype(fold)
        x = b.cast(x, wide)
        if not isinstance(n, int) or n % CHUNK:
            position = writer.linear((1,), 0)
            size = b.value("tile.to_scalar", (b.index(n),), TileType((), dtypes.int64))
            inside = b.map("lt", position, b.broadcast(size, (CHUNK,), ()))
            x = b.map("where", inside, x, b.full((CHUNK,), identity(name, wide), wide))
        partial = b.reshape(b.reduce(name, x, (0,)), (1,))
        span = fold.span
        partials = Op("graph.partials", (), (TensorType((count,), wide),), span, {}, hints=("partials",)).result
        out.temp(partials)
        view = writer.window(partials, 0, ViewType((count,), wide), "partials", write=True)
        b.store(view, partial, [b.program_id(0) if writer.grid else b.index(0)])
    label = str(group.attrs["label"])
    out.launch(writer.finish(out.kernel_name(label)), writer.arguments, _inside(group), label, _flops(body.ops), span)
    _combine(group, fold, partials, name, out)


def _combine(group: Op, fold: Op, partials: Value, name: str, out: ProgramBuilder) -> None:
    t = partials.type
    assert isinstance(t, TensorType)
    writer = KernelWriter(Space((1,), [(0,)], (1,), (1,), (False,)), {}, set(), fold.span)
    b = writer.b
    view = writer.window(partials, 0, ViewType(t.shape, t.dtype), "partials")
    whole = b.load(view, [b.index(0)], t.shape)
    result = group.results[0]
    rt = result.type
    assert isinstance(rt, TensorType)
    total = b.cast(b.reshape(b.reduce(name, whole, (0,)), (1,)), rt.dtype)
    out.temp(result)
    target = writer.window(result, 0, ViewType((1,), rt.dtype), result.hint or "out", write=True)
    b.store(target, total, [b.index(0)])
    label = f"{name} of partials"
    out.launch(writer.finish(out.kernel_name(label)), writer.arguments, {}, label, t.shape[0], fold.span)


def partial_dtype(fold: Op) -> dtypes.DType:
    if fold.name in ("graph.any", "graph.all"):
        return dtypes.bool_
    t = fold.result.type
    assert isinstance(t, TensorType)
    return t.policy.accum if t.policy and t.policy.accum else t.dtype.compute


def identity(name: str, dtype: dtypes.DType) -> bool | int | float:
    """The value that changes nothing in a reduction."""
    if name in ("sum", "any"):
        return False if dtype.kind == "bool" else 0.0 if dtype.is_float else 0
    if name in ("prod", "all"):
        return True if dtype.kind == "bool" else 1.0 if dtype.is_float else 1
    low = name == "max"
    if dtype.is_float:
        return float("-inf") if low else float("inf")
    if dtype.kind == "uint":
        return 0 if low else int(2**dtype.bits - 1)
    return -(2 ** (dtype.bits - 1)) if low else 2 ** (dtype.bits - 1) - 1


def _contract(group: Op, out: ProgramBuilder) -> None:
    body = GroupBody.of(group)
    for result in group.results:
        out.temp(result)
    label = str(group.attrs["label"])
    kernel, arguments = contract_kernel(body, _scalars(group, out), out.device, out.kernel_name(label))
    out.launch(kernel, arguments, _inside(group), label, _flops(body.ops), group.span)


def copy_value(v: Value, into: Value, span: Span, out: ProgramBuilder) -> None:
    """A launch that copies a function-level value into the buffer of another of its shape."""
    own: Axes = tuple(a if d != 1 else -1 for a, d in enumerate(shape_of(v)))
    _copy(v, written(into, own, shape_of(v)), set(out.scalars), {}, span, out, "copy")


def _copy(
    v: Value, target: Access, scalars: set[Value], inside: dict[Value, Value], span: Span, out: ProgramBuilder, what: str
) -> None:
    """A kernel that copies the window `v` into the window `target`."""
    layout = layout_of(v)
    assert layout is not None
    space = shape_of(v)
    own: Axes = tuple(a if d != 1 else -1 for a, d in enumerate(space))
    source = access(layout, own, space)
    groups = collapse(space, [0] * len(space), [source.strides, target.strides]) or [tuple(range(len(space)))]
    dims = sizes(space, groups)
    writer = KernelWriter(Space(space, groups, dims, map_block(dims, out.device), (False,) * len(dims)), {}, scalars, span)
    base = layout.base
    if base in scalars:
        writer.tiles[v] = writer.unit(writer.scalar(base))
    elif base.op is not None and kind_of(base.op) == "generate":
        writer.tiles[v] = writer.generated(base.op, source)
    else:
        writer.tiles[v] = writer.load(source, v.hint or "x")
    writer.store(v, target)
    out.launch(writer.finish(out.kernel_name(what)), writer.arguments, inside, what, 0, span)


def _join(group: Op, out: ProgramBuilder) -> None:
    """concat and pad: each input is copied into its window of the result, which pad has filled before."""
    body = GroupBody.of(group)
    (op,) = body.ops
    (result,) = group.results
    out.temp(result)
    strides = contiguous(shape_of(result))
    if op.name == "graph.pad":
        _fill(group, op, out)
    operator: Any = operator_of(op)
    starts = operator.windows([shape_of(v) for v in op.operands], **attributes_of(op))
    for v, start in zip(op.operands, starts, strict=True):
        offset: Dim = 0
        for s, at in zip(strides, start, strict=True):
            offset = offset + s * at
        target = Access(op.result, offset, tuple(s if d != 1 else None for s, d in zip(strides, shape_of(v), strict=True)))
        _copy(v, target, _scalars(group, out), _inside(group), group.span, out, op.name.partition(".")[2])


def _fill(group: Op, op: Op, out: ProgramBuilder) -> None:
    n = prod(shape_of(op.result))
    t = op.result.type
    assert isinstance(t, TensorType)
    writer = KernelWriter(Space((n,), [(0,)], (n,), map_block((n,), out.device), (False,)), {}, set(), group.span)
    value: Any = op.attrs["value"]
    kept = bool(value) if t.dtype.kind == "bool" else float(value) if t.dtype.is_float else int(value)
    writer.tiles[op.result] = writer.unit(writer.b.constant(kept, t.dtype))
    writer.store(op.result, Access(op.result, 0, (1,)))
    out.launch(writer.finish(out.kernel_name("fill")), writer.arguments, _inside(group), "fill", 0, group.span)


_LOWER: dict[str, Callable[[Op, ProgramBuilder], None]] = {
    "map": _elementwise,
    "row": _elementwise,
    "chunks": _chunks,
    "contract": _contract,
    "join": _join,
}
