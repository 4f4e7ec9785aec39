"""Heads of compound statements whose suites do not parse, and what is known of a head that does not parse itself."""

from __future__ import annotations

import ast
import copy
import re
from typing import Any

from tessera.compiler.frontend.broken import Gap
from tessera.compiler.frontend.fragments import Fragments
from tessera.compiler.frontend.trees import clone, placed, suites
from tessera.errors import Diagnostic

_TARGET = re.compile(r"\s*(?:async\s+)?for\s+(.+?)\s+in\b")
_CLASS = re.compile(r"\s*class\s+([^\W\d]\w*)")
_STRAY = re.compile(r"^([ \t\f]*)[\"'(\[{)\]}]")
_KINDS = {"if": ast.If, "elif": ast.If, "for": ast.For, "while": ast.While, "with": ast.With}


def read_head(f: Fragments, start: int, end: int, stop: int, word: str, first: bool) -> Any:
    """The statement that the head in lines `start` to `end` begins, without its suite, which ends at `stop`.

    None for `else` and `finally`; Broken if nothing can be made of it. `first`: it is no clause of another statement.
    """
    lines = f.lines.between(start, end)
    space = f.lines.space(end - 1)
    inner = f"{space}        pass"
    if word in ("else", "finally", "except") and not first:
        opened = "if 1: pass" if word == "else" else "try: pass"
        found, problem = f.parsed(start, [space + opened, *lines, inner], 1)
        made: Any = found[0] if found is not None else None
        if made is None:
            f.gap(start, end, problem)
        if word != "except":
            return None
        handler = made.handlers[0] if made is not None else ast.ExceptHandler(None, None, [])
        handler.body = []
        return handler if made is not None else f.place(handler, start, end)
    if word == "elif" and not first:
        lines = [space + lines[0].lstrip().replace("elif", "  if", 1), *lines[1:]]
    tail = [f"{space}finally: pass"] if word == "try" else []
    found, problem = f.parsed(start, [*lines, inner, *tail])
    if found is None or len(found) != 1 or not hasattr(found[0], "body"):
        return _with_suite(f, start, end, stop) or _lost(f, start, end, stop, word, problem)
    made = found[0]
    made.body = []
    if f.lines.code(end, stop) == stop:  # a head without a body
        f.problems += [d for d in (f.parsed(start, lines)[1],) if d is not None]
    if word == "try":
        made.finalbody = []
    return made


def _with_suite(f: Fragments, start: int, end: int, stop: int) -> Any:
    """`if x: y = 1` with more lines below it, that are indented as if they were its suite."""
    found, _ = f.parsed(start, f.lines.between(start, end))
    if found is None or len(found) != 1 or not suites(found[0]):
        return None
    following = f.lines.code(end, stop)
    if following < stop:
        f.report(following)
    return found[0]


def _lost(f: Fragments, start: int, end: int, stop: int, word: str, problem: Diagnostic | None) -> Any:
    """A head that does not parse: as it was, else as little as can be said about it."""
    was = next((s for s in f.was(start, end) if suites(s)), None)
    kind = _KINDS.get(word)
    target = _TARGET.match(f.lines[start])
    made: Any
    decorated = _undecorated(f, start, end) if isinstance(was, (ast.FunctionDef, ast.ClassDef)) else None
    plain = _without_stray(f, start, end)
    if plain is not None:
        made, end, astray = plain
        if astray is not None:
            f.report(astray)
            problem = None
    elif decorated is not None:
        made, end = decorated
        made.decorator_list = copy.copy(getattr(was, "decorator_list", []))
    elif was is not None and (kind is None or isinstance(was, kind)):
        made = copy.copy(was)
        _blank(made)
        made = clone(made)
        for node in placed(made):
            if node.end_lineno > end:  # it would seem to stand in lines that are still there
                node.lineno = node.end_lineno = end
    elif kind is ast.For and target is not None:
        made = ast.For(_expression(f, target[1], start), Gap(), [], [], None)
    elif kind is ast.With:
        made = ast.With([ast.withitem(Gap(), None)], [], None)
    elif kind is not None or (word == "try" and start):
        made = ast.If(Gap(), [], [])
    elif (named := _CLASS.match(f.lines[start])) is not None:
        made = ast.ClassDef(named[1], [Gap()], [], [], [])
    else:
        return f.broken(start, stop, problem)
    f.gap(start, end, problem)
    for node in ast.walk(made):
        if not hasattr(node, "lineno") and isinstance(node, (ast.expr, ast.stmt)):
            f.place(node, start, end)
    return f.place(made, start, stop)


def _undecorated(f: Fragments, start: int, end: int) -> tuple[Any, int] | None:
    """The definition below broken decorators, if that is not broken as well, and where it begins."""
    at = next((k for k in range(start, end) if not f.lines.decorates(k)), end)
    if at in (start, end):
        return None
    found, _ = f.parsed(at, [*f.lines.between(at, end), f"{f.lines.space(at)}        pass"])
    made: Any = found[0] if found else None
    if not isinstance(made, (ast.FunctionDef, ast.ClassDef)):
        return None
    made.body = []
    return made, at


def _without_stray(f: Fragments, start: int, end: int) -> tuple[Any, int, int | None] | None:
    """The head without brackets or quotes that stand before its first word, or that of a decorator or `def`, and with
    decorators indented like it; the line after the last of those; and the first line with no other mistake than that
    it is indented too far."""
    space = next((f.lines.space(k) for k in range(start, end) if not f.lines.decorates(k)), "")
    stray = [k for k in range(start, end) if f.lines.word(k) and _STRAY.match(f.lines[k])]
    further = [k for k in range(start, end) if f.lines.decorates(k) and len(f.lines.space(k)) > len(space)]
    plain = [_STRAY.sub(r"\1", f.lines[k]) if k in stray else f.lines[k] for k in range(start, end)]
    for k in further:
        plain[k - start] = space + plain[k - start].lstrip()
    moved = sorted({*stray, *further})
    found = f.parsed(start, [*plain, f"{f.lines.space(end - 1)}        pass"])[0] if moved else None
    if found is None or len(found) != 1 or not suites(found[0]):
        return None
    made: Any = found[0]
    made.body = []
    return made, moved[-1] + 1, None if stray else further[0]


def _expression(f: Fragments, text: str, line: int) -> ast.expr:
    found, _ = f.parsed(line, [f"({text}) = 0"])
    made: Any = found[0] if found else None
    return made.targets[0] if isinstance(made, ast.Assign) else ast.Name("_", ast.Store())


def _blank(made: Any) -> None:
    """Of a head that is no longer there, what it computes is known only to who asks how it was."""
    for name in ("test", "iter"):
        inner = getattr(made, name, None)
        if inner is not None:
            setattr(made, name, inner if isinstance(inner, Gap) else ast.copy_location(Gap(inner), inner))
    if isinstance(made, ast.With):
        made.items = [
            ast.withitem(ast.copy_location(Gap(w.context_expr), w.context_expr), w.optional_vars) for w in made.items
        ]
    for name in ("body", "orelse", "finalbody", "handlers"):
        if hasattr(made, name):
            setattr(made, name, [])
