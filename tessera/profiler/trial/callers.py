"""The text in which a program is called: the call, its loops, and what may be moved out of them."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.compiler.frontend.syntax.parse import Source, source_of
from tessera.files import is_plain
from tessera.profiler.trial.calls import NotTried
from tessera.runtime.events import LaunchEvent

LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
VIEWS = frozenset({"transpose", "swapaxes", "permute", "reshape", "T"})
"""methods that make views, and do nothing else"""


@dataclass(frozen=True, slots=True)
class Caller:
    """A call in its text. `path`: what it stands in, from the module to the call itself."""

    source: Source
    path: Sequence[ast.AST]
    space: dict[str, Any]
    """the names of the module"""

    @property
    def call(self) -> ast.Call:
        found = self.path[-1]
        assert isinstance(found, ast.Call)
        return found

    def argument(self, program: Any, parameter: str) -> ast.expr:
        """What the call gives to the parameter. Raises NotTried."""
        tree = program.definition().tree
        names = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
        given = dict(zip(names, self.call.args, strict=False)) | {k.arg: k.value for k in self.call.keywords if k.arg}
        if parameter not in given or any(isinstance(a, ast.Starred) for a in self.call.args):
            raise NotTried(f"the call does not say what {parameter} is")
        return given[parameter]

    @property
    def around(self) -> Sequence[ast.AST]:
        """What it stands in, within its function, the innermost first."""
        out: list[ast.AST] = []
        for node in reversed(self.path[:-1]):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)):
                break
            out.append(node)
        return out

    def value(self, name: str) -> Any:
        """What a name of the module holds; None for those of the function in which the call stands."""
        own = [n for n in self.path if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))]
        found = [n for function in own for n in ast.walk(function)]
        local = {n.arg for n in found if isinstance(n, ast.arg)}
        local |= {n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return None if name in local else self.space.get(name)

    def name_of(self, module: str) -> str:
        """What the text calls a module. Raises NotTried."""
        found = (name for name, value in self.space.items() if getattr(value, "__name__", "") == module)
        name = next(found, None)
        if name is None:
            raise NotTried(f"the text has no name for {module}")
        return name

    def fresh(self, name: str) -> str:
        """A name that the text does not use."""
        used = {n.id for n in ast.walk(self.path[0]) if isinstance(n, ast.Name)}
        used |= {n.arg for n in ast.walk(self.path[0]) if isinstance(n, ast.arg)}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in used)

    def before_loops(self, expression: ast.expr) -> ast.stmt:
        """The statement in front of which the expression has the value that it has in all rounds of the loops around
        the call. Raises NotTried where it stands in no loop, or changes from round to round."""
        said = ast.unparse(expression)
        if not all(_is_view(node) for node in ast.walk(expression)):
            raise NotTried(f"{said} may be another array at each call")
        names = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}
        found, seen = None, False
        for node in self.around:
            if isinstance(node, LOOPS):
                seen = True
                if names & _changed(node):
                    break
                found = node
            if found is not None and isinstance(node, ast.stmt) and not isinstance(found, ast.stmt):
                found = node  # a loop inside an expression: in front of its statement
        if not isinstance(found, ast.stmt):
            why = "is made anew in each round" if seen else "does not stand in a loop of this text"
            raise NotTried(f"{said} {why}")
        return found


def _is_view(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.UnaryOp,
                             ast.expr_context, ast.unaryop))  # fmt: skip


def _changed(loop: ast.AST) -> set[str]:
    """The names that are bound in it, and those of which an element or an attribute is stored to."""
    out: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            base: ast.AST = node
            while isinstance(base, (ast.Subscript, ast.Attribute)):
                base = base.value
            if isinstance(base, ast.Name):
                out.add(base.id)
    return out


def caller_of(launch: LaunchEvent, program: Any) -> Caller:
    """The call of the program that made the launch. Raises NotTried."""
    file, line = str(launch.attributes.get("call_file", "")), int(launch.attributes.get("call_line", 0))
    text = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        tree = ast.Module([], [])
    space = namespace_of(file, [program])
    names = {program.name, *(name for name, value in space.items() if value is program)}
    found = [path for path in _calls(tree, line) if _called(path[-1]) in names]
    if len(found) != 1:
        raise NotTried(f"the call of {program.name} does not stand alone on a line of a text that can be read")
    return Caller(source_of(file, text), found[0], space)


def _called(call: ast.AST) -> str:
    assert isinstance(call, ast.Call)
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _calls(tree: ast.AST, line: int) -> Iterator[list[ast.AST]]:
    """Calls that cover the line, with what they stand in."""

    def within(node: ast.AST, path: list[ast.AST]) -> Iterator[list[ast.AST]]:
        here = [*path, node]
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield here
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", line), getattr(child, "end_lineno", line) or line
            if first <= line <= last or not hasattr(child, "lineno"):
                yield from within(child, here)

    yield from within(tree, [])


def namespace_of(file: str, programs: Sequence[Any]) -> dict[str, Any]:
    """The names of the module in whose text calls of the programs stand. Raises NotTried."""
    spaces = [p.__wrapped__.__globals__ for p in programs if p.__wrapped__.__code__.co_filename == file]
    spaces += [vars(m) for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file]
    if not spaces and not is_plain(file):  # a cell or an expression: it runs where the programs were made
        spaces = [p.__wrapped__.__globals__ for p in programs]
    if not spaces:
        raise NotTried(f"the module of {file} is not loaded")
    return dict(spaces[0])
