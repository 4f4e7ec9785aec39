"""Writers of elementwise ops, reductions, scans, random numbers and the moves between layouts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, contiguous_strides, handles
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_scalar, is_tile, shape_of, squeezed
from tessera.compiler.targets.cuda.layouts.layout import blocked, fold_scratch
from tessera.compiler.targets.cuda.layouts.stream import folded_line
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.targets.cuda.write.print_buffer import HEADER, PrintSite, times
from tessera.language.dims import Dim
from tessera.language.scalars import TABLE, identity_of


def _elementwise(e: KernelEmitter, op: Op) -> None:
    name = op.name.partition(".")[2]
    operands = [e.expr(v) for v in op.operands]
    out = dtype_of(op.result)
    if TABLE[name].gives == "float" and dtype_of(op.operands[-1]) != out:
        operands = [f"ts::cast<{cxx.type_name(out)}>({x})" for x in operands]
    if is_tile(op.result) and all(v in e.splat for v in op.operands):
        e.splat.add(op.result)
    e.let(op.result, f"ts::{name}({', '.join(operands)})")


handles(*TABLE)(_elementwise)


@handles("cast", "bitcast")
def _cast(e: KernelEmitter, op: Op) -> None:
    x = op.operands[0]
    if x in e.splat:
        e.splat.add(op.result)
    name = op.name.partition(".")[2]
    e.let(op.result, f"ts::{name}<{cxx.type_name(dtype_of(op.result))}>({e.expr(x)})", x.hint or name)


@handles("iota")
def _iota(e: KernelEmitter, op: Op) -> None:
    v = op.result
    dtype = cxx.type_name(dtype_of(v))
    axis = int(op.attrs["axis"])  # type: ignore[call-overload]
    if is_scalar(v):
        e.env[v] = cxx.literal(0, dtype_of(v))
        return
    line = e.lines_by_axis(v).get(axis)
    origin = e.origin.get(line, "") if line is not None else ""
    e.let(v, f"ts::iota<{dtype}, {e.layout(v)}, {e.box(v)}, {axis}>({origin})")


@handles("philox")
def _philox(e: KernelEmitter, op: Op) -> None:
    e.headers.add("random")
    if is_tile(op.result) and all(v in e.splat for v in op.operands):
        e.splat.add(op.result)
    counter, key = (e.expr(v) for v in op.operands)
    e.let(op.result, f"ts::philox({counter}, {key})", "bits")


# moves
@handles("broadcast")
def _broadcast(e: KernelEmitter, op: Op) -> None:
    x, t = op.operands[0], op.result
    if not is_tile(t):
        e.env[t] = e.expr(x)
    elif is_scalar(x) or x in e.splat:
        e.env[t] = e.expr(x)
        e.splat.add(t)
    else:
        place = e.grouping.place(op)
        if place == "same":
            _retype(e, x, t)
        elif place == "other":
            axes: tuple[int, ...] = op.attrs["axes"]  # type: ignore[assignment]
            strides = contiguous_strides(shape_of(x))
            steps: dict[int, Dim] = {axes[a]: strides[a] for a in squeezed(shape_of(x))}
            _rearrange(e, x, t, [steps.get(a, 0) for a in squeezed(shape_of(t))])
        else:
            vector = e.layout_of(t).rows("") if place == "rows" else e.layout_of(t).cols("")
            text = e.expr(x) if e.layout_of(x) == vector else _converted(e, x, t, place)
            e.let(t, f"ts::spread_{place}<{e.layout(t)}>({text})", x.hint or "spread")


def _converted(e: KernelEmitter, x: Value, t: Value, place: str) -> str:
    """A vector in the layout of the rows or columns of `t`'s matrix."""
    n = e.layout_of(x).shape[1]
    to = f"ts::{place.capitalize()}Of<{e.layout(t)}>"
    e.headers.add("rearrange")
    e.need_scratch(n * dtype_of(x).itemsize)
    return f"ts::rearrange<{to}, ts::Box<{n}>, ts::Box<1>>({e.expr(x)})"


def _retype(e: KernelEmitter, x: Value, t: Value) -> None:
    """The same elements in the same order, under another shape."""
    if x in e.splat:
        e.splat.add(t)
        e.env[t] = e.expr(x)
    elif e.layout_of(x) == e.layout_of(t):
        e.env[t] = e.expr(x)
    else:
        kept = [shape_of(t)[a] for a in squeezed(shape_of(t))]
        _rearrange(e, x, t, contiguous_strides(kept))


def _rearrange(e: KernelEmitter, x: Value, t: Value, strides: Sequence[Dim]) -> None:
    """Through shared memory: element c of `t` is element sum(c * strides) of `x` in C order."""
    kept = [shape_of(t)[a] for a in squeezed(shape_of(t))]
    rows, cols = e.layout_of(x).shape
    e.headers.add("rearrange")
    e.need_scratch(rows * cols * dtype_of(x).itemsize)
    boxes = (f"ts::Box<{', '.join(map(str, b))}>" for b in (kept, strides))
    e.let(t, f"ts::rearrange<{e.layout(t)}, {', '.join(boxes)}>({e.expr(x)})", x.hint or "moved")


@handles("reshape")
def _reshape(e: KernelEmitter, op: Op) -> None:
    x, t = op.operands[0], op.result
    if is_tile(t):
        _retype(e, x, t)
    else:
        e.env[t] = e.expr(x)


def _turned_by(e: KernelEmitter, user: Op, operand: int) -> bool:
    """Whether the user of a transposed tile transposes it itself."""
    if user.name == "tile.store_shared":
        return e.grouping.stored_turned(user.operands[operand]) is not None
    return user.name == "tile.mma" and e.reads_shared(user, operand)


@handles("transpose")
def _transpose(e: KernelEmitter, op: Op) -> None:
    x, t = op.operands[0], op.result
    if op in e.products.replaced or (t.uses and all(_turned_by(e, u, i) for u, i in t.uses)):
        return  # products read, and stores write, the shared tile itself
    if not is_tile(t):
        e.env[t] = e.expr(x)
        return
    perm: tuple[int, ...] = op.attrs["perm"]  # type: ignore[assignment]
    kept = squeezed(shape_of(x))
    order = [p for p in perm if p in kept]
    if order == list(kept) or x in e.splat:
        _retype(e, x, t)
        return
    strides = contiguous_strides(shape_of(x))
    _rearrange(e, x, t, [strides[p] for p in order])


# reductions
def _fold_bytes(e: KernelEmitter, op: Op, axis: int | str) -> None:
    """Scratch memory for what a reduction exchanges between warps."""
    layout = e.layout_of(op.operands[0])
    itemsize = 16 if str(op.attrs["op"]).startswith("arg") else dtype_of(op.result).itemsize
    row, col = layout.row, layout.col
    if axis == 1:
        e.need_scratch(fold_scratch(row.registers, col, e.threads, itemsize))
    else:
        e.need_scratch(fold_scratch(col.registers, row, e.threads, itemsize))
    if axis == "all":
        e.need_scratch(fold_scratch(1, col, e.threads, itemsize))


def _widened(e: KernelEmitter, op: Op) -> str:
    """The operand in the dtype that is accumulated in."""
    x = op.operands[0]
    text = e.tile(x) if is_tile(x) else e.expr(x)
    if str(op.attrs["op"]).startswith("arg") or dtype_of(x) == dtype_of(op.result):
        return text
    return f"ts::cast<{cxx.type_name(dtype_of(op.result))}>({text})"


@handles("reduce")
def _reduce(e: KernelEmitter, op: Op) -> None:
    x, name = op.operands[0], str(op.attrs["op"])
    if is_tile(x) and 0 in shape_of(x):
        e.env[op.result] = cxx.literal(_of_nothing(op), dtype_of(op.result))
        if is_tile(op.result):
            e.splat.add(op.result)
        return
    e.headers.add("reduce")
    axis = e.grouping.reduced(op) if is_tile(x) else "none"
    if axis == "none":
        if name.startswith("arg"):
            e.env[op.result] = cxx.literal(0, dtype_of(op.result))
            if is_tile(op.result):
                e.splat.add(op.result)
        elif is_tile(op.result):
            _give_all(e, op)
        else:
            e.let(op.result, _widened(e, op), name, cxx.type_name(dtype_of(op.result)))
        return
    if axis == "other":
        _reduce_middle(e, op)
        return
    if name.startswith("arg") and axis == "all" and e.layout_of(x).shape[0] > 1:
        raise e.refuse(op, f"{name} over several axes at once needs its tile reshaped to one axis first")
    _fold_bytes(e, op, axis)
    argument = "" if axis == "all" else f"<{axis}>"
    _give(e, op, f"ts::{name}{argument}({_widened(e, op)})", axis)


def _give_all(e: KernelEmitter, op: Op) -> None:
    """A reduction over axes of one element: the elements as they are, in the layout of the result."""
    x, t, text = op.operands[0], op.result, _widened(e, op)
    own = e.layout_of(t)
    if e.layout_of(x) != own:
        n = own.shape[0] * own.shape[1]
        e.headers.add("rearrange")
        e.need_scratch(n * dtype_of(t).itemsize)
        text = f"ts::rearrange<{e.layout(t)}, ts::Box<{n}>, ts::Box<1>>({text})"
    e.let(t, text, str(op.attrs["op"]))


def _of_nothing(op: Op) -> float:
    """The result of a reduction of no elements: the value that changes nothing; an index is 0."""
    name = str(op.attrs["op"])
    return 0 if name.startswith("arg") else identity_of(name, dtype_of(op.result))


def _give(e: KernelEmitter, op: Op, text: str, axis: int | str) -> None:
    """Names a reduction's result, in the layout that its group has."""
    name, x = str(op.attrs["op"]), op.operands[0]
    if not is_tile(op.result):
        e.let(op.result, text, name)
        return
    layout = e.layout_of(x)
    natural = layout.rows("") if axis == 1 else layout.cols("")
    own = e.layout_of(op.result)
    if own != natural:
        n = own.shape[0] * own.shape[1]
        e.headers.add("rearrange")
        e.need_scratch(n * dtype_of(op.result).itemsize)
        text = f"ts::rearrange<{e.layout(op.result)}, ts::Box<{n}>, ts::Box<1>>({text})"
    e.let(op.result, text, name)


def _reduce_middle(e: KernelEmitter, op: Op) -> None:
    """Axes in the middle of a tile: moved to the end through shared memory, then reduced over columns."""
    x = op.operands[0]
    kept = squeezed(shape_of(x))
    gone = [a for a in kept if a in op.attrs["axes"]]  # type: ignore[operator]
    order = [a for a in kept if a not in gone] + gone
    sizes = [int(shape_of(x)[a]) for a in order]  # type: ignore[call-overload]
    rows, cols = 1, 1
    for a, n in zip(order, sizes, strict=True):
        rows, cols = (rows, cols * n) if a in gone else (rows * n, cols)
    strides = contiguous_strides(shape_of(x))
    layout = blocked(rows, cols, e.threads, 1)
    e.headers |= {"rearrange", "reduce"}
    e.need_scratch(rows * cols * max(dtype_of(x).itemsize, dtype_of(op.result).itemsize))
    e.need_scratch(fold_scratch(layout.row.registers, layout.col, e.threads, 16))
    boxes = f"ts::Box<{', '.join(map(str, sizes))}>, ts::Box<{', '.join(str(strides[a]) for a in order)}>"
    moved = e.fresh("moved")
    e.source.write(f"auto {moved} = ts::rearrange<{layout.spelling}, {boxes}>({_widened(e, op)});")
    text = f"ts::{op.attrs['op']}<1>({moved})"
    n = rows
    e.need_scratch(n * 8)
    e.let(op.result, f"ts::rearrange<{e.layout(op.result)}, ts::Box<{n}>, ts::Box<1>>({text})", str(op.attrs["op"]))


_OPS = {"sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min", "any": "Any", "all": "All"}


def _stream_axis(e: KernelEmitter, op: Op) -> int:
    line = folded_line(op, e.grouping)
    return 1 if line is e.grouping.of(op.operands[0]).lines[1] else 0


@handles("begin_partials")
def _begin(e: KernelEmitter, op: Op) -> None:
    """Partial results of a reduction along a chunked axis."""
    e.headers.add("reduce")
    x, name = op.operands[0], str(op.attrs["op"])
    e.source.at(op.span)
    partial = e.fresh(f"{op.result.hint or name}_partial")
    e.partial[op] = partial
    if name.startswith("arg"):
        e.source.write(f"auto {partial} = ts::best_so_far<{cxx.type_name(dtype_of(x))}, {e.layout(x)}>();")
    else:
        dtype = cxx.type_name(dtype_of(op.result))
        e.source.write(f"auto {partial} = ts::full<{e.layout(x)}>(ts::{_OPS[name]}::identity<{dtype}>());")


@handles("accumulate_partials")
def _accumulate(e: KernelEmitter, op: Op) -> None:
    axis, name = _stream_axis(e, op), str(op.attrs["op"])
    line = e.grouping.of(op.operands[0]).lines[axis]
    start = e.origin[line]
    left = f"{cxx.size(line.extent)} - {start}"
    if name.startswith("arg"):
        largest = "true" if name == "argmax" else "false"
        tile = e.tile(op.operands[0])
        e.source.write(f"ts::take_better<{largest}, {axis}>({e.partial[op]}, {tile}, {start}, {left});")
    else:
        e.source.write(f"ts::accumulate<ts::{_OPS[name]}, {axis}>({e.partial[op]}, {_widened(e, op)}, {left});")


@handles("end_partials")
def _end(e: KernelEmitter, op: Op) -> None:
    x, name = op.operands[0], str(op.attrs["op"])
    axis = e.grouping.reduced(op)
    _fold_bytes(e, op, axis)
    argument = "" if axis == "all" else f"<{axis}>"
    if name.startswith("arg"):
        if axis == "all" and e.layout_of(x).shape[0] > 1:
            raise e.refuse(op, f"{name} over several axes at once needs its tile reshaped to one axis first")
        text = f"ts::best_position<{str(name == 'argmax').lower()}, {_stream_axis(e, op)}>({e.partial[op]})"
        text += ".v[0]" if axis == "all" else ""
    else:
        text = f"ts::{name}{argument}({e.partial[op]})"
    _give(e, op, text, axis)


@handles("scan")
def _scan(e: KernelEmitter, op: Op) -> None:
    x, t = op.operands[0], op.result
    e.headers |= {"rearrange", "reduce", "scan"}
    axis = int(op.attrs["axis"])  # type: ignore[call-overload]
    if not is_tile(x) or axis not in squeezed(shape_of(x)):
        e.env[t] = _widened(e, op)
        if x in e.splat:
            e.splat.add(t)
        return
    kept = squeezed(shape_of(x))
    sizes = [int(shape_of(x)[a]) for a in kept]  # type: ignore[call-overload]
    at = kept.index(axis)
    stride = 1
    for n in sizes[at + 1 :]:
        stride *= n
    total = stride * sizes[at]
    for n in sizes[:at]:
        total *= n
    e.need_scratch(total * dtype_of(t).itemsize)
    e.let(t, f"ts::scan<ts::{_OPS[str(op.attrs['op'])]}, {sizes[at]}, {stride}>({_widened(e, op)})")


# Writer of `tile.print`.


@handles("print")
def _print(e: KernelEmitter, op: Op) -> None:
    x = op.operands[0]
    shape, dtype = tuple(int(n) for n in shape_of(x)), dtype_of(x)  # type: ignore[arg-type]
    once = HEADER + -(-prod(shape) * dtype.itemsize // 16) * 16
    e.source.write(f"printer.show({len(e.prints)}, {e.tile(x) if is_tile(x) else e.expr(x)});")
    e.prints.append(PrintSite(str(op.attrs.get("label", "")), shape, dtype.name, once * times(op)))


# Writer of `tile.sort`.


@handles("sort")
def _sort(e: KernelEmitter, op: Op) -> None:
    x, t = op.operands[0], op.result
    axis, positions = int(op.attrs["axis"]), bool(op.attrs.get("positions"))  # type: ignore[call-overload]
    if not is_tile(x) or axis not in squeezed(shape_of(x)):  # one element along the axis is in order
        e.env[t] = cxx.literal(0, dtype_of(t)) if positions else e.expr(x)
        if is_tile(t) and (positions or x in e.splat):
            e.splat.add(t)
        return
    e.headers.add("sort")
    kept = squeezed(shape_of(x))
    sizes = [int(shape_of(x)[a]) for a in kept]  # type: ignore[call-overload]
    at = kept.index(axis)
    total = prod(sizes)
    e.need_scratch(-(-total * dtype_of(x).itemsize // 4) * 4 + 4 * total)
    name = "argsort" if positions else "sort"
    descending = "true" if op.attrs.get("descending") else "false"
    e.let(t, f"ts::{name}<{descending}, {sizes[at]}, {prod(sizes[at + 1 :])}>({e.tile(x)})", t.hint or name)
