"""Cotangents of functions that move elements of a tile: parts, sorting, picking by numbers, joining."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.backward.code import number
from tessera.compiler.frontend.backward.cotangents import Pull, TileCotangent


class Moves:
    functions = frozenset({"sort", "gather", "take", "concat", "concatenate", "cat", "flip"})

    def __init__(self, pulls: Pull) -> None:
        self.pulls, self.rec = pulls, pulls.rec

    def call(self, node: ast.Call, function: str, given: dict[str, ast.expr], c: TileCotangent) -> None:
        """Raises CompileError TS355 where an axis is not a number."""
        x, g = node.args[0], self.pulls.writer()
        c = self.named(node, c)
        at = {"flip": 1, "sort": 1, "gather": 2, "take": 2}.get(function, 1)
        said = node.args[at] if len(node.args) > at else given.get("axis") or given.get("dim") or number(-1)
        axis = self.rec.literal(said)
        if not isinstance(axis, int) or (function == "gather" and len(node.args) > 2):
            raise self.rec.refused(node, f"it has no rule for {ast.unparse(node)}")
        if function == "flip":
            self.pulls.pull(x, replace(c, node=g.call("flip", c.node, axis=said)))
        elif function == "sort":
            more = {k: v for k, v in given.items() if k == "descending"}
            if len(node.args) > 2:
                more["descending"] = node.args[2]
            order = g.call("argsort", self.pulls.read(x), axis=said, **more)
            self.added(x, order, c, said)
        elif function in ("gather", "take"):
            self.added(x, self.pulls.read(node.args[1]), c, said)
        else:
            self.joined(node, axis, c)

    def named(self, node: ast.expr, c: TileCotangent) -> TileCotangent:
        c = replace(self.pulls.cleaned(self.pulls.full(c, node)), mask=None)
        if isinstance(c.node, ast.Name):
            return c
        return replace(c, node=self.pulls.home.bound(self.pulls.hint(node), c.node))

    def added(self, x: ast.expr, places: ast.expr, c: TileCotangent, axis: ast.expr) -> None:
        """Each element back to where it came from; of several from one place the sum, in their order."""
        g = self.pulls.writer()
        zeros = g.call("zeros_like", self.pulls.read(x))
        self.pulls.pull(x, replace(c, node=g.call("scatter_add", zeros, places, c.node, axis=axis)))

    def joined(self, node: ast.Call, axis: int, c: TileCotangent) -> None:
        """Of tiles that are joined, each has its part."""
        tiles, rank, known = node.args[0], self.rec.rank(node), self.rec.k.tiles.known
        if not isinstance(tiles, (ast.Tuple, ast.List)):
            raise self.rec.refused(node, "the tiles that it joins are not written as a tuple")
        start = 0
        for x in tiles.elts:
            size: Any = known(self.rec.shape(x)[axis])
            if not isinstance(size, int):
                raise self.rec.refused(node, "how long the tiles are that it joins is not a number")
            index: list[ast.expr] = [ast.Slice() for _ in range(rank)]
            index[axis] = ast.Slice(number(start), number(start + size))
            self.pulls.pull(x, replace(c, node=ast.Subscript(c.node, _index(index), ast.Load())))
            start += size

    def part(self, node: ast.Subscript, c: TileCotangent) -> bool:
        """`t[:, :16]`, `t[:, ::2]`, `t[:, which]`: zeros around it. Whether it is one of them, along one axis."""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        cut = [
            a for a, i in enumerate(index) if not (isinstance(i, ast.Slice) and i.lower is i.upper is i.step is None)
        ]
        rank, x, g = self.rec.rank(node.value), node.value, self.pulls.writer()
        if len(cut) != 1 or self.rec.rank(node) != rank:
            return False
        (a,) = cut
        i, axis, size = index[a], number(a - rank), self.rec.k.tiles.known(self.rec.shape(x)[a])
        if not isinstance(i, ast.Slice):
            if self.rec.tile(i) is None:
                return False
            c = self.named(node, c)
            self.added(x, self.pulls.read(i), c, axis)
            return True
        bounds = [None if b is None else self.rec.literal(b) for b in (i.lower, i.upper, i.step)]
        if not isinstance(size, int) or not all(b is None or isinstance(b, int) for b in bounds):
            return False
        places, c = range(size)[slice(*bounds)], self.named(node, c)
        if places.step != 1:
            counted = g.call("arange", number(0), number(len(places)))
            value: ast.expr = ast.BinOp(counted, ast.Mult(), number(places.step))
            value = ast.BinOp(value, ast.Add(), number(places.start)) if places.start else value
            self.added(x, value, c, axis)
            return True
        own = self.pulls.read(x)
        parts = [c.node]
        for start, stop in ((0, places.start), (places.stop, size)):
            if start < stop:
                rest: list[ast.expr] = [ast.Slice() for _ in range(rank)]
                rest[a] = ast.Slice(None if start == 0 else number(start), None if stop == size else number(stop))
                zeros = g.call("zeros_like", ast.Subscript(own, _index(rest), ast.Load()))
                parts.insert(0 if start == 0 else len(parts), zeros)
        whole = parts[0] if len(parts) == 1 else g.call("concat", ast.Tuple(parts, ast.Load()), axis=axis)
        self.pulls.pull(x, replace(c, node=whole))
        return True


def _index(parts: list[ast.expr]) -> ast.expr:
    return parts[0] if len(parts) == 1 else ast.Tuple([*parts], ast.Load())
