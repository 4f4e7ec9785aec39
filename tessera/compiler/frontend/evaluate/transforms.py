"""`ts.grad(f)` in a program, and the definition of one that was made outside of it.

A transformed function has the parameters of the original one. Its body is one call: of the original function, under
the transform, with these parameters. What such a call emits is the layer's business.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.evaluate.calls import BUILTINS, closure_of
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Builtin,
    Method,
    Namespace,
    OperatorRef,
    has_unknown,
    is_list,
    type_name,
)
from tessera.language import transforms
from tessera.language.transforms import Transform

MAKERS: dict[str, Callable[..., Any]] = {"grad": transforms.grad, "value_and_grad": transforms.value_and_grad}
"""transforms that give a function; their signatures are those of the public functions"""


def _made(name: str) -> Callable[..., Any]:
    signature = inspect.signature(inspect.unwrap(MAKERS[name]))

    def run(ev: Evaluator, node: ast.AST, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if has_unknown(args) or has_unknown(kwargs):
            return UNKNOWN
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            return ev.error("TS105", f"{name}: {e}", node)
        function, *_ = bound.args
        given = dict(list(bound.arguments.items())[1:])
        given |= {k: tuple(v) for k, v in given.items() if is_list(v)}
        transform = Transform(name, **given)
        if transform.problem:
            return ev.error("TS105", transform.problem, node)
        if not _callable(function):
            return ev.error("TS105", f"{name} takes a function, not {type_name(function)}", node)
        return TransformedRef(transform, function)

    return run


def _callable(value: Any) -> bool:
    if isinstance(value, (Closure, TransformedRef, OperatorRef, Method)):
        return True
    return callable(value) and not isinstance(value, (Builtin, Namespace, type))


BUILTINS.update({f"tessera.{name}": _made(name) for name in MAKERS})


def definition_of(python: Callable[..., Any], options: Mapping[str, Any]) -> Definition:
    """The definition of a function that was transformed outside of programs. Raises CompileError TS109."""
    original = live_definition(python, "function", options)
    function: Any = closure_of(python)
    name = original.name
    for transform in options["transforms"]:
        function, name = TransformedRef(transform, function), f"{transform.name}_{name}"
    tree = original.tree
    call = ast.copy_location(_call(function, tree), tree)
    if isinstance(tree, ast.Lambda):
        made: Any = ast.Lambda(tree.args, call)
    else:
        kept = {f: getattr(tree, f) for f in tree._fields if f not in ("body", "returns")}
        made = ast.FunctionDef(**kept, body=[ast.copy_location(ast.Return(call), tree)], returns=None)
    return replace(original, name=name, tree=ast.copy_location(made, tree))


def _call(function: Any, tree: ast.FunctionDef | ast.Lambda) -> ast.Call:
    """The call that passes every parameter on as it is."""

    def at(node: Any) -> Any:
        return ast.copy_location(node, tree)

    a = tree.args
    args = [at(ast.Name(p.arg, ast.Load())) for p in (*a.posonlyargs, *a.args)]
    if a.vararg is not None:
        args.append(at(ast.Starred(at(ast.Name(a.vararg.arg, ast.Load())), ast.Load())))
    keywords = [at(ast.keyword(p.arg, at(ast.Name(p.arg, ast.Load())))) for p in a.kwonlyargs]
    if a.kwarg is not None:
        keywords.append(at(ast.keyword(None, at(ast.Name(a.kwarg.arg, ast.Load())))))
    return ast.Call(at(ast.Constant(function)), args, keywords)


def parameter_names(function: Any) -> list[str]:
    """The names of the positional parameters of what can be called, as far as they are known."""
    if isinstance(function, TransformedRef):
        return parameter_names(function.function)
    if isinstance(function, Closure):
        return [p.arg for p in (*function.node.args.posonlyargs, *function.node.args.args)]
    if isinstance(function, OperatorRef):
        return []
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
