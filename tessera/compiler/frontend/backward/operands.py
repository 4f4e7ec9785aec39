"""Gradients of blocks that several programs share, with one kernel for each operand.

A program of it has one block of the parameter. What moved the block in the kernel, along the grid or in a loop, is its
grid; what did not is a loop, in which the shares of all programs that read the block are added up in ascending order.
So the sum is made where it is stored: without atomics, without memory for parts of it, in the tiles of the author.
What such a program cannot compute again by itself, as the sum of a loop, the first kernel keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from tessera.compiler.frontend.backward.code import name, number, operation
from tessera.compiler.frontend.backward.derive import Derivation
from tessera.compiler.frontend.backward.emit import live, loop_over, reads
from tessera.compiler.frontend.backward.items import LoopStatement
from tessera.compiler.frontend.backward.places import subscript, together
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.backward.rewrites.one_walk import one_walk
from tessera.compiler.frontend.backward.rewrites.turned import turned
from tessera.compiler.frontend.backward.sites import Gradient, SharedBlock
from tessera.compiler.frontend.kernel.tiles import tile_type
from tessera.compiler.frontend.kernel.values import Coordinate, marks
from tessera.compiler.frontend.names.values import is_list
from tessera.compiler.frontend.syntax.trees import clone
from tessera.immutable import mutable
from tessera.language.dims import Dim

_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class KeptTile:
    """A value of each program that the first kernel stores for the others. `array`: the tensor's name."""

    array: str
    dims: tuple[str, ...]
    wide: bool
    place: ast.expr
    value: str


@dataclass(eq=False, slots=True)
class OperandKernel:
    """Gives the gradients of blocks that the same coordinates move."""

    gradients: list[Gradient]
    body: list[ast.stmt]


@mutable
class Walk:
    """How a coordinate is written. `over`: start, end and step of a loop over it; `implicit`: it is a name alone."""

    name: str
    over: list[ast.expr]
    implicit: bool


class Operands:
    """`body`: the first kernel's, which keeps what the others read. Raises CompileError TS355."""

    def __init__(self, made: Derivation) -> None:
        self.made, self.rec, self.k = made, made.rec, made.k
        self.program = self.of_program()
        self.kept: dict[str, KeptTile] = {}
        self.groups: list[tuple[SharedBlock, ast.expr, str]] = []
        """blocks that groups of programs share: how the text writes the group's number, and what walks the groups"""
        self.batches = [c for c in self.k.coordinates.grid if c.batch]
        self.kernels = [self.kernel(blocks) for blocks in self.alike()]
        self.keep_all()
        self.program[:] = one_walk(made, live(self.program))
        self.body = live(made.body)

    def of_program(self) -> list[ast.stmt]:
        """What one program does: the body of the grid's loop, where there is one."""
        grid = {x.head.target.id for items in self.made.reading.lists for x in items
                if isinstance(x, LoopStatement) and x.grid and isinstance(x.head.target, ast.Name)}  # fmt: skip
        found = self.made.body
        while (inner := next((x for x in found if isinstance(x, ast.For) and isinstance(x.target, ast.Name)
                              and x.target.id in grid), None)) is not None:  # fmt: skip
            found = inner.body
        return found

    def keep_all(self) -> None:
        """The first kernel stores what the others read."""
        for kept in self.kept.values():
            place = clone(kept.place)
            assert isinstance(place, ast.Subscript)
            self.program.append(
                ast.Assign([ast.Subscript(place.value, place.slice, ast.Store())], name(kept.value), lineno=1)
            )

    def alike(self) -> list[list[SharedBlock]]:
        """The blocks that programs share, those together whose gradients the same loops add up."""
        found: dict[Any, list[SharedBlock]] = {}
        order = [p.name for p in self.k.arguments]
        for s in sorted(self.made.shared_blocks, key=lambda s: order.index(s.gradient.parameter)):
            moving = self.made.moving(s.window)
            walked = [(self.extent(s, x), self.implicit(s, x)) for x in s.loops if x.marks & moving]
            ends = [(ast.unparse(extent), implicit) for extent, implicit in walked]
            groups = [str(self.rec.group(s.window, c)) for c in self.k.coordinates.grid]
            key = (s.gradient.how, moving, *map(id, s.loops), *ends, *groups)
            same = found.setdefault(key, [])
            if same and s.gradient.parameter in (other.gradient.parameter for other in same):
                found[key, s.gradient.name] = [s]
            else:
                same.append(s)
        return [*found.values()]

    def kernel(self, blocks: list[SharedBlock]) -> OperandKernel:
        s = blocks[0]
        moving = self.made.moving(s.window)
        grid = [c for c in self.k.coordinates.grid if c not in self.batches]
        groups: dict[Coordinate, Walk] = {}
        for c in (c for c in grid if self.rec.group(s.window, c) is not None):
            groups[c], *_ = [self.group(x, c) for x in blocks]
        walks = [(groups.get(c) or self.walk(s, c), c not in groups and bool(c.walks & moving)) for c in grid]
        head = next((w for w, moves in walks if moves and not w.implicit), None)
        renamed: dict[str, str] = {}
        loops: list[Walk] = []
        for w, moves in walks:
            if not moves:
                loops.append(w)
                if w.implicit:
                    renamed[w.name] = self.made.fresh(w.name.removeprefix("tile_"))
        guards: list[ast.expr] = []
        levels, totals = self.shares(blocks)
        if any(reads(level) & self.made.zeroed for level in levels[1:]):
            raise self.rec.refused(s.node, "the steps of a loop store what several programs read; declare the result")
        body: list[ast.stmt] = []
        for i, loop in reversed(list(enumerate(s.loops))):
            body = live([*_unstored(levels[i + 1]), *body], roots=totals)
            if not loop.marks & moving:
                body = [loop_over(loop.head.target, loop.head.iter, body)]
                continue
            walk, found = self.from_loop(s, loop), self.implicit(s, loop)
            if not self.whole(s, loop):
                end = self.extent(s, loop)
                if not _begun(walk, end, loops):
                    guards.append(ast.Compare(name(walk.name), [ast.Lt()], [walk.over[1]]))
                walk.over[1] = end
            if found is not None:
                renamed[walk.name] = found
            elif head is not None:
                raise self.rec.refused(s.node, "two coordinates would have to walk the grid by loops; name its dims")
            else:
                head = walk
        if not s.loops:
            body, levels = [x for x in levels[0] if _assigned([x]) & totals], [levels[0]]
            levels[0] = [x for x in levels[0] if not _assigned([x]) & totals]
        made = self.written(blocks, levels[0], body, guards, loops, head, renamed)
        return OperandKernel([x.gradient for x in blocks], made)

    def shares(self, blocks: list[SharedBlock]) -> tuple[list[list[ast.stmt]], set[str]]:
        """The statements before the last share, of each level, in which shares are added to totals; their names."""
        paths = [found for s in blocks if (found := self.path(s.part, self.program)) is not None]
        levels = max(paths, key=lambda levels: len(levels[-1]))
        totals = {s.part: f"{s.gradient.name}_tile" for s in blocks}
        for i, x in enumerate(levels[-1]):
            if isinstance(x, ast.Assign) and (part := next(iter(_assigned([x]) & totals.keys()), None)) is not None:
                levels[-1][i] = ast.AugAssign(ast.Name(totals[part], ast.Store()), ast.Add(), x.value)
        return levels, {*totals.values()}

    def written(
        self,
        blocks: list[SharedBlock],
        before: list[ast.stmt],
        body: list[ast.stmt],
        guards: list[ast.expr],
        loops: list[Walk],
        head: Walk | None,
        renamed: dict[str, str],
    ) -> list[ast.stmt]:
        s, g = blocks[0], self.made.pulls.writer()
        groups = _Replaced({ast.dump(index): own for block, index, own in self.groups if block in blocks})
        body, before = groups.of(body), groups.of(before)
        nodes, places = [groups.of(x.node) for x in blocks], [groups.of(x.place) for x in blocks]
        counters = {self.from_loop(s, x).name for x in s.loops}
        guards = [groups.of(e) for e in guards]
        bounds = [*guards, *(e for w in (*loops, *([head] if head is not None else [])) for e in w.over)]
        wanted = reads(body) | reads([ast.Expr(e) for e in (*nodes, *places, *bounds)])
        needed = self.again(s, wanted - _assigned(body) - counters, before)
        first, steps = _hoisted([*needed, *body], {w.name for w in loops})
        if guards:  # steps that add nothing load nothing
            of_test = live([x for x in steps if isinstance(x, ast.Assign)], roots=reads([ast.Expr(e) for e in guards]))
            test = guards[0] if len(guards) == 1 else ast.BoolOp(ast.And(), guards)
            steps = [*of_test, ast.If(test, [x for x in steps if x not in of_test], [])]
        for w in reversed(loops):
            steps = list[ast.stmt]([loop_over(name(w.name), g.call("range_k", *w.over), steps)])
        starts: list[ast.stmt] = []
        stores: list[ast.stmt] = []
        for x, node, place in zip(blocks, nodes, places, strict=True):
            total, zeros = f"{x.gradient.name}_tile", g.call("zeros_like", node)
            if x.window.view.dtype.is_low_precision:
                zeros = g.call("cast", zeros, self.made.f32())
            starts.append(ast.Assign([ast.Name(total, ast.Store())], zeros, lineno=1))
            value: ast.expr = name(total)
            if x.gradient.how == "shared":
                value = g.call("reduce_across", value)
            stores.append(ast.Assign([ast.Subscript(place.value, place.slice, ast.Store())], value, lineno=1))
        whole = [*first, *starts, *steps, *stores]
        if head is not None:
            of_head = live(first, roots=reads([ast.Expr(e) for e in head.over]))
            rest = [x for x in whole if x not in of_head]
            whole = [*of_head, loop_over(name(head.name), g.call("range", *head.over), rest)]
        return [_Renamed(renamed).visit(clone(x)) for x in turned(self.made, whole)]

    # coordinates
    def walk(self, s: SharedBlock, c: Coordinate) -> Walk:
        if c in self.k.divided or c.kind != "grid":
            raise self.rec.refused(
                s.node, f"programs share {s.gradient.parameter}, and where they lie is not written as tile_m or a range"
            )
        for items in self.made.reading.lists:
            for x in items:
                if isinstance(x, LoopStatement) and x.grid and x.marks & c.walks:
                    return self.from_loop(s, x)
        said = self.made.places.implicit(c)
        if said is None or c.extent is None:
            raise self.rec.refused(s.node, f"how {c.name} walks the grid is not written")
        return Walk(said[0], [number(0), _parsed(c.extent), said[1]], True)

    def group(self, s: SharedBlock, c: Coordinate) -> Walk:
        """The programs along a coordinate that share the block, as a loop over them in ascending order: which group it
        is walks the grid, under the name of the parameter's dim."""
        found, walk = self.rec.group(s.window, c), self.walk(s, c)
        assert found is not None
        axis, count = found
        index = self.index(s.node, axis)
        dim = str(s.window.view.shape[axis])
        own = f"tile_{dim.lower()}"
        if not walk.implicit or index is None or not dim.isidentifier() or own in self.made.reading.taken:
            raise self.rec.refused(
                s.node, f"programs of a group share {s.gradient.parameter}; write tile_h // n along a dim with a name"
            )
        self.groups.append((s, index, own))
        first = ast.BinOp(name(own), ast.Mult(), _parsed(count))
        end = ast.Call(name("min"), [ast.BinOp(first, ast.Add(), _parsed(count)), walk.over[1]], [])
        return Walk(walk.name, [first, end, number(1)], True)

    def index(self, node: ast.expr, axis: int) -> ast.expr | None:
        """How the text writes the index of an axis that a block has one element of."""
        if not isinstance(node, ast.Subscript):
            return None
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        plain = not any(
            isinstance(p, ast.Starred) or (isinstance(p, ast.Constant) and p.value in (..., None)) for p in parts
        )
        return parts[axis] if plain and axis < len(parts) and not isinstance(parts[axis], ast.Slice) else None

    def from_loop(self, s: SharedBlock, loop: LoopStatement) -> Walk:
        assert isinstance(loop.head.iter, ast.Call) and isinstance(loop.head.target, ast.Name)
        given = loop.head.iter.args
        if loop.head.iter.keywords:
            raise self.rec.refused(loop.head, "give the bounds of the loop without their names")
        over = [number(0), *given] if len(given) == 1 else [*given]
        return Walk(loop.head.target.id, over if len(over) == 3 else [*over, number(1)], False)

    def axis(self, s: SharedBlock, loop: LoopStatement) -> int:
        """The axis of the parameter that a loop walks."""
        found = [i for i, o in enumerate(s.window.offsets) if marks(o) & loop.marks]
        if len(found) != 1 or loop.counting.start != 0:
            raise self.rec.refused(s.node, "the blocks of its gradient would not begin at multiples of their size")
        return found[0]

    def extent(self, s: SharedBlock, loop: LoopStatement) -> ast.expr:
        return _parsed(s.window.view.shape[self.axis(s, loop)])

    def whole(self, s: SharedBlock, loop: LoopStatement) -> bool:
        """Whether the loop walks all of the axis."""
        known = self.k.tiles.known
        return known(loop.counting.stop) == known(s.window.view.shape[self.axis(s, loop)])

    def implicit(self, s: SharedBlock, loop: LoopStatement) -> str | None:
        """The implicit coordinate that may stand for the counter of a loop."""
        a, known = self.axis(s, loop), self.k.tiles.known
        dim, size = str(s.window.view.shape[a]), s.window.sizes[a]
        found = f"tile_{dim.lower()}"
        if not dim.isidentifier() or known(size) != known(loop.counting.step) or found in self.made.reading.taken:
            return None
        return None if str(s.window.offsets[a]) not in loop.marks else found

    # values
    def path(self, part: str, within: list[ast.stmt]) -> list[list[ast.stmt]] | None:
        """The statements before the share of a program, of each level."""
        for i, x in enumerate(within):
            if isinstance(x, ast.Assign) and part in _assigned([x]):
                return [within[: i + 1]]
            if isinstance(x, ast.For) and (found := self.path(part, x.body)) is not None:
                return [within[:i], *found]
        return None

    def again(self, s: SharedBlock, wanted: set[str], before: list[ast.stmt]) -> list[ast.stmt]:
        """What the programs of this kernel compute or load of what stands before the loops."""
        loads: list[ast.stmt] = []
        found: list[ast.stmt] = []
        for x in reversed(before):
            own = _assigned([x]) & wanted
            for n in sorted(n for n in own if self.made.all_kept or self.costly(n, before)):
                if (kept := self.keep(n)) is not None:
                    loads.append(ast.Assign([ast.Name(n, ast.Store())], clone(kept.place), lineno=1))
                    own.discard(n)
                    wanted.discard(n)
            if not own:
                continue
            if isinstance(x, ast.For):
                raise self.rec.refused(s.node, f"{', '.join(sorted(own))} of all programs would have to be kept")
            found.append(x)
            wanted |= reads([x])
        return clone([*loads, *found[::-1]])

    def costly(self, n: str, before: Sequence[ast.stmt]) -> bool:
        """Whether a value comes out of a loop or a product, or of what the first kernel overwrites."""
        for x in before:
            if n in _assigned([x]):
                if isinstance(x, ast.For) or self.made.multiplied(x) or reads([x]) & self.made.zeroed:
                    return True
                if any(self.costly(m, before) for m in reads([x]) - {n}):
                    return True
        return False

    def keep(self, n: str) -> KeptTile | None:
        """None where a value does not lie where the text names a place."""
        if n in self.kept:
            return self.kept[n]
        node = self.made.pulls.like.get(n)
        if node is None or not self.rec.moves(node):
            return None
        axes, grid = self.rec.axes(node), self.k.coordinates.grid
        seen = frozenset[str]().union(*(o.walks for a in axes if isinstance(o := a.origin, Coordinate)))
        found = [self.made.places.of_program(c) for c in grid if c in self.batches or not c.walks & seen]
        laid = together([*found, *map(self.made.places.of_axis, axes, self.rec.shape(node))])
        if laid is None:
            return None
        dims, index = laid
        array = self.made.fresh(f"{n}_kept")
        place = subscript(array, index)
        tile = self.rec.tile(node)
        assert tile is not None
        self.kept[n] = KeptTile(array, dims, tile_type(tile).dtype.name == "f64", place, n)
        return self.kept[n]


def _begun(walk: Walk, end: ast.expr, loops: list[Walk]) -> bool:
    """Of a loop up to `min(tile_s + n, end)`: lets the loop over programs of n rows begin where it comes to. Whether it
    does."""
    match walk.over[1]:
        case ast.Call(func=ast.Name(id="min"), args=ends):
            bounds = [x for x in ends if ast.dump(x) != ast.dump(end)]
        case stop:
            bounds = [stop]
    match bounds:
        case [ast.BinOp(left=ast.Name(id=first), op=ast.Add(), right=rows)]:
            pass
        case _:
            return False
    for w in loops:
        start, _, step = map(ast.dump, w.over)
        if w.implicit and w.name == first and start == ast.dump(number(0)) and step == ast.dump(rows):
            block = operation("mul", operation("floordiv", name(walk.name), rows), rows)
            w.over[0] = name(walk.name) if _divides(rows, walk.over[2]) else block
            return True
    return False


def _divides(part: ast.expr, of: ast.expr) -> bool:
    match part, of:
        case ast.Constant(value=int(n)), ast.Constant(value=int(m)):
            return m % n == 0
        case _:
            return ast.dump(part) == ast.dump(of)


def planned(rec: KernelRecord, tile: str) -> Operands:
    """Sums over programs alone do not say what the programs are: then the first kernel has to give more, or nothing."""
    found = Operands(Derivation(rec, tile))
    if found.made.gradients and not _own_stores(found.body):
        found = Operands(Derivation(rec, tile, apart=True))
        if not _own_stores(found.body):
            found = Operands(Derivation(rec, tile, apart=True, all_kept=True))
    return found


def _own_stores(body: list[ast.stmt]) -> bool:
    """Whether each program stores something of its own, or none anything."""
    stores = [n for s in body for n in ast.walk(s) if isinstance(n, (ast.Assign, ast.AugAssign, ast.Expr))]
    targets = [(n, n.targets[0] if isinstance(n, ast.Assign) else getattr(n, "target", None)) for n in stores]
    stored = [n for n, t in targets if t is None or isinstance(t, ast.Subscript)]
    return not stored or any("reduce_across" not in ast.unparse(n) for n in stored)


def _parsed(d: Dim) -> ast.expr:
    return ast.parse(str(d), mode="eval").body


def _assigned(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements assign or add to."""
    nodes = (n for x in statements for n in ast.walk(x) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {n.id for n in nodes}


def _unstored(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Without what is stored to arrays."""
    out: list[ast.stmt] = []
    for x in body:
        if isinstance(x, ast.For):
            out.append(loop_over(x.target, x.iter, _unstored(x.body)))
        elif isinstance(x, (ast.Assign, ast.AugAssign)) and _assigned([x]):
            out.append(x)
    return out


def _hoisted(body: list[ast.stmt], turning: set[str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """What is the same in all steps of the loops, and what is not."""
    moved = set(turning) | {n for x in body if not isinstance(x, ast.Assign) for n in _assigned([x])}
    first: list[ast.stmt] = []
    rest: list[ast.stmt] = []
    for x in body:
        if isinstance(x, ast.Assign) and not reads([x]) & moved:
            first.append(x)
        else:
            moved |= _assigned([x])
            rest.append(x)
    return first, rest


class _Replaced(ast.NodeTransformer):
    """Writes names in the place of expressions, by their dumps."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def of(self, tree: _T) -> _T:
        """A copy of an expression or of statements."""
        copy: Any = clone(tree)
        return cast("_T", [self.visit(x) for x in copy] if is_list(copy) else self.visit(copy))

    def visit(self, node: ast.AST) -> ast.AST:
        found = self.names.get(ast.dump(node)) if self.names and isinstance(node, ast.expr) else None
        return ast.Name(found, ast.Load()) if found is not None else self.generic_visit(node)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)
