"""The statements of a kernel, prepared for derivatives: every name is assigned once, every branch is a mask.

What is assigned under a condition over elements becomes a choice, `where(condition, new, old)`; a store keeps the
condition. Statements before the loop over the grid belong to each of its programs, and move into it.
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, cast

from tessera.compiler.frontend.backward.code import ELEMENTWISE, name, unused
from tessera.compiler.frontend.backward.inlined import MOST_STEPS
from tessera.compiler.frontend.backward.items import (
    AssignStatement,
    Item,
    KeptStatement,
    LoopStatement,
    ReturnStatement,
    StoreStatement,
    names,
    read_by,
    values_of,
)
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.backward.running import RunningSteps
from tessera.compiler.frontend.backward.weights import Weights
from tessera.compiler.frontend.kernel.grid import SERIAL
from tessera.compiler.frontend.kernel.values import Lanes, View, marks
from tessera.compiler.frontend.names.values import Builtin, Counting
from tessera.compiler.frontend.syntax.assigned import stored_in_order, stored_names
from tessera.immutable import mutable
from tessera.language.dims import Expr

IGNORED = frozenset({"print", "debug_print", "debug_assert", "device_assert", "static_assert", "barrier"})
"""functions of ts.tile, called for what they do, that the backward has no need of"""


@mutable
class Statements:
    """`home`: the list of statements in which a name is assigned. `declared`: results that the kernel declares."""

    items: list[Item] = field(default_factory=list[Item])
    home: dict[str, int] = field(default_factory=dict[str, int])
    declared: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])


@mutable
class OpenSteps:
    """What a loop carries, and of that what its steps add to by `+` alone and what they assign."""

    carried: frozenset[str]
    added: set[str] = field(default_factory=set[str])
    given: dict[str, list[AssignStatement]] = field(default_factory=dict[str, "list[AssignStatement]"])


class KernelReading:
    """Reads the body of a kernel that has been evaluated. Raises CompileError TS355 where a derivative has no way."""

    def __init__(self, rec: KernelRecord, tile: str) -> None:
        self.rec, self.tile = rec, tile
        assert isinstance(rec.definition.tree, ast.FunctionDef)
        self.tree = rec.definition.tree
        self.taken = {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name)} | {
            a.arg for a in ast.walk(self.tree.args) if isinstance(a, ast.arg)
        }
        self.taken |= {*vars(builtins), *keyword.kwlist, *rec.definition.scope.names(), *rec.ev.dims}
        self.body = Statements()
        self.env: dict[str, str] = {}
        self.said: dict[str, str] = {}
        """the text's names"""
        self.mask: ast.expr | None = None
        self.open: list[OpenSteps] = []
        self.lists = [self.body.items]
        self.read(self.tree.body, self.body.items)
        self.into_grid()
        self.in_order(self.body.items, {})
        if rec.constants:
            Weights(rec, self.body.items)

    def fresh(self, wanted: str) -> str:
        """A name that the kernel does not have."""
        return unused(wanted, self.taken)

    # expressions
    def where(self, condition: ast.expr, a: ast.expr, b: ast.expr) -> ast.expr:
        """A choice that no text has, recorded as if one had."""
        values = self.rec.values
        call = ast.Call(
            ast.Attribute(ast.parse(self.tile, mode="eval").body, "where", ast.Load()), [condition, a, b], []
        )
        values[call.func] = Builtin("tessera.tile.where")
        tile, other = self.rec.tile(a), self.rec.tile(b)
        wide = a if tile is not None and (other is None or self.rec.rank(a) >= self.rec.rank(b)) else b
        values[call] = values.get(wide)
        return ast.copy_location(call, condition)

    # statements
    def read(self, statements: Iterable[ast.stmt], into: list[Item]) -> None:
        for node in statements:
            self.statement(node, into)

    def statement(self, node: ast.stmt, into: list[Item]) -> None:
        rec = self.rec
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call() as call):
                self.called(node, call, into)
            case ast.AnnAssign(target=ast.Name(id=n), annotation=said, value=None):
                self.body.declared[n] = said
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assigned(node, target, value, into)
            case ast.Assign(targets=[target], value=value):
                self.assigned(node, target, value, into)
            case ast.AugAssign():
                self.augmented(node, into)
            case ast.If():
                self.branch(node, into)
            case ast.For():
                self.loop(node, into)
            case ast.Return(value=value):
                if self.mask is not None:
                    raise rec.refused(node, "it returns under a condition")
                found = [] if value is None else value.elts if isinstance(value, ast.Tuple) else [value]
                into.append(ReturnStatement([self.rec.renamed(v, self.env) for v in found], node))
            case ast.Assert():
                into.append(KeptStatement(self.rec.renamed(node, self.env)))
            case ast.While():
                raise rec.refused(node, "a while loop would have to run backwards")
            case ast.Break() | ast.Continue():
                raise rec.refused(node, "a loop that is left early would have to run backwards")
            case _:
                raise rec.refused(node, f"it has no rule for {type(node).__name__.lower()}")

    def called(self, node: ast.Expr, call: ast.Call, into: list[Item]) -> None:
        function = self.rec.function(call)
        if function in IGNORED:
            return
        if function == "grid":
            into.append(KeptStatement(self.rec.renamed(node, self.env)))
        elif function == "store":
            given = {k.arg: k.value for k in call.keywords}
            target, value = (*call.args, *(given[k] for k in ("value",) if k in given))[:2]
            mask = call.args[2] if len(call.args) > 2 else given.get("mask")
            outer = self.mask
            if mask is not None:
                self.mask = self.both(self.rec.renamed(mask, self.env))
            self.stored(node, target, self.rec.renamed(value, self.env), 0, into)
            self.mask = outer
        else:
            raise self.rec.refused(node, f"it has no rule for {ast.unparse(call.func)}")

    def assigned(self, node: ast.stmt, target: ast.expr, value: ast.expr, into: list[Item]) -> None:
        match target:
            case ast.Name(id=n):
                if not self.added(node, n, value, into):
                    self.give(node, n, self.rec.renamed(value, self.env), into)
            case ast.Subscript():
                self.stored(node, target, self.rec.renamed(value, self.env), 0, into)
            case ast.Tuple(elts=targets) if isinstance(value, ast.Tuple) and len(targets) == len(value.elts):
                values = [self.rec.renamed(v, self.env) for v in value.elts]
                for t, v in zip(targets, values, strict=True):
                    if isinstance(t, ast.Name):
                        self.give(node, t.id, v, into)
                    else:
                        self.stored(node, t, v, 0, into)
            case ast.Tuple() if not any(self.rec.k.is_tile(self.rec.value(n)) for n in ast.walk(value)):
                into.append(KeptStatement(self.rec.renamed(node, self.env)))
            case _:
                raise self.rec.refused(node, f"it has no rule for what {ast.unparse(value)} gives in parts")

    def give(self, node: ast.stmt, n: str, value: ast.expr, into: list[Item]) -> None:
        loop = next((x for x in reversed(self.open) if n in x.carried), None)
        if loop is not None and (loop is not self.open[-1] or n in loop.added or self.mask is not None):
            why = f"{n} is carried from step to step, and not as a sum: each step would need what it was before"
            raise self.rec.refused(node, why)
        new = self.fresh(n) if n in self.body.home else n
        self.env[n], self.said[new] = new, n
        self.body.home[new] = id(into)
        into.append(found := AssignStatement(new, value, node))
        if loop is not None:
            loop.given.setdefault(n, []).append(found)

    def added(self, node: ast.stmt, n: str, value: ast.expr, into: list[Item], sign: int = 1) -> bool:
        """`total = total + x`, `acc = mma(a, b, acc)` of what the innermost loop carries."""
        if not self.open or n not in self.open[-1].carried or n in self.open[-1].given:
            return False
        operands: list[ast.expr] = []
        match value:
            case ast.BinOp(left=ast.Name(id=m), op=ast.Add() | ast.Sub() as op, right=other) if m == n:
                operands, sign = [other], -sign if isinstance(op, ast.Sub) else sign
            case ast.BinOp(left=other, op=ast.Add(), right=ast.Name(id=m)) if m == n:
                operands = [other]
            case ast.Call(args=args, keywords=keywords) if self.rec.function(value) in ("mma", "dot"):
                given = [*args[2:3], *(k.value for k in keywords if k.arg == "accumulator")]
                if len(given) == 1 and isinstance(given[0], ast.Name) and given[0].id == n:
                    rest = [k for k in keywords if k.arg != "accumulator"]
                    product = ast.copy_location(ast.Call(value.func, args[:2], rest), value)
                    self.rec.values[product] = self.rec.values[value]
                    operands = [product]
            case _:
                pass
        if len(operands) != 1 or any(isinstance(x, ast.Name) and x.id == n for x in ast.walk(operands[0])):
            return False
        if self.mask is not None:
            raise self.rec.refused(node, f"{n} is added to under a condition over elements")
        into.append(AssignStatement(self.env[n], self.rec.renamed(operands[0], self.env), node, True, sign))
        self.open[-1].added.add(n)
        return True

    def augmented(self, node: ast.AugAssign, into: list[Item]) -> None:
        signs: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: -1}
        target, sign = node.target, signs.get(type(node.op))
        if isinstance(target, ast.Name):
            read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            whole = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
            before = self.definition(self.env.get(target.id, ""))
            if before is None or self.rec.rank(node.value) > self.rec.rank(before.value):
                raise self.rec.refused(node, f"{target.id} changes its shape; write it as an assignment")
            self.rec.values[whole] = self.rec.values[read] = self.rec.values.get(before.value)
            self.assigned(node, target, whole, into)
        elif sign is None:
            raise self.rec.refused(node, f"{ast.unparse(target)} is stored to by an operation other than +=")
        else:
            self.stored(node, target, self.rec.renamed(node.value, self.env), sign, into)

    def stored(self, node: ast.stmt, target: ast.expr, value: ast.expr, added: int, into: list[Item]) -> None:
        base = target.value if isinstance(target, ast.Subscript) else target
        if not isinstance(base, ast.Name) or not isinstance(self.view(base), View):
            raise self.rec.refused(node, f"a part of the tile {ast.unparse(base)} is stored to")
        into.append(StoreStatement(base.id, self.rec.renamed(target, self.env), value, self.mask, added, node))

    def view(self, node: ast.Name) -> Any:
        return self.rec.k.views.get(node.id)

    def both(self, condition: ast.expr) -> ast.expr:
        return condition if self.mask is None else ast.BinOp(self.mask, ast.BitAnd(), condition)

    def branch(self, node: ast.If, into: list[Item]) -> None:
        decided = self.rec.static(node.test)
        if decided is None and self.of_lanes(node.test) and not node.orelse:
            decided = True
        if decided is not None:
            self.read(node.body if decided else node.orelse, into)
            return
        for inner in (n for s in (*node.body, *node.orelse) for n in ast.walk(s)):
            if isinstance(inner, (ast.For, ast.While)):
                raise self.rec.refused(inner, "a loop stands under a condition that the program decides")
            if (
                isinstance(inner, ast.Call)
                and self.rec.function(inner) not in (None, "store")
                and not self.elementwise(inner)
            ):
                raise self.rec.refused(inner, f"{ast.unparse(inner.func)} stands under a condition over elements")
        test = self.rec.renamed(node.test, self.env)
        outer, before = self.mask, dict(self.env)
        ends: list[dict[str, str]] = []
        for condition, statements in ((test, node.body), (self.inverted(test), node.orelse)):
            self.mask = outer
            self.mask = self.both(condition)
            self.env = dict(before)
            self.read(statements, into)
            ends.append(self.env)
        self.mask = outer
        self.env = before
        for n in stored_in_order([node]):
            a, b = (e.get(n) for e in ends)
            if a is None or b is None:
                self.env[n] = a or b or n
            elif a != b:
                sides = [self.named(x, statements, n) for x, statements in ((a, node.body), (b, node.orelse))]
                self.give(node, n, self.where(test, *sides), into)

    def elementwise(self, call: ast.Call) -> bool:
        return self.rec.function(call) in ELEMENTWISE

    def named(self, new: str, statements: list[ast.stmt], n: str) -> ast.expr:
        """A name as a side of a choice, with the value that was recorded where it was assigned."""
        found = name(new)
        item = self.definition(new)
        value = self.rec.values.get(item.value) if item is not None else self.rec.ev.frame.names.get(n)
        self.rec.values[found] = value
        return found

    def definition(self, new: str) -> AssignStatement | None:
        found = (x for items in self.lists for x in items if isinstance(x, AssignStatement) and not x.carried)
        return next((x for x in found if x.name == new), None)

    def inverted(self, test: ast.expr) -> ast.expr:
        out = ast.copy_location(ast.UnaryOp(ast.Invert(), test), test)
        self.rec.values[out] = self.rec.values.get(test)
        return out

    def of_lanes(self, test: ast.expr) -> bool:
        """`if i < n`, of the lanes of all of n: what lies behind the end is neither read nor stored in any case."""
        match test:
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]):
                lanes, end = self.rec.value(left), self.rec.value(right)
                if not isinstance(lanes, Lanes) or lanes.launch is None or lanes.base != lanes.launch.offset:
                    return False
                k = self.rec.k
                return k.tiles.known(k.coordinates.extent(lanes.launch)) == k.tiles.known(end)
            case _:
                return False

    def loop(self, node: ast.For, into: list[Item]) -> None:
        rec = self.rec
        counting = rec.value(node.iter)
        if not isinstance(counting, Counting):
            raise rec.refused(node, self.not_unrolled(counting))
        if node.orelse or not isinstance(node.target, ast.Name):
            raise rec.refused(node, "it has no rule for this loop")
        if self.mask is not None:
            raise rec.refused(node, "a loop stands under a condition")
        n = node.target.id
        used = next((rec.values[x] for s in node.body for x in ast.walk(s)
                     if isinstance(x, ast.Name) and x.id == n and x in rec.values), None)  # fmt: skip
        found = marks(used) if isinstance(used, Expr) else frozenset[str]()
        on_grid = frozenset[str]().union(*(marks(c.offset) for c in rec.k.coordinates.grid))
        grid = bool(found) and found <= on_grid
        if counting.path == f"tessera.tile.{SERIAL}":
            raise rec.refused(
                node, "a coordinate such as tile_k walks in a loop that is not written; write it with range_k"
            )
        if not grid:
            rec.loops.append((found, counting))
        body: list[Item] = []
        before = dict(self.env)
        stored = stored_in_order(node.body)
        carried = () if grid else tuple(m for m in stored if m in before and m != n and _read_first(m, node.body))
        head = ast.For(node.target, self.rec.renamed(node.iter, self.env), [], [], None)
        self.open.append(OpenSteps(frozenset(carried)))
        self.lists.append(body)
        self.read(node.body, body)
        given = self.open.pop().given
        self.env |= {m: before[m] for m in carried}
        for m in carried:
            if m not in given:
                self.alone(node, m)
        for m in carried:
            self.not_before(before[m], body)
        running = None
        if given:
            running = RunningSteps(rec, head, body, {before[m]: x for m, x in given.items()}).read()
            rec.constants |= running.maxima.keys()
        held = tuple(before[m] for m in carried)
        into.append(LoopStatement(head, body, grid, found, counting, held, running))

    def not_unrolled(self, steps: Any) -> str:
        if isinstance(steps, (range, list, tuple)) and len(cast("Sequence[Any]", steps)) > MOST_STEPS:
            return f"its {len(cast('Sequence[Any]', steps))} steps are unrolled; use ts.tile.range_k"
        return "its steps are unrolled, and are left early or count more than numbers; write them out"

    def alone(self, node: ast.For, carried: str) -> None:
        """Refuses a loop that reads what it adds to."""
        for s in (s for outer in node.body for s in ast.walk(outer) if isinstance(s, ast.stmt)):
            parts = [c for c in ast.iter_child_nodes(s) if isinstance(c, ast.expr)]
            reads = [x for p in parts for x in ast.walk(p)
                     if isinstance(x, ast.Name) and x.id == carried and isinstance(x.ctx, ast.Load)]  # fmt: skip
            own = isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == carried for t in s.targets)
            if reads and not own:
                raise self.rec.refused(reads[0], f"a step of the loop reads {carried}, which the loop carries")

    def not_before(self, n: str, body: list[Item]) -> None:
        """Refuses to read what a loop carries before the loop, for behind it the name has another value."""
        for items in self.lists[: next(i for i, x in enumerate(self.lists) if x is body)]:
            carrying = (x for outer in self.lists for x in outer if isinstance(x, LoopStatement) and x.body is items)
            if any(n in x.carried for x in carrying):
                continue
            for x in items:
                if isinstance(x, (AssignStatement, StoreStatement)) and n in read_by(x) and not (
                    isinstance(x.value, ast.Call) and self.rec.function(x.value) == "zeros_like"
                ):  # fmt: skip
                    why = f"it reads {n}, and a loop behind it changes {n}; give the loop a name of its own"
                    raise self.rec.refused(x.node, why)

    def into_grid(self) -> None:
        items = self.body.items
        at = next((i for i, x in enumerate(items) if isinstance(x, LoopStatement) and x.grid), None)
        if at is None:
            return
        loop = items[at]
        assert isinstance(loop, LoopStatement)
        moved = [x for x in items[:at] if isinstance(x, AssignStatement)]
        behind = [x for x in items[at + 1 :] if not isinstance(x, KeptStatement)]
        values = [v for x in behind if isinstance(x, ReturnStatement) for v in x.values]
        if any(not isinstance(x, ReturnStatement) for x in behind):
            raise self.rec.refused(loop.head, "something is computed behind the loop over the grid")
        for x in moved:
            self.body.home[x.name] = id(loop.body)
        loop.body[:0] = moved
        if values and not all(isinstance(v, ast.Name) and v.id in self.rec.k.views for v in values):
            loop.body += [x for x in behind if isinstance(x, ReturnStatement)]
            behind = []
        items[:] = [*(x for x in items[:at] if isinstance(x, KeptStatement)), loop, *behind]

    def in_order(self, items: list[Item], stored: dict[str, ast.stmt]) -> None:
        """Refuses what reads a parameter that has been stored to: the backward has what was there before."""
        for item in items:
            if isinstance(item, LoopStatement):
                if not item.grid:
                    self.own_places(item)
                self.in_order(item.body, stored)
                continue
            parts = values_of(item)
            if isinstance(item, StoreStatement):
                parts += [item.mask] if item.mask is not None else []
                parts += [item.target.slice] if isinstance(item.target, ast.Subscript) else []
            for n in (n for p in parts for n in ast.walk(p)):
                whole = isinstance(item, ReturnStatement) and n in item.values
                if (
                    isinstance(n, ast.Name)
                    and n.id in stored
                    and isinstance(n.ctx, ast.Load)
                    and not whole
                    and n in self.rec.values
                ):
                    raise self.rec.refused(n, f"it reads {n.id}, which it has stored to; keep the value under a name")
            if isinstance(item, StoreStatement):
                stored[item.parameter] = item.node

    def own_places(self, loop: LoopStatement) -> None:
        """In a loop, what is read and stored to must be the same block, another one in each step."""
        for s in (x for x in loop.body if isinstance(x, StoreStatement)):
            assert isinstance(self.tree, ast.FunctionDef)
            for n in (n for outer in loop.body for p in values_of(outer) for n in ast.walk(p)):
                if not isinstance(n, ast.Subscript) or not isinstance(n.value, ast.Name) or n.value.id != s.parameter:
                    continue
                if n is s.target or not isinstance(s.target, ast.Subscript):
                    continue
                if ast.dump(n.slice) != ast.dump(s.target.slice):
                    raise self.rec.refused(n, f"steps of a loop read and store to different places of {s.parameter}")


def _read_first(n: str, steps: list[ast.stmt]) -> bool:
    """Whether a step has of a name what was there before it."""
    for s in steps:
        match s:
            case ast.Assign(targets=targets, value=value) if n not in names(value):
                if any(isinstance(t, ast.Name) and t.id == n for target in targets for t in ast.walk(target)):
                    return False
            case _ if n in names(s) or n in stored_names([s]):
                return True
            case _:
                pass
    return False
