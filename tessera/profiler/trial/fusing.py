"""Calls that stand one after the other, as one function: the refactoring of editors, run beside what it replaces."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.machines import HOST
from tessera.editor.refactor import Selection, fuse_launches
from tessera.errors import Fix, register_source
from tessera.language.decorators import Decorated
from tessera.profiler.recording import Recording
from tessera.profiler.trial.callers import namespace_of
from tessera.profiler.trial.calls import Again, NotTried, call_of
from tessera.profiler.trial.definitions import definitions_above
from tessera.profiler.trial.made import HintTrial, MadeChange, compared, made_up
from tessera.profiler.trial.paired import timed
from tessera.profiler.trial.texts import TextFile, label_of, lines_kept, run_in
from tessera.runtime.events import LaunchEvent


@dataclass(frozen=True, slots=True)
class _Preferences:
    target: str
    dims: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Fused:
    """Both ways, as calls without arguments, and the file's text without and with the change."""

    before: Callable[[], Any]
    after: Callable[[], Any]
    file: str
    old: str
    new: str
    notes: tuple[str, ...]


def joined(trial: HintTrial) -> MadeChange:
    """Raises NotTried."""
    launch = trial.launches[-1]
    if launch.device.partition(":")[0] != HOST:
        raise NotTried("calls are joined and timed on the CPU alone so far")
    one = fused(trial.recording, trial.launches, launch.target)
    results = compared(one.before(), one.after())
    change = "Join the calls into one function"
    return MadeChange(timed(one.before), timed(one.after), one.file, one.old, one.new, results, one.notes, change)


def fused(recording: Recording, launches: Sequence[LaunchEvent], target: str) -> Fused:
    """The calls of these launches in one function. Raises NotTried."""
    files = {str(launch.attributes.get("call_file", "")) for launch in launches}
    lines = [int(launch.attributes.get("call_line", 0)) for launch in launches]
    file = files.pop()
    text = "".join(linecache.getlines(file))
    if files or not all(lines) or not text:
        raise NotTried("the calls do not stand in one text that can be read")
    calls = [call_of(recording, launch) for launch in launches]
    space = namespace_of(file, [call.program for call in calls])
    with lines_kept(file):
        document = TextFile(file, text)
        statements = _statements(document, min(lines), max(lines))
        if above := definitions_above(document.scope.tree, statements, space):  # of other cells, or of the session
            count, text = above.count("\n"), above + text
            document = TextFile(file, text)
            statements = _statements(document, min(lines) + count, max(lines) + count)
        first, last = document.source.span(statements[0]), document.source.span(statements[-1])
        selection = Selection((first.line, first.col), (last.end_line, last.end_col))
        offer = next(fuse_launches.offers(document, selection, _Preferences(target)), None)
    if offer is None or offer.disabled:
        raise NotTried(offer.disabled if offer is not None else "the lines of the calls hold no two calls to join")
    new = apply(text, Fix("", offer.edits))
    label = label_of(file, new)
    function = _new_function(document, TextFile(label, new))
    names = [a.arg for a in function.args.args]
    values, gone = _values(document, statements, calls, space)
    if missing := [n for n in names if n not in values and n not in space]:
        raise NotTried(f"the value of {missing[0]} is not known: it was made between the calls")
    given = {n: values.get(n, space.get(n)) for n in names}
    register_source(label, new)
    made = dict(space)
    run_in(ast.Module([function], []), label, made)
    after = made[function.name]
    if not isinstance(after, Decorated):
        raise NotTried("the change makes no function")
    before = _plain(statements, function, names, space)
    return Fused(
        lambda: before(**given), lambda: after(**given), file, text, new, made_up([n for n in names if n in gone])
    )


def _statements(document: TextFile, first: int, last: int) -> list[ast.stmt]:
    """The statements of one block, from the one on line `first` to the one on line `last`. Raises NotTried."""
    found: list[ast.stmt] = []

    def within(body: Sequence[ast.stmt]) -> None:
        nonlocal found
        here = [s for s in body if s.lineno <= last and first <= (s.end_lineno or s.lineno)]
        if here and here[0].lineno <= first and last <= (here[-1].end_lineno or 0):
            found = here
        for s in here:
            for block in ("body", "orelse", "finalbody"):
                within(getattr(s, block, []))

    within(document.scope.tree.body)
    if not found or any(isinstance(s, (ast.FunctionDef, ast.ClassDef)) for s in found):
        raise NotTried("the calls do not stand in one block, one after the other")
    return found


def _new_function(old: TextFile, new: TextFile) -> ast.FunctionDef:
    known = {n.name for n in old.scope.tree.body if isinstance(n, ast.FunctionDef)}
    return next(n for n in new.scope.tree.body if isinstance(n, ast.FunctionDef) and n.name not in known)


def _values(
    document: TextFile, statements: Sequence[ast.stmt], calls: Sequence[Again], space: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What names held that were given to the calls, by the arguments that these got."""
    values, gone = dict[str, Any](), list[str]()
    programs = {id(call.program): call for call in calls}
    for node in (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Call)):
        program = _read(node.func, space)
        call = programs.get(id(program))
        if call is None:
            continue
        pairs = [*zip(call.arguments, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
        for parameter, value in pairs:
            if isinstance(value, ast.Name) and parameter in call.arguments and value.id not in values:
                values[value.id] = call.arguments[parameter]
                gone += [value.id] * (parameter in call.made_up)
    return values, tuple(gone)


def _read(node: ast.expr, space: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return space.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_read(node.value, space), node.attr, None)
    return None


def _plain(
    statements: Sequence[ast.stmt], function: ast.FunctionDef, names: Sequence[str], space: Mapping[str, Any]
) -> Callable[..., Any]:
    """The statements as a Python function that returns what the new one returns."""
    body = list(statements)
    if not isinstance(body[-1], ast.Return):
        last = function.body[-1]
        assert isinstance(last, ast.Return)
        if isinstance(body[-1], ast.Expr):
            body[-1] = ast.Return(body[-1].value)
        else:
            body.append(ast.Return(last.value))
    arguments = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    made = ast.FunctionDef("before", arguments, body, [])
    namespace = dict(space)
    run_in(ast.fix_missing_locations(ast.Module([made], [])), "<before>", namespace)
    return namespace["before"]
