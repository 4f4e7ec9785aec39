"""Analysing a file as text: every function and kernel in it, without importing or running anything.

The entry of `tessera check`, the notebook's panel and the language server. Results are kept per function by its text
and by what it depends on, so that an edit in one body analyses that body alone.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import tessera.compiler.frontend.library  # noqa: F401  # pyright: ignore[reportUnusedImport]: registers `ts.nn`
from tessera.collector import collector_paused
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.called.inside import CalledProgram, Inside, MadeObject, current, inside
from tessera.compiler.frontend.definitions import definitions
from tessera.compiler.frontend.module import GIVEN_UP, TextScope
from tessera.compiler.frontend.moving import moved
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.values import CALLED, OutsideArray, Record
from tessera.compiler.frontend.names.vocabulary import is_known
from tessera.compiler.frontend.result import Analysis, changed, each_once
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.frontend.syntax.parse import source_of
from tessera.compiler.frontend.syntax.reparse import ParsedStatements, parsing
from tessera.compiler.frontend.syntax.trees import first_line
from tessera.compiler.frontend.workspace import Modules
from tessera.errors import NOWHERE, CompileError, Diagnostic, Span, register_source
from tessera.immutable import mutable

if TYPE_CHECKING:
    from tessera.compiler.frontend.called.plain_calls import PlainCall
    from tessera.compiler.frontend.called.trainings import Training

_NAMES = frozenset({"TS103", "TS104", "TS105", "TS211"})
"""findings that may depend on names that were not there"""


@mutable
class _Kept:
    """One function's analysis, with its text."""

    text: str
    analysis: Analysis


@mutable
class FileAnalysis:
    """What is known of one file. `update` takes its new text; `analyses` are in the order of the text."""

    file: str
    text: str = ""
    analyses: list[Analysis] = field(default_factory=list[Analysis])
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    """findings that belong to no function: places that do not parse, unknown names, steps of `ts.train`, calls"""
    trainings: list[Training] = field(default_factory=list["Training"])
    """the calls of `ts.train`"""
    inside: list[Inside] = field(default_factory=list[Inside])
    """its functions with what is known inside them: also plain ones that a program calls"""
    plain_calls: list[PlainCall] = field(default_factory=list["PlainCall"])
    """the calls of plain functions and modules outside of programs"""
    objects: list[MadeObject] = field(default_factory=list[MadeObject])
    """those that calls outside of programs are given"""
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """first and last lines of what could not be read, and counts as it was when it last could"""
    scope: TextScope = field(init=False)
    modules: Modules = field(default_factory=Modules, repr=False)
    """the other files of the workspace"""
    arrays: Mapping[str, OutsideArray] = field(default_factory=dict[str, OutsideArray], repr=False)
    """those of a notebook's kernel by name"""
    shapes_of: str | None = None
    """the text of which `inside` tells the shapes: gradients come after them"""
    _kept: dict[tuple[str, int], _Kept] = field(default_factory=dict[tuple[str, int], _Kept])
    _parsed: ParsedStatements | None = None

    def __post_init__(self) -> None:
        self.scope = TextScope(self.file, "", ast.Module([], []))

    def update(self, text: str) -> list[Analysis]:
        """Analyses the new text. What does not parse is left out, and what depends on it not known."""
        with collector_paused():
            for _ in self.steps(text):
                pass
        return self.analyses

    def steps(self, text: str) -> Generator[None]:
        """`update`, with a pause after each statement that is parsed and each function.

        Closed before its end, it leaves the analyses of the last text, and keeps what it has found for the next one.
        """
        self.shapes_of = None
        yield from self._parse(text)
        assert self._parsed is not None
        self.text = text
        register_source(self.file, text)
        with collector_paused():
            self.modules.refresh()
            self.scope = TextScope(self.file, text, self._parsed.tree, self.modules, arrays=self.arrays)
        self.problems, self.gaps = self._parsed.problems, self._parsed.gaps
        yield
        lines = self._parsed.lines
        kept: dict[tuple[str, int], _Kept] = {}
        count: dict[str, int] = {}
        unchanged = Unchanged(self.scope)
        try:
            for definition in definitions(self.scope):
                number = count[definition.name] = count.get(definition.name, 0) + 1
                key = (definition.name, number)
                own = "\n".join(lines[definition.line - 1 : definition.tree.end_lineno])
                with collector_paused():
                    analysis = self._reuse(self._kept.get(key), own, definition, unchanged)
                    kept[key] = _Kept(own, analysis or self._analyse(definition))
                yield
        except BaseException:
            self._kept |= kept  # what has moved must not be moved again
            raise
        self._kept = kept
        trainings, calls = list["Training"](), list["PlainCall"]()
        yield from self._called(unchanged, trainings, calls)
        self.analyses = [k.analysis for k in kept.values()]
        self.objects = self._objects(trainings, calls)
        waiting = [each.found for each in (*trainings, *calls) if each.found is not None and each.found.waits]
        if waiting:
            self.inside = inside(self.scope, self.analyses, self._programs(trainings, calls), self.inside)
            self.shapes_of = text
            yield
        for called in waiting:
            called.derive()
            yield
        self.trainings, self.plain_calls = trainings, calls
        self.inside = inside(self.scope, self.analyses, self.programs, self.inside)
        self.shapes_of = text
        source = source_of(self.file, text)
        said = {(d.code, d.span) for a in self.analyses for d in a.diagnostics}
        of_calls = {(d.code, d.span): d for each in (*calls, *trainings) for d in each.findings(source)}
        of_calls = [d for key, d in of_calls.items() if key not in said and not self.in_gap(d.span)]
        outside = self._outside_of_programs([*self._unknown_names(), *self._misfits()])
        self.problems = [*self._parsed.problems, *self._given_up(), *outside, *of_calls]

    def _called(self, unchanged: Unchanged, trainings: list[Training], calls: list[PlainCall]) -> Generator[None]:
        """Finds the functions and modules that the file calls outside of programs."""
        from tessera.compiler.frontend.called.plain_calls import plain_calls  # slow: the evaluator, at a server's start
        from tessera.compiler.frontend.called.trainings import trainings as steps  # slow: as above

        made_alike = Unchanged(self.scope, making=True)
        for training in steps(self.scope, self.trainings, unchanged, made_alike) if "train" in self.text else ():
            trainings += [training] if training is not None else []
            yield
        for call in plain_calls(self.scope, self.plain_calls, unchanged, made_alike):
            calls += [call] if call is not None else []
            yield

    def _objects(self, trainings: Sequence[Training], calls: Sequence[PlainCall]) -> list[MadeObject]:
        """While a text does not parse, they are as they were: a constructor may lack the line that is being typed."""
        found = [
            MadeObject(call.statement, node.id, made.type)
            for call in (*trainings, *calls)
            for name, node in call.nodes.items()
            if isinstance(node, ast.Name) and (made := call.made.get(name)) and isinstance(made.type, Record)
        ]
        names = {m.name for m in self.objects}
        return [*self.objects, *(m for m in found if m.name not in names)] if self.syntax_errors else found

    @property
    def programs(self) -> list[CalledProgram]:
        """The programs whose calls tell of the functions that they call."""
        return self._programs(self.trainings, self.plain_calls)

    def _programs(self, trainings: Sequence[Training], calls: Sequence[PlainCall]) -> list[CalledProgram]:
        called = [p for each in (*trainings, *calls) if (p := each.program) is not None]
        return [*map(CalledProgram, self.analyses), *called]

    def _given_up(self) -> list[Diagnostic]:
        """Constants that would take too long to compute here; Python computes them when it runs."""
        if not GIVEN_UP:
            return []
        values: list[Any] = [getattr(s, "value", None) for s in self.scope.tree.body]
        source = source_of(self.file, self.text)
        return [
            Diagnostic("TS111", f"not known here: {GIVEN_UP[v]}", source.span(v), severity="note")
            for v in values if isinstance(v, ast.expr) and v in GIVEN_UP
        ]  # fmt: skip

    @property
    def syntax_errors(self) -> list[Diagnostic]:
        """Those of the problems for which the text is no Python."""
        return self._parsed.problems if self._parsed is not None else []

    def _unknown_names(self) -> list[Diagnostic]:
        """Those outside of functions and kernels; inside them the evaluator has found them."""
        from tessera.compiler.frontend.public_names import unknown_names  # slow: 4 ms of a server's start

        looked_at = {a.definition.tree.lineno for a in self.analyses}
        return unknown_names(self.scope, source_of(self.file, self.text), looked_at)

    def _misfits(self) -> list[Diagnostic]:
        """Calls whose arguments do not fit."""
        from tessera.compiler.frontend.called.settings import misfits  # slow: as above

        return [*misfits(self.scope, source_of(self.file, self.text))]

    def _outside_of_programs(self, found: list[Diagnostic]) -> list[Diagnostic]:
        """Those of the findings that no evaluator has made."""
        if not found:
            return []
        said = {(d.code, d.span) for a in self.analyses for d in a.diagnostics}
        inside = [(a.definition.tree.lineno, a.definition.tree.end_lineno or 0) for a in self.analyses]
        return [
            d for d in found
            if (d.code, d.span) not in said and not any(a <= d.span.line <= b for a, b in inside)
            and not self.in_gap(d.span)
        ]  # fmt: skip

    def _parse(self, text: str) -> Generator[None]:
        steps = parsing(text, self.file, self._parsed)
        while True:
            with collector_paused():
                try:
                    next(steps)
                except StopIteration as done:
                    self._parsed = done.value
                    return
            yield

    def _reuse(self, old: _Kept | None, text: str, definition: Definition, unchanged: Unchanged) -> Analysis | None:
        if old is None or old.text != text or old.analysis.definition.kind != definition.kind:
            return None
        if old.analysis.definition.options != definition.options:
            return None  # the decorators' keywords may be names of the module
        if any(d.code in _NAMES for d in old.analysis.diagnostics):
            return None  # the name may exist by now, or another one may be the one that was meant
        before = old.analysis.definition.scope  # in which all that it read was as the analysis has it
        same = partial(unchanged, before=before) if definition.scope is self.scope else None
        if changed(old.analysis, definition.scope, same):
            return None
        analysis = current(old.analysis, self.scope)
        return moved(analysis, definition) if analysis is not None else None

    def _analyse(self, definition: Definition) -> Analysis:
        """Where a part of the function does not parse, findings rest on what does. What is shown may also rest on
        what that part was before: it stays while the part is being typed."""
        tree = definition.tree
        body = first_line(tree.body[0]) if isinstance(tree, ast.FunctionDef) else tree.lineno
        whole = not any(a < body and b >= definition.line for a, b in self.gaps)
        found = _of_method(analyse(definition))
        if whole and not any(d.code == "TS101" for d in found.undecided):
            return found
        recalled = analyse(replace(definition, recalled=True))
        seen = {(e.span, e.kind) for e in recalled.expressions}
        both = [*recalled.expressions, *(e for e in found.expressions if (e.span, e.kind) not in seen)]
        return replace(
            found, op=None, diagnostics=found.diagnostics if whole else (), dims={**found.dims, **recalled.dims},
            expressions=[e for e in both if not self.in_gap(e.span)],
        )  # fmt: skip

    def in_gap(self, span: Span) -> bool:
        """Whether a place of the tree is not one of the text: it stands where something could not be read."""
        return any(a <= span.line <= b for a, b in self.gaps)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """All findings, each once: a mistake in a helper is found in each of its callers."""
        problems = ((d.function, d) for d in self.problems)
        return each_once([*problems, *((a.definition.name, d) for a in self.analyses for d in a.diagnostics)])


def analyse_file(source: str | Path, text: str | None = None) -> list[Analysis]:
    """Analyses every `@ts.function` and `@ts.kernel` of a file, given by its path (and its text, where that is newer).

    Raises CompileError (TS101) where the text does not parse, OSError where it cannot be read.
    """
    if text is None:
        text = read_text(source)
    found = FileAnalysis(str(source))
    analyses = found.update(text)
    if found.syntax_errors:
        raise CompileError(found.syntax_errors)
    return analyses


def read_text(path: str | Path) -> str:
    """A source file's text. Raises CompileError (TS101) where it is not text."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        message = f"{path} is not UTF-8 text (byte {data[e.start]:#04x} at offset {e.start})"
        raise CompileError(Diagnostic("TS101", message, replace(NOWHERE, file=str(path)))) from None


def _of_method(found: Analysis) -> Analysis:
    """A method is a program by itself only if it is an effect. What is said of its shapes holds; where something else
    is wrong, it may be one that Python runs."""
    if found.definition.owner is None or "effect" in found.definition.options:
        return found
    errors = [d for d in found.diagnostics if d.severity == "error"]
    sure = all(d.code[:3] in ("TS2", "TS3") for d in errors)
    shapes = tuple(d for d in errors if d.code.startswith("TS2"))  # a dtype that is not written is open
    return replace(found, op=None, diagnostics=shapes if sure else ())


# Which names of a module surely mean what they meant before an edit, told from its statements alone.
#
# A statement that the edit did not touch keeps its node. A name bound by the same node means the same if the
# names that its value is computed from do. Asking this costs a fraction of evaluating the names and comparing
# what they are.

_READ_NAMES: WeakKeyDictionary[ast.AST, set[str] | None] = WeakKeyDictionary()
"""of statements that have been asked about, the names that they read"""


class Unchanged:
    """Answers for the names of one scope, compared with each of the scopes that analyses were made in before."""

    def __init__(self, scope: TextScope, making: bool = False) -> None:
        """`making`: a class is the same where its objects are made alike, by constructors that no edit has touched."""
        self._scope, self._making = scope, making
        self._answers: dict[tuple[int, str], bool] = {}

    def __call__(self, name: str, before: Scope) -> bool:
        """Whether a name is surely the same; False also where that is merely not known."""
        if not isinstance(before, TextScope):
            return False
        key = (id(before), name)
        if key not in self._answers:
            seen = self._reached(name, before)
            if seen is None:
                self._answers[key] = False
            else:  # all are the same, those in a circle too
                self._answers.update(dict.fromkeys([(id(before), n) for n in seen], True))
        return self._answers[key]

    def _reached(self, name: str, before: TextScope) -> set[str] | None:
        """All names that a name's value is computed from; None where one of them is not the same."""
        seen, waiting = {name}, [name]
        while waiting:
            name = waiting.pop()
            answer = self._answers.get((id(before), name))
            read = self._read_by(name, before) if answer is None else set[str]()
            if answer is False or read is None:
                return None
            waiting += read - seen
            seen |= read
        return seen

    def _made_alike(self, now: ast.AST, was: ast.AST, before: TextScope) -> bool:
        """Whether two statements are one class whose constructors are the same, in a file where constructors decide all
        that is made."""
        if not self._making or before.ran_layers:
            return False
        if not isinstance(now, ast.ClassDef) or not isinstance(was, ast.ClassDef):
            return False
        return _for_making(now, self._scope) == _for_making(was, before)

    def _read_by(self, name: str, before: TextScope) -> set[str] | None:
        """The names that a name's value is computed from; None where it is bound otherwise than before."""
        nodes, was = self._scope.binders.get(name, ()), before.binders.get(name, ())
        if len(nodes) != len(was):
            return None
        if any(a is not b and not self._made_alike(a, b, before) for a, b in zip(nodes, was, strict=True)):
            return None
        if self._scope.arrays.get(name) != before.arrays.get(name):
            return None
        if not nodes:
            return None if self._scope.stars or before.stars else set()
        found: set[str] = set()
        for node in nodes:
            read = _READ_NAMES[node] if node in _READ_NAMES else _READ_NAMES.setdefault(node, _read(node))
            if read is None:
                return None
            found |= read
        return found


def _for_making(node: ast.ClassDef, scope: TextScope) -> tuple[list[str], list[str]]:
    """The text of a class without its methods that calls of its objects run, and the names of these methods."""
    own = source_of(scope.file, scope.text).lines
    lines = [*own[first_line(node) - 1 : node.end_lineno]]
    called = [s for s in node.body if isinstance(s, ast.FunctionDef) and s.name in CALLED]
    for method in reversed(called):
        start = first_line(node)
        del lines[first_line(method) - start : (method.end_lineno or method.lineno) - start + 1]
    return lines, [m.name for m in called]


def _read(node: ast.AST) -> set[str] | None:
    """The names that a statement's value is computed from. None: also from something else, say another file."""
    match node:
        case ast.Import(names=names):
            return set() if all(is_known(n.name) for n in names) else None
        case ast.ImportFrom(module=module, level=level):
            return set() if module is not None and not level and is_known(module) else None
        case (
            ast.Assign()
            | ast.AnnAssign()
            | ast.AugAssign()
            | ast.ClassDef()
            | ast.FunctionDef()
            | ast.For()
            | ast.With()
        ):
            return set(_free(node))
        case _:
            return None


def _free(node: ast.AST) -> Iterator[str]:
    """The names in a statement that are not those of the functions in it."""
    if isinstance(node, ast.FunctionDef):
        a = node.args
        own = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *(v for v in (a.vararg, a.kwarg) if v))}
        own |= assigned_names(node)
        for inner in (*node.decorator_list, a, *([node.returns] if node.returns is not None else [])):
            yield from _free(inner)
        for statement in node.body:
            yield from (n for n in _free(statement) if n not in own)
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for inner in ast.iter_child_nodes(node):
        yield from _free(inner)
