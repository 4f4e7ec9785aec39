"""Cotangents of expressions: from the cotangent of a result to those of its operands."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, cast

from tessera.compiler.frontend.backward.code import (
    ELEMENTWISE,
    ELSEWHERE,
    SCALAR_OF,
    Expression,
    TextBuilder,
    name,
    number,
    operation,
)
from tessera.compiler.frontend.backward.gathers import is_gather
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.kernel.values import Coordinate, Share, View
from tessera.compiler.frontend.syntax.trees import clone
from tessera.compiler.graph.operators.derivatives import STEPS, rules
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Expr

REDUCTIONS = ("sum", "mean", "max", "min")
NO_DERIVATIVE = frozenset({
    "any", "all", "argmax", "argmin", "zeros", "ones", "zeros_like", "arange", "uniform",
    "random_bits", "argsort", "cdiv", "linear_id", "program_id", "num_programs",
})  # fmt: skip
"""functions whose results do not move with their operands; numbers are no tiles"""
FINITE = frozenset(
    {"add", "sub", "neg", "where", "relu", "maximum", "minimum", "sigmoid", "tanh", "sin", "cos", "sign"}
)
"""functions whose derivative is a finite number, whatever their operands are"""
HINTS = {
    "add": "added", "sub": "shifted", "mul": "product", "div": "ratio", "pow": "power", "mod": "rest", "neg": "negated",
    "where": "chosen", "mma": "product", "dot": "product", "sum": "total", "row_sum": "total", "col_sum": "total",
}  # fmt: skip
"""names of values that the text gives none; others are called as what makes them"""


@immutable
class TileCotangent:
    """An expression of it. Outside of `mask` it is 0, as it stands where `clean`. `short`: axes of size 1 stand for
    whole ones. `spread`: rows of it, in other programs too, are still to be summed."""

    node: ast.expr
    mask: ast.expr | None = None
    clean: bool = True
    short: bool = False
    spread: bool = False


class Home(Protocol):
    """What collects cotangents. `sums`: whether it sums them along axes."""

    sums: bool

    def of_name(self, node: ast.Name, c: TileCotangent) -> None: ...
    def of_block(self, node: ast.expr, c: TileCotangent) -> None: ...
    def of_gather(self, node: ast.Subscript, c: TileCotangent) -> None: ...
    def of_product(self, node: ast.expr, a: ast.expr, b: ast.expr, c: TileCotangent) -> None: ...
    def bound(self, hint: str, node: ast.expr) -> ast.expr:
        """A name for a cotangent that is read more than once."""
        ...

    def fresh(self, wanted: str) -> str: ...


class MoveRules(Protocol):
    """The rules of functions that move elements, and of parts of tiles (`moves.py`)."""

    functions: frozenset[str]

    def call(self, node: ast.Call, function: str, given: dict[str, ast.expr], c: TileCotangent) -> None: ...
    def part(self, node: ast.Subscript, c: TileCotangent) -> bool: ...


class Pull:
    """`wanted`: values of the forward pass that a rule reads, by their text, with the names that they get."""

    moves: MoveRules

    def __init__(self, rec: KernelRecord, tile: str, home: Home) -> None:
        self.rec, self.tile, self.home = rec, tile, home
        self.wanted: dict[str, str] = {}
        self.named: dict[ast.expr, str] = {}
        """expressions that the text gives a name as they stand"""
        self.like: dict[str, ast.expr] = {}
        """of names, an expression of the forward pass with the same axes"""

    # values of the forward pass
    def read(self, node: ast.expr) -> ast.expr:
        """An expression's value, under a name where it is more than a name or number."""
        if isinstance(node, (ast.Name, ast.Constant)) and not isinstance(self.rec.value(node), View):
            return node
        if not any(self.rec.k.is_tile(self.rec.value(n)) for n in ast.walk(node)):
            return node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return ast.UnaryOp(node.op, self.read(node.operand))
        if isinstance(node, ast.BinOp) and node not in self.rec.values:  # masks that stand for several conditions
            return ast.BinOp(self.read(node.left), node.op, self.read(node.right))
        if isinstance(node, ast.Name):
            return node  # a parameter that is read as a whole
        if node in self.named:
            return name(self.named[node])
        key = ast.dump(node)
        if key not in self.wanted:
            self.wanted[key] = self.home.fresh(self.hint(node))
            self.like[self.wanted[key]] = node
        return name(self.wanted[key])

    def hint(self, node: ast.expr) -> str:
        match node:
            case ast.Subscript(value=ast.Name(id=n)):
                return f"{n}_tile" if isinstance(self.rec.value(node.value), View) else f"{n}_part"
            case ast.Name(id=n):
                return n
            case ast.BinOp(op=op) | ast.UnaryOp(op=op):
                found = SCALAR_OF.get(type(op), "value")
                return HINTS.get(found, found)
            case ast.Compare():
                return "mask"
            case ast.Call():
                found = self.rec.function(node) or "value"
                if found == "load" and node.args:
                    return self.hint(node.args[0])
                return HINTS.get(found, found)
            case ast.Attribute(value=value):
                return self.hint(value)
            case _:
                return "value"

    def writer(self) -> TextBuilder:
        return TextBuilder(self.tile, dtypes.f32)

    # shapes
    def cleaned(self, c: TileCotangent) -> TileCotangent:
        if c.clean or c.mask is None:
            return replace(c, clean=True)
        chosen = self.writer().call("where", self.read(c.mask), c.node, number(0))
        return replace(c, node=chosen, clean=True)

    def full(self, c: TileCotangent, node: ast.expr) -> TileCotangent:
        """As long as the value that it belongs to."""
        if not c.short:
            return c
        zeros = self.writer().call("zeros_like", self.read(node))
        return replace(c, node=operation("add", zeros, c.node), short=False)

    def fitted(self, c: TileCotangent, node: ast.expr, operand: ast.expr, places: tuple[int, ...]) -> TileCotangent:
        """For an operand that was broadcast: summed over the axes that it does not have."""
        rec = self.rec
        shape, rank, own = rec.shape(node), rec.rank(node), rec.shape(operand)
        if list(places) != sorted(places):
            raise rec.refused(operand, "the axes of an operand lie in another order than those of the result")
        missing = [a for a in range(rank) if a not in places]
        stretched = [a for a, n in zip(places, own, strict=True) if n == 1 != shape[a]]
        if not missing and not stretched:
            return c
        c = self.cleaned(self.full(c, node))
        origins = [x.origin for x in rec.axes(node)]
        divided = [a for a in missing if isinstance(o := origins[a], Coordinate) and o in rec.k.divided]
        if divided:
            rest = [a for a in missing if a not in divided]
            if stretched or (rest and own):
                raise rec.refused(operand, "what all rows share is not summed here")
            return replace(c, node=self.summed(c.node, rest, rank), spread=True, mask=None)
        return replace(c, node=self.summed(self.summed(c.node, missing, rank), stretched, rank, True), mask=None)

    def summed(self, node: ast.expr, axes: Sequence[int], rank: int, keep: bool = False) -> ast.expr:
        if not axes:
            return node
        self.home.sums = True
        axis = self.axis(axes, rank)
        match node:  # a sum along the same axes, which it kept
            case ast.Call(args=[summed], keywords=[ast.keyword(value=held), ast.keyword(arg="keepdim")]) if (
                not keep and ast.dump(held) == ast.dump(axis)
            ):
                node = summed
            case _:
                pass
        if len(axes) == rank and not keep:
            return self.writer().call("sum", node)
        keywords: dict[str, ast.expr] = {"axis": axis} | ({"keepdim": ast.Constant(True)} if keep else {})
        return self.writer().call("sum", node, **keywords)

    def axis(self, axes: Sequence[int], rank: int) -> ast.expr:
        found = [number(a - rank) for a in axes]
        return found[0] if len(found) == 1 else ast.Tuple(found, ast.Load())

    # expressions
    def pull(self, node: ast.expr, c: TileCotangent) -> None:
        """Hands what an expression is made of its share of the expression's cotangent."""
        rec = self.rec
        if not rec.moves(node):
            return
        match node:
            case ast.Name():
                value = rec.value(node)
                if isinstance(value, View):
                    self.home.of_block(node, self.cleaned(self.full(c, node)))
                else:
                    self.home.of_name(node, self.cleaned(c))
            case ast.Subscript() if is_gather(rec, node):
                self.home.of_gather(node, self.cleaned(self.full(c, node)))
            case ast.Subscript(value=base) if rec.window(node) is not None and isinstance(rec.value(base), View):
                self.home.of_block(node, self.cleaned(self.full(c, node)))
            case ast.Subscript():
                self.subscript(node, c)
            case ast.BinOp(left=a, op=ast.MatMult(), right=b):
                self.home.of_product(node, a, b, self.cleaned(self.full(c, node)))
            case ast.BinOp(left=a, op=op, right=b):
                self.elementwise(node, SCALAR_OF.get(type(op), ""), [a, b], c)
            case ast.UnaryOp(op=ast.UAdd(), operand=a):
                self.pull(a, c)
            case ast.UnaryOp(op=op, operand=a):
                self.elementwise(node, SCALAR_OF.get(type(op), ""), [a], c)
            case ast.IfExp(test=test, body=a, orelse=b):
                decided = rec.static(test)
                if decided is not None:
                    self.pull(a if decided else b, c)
                else:
                    self.elementwise(node, "where", [test, a, b], c)
            case ast.Attribute(value=a, attr="T"):
                turned = ast.Attribute(self.cleaned(self.full(c, node)).node, "T", ast.Load())
                self.pull(a, replace(c, node=turned, clean=True, mask=None, short=False))
            case ast.Call():
                self.call(node, c)
            case _:
                raise rec.refused(node, f"it has no rule for {ast.unparse(node)}")

    def subscript(self, node: ast.Subscript, c: TileCotangent) -> None:
        """`x[:, None]`: axes that None inserts are summed."""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        whole = [isinstance(i, ast.Slice) and i.lower is None and i.upper is None and i.step is None for i in index]
        new = [isinstance(i, ast.Constant) and i.value is None for i in index]
        if not any(new) and not all(whole) and self.moves.part(node, c):
            return
        if not all(a or b for a, b in zip(whole, new, strict=True)):
            at = self.rec.value(node.value)
            why = "it reads at computed places" if isinstance(at, View) else "it takes a part of a tile"
            raise self.rec.refused(node, why)
        rank = self.rec.rank(node)
        c = self.cleaned(self.full(c, node))
        axes = [i for i, n in enumerate(new) if n]
        self.pull(node.value, TileCotangent(self.summed(c.node, axes, rank)))

    def elementwise(self, node: ast.expr, function: str, operands: list[ast.expr], c: TileCotangent) -> None:
        rec = self.rec
        function = ELSEWHERE.get(function, function)
        if function in STEPS:
            return
        if function not in ELEMENTWISE:
            raise rec.refused(node, f"it has no rule for {ast.unparse(node)}")
        places = rec.places(operands)
        moving = [i for i, n in enumerate(operands) if rec.moves(n)]
        if len(moving) > 1 and not isinstance(c.node, ast.Name):
            c = replace(c, node=self.home.bound(self.hint(node), c.node))
            if isinstance(c.node, ast.Name) and not c.short:
                self.like.setdefault(c.node.id, node)
        g = self.writer()
        for i in moving:
            own = c
            codes = [Expression(self.reader(n), g.dtype) for n in operands]
            out = Expression(self.reader(node), g.dtype)
            if function == "pow" and i == 0 and isinstance(rec.value(operands[1]), (int, float)):
                found = self.power(own.node, operands[0], rec.value(operands[1]))
                codes[0].read = True
            else:
                rule = rules(function)[i]
                if rule is None:
                    continue
                v = Expression(own.node, g.dtype)
                found = cast("Expression", rule(g, v, out, *codes)).node
            read = [n for n, code in zip((node, *operands), (out, *codes), strict=True) if code.read]
            if own.short and any(rec.shape(n) == rec.shape(node) for n in read):
                own = replace(own, short=False)
            own = replace(own, node=found, clean=own.clean and (own.mask is None or function in FINITE))
            own = self.masked(own, function, i, operands)
            self.pull(operands[i], self.fitted(own, node, operands[i], places[i]))

    def power(self, v: ast.expr, base: ast.expr, exponent: float) -> ast.expr:
        """v n x**(n - 1)"""
        x = self.read(base)
        rest = exponent - 1
        raised = x if rest == 1 else operation("pow", x, number(rest))
        return (
            operation("mul", operation("mul", v, number(exponent)), raised)
            if rest
            else operation("mul", v, number(exponent))
        )

    def reader(self, node: ast.expr) -> Callable[[], ast.expr]:
        return lambda: self.read(node)

    def masked(self, c: TileCotangent, function: str, i: int, operands: list[ast.expr]) -> TileCotangent:
        """Behind a choice, the elements that it takes from this operand."""
        mask: ast.expr | None = None
        if function == "where":
            mask = operands[0] if i == 1 else self.inverted(operands[0])
        elif function == "relu":
            mask = self.compared(operands[0], ast.Gt(), number(0))
        elif function in ("maximum", "minimum"):
            larger = (function == "maximum") == (i == 0)
            mask = self.compared(operands[0], ast.GtE() if larger else ast.LtE(), self.read(operands[1]))
        if mask is None:
            return c
        return replace(c, mask=mask if c.mask is None else ast.BinOp(c.mask, ast.BitAnd(), mask))

    def compared(self, x: ast.expr, op: ast.cmpop, other: ast.expr) -> ast.expr:
        """A condition that the forward pass does not compute."""
        return clone(ast.Compare(self.read(x), [op], [other]))

    def inverted(self, test: ast.expr) -> ast.expr:
        return ast.UnaryOp(ast.Invert(), test)

    # functions of ts.tile
    def call(self, node: ast.Call, c: TileCotangent) -> None:
        rec = self.rec
        function = rec.function(node)
        given = {k.arg: k.value for k in node.keywords if k.arg}
        if function is None:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if method in ("to", "astype", "type") and isinstance(node.func, ast.Attribute):
                self.pull(node.func.value, c)
                return
            raise rec.refused(node, f"it does not look into {ast.unparse(node.func)}; write out what it computes")
        if function in NO_DERIVATIVE:
            return
        if function in ELEMENTWISE:
            if given:
                raise rec.refused(node, f"give the operands of {function} without their names")
            self.elementwise(node, function, node.args, c)
            return
        if function == "full":
            self.filled(node, given, c)
            return
        if not node.args:
            raise rec.refused(node, f"give the operand of {function} without its name")
        prefix, _, kind = function.rpartition("_")
        kind = kind if prefix in ("row", "col") else function
        if kind in REDUCTIONS:
            self.reduction(node, kind, c)
        elif function == "reduce_across":
            value = rec.value(node)
            if not isinstance(value, Share) or value.op != "sum":
                raise rec.refused(node, "of what programs combine, only sums are derived")
            self.pull(node.args[0], c)
        elif function == "cast":
            self.pull(node.args[0], c)
        elif function == "load":
            self.load(node, given, c)
        elif function in self.moves.functions:
            self.moves.call(node, function, given, c)
        elif function == "cumsum":
            self.prefix(node, given, c)
        elif function == "causal_mask":
            self.unmasked(node, given, c)
        elif function in ("mma", "dot"):
            self.product(node, given, c)
        elif function in ("trans", "transpose") and len(node.args) == 1 and not given and rec.rank(node) == 2:
            turned = self.cleaned(self.full(c, node)).node
            self.pull(node.args[0], TileCotangent(ast.Attribute(turned, "T", ast.Load())))
        else:
            raise rec.refused(node, f"it has no rule for {ast.unparse(node.func)}")

    def product(self, node: ast.Call, given: dict[str, ast.expr], c: TileCotangent) -> None:
        if {"a_scale", "b_scale"} & given.keys() or len(node.args) < 2:
            raise self.rec.refused(node, "it has no rule for products with scales")
        c = self.cleaned(self.full(c, node))
        start = node.args[2] if len(node.args) > 2 else given.get("accumulator")
        if start is not None and self.rec.moves(start):
            self.pull(start, c)
        self.home.of_product(node, node.args[0], node.args[1], c)

    def load(self, node: ast.Call, given: dict[str, ast.expr], c: TileCotangent) -> None:
        mask = given.get("mask") or (node.args[1] if len(node.args) > 1 else None)
        other = given.get("other")
        if given.keys() - {"mask", "other"} or (other is not None and self.rec.moves(other)) or not isinstance(
            node.args[0], ast.Subscript
        ):  # fmt: skip
            raise self.rec.refused(node, "it has no rule for this load")
        c = self.cleaned(self.full(c, node))
        if mask is not None:
            c = TileCotangent(self.writer().call("where", self.read(mask), c.node, number(0)))
        self.pull(node.args[0], c)

    def filled(self, node: ast.Call, given: dict[str, ast.expr], c: TileCotangent) -> None:
        """A number that fills a tile is what all elements share."""
        value = node.args[1] if len(node.args) > 1 else given.get("value") or given.get("fill_value")
        if value is not None and self.rec.moves(value):
            rank = self.rec.rank(node)
            c = self.cleaned(self.full(c, node))
            self.pull(value, TileCotangent(self.summed(c.node, range(rank), rank)))

    def unmasked(self, node: ast.Call, given: dict[str, ast.expr], c: TileCotangent) -> None:
        """What a causal mask hides has no share."""
        places = [*node.args[1:3], *(given[k] for k in ("q0", "k0") if k in given)]
        if len(places) != 2 or any(map(self.rec.moves, (*node.args[3:], *given.values()))):
            raise self.rec.refused(node, "it has no rule for this mask")
        c = self.cleaned(self.full(c, node))
        said = node.args[4] if len(node.args) > 4 else given.get("transposed")
        turned = {} if said is None else {"transposed": said}
        self.pull(
            node.args[0], TileCotangent(self.writer().call("causal_mask", c.node, *places, number(0.0), **turned))
        )

    def prefix(self, node: ast.Call, given: dict[str, ast.expr], c: TileCotangent) -> None:
        """Each element counts in all prefixes from its own on."""
        axis = given.get("axis") or (node.args[1] if len(node.args) > 1 else number(-1))
        c, g = self.cleaned(self.full(c, node)), self.writer()
        turned = g.call("flip", c.node, axis=axis)
        back = g.call("flip", g.call("cumsum", turned, axis=axis), axis=axis)
        self.pull(node.args[0], TileCotangent(back))

    def reduction(self, node: ast.Call, kind: str, c: TileCotangent) -> None:
        """The cotangent has one element for each line that was reduced: axes of size 1 stand for the line."""
        rec, (x, *_) = self.rec, node.args
        rank = rec.rank(x)
        axes, kept = self.rec.reduced(node, rank)
        c = self.cleaned(self.full(c, node))
        g, v = self.writer(), c.node
        if kind == "mean":
            v = operation("div", v, self.count(x, axes, kept))
        if kind in ("max", "min"):
            out = self.expanded(self.read(node), axes, rank, kept)
            hit = self.compared(x, ast.Eq(), out)
            ones = g.call("where", hit, number(1.0), number(0.0))
            count = self.summed(ones, axes, rank, len(axes) < rank)
            share = operation("div", self.expanded(v, axes, rank, kept), count)
            self.pull(x, TileCotangent(g.call("where", hit, share, number(0)), hit))
            return
        self.pull(x, TileCotangent(self.expanded(v, axes, rank, kept), short=True))

    def expanded(self, v: ast.expr, axes: Sequence[int], rank: int, kept: bool) -> ast.expr:
        """With axes of size 1 where it was reduced; of a single value nothing is needed."""
        if kept or len(axes) == rank:
            return v
        index: list[ast.expr] = [ast.Constant(None) if a in axes else ast.Slice() for a in range(rank)]
        if not isinstance(v, ast.Name):
            v = self.home.bound("d_line", v)
        return ast.Subscript(v, ast.Tuple(index, ast.Load()), ast.Load())

    def count(self, x: ast.expr, axes: Sequence[int], kept: bool) -> ast.expr:
        """How many elements a mean is of: a size where the text has one, and else what exists of a block."""
        found: ast.expr | None = None
        for a in axes:
            axis, size = self.rec.axes(x)[a], self.rec.shape(x)[a]
            d = axis.dim if axis.dim is not None else size
            if (
                axis.walks
                or self.rec.k.tiles.known(size) != self.rec.k.tiles.known(d)
                or not (isinstance(d, int) or (isinstance(d, Expr) and str(d).replace("_", "").isalnum()))
            ):
                ones = operation("add", operation("mul", self.read(x), number(0)), number(1))  # of what exists
                return self.summed(ones, axes, self.rec.rank(x), kept)
            size = ast.parse(str(d), mode="eval").body
            found = size if found is None else operation("mul", found, size)
        return found if found is not None else number(1)
