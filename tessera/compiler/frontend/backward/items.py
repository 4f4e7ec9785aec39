"""The statements of a kernel in which every name is assigned once, as a derivative goes through them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.names.values import Counting


@dataclass(eq=False, slots=True)
class ScaledSum:
    """What a loop carries and each step multiplies with `by`, before it adds what is `added`, with signs."""

    by: list[ast.expr] = field(default_factory=list[ast.expr])
    added: list[tuple[int, ast.expr]] = field(default_factory=list[tuple[int, ast.expr]])


@dataclass(eq=False, slots=True)
class Running:
    """What a loop carries otherwise than as plain sums. `maxima`: their names, and those that they have at the end of a
    step. `items`: the steps of the text. `forward`: the same, which assign to what is carried."""

    maxima: dict[str, str]
    sums: dict[str, ScaledSum]
    items: list[Item]
    forward: list[Item]


@dataclass(eq=False, slots=True)
class AssignStatement:
    """`carried`: it adds to what the loop carries; `value` is what is added, with `sign`."""

    name: str
    value: ast.expr
    node: ast.stmt
    carried: bool = False
    sign: int = 1


@dataclass(eq=False, slots=True)
class StoreStatement:
    """To `target`, a subscript of a parameter or its name (all of this program's block)."""

    parameter: str
    target: ast.expr
    value: ast.expr
    mask: ast.expr | None
    added: int
    """1 or -1: it is added to what is there, or subtracted"""
    node: ast.stmt


@dataclass(eq=False, slots=True)
class LoopStatement:
    """`body`: the steps as the backward reads them; where `running`, with the last maximum."""

    head: ast.For
    body: list[Any]
    grid: bool
    marks: frozenset[str]
    counting: Counting
    carried: tuple[str, ...]
    running: Running | None = None


@dataclass(eq=False, slots=True)
class ReturnStatement:
    values: list[ast.expr]
    node: ast.stmt


@dataclass(eq=False, slots=True)
class KeptStatement:
    """A statement that stays as it is, such as an assert about sizes."""

    node: ast.stmt


Item = AssignStatement | StoreStatement | LoopStatement | ReturnStatement | KeptStatement


def values_of(item: Item) -> list[ast.expr]:
    """What a statement computes and stores or gives."""
    match item:
        case AssignStatement(value=value):
            return [value]
        case StoreStatement(value=value):
            return [value]
        case LoopStatement(body=body):
            return [e for x in body for e in values_of(x)]
        case ReturnStatement(values=values):
            return [*values]
        case _:
            return []


def expressions(item: Item) -> list[ast.expr]:
    """What a statement is made of, places that it stores to and conditions included."""
    match item:
        case AssignStatement(value=value):
            return [value]
        case StoreStatement(value=value, target=target, mask=mask):
            place = [target.slice] if isinstance(target, ast.Subscript) else []
            return [value, *place, *([mask] if mask is not None else [])]
        case LoopStatement(head=head, body=body):
            return [head.iter, *(e for x in body for e in expressions(x))]
        case ReturnStatement(values=values):
            return [*values]
        case KeptStatement():
            return []


def names(*nodes: ast.AST) -> set[str]:
    """The names that expressions read."""
    return {n.id for e in nodes for n in ast.walk(e) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def read_by(item: Item) -> set[str]:
    """The names that a statement reads."""
    return names(*expressions(item))


def written(item: Item) -> set[str]:
    """The names that a statement assigns."""
    if isinstance(item, LoopStatement):
        return {n for x in item.body for n in written(x)}
    return {item.name} if isinstance(item, AssignStatement) else set()


def node_of(item: Item) -> ast.AST:
    return item.head if isinstance(item, LoopStatement) else item.node


def with_names(rec: KernelRecord, item: Item, env: Mapping[str, str]) -> Any:
    """A copy of a statement with other names."""
    new: Any = copy.copy(item)
    for part in ("value", "mask", "target"):
        if isinstance(found := getattr(new, part, None), ast.expr):
            setattr(new, part, rec.renamed(found, env))
    if isinstance(new, AssignStatement):
        new.name = env.get(new.name, new.name)
    if isinstance(new, LoopStatement):
        new.body = [with_names(rec, x, env) for x in new.body]
    return new
