"""Stores a kernel's results at this program's coordinates, which follow from the identities of the tile's axes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.fixes import expression_at
from tessera.compiler.frontend.kernel import names as kernel_names
from tessera.compiler.frontend.kernel import results
from tessera.compiler.frontend.kernel.checks import races, reduce_across
from tessera.compiler.frontend.kernel.checks.ends import past_the_range
from tessera.compiler.frontend.kernel.checks.narrow import narrow_indices
from tessera.compiler.frontend.kernel.checks.settings import check_settings
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import (
    PRIVATE,
    Axis,
    Coordinate,
    Panel,
    Share,
    Shared,
    TileWindow,
    View,
    axis_text,
    marks,
    size_text,
    sizes_text,
)
from tessera.compiler.frontend.names.values import Unknown, is_tuple
from tessera.compiler.ir.core import Op, Region, Value
from tessera.compiler.ir.types import Shape, TileType, shape_text
from tessera.compiler.tile.passes.place_barriers import barrier_notes
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic, Edit, Fix, Note, Span
from tessera.language.annotations import Annotation, TupleAnn
from tessera.language.dims import Dim, Expr, dim_min

# Tile parameters loaded with a shape


def panel(k: KernelState, view: View, shape: Shape, prefetch: Any) -> Any:
    """This program's block of a parameter; axes whose dim no output has stay open for `load_partition`."""
    spare = len(view.shape) - len(shape)
    if spare < 0:
        raise KernelFault(
            "TS402", f"{view.name} has {len(view.shape)} axes, the shape {shape_text(shape)} has {len(shape)}"
        )
    offsets: list[Dim | None] = [k.coordinates.batch_offset(view, a) for a in range(spare)]
    axes: list[Axis | None] = [None] * spare
    output = kernel_names.output_dims(k)
    for a, size in enumerate(shape, start=spare):
        extent = view.shape[a]
        if extent == size:
            offsets.append(0)
            axes.append(Axis(extent, extent))
        elif extent in output:
            c = kernel_names.named_coordinate(k, extent, k.tiles.known(size))
            offsets.append(c.offset)
            axes.append(c.axis)
        else:
            offsets.append(None)
            axes.append(None)
    sizes = (*[1] * spare, *map(k.tiles.known, shape))
    if None not in offsets:
        kept = tuple(range(spare, len(sizes)))
        found = tuple(a for a in axes if a is not None)
        return k.memory.load(TileWindow(view, tuple(o for o in offsets if o is not None), sizes, kept, found))
    k.stages = max(k.stages, prefetch)
    return Panel(view, sizes, tuple(offsets), tuple(axes))


def partition(k: KernelState, p: Panel, at: Sequence[Any]) -> TileWindow:
    open_axes = [a for a, o in enumerate(p.offsets) if o is None]
    if len(at) != len(open_axes):
        names = ", ".join(str(p.view.shape[a]) for a in open_axes)
        raise KernelFault(
            "TS402", f"the panel of {p.view.name} is open along {names}: {len(open_axes)} positions, not {len(at)}"
        )
    offsets, axes = list(p.offsets), list(p.axes)
    for a, position in zip(open_axes, at, strict=True):
        offsets[a] = k.index(position)
        axes[a] = k.coordinates.walking(offsets[a], p.view.shape[a]).axis  # type: ignore[arg-type]
    kept = tuple(a for a, axis in enumerate(axes) if axis is not None)
    return TileWindow(
        p.view, tuple(o for o in offsets if o is not None), p.shape, kept, tuple(a for a in axes if a is not None)
    )


# stores at the program's own coordinates


def own_place(k: KernelState, view: View, value: Any) -> TileWindow:
    """The block of `view` that a tile with these axes belongs to. Raises KernelFault TS403 where that is open."""
    tile = value if isinstance(value, Value) else k.tiles.scalar(value, view.dtype)
    t, axes = tile_type(tile), k.tiles.identities.of(tile)
    places = _match(k, view, t, axes)
    offsets: list[Dim] = []
    sizes: list[Dim] = []
    for a, extent in enumerate(view.shape):
        i = places.get(a)
        if i is not None:
            origin = axes[i].origin
            offsets.append(origin.offset if isinstance(origin, Coordinate) and not _all_of(axes[i], extent) else 0)
            sizes.append(t.shape[i])
        elif k.tiles.known(extent) == 1:
            offsets.append(0)
            sizes.append(1)
        else:
            offsets.append(_batch_offset(k, view, a))
            sizes.append(1)
    kept = tuple(sorted(places))
    return TileWindow(view, tuple(offsets), tuple(sizes), kept, tuple(axes[places[a]] for a in kept))


def _batch_offset(k: KernelState, view: View, axis: int) -> Dim:
    extent = view.shape[axis]
    found = [c for c in k.coordinates.grid if c.step == 1 and k.coordinates.end(c) == extent]
    if not found:
        open_ = f"nothing in the kernel walks the axis {size_text(extent)} of {view.name}, so its place is not known"
        raise KernelFault("TS403", f"{open_}; store with an index: {view.name}[...] = value")
    return found[0].offset


def _match(k: KernelState, view: View, t: TileType, axes: Sequence[Axis]) -> dict[int, int]:
    """For axes of the view: the axis of the tile that lies along it. From the last axis on, by identity, in order."""
    out: dict[int, int] = {}
    a = len(view.shape) - 1
    for i in range(t.rank - 1, -1, -1):
        while a >= 0 and not _lies_along(k, axes[i], t.shape[i], view.shape[a]):
            a -= 1
        if a < 0:
            known = axes[i].origin is not None
            why = f"it runs along {axis_text(axes[i])}" if known else "nothing says which coordinate it belongs to"
            lost = f"axis {i} of the tile {t.pretty()} has no place in {view.name} {sizes_text(view.shape)}"
            raise KernelFault("TS403", f"{lost}: {why}. Store it into a parameter at an index instead.")
        out[a] = i
        a -= 1
    return out


def _lies_along(k: KernelState, axis: Axis, size: Dim, extent: Dim) -> bool:
    """By name; lengths count only where an axis has none."""
    origin = axis.origin
    if _all_of(axis, extent):
        return not _nameless(extent)
    own = k.coordinates.at(str(origin.offset)) if isinstance(origin, Coordinate) else None
    if own is not None and own.extent == extent:
        return True  # of an axis of 2*N a part, where `tile_n` walks N
    if origin is None:
        return axis.size == extent or (_nameless(extent) and size == k.tiles.known(extent))
    end = origin if not isinstance(origin, Coordinate) else origin.extent
    if end is None:
        assert isinstance(origin, Coordinate)
        end = k.coordinates.extent(origin)
    return end == extent or ((_nameless(extent) or _nameless(end)) and k.tiles.known(end) == k.tiles.known(extent))


def _all_of(axis: Axis, extent: Dim) -> bool:
    """Whether a part at a fixed place, `D : 2 * D` of an axis of 3*D, is all of a result's axis D."""
    origin = axis.origin
    fixed = isinstance(origin, Coordinate) and not origin.walks
    return fixed and isinstance(axis.size, Expr) and axis.size == extent


def _nameless(d: Dim) -> bool:
    return isinstance(d, int) or PRIVATE in str(d)


def inferred_shape(k: KernelState, tile: Value) -> tuple[Dim, ...]:
    """The whole that a program's tile is a block of, where no annotation says it: batch axes, then the tile's own."""
    batches = [c.extent for c in k.coordinates.grid if c.batch and c.extent is not None]
    out = sorted(batches, key=lambda d: _from_the_last(k, d), reverse=True)
    for axis, size in zip(k.tiles.identities.of(tile), tile_type(tile).shape, strict=True):
        origin = axis.origin
        if isinstance(origin, Coordinate):
            out.append(origin.extent if origin.extent is not None else k.coordinates.extent(origin))
        else:
            out.append(size if origin is None else origin)
    return tuple(out)


def _from_the_last(k: KernelState, dim: Dim) -> int:
    """How far from the last axis a dim lies in the tensors that have it."""
    return max((len(v.shape) - a for v in k.views.values() for a, d in enumerate(v.shape) if d == dim), default=0)


# The end of a kernel: its results get their places, its grid its lengths, and the whole is looked over.


def returned(k: KernelState, value: Any, span: Span, annotation: Annotation | None) -> None:
    """What `return` gives: a parameter that was stored to, or tiles that get outputs of their own."""
    items: tuple[Any, ...] = value if is_tuple(value) else () if value is None else (value,)
    wanted = annotation.items if isinstance(annotation, TupleAnn) else (annotation,) * max(len(items), 1)
    if isinstance(annotation, TupleAnn) and len(wanted) != len(items):
        message = f"Expected: {len(wanted)} values   (the return annotation)\nReceived: {len(items)} values"
        k.ev.error("TS201", message, span)
        return
    earlier = tuple(k.results)
    for i, item in enumerate(items):
        if isinstance(item, Unknown):
            continue
        try:
            if isinstance(item, View) and item.argument in set(k.results) - set(earlier):
                raise KernelFault(
                    "TS406", f"{item.name} is returned twice; give the caller one, which may be used twice"
                )
            _result(k, item, span, wanted[i], "result" if len(items) == 1 else f"result{i}")
        except KernelFault as e:
            # what does not parse, or is wrong, may say which coordinates it runs along
            if e.code == "TS403" and (k.ev.incomplete or k.ev.findings.errors):
                k.ev.undecide(e.message, span, e.code)
            else:
                k.ev.error(e.code, e.message, span)


def _early_return(k: KernelState) -> str:
    """Why a return does not stand at the end: under a condition or in a loop, or in that of an implicit coordinate."""
    name = next((n for n in k.plan.serial if isinstance(k.ev.frame.names.get(n), Expr)), None)
    if name is None:
        return "a kernel returns a value once, at its end; keep it in a name until there"
    dim, tile = size_text(kernel_names.dim_of(k, name)), kernel_names.namespace(k.ev)
    loop = f"{name} walks {dim}, which no result has, so it is a loop, and this return stands in it"
    return f"{loop}; accumulate over it with +=, or walk a dim of the result with {tile}.range"


def _result(k: KernelState, item: Any, span: Span, wanted: Annotation | None, name: str) -> None:
    if isinstance(item, View) and item.argument in k.memory.written:
        _check_in_place(item, wanted)
        if item.argument not in k.results:  # it may be returned from several places
            k.results.append(item.argument)
        return
    if k.builder.block is not k.ev.block:
        said, k.returned_early = k.returned_early, True
        if said:
            return
        raise KernelFault("TS102", _early_return(k))
    if k.memory.mask is not None and tile_type(k.memory.mask).rank:
        raise KernelFault(
            "TS102",
            "only some lanes reach this return, and each needs a value; return ts.tile.where(condition, a, b), or "
            "store the result where the condition holds",
        )
    with k.builder.at(span):
        tile = item.tile if isinstance(item, Share) else k.tile(item)
        shape = getattr(wanted, "shape", None)
        dtype = getattr(wanted, "dtype", None) or tile_type(tile).dtype
        if shape is None or ... in shape:
            shape = _as_annotated(inferred_shape(k, tile), shape or (...,))
        axes = k.tiles.identities.of(tile)
        for axis, length in zip(axes, shape if len(shape) == len(axes) else [None] * len(axes), strict=True):
            if isinstance(axis.origin, Coordinate):
                k.coordinates.stored_through(axis.origin, shape, length)
        view = results.allocate(k, shape, dtype, name)
        place = own_place(k, view, tile)
        _covered(k, place, span)
        if isinstance(item, Share):
            reduce_across.store(k, place, item, span)
        else:
            k.memory.store(place, tile, span)
    k.results.append(view.argument)


def _as_annotated(shape: tuple[Dim, ...], wanted: Sequence[Any]) -> tuple[Dim, ...]:
    """The shape with the dims that an annotation names around its `...`."""
    before = list(wanted).index(...)
    behind = len(wanted) - before - 1
    if before + behind > len(shape):
        return shape
    return (*wanted[:before], *shape[before : len(shape) - behind], *wanted[before + 1 :])


def _covered(k: KernelState, w: TileWindow, span: Span) -> None:
    """Refuses blocks of a result that surely leave a part of it out, which would hold anything; of a block of a fixed
    length at a fixed place, a launch checks that there is no more."""
    _refuse_diagonals(k, w)
    for a, axis in zip(w.kept, w.axes, strict=True):
        extent, size, start = k.tiles.known(w.view.shape[a]), k.tiles.known(w.sizes[a]), w.offsets[a]
        origin = axis.origin
        apart, first = 0, start
        if isinstance(origin, Coordinate) and origin.kind != "derived":
            apart, first = k.tiles.known(origin.step), origin.start
        elif len(found := marks(start)) == 1 and isinstance(start, Expr):
            stride, first = linear(start, next(iter(found)))
            apart = k.tiles.known(stride) if stride is not None and stride != 1 else 0
        of = f"axis {a} of {w.view.name}, which has {size_text(w.view.shape[a])} elements"
        if isinstance(first, int) and first > 0:
            raise KernelFault("TS403", f"the tiles start at {first} of {of}; what stands before would be undefined")
        if isinstance(apart, int) and isinstance(size, int) and size < apart:
            raise KernelFault("TS403", f"tiles of {size} elements every {apart} leave out a part of {of}")
        if apart or marks(start):
            continue
        short = isinstance(extent, int) and isinstance(size, int) and size < extent
        why = f"the tile that is returned has {size_text(size)} elements along {of}"
        if short:
            raise KernelFault(
                "TS403", f"{why}; the others would be undefined. Return a tile for each, or store into a parameter"
            )
        if isinstance(extent, Expr) and extent != size:
            k.ev.checks.append(LaunchCheck(dim_min(extent, size), extent, why))


def _refuse_diagonals(k: KernelState, w: TileWindow) -> None:
    """Two axes whose places both grow with one coordinate of the grid: only blocks on the diagonal have a program."""
    for c in k.coordinates.grid:
        mark = str(c.offset)
        moved = [a for a, at in enumerate(w.offsets) if isinstance(at, Expr) and linear(at, mark)[0]]
        if len(moved) > 1 and k.tiles.known(k.coordinates.count(c)) != 1:
            raise KernelFault(
                "TS403",
                f"axes {moved[0]} and {moved[1]} of the tile both move with {c.name}, so only blocks on the diagonal "
                f"of {w.view.name} {sizes_text(w.view.shape)} would be stored; walk one of them with a range of its "
                "own, or read all of it, as in x[:, :]",
            )


def _agree(wanted: Dim, have: Dim) -> bool:
    """Whether sizes are the same one; those without a name may be."""
    return wanted == have or (isinstance(wanted, int) and size_text(have) == str(wanted))


def _check_in_place(view: View, wanted: Annotation | None) -> None:
    """A parameter that is returned has the shape and dtype that the return annotation says."""
    shape, dtype = getattr(wanted, "shape", None), getattr(wanted, "dtype", None)
    if shape is not None and ... in shape:
        at = shape.index(...)
        shape = (*shape[:at], *view.shape[at : at + len(view.shape) - len(shape) + 1], *shape[at + 1 :])
    if shape is not None and (len(shape) != len(view.shape) or not all(map(_agree, shape, view.shape))):
        received = f"{view.name} {sizes_text(view.shape)}"
        raise KernelFault("TS201", f"Expected: {wanted}   (the return annotation)\nReceived: {received}")
    if dtype is not None and dtype != view.dtype:
        raise KernelFault("TS303", f"{view.name} holds {view.dtype}, the return annotation says {dtype}")


def finish(k: KernelState, value: Any) -> Op | None:
    """The `tile.func`; None where something is wrong, or where the kernel is to be read again."""
    ev = k.ev
    for name, named in ev.frame.names.items():
        if isinstance(named, Shared):
            named.value.hint = name
        elif isinstance(named, TileWindow) and (loaded := k.loaded.get(named)) is not None and not loaded.hint:
            loaded.hint = name
    _check_memory(k, value)
    if not isinstance(value, Unknown):
        results.check_declared(k)
    try:
        grid = tuple(map(k.tiles.known, k.coordinates.finish()))
    except KernelFault as e:
        if not ev.undecided:  # else what is not known yet may say it
            open_ = k.coordinates.unmeasured()
            ev.error(e.code, e.message, (open_ and open_.span) or ev.definition.span)
        return None
    try:
        races.check_races(k)
        reduce_across.check(k)
        check_settings(k)
    except KernelFault as e:
        ev.error(e.code, e.message, ev.definition.span)
        return None
    if k.retry or ev.findings.errors or isinstance(value, Unknown):
        return None
    results.put_last(k)
    ev.block.append(Op("tile.return", (), (), ev.frame.return_span or ev.definition.span))
    attrs: dict[str, Any] = {
        "sym_name": ev.definition.name,
        "grid": grid,
        "arg_names": tuple(a.hint for a in ev.block.args),
        "writes": tuple(sorted(results.number(k, i) for i in k.memory.written)),
        "returns": tuple(results.number(k, i) for i in k.results),
        **({"zeroed": filled} if (filled := results.zeroed(k)) else {}),
        "num_warps": k.setting("num_warps", "warps") if {"num_warps", "warps"} & k.config.keys() else None,
        "num_stages": max(k.setting("num_stages", "stages"), k.stages),
    }
    kernel = Op("tile.func", (), (), ev.definition.span, attrs, [Region([ev.block])])
    remove_dead(kernel)
    if (said := k.coordinates.said) is not None:
        prints = any(
            op.name == "tile.print" for op in kernel.walk()
        )  # in one order on all targets: that of the numbers
        kernel.attrs |= {"grouped": said.grouped} if said.grouped is not None and not prints else {}
        kernel.attrs |= {"persistent": True} if said.persistent else {}
    for finding in (
        *_beyond(k),
        *past_the_range(k),
        *narrow_indices(k, kernel),
        *(with_fix(ev, d) for d in barrier_notes(kernel)),
    ):
        ev.findings.add(finding)
    return kernel


def _check_memory(k: KernelState, value: Any) -> None:
    ev = k.ev
    for shared, span in k.reads:
        if shared.value not in k.filled:
            message = "this shared tile is read, but the kernel never writes to it"
            ev.error("TS407", message, span, notes=[Note("allocated here", shared.span)])
    for name, statement in k.plan.overwritten:
        message = f"every step of {name} overwrites this place; accumulate with +=, or index it with {name}"
        ev.error("TS403", message, statement)
    unseen = ev.undecided or k.plan.stored & k.views.keys()  # stored to, where what is stored is not known in an editor
    if not k.memory.written and not unseen and not isinstance(value, Unknown) and not ev.findings.errors:
        tile = f"; {k.parted[-1]} is a tile, and what is stored to a part of it changes no tensor" if k.parted else ""
        ev.error("TS406", f"the kernel stores to nothing and returns nothing{tile}", ev.definition.span)


def _beyond(k: KernelState) -> Iterator[Diagnostic]:
    """Lanes that surely reach past the ends of what they read: `x[i + 1]` over all i of x, or where `i < n`."""
    for view, axis, lanes, condition, op in k.memory.shifted:
        if op.block is None or lanes.launch is None:  # unused: only the position was meant, as in `load` with a mask
            continue
        size, shift = view.shape[axis], lanes.base - lanes.launch.offset
        room = k.tiles.known(size) - k.tiles.known(k.coordinates.extent(lanes.launch)) - shift
        if not isinstance(shift, int):
            continue
        if shift < 0 and not condition.may_keep_after(lanes.base, 0):
            where, inside = "before the start", f"i - {-shift} >= 0"
        elif isinstance(room, int) and room < 0 and not condition.may_keep_before(lanes.base, size):
            where, inside = "beyond the end", f"i + {shift} < {size_text(size)}"
        else:
            continue
        message = (
            f"some lanes read {where} of {view.name}, and nothing says what they get; in debug mode this fails.\n"
            f"Write `if {inside}:` around it (i being linear_id), or ts.tile.load({view.name}[...], other=0)."
        )
        yield Diagnostic("TS415", message, op.span, "warning", fixes=_zero_outside(k, op.span))


def _zero_outside(k: KernelState, span: Span) -> tuple[Fix, ...]:
    """`ts.tile.load(x[i - 1], other=0)` for `x[i - 1]`."""
    if expression_at(k.ev.definition, span) is None:
        return ()
    text = f"{kernel_names.namespace(k.ev)}.load({k.ev.definition.text.segment(span)}, other=0)"
    return (Fix("Read 0 beyond the ends", (Edit(span, text),)),)


# Fixes of findings about barriers: the one that was inserted is written down, the one that orders nothing
# goes.


def with_fix(ev: Evaluator, d: Diagnostic) -> Diagnostic:
    """The finding with what may mend it, where its statement has a line of its own."""
    at = _line_of(ev, d.span)
    if at is None:
        return d
    if d.code == "TS414":
        whole = Span(at.file, at.line, 1, at.end_line + 1, 1)
        return replace(d, fixes=(Fix("Leave the barrier out", (Edit(whole, ""),)),))
    barrier = f"{kernel_names.namespace(ev)}.barrier()"
    before = Edit(replace(at, end_line=at.line, end_col=at.col), f"{barrier}\n{_indent(ev, at)}")
    fixes = [Fix("Write the barrier", (before,))]
    # A step of the loop over an implicit coordinate begins where its name is first used: a barrier before is outside.
    for read in (_line_of(ev, note.span) for note in d.notes if note.span is not None):
        if read is not None:
            behind = Edit(replace(read, line=read.end_line, col=read.end_col), f"\n{_indent(ev, read)}{barrier}")
            fixes.append(Fix("Write the barrier behind the line that reads it", (behind,)))
    return replace(d, fixes=tuple(fixes))


def _line_of(ev: Evaluator, span: Span) -> Span | None:
    """The innermost statement around a place, if nothing stands before it in its line."""
    statement = _statement(ev, span)
    at = ev.definition.text.span(statement) if statement is not None else None
    return at if at is not None and not _indent(ev, at).strip() else None


def _indent(ev: Evaluator, at: Span) -> str:
    return ev.definition.text.lines[at.line - 1][: at.col - 1]


def _statement(ev: Evaluator, span: Span) -> ast.stmt | None:
    """The innermost statement around a place; None for one of another function."""
    text, found = ev.definition.text, None
    for node in ast.walk(ev.definition.tree):  # outer statements come first
        if isinstance(node, ast.stmt) and span.file == text.file:
            at = text.span(node)
            if at.contains(span.line, span.col) and at.contains(span.end_line, span.end_col):
                found = node
    return None if found is ev.definition.tree else found
