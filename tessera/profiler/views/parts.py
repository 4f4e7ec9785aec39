"""The parts of its inputs that a tile read: worked out from what its kernel reads in each program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.compiler.tile.reads import program
from tessera.language import dims
from tessera.language.dims import Dim, Expr
from tessera.language.lazy import np
from tessera.runtime.events import LaunchEvent

Tree = int | list[Any]
"""a dim over the program's numbers, for tiles.js: a number, ["p", axis], [operator, a, b], or ["+", [factor, a, b],
[factor] ...], a sum of products"""
UNKNOWN = "? is computed from data"


def trees(launch: LaunchEvent | None) -> list[tuple[str, list[list[Tree] | None]]]:
    """The operands of a launch with the first index, the end and the extent of what its programs read of each axis, at
    the launch's sizes; None where that is not known."""
    out: list[tuple[str, list[list[Tree] | None]]] = []
    for operand, axes, *_ in launch.attributes.get("parts", ()) if launch is not None else ():
        out.append((operand, [None if axis is None else _axis(launch, axis) for axis in axes]))
    return out


def narrow_reads(launch: LaunchEvent) -> list[tuple[str, int, int]]:
    """(operand, elements side by side, rows) of what the first tile reads of matrices of which it takes a few columns
    of many rows."""
    start, found = [0] * len(launch.grid), list[tuple[str, int, int]]()
    for operand, axes in trees(launch):
        if len(axes) < 2 or None in axes or operand.startswith("a view of"):
            continue
        *outer, (wide, extent) = [
            (min(high, extent) - max(low, 0), extent)
            for low, high, extent in ([_value(tree, start) for tree in axis] for axis in axes if axis is not None)
        ]
        if 0 < wide < extent:
            found.append((operand, wide, math.prod(rows for rows, _ in outer)))
    return found


def _axis(launch: LaunchEvent, texts: Sequence[str]) -> list[Tree] | None:
    sizes = launch.attributes.get("sizes", {})
    known = [dims.substitute(dims.parse(text), sizes) for text in texts]
    own = {program(axis) for axis in range(len(launch.grid))}
    return [_tree(d) for d in known] if all(dims.symbols(d) <= own for d in known) else None


def _tree(d: Dim) -> Tree:
    if not isinstance(d, Expr):
        return d
    return ["+", *([factor, *map(_atom, atoms)] for atoms, factor in d.terms)]


def _atom(atom: dims.Atom) -> Tree:
    if atom.op == "sym":
        return ["p", int(str(atom.args[0]).rpartition("_")[2])]
    return [atom.op, *(_tree(d) for d in atom.args)]  # type: ignore[arg-type]


def text_of(operands: Sequence[tuple[str, Sequence[Sequence[Tree] | None]]], place: Sequence[int]) -> str:
    """`x[256:512, 0:64], w[0:64, 3]` for the tile with these coordinates; "" where nothing is known."""
    said = [f"{operand}[{', '.join(_axis_text(axis, place) for axis in axes)}]" for operand, axes in operands]
    text = ", ".join(said)
    return f"{text} ({UNKNOWN})" if any(None in axes for _, axes in operands) else text


def _axis_text(axis: Sequence[Tree] | None, place: Sequence[int]) -> str:
    if axis is None:
        return "?"
    low, high, extent = (_value(tree, place) for tree in axis)
    low, high = max(low, 0), min(high, extent)
    return str(low) if high == low + 1 else f"{low}:{max(low, high)}"


def _value(tree: Tree, place: Sequence[int]) -> int:
    if isinstance(tree, int):
        return tree
    kind, *rest = tree
    if kind == "p":
        return place[rest[0]]
    if kind == "+":
        total = 0
        for factor, *atoms in rest:
            for atom in atoms:
                factor *= _value(atom, place)
            total += factor
        return total
    a, b = (_value(part, place) for part in rest)
    return {"min": min, "max": max, "//": int.__floordiv__, "%": int.__mod__}[kind](a, b)


def values(tree: Tree, places: Mapping[int, Any]) -> Any:
    """The same for many programs at once: `places` has their numbers along each axis that the dim depends on."""
    if isinstance(tree, int):
        return np.int64(tree)
    kind, *rest = tree
    if kind == "p":
        return places[rest[0]]
    if kind == "+":
        return sum(factor * math.prod(values(atom, places) for atom in atoms) for factor, *atoms in rest)
    a, b = (values(part, places) for part in rest)
    return {"min": np.minimum, "max": np.maximum, "//": np.floor_divide, "%": np.mod}[kind](a, b)
