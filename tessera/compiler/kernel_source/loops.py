"""The loops of a kernel, each of which finds sums step by step."""

from __future__ import annotations

from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op
from tessera.compiler.kernel_source.body import WIDTH, Body
from tessera.compiler.kernel_source.coordinates import causal
from tessera.compiler.kernel_source.layout import text_of
from tessera.compiler.kernel_source.passes import LineLoop, Online
from tessera.language import dtypes
from tessera.language.dtypes import DType

_NAMES = {"sum": "total", "prod": "product", "max": "top", "min": "least", "any": "found", "all": "holds"}
_STARTS = {"sum": "zeros", "contract": "zeros", "prod": "ones", "any": "zeros", "all": "ones"}
_JOINED = {"max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and"}


def write_pass(body: Body, p: LineLoop) -> None:
    """The loop, what it starts from, and before it what is the same at each of its steps."""
    _hoist(body, p)
    before, body.lines, body.outside = body.lines, list[str](), list[str]()
    for op in p.sums:
        body.names[op.result] = body.free(op.result.hint or _NAMES.get(_kind(op), "acc"))
    indent, body.indent = body.indent, f"{body.indent}    "
    if p.online is not None:
        _online_steps(body, p, p.online)
    else:
        body.assign(p.inner)
        for op in p.sums:
            _update(body, op)
    body.indent = indent
    layout, tile = body.layout, body.spelling.tile
    counter, width = layout.counters[p.line], layout.widths[p.line]
    head = f"{indent}for {counter} in {tile}.range_k(0, {text_of(layout.names[p.line])}, {width}):"
    starts = [f"{indent}{body.names[op.result]} = {_start(body, op, p.online)}" for op in p.sums]
    body.lines = [*before, *body.outside, *starts, head, *body.lines]
    body.outside = None
    body.forget(p.inner)


def _kind(op: Op) -> str:
    return op.name.removeprefix("graph.")


def _hoist(body: Body, p: LineLoop) -> None:
    """Names what the steps need that no step changes."""
    masks = body.masks(p.inner)
    within = {*p.inner, *p.sums, *(p.online.behind if p.online is not None else ())}
    operands = [v for op in (*p.inner, *p.sums) if op not in masks for v in op.operands]
    direct = {op for v in operands if (op := body.source(v)) is not None and op not in within}
    needed = {*direct, *(o for op in direct for o in body.inlined(op) if body.kept(o))}
    for op in [op for op in body.ops if op in needed and op.result not in body.names]:
        body.name(op)


# what a sum starts from


def _start(body: Body, op: Op, online: Online | None) -> str:
    tile, kind, own = body.spelling.tile, _kind(op), tensor(op.result).dtype
    dtype = own.compute if kind in ("max", "min") else own if kind in ("any", "all") else own.accumulate
    more = "" if dtype is dtypes.f32 else f", {body.spelling.dtype(dtype)}"
    shape = body.layout.extents(body.axes.of_value(op.result))
    if kind in _STARTS:
        return f"{tile}.{_STARTS[kind]}({shape}{more})"
    if online is not None and op is online.top:
        lowest = repr(-dtype.maximum).replace("e+", "e")
        return f"{tile}.full({shape}, {lowest}{more})  # finite: a block may hold nothing but -inf"
    return f"{tile}.full({shape}, {_least(body, dtype) if kind == 'max' else _most(body, dtype)}{more})"


def _most(body: Body, dtype: DType) -> str:
    return body.spelling.infinite(1) if dtype.is_float else str(int(dtype.maximum))


def _least(body: Body, dtype: DType) -> str:
    return body.spelling.infinite(-1) if dtype.is_float else str(-int(dtype.maximum) - 1 if dtype.kind == "int" else 0)


# steps


def _update(body: Body, op: Op, shrink: str = "") -> None:
    """`shrink`: the factor of what has been summed up so far."""
    name, kind, tile = body.names[op.result], _kind(op), body.spelling.tile
    behind = body.comment(op)
    found = _product(body, op) if kind == "contract" else _folded(body, op)
    if kind in _JOINED:
        body.add(f"{name} = {tile}.{_JOINED[kind]}({name}, {found})", behind)
    elif kind == "prod":
        body.add(f"{name} = {name} * {found}", behind)
    else:
        body.add(f"{name} = {name} * {shrink} + {found}" if shrink else f"{name} += {found}", behind)


def _product(body: Body, op: Op) -> str:
    factors = body.factors(op)
    if len(", ".join(factors)) > WIDTH - 24:
        for n, at in enumerate(("left", "right")):
            name = body.free(at)
            body.add(f"{name} = {factors[n]}")
            factors[n] = name
    return f"{body.spelling.tile}.mma({', '.join(factors)})"


def _folded(body: Body, op: Op) -> str:
    """What a block comes to along the line of the loop."""
    tile, axes = body.spelling.tile, body.layout.tile(body.axes.of(op, 0))
    line = body.axes.along(op)
    assert line is not None
    at, text = axes.index(line), body.text(op, 0)
    if len(axes) == 2:
        return f"{tile}.{('col', 'row')[at]}_{_kind(op)}({text})"
    return f"{tile}.{_kind(op)}({text})" if len(axes) == 1 else f"{tile}.{_kind(op)}({text}, axis={at})"


def _online_steps(body: Body, p: LineLoop, online: Online) -> None:
    tile, top = body.spelling.tile, body.names[online.top.result]
    _stop_early(body, p, online)
    if (scores := body.source(online.scores)) is not None:
        body.called[scores] = "scores"
    body.called.update(dict.fromkeys(online.weights, "weights"))
    later = {op for op in p.inner if op in online.behind}
    body.assign([op for op in p.inner if op not in later])
    new, shrink = body.free(f"new_{top}"), body.free("shrink")
    body.add(f"{new} = {tile}.maximum({top}, {_folded(body, online.top)})")
    body.names.update(dict.fromkeys(online.same, new))
    for op in online.weights:
        body.name(op)
    body.add(f"{shrink} = {tile}.exp({top} - {new})")
    body.assign([op for op in p.inner if op in later])
    for op in p.sums:
        if op is not online.top:
            _update(body, op, shrink if op in online.late else "")
    body.add(f"{top} = {new}")
    body.names.update(dict.fromkeys(online.same, top))


def _stop_early(body: Body, p: LineLoop, online: Online) -> None:
    """Keys behind all queries of a block, and all that follow them, add nothing."""
    scores = body.source(online.scores)
    mask = causal(body.axes, body.layout, scores) if scores is not None else None
    if mask is None or not mask.lowest or mask.lines[1] is not p.line or {*p.sums} != {online.top, *online.late}:
        return
    row = mask.lines[0]
    if row in body.layout.widths:
        at = f"{body.layout.start(row)} + {body.layout.widths[row]}"
        body.add(f"if {body.layout.counters[p.line]} >= {at}:", "# all masked from here on")
        body.add("    break")
