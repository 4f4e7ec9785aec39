"""Writes out what a kernel's text leaves to the evaluator: the functions that it calls, the steps of unrolled loops,
and the register that `y[i] += x` in a loop stands for. The backward is that of a kernel with none of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tessera.compiler.frontend.backward.code import expression, number, unused
from tessera.compiler.frontend.kernel.grid import REGISTER
from tessera.compiler.frontend.kernel.values import View
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.names.values import MISSING, Builtin, Namespace
from tessera.compiler.frontend.syntax.assigned import stored_in_order, stored_names
from tessera.compiler.frontend.syntax.trees import clone
from tessera.errors import CompileError

MOST_STEPS = 64
"""an unrolled loop of more steps would not be a text to read"""


def written_out(definition: Definition, values: Mapping[ast.AST, Any]) -> Definition | None:
    """The kernel with that written out; None if it has none of it. `values`: what its expressions have been found to
    be."""
    tree = clone(definition.tree)
    called: dict[ast.AST, Definition] = {}
    unrolled: dict[ast.AST, list[Any]] = {}
    for new, old in zip(ast.walk(tree), ast.walk(definition.tree), strict=True):
        if isinstance(old, ast.Call) and (f := _function(values.get(old.func))):
            called[new] = f
        elif isinstance(old, ast.For) and (steps := unrolled_steps(old, values.get(old.iter))) is not None:
            unrolled[new] = steps
    registers = _registers(definition.tree, values)
    if not called and not unrolled and not registers:
        return None
    assert isinstance(tree, ast.FunctionDef)
    writing = _Writing(definition, tree, called, unrolled)
    writing.rename(registers)
    tree.body = writing.statements(tree.body)
    return replace(definition, tree=ast.fix_missing_locations(tree)) if writing.done else None


def library_of(definition: Definition) -> str:
    """How the file calls the library: `ts` of `@ts.kernel`."""
    assert isinstance(definition.tree, ast.FunctionDef)
    for d in definition.tree.decorator_list:
        for n in ast.walk(d):
            if isinstance(n, ast.Attribute) and n.attr == "kernel":
                return ast.unparse(n.value)
    return "ts"


def _registers(tree: ast.AST, values: Mapping[ast.AST, Any]) -> dict[str, View]:
    """The names of sums in registers that `kernel/grid.py` has made, with what they are stored to."""
    found: dict[str, View] = {}
    for s in ast.walk(tree):
        match s:
            case ast.Assign(
                targets=[ast.Name(id=n)], value=ast.Call(func=ast.Name(id=f), args=[ast.Subscript(value=a)])
            ):
                if f == REGISTER and isinstance(view := values.get(a), View):
                    found[n] = view
            case _:
                pass
    return found


def _function(value: Any) -> Definition | None:
    if isinstance(value, Closure):
        return value.definition if value.frame is None else None
    try:
        return live_definition(value) if inspect.isfunction(value) else None
    except CompileError:
        return None


class _Writing(ast.NodeTransformer):
    def __init__(
        self,
        definition: Definition,
        tree: ast.FunctionDef,
        called: Mapping[ast.AST, Definition],
        unrolled: Mapping[ast.AST, list[Any]],
    ) -> None:
        self.definition, self.called, self.unrolled, self.done = definition, called, unrolled, False
        self.tree = tree
        self.own = {*stored_names(tree.body), *(a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg))}
        self.taken = self.own | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        self.before: list[ast.stmt] = []

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for s in body:
            if isinstance(s, ast.For) and s in self.unrolled and not self.registers:
                out += self.steps(s, self.unrolled[s])
                continue
            for part in ("body", "orelse"):
                if isinstance(s, (ast.If, ast.For)):
                    setattr(s, part, self.statements(getattr(s, part)))
            if not isinstance(s, (ast.If, ast.For, ast.While)):
                s = self.visit(s)
            out += [*self.before, s]
            self.before = []
        return out

    def rename(self, registers: Mapping[str, View]) -> None:
        """Gives sums in registers names that a text may have. They begin with 0 and are added to what they stand for:
        so its cotangent stays where it is."""
        self.registers = {n: unused(f"{view.name}_sum", self.taken) for n, view in registers.items()}
        self.wide = {n for n, view in registers.items() if view.dtype.is_low_precision}
        self.done |= bool(registers)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.registers.get(node.id, node.id), node.ctx), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target, value = node.targets[0], node.value
        root = library_of(self.definition)
        if isinstance(target, ast.Name) and target.id in self.registers and isinstance(value, ast.Call):
            node.value = ast.Call(expression(f"{root}.tile.zeros_like"), value.args, [])
            if target.id in self.wide:
                to = ast.Attribute(node.value, "to", ast.Load())
                node.value = ast.Call(to, [expression(f"{root}.f32")], [])
        elif isinstance(value, ast.Name) and value.id in self.registers and isinstance(target, ast.Subscript):
            return self.generic_visit(ast.copy_location(ast.AugAssign(target, ast.Add(), value), node))
        return self.generic_visit(node)

    def steps(self, loop: ast.For, steps: list[Any]) -> list[ast.stmt]:
        """The steps of an unrolled loop; functions that they call are inlined when they have been read."""
        self.done = True
        targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        within = set(ast.walk(loop))
        behind = any(isinstance(n, ast.Name) and n.id in targets and n not in within for n in ast.walk(self.tree))
        out: list[ast.stmt] = []
        for step in steps:
            names = _given(loop.target, step)
            if targets & set(stored_names(loop.body)):
                out += [ast.Assign([ast.Name(n, ast.Store())], value, lineno=1) for n, value in names.items()]
                names = {}
            out += [_Unrolled(names).visit(s) for s in clone(loop.body)]
        if behind and steps:
            last = _given(loop.target, steps[-1])
            out += [ast.Assign([ast.Name(n, ast.Store())], value, lineno=1) for n, value in last.items()]
        for s in out:
            for n in ast.walk(s):
                if "col_offset" not in vars(n):
                    ast.copy_location(n, loop)
        return out or [ast.copy_location(ast.Pass(), loop)]

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
        for n in stored_in_order(body):
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


def unrolled_steps(loop: ast.For, steps: Any) -> list[Any] | None:
    """What an unrolled loop counts, where its steps can be written one after the other."""
    if not isinstance(steps, (range, list, tuple)) or loop.orelse or _left_early(loop.body):
        return None
    found = [*cast("Sequence[Any]", steps)]
    return found if len(found) <= MOST_STEPS and all(_fits(loop.target, step) for step in found) else None


def _left_early(body: list[ast.stmt]) -> bool:
    for s in body:
        if isinstance(s, (ast.Break, ast.Continue, ast.Return)):
            return True
        if isinstance(s, ast.If) and (_left_early(s.body) or _left_early(s.orelse)):
            return True
    return False


def _fits(target: ast.expr, step: Any) -> bool:
    """Whether a step is numbers, as many as the targets."""
    if isinstance(target, ast.Tuple):
        parts = cast("Sequence[Any]", step) if isinstance(step, (list, tuple)) else ()
        return len(parts) == len(target.elts) and all(map(_fits, target.elts, parts))
    return isinstance(target, ast.Name) and isinstance(step, (bool, int, float, str))


def _given(target: ast.expr, step: Any) -> dict[str, ast.expr]:
    """The values of the targets in a step."""
    if isinstance(target, ast.Tuple):
        return {n: v for t, x in zip(target.elts, step, strict=True) for n, v in _given(t, x).items()}
    assert isinstance(target, ast.Name)
    is_number = isinstance(step, (int, float)) and not isinstance(step, bool)
    return {target.id: number(step) if is_number else ast.Constant(step)}


class _Substituted(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.names.get(node.id)
        if isinstance(found, ast.Name):
            return ast.Name(found.id, node.ctx)
        return clone(found) if found is not None else node


class _Unrolled(_Substituted):
    """In a step: indices are written as short as they can be, `x[i]` for `x[i + 0]`."""

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        node = cast("ast.Slice", self.generic_visit(node))
        node.lower, node.upper = (None if x is None else _short(x) for x in (node.lower, node.upper))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node = cast("ast.Subscript", self.generic_visit(node))
        node.slice = _short(node.slice)
        return node


def _short(node: ast.expr) -> ast.expr:
    """An index without sums of numbers."""
    match node:
        case ast.Tuple(elts=elts):
            node.elts = [_short(e) for e in elts]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            node.left, node.right = a, b = _short(left), _short(right)
            match a, op, b:
                case ast.Constant(value=int() as m), _, ast.Constant(value=int() as n):
                    found = m * n if isinstance(op, ast.Mult) else m + n if isinstance(op, ast.Add) else m - n
                    return ast.copy_location(number(found), node)
                case _, ast.Add() | ast.Sub(), ast.Constant(value=0):
                    return a
                case ast.Constant(value=0), ast.Add(), _:
                    return b
                case ast.BinOp(left=first, op=ast.Add(), right=ast.Constant(value=int() as m)), _, ast.Constant(
                    value=int() as n
                ) if not isinstance(op, ast.Mult):
                    total = m + n if isinstance(op, ast.Add) else m - n
                    return ast.copy_location(ast.BinOp(first, ast.Add(), number(total)), node) if total else first
                case _:
                    pass
        case _:
            pass
    return node
