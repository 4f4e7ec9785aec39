"""Inlines the functions that a kernel calls, so that the backward is that of a kernel without calls."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.backward.code import unused
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.names.values import MISSING, Builtin, Namespace
from tessera.compiler.frontend.syntax.assigned import stored_names
from tessera.compiler.frontend.syntax.trees import clone
from tessera.errors import CompileError


def written_out(definition: Definition, values: Mapping[ast.AST, Any]) -> Definition | None:
    """The kernel with its functions inlined; None if it calls none that can be inlined. `values`: what its expressions
    have been found to be."""
    tree = clone(definition.tree)
    pairs = zip(ast.walk(tree), ast.walk(definition.tree), strict=True)
    called = {new: f for new, old in pairs if isinstance(old, ast.Call) and (f := _function(values.get(old.func)))}
    if not called:
        return None
    assert isinstance(tree, ast.FunctionDef)
    writing = _Writing(definition, tree, called)
    tree.body = writing.statements(tree.body)
    return replace(definition, tree=ast.fix_missing_locations(tree)) if writing.done else None


def _function(value: Any) -> Definition | None:
    if isinstance(value, Closure):
        return value.definition if value.frame is None else None
    try:
        return live_definition(value) if inspect.isfunction(value) else None
    except CompileError:
        return None


class _Writing(ast.NodeTransformer):
    def __init__(self, definition: Definition, tree: ast.FunctionDef, called: Mapping[ast.AST, Definition]) -> None:
        self.definition, self.called, self.done = definition, called, False
        self.own = {*stored_names(tree.body), *(a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg))}
        self.taken = self.own | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        self.before: list[ast.stmt] = []

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for s in body:
            for part in ("body", "orelse"):
                if isinstance(s, (ast.If, ast.For)):
                    setattr(s, part, self.statements(getattr(s, part)))
            if not isinstance(s, (ast.If, ast.For, ast.While)):
                s = self.visit(s)
            out += [*self.before, s]
            self.before = []
        return out

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = self.called.get(node)
        given = _bound(function.tree, node) if function is not None else None
        if function is None or given is None or not self.same_names(function):
            return node
        assert isinstance(function.tree, ast.FunctionDef)
        *body, last = clone(function.tree.body)
        names: dict[str, ast.expr] = {}
        first: list[ast.stmt] = []
        for n, value in given.items():
            if not isinstance(value, (ast.Name, ast.Constant)) or n in stored_names(body):
                held = unused(n, self.taken)
                first.append(ast.Assign([ast.Name(held, ast.Store())], value, lineno=1))
                value = ast.Name(held, ast.Load())
            names[n] = value
        for n in stored_names(body):
            if n not in names:
                names[n] = ast.Name(unused(n, self.taken), ast.Load())
        assert isinstance(last, ast.Return) and last.value is not None
        said = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        placed = [_Substituted(names).visit(s) for s in said]
        for s in placed:
            for n in ast.walk(s):
                ast.copy_location(n, node)
        self.before += [*(ast.copy_location(s, node) for s in first), *placed]
        self.done = True
        value = _Substituted(names).visit(last.value)
        for n in ast.walk(value):
            ast.copy_location(n, node)
        return value

    def same_names(self, function: Definition) -> bool:
        """Whether what the function reads from outside is the same in the kernel, and it returns at its end alone."""
        tree = function.tree
        if not isinstance(tree, ast.FunctionDef) or not isinstance(tree.body[-1], ast.Return):
            return False
        nodes = [n for s in tree.body for n in ast.walk(s)]
        if sum(isinstance(n, (ast.Return, ast.Lambda, ast.FunctionDef, ast.comprehension)) for n in nodes) > 1:
            return False
        own = {*stored_names(tree.body), *(a.arg for a in tree.args.args)}
        read = {n.id for n in nodes if isinstance(n, ast.Name)} - own
        lookup = self.definition.scope.lookup
        return tree.body[-1].value is not None and not any(
            n in self.own or not _same(lookup(n), function.scope.lookup(n)) for n in read
        )


def _same(a: Any, b: Any) -> bool:
    return (a is b and a is not MISSING) or (isinstance(a, (Namespace, Builtin)) and a == b)


def _bound(tree: ast.AST, call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of a call by the names of the parameters; None where that is not written."""
    if not isinstance(tree, ast.FunctionDef) or tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs:
        return None
    names = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
    found = dict(zip(names[len(names) - len(tree.args.defaults) :], tree.args.defaults, strict=True))
    found |= dict(zip(names, call.args, strict=False))
    found |= {k.arg: k.value for k in call.keywords if k.arg}
    starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
    return None if starred or found.keys() != set(names) else {n: clone(v) for n, v in found.items()}


class _Substituted(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.names.get(node.id)
        if isinstance(found, ast.Name):
            return ast.Name(found.id, node.ctx)
        return clone(found) if found is not None else node
