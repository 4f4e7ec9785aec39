"""`ts.nn.tree` inside of functions: gets and replaces the tensors of dataclasses, lists and dicts by their paths.

It means what `tessera/nn/tree.py` does, over what the evaluator has in place of these objects.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    ClassRef,
    OperatorRef,
    Record,
    has_unknown,
    is_dict,
    is_sequence,
    remade,
    type_name,
)
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Value
from tessera.language.dtypes import DType
from tessera.language.records import BUFFER, REGISTERED, STATE, ArrayType, difference

Args = list[Any]
Kwargs = dict[str, Any]


def children(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """What a tree holds: names, values, and whether these are state."""
    if isinstance(value, Record):
        fields = {f.name: f for f in dataclasses.fields(value.cls)} if dataclasses.is_dataclass(value.cls) else {}
        for name, held in value.members.items():
            state = getattr(value.cls, STATE, False) is True
            declared = isinstance(value.cls, ClassRef) and name in value.cls.buffers
            declared = declared or (name in fields and BUFFER in fields[name].metadata)
            yield name, held, state or declared or name in value.members.get(REGISTERED, ())
    elif is_dict(value):
        yield from ((str(k), v, False) for k, v in value.items())
    elif is_sequence(value):
        yield from ((str(i), v, False) for i, v in enumerate(value))


def leaves(value: Any, path: str = "", buffer: bool = False) -> Iterator[tuple[str, Value, bool]]:
    """The tensors of a tree: their paths, values, and whether these are state."""
    if isinstance(value, Value):
        yield path, value, buffer
    for name, held, state in children(value):
        yield from leaves(held, f"{path}.{name}" if path else name, buffer or state)


def arrays(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.arrays(tree)`: all tensors, by path."""
    return {path: v for path, v, _ in leaves(args[0])}


def parameters(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.parameters(tree)`: those of floats that are not a state."""
    return {path: v for path, v, buffer in leaves(args[0]) if not buffer and tensor(v).dtype.is_float}


def replaced(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.replaced(tree, arrays)`: a copy with other tensors at these paths."""
    given: dict[str, Any] = args[1]

    def of(value: Any, path: str) -> Any:
        def inner(name: Any, held: Any) -> Any:
            return of(held, f"{path}.{name}" if path else str(name))

        if isinstance(value, Value):
            return given.get(path, value)
        if isinstance(value, Record):
            members = {n: inner(n, v) for n, v in value.members.items()}
            return Record(value.type_name, members, value.cls, value.outside)
        if is_dict(value):
            return {k: inner(k, v) for k, v in value.items()}
        return remade(value, [inner(i, v) for i, v in enumerate(value)]) if is_sequence(value) else value

    return of(args[0], "")


def tree_map(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.tree_map(f, tree, *others)`."""
    if len(args) < 2 or kwargs:
        return ev.error("TS105", "tree_map takes a function and trees", node)
    if has_unknown(args):
        return UNKNOWN
    f, tree = args[:2]
    parts: list[dict[str, Any]] = [arrays(ev, node, [t], {}) for t in args[1:]]
    if wrong := difference(parts):
        return ev.error("TS105", wrong, node)
    found = {path: ev.call(node, f, [part[path] for part in parts], {}) for path in parts[0]}
    return UNKNOWN if has_unknown(found) else replaced(ev, node, [tree, found], {})


def tree_leaves(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.tree_leaves(tree)`."""
    if len(args) != 1 or kwargs:
        return ev.error("TS105", "tree_leaves takes a tree", node)
    return UNKNOWN if has_unknown(args) else [*arrays(ev, node, args, {}).values()]


def copied(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.copied(tree)`: tensors are values, which nothing changes."""
    return replaced(ev, node, [args[0], {}], {})


def moved(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.moved(tree, dtype)`: gradients go through the conversions."""
    tree, dtype = args
    if not isinstance(dtype, DType):
        return ev.error("TS105", f"in a function a model is converted to another dtype, not {type_name(dtype)}", node)
    floats = {path: v for path, v, _ in leaves(tree) if tensor(v).dtype.is_float}
    cast = {path: ev.layer.call(node, OperatorRef("cast"), [v, dtype], {}) for path, v in floats.items()}
    return replaced(ev, node, [tree, cast], {})


def recorded(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.recorded(tree)`: functions record nothing."""
    return {}


def types(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.types(tree)`: shapes and dtypes in the place of tensors."""

    def of(value: Any) -> Any:
        if isinstance(value, Value):
            return ArrayType(tensor(value).shape, tensor(value).dtype)
        if is_dict(value):
            return {k: of(v) for k, v in value.items()}
        return remade(value, map(of, value)) if is_sequence(value) else value

    return of(args[0])


def same_array(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.same_array(arrays)`."""
    places: dict[Value, str] = {}
    return next(((places[v], name) for name, v in args[0].items() if places.setdefault(v, name) != name), ())


def changed(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`tree.changed(name, instead)`: what a function is given stays as it is."""
    return ev.error("TS102", f"{args[0]} changes a model, and functions make others: {args[1]}", node)


def swapped(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> bool:
    """`swapped(model, gradient)`: the model is what a derivative gave, and the gradient is not."""
    model, gradient = ({v for _, v, _ in leaves(tree) if tensor(v).dtype.is_float} for tree in args)
    return bool(model) and model <= ev.gradients and not gradient & ev.gradients


def nothing(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> None:
    """What an optimizer remembers of updates and parameters: a function is evaluated once."""


def _whole(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of trees that may come from outside."""

    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        return f(ev, node, [ev.whole(node, a) for a in args], kwargs)

    return run


OF_TREES = (arrays, parameters, replaced, copied, moved, recorded, same_array, types)
TREES = {
    **{f"tessera.nn.tree.{f.__name__}": _whole(f) for f in OF_TREES},
    "tessera.nn.tree.renewed": _whole(replaced),
    "tessera.tree_map": _whole(tree_map),
    "tessera.tree_leaves": _whole(tree_leaves),
    "tessera.optimizers.swapped.swapped": _whole(swapped),
    "tessera.nn.tree.noted": nothing,
    "tessera.nn.tree.changed": changed,
    **{f"tessera.optimizers.repeated.{name}": nothing for name in ("again", "remember")},
}
