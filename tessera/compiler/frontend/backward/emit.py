"""Writes the forward pass before its readers, names the values that the backward needs, and removes unused ones."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from tessera.compiler.frontend.backward.code import name
from tessera.compiler.frontend.backward.items import (
    AssignStatement,
    Item,
    KeptStatement,
    LoopStatement,
    ReturnStatement,
    StoreStatement,
)


@dataclass(eq=False, slots=True)
class ForwardLines:
    """Here statements of the forward pass are computed again; `inside` of their loop without what it carries."""

    items: list[Item]
    inside: bool


Line: TypeAlias = "ast.stmt | ForwardLines"


def emitted(
    lines: Sequence[Line],
    wanted: Mapping[str, str],
    adding: Collection[Line],
    roots: Collection[str],
    results: Mapping[str, ast.expr],
) -> list[ast.stmt]:
    """`wanted`: names of values by their text. `adding`: assignments that are written with +=. `roots`: names that are
    read elsewhere. `results`: of values by their text, or by their names, where the forward pass has stored them."""
    body = _Emission(wanted, adding, results).resolved(lines, set())
    body = live(body, roots=roots)
    return live(_without_copies(body, set(wanted.values())), roots=roots)


class _Emission:
    def __init__(self, wanted: Mapping[str, str], adding: Collection[Line], results: Mapping[str, ast.expr]) -> None:
        self.wanted, self.adding, self.results = wanted, adding, results

    def resolved(self, lines: Sequence[Line], done: set[str]) -> list[ast.stmt]:
        """`done`: the values that have their names already."""
        out: list[ast.stmt] = []
        for line in lines:
            if isinstance(line, ForwardLines):
                out += self.items(line.items, line.inside, done)
            elif isinstance(line, ast.For):
                out.append(loop_over(line.target, line.iter, self.resolved(line.body, set(done))))
            elif line in self.adding:
                assert isinstance(line, ast.Assign)
                (target,) = line.targets
                assert isinstance(target, ast.Subscript)
                out.append(ast.AugAssign(target, ast.Add(), line.value))
            else:
                out.append(line)
        return out

    def items(self, items: list[Item], inside: bool, done: set[str]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for item in items:
            match item:
                case KeptStatement():
                    out.append(item.node)
                case AssignStatement():
                    value = self.results.get(item.name, self.named(item.value, out, done))
                    target = ast.Name(item.name, ast.Store())
                    if item.carried and not inside:
                        op: ast.operator = ast.Add() if item.sign > 0 else ast.Sub()
                        out.append(ast.AugAssign(target, op, value))
                    elif not item.carried:
                        out.append(ast.Assign([target], value, lineno=1))
                case LoopStatement():
                    if not item.grid:
                        steps = item.running.forward if item.running is not None else item.body
                        out.append(loop_over(item.head.target, item.head.iter, self.items(steps, False, set(done))))
                case StoreStatement():
                    inner = [n for n in ast.iter_child_nodes(item.target) if isinstance(n, ast.expr)]
                    for n in (item.value, *([item.mask] if item.mask is not None else []), *inner):
                        self.named(n, out, done)
                case ReturnStatement():
                    for v in item.values:
                        self.named(v, out, done)
        return out

    def named(self, node: ast.expr, out: list[ast.stmt], done: set[str]) -> ast.expr:
        """The expression with names in it for the parts that the backward reads, which are assigned before."""
        key = ast.dump(node)
        held = self.wanted.get(key)
        if held is not None and held in done:
            return name(held)
        new = self.parts(node, out, done)
        if held is None:
            return new
        done.add(held)
        out.append(ast.Assign([ast.Name(held, ast.Store())], self.results.get(key, new), lineno=1))
        return name(held)

    def parts(self, value: Any, out: list[ast.stmt], done: set[str]) -> Any:
        fields = {f: self.part(getattr(value, f, None), out, done) for f in value._fields}
        return type(value)(**fields)

    def part(self, value: Any, out: list[ast.stmt], done: set[str]) -> Any:
        if isinstance(value, list):
            return [self.part(v, out, done) for v in cast("list[Any]", value)]
        if isinstance(value, ast.expr):
            return self.named(value, out, done)
        return self.parts(value, out, done) if isinstance(value, ast.keyword) else value


def loop_over(target: ast.expr, over: ast.expr, body: list[ast.stmt]) -> ast.For:
    return ast.For(target, over, body, [], None, lineno=1)


def _without_copies(body: list[ast.stmt], made: set[str]) -> list[ast.stmt]:
    """Where the text names a value that got a name here, it is the text's name."""
    names = {
        s.value.id: s.targets[0].id
        for outer in body for s in ast.walk(outer)
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and isinstance(s.value, ast.Name)
        and s.value.id in made
    }  # fmt: skip

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(names.get(node.id, node.id), node.ctx)

        def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
            new = ast.Assign([self.visit(t) for t in node.targets], self.visit(node.value), lineno=1)
            same = (
                isinstance(new.value, ast.Name) and isinstance(t := new.targets[0], ast.Name) and t.id == new.value.id
            )
            return None if same else new

    found = (Rename().visit(s) for s in body)
    return [s for s in found if s is not None]


def reads(body: Iterable[ast.stmt]) -> set[str]:
    """The names that statements read."""
    return {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def live(
    body: list[ast.stmt],
    outside: Collection[str] = (),
    loop: bool = False,
    roots: Collection[str] = (),
    held: Collection[str] = (),
) -> list[ast.stmt]:
    """What is stored, and what that is made of. Of a loop, what it adds up or carries otherwise is read `outside`;
    `roots` are anywhere. `held`: names that are assigned before the loop."""
    read: set[str] = set(roots)
    mine = {*held, *(t.id for s in body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name))}
    while True:
        before = len(read)
        kept: list[ast.stmt] = []
        for s in reversed(body):
            if isinstance(s, ast.For):
                inner = live(s.body, {*outside, *read}, True, roots, mine)
                if not inner:
                    continue
                s = loop_over(s.target, s.iter, inner)
            targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AugAssign) else []
            carried = set(outside) if isinstance(s, ast.AugAssign) else {n for n in outside if n in held}
            needed = read | carried if loop else read
            if targets and all(isinstance(t, ast.Name) and t.id not in needed for t in targets):
                continue
            kept.append(s)
            read |= reads([s])
        if len(read) == before:
            return kept[::-1]
