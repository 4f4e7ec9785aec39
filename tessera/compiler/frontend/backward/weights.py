"""How values depend on a running maximum m: not at all, as x * exp(c m), or as x + c m.

A result that does not depend on m has the derivative 0 by it, so that the backward may take m for a constant. That is
what makes the gradient of an online softmax the short one. It is proved from the text, or the kernel is refused.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.backward.items import (
    AssignStatement,
    Item,
    KeptStatement,
    LoopStatement,
    ReturnStatement,
    StoreStatement,
    names,
    written,
)
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.immutable import immutable

Terms = dict[tuple[str, str], float]
"""by the name of a maximum and the text of a factor, 1 where there is none"""


@immutable
class Weight:
    """`additive`: x + c m, and not x * exp(c m). `exact`: x is nothing, 0 or 1. `along`: the axes of the tile along
    which m has several elements."""

    terms: Terms
    additive: bool = False
    exact: bool = False
    along: tuple[int, ...] = ()

    def times(self, by: float, text: str = "") -> Weight:
        """Raises `Otherwise` where there is a factor already."""
        if text and any(t for _, t in self.terms):
            raise Otherwise
        return replace(self, terms={(m, text or t): c * by for (m, t), c in self.terms.items()})


class Otherwise(Exception):
    """A value depends on a maximum in another way."""


FREE = Weight({})
_BASE = {"exp": 1.0, "exp2": math.log(2), "log": 1.0, "log2": 1 / math.log(2)}


class Weights:
    """Raises CompileError TS355 where a result depends on a running maximum, or a sum is scaled by something else."""

    def __init__(self, rec: KernelRecord, items: list[Item]) -> None:
        self.rec = rec
        self.of_names: dict[str, Weight | None] = {}
        self.starts: dict[str, ast.expr] = {}
        self.in_loops: set[str] = set()
        self.walk(items)

    # statements
    def walk(self, items: Iterable[Item]) -> None:
        for item in items:
            match item:
                case AssignStatement(carried=False):
                    self.of_names[item.name] = self.found(item.value)
                    self.starts[item.name] = item.value
                case AssignStatement():
                    self.sum_of(item)
                case LoopStatement():
                    self.loop(item)
                case StoreStatement():
                    self.free(item.node, item.value, *([] if item.mask is None else [item.mask]))
                case ReturnStatement():
                    self.free(item.node, *item.values)
                case KeptStatement():
                    pass

    def free(self, node: ast.AST, *values: ast.expr) -> None:
        for v in values:
            w = self.found(v)
            if w is None or w.terms:
                known = ", ".join(n for n in sorted(names(v)) if self.of_names.get(n, FREE) != FREE)
                why = f"by {known} the result depends on a running maximum, which has no derivative here"
                raise self.rec.refused(node, f"{why}; divide sums that are scaled to it by each other")

    def loop(self, item: LoopStatement) -> None:
        if item.running is None:
            outside = set(self.of_names)
            if not item.grid:
                self.in_loops |= written(item) | {_counter(item)}
            self.walk(item.body)
            inner = set(self.of_names) - outside
            for n in item.carried:  # a sum over maxima that differ from step to step has no weight
                w = self.of_names.get(n)
                if w is not None and any(m in inner for m, _ in w.terms):
                    self.of_names[n] = None
            return
        run = item.running
        self.in_loops |= {n for x in run.items for n in written(x)} | {_counter(item)}
        for n in run.maxima:
            self.of_names[n] = self.maximum(n)
        for x in run.items:
            if isinstance(x, AssignStatement) and x.name in run.maxima.values():
                n = next(n for n, new in run.maxima.items() if new == x.name)
                self.of_names[x.name] = replace(self.maximum(n), terms={(x.name, ""): 1.0})
            else:
                self.walk([x])
        for n, s in run.sums.items():
            self.of_names[n] = self.scaled(n, s.by, [v for _, v in s.added], run.maxima)
        for n in item.carried:
            w = self.of_names[n]
            if n in run.maxima:
                self.of_names[n] = self.maximum(n)
            elif w is not None and any(m in run.maxima.values() for m, _ in w.terms):
                self.of_names[n] = None

    def maximum(self, n: str) -> Weight:
        shape = self.rec.shape(self.starts[n])
        return Weight({(n, ""): 1.0}, True, True, tuple(i for i, size in enumerate(shape) if size != 1))

    def scaled(self, n: str, by: list[ast.expr], added: list[ast.expr], maxima: dict[str, str]) -> Weight:
        """The weight of a sum that is scaled: that of what is added, by the last maximum."""
        shares = [self.found(v) for v in added]
        first = shares[0] if shares else None
        if first is None or any(s is None or s.additive or not _alike(s, first) for s in shares):
            raise self.rec.refused(added[0] if added else self.starts[n], f"what is added to {n} is not scaled alike")
        factor = FREE
        for v in by:
            w = self.found(v)
            if w is None or not w.exact or w.additive:
                raise self.rec.refused(v, f"the steps scale {n} by more than exp(old maximum - new one)")
            factor = self.product(factor, w, 1) if factor.terms else w
        ends = {new: m for m, new in maxima.items()}
        wanted: Terms = {}
        for (m, text), c in first.terms.items():
            if m in ends:
                wanted[m, text], wanted[ends[m], text] = c, -c
        if not _equal(factor.terms, wanted):
            raise self.rec.refused(by[0] if by else added[0], f"the steps do not scale {n} as what is added to it")
        found = replace(first, terms={(ends.get(m, m), t): c for (m, t), c in first.terms.items()}, exact=False)
        before, start = self.of_names[n], _constant(self.rec, self.starts[n])
        infinite = all(_constant(self.rec, self.starts[m]) == -math.inf for m in maxima)
        if before == FREE and start != 0 and (start is None or not infinite):
            raise self.rec.refused(self.starts[n], f"{n} begins with something that is not scaled as what is added")
        if before is None or (before != FREE and not _alike(before, found)):
            raise self.rec.refused(by[0] if by else added[0], f"{n} was scaled otherwise before the loop")
        return found

    def sum_of(self, item: AssignStatement) -> None:
        """What a loop adds to, step by step."""
        w, before = self.found(item.value), self.of_names.get(item.name, FREE)
        fresh = before == FREE and _constant(self.rec, self.starts[item.name]) == 0
        if w is None or before is None or w.additive or not (fresh or _alike(w, before)):
            self.of_names[item.name] = None if w != FREE or before != FREE else FREE
        else:
            self.of_names[item.name] = replace(w, exact=False)

    # expressions
    def found(self, node: ast.expr) -> Weight | None:
        """None where it depends on a maximum in another way."""
        try:
            return self.of(node)
        except Otherwise:
            return None

    def of(self, node: ast.expr) -> Weight:
        if all(self.of_names.get(n, FREE) == FREE for n in names(node)):
            return FREE
        match node:
            case ast.Name(id=n):
                w = self.of_names[n]
                if w is None:
                    raise Otherwise
                return w
            case ast.Subscript(value=x):
                return self.subscript(node, self.of(x))
            case ast.Attribute(value=x, attr="T"):
                return self.turned(x)
            case ast.BinOp(left=a, op=ast.MatMult(), right=b):
                return self.contracted(a, b)
            case ast.BinOp(left=a, op=op, right=b):
                return self.arithmetic(node, op, a, b)
            case ast.UnaryOp(op=ast.USub(), operand=x):
                w = self.of(x)
                return w.times(-1) if w.additive else replace(w, exact=False)
            case ast.UnaryOp(op=ast.UAdd(), operand=x):
                return self.of(x)
            case ast.Compare(left=a, comparators=[b]):
                return self.compared(node, a, b)
            case ast.Call():
                return self.call(node)
            case _:
                raise Otherwise

    def subscript(self, node: ast.Subscript, w: Weight) -> Weight:
        """`m[:, None]`"""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kept = [i for i, x in enumerate(index) if isinstance(x, ast.Slice)]
        if not all(isinstance(x, ast.Slice) or (isinstance(x, ast.Constant) and x.value is None) for x in index):
            raise Otherwise
        return replace(w, along=tuple(kept[a] for a in w.along))

    def together(self, operands: list[ast.expr]) -> list[Weight]:
        """The weights of operands of an elementwise function, along the axes of its result."""
        places = self.rec.places(operands)
        found = [replace(w, along=tuple(p[a] for a in w.along)) if (w := self.of(x)).terms else w
                 for x, p in zip(operands, places, strict=True)]  # fmt: skip
        if len({w.along for w in found if w.terms}) > 1:
            raise Otherwise
        return found

    def arithmetic(self, node: ast.BinOp, op: ast.operator, left: ast.expr, right: ast.expr) -> Weight:
        a, b = self.together([left, right])
        match op:
            case ast.Add() | ast.Sub():
                sign = 1 if isinstance(op, ast.Add) else -1
                if a.terms and b.terms and not a.additive and not b.additive:
                    if not _alike(a, b):
                        raise Otherwise
                    return replace(a, exact=False)
                if (a.terms and not a.additive) or (b.terms and not b.additive):
                    raise Otherwise
                both = self.product(a, b, sign)
                return replace(both, additive=True, exact=a.exact and b.exact) if both.terms else FREE
            case ast.Mult() | ast.Div():
                if a.additive or b.additive:
                    factor, w = (right, a) if a.additive else (left, b)
                    if (w is b and isinstance(op, ast.Div)) or (a.terms and b.terms):
                        raise Otherwise
                    return self.multiple(w, factor, isinstance(op, ast.Div))
                both = self.product(a, b, 1 if isinstance(op, ast.Mult) else -1)
                return both
            case _:
                raise Otherwise

    def product(self, a: Weight, b: Weight, sign: float) -> Weight:
        terms = dict(a.terms)
        for k, c in b.terms.items():
            terms[k] = terms.get(k, 0.0) + sign * c
        terms = {k: c for k, c in terms.items() if abs(c) > 1e-12}
        along = a.along if a.terms else b.along
        return Weight(terms, exact=a.exact and b.exact, along=along) if terms else FREE

    def multiple(self, w: Weight, factor: ast.expr, divided: bool) -> Weight:
        """Of m, by a number or by what is the same in all steps."""
        value = _constant(self.rec, factor)
        if value:
            return w.times(1 / value if divided else value)
        if names(factor) & self.in_loops or self.rec.rank(factor):
            raise Otherwise
        return w.times(1, ("/" if divided else "") + ast.dump(factor))

    def contracted(self, a: ast.expr, b: ast.expr) -> Weight:
        x, y = self.of(a), self.of(b)
        if (x.terms and y.terms) or x.additive or y.additive or self.rec.rank(a) != 2 or self.rec.rank(b) != 2:
            raise Otherwise
        w, summed = (x, 1) if x.terms else (y, 0)
        if summed in w.along:
            raise Otherwise
        return replace(w, exact=False)

    def compared(self, node: ast.expr, a: ast.expr, b: ast.expr) -> Weight:
        """Which of two values is the larger one no scale changes, nor whether one is 0 or infinite."""
        x, y = self.together([a, b])
        if _alike(x, y) and x.additive == y.additive:
            return FREE
        w, other = (x, b) if x.terms else (y, a)
        fixed = _constant(self.rec, other)
        same = fixed is not None and (math.isinf(fixed) or (fixed == 0 and not w.additive))
        if not same or (x.terms and y.terms):
            raise Otherwise
        return FREE

    def call(self, node: ast.Call) -> Weight:
        function = self.rec.function(node)
        if function is None:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if method in ("to", "astype", "type") and isinstance(node.func, ast.Attribute):
                return self.of_float(node, node.func.value)
            raise Otherwise
        args = node.args
        if function in _BASE and len(args) == 1:
            w = self.of(args[0])
            if w.terms and w.additive != function.startswith("exp"):
                raise Otherwise
            return replace(w.times(_BASE[function]), additive=not function.startswith("exp"))
        if function == "reciprocal":
            w = self.of(args[0])
            if w.additive:
                raise Otherwise
            return w.times(-1)
        if function == "where" and len(args) == 3:
            return self.choice(*args)
        if function in ("mma", "dot") and len(args) == 2 and not node.keywords:
            return self.contracted(args[0], args[1])
        if function == "cast":
            return self.of_float(node, args[0])
        if function in ("trans", "transpose") and len(args) == 1 and not node.keywords:
            return self.turned(args[0])
        return self.reduced(node, function)

    def of_float(self, node: ast.expr, x: ast.expr) -> Weight:
        """Integers are not scaled as what they were made of."""
        if not self.rec.dtype(node).is_float:
            raise Otherwise
        return self.of(x)

    def turned(self, x: ast.expr) -> Weight:
        w, rank = self.of(x), self.rec.rank(x)
        if rank > 2:
            raise Otherwise
        return replace(w, along=tuple(rank - 1 - a for a in w.along))

    def reduced(self, node: ast.Call, function: str) -> Weight:
        """Along axes on which the maximum is the same."""
        prefix, _, kind = function.rpartition("_")
        kind = kind if prefix in ("row", "col") else function
        x = node.args[0]
        w, rank = self.of(x), self.rec.rank(x)
        if kind not in ("sum", "mean", "max", "min") or (w.additive and kind not in ("max", "min")):
            raise Otherwise
        axes, kept = self.rec.reduced(node, rank)
        if set(axes) & set(w.along):
            raise Otherwise
        moved = w.along if kept else tuple(a - sum(b < a for b in axes) for a in w.along)
        return replace(w, exact=False, along=moved)

    def choice(self, test: ast.expr, a: ast.expr, b: ast.expr) -> Weight:
        """0 has any scale and -inf any maximum; what stands in for 0, or for -inf, is not what is scaled."""
        t, x, y = self.together([test, a, b])
        if t.terms:
            raise Otherwise
        if _alike(x, y) and x.additive == y.additive:
            return replace(x, exact=x.exact and y.exact)
        w, weighed, other = (x, a, b) if x.terms else (y, b, a)
        fixed = _constant(self.rec, other)
        if (x.terms and y.terms) or fixed is None:
            raise Otherwise
        if fixed == (-math.inf if w.additive else 0):
            return replace(w, exact=False)
        if isinstance(test, ast.Compare) and len(test.comparators) == 1:
            sides = (test.left, test.comparators[0])
            fixed = [_constant(self.rec, s) for s in sides]
            if any(ast.dump(s) == ast.dump(weighed) for s in sides) and (-math.inf if w.additive else 0) in fixed:
                return w
        raise Otherwise


def _counter(item: LoopStatement) -> str:
    assert isinstance(item.head.target, ast.Name)
    return item.head.target.id


def _equal(a: Terms, b: Terms) -> bool:
    return a.keys() == b.keys() and all(math.isclose(c, b[k], rel_tol=1e-6) for k, c in a.items())


def _alike(a: Weight, b: Weight) -> bool:
    return _equal(a.terms, b.terms) and a.along == b.along


def _constant(rec: KernelRecord, node: ast.expr) -> float | None:
    """The number that an expression is, or all elements of a tile are."""
    value: Any = rec.value(node)
    if isinstance(value, (int, float)):
        return float(value)
    match node:
        case ast.Constant(value=int() | float() as found):
            return float(found)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            inner = _constant(rec, x)
            return None if inner is None else -inner
        case ast.BinOp(left=a, op=ast.Add() | ast.Sub() as op, right=b):
            m, n = _constant(rec, a), _constant(rec, b)
            return None if m is None or n is None else m + n if isinstance(op, ast.Add) else m - n
        case ast.Call(args=args, keywords=keywords):
            match rec.function(node):
                case "zeros" | "zeros_like":
                    return 0.0
                case "ones":
                    return 1.0
                case "full":
                    given = [*args[1:2], *(k.value for k in keywords if k.arg in ("value", "fill_value"))]
                    return _constant(rec, given[0]) if given else None
                case _:
                    return None
        case _:
            return None
