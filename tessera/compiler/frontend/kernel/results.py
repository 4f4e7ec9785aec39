"""The end of a kernel: its results get their places, its grid its lengths, and the whole is looked over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.fixes import expression_at
from tessera.compiler.frontend.kernel import outputs as kernel_outputs
from tessera.compiler.frontend.kernel.axes import size_text, sizes_text
from tessera.compiler.frontend.kernel.barriers import namespace, with_fix
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Shared, View
from tessera.compiler.frontend.values import Unknown, is_tuple
from tessera.compiler.ir.core import Op, Region
from tessera.compiler.tile.passes.check_rescale import check_rescale
from tessera.compiler.tile.passes.place_barriers import place_barriers
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.errors import Diagnostic, Edit, Fix, Note, Span
from tessera.language.annotations import Annotation, TupleAnn

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def returned(k: KernelState, value: Any, span: Span, annotation: Annotation | None) -> None:
    """What `return` gives: a parameter that was stored to, or tiles that get outputs of their own."""
    items: tuple[Any, ...] = value if is_tuple(value) else () if value is None else (value,)
    wanted = annotation.items if isinstance(annotation, TupleAnn) else (annotation,) * max(len(items), 1)
    if isinstance(annotation, TupleAnn) and len(wanted) != len(items):
        message = f"Expected: {len(wanted)} values   (the return annotation)\nReceived: {len(items)} values"
        k.ev.error("TS201", message, span)
        return
    for i, item in enumerate(items):
        if isinstance(item, Unknown):
            continue
        try:
            _result(k, item, span, wanted[i], "result" if len(items) == 1 else f"result{i}")
        except KernelFault as e:
            # what does not parse, or is wrong, may say which coordinates it runs along
            if e.code == "TS403" and (k.ev.incomplete or k.ev.findings.errors):
                k.ev.undecide(e.message, span, e.code)
            else:
                k.ev.error(e.code, e.message, span)


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
        raise KernelFault("TS102", "a kernel returns a value once, at its end; keep it in a name until there")
    with k.builder.at(span):
        tile = k.tile(item)
        shape = getattr(wanted, "shape", None)
        dtype = getattr(wanted, "dtype", None) or tile_type(tile).dtype
        if shape is None or ... in shape:
            shape = kernel_outputs.inferred_shape(k, tile)
        view = kernel_outputs.allocate(k, shape, dtype, name)
        k.memory.store(kernel_outputs.own_place(k, view, tile), tile, span)
    k.results.append(view.argument)


def _check_in_place(view: View, wanted: Annotation | None) -> None:
    """A parameter that is returned has the shape and dtype that the return annotation says."""
    shape, dtype = getattr(wanted, "shape", None), getattr(wanted, "dtype", None)
    differs = shape is not None and ... not in shape and len(shape) != len(view.shape)
    if differs or (shape is not None and any(a != b for a, b in zip(shape, view.shape, strict=False) if a is not ...)):
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
    _check_memory(k, value)
    try:
        grid = tuple(map(k.tiles.known, k.coordinates.finish()))
        _check_races(k)
    except KernelFault as e:
        ev.error(e.code, e.message, ev.definition.span)
        return None
    if k.retry or ev.findings.errors or isinstance(value, Unknown):
        return None
    ev.block.append(Op("tile.return", (), (), ev.frame.return_span or ev.definition.span))
    attrs: dict[str, Any] = {
        "sym_name": ev.definition.name,
        "grid": grid,
        "arg_names": tuple(a.hint for a in ev.block.args),
        "writes": tuple(sorted(k.memory.written)),
        "returns": tuple(k.results),
        "num_warps": k.setting("num_warps", "warps") if {"num_warps", "warps"} & k.config.keys() else None,
        "num_stages": max(k.setting("num_stages", "stages"), k.stages),
    }
    kernel = Op("tile.func", (), (), ev.definition.span, attrs, [Region([ev.block])])
    remove_dead(kernel)
    for finding in _beyond(k):
        ev.findings.add(finding)
    for finding in (*(with_fix(ev, d) for d in place_barriers(kernel)), *check_rescale(kernel)):
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
    if not k.memory.written and not isinstance(value, Unknown) and not ev.findings.errors:
        ev.error("TS406", "the kernel stores to nothing and returns nothing", ev.definition.span)


def _beyond(k: KernelState) -> Iterator[Diagnostic]:
    """Lanes that surely reach past the ends of what they read: `x[i + 1]` over all i of x."""
    for view, axis, lanes, op in k.memory.shifted:
        if op.block is None or lanes.launch is None:  # nobody uses it: the place was meant, for `load` with a mask, say
            continue
        extent, shift = k.coordinates.extent(lanes.launch), lanes.base - lanes.launch.offset
        room = k.tiles.known(view.shape[axis]) - k.tiles.known(extent) - shift
        if not isinstance(shift, int) or not (shift < 0 or (isinstance(room, int) and room < 0)):
            continue
        where, inside = "beyond the end", f"i + {shift} < {size_text(view.shape[axis])}"
        if shift < 0:
            where, inside = "before the start", f"i - {-shift} >= 0"
        message = (
            f"some lanes read {where} of {view.name}, and nothing says what they get; in debug mode this fails.\n"
            f"Write `if {inside}:` around it (i being linear_id), or ts.tile.load({view.name}[...], other=0)."
        )
        yield Diagnostic("TS415", message, op.span, "warning", fixes=_zero_outside(k, op.span))


def _zero_outside(k: KernelState, span: Span) -> tuple[Fix, ...]:
    """`ts.tile.load(x[i - 1], other=0)` for `x[i - 1]`."""
    if expression_at(k.ev.definition, span) is None:
        return ()
    text = f"{namespace(k.ev)}.load({k.ev.definition.text.segment(span)}, other=0)"
    return (Fix("Read 0 beyond the ends", (Edit(span, text),)),)


def _check_races(k: KernelState) -> None:
    """Every grid axis must show in the place of every store; an outermost range that does not is a serial loop."""
    for stored, c, how in kernel_outputs.races(k):
        if c is k.speculated:
            k.retry = True
            return
        name, where = (
            stored.view.name,
            f"programs along {c.name}" + (f" ({size_text(c.extent)})" if c.extent is not None else ""),
        )
        own = "ts.tile.each()" if c.name.startswith("batch_") else c.name
        if how == "same":
            message = f"all {where} store to the same place of {name}; index it with {own}, or reduce over it in a loop"
        else:
            message = f"{where} store blocks of {name} that overlap; make them as wide as the step between programs"
        k.ev.error("TS406", message, stored.span)
