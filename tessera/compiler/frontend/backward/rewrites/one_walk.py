"""The loop that makes the sums of an online softmax also adds up what comes back to its queries.

A step of the backward reads the sum of all steps only as a factor of rows: what it adds is (something without the sum)
/ total. So it is added up without the sum, scaled to the running maximum as the forward pass scales its own sums, and
divided at the end. Then the keys are walked once, and each product of scores is made once.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from tessera.compiler.frontend.backward.code import name
from tessera.compiler.frontend.backward.derive import Derivation
from tessera.compiler.frontend.backward.emit import loop_over, reads
from tessera.compiler.frontend.backward.items import LoopStatement, ScaledSum, names
from tessera.compiler.frontend.backward.rewrites.turned import StatementTiles
from tessera.compiler.frontend.syntax.trees import clone


def one_walk(made: Derivation, program: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a program with the two loops as one, where that is known to give the same; else as they are."""
    loops = [i for i, x in enumerate(program) if isinstance(x, ast.For)]
    for i, j in pairwise(loops):
        first, second = program[i], program[j]
        assert isinstance(first, ast.For) and isinstance(second, ast.For)
        found = _sum_of(made, first)
        if found is None or _head(first) != _head(second):
            continue
        try:
            middle = _Walk(made, program[: j + 1], found).of(first, program[i + 1 : j], second)
        except _OtherwiseError:
            continue
        return [*program[:i], *middle, *program[j + 1 :]]
    return program


class _OtherwiseError(Exception):
    """What is read of the forward loop is not a factor of rows."""


class _Sum(NamedTuple):
    """A sum that a loop scales to a running maximum; `new`: the maximum at the end of a step."""

    total: str
    maximum: str
    new: str
    scaled: ScaledSum


class _Scale(NamedTuple):
    """Powers of the sum, and of the weights that the loop adds to it."""

    total: int = 0
    weights: int = 0


_FREE = _Scale()
_Part = tuple[ast.expr | None, _Scale]
"""An expression without the sum, None for 1, and how it scaled."""


def _sum_of(made: Derivation, loop: ast.For) -> _Sum | None:
    """The sum that a loop carries beside one running maximum, if that is all."""
    carried = {n.id for x in loop.body for n in ast.walk(x) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for items in made.reading.lists:
        for x in items:
            if not isinstance(x, LoopStatement) or x.running is None or _head(x.head) != _head(loop):
                continue
            maxima = [(m, new) for m, new in x.running.maxima.items() if m in carried]
            sums = [(n, s) for n, s in x.running.sums.items() if n in carried]
            plain = carried & {*x.carried} - {*x.running.maxima, *x.running.sums}
            if len(maxima) == len(sums) == 1 and not plain and maxima[0][1] in carried:
                return _Sum(sums[0][0], *maxima[0], sums[0][1])
    return None


def _head(loop: ast.For) -> tuple[str, str]:
    return ast.dump(loop.target), ast.dump(loop.iter)


class _Walk:
    """Raises `_OtherwiseError` where the loops cannot be one."""

    def __init__(self, made: Derivation, program: list[ast.stmt], found: _Sum) -> None:
        self.made, self.sum = made, found
        self.tiles = StatementTiles(made, program)
        self.scales: dict[str, _Scale] = {}
        """of what is assigned between the loops, and in the second one"""
        self.of_maximum = {found.maximum}
        """what only the weights may read"""
        self.renamed: dict[str, str] = {}
        """what has another name without the sum"""
        once = [n for s in program for x in ast.walk(s) if isinstance(x, ast.stmt) and (n := _assigned(x)[0])]
        self.outer = {n: v for n, v in map(_assigned, program) if v is not None and once.count(n) == 1}
        self.weights = ""
        self.starts: list[ast.stmt] = []
        self.ends: list[ast.stmt] = []

    def of(self, first: ast.For, between: list[ast.stmt], second: ast.For) -> list[ast.stmt]:
        sums = {n for x in second.body if isinstance(x, ast.AugAssign) for n in [_assigned(x)[0]]}
        before = self.before(between)
        mine = _definitions(first.body, {self.sum.total, self.sum.maximum, self.sum.new})
        if not all(names(by) <= mine.keys() for by in self.sum.scaled.by):  # what else it reads may have changed
            raise _OtherwiseError
        self.weights = self.text(self.added(), mine)
        theirs_too = {self.text(v, mine) for v in mine.values()}
        theirs = _definitions(second.body, sums)
        steps: list[ast.stmt] = []
        for x in second.body:
            n, value = _assigned(x)
            if isinstance(x, ast.AugAssign) and isinstance(x.op, (ast.Add, ast.Sub)):
                steps.append(self.addition(n, x))
            elif value is None:
                raise _OtherwiseError
            elif self.text(value, theirs, self.sum.new) == self.weights:
                self.scales[n] = _Scale(0, 1)
                steps.append(_assignment(n, self.at_step(value)))
            elif self.reads_maximum(value) and self.text(value, theirs, self.sum.new) in theirs_too:
                self.of_maximum.add(n)
                steps.append(_assignment(n, self.at_step(value)))
            else:
                new, self.scales[n] = self.part(value)
                if new is None:
                    raise _OtherwiseError
                steps.append(_assignment(n, new))
        body = _Merged(self, mine, theirs, steps).of(first.body)
        loop = loop_over(first.target, first.iter, body)
        return [*before, *self.starts, loop, *self.ends, *between_again(between, before, sums)]

    def addition(self, n: str, x: ast.AugAssign) -> ast.stmt:
        """A step of a sum. Of a sum over all rows, each row has a sum of its own until the end."""
        of_all = self.of_all(x.value)
        new, scale = self.part(x.value if of_all is None else of_all)
        if new is None or scale.weights != 1 or scale.total not in (0, -1):
            raise _OtherwiseError
        g, rows = self.made.pulls.writer(), n
        if of_all is not None:
            rows = self.made.fresh(f"{n}_rows")
            self.starts.append(_assignment(rows, g.call("zeros_like", name(self.sum.total))))
            new = g.call("row_sum", new)
        columns = of_all is None or self.tiles.known(self.sum.total) == 2
        by = [self.of_rows(by) if columns else clone(by) for by in self.sum.scaled.by]
        shrunk: ast.expr = name(rows)
        for factor in by:
            shrunk = ast.BinOp(shrunk, ast.Mult(), factor)
        end: ast.expr = name(rows)
        if scale.total:
            total = name(self.sum.total)
            end = ast.BinOp(end, ast.Div(), self.of_rows(total) if columns else total)
        if of_all is not None:
            self.ends.append(ast.AugAssign(ast.Name(n, ast.Store()), ast.Add(), g.call("sum", end)))
        elif scale.total:
            self.ends.append(_assignment(n, end))
        return _assignment(rows, ast.BinOp(shrunk, x.op, new))

    def of_all(self, node: ast.expr) -> ast.expr | None:
        """What a sum over all elements of a matrix adds up."""
        match node:
            case ast.Call(args=[x], keywords=[]) if self.tiles.function(node) == "sum" and self.tiles.rank(x) == 2:
                return x if self.tiles.known(self.sum.total) == 1 else None
            case _:
                return None

    def before(self, between: list[ast.stmt]) -> list[ast.stmt]:
        """What stands between the loops without the sum, so that it can stand before them."""
        out: list[ast.stmt] = []
        for x in between:
            n, value = _assigned(x)
            if value is None or not isinstance(x, ast.Assign):
                raise _OtherwiseError
            new, scale = self.part(value)
            self.scales[n] = scale
            if scale == _FREE and new is not None and ast.dump(new) == ast.dump(value):
                out.append(x)
            elif isinstance(new, ast.Name):
                self.renamed[n] = new.id
            elif new is not None:
                self.renamed[n] = self.made.fresh(f"{n}_whole" if scale.total > 0 else f"{n}_undivided")
                out.append(_assignment(self.renamed[n], new))
            else:
                self.renamed[n] = ""
        return out

    def added(self) -> ast.expr:
        """The weights whose sum along rows the loop adds up."""
        match self.sum.scaled.added:
            case [(1, ast.Call() as call)] if (x := self.along_rows(call)) is not None:
                return x
            case _:
                raise _OtherwiseError

    def along_rows(self, call: ast.Call) -> ast.expr | None:
        """The operand of a sum along rows."""
        function, given = self.tiles.function(call), {k.arg: k.value for k in call.keywords}
        if function == "row_sum" and len(call.args) == 1 and not given:
            return call.args[0]
        if function != "sum" or not call.args or len(call.args) + len(given) != 2:
            return None
        axis = given.get("axis", call.args[-1])
        last = ast.unparse(axis) in ("-1", "1")
        return call.args[0] if last and self.tiles.rank(call.args[0]) == 2 else None

    def of_rows(self, node: ast.expr) -> ast.expr:
        """What has an element for each row, as a column."""
        rank = self.tiles.known(self.sum.total)
        if rank not in (1, 2):
            raise _OtherwiseError
        index: list[ast.expr] = [ast.Slice(), ast.Constant(None)]
        return clone(node) if rank == 2 else ast.Subscript(clone(node), ast.Tuple(index, ast.Load()), ast.Load())

    def at_step(self, node: ast.expr) -> ast.expr:
        """With the maximum of the step for that of all."""
        return _named(node, {self.sum.maximum: self.sum.new})

    def text(self, node: ast.expr, inner: Mapping[str, ast.expr], new: str = "") -> str:
        """An expression without the names that statements gave to its parts."""
        return ast.dump(_Written(inner, self.outer, {self.sum.maximum: new} if new else {}).visit(clone(node)))

    def reads_maximum(self, node: ast.expr) -> bool:
        return bool(names(node) & self.of_maximum)

    # factors
    def part(self, node: ast.expr) -> _Part:
        match node:
            case ast.Name(id=n) if n == self.sum.total:
                return None, _Scale(1)
            case ast.Name(id=n) if n in self.of_maximum:
                raise _OtherwiseError
            case ast.Name(id=n) if n in self.scales:
                return (name(m) if (m := self.renamed.get(n, n)) else None), self.scales[n]
            case ast.Subscript(value=value) if isinstance(value, ast.Name) and (
                value.id == self.sum.total or self.scales.get(value.id, _FREE) != _FREE
            ):
                return self.column(node, value)
            case ast.UnaryOp(op=ast.USub(), operand=x):
                new, scale = self.part(x)
                return (None if new is None else ast.UnaryOp(ast.USub(), new)), scale
            case ast.BinOp(left=a, op=ast.MatMult(), right=b):
                new, scale = self.product(a, b)
                return ast.BinOp(new, ast.MatMult(), self.free(b)), scale
            case ast.BinOp(left=a, op=op, right=b):
                return self.elementwise(node, a, op, b)
            case ast.Call():
                return self.call(node)
            case _:
                return self.free(node), _FREE

    def free(self, node: ast.expr) -> ast.expr:
        """What does not depend on the sum, nor on the weights."""
        read = names(node)
        if read & {self.sum.total, *self.of_maximum} or any(self.scales.get(n, _FREE) != _FREE for n in read):
            raise _OtherwiseError
        return clone(node)

    def column(self, node: ast.Subscript, value: ast.expr) -> _Part:
        """`x[:, None]`."""
        match node.slice:
            case ast.Tuple(elts=[ast.Slice(lower=None, upper=None, step=None), ast.Constant(value=None)]):
                new, scale = self.part(value)
                return (None if new is None else ast.Subscript(new, node.slice, ast.Load())), scale
            case _:
                raise _OtherwiseError

    def product(self, a: ast.expr, b: ast.expr) -> tuple[ast.expr, _Scale]:
        """The left operand of a product of matrices, whose rows are those of the result."""
        new, scale = self.part(a)
        self.free(b)
        if new is None:
            raise _OtherwiseError
        return new, scale

    def elementwise(self, node: ast.BinOp, a: ast.expr, op: ast.operator, b: ast.expr) -> _Part:
        (x, of_x), (y, of_y) = self.part(a), self.part(b)
        if of_x == of_y == _FREE:
            return clone(node), _FREE
        self.demand_rows(node, (a, of_x), (b, of_y))
        if isinstance(op, ast.Mult):
            whole = _Scale(of_x.total + of_y.total, of_x.weights + of_y.weights)
            return (y if x is None else x if y is None else ast.BinOp(x, op, y)), whole
        if isinstance(op, ast.Div):
            whole = _Scale(of_x.total - of_y.total, of_x.weights - of_y.weights)
            if x is None and y is not None:
                raise _OtherwiseError
            return (x if y is None else ast.BinOp(x, op, y)), whole  # type: ignore[arg-type]
        if isinstance(op, (ast.Add, ast.Sub)) and of_x == of_y and x is not None and y is not None:
            return ast.BinOp(x, op, y), of_x
        raise _OtherwiseError

    def demand_rows(self, node: ast.expr, *operands: tuple[ast.expr, _Scale]) -> None:
        """What scales has as many axes as the result, so that it scales rows."""
        rank = self.tiles.rank(node)
        if rank is None or any(scale != _FREE and self.tiles.rank(x) != rank for x, scale in operands):
            raise _OtherwiseError

    def call(self, node: ast.Call) -> _Part:
        function = self.tiles.function(node)
        if function == "zeros_like":
            return clone(node), _FREE
        if (x := self.along_rows(node)) is not None:
            new, scale = self.part(x)
            if new is None:
                raise _OtherwiseError
            return ast.Call(node.func, [new, *node.args[1:]], node.keywords), scale
        if function in ("mma", "dot") and len(node.args) == 2 and not node.keywords:
            new, scale = self.product(*node.args)
            return ast.Call(node.func, [new, self.free(node.args[1])], []), scale
        if function == "cast" and len(node.args) == 2 and not node.keywords:
            new, scale = self.part(node.args[0])
            if new is None:
                raise _OtherwiseError
            return ast.Call(node.func, [new, node.args[1]], []), scale
        if ast.unparse(node.func) == f"{self.made.tile}.where" and len(node.args) == 3:
            return self.where(node)
        if function == "causal_mask" and len(node.args) == 4 and not node.keywords and _is_zero(node.args[3]):
            x, *places = node.args
            new, scale = self.part(x)
            if new is None:
                raise _OtherwiseError
            return ast.Call(node.func, [new, *map(self.free, places)], []), scale
        return self.free(node), _FREE

    def where(self, node: ast.Call) -> _Part:
        """`where(mask, x, 0)`"""
        mask, a, b = node.args
        parts = [(x, *self.part(x)) for x in (a, b)]
        scales = {scale for x, _, scale in parts if not _is_zero(x)}
        if len(scales) != 1 or any(new is None for _, new, _ in parts):
            raise _OtherwiseError
        (scale,) = scales
        self.demand_rows(node, *((x, s) for x, _, s in parts))
        return ast.Call(node.func, [self.free(mask), *(new for _, new, _ in parts if new is not None)], []), scale


class _Merged:
    """The steps of both loops: those of the second one where the first needs them, each part computed once."""

    def __init__(
        self, walk: _Walk, mine: Mapping[str, ast.expr], theirs: Mapping[str, ast.expr], steps: list[ast.stmt]
    ) -> None:
        self.walk, self.mine = walk, mine
        self.steps = {_assigned(x)[0]: x for x in steps}
        free = [n for n in theirs if walk.scales.get(n, _FREE).total == 0]
        self.known = {walk.text(theirs[n], theirs, walk.sum.new): n for n in free}
        self.names: dict[str, str] = {}
        self.out: list[ast.stmt] = []

    def of(self, first: list[ast.stmt]) -> list[ast.stmt]:
        late = [x for x in first if _assigned(x)[0] in (self.walk.sum.total, self.walk.sum.maximum)]
        for x in first:
            n, value = _assigned(x)
            if value is None:
                raise _OtherwiseError
            new = value if x in late and isinstance(value, ast.Name) else self.read(value)
            if x not in late and isinstance(new, ast.Name) and new.id in {*self.known.values()}:
                self.names[n] = new.id
                continue
            if n in self.steps:  # it means something else there
                raise _OtherwiseError
            self.out.append(_assignment(n, new))
        for n in list(self.steps):
            self.emit(n)
        return self.out

    def read(self, node: ast.expr) -> ast.expr:
        merged = self

        class SharedParts(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> Any:
                if isinstance(node, ast.Name):
                    return ast.Name(merged.names.get(node.id, node.id), node.ctx)
                if isinstance(node, ast.expr) and (n := merged.known.get(merged.walk.text(node, merged.mine))):
                    merged.emit(n)
                    return name(n)
                return self.generic_visit(node)

        return SharedParts().visit(clone(node))

    def emit(self, n: str) -> None:
        """A step of the second loop, behind those that it reads."""
        if n not in self.steps:
            return
        x = self.steps.pop(n)
        for m in reads([x]) - {n}:
            self.emit(m)
        self.out.append(x)


class _Written(ast.NodeTransformer):
    """Writes the values of names in their place."""

    def __init__(
        self, inner: Mapping[str, ast.expr], outer: Mapping[str, ast.expr], renamed: Mapping[str, str]
    ) -> None:
        self.inner, self.outer, self.renamed = inner, outer, renamed

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if (value := self.inner.get(node.id)) is not None:
            return self.visit(clone(value))
        if (value := self.outer.get(node.id)) is not None and node.id not in self.renamed:
            return _Written({}, self.outer, {}).visit(clone(value))
        return ast.Name(self.renamed.get(node.id, node.id), ast.Load())


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _assignment(n: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(n, ast.Store())], value, lineno=1)


def _assigned(x: ast.stmt) -> tuple[str, ast.expr | None]:
    """The name that a statement assigns and its value; None for the value of other statements."""
    target = x.targets[0] if isinstance(x, ast.Assign) else getattr(x, "target", None)
    own = target.id if isinstance(target, ast.Name) else ""
    return own, x.value if isinstance(x, ast.Assign) and own else None


def _definitions(body: list[ast.stmt], but: set[str]) -> dict[str, ast.expr]:
    """The values of names that a list of statements assigns once."""
    pairs = [(n, v) for n, v in map(_assigned, body) if v is not None and n not in but]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _OtherwiseError
    return found


def _named(node: ast.expr, env: Mapping[str, str]) -> ast.expr:
    class NewNames(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(env.get(node.id, node.id), node.ctx)

    return NewNames().visit(clone(node))


def between_again(between: list[ast.stmt], before: list[ast.stmt], sums: set[str]) -> list[ast.stmt]:
    """What was read of the sum, for kernels that keep it."""
    return [x for x in between if x not in before and _assigned(x)[0] not in sums]
