"""Statements of the random kernels in which tiles are read and stored in parts, at computed places too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.tile_statements import reduced

if TYPE_CHECKING:
    from tests.fuzz.index_programs import Writer

WIDTHS = (4, 8, 16)


def stored(w: Writer, depth: int) -> None:
    """A vector that is stored to in parts, in a loop or not, under conditions or not."""
    width, tile = w.number(*WIDTHS), w.fresh("v")
    w.line(depth, f"{tile} = {w.loose(depth, width)}")

    def parts(inner: int, looped: bool) -> None:
        depth = inner
        if looped:
            w.only_plain(depth, f"was = {tile}")
        for _ in range(w.number(1, 2, 3)):
            index, value = a_part(w, inner, width, all_of_it=not looped)
            if w.draw.random() < 0.2:
                w.line(inner, f"if {w.index(1)} {w.pick('<', '>')} {w.number(0, 2, 5)}:")
                inner += 1
            w.line(inner, f"{tile}[{index}] = {value}", f"{tile} = {tile}.put({index_text(index)}, {value})")
        if looped:  # what does not exist in a step leaves an element as it was before
            w.only_plain(depth, f"{tile} = keep(was, {tile})")

    if w.draw.random() < 0.4:
        w.loop(depth, lambda inner: parts(inner, True))
    else:
        parts(depth, False)
    w.line(depth, f"y[p, {w.index()}] = {reduced(w, tile, width)}")
    if w.draw.random() < 0.5:
        w.line(depth, f"y[p, {w.slice(width)}] = {tile}")


def index_text(index: str) -> str:
    """An index as an argument of the oracle: `slice(2, 5)` for `2:5`."""
    bounds = index.split(" : ") if not index.startswith("g[") else [index]
    return f"slice({', '.join(b or 'None' for b in bounds)})" if len(bounds) > 1 else index


def a_part(w: Writer, depth: int, width: int, all_of_it: bool = True) -> tuple[str, str]:
    """An index of a vector, and what is stored there; of all of it only where that may be."""
    size = w.number(1, 2, 4) if all_of_it or width > 4 else w.number(1, 2)
    match w.draw.randrange(5):
        case 0:
            start = w.draw.randrange(width - size + 1)
            return f"{start} : {start + size}", w.loose(depth, size)
        case 1:
            step = w.number(2, 3, -2, -1 if all_of_it else -3)
            return f" :  : {step}", str(w.number(3, -2))
        case 2:
            return w.index(1), w.scalar(depth)
        case 3:
            at = w.index(1)
            return f"{at} : {at} + {size}", w.loose(depth, size)
        case _:
            return f"g[{w.slice(size)}]", w.loose(depth, size)


def moved(w: Writer, depth: int) -> None:
    """Elements of a vector at computed places."""
    width, size, tile = w.number(*WIDTHS), w.number(2, 4, 8), w.fresh("v")
    w.line(depth, f"{tile} = {w.loose(depth, width)}")
    at, index = w.index(1), f"g[{w.slice(size)}]"
    match w.draw.randrange(8):
        case 0:
            value = reduced(w, f"{tile}[{at} : {at} + {size}]", size)
        case 1:
            value = reduced(w, f"ts.tile.take({tile}, {index})", size)
        case 2:
            value = reduced(w, f"{tile}[{index}]", size)
        case 3:
            value = reduced(w, f"ts.tile.gather({tile}, {index})", size)
        case 4:
            value = reduced(w, f"ts.tile.scatter({tile}, {index}, {w.loose(depth, size)})", width)
        case 5:
            value = reduced(w, f"ts.tile.scatter_add({tile}, {index}, {w.loose(depth, size)})", width)
        case 6:
            value = f"ts.tile.sum({tile}[{at}])"
        case _:
            down = w.pick("", ", descending=True")
            value = reduced(w, f"{tile}[ts.tile.argsort({tile}{down})]", width)
    w.line(depth, f"y[p, {w.index()}] = {value}")


def crossed(w: Writer, depth: int) -> None:
    """A matrix read at a slice of rows and computed columns, or the other way round, and stored in the same way."""
    rows, columns = w.number(2, 4, 8), w.number(2, 4)
    index = f"g[{w.slice(columns)}]"
    if w.draw.random() < 0.5:
        text, shape = f"b[{w.slice(rows)}, {index}]", (rows, columns)
    else:
        text, shape = f"b[{index}, {w.slice(rows)}]", (columns, rows)
    axis = w.number(0, 1)
    w.line(depth, f"y[p, {w.index()}] = ts.tile.max({text})")
    w.line(depth, f"y[p, {w.slice(shape[1 - axis])}] = ts.tile.sum({text}, axis={axis}).reshape({shape[1 - axis]})")


def kept(w: Writer, depth: int) -> None:
    """A shared tile that is stored to in loops and branches, all of it or a part, and read before and behind."""
    width, held, total = w.number(*WIDTHS), w.fresh("s"), w.fresh("m")
    w.line(depth, f"{held} = ts.tile.alloc_shared(({width},), ts.f32)", f"{held} = ts.Shared()")
    first = w.loose(depth, width)
    w.line(depth, f"ts.tile.store({held}, {first})", f"{held}.tile = {first}")
    w.line(depth, f"{total} = ts.tile.full((), 1.0)")

    def body(inner: int) -> None:
        if w.draw.random() < 0.5:
            read = f"{total} = ts.tile.maximum({total}, ts.tile.max({{}}))"
            w.line(inner, read.format(held), read.format(f"{held}.tile"))
        if w.draw.random() < 0.5:
            value = w.loose(inner, width)
            w.line(inner, f"ts.tile.store({held}, {value})", f"{held}.tile = {value}")
        else:
            index, value = a_part(w, inner, width)
            new = f"{held}.tile.put({index_text(index)}, {value})"
            w.line(inner, f"{held}[{index}] = {value}", f"{held}.tile = {new}")

    if w.draw.random() < 0.6:
        w.loop(depth, body)
    else:
        w.line(depth, f"if {w.pick(w.index(1), w.scalar(depth))} {w.pick('<', '>')} {w.number(0, 2, 5)}:")
        body(depth + 1)
    w.line(depth, f"y[p, {w.index()}] = {total}")
    at, value = w.index(), reduced(w, f"({held} + 0)", width)
    w.line(depth, f"y[p, {at}] = {value}", f"y[p, {at}] = {value}".replace(f"({held} + 0)", f"({held}.tile + 0)"))


PARTS = (stored, moved, crossed, kept)
