"""The loop that makes the sums of an online softmax also adds up what comes back to its queries.

A step of the backward reads the sum of all steps only as a factor of rows: what it adds is (something without the sum)
/ total. So it is added up without the sum, scaled to the running maximum as the forward pass scales its own sums, and
divided at the end. Then the keys are walked once, and each product of scores is made once.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tessera.compiler.frontend.backward.code import name
from tessera.compiler.frontend.backward.derive import Derivation
from tessera.compiler.frontend.backward.emit import loop_over, reads
from tessera.compiler.frontend.backward.items import LoopStatement, names
from tessera.compiler.frontend.backward.rewrites.factors import FREE, Factors, NoFactorError, RowScale, RunningSum
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
        if found.new == found.maximum:
            found = found._replace(new=made.fresh("new"))
            first = loop_over(first.target, first.iter, _with_new_maximum(first.body, found))
        try:
            middle = _Walk(made, program[: j + 1], found).of(first, program[i + 1 : j], second)
        except NoFactorError:
            continue
        return [*program[:i], *middle, *program[j + 1 :]]
    return program


def _sum_of(made: Derivation, loop: ast.For) -> RunningSum | None:
    """The sum that a loop carries beside one running maximum, if that is all."""
    carried = {n.id for x in loop.body for n in ast.walk(x) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for items in made.reading.lists:
        for x in items:
            if not isinstance(x, LoopStatement) or x.running is None or _head(x.head) != _head(loop):
                continue
            maxima = [(m, new) for m, new in x.running.maxima.items() if m in carried]
            sums = [(n, s) for n, s in x.running.sums.items() if n in carried]
            plain = carried & {*x.carried} - {*x.running.maxima, *x.running.sums}
            if len(maxima) == len(sums) == 1 and not plain:
                maximum, new = maxima[0]
                return RunningSum(sums[0][0], maximum, new if new in carried else maximum, sums[0][1])
    return None


def _with_new_maximum(body: list[ast.stmt], found: RunningSum) -> list[ast.stmt]:
    """The steps with another name for the maximum, from where they assign it to their end."""
    out: list[ast.stmt] = []
    env: dict[str, str] = {}
    for x in body:
        n, value = _assigned(x)
        value = x if value is None else _named(value, env)
        if n == found.maximum:
            env = {found.maximum: found.new}
        out.append(value if isinstance(value, ast.stmt) else _assignment(env.get(n, n), value))
    return [*out, _assignment(found.maximum, name(found.new))]


def _head(loop: ast.For) -> tuple[str, str]:
    return ast.dump(loop.target), ast.dump(loop.iter)


class _Walk(Factors):
    """Raises `NoFactorError` where the loops cannot be one."""

    def __init__(self, made: Derivation, program: list[ast.stmt], found: RunningSum) -> None:
        super().__init__(StatementTiles(made, program), found)
        self.made = made
        once = [n for s in program for x in ast.walk(s) if isinstance(x, ast.stmt) and (n := _assigned(x)[0])]
        self.outer = {n: v for n, v in map(_assigned, program) if v is not None and once.count(n) == 1}
        self.weights = ""
        self.factors: list[ast.expr] = []
        self.named: dict[str, str] = {}
        """factors that have no name in the text, by their dumps"""
        self.starts: list[ast.stmt] = []
        self.ends: list[ast.stmt] = []

    def of(self, first: ast.For, between: list[ast.stmt], second: ast.For) -> list[ast.stmt]:
        sums = {n for x in second.body if isinstance(x, ast.AugAssign) for n in [_assigned(x)[0]]}
        before = self.before(between)
        mine = _definitions(first.body, {self.sum.total, self.sum.maximum, self.sum.new})
        self.factors = [self.factor(by, mine) for by in self.sum.scaled.by]
        self.weights = self.text(self.added(), mine)
        theirs_too = {self.text(v, mine) for v in mine.values()}
        theirs = _definitions(second.body, sums)
        own = [_assigned(x)[0] for x in first.body]
        if own.count(self.sum.new) != 1 or own.count(self.sum.maximum) != 1:
            raise NoFactorError
        steps: list[ast.stmt] = []
        for x in second.body:
            n, value = _assigned(x)
            if isinstance(x, ast.AugAssign) and isinstance(x.op, (ast.Add, ast.Sub)):
                steps.append(self.addition(n, x))
            elif value is None:
                raise NoFactorError
            elif self.text(value, theirs, self.sum.new) == self.weights:
                self.scales[n] = RowScale(0, 1)
                steps.append(_assignment(n, self.at_step(value)))
            elif self.reads_maximum(value) and self.text(value, theirs, self.sum.new) in theirs_too:
                self.of_maximum.add(n)
                steps.append(_assignment(n, self.at_step(value)))
            else:
                new, self.scales[n] = self.part(value)
                if new is None:
                    raise NoFactorError
                steps.append(_assignment(n, new))
        body = _Merged(self, mine, theirs, steps).of(first.body)
        if not {self.sum.new, *(n for by in self.factors for n in names(by))} <= {_assigned(x)[0] for x in body}:
            raise NoFactorError
        loop = loop_over(first.target, first.iter, body)
        behind = _between_again(between, before, sums)
        if self.divisor == self.sum.total:
            return [*before, *self.starts, loop, *self.ends, *behind]
        if not self.is_positive(self.added(), mine):
            raise NoFactorError
        return [*before, *self.starts, loop, *behind, *self.ends]

    def is_positive(self, node: ast.expr, mine: Mapping[str, ast.expr]) -> bool:
        """Whether weights are exponentials, so that a sum of 0 is one of zeros."""
        while isinstance(node, ast.Name) and node.id in mine:
            node = mine[node.id]
        return isinstance(node, ast.Call) and ast.unparse(node.func) in (
            f"{self.made.tile}.exp",
            f"{self.made.tile}.exp2",
        )

    def factor(self, by: ast.expr, mine: Mapping[str, ast.expr]) -> ast.expr:
        """By which a step scales the sum, under a name: behind the step, the expression has another value."""
        if isinstance(by, ast.Name) and by.id in mine:
            return by
        if self.sum.total in names(by):
            raise NoFactorError
        n = self.named[ast.dump(by)] = self.named.get(ast.dump(by)) or self.made.fresh("shrink")
        return name(n)

    def addition(self, n: str, x: ast.AugAssign) -> ast.stmt:
        """A step of a sum. Of a sum over all rows, each row has a sum of its own until the end."""
        of_all = self.of_all(x.value)
        new, scale = self.part(x.value if of_all is None else of_all)
        if new is None or scale.weights != 1 or scale.total not in (0, -1):
            raise NoFactorError
        g, rows = self.made.pulls.writer(), n
        if of_all is not None:
            rows = self.made.fresh(f"{n}_rows")
            self.starts.append(_assignment(rows, g.call("zeros_like", name(self.sum.total))))
            new = g.call("row_sum", new)
        columns = of_all is None or self.tiles.known(self.sum.total) == 2
        by = [self.of_rows(by) if columns else clone(by) for by in self.factors]
        shrunk: ast.expr = name(rows)
        for factor in by:
            shrunk = ast.BinOp(shrunk, ast.Mult(), factor)
        end: ast.expr = name(rows)
        if scale.total:
            total = name(self.divisor)
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
                raise NoFactorError
            if self.is_empty(value):
                self.empty.add(n)
                continue
            if self.is_guarded(value) and self.divisor in (self.sum.total, n) and not self.divided():
                self.divisor, self.scales[n], self.renamed[n] = n, RowScale(1), ""
                continue
            new, scale = self.part(value)
            self.scales[n] = scale
            if scale == FREE and new is not None and ast.dump(new) == ast.dump(value):
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
                raise NoFactorError

    def of_rows(self, node: ast.expr) -> ast.expr:
        """What has an element for each row, as a column."""
        rank = self.tiles.known(self.sum.total)
        if rank not in (1, 2):
            raise NoFactorError
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


class _Merged:
    """The steps of both loops: those of the second one where the first needs them, each part computed once."""

    def __init__(
        self, walk: _Walk, mine: Mapping[str, ast.expr], theirs: Mapping[str, ast.expr], steps: list[ast.stmt]
    ) -> None:
        self.walk, self.mine = walk, mine
        self.steps = {_assigned(x)[0]: x for x in steps}
        free = [n for n in theirs if walk.scales.get(n, FREE).total == 0]
        self.known = {walk.text(theirs[n], theirs, walk.sum.new): n for n in free}
        self.names: dict[str, str] = {}
        self.out: list[ast.stmt] = []

    def of(self, first: list[ast.stmt]) -> list[ast.stmt]:
        late = [x for x in first if _assigned(x)[0] in (self.walk.sum.total, self.walk.sum.maximum)]
        for x in first:
            n, value = _assigned(x)
            if value is None:
                raise NoFactorError
            if n == self.walk.sum.total:
                for by, factor in zip(self.walk.sum.scaled.by, self.walk.factors, strict=True):
                    if ast.dump(by) in self.walk.named:
                        self.out.append(_assignment(factor.id, self.read(by)))  # type: ignore[union-attr]
            new = value if x in late and isinstance(value, ast.Name) else self.read(self.with_names(value))
            if x not in late and isinstance(new, ast.Name) and new.id in {*self.known.values()}:
                self.names[n] = new.id
                continue
            if n in self.steps:  # it means something else there
                raise NoFactorError
            self.out.append(_assignment(n, new))
        for n in list(self.steps):
            self.emit(n)
        return self.out

    def with_names(self, node: ast.expr) -> ast.expr:
        named = self.walk.named

        class NamedFactors(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> Any:
                n = named.get(ast.dump(node)) if isinstance(node, ast.expr) else None
                return self.generic_visit(node) if n is None else name(n)

        return NamedFactors().visit(clone(node))

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
        raise NoFactorError
    return found


def _named(node: ast.expr, env: Mapping[str, str]) -> ast.expr:
    class NewNames(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(env.get(node.id, node.id), node.ctx)

    return NewNames().visit(clone(node))


def _between_again(between: list[ast.stmt], before: list[ast.stmt], sums: set[str]) -> list[ast.stmt]:
    """What was read of the sum, for kernels that keep it."""
    return [x for x in between if x not in before and _assigned(x)[0] not in sums]
