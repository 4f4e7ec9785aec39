"""The line of the user's program that called Tessera."""

from __future__ import annotations

import ast
import linecache
import opcode
import os
import sys
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, TypeAlias

from tessera.errors import NOWHERE, Span, source_line
from tessera.tracebacks import OWN

_KINDS = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")  # such as the command tessera


@cache
def libraries() -> tuple[str, ...]:
    """The folders of installed code, and of Tessera's other packages in a checkout, which is not the program's."""
    import sysconfig  # slow: only profiles and errors ask

    checkout = os.path.dirname(os.path.dirname(OWN))
    packages = [
        os.path.join(checkout, *names) for names in (("jupyter_ext", "tessera_jupyter"), ("lsp", "tessera_lsp"))
    ]
    installed = [path for name in _KINDS if (path := sysconfig.get_path(name))]
    return tuple({path + os.sep for path in (*installed, *packages)})


def _caller() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    return frame


def _is_own(frame: FrameType) -> bool:
    file = frame.f_code.co_filename  # that of a dataclass's constructor is <string>
    return file.startswith(OWN) or (file == "<string>" and frame.f_globals.get("__name__", "").startswith("tessera."))


def callsite() -> tuple[str, int]:
    """(file, line) of the innermost frame outside Tessera; ("", 0) where there is none."""
    frame = _caller()
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)


def call_stack(most: int = 8) -> tuple[tuple[str, int, str], ...]:
    """(file, line, function) of the program's frames, the innermost first: without Tessera and installed libraries."""
    found: list[tuple[str, int, str]] = []
    frame = _caller()
    while frame is not None and len(found) < most:
        code = frame.f_code
        if is_program(code.co_filename):
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found)


def is_program(file: str) -> bool:
    """Whether code of this file is the program's: neither Tessera's nor that of an installed library."""
    return not file.startswith((OWN, *libraries(), "<frozen"))


def _called_here(frame: FrameType) -> bool:
    """Whether a frame outside Tessera is that of a library which no program has called, but Tessera."""
    outer: FrameType | None = frame
    while outer is not None and not _is_own(outer):
        if is_program(outer.f_code.co_filename):
            return False
        outer = outer.f_back
    return True


def call_span() -> Span:
    """The text of the call being made by the innermost frame outside Tessera, for carets; of what NumPy asks of an
    array, the call of NumPy. NOWHERE where a library calls that Tessera has called, as that of the command `tessera`
    does."""
    frame = inner = _caller()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "numpy":
        frame = frame.f_back
    frame = frame or inner
    if frame is not None and _called_here(frame):
        return NOWHERE
    return span_at(None if frame is None else (frame.f_code, frame.f_lasti))


def names_unpacked() -> int | None:
    """To how many names the innermost frame outside Tessera now assigns the parts of a value; None where it does not,
    or to the rest of them as well."""
    place = call_place()
    found = place is not None and place[0].co_code[place[1]] == _UNPACK
    return place[0].co_code[place[1] + 1] if place is not None and found else None


def callee_unpacked() -> Any:
    """What the innermost frame outside Tessera has called for the value that it unpacks now; None where its text does
    not say."""
    frame = _caller()
    func = None if frame is None else _callee_at(frame.f_code, frame.f_lasti)
    if frame is None or func is None:
        return None
    try:
        return eval(func, frame.f_globals, frame.f_locals)
    except Exception:  # the call has changed what the text names
        return None


@cache
def _callee_at(code: CodeType, at: int) -> CodeType | None:
    """The code of `a.b[0]` in `x, y = a.b[0](...)`, whose names get their values at an instruction."""
    line, _, start, _ = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    text = "".join(linecache.getlines(code.co_filename))
    try:
        assigned = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign)]
    except SyntaxError:  # a cell with magics
        return None
    for node in assigned:
        if any((t.lineno, t.col_offset) == (line, start) for t in node.targets) and isinstance(node.value, ast.Call):
            func = node.value.func
            again = any(isinstance(n, (ast.Call, ast.Await, ast.NamedExpr)) for n in ast.walk(func))
            return None if again else compile(ast.Expression(func), code.co_filename, "eval")
    return None


_UNPACK = opcode.opmap["UNPACK_SEQUENCE"]

Place: TypeAlias = "tuple[CodeType, int] | None"
"""Where a frame stands: its code and the instruction."""


def call_place() -> Place:
    """The call being made, to be looked up later: `call_span` takes longer."""
    frame = _caller()
    return None if frame is None else (frame.f_code, frame.f_lasti)


def span_at(place: Place) -> Span:
    """The text of the call at a place."""
    if place is None:
        return NOWHERE
    code, file, index = place[0], place[0].co_filename, place[1] // 2
    line, end_line, start, end = next(islice(code.co_positions(), index, None), (None,) * 4)
    if line is None or end_line is None or start is None or end is None:
        line = line or code.co_firstlineno
        return Span(file, line, 1, line, 1)
    return Span(file, line, _column(file, line, start), end_line, _column(file, end_line, end))


def _column(file: str, line: int, offset: int) -> int:
    """Code objects count bytes of UTF-8 from 0, spans characters from 1."""
    text = source_line(file, line)
    return offset + 1 if text is None else len(text.encode()[:offset].decode(errors="replace")) + 1
