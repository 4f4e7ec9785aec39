"""What a derivation collects: shares of cotangents by where they belong, and the gradients that come of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.backward.cotangents import TileCotangent
from tessera.compiler.frontend.backward.emit import Line
from tessera.compiler.frontend.backward.gathers import GatheredRows
from tessera.compiler.frontend.backward.items import Item, LoopStatement
from tessera.compiler.frontend.kernel.values import TileWindow
from tessera.immutable import mutable

Key = tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Site:
    """A block of a parameter, rows of it or a scalar, whose gradient is stored when all of its shares are known."""

    parameter: str
    node: ast.expr
    window: TileWindow | None
    shares: list[TileCotangent] = field(default_factory=list[TileCotangent])
    rows: GatheredRows | None = None


@dataclass(eq=False, slots=True)
class BackwardLevel:
    """A list of statements and what has been found of its backward. `foreign`: shares of what belongs further out."""

    items: list[Item]
    above: BackwardLevel | None
    loop: LoopStatement | None = None
    names: dict[str, list[TileCotangent]] = field(default_factory=dict[str, list[TileCotangent]])
    sites: dict[Key, Site] = field(default_factory=dict[Key, Site])
    lines: list[Line] = field(default_factory=list[Line])
    foreign: dict[Key, tuple[Site | str, list[TileCotangent]]] = field(
        default_factory=dict[Key, "tuple[Site | str, list[TileCotangent]]"]
    )


@mutable
class Gradient:
    """What the backward kernel gives of a parameter; of several such arrays the rule makes a sum. `how`: "own" (in
    place of its blocks), "shared" (a sum over programs), "rows" (of each row, which the rule adds up), "gathered" (of
    the rows that `numbers` says). `windows`: the blocks that are stored. `dims`: of computed numbers, whose type is
    `dtype`."""

    parameter: str
    name: str
    how: str
    stores: int = 0
    numbers: str = ""
    windows: list[TileWindow] = field(default_factory=list[TileWindow])
    dims: tuple[str, ...] = ()
    dtype: str = ""


@dataclass(eq=False, slots=True)
class SharedBlock:
    """`part`: the name of the share that one program has of it, in the innermost of `loops`. `place`: where its
    gradient stands."""

    gradient: Gradient
    node: ast.expr
    window: TileWindow
    place: ast.Subscript
    part: str
    loops: list[LoopStatement]
