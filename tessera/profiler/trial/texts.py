"""Changed texts of programs: analysed as an editor would, and run without being written to a file."""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tessera
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.syntax.parse import Source, source_of
from tessera.compiler.frontend.workspace import Modules
from tessera.compiler.predict import digest
from tessera.editor.functions import Known
from tessera.editor.refactor import insertion
from tessera.errors import Diagnostic, Edit, register_source
from tessera.language.decorators import Decorated
from tessera.profiler.trial.calls import NotTried, line_before


@dataclass(frozen=True, slots=True)
class _Plain:
    plain: str


class TextFile:
    """A text that no editor holds, as refactorings see it."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.modules = file, _Plain(text), Modules()
        self._files = FileAnalysis(file, modules=self.modules)
        self._files.update(text)
        self.known = [Known(analysis, self._files) for analysis in self._files.analyses]

    @property
    def source(self) -> Source:
        return source_of(self.file, self.text.plain)

    @property
    def scope(self) -> TextScope:
        return self._files.scope

    @property
    def parses(self) -> bool:
        return not self._files.syntax_errors

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        return self._files.diagnostics

    def function_at(self, line: int) -> Known | None:
        return next((k for k in self.known if k.first_line <= line <= k.last_line), None)


@contextmanager
def lines_kept(file: str) -> Generator[None]:
    """Analysing a text makes it that of the file; what runs here was made from another one."""
    kept = linecache.cache.get(file)
    try:
        yield
    finally:
        linecache.cache.pop(file, None)
        if kept is not None:
            linecache.cache[file] = kept


def own_name(program: Any) -> str:
    """What the program's module calls Tessera. Raises NotTried."""
    found = next((name for name, value in program.__wrapped__.__globals__.items() if value is tessera), None)
    if found is None:
        raise NotTried("the file has no name for Tessera's module: import tessera as ts")
    return found


def decorator_of(tree: Any, name: str) -> ast.expr | None:
    """`@ts.kernel` or `@ts.kernel(...)`."""
    for node in getattr(tree, "decorator_list", []):
        called = node.func if isinstance(node, ast.Call) else node
        if (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == name:
            return node
    return None


def with_keyword(program: Any, decorator: str, keyword: str, value: str) -> Edit:
    """The decorator with one more keyword. Raises NotTried."""
    definition = program.definition()
    found = decorator_of(definition.tree, decorator)
    if found is None:
        raise NotTried(f"{program.name} is not decorated with @ts.{decorator} where it is defined")
    given = [*found.args, *found.keywords] if isinstance(found, ast.Call) else []
    if any(isinstance(k, ast.keyword) and k.arg in (keyword, None) for k in given):
        raise NotTried(f"{program.name} says {keyword}= already")
    name = found.func if isinstance(found, ast.Call) else found
    said = ", ".join([*map(ast.unparse, given), f"{keyword}={value}"])
    return Edit(definition.text.span(found), f"{ast.unparse(name)}({said})")


def around(source: Any, node: ast.expr, left: str, right: str) -> Iterator[Edit]:
    """The expression between two texts."""
    span = source.span(node)
    yield insertion(span, False, left)
    yield insertion(span, True, right)


def before_body(source: Any, tree: Any, line: str) -> Edit:
    """A line of its own before the first statement that is no documentation. Raises NotTried."""
    first, *others = tree.body
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and others
    return line_before(source, others[0] if documented else first, line)


def redefined(program: Any, text: str) -> Any:
    """A function or kernel as the changed text of its file defines it, with its globals. Raises NotTried."""
    python, line = program.__wrapped__, program.definition().tree.lineno
    if python.__closure__:
        raise NotTried(f"{program.name} reads variables of the function that it is defined in")
    label = label_of(program.definition().file, text)
    tree = TextFile(label, text).scope.tree
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and (n.name, n.lineno) == (program.name, line))
    function = next(found, None)
    if function is None:
        raise NotTried(f"the text of {program.name} is not where it was")
    register_source(label, text)
    made = dict(python.__globals__)
    run_in(ast.Module([function], []), label, made)
    after = made[program.name]
    if not isinstance(after, Decorated):
        raise NotTried("the change makes no program")
    if "autotune" in program.options:
        raise NotTried(f"the block sizes of {program.name} are tuned, and would be tuned anew")
    return after.with_config(**program.config) if program.config else after


def label_of(file: str, text: str) -> str:
    """What a changed text of a file is called. Each has a name of its own: functions are compiled from the text that
    has the name of theirs."""
    return f"<tried {digest(text)[:8]}: {Path(file).name}>"


def run_in(module: ast.Module, file: str, namespace: dict[str, Any]) -> None:
    exec(compile(module, file, "exec", __future__.annotations.compiler_flag, dont_inherit=True), namespace)
