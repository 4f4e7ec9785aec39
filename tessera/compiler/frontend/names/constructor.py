"""What the text of a constructor tells of the fields that its class does not declare: `self.up = nn.Linear(4, 8)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.values import ClassRef, OperatorRef
from tessera.compiler.frontend.syntax.parse import FunctionNode
from tessera.language.annotations import dotted_name

UNSAID = ast.Name("unknown")
"""the annotation of what a text does not tell"""
_Stored: TypeAlias = "tuple[str, ast.expr | None, ast.expr | None]"
_STORED: WeakKeyDictionary[ast.AST, tuple[_Stored, ...]] = WeakKeyDictionary()
"""by constructor, what it stores"""


def set_by_constructor(cls: ClassRef) -> dict[str, ast.expr]:
    """The attributes that `__init__` sets, with the annotations that they could be declared with: the class of what
    is constructed, a list of it, the annotation of a parameter."""
    out: dict[str, ast.expr] = {}
    made = _constructor(cls)
    for name, annotation, value in _stored(made) if made is not None else ():
        assert made is not None
        found = annotation or (_annotation(made, value) if value is not None else None)
        out[name] = found or UNSAID if name not in out or out[name] is UNSAID else out[name]
    return out


def value_set(cls: ClassRef, name: str) -> Any:
    """The constant or function that `__init__` sets an attribute to, by its name or that of a parameter with such a
    default; None where there is none, or more than one."""
    made = _constructor(cls)
    values = [v for n, _, v in _stored(made) if n == name] if made is not None else []
    if made is None or len(values) != 1 or values[0] is None:
        return None
    if isinstance(values[0], ast.Constant):
        return values[0].value
    dotted = dotted_name(values[0])
    if not dotted:
        return None
    if dotted in made.defaults:
        found = made.defaults[dotted]
    else:
        found = read(made.definition.scope, dotted) if dotted not in _parameters(made) else None
    return found if isinstance(found, (Closure, OperatorRef)) else None


def values_set(constructor: Any, name: str) -> list[ast.expr]:
    """What a constructor's text sets an attribute to, at each place that does."""
    if not isinstance(constructor, ast.FunctionDef) or not constructor.args.args:
        return []
    return [value for n, _, value in _stores(constructor) if n == name and value is not None]


def _constructor(cls: ClassRef) -> Closure | None:
    found = cls.members.get("__init__")
    has = isinstance(found, Closure) and isinstance(found.node, ast.FunctionDef) and found.node.args.args
    return found if has else None


def _parameters(made: Closure) -> dict[str, ast.expr | None]:
    """The annotations of the parameters."""
    a = made.node.args
    return {p.arg: p.annotation for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}


def _stored(made: Closure) -> tuple[_Stored, ...]:
    """Name, annotation and value of each `self.name = value`; no value where it is a part of one."""
    if made.node not in _STORED:
        _STORED[made.node] = tuple(_stores(made.node))
    return _STORED[made.node]


def _stores(made: FunctionNode) -> Iterator[_Stored]:
    own = made.args.args[0].arg
    for node in ast.walk(made):
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs = [(t, None, value) for t in targets]
            case ast.AnnAssign(target=target, annotation=said, value=value):
                pairs = [(target, said, value)]
            case _:
                continue
        for target, said, value in pairs:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(parts) else None
            for i, part in enumerate(parts):
                if isinstance(part, ast.Attribute) and dotted_name(part) == f"{own}.{part.attr}":
                    yield part.attr, said, value if part is target else values[i] if values is not None else None


def _annotation(made: Closure, value: ast.expr) -> ast.expr | None:
    match value:
        case ast.Call(func=func) if dotted_name(func):
            return func if isinstance(read(made.definition.scope, dotted_name(func)), ClassRef) else None
        case ast.ListComp(elt=item) | ast.List(elts=[item, *_]):
            others = value.elts[1:] if isinstance(value, ast.List) else []
            inner = _annotation(made, item)
            same = all(_written(_annotation(made, o)) == _written(inner) for o in others)
            return ast.Subscript(ast.Name("list"), inner) if inner is not None and same else None
        case ast.Constant(value=bool() | int() | float() | str() as held):
            return ast.Name(type(held).__name__)
        case ast.Name(id=name):
            return _parameters(made).get(name)
        case _:
            return None


def _written(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else ""
