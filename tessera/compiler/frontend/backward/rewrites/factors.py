"""How values scale with the sum of an online softmax, and with the weights that are added to it.

A value has a power of each: products add powers, sums need equal ones, and what scales has to scale rows.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from tessera.compiler.frontend.backward.code import name
from tessera.compiler.frontend.backward.items import ScaledSum, names
from tessera.compiler.frontend.backward.rewrites.turned import StatementTiles
from tessera.compiler.frontend.syntax.trees import clone


class NoFactorError(Exception):
    """What is read of the forward loop is not a factor of rows."""


class RunningSum(NamedTuple):
    """A sum that a loop scales to a running maximum; `new`: the maximum at the end of a step."""

    total: str
    maximum: str
    new: str
    scaled: ScaledSum


class RowScale(NamedTuple):
    """Powers of the sum, and of the weights that the loop adds to it."""

    total: int = 0
    weights: int = 0


FREE = RowScale()
Part = tuple[ast.expr | None, RowScale]
"""An expression without the sum, None for 1, and how it scaled."""


class Factors:
    """Takes the sum out of expressions. Raises `NoFactorError` where it is not a factor of rows."""

    def __init__(self, tiles: StatementTiles, found: RunningSum) -> None:
        self.tiles, self.sum = tiles, found
        self.where_ = f"{tiles.tile}where"
        self.scales: dict[str, RowScale] = {}
        """of what is assigned between the loops, and in the second one"""
        self.of_maximum = {found.maximum}
        """what only the weights may read"""
        self.renamed: dict[str, str] = {}
        """what has another name without the sum"""
        self.divisor = found.total
        """the sum, or what stands for it where it is not 0"""
        self.empty: set[str] = set()
        """conditions that hold in rows whose sum is 0, which means that their weights are 0"""

    def divided(self) -> bool:
        return any(scale.total for scale in self.scales.values())

    def is_empty(self, node: ast.expr) -> bool:
        """Whether it says which rows have the sum 0."""
        match node:
            case ast.Name(id=n):
                return n in self.empty
            case ast.Compare(left=ast.Name(id=n), ops=[ast.Eq()], comparators=[x]):
                return n == self.sum.total and _is_zero(x)
            case _:
                return False

    def is_guarded(self, node: ast.expr) -> bool:
        """`where(total == 0, 1, total)`: rows whose sum is 0 have weights of 0, whatever they are divided by."""
        match node:
            case ast.Call(args=[mask, ast.Constant(value=float() | int() as x), ast.Name(id=n)], keywords=[]):
                return self.is_where(node) and self.is_empty(mask) and n == self.sum.total and x != 0
            case _:
                return False

    def is_where(self, node: ast.Call) -> bool:
        return ast.unparse(node.func) == self.where_ and len(node.args) == 3 and not node.keywords

    def along_rows(self, call: ast.Call) -> ast.expr | None:
        """The operand of a sum along rows."""
        function, given = self.tiles.function(call), {k.arg: k.value for k in call.keywords}
        if function == "row_sum" and len(call.args) == 1 and not given:
            return call.args[0]
        given.pop("keepdim", None)
        if function != "sum" or not call.args or len(call.args) + len(given) != 2:
            return None
        axis = given.get("axis", call.args[-1])
        last = ast.unparse(axis) in ("-1", "1")
        return call.args[0] if last and self.tiles.rank(call.args[0]) == 2 else None

    def part(self, node: ast.expr) -> Part:
        match node:
            case ast.Name(id=n) if n == self.sum.total and n == self.divisor:
                return None, RowScale(1)
            case ast.Name(id=n) if n in self.of_maximum or n in self.empty or n == self.sum.total:
                raise NoFactorError
            case ast.Name(id=n) if n in self.scales:
                return (name(m) if (m := self.renamed.get(n, n)) else None), self.scales[n]
            case ast.Subscript(value=value) if isinstance(value, ast.Name) and (
                value.id == self.sum.total or self.scales.get(value.id, FREE) != FREE
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
                return self.free(node), FREE

    def free(self, node: ast.expr) -> ast.expr:
        """What does not depend on the sum, nor on the weights."""
        read = names(node)
        if read & {self.sum.total, *self.of_maximum, *self.empty} or any(
            self.scales.get(n, FREE) != FREE for n in read
        ):
            raise NoFactorError
        return clone(node)

    def column(self, node: ast.Subscript, value: ast.expr) -> Part:
        """`x[:, None]`."""
        match node.slice:
            case ast.Tuple(elts=[ast.Slice(lower=None, upper=None, step=None), ast.Constant(value=None)]):
                new, scale = self.part(value)
                return (None if new is None else ast.Subscript(new, node.slice, ast.Load())), scale
            case _:
                raise NoFactorError

    def product(self, a: ast.expr, b: ast.expr) -> tuple[ast.expr, RowScale]:
        """The left operand of a product of matrices, whose rows are those of the result."""
        new, scale = self.part(a)
        self.free(b)
        if new is None:
            raise NoFactorError
        return new, scale

    def elementwise(self, node: ast.BinOp, a: ast.expr, op: ast.operator, b: ast.expr) -> Part:
        (x, of_x), (y, of_y) = self.part(a), self.part(b)
        if of_x == of_y == FREE:
            return clone(node), FREE
        self.demand_rows(node, (a, of_x), (b, of_y))
        if isinstance(op, ast.Mult):
            whole = RowScale(of_x.total + of_y.total, of_x.weights + of_y.weights)
            return (y if x is None else x if y is None else ast.BinOp(x, op, y)), whole
        if isinstance(op, ast.Div):
            whole = RowScale(of_x.total - of_y.total, of_x.weights - of_y.weights)
            if x is None and y is not None:
                raise NoFactorError
            return (x if y is None else ast.BinOp(x, op, y)), whole  # type: ignore[arg-type]
        if isinstance(op, (ast.Add, ast.Sub)) and of_x == of_y and x is not None and y is not None:
            return ast.BinOp(x, op, y), of_x
        raise NoFactorError

    def demand_rows(self, node: ast.expr, *operands: tuple[ast.expr, RowScale]) -> None:
        """What scales has as many axes as the result, so that it scales rows."""
        rank = self.tiles.rank(node)
        if rank is None or any(scale != FREE and self.tiles.rank(x) != rank for x, scale in operands):
            raise NoFactorError

    def call(self, node: ast.Call) -> Part:
        function = self.tiles.function(node)
        if function == "zeros_like":
            return clone(node), FREE
        if (x := self.along_rows(node)) is not None:
            new, scale = self.part(x)
            if new is None:
                raise NoFactorError
            return ast.Call(node.func, [new, *node.args[1:]], node.keywords), scale
        if function in ("mma", "dot") and len(node.args) == 2 and not node.keywords:
            new, scale = self.product(*node.args)
            return ast.Call(node.func, [new, self.free(node.args[1])], []), scale
        if function == "cast" and len(node.args) == 2 and not node.keywords:
            new, scale = self.part(node.args[0])
            if new is None:
                raise NoFactorError
            return ast.Call(node.func, [new, node.args[1]], []), scale
        if self.is_where(node):
            return self.where(node)
        if function == "causal_mask" and len(node.args) == 4 and not node.keywords and _is_zero(node.args[3]):
            x, *places = node.args
            new, scale = self.part(x)
            if new is None:
                raise NoFactorError
            return ast.Call(node.func, [new, *map(self.free, places)], []), scale
        return self.free(node), FREE

    def where(self, node: ast.Call) -> Part:
        """`where(mask, x, 0)`"""
        mask, a, b = node.args
        if self.is_empty(mask) and _is_zero(a):
            return self.part(b)
        parts = [(x, *self.part(x)) for x in (a, b)]
        scales = {scale for x, _, scale in parts if not _is_zero(x)}
        if len(scales) != 1 or any(new is None for _, new, _ in parts):
            raise NoFactorError
        (scale,) = scales
        self.demand_rows(node, *((x, s) for x, _, s in parts))
        return ast.Call(node.func, [self.free(mask), *(new for _, new, _ in parts if new is not None)], []), scale


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0
