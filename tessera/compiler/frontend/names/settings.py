"""Calls of Tessera's own constructors and functions in texts, whose arguments `tessera.fitting` looks at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import ClassRef, Record, is_dict, is_sequence
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.graph.operator import ALIASES
from tessera.errors import Edit, Fix, Span
from tessera.fitting import SOMETHING, Callee, Misfit, Setting, misfit, name_of, parameters_of
from tessera.language.annotations import dotted_name
from tessera.language.dtypes import DType
from tessera.tracebacks import OWN

_PLAIN = (int, float, complex, str, bytes, type(None), DType)


def misfit_of(
    callee: Closure | ClassRef | type, args: Sequence[Any], kwargs: Mapping[str, Any], kinds: bool = True
) -> Misfit | None:
    """Why a call does not fit. None where it does, where that is not known, and where a user has written what is
    called: there Python says it. A constructor or method gets its object first. `kinds` as in `fitting.misfit`."""
    if isinstance(callee, ClassRef):
        found = Callee(callee.name, fields_of(callee), tuple(owners_of(callee)), ranged=True)
    elif not isinstance(callee, Closure):
        found = Callee(callee.__name__, parameters_of(callee.__init__), tuple(owners_of(callee)), ranged=True)
    else:
        first = callee.node.args.args[:1]
        cls: Any = None
        if args and first and first[0].arg == "self":
            owner: Any = args[0]
            cls, args = owner.cls if isinstance(owner, Record) else owner.__class__, args[1:]
        owners = [callee.name] if cls is None else owners_of(cls)
        name = name_of(callee.name, "" if cls is None else owners[0])
        constructor = made_with(cls) if callee.name == "__call__" else ()
        found = Callee(name, _parameters(callee.node), tuple(owners), is_fitted(callee), made_with=constructor)
    given = {name: argument(value) for name, value in kwargs.items()}
    if not found.owners[1:]:  # functions take other libraries' names
        names = {p.name for p in found.parameters}
        given = {n if n in names or ALIASES.get(n) not in names else ALIASES[n]: v for n, v in given.items()}
    places = [argument(a) for a in args]
    made = not isinstance(callee, Closure) or callee.name == "__init__"
    if made and "Optimizer" in found.owners and places[:1] == [SOMETHING]:
        places, given = [], {"lr": SOMETHING, **given}  # parameters of a model, or the rate, which may follow them
    return misfit(found, places, given, kinds)


def is_fitted(callee: Closure | ClassRef) -> bool:
    """Whether `fitted` has made what runs here: of functions that it decorates, and constructors."""
    if isinstance(callee, ClassRef):
        return callee.data and getattr(callee.scope, "file", "").startswith(OWN)
    decorators = getattr(callee.node, "decorator_list", ())
    return is_own(callee) and (callee.name == "__init__" or any(dotted_name(d) == "fitted" for d in decorators))


def is_own(callee: Closure) -> bool:
    """Whether it is a function or method of Tessera's, and no function inside of one."""
    plain = callee.frame is None and not isinstance(callee.node, ast.Lambda)
    return plain and callee.definition.file.startswith(OWN)


def fixes(found: Misfit, node: ast.AST, span_of: Callable[[ast.AST], Span]) -> tuple[Fix, ...]:
    """The name that was meant, in place of a keyword of a call."""
    written = [k for k in getattr(node, "keywords", ()) if k.arg == found.unknown]
    if not found.meant or not written:
        return ()
    at = span_of(written[0])
    place = Span(at.file, at.line, at.col, at.line, at.col + len(found.unknown))
    return (Fix(f"Change {found.unknown!r} to {found.meant!r}", (Edit(place, found.meant),)),)


def argument(value: Any) -> Any:
    """A value of the evaluator's as `fitting` takes it."""
    if is_sequence(value):
        return value if SOMETHING not in map(argument, value) else SOMETHING
    return value if isinstance(value, _PLAIN) or is_dict(value) else SOMETHING


def made_with(cls: Any) -> tuple[str, ...]:
    """The names of the parameters of a constructor."""
    if not isinstance(cls, ClassRef):
        return tuple(p.name for p in parameters_of(cls.__init__))
    constructor = cls.members.get("__init__")
    if not isinstance(constructor, Closure):
        return tuple(cls.fields)
    return tuple(p.name for p in _parameters(constructor.node))


def owners_of(cls: Any) -> list[str]:
    """The names of a class and of those above it."""
    return [c.name for c in _with_bases(cls)] if isinstance(cls, ClassRef) else [c.__name__ for c in cls.__mro__]


def _with_bases(cls: ClassRef) -> Iterator[ClassRef]:
    yield cls
    for base in cls.bases:
        yield from _with_bases(base)


@by_node
def _parameters(node: Any) -> tuple[Setting, ...]:
    """Those of a function, without `self`."""
    a: ast.arguments = node.args
    positional = [*a.posonlyargs, *a.args]
    without = len(positional) - len(a.defaults)
    found = [_parameter(p, required=i < without) for i, p in enumerate(positional)]
    found += [_parameter(a.vararg, star="*")] if a.vararg is not None else []
    found += [_parameter(p, required=d is None, by_name=True) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    found += [_parameter(a.kwarg, star="**")] if a.kwarg is not None else []
    return tuple(p for p in found if p.name != "self")


def _parameter(node: ast.arg, required: bool = False, star: str = "", by_name: bool = False) -> Setting:
    return Setting(node.arg, _written(node.annotation), required, star, by_name)


def fields_of(cls: ClassRef) -> tuple[Setting, ...]:
    """The parameters of the constructor that a dataclass gets for its fields."""
    said = {n: a for c in reversed([*_with_bases(cls)]) for n, a in c.annotations.items()}
    found = [Setting(n, _written(said.get(n)), n not in cls.members, "", n in cls.by_name) for n in cls.fields]
    return tuple(sorted(found, key=lambda p: p.by_name))


def _written(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)
