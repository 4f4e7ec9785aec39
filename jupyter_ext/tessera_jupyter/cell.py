"""Running a cell of the Tessera dialect in the notebook's namespace, and finding what it defined.

The cell's text is registered under a name of its own, `In[4]`, with the lines above it left blank: line 3 of a
diagnostic or traceback is the line that the person sees as 3.
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.frontend.syntax.parse import compile_text, parse
from tessera.errors import CompileError, Diagnostic, TesseraError, register_source
from tessera.language.decorators import Decorated
from tessera_jupyter import findings

_FLAGS = __future__.annotations.compiler_flag
_registered: dict[str, str] = {}  # file -> text


@dataclass(frozen=True, slots=True)
class Defined:
    """A function or kernel that a cell has defined, and what is known of it. `path` is how the notebook reaches it."""

    path: str
    program: Decorated[Any, Any]
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running a cell gave: its definitions, every finding in them, and what it raised, if it did."""

    file: str
    defined: tuple[Defined, ...]
    diagnostics: tuple[Diagnostic, ...]
    error: Exception | None = None

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.diagnostics if d.severity == "error"]


def lines_above(raw: str, body: str) -> int:
    """How many lines of the cell as the person sees it stand above its body: at least that of the magic."""
    raw, body = raw.rstrip("\n"), body.rstrip("\n")
    return raw[: len(raw) - len(body)].count("\n") if body and raw.endswith(body) else 1


def run(shell: InteractiveShell, body: str, above: int, dims: Mapping[str, int]) -> Outcome:
    """Executes a cell and analyses all that it defines. Never raises for a fault of the program."""
    text = "\n" * above + body
    file = _name(_number(shell), text)
    register_source(file, text)
    try:
        compile_text(text, file)  # refuses what has no meaning at the level of a cell
        tree = parse(text, file).tree
    except CompileError as e:
        return Outcome(file, (), e.diagnostics, e)
    assert tree is not None
    error: Exception | None = None
    try:
        _execute(shell, tree, file)
    except Exception as e:  # told together with what the analysis finds
        error = e.with_traceback(findings.within(e.__traceback__, file))
    found = tuple(Defined(path, p, _analysed(p, dims)) for path, p in _defined(shell, tree, file))
    diagnostics = [d for each in found for d in each.analysis.diagnostics]
    if isinstance(error, TesseraError):
        diagnostics += error.diagnostics
    return Outcome(file, found, tuple(_once(diagnostics)), error)


def forget_broken(shell: InteractiveShell, outcome: Outcome) -> list[str]:
    """Removes definitions with errors from the namespace: neither they nor an older version may be called."""
    broken = [each.path for each in outcome.defined if not each.analysis.ok]
    for path in broken:
        owner, _, name = path.rpartition(".")
        if not owner:
            shell.user_ns.pop(name, None)
        elif hasattr(shell.user_ns.get(owner), name):
            delattr(shell.user_ns[owner], name)
    return broken


def _number(shell: InteractiveShell) -> str:
    """`In[4]`, the name under which the notebook knows the cell that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        if named is not None:
            return named[1]
        frame = frame.f_back
    return f"In[{shell.execution_count}]"


def _name(base: str, text: str) -> str:
    """A name that no other text has: a cell that runs without a number of its own gets `In[4]·2`."""
    file = base
    again = 1
    while _registered.setdefault(file, text) != text:
        again += 1
        file = f"{base}·{again}"
    return file


def _execute(shell: InteractiveShell, tree: ast.Module, file: str) -> None:
    """Runs the statements; a last expression is shown as the cell's result, as in any cell."""
    body, last = tree.body, []
    if body and isinstance(body[-1], ast.Expr):
        body, last = body[:-1], body[-1:]
    exec(compile(ast.Module(body, []), file, "exec", flags=_FLAGS, dont_inherit=True), shell.user_ns)
    if last:
        exec(compile(ast.Interactive(last), file, "single", flags=_FLAGS, dont_inherit=True), shell.user_ns)


def _defined(shell: InteractiveShell, tree: ast.Module, file: str) -> Iterator[tuple[str, Decorated[Any, Any]]]:
    """The functions and kernels whose text stands in this cell, in its order; those of its classes as well."""
    found: dict[int, tuple[str, Decorated[Any, Any]]] = {}
    for name in _bound(tree):
        value = shell.user_ns.get(name)
        inner = vars(value) if isinstance(value, type) else {}
        for path, program in ((name, value), *((f"{name}.{k}", v) for k, v in inner.items())):
            if isinstance(program, Decorated) and program.__wrapped__.__code__.co_filename == file:
                found.setdefault(id(program), (path, program))
    yield from sorted(found.values(), key=lambda pair: pair[1].__wrapped__.__code__.co_firstlineno)


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _analysed(program: Decorated[Any, Any], dims: Mapping[str, int]) -> Analysis:
    return analyse(program.definition(), None, dims)


def _once(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Each finding once, in the order of the text: a mistake in a helper is found by everyone who calls it, and a
    mistake in a function by the call that follows it."""
    unique = {(d.code, d.span): d for d in reversed(diagnostics)}
    return sorted(unique.values(), key=lambda d: (d.span.file, d.span.line, d.span.col))
