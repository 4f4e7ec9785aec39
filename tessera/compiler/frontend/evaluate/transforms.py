"""`ts.grad(f)` in a program, and the definition of one that was made outside of it.

A transformed function has the parameters of the original one. Its body is one call: of the original function, under
the transform, with these parameters. What such a call emits is the layer's business.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.evaluate.calls import BUILTINS, closure_of, has_call
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.names.settings import argument, fixes
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Builtin,
    Method,
    Namespace,
    OperatorRef,
    Record,
    has_unknown,
    is_list,
    type_name,
)
from tessera.compiler.frontend.syntax.parse import FunctionNode
from tessera.compiler.frontend.syntax.trees import clone
from tessera.fitting import Callee, misfit, parameters_of
from tessera.language import transforms
from tessera.language.transforms import OPTIONS, RULES, UNNAMED, Transform, hashable

MAKERS = ("grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian", "remat", "vmap")
"""transforms that give a function"""
CALLS = ("jvp", "hvp", "vjp", "linearize", "scan")
"""those that are given the arguments as well"""


def _transform(name: str) -> Callable[..., Any]:
    python = inspect.unwrap(getattr(transforms, name))
    signature, callee = inspect.signature(python), Callee(name, parameters_of(python))

    def run(ev: Evaluator, node: ast.AST, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if has_unknown(args) or has_unknown(kwargs):
            return UNKNOWN
        said = misfit(callee, list(map(argument, args)), {n: argument(v) for n, v in kwargs.items()})
        if said is not None:
            return ev.error("TS105", said.message, node, fixes=fixes(said, node, ev.span))
        bound = signature.bind(*args, **kwargs)
        options = tuple((k, bound.arguments.pop(k)) for k in OPTIONS.get(name, ()) if k in bound.arguments)
        function, *rest = bound.args or (None,)
        if not _callable(function):
            return ev.error("TS105", f"{name} takes a function, not {type_name(function)}", node)
        if name in CALLS:
            return ev.layer.transformed(
                node, TransformedRef(Transform(name, None, options=options), function), rest, {}
            )
        given = dict(list(bound.arguments.items())[1:])
        given |= {k: tuple(v) for k, v in given.items() if is_list(v)}
        transform = Transform(name, **given, options=tuple((k, hashable(v)) for k, v in options))
        if transform.problem:
            return ev.error("TS105", transform.problem, node)
        return TransformedRef(transform, function)

    return run


def _callable(value: Any) -> bool:
    if isinstance(value, (Closure, TransformedRef, OperatorRef, Method)):
        return True
    if isinstance(value, Record):
        return has_call(value)
    return callable(value) and not isinstance(value, (Builtin, Namespace, type))


BUILTINS.update({f"tessera.{name}": _transform(name) for name in (*MAKERS, *CALLS)})


def definition_of(python: Callable[..., Any], options: Mapping[str, Any]) -> Definition:
    """The definition of a function that was transformed outside of programs. Raises CompileError TS109."""
    original = live_definition(python, "function", options)
    found = closure_of(python)
    assert found is not None
    rules = {name: options[name] for name in (*RULES, "mode") if name in options}
    function: Any = replace(found, definition=replace(found.definition, options=rules))
    name = original.name
    for transform in options["transforms"]:
        function = TransformedRef(transform, function)
        name = name if transform.name in UNNAMED else f"{transform.name}_{name}"
    tree = original.tree
    own = transforms.parameters_of(options["transforms"])
    arguments = tree.args if own is None else _positional(own, tree)
    if any(transform.name == "vmap" for transform in options["transforms"]):  # annotations are those of one element
        arguments = clone(arguments)
        for p in ast.walk(arguments):
            if isinstance(p, ast.arg):
                p.annotation = None
    call = ast.copy_location(_call(function, arguments, tree), tree)
    if isinstance(tree, ast.Lambda):
        made: Any = ast.Lambda(arguments, call)
    else:
        kept = {f: getattr(tree, f) for f in tree._fields if f not in ("body", "returns", "args")}
        made = ast.FunctionDef(**kept, args=arguments, body=[ast.copy_location(ast.Return(call), tree)], returns=None)
    options = {n: v for n, v in original.options.items() if n not in RULES}  # those of what it calls
    return replace(original, name=name, tree=ast.copy_location(made, tree), options=options)


def _positional(names: Sequence[str], tree: FunctionNode) -> ast.arguments:
    args = [ast.copy_location(ast.arg(name), tree) for name in names]
    return ast.arguments([], args, None, [], [], None, [])


def _call(function: Any, a: ast.arguments, tree: FunctionNode) -> ast.Call:
    """The call that passes every parameter on as it is."""

    def at(node: Any) -> Any:
        return ast.copy_location(node, tree)

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
