"""Loops that carry a running maximum, and sums that each step scales to it: the online softmax.

Such a sum is what all steps add, scaled to the last maximum. Had each step known that one, nothing would have to be
scaled; so the backward reads the steps. They are recognised by what they compute, and not by names:

    new = maximum(m, ...)
    x = x * exp(m - new) + f(new)

That the factor is the right one, and that no result depends on the maximum, `weights.py` finds out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tessera.compiler.frontend.backward.code import name
from tessera.compiler.frontend.backward.items import (
    AssignStatement,
    Item,
    LoopStatement,
    Running,
    ScaledSum,
    names,
    node_of,
    read_by,
    with_names,
    written,
)
from tessera.compiler.frontend.backward.recorded import KernelRecord


class RunningSteps:
    """Reads the steps of a loop that assigns to what it carries. `versions`: the assignments to each such name. Raises
    CompileError TS355 at what is neither a maximum nor a sum."""

    def __init__(
        self, rec: KernelRecord, head: ast.For, steps: list[Item], versions: Mapping[str, list[AssignStatement]]
    ) -> None:
        self.rec, self.head, self.steps = rec, head, steps
        for inner in (x for x in steps if isinstance(x, LoopStatement) and x.running is not None):
            raise rec.refused(inner.head, "a running maximum within the steps of another one")
        self.items: list[Item] = [with_names(rec, x, {}) for x in steps]
        self.versions = {n: [x.name for x in found] for n, found in versions.items()}
        self.lines = {n: found[0].node for n, found in versions.items()}
        self.given = {x.name: x for x in self.items if isinstance(x, AssignStatement) and not x.carried}
        self.maxima: dict[str, str] = {}
        self.sums: dict[str, ScaledSum] = {}
        for n in versions:
            self.carried(n)

    def read(self) -> Running:
        """What the loop carries; its steps become those of the backward."""
        ends = {m: n for n, last in self.maxima.items() for m in self.given if self.alias(m) == last}
        before = self.behind({*self.versions})
        steps: list[Item] = []
        for item in self.steps:
            if isinstance(item, AssignStatement) and not item.carried and (item.name in before or item.name in ends):
                continue
            if late := sorted(read_by(item) & before):
                why = f"a step reads {late[0]} of the steps before it, and not to scale a sum to a maximum"
                raise self.rec.refused(node_of(item), why)
            steps.append(_renamed_in_place(self.rec, item, ends))
        for n, s in self.sums.items():
            for sign, value in s.added:
                if late := sorted(names(value) & before):
                    raise self.rec.refused(self.lines[n], f"what is added to {n} reads {late[0]} of the steps before")
                line = self.lines[n]
                steps.append(AssignStatement(n, self.rec.renamed(value, ends), line, True, sign))
        self.steps[:] = steps
        return Running(self.maxima, self.sums, self.items, self.forward())

    # what is carried
    def carried(self, n: str) -> None:
        end = self.versions[n][-1]
        last = self.alias(end)
        value = self.given[last].value if last in self.given else name(last)
        if isinstance(value, ast.Call) and self.rec.function(value) in ("maximum", "minimum") and not value.keywords:
            others = [a for a in value.args if not (isinstance(a, ast.Name) and self.alias(a.id) == n)]
            if len(value.args) == 2 and len(others) == 1 and not self.reads(others[0], n):
                self.maxima[n] = last
                return
        parts = ScaledSum()
        if last == n or not self.apart(name(end), n, parts):
            why = f"{n} is carried from step to step, and neither as a sum nor scaled to a running maximum"
            raise self.rec.refused(self.lines[n], f"{why}: each step would need what it was before")
        self.sums[n] = parts

    def apart(self, node: ast.expr, n: str, parts: ScaledSum) -> bool:
        """Whether an expression is the carried name times factors, plus what is added."""
        match node:
            case ast.Name(id=m):
                return m == n or (m in self.given and self.apart(self.given[m].value, n, parts))
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                x, factor = (a, b) if self.reads(a, n) else (b, a)
                parts.by.append(factor)
                return not self.reads(factor, n) and self.apart(x, n, parts) and not parts.added
            case ast.BinOp(left=a, op=ast.Add() | ast.Sub() as op, right=b):
                x, other = (a, b) if self.reads(a, n) else (b, a)
                if self.reads(other, n) or (x is b and isinstance(op, ast.Sub)) or not self.apart(x, n, parts):
                    return False
                parts.added.append((-1 if isinstance(op, ast.Sub) else 1, other))
                return True
            case ast.Call(args=args, keywords=keywords) if self.rec.function(node) in ("mma", "dot"):
                given = [*args[2:3], *(k.value for k in keywords if k.arg == "accumulator")]
                rest = [k for k in keywords if k.arg != "accumulator"]
                product = ast.copy_location(ast.Call(node.func, args[:2], rest), node)
                self.rec.values[product] = self.rec.values[node]
                if len(given) != 1 or self.reads(product, n) or not self.apart(given[0], n, parts):
                    return False
                parts.added.append((1, product))
                return True
            case _:
                return False

    def reads(self, node: ast.expr, n: str) -> bool:
        return bool(names(node) & self.behind({n}))

    def alias(self, n: str) -> str:
        """The name that another one is a copy of."""
        while n in self.given and isinstance(value := self.given[n].value, ast.Name):
            n = value.id
        return n

    def behind(self, roots: set[str]) -> set[str]:
        """The names whose values follow from some; what a maximum is at the end of a step is known."""
        found = set(roots)
        for item in self.items:
            if read_by(item) & found:
                found |= written(item) - {*self.maxima.values()}
        return found

    def forward(self) -> list[Item]:
        """The steps with the carried names again: assigned where they were if nothing reads the old value behind it,
        and at the end otherwise."""
        back: dict[str, str] = {}
        copies: list[Item] = []
        for n, versions in self.versions.items():
            at = {v: self.items.index(self.given[v]) for v in versions}
            old = [n, *versions]
            if all(not read_by(x) & {*old[: i + 1]} for i, v in enumerate(versions) for x in self.items[at[v] + 1 :]):
                back |= dict.fromkeys(versions, n)
            else:
                copies.append(AssignStatement(n, name(self.alias(versions[-1])), self.head))
        return [*(with_names(self.rec, x, back) for x in self.items), *copies]


def _renamed_in_place(rec: KernelRecord, item: Item, env: Mapping[str, str]) -> Item:
    """Lists of statements stay the same objects, for names belong to them."""
    if isinstance(item, LoopStatement):
        item.body[:] = [_renamed_in_place(rec, x, env) for x in item.body]
        item.head = ast.For(item.head.target, rec.renamed(item.head.iter, env), [], [], None)
        return item
    return with_names(rec, item, env)
