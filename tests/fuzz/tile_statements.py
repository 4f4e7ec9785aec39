"""Statements of the random kernels in which tiles are sorted, multiplied, shared, carried and left out by masks.

What a statement stores is known exactly: elements are small integers, and what does not exist enters reductions alone,
which leave it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.index_programs import Writer

WIDTHS = (2, 4, 8, 16)
COMBINES = ("lambda a, b: b", "lambda a, b: a", "lambda a, b: a + b", "lambda a, b: b if b > a else a")
"""associative, not all of them commutative"""


def reduced(w: Writer, text: str, width: int) -> str:
    """One number of a tile's elements that exist; of few, under another shape."""
    match w.draw.randrange(4):
        case 0:
            return f"ts.tile.{w.pick('sum', 'max', 'min')}({text})"
        case 3:
            combine = w.pick(*COMBINES)  # 0 is the identity of sums alone
            identity = w.pick("", ", identity=0") if "+" in combine else ""
            return f"ts.tile.reduce({text}, {combine}{identity})"
        case 1:
            return f"ts.tile.max({text}.reshape(2, {width // 2}))"
        case _:
            return f"ts.tile.sum({text} * ts.tile.arange({width}))"


def ordered(w: Writer, depth: int) -> None:
    """A sort or a scan of a vector or, folded, along an axis of a matrix."""
    width = w.number(*WIDTHS)
    tile = w.tile(depth, width)
    down = w.pick("", ", descending=True")
    match w.draw.randrange(6):
        case 4:
            turned = w.pick("", ", reverse=True")
            value = reduced(w, f"ts.tile.associative_scan({tile}, {w.pick(*COMBINES)}{turned})", width)
        case 5:
            axis = w.number(0, 1)
            folded = f"{tile}.reshape({width // 2}, 2)" if axis else f"{tile}.reshape(2, {width // 2})"
            value = f"ts.tile.sum(ts.tile.reduce({folded}, {w.pick(*COMBINES)}, axis={axis}))"
        case 0:
            value = reduced(w, f"ts.tile.sort({tile}{down})", width)
        case 1:
            value = reduced(w, f"ts.tile.{w.pick('cumsum', 'cummax', 'cummin')}({tile})", width)
        case 2:
            axis = w.number(0, 1)
            folded = f"ts.tile.sort({tile}.reshape(2, {width // 2}), axis={axis}{down})"
            value = reduced(w, f"{folded}.reshape({width})", width)
        case _:
            folded = f"ts.tile.cummax({tile}.reshape({width // 2}, 2), axis={w.number(0, 1)})"
            value = reduced(w, f"{folded}.reshape({width})", width)
    w.line(depth, f"y[p, {w.index()}] = {value}")


def block(w: Writer, rows: int, columns: int) -> str:
    return f"b[{w.slice(rows)}, {w.slice(columns)}]"


def product(w: Writer, depth: int) -> None:
    """A product of blocks of b, one of them perhaps shared, over a loop or not."""
    m, k, n = (w.number(1, 2, 4, 8, 16) for _ in range(3))
    acc = w.fresh("acc")
    shared = w.draw.random() < 0.5
    held = w.fresh("s")
    if shared:
        swizzle = w.pick("", ', swizzle="xor"') if k in (8, 16) else ""
        w.line(depth, f"{held} = ts.tile.alloc_shared(({m}, {k}), ts.f32{swizzle})", f"{held} = ts.Shared()")

    def factors(inner: int) -> str:
        left = block(w, m, k)
        if shared:
            w.line(inner, f"ts.tile.cp_async({held}, {left})", f"{held}.tile = {left}")
            w.line(inner, "ts.tile.barrier()", "pass")
        right = block(w, k, n) if w.draw.random() < 0.7 else f"{block(w, n, k)}.T"
        return f"ts.tile.mma({held if shared else left}, {right}.reshape({k}, {n}))"

    if w.draw.random() < 0.6:
        w.line(depth, f"{acc} = ts.tile.zeros(({m}, {n}))")

        def body(inner: int) -> None:
            text = factors(inner)
            plain = text.replace(f"({held},", f"({held}.tile,")
            w.line(inner, f"{acc} += {text}", f"{acc} = keep({acc}, {acc} + {plain})")

        w.loop(depth, body)
        value = acc
    else:
        value = w.fresh("v")
        text = factors(depth)
        w.line(depth, f"{value} = {text}", f"{value} = {text.replace(f'({held},', f'({held}.tile,')}")
    axis = w.number(0, 1)
    if value == acc:  # what such a sum lacks is what all its steps lack, which the text alone does not say
        w.line(
            depth, f"y[p, {w.slice((m, n)[1 - axis])}] = ts.tile.sum({value}, axis={axis}).reshape({(m, n)[1 - axis]})"
        )
    else:
        w.line(depth, f"y[p, {w.index()}] = ts.tile.{w.pick('sum', 'max')}({value})")


def ahead(w: Writer, depth: int) -> None:
    """A tile that each step of a loop makes anew is used a step later, and behind the loop."""
    width = w.number(*WIDTHS)
    tile, total = w.fresh("v"), w.fresh("m")
    w.line(depth, f"{tile} = {w.loose(depth, width)}")
    w.line(depth, f"{total} = ts.tile.full((), 1.0)")

    def body(inner: int) -> None:
        w.line(inner, f"{total} = ts.tile.maximum({total}, {reduced(w, tile, width)})")
        w.line(inner, f"{tile} = {w.loose(inner, width, must=w.counters[-1])}")
        left(w, inner, total)

    w.loop(depth, body)
    w.line(depth, f"y[p, {w.index()}] = {total}")
    w.line(depth, f"y[p, {w.index()}] = {reduced(w, tile, width)}")


def left(w: Writer, depth: int, total: str) -> None:
    """The loop ends, or its step does, under a condition that is known when it runs."""
    if w.draw.random() < 0.5:
        condition = w.pick(f"{total} > {w.number(0, 2, 6)}", f"{w.index(1)} > {w.number(3, 9)}")
        w.line(depth, f"if {condition}:")
        w.line(depth + 1, w.pick("break", "continue"))


def either(w: Writer, depth: int) -> None:
    """A tile that a branch replaces or adds to."""
    width = w.number(*WIDTHS)
    tile = w.fresh("v")
    w.line(depth, f"{tile} = {w.loose(depth, width)}")
    w.line(depth, f"if {w.pick(w.index(1), w.scalar(depth))} {w.pick('<', '>')} {w.number(0, 2, 5)}:")
    w.line(depth + 1, f"{tile} = {w.loose(depth, width)}")
    if w.draw.random() < 0.4:
        w.line(depth, "else:")
        w.line(depth + 1, f"{tile} = {tile} * 2 + 1")
    w.line(depth, f"y[p, {w.index()}] = {reduced(w, tile, width)}")


def lanes(w: Writer, depth: int) -> None:
    """Stores under an `if` over lanes, with another side or not.

    What sums is said before it: in it, a sum along the lanes of the mask is one of those where it holds.
    """
    width, at, mask = w.number(*WIDTHS), w.index(1), w.fresh("m")
    w.line(depth, f"{mask} = {w.mask(width, at)}")
    value, place = before_masks(w, depth, width), f"y[p, ts.tile.arange({width}) + {at}]"
    other = before_masks(w, depth, width) if w.draw.random() < 0.3 else ""
    w.line(depth, f"if {mask}:", f"ts.tile.store({place}, {value}, mask={mask})")
    w.only_text(depth + 1, f"{place} = {value}")
    if other:
        w.line(depth, "else:", f"ts.tile.store({place}, {other}, mask={mask}.turned())")
        w.only_text(depth + 1, f"{place} = {other}")


def before_masks(w: Writer, depth: int, width: int) -> str:
    value = w.loose(depth, width)
    if "_sum(" not in value:
        return value
    name = w.fresh("v")
    w.line(depth, f"{name} = {value}")
    return name


STATEMENTS = (ordered, product, ahead, either, lanes)
