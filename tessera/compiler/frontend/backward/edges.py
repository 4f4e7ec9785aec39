"""Elements outside of a parameter: `x[i - 1 : i + 7]` has none before its first.

They are 0, and stay out of sums, together with all that is computed from them. A backward sums what the forward pass
computes element by element; so its text says that they count, `load(x[i - 1 : i + 7], other=0)`, where blocks of
a kernel end at different places.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from tessera.compiler.frontend.backward.code import expression
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.kernel.values import Coordinate, TileWindow, View, marks
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.syntax.trees import clone
from tessera.language.dims import Dim

Ends = dict[frozenset[str], tuple[Dim, Dim]]
"""by the coordinates that move a block along an axis: its offset, and where the parameter ends"""

_SERIAL = frozenset({"cumsum", "cumprod", "cummax", "cummin", "sort", "argsort", "associative_scan", "reduce", "flip"})
_REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod", "any", "all", "argmax", "argmin"})


class Edges:
    """Raises CompileError TS355 where a sum of the kernel leaves elements out that have a derivative."""

    def __init__(self, rec: KernelRecord) -> None:
        self.rec, self.tree = rec, rec.definition.tree
        defined = {n for c in ast.walk(self.tree) if isinstance(c, ast.Call) and self.defines(c) for n in ast.walk(c)}
        self.reads = {n: w for n in ast.walk(self.tree) if (w := self.block(n)) is not None and n not in defined}
        self.of_names: dict[str, set[ast.AST]] = {}
        self.follow()
        self.displaced = self.found()
        for node, operand, axes in self.sums():
            along = self.along(operand, axes)
            ends = [e for n in self.within(operand) for e in _ends(self.reads[n]).items() if e[0] & along]
            if len(set(ends)) > len(dict(ends)):
                raise rec.refused(
                    node, "blocks that end at different places are summed together; load them with other=0"
                )

    def defines(self, call: ast.Call) -> bool:
        return self.rec.function(call) == "load" and any(k.arg == "other" for k in call.keywords)

    def block(self, node: ast.AST) -> TileWindow | None:
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            return None
        return self.rec.window(node) if isinstance(self.rec.value(node.value), View) else None

    def follow(self) -> None:
        """What names are computed from, at any place of the text."""
        assigned = [(n, s.value) for s in ast.walk(self.tree) if isinstance(s, (ast.Assign, ast.AugAssign))
                    for n in _assigned(s)]  # fmt: skip
        before = -1
        while before != (before := sum(map(len, self.of_names.values()))):
            for n, value in assigned:
                self.of_names.setdefault(n, set()).update(self.within(value))

    def within(self, node: ast.AST) -> set[ast.AST]:
        """The blocks that an expression is computed from."""
        found: set[ast.AST] = set()
        for n in ast.walk(node):
            found |= {n} if n in self.reads else self.of_names.get(n.id, set()) if isinstance(n, ast.Name) else set()
        return found

    def found(self) -> set[ast.AST]:
        """The blocks that end elsewhere than others, and than those that are stored."""
        stored = [_ends(s.window) for s in self.rec.k.memory.stores if s.window is not None]
        every = [*stored, *map(_ends, self.reads.values())]
        found: set[ast.AST] = set()
        for n, w in self.reads.items():
            for mark, end in _ends(w).items():
                others = {e[mark] for e in every if mark in e}
                if len(others) > 1 and not any(e.get(mark) == end for e in stored):
                    found.add(n)
        return found

    def sums(self) -> list[tuple[ast.AST, ast.expr, list[int] | None]]:
        """The operands of all sums and the like, with the axes along which they are made."""
        found: list[tuple[ast.AST, ast.expr, list[int] | None]] = []
        for n in ast.walk(self.tree):
            if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult):
                found += [(n, n.left, [-1]), (n, n.right, [0])]
            elif isinstance(n, ast.Call) and (function := self.rec.function(n)) is not None and n.args:
                kind = function.removeprefix("row_").removeprefix("col_")
                if function in ("mma", "dot") and len(n.args) > 1:
                    found += [(n, n.args[0], [-1]), (n, n.args[1], [0])]
                elif kind in _REDUCTIONS and self.rec.tile(n.args[0]) is not None:
                    found.append((n, n.args[0], self.rec.reduced(n, self.rec.rank(n.args[0]))[0]))
                elif function in _SERIAL:
                    found.append((n, n.args[0], None))
        return found

    def along(self, operand: ast.expr, axes: list[int] | None) -> frozenset[str]:
        """The coordinates that walk some axes of a tile."""
        every = self.rec.axes(operand)
        origins = [a.origin for a in (every if axes is None else [every[a] for a in axes if every])]
        return frozenset[str]().union(*(o.walks for o in origins if isinstance(o, Coordinate)))

    def counted(self, tile: str) -> Definition | None:
        """The kernel whose blocks say that what lies outside is 0; None where all end at the same places."""
        if not self.displaced:
            return None
        for node, operand, axes in self.sums():
            along = self.along(operand, axes)
            if any(mark & along for n in self.within(operand) & self.displaced for mark in _ends(self.reads[n])):
                raise self.rec.refused(
                    node, "a displaced block is summed, and its sum has to be told apart from others"
                )
        tree = clone(self.tree)
        pairs = zip(ast.walk(tree), ast.walk(self.tree), strict=True)
        blocks = {new for new, old in pairs if old in self.displaced}
        tree = _Counted(blocks, tile).visit(tree)
        return replace(self.rec.definition, tree=ast.fix_missing_locations(tree))


class _Counted(ast.NodeTransformer):
    def __init__(self, blocks: set[ast.AST], tile: str) -> None:
        self.blocks, self.tile = blocks, tile

    def visit_Call(self, node: ast.Call) -> ast.AST:
        loaded = isinstance(node.func, ast.Attribute) and node.func.attr == "load"
        if not loaded or not node.args or node.args[0] not in self.blocks:
            return self.generic_visit(node)
        node.keywords.append(ast.keyword("other", ast.Constant(0)))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if node not in self.blocks:
            return self.generic_visit(node)
        call = ast.Call(expression(f"{self.tile}.load"), [node], [ast.keyword("other", ast.Constant(0))])
        for n in ast.walk(call):
            if "lineno" not in vars(n):
                ast.copy_location(n, node)
        return call


def _ends(window: TileWindow) -> Ends:
    places = ((window.offsets[a], window.view.shape[a]) for a in window.kept)
    return {marks(o): (o, extent) for o, extent in places if marks(o)}


def _assigned(s: ast.Assign | ast.AugAssign) -> set[str]:
    """The names that a statement assigns, all or a part of them."""
    open_: list[ast.expr] = [*s.targets] if isinstance(s, ast.Assign) else [s.target]
    found: set[str] = set()
    while open_:
        match open_.pop():
            case ast.Name(id=n):
                found.add(n)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                open_ += parts
            case ast.Subscript(value=base) | ast.Starred(value=base):
                open_.append(base)
            case _:
                pass
    return found
