"""Which values lie in local memory because a thread has too few registers, found in the machine code.

A web of definitions and uses that passes through local memory is one value of the machine's. It is called by a name
only where the code proves it: one variable is written by every statement that computes the web and read by every
statement that uses it, more than one statement is involved, and it is no address. Everything else is said to be what it
is: a temporary of one statement, or of the compiler.

The line table does not tell statements apart that call the same function of the device library: an instruction may be
attributed to another of them (see `_Statements`). Where this leaves two or three variables, all are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.compiler.targets.base import SpilledValue, UnknownFlow
from tessera.compiler.targets.cuda.sass.flow import Place, SpillMove, Webs, in_loops, moved
from tessera.compiler.targets.cuda.sass.listing import SassInstruction

Line = tuple[str, int]
"""a file of the user's and a line; ("", 0): not known"""
_BY_REFERENCE = re.compile(r"\b(?:ts::(?:start_products|finish_products|accumulate|take_better)\b|\w+\.reach\()")
"""calls that write their first argument"""
MOST_CANDIDATES = 3
_BRINGS = re.compile(r"LD[GS]?$|SHFL|F2I|IMMA|ATOM")
_DOUBLE, _SINGLE = re.compile(r"D(ADD|MUL|FMA|MMA|MNMX)$"), re.compile(r"F(ADD|MUL|FMA|MNMX)$")
_WHOLE = re.compile(
    r"U?IMAD(?!\.MOV|\.U32$)|U?IADD|VIADD|U?LEA|U?LOP3|U?SHF|SHL|SHR|S2U?R|IABS|V?IMNMX|R2UR|P2R|POPC|FLO"
)
_OF_FLOATS = ("0x7fff", "0x8000", "0xffff0000", "0x10000")
"""masks and shifts of signs and of bf16"""
_Key = tuple[str, "tuple[int, ...] | str | None", Line]
"""kind, numbers of the values that it may be or why nothing is known, where it is computed"""
_CALL = re.compile(r"\bts::(?:hw::)?(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_ADDRESS = re.compile(r"\[[^\]]*\]")
_IN_BRACKETS = re.compile(r"\bR(\d+)(\.64)?")


@dataclass(slots=True)
class _Seen:
    bytes: set[int] = field(default_factory=set[int])
    """of local memory"""
    words: dict[tuple[int, Place], int] = field(default_factory=dict["tuple[int, Place]", int])
    """web -> how many bytes of it are moved"""
    stores: set[int] = field(default_factory=set[int])
    loads: set[int] = field(default_factory=set[int])


def spilled_values(
    kernel: str,
    code: Sequence[SassInstruction],
    source: Sequence[str],
    values: Sequence[Mapping[str, Any]],
    lines: Mapping[int, Line],
) -> list[SpilledValue]:
    """The values of one kernel, the largest first. `source`: the lines of the generated source; `values`: what its
    variables hold (`report.values`); `lines`: the user's line of a line of the source."""
    moves = {i: moved(one) for i, one in enumerate(code) if one.spill}
    try:
        webs = Webs(code)
    except UnknownFlow as why:
        everything = _Seen()
        for i, move in moves.items():
            _add(everything, code, i, move.bytes if move else ())
        said = _made(kernel, ("unknown", str(why), ("", 0)), everything, code, set(), lines, values)
        return [said] if moves else []
    repeated = in_loops(webs.after)
    statements = _Statements(source, values)
    seen: dict[_Key, _Seen] = {}
    blamed: dict[tuple[int, Place], _Key] = {}
    for i, move in moves.items():
        if move is None:
            _add(seen.setdefault(("unknown", "the place in local memory is computed", ("", 0)), _Seen()), code, i, ())
            continue
        for word, web in _webs(webs, code[i], i, move):
            if web is not None and web not in blamed:
                blamed[web] = _blame(webs, web, statements, lines)
            key = blamed[web] if web is not None else ("unknown", "nothing has been stored there", ("", 0))
            own = [b for b in move.bytes if b // 4 == word]
            found = seen.setdefault(key, _Seen())
            _add(found, code, i, own)
            if web is not None:
                found.words[web] = max(found.words.get(web, 0), len(own))
    made = [_made(kernel, key, found, code, repeated, lines, values) for key, found in seen.items()]
    return sorted(made, key=lambda s: (-s.bytes, s.line))


def _webs(webs: Webs, one: SassInstruction, i: int, move: SpillMove) -> list[tuple[int, tuple[int, Place] | None]]:
    """The web of each word that is moved."""
    slots = [(word, -1 - word) for _, word in move.words]
    if one.opcode == "STL":
        return [(word, webs.web((i, slot))) for word, slot in slots]
    return [(word, webs.at_use(i, slot)) for word, slot in slots]


def _add(seen: _Seen, code: Sequence[SassInstruction], i: int, where: Sequence[int]) -> None:
    seen.bytes.update(where)
    (seen.stores if code[i].opcode == "STL" else seen.loads).add(i)


def _blame(webs: Webs, web: tuple[int, Place], statements: _Statements, lines: Mapping[int, Line]) -> _Key:
    """(kind, number of the value, the user's line)"""
    code = webs.code
    made = [code[i] for i in webs.defined[web]]
    written = {one.line for one in made}
    read = {code[i].line for i, _ in webs.used[web]}
    found = [statements.written(n) for n in written] + [statements.read(n) for n in read]
    candidates = frozenset[int].intersection(*found) if found else frozenset[int]()
    one_statement = statements.may_be_one(written | read)
    address = any(place in _addresses(code[i]) for i, place in webs.used[web])
    candidates = frozenset(n for n in candidates if all(_may_make(one, statements.kind(n)) for one in made))
    if 0 < len(candidates) <= MOST_CANDIDATES and not one_statement and not address:
        return "value", tuple(sorted(candidates)), ("", 0)
    at = min((lines[n] for n in written or read if n in lines), default=("", 0))
    return "temporary" if one_statement and at[1] else "compiler", None, at


def _may_make(one: SassInstruction, kind: str) -> bool:
    """Whether an instruction may compute an element of this kind. Arithmetic of whole numbers is that of addresses and
    counters too, so that elements that are whole numbers are recognised where they are loaded, or come from another
    thread."""
    if kind == "whole":
        return bool(_BRINGS.match(one.opcode))
    if (_DOUBLE if kind == "double" else _SINGLE).match(one.opcode):
        return True
    if (_SINGLE if kind == "double" else _DOUBLE).match(one.opcode):
        return False
    return not _WHOLE.match(one.operation) or any(mask in one.operands for mask in _OF_FLOATS)


def _addresses(one: SassInstruction) -> set[int]:
    """The registers in brackets, and the second half of those that hold 64 bits."""
    found = [(int(n), wide) for text in _ADDRESS.findall(one.operands) for n, wide in _IN_BRACKETS.findall(text)]
    return {n + k for n, wide in found for k in range(2 if wide else 1)}


def _made(
    kernel: str,
    key: _Key,
    seen: _Seen,
    code: Sequence[SassInstruction],
    repeated: set[int],
    lines: Mapping[int, Line],
    values: Sequence[Mapping[str, Any]],
) -> SpilledValue:
    kind, which, at = key
    name, what, of = "", "", 0
    if isinstance(which, tuple):
        may = [values[n] for n in which]
        name = " or ".join(str(v["name"]) or f"a result ({v['variables'][0]} in the source)" for v in may)
        what = " or ".join(dict.fromkeys(str(v["what"]) for v in may))
        at, of = (str(may[0]["file"]), int(may[0]["line"])), max(int(v["bytes"]) for v in may)
    elif which is not None:
        what = which
    moves = seen.stores | seen.loads
    places = sorted({lines[code[i].line][1] for i in moves if code[i].line in lines})
    size = min(len(seen.bytes), sum(seen.words.values()) or len(seen.bytes))
    return SpilledValue(
        kernel, kind, name, what, *at, size, of, len(seen.stores), len(seen.loads), len(moves & repeated),
        tuple(places),
    )  # fmt: skip


def _calls(text: str) -> set[str]:
    """The functions of the device library that a statement calls: names with a "(" behind their template arguments."""
    found: set[str] = set()
    for name in _CALL.finditer(text):
        at, depth = name.end(), 0
        while at < len(text) and (depth or text[at] == "<"):
            depth += {"<": 1, ">": -1}.get(text[at], 0)
            at += 1
        if text[at : at + 1] == "(":
            found.add(name[1])
    return found


class _Statements:
    """Which values the statement of a line of the source may write and read: one statement stands on a line.

    The compiler's line table resolves the place that a function of the library is inlined into by the function alone,
    so that an instruction of `ts::load` may stand under the line of another `ts::load`. What a line may write is
    therefore what any line with one of its calls writes.
    """

    def __init__(self, source: Sequence[str], values: Sequence[Mapping[str, Any]]) -> None:
        self._source = source
        self._values = values
        self._numbers = {name: n for n, v in enumerate(values) for name in v["variables"]}
        self._known: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self._calling: dict[str, list[int]] = {}
        for line, text in enumerate(source, 1):
            if not text.lstrip().startswith(("//", "#")):
                for called in _calls(text):
                    self._calling.setdefault(called, []).append(line)

    def written(self, line: int) -> frozenset[int]:
        return frozenset(n for like in self._alike(line) for n in self._of(like)[0])

    def read(self, line: int) -> frozenset[int]:
        return frozenset(n for like in self._alike(line) for n in self._of(like)[1])

    def kind(self, number: int) -> str:
        return str(self._values[number]["kind"])

    def may_be_one(self, lines: set[int]) -> bool:
        """Whether instructions under these lines may all belong to one statement."""
        return len(lines) < 2 or bool(set[int].intersection(*({line, *self._alike(line)} for line in lines)))

    def _alike(self, line: int) -> Iterable[int]:
        calls = _calls(self._text(line))
        return {line}.union(*(self._calling[called] for called in calls if called in self._calling))

    def _text(self, line: int) -> str:
        return self._source[line - 1] if 0 < line <= len(self._source) else ""

    def _of(self, line: int) -> tuple[frozenset[int], frozenset[int]]:
        if line not in self._known:
            text = self._text(line)
            left, assigns, right = text.partition(" = ")
            if not assigns:
                left, right = ("", text)
            named = [self._numbers[w] for w in _WORD.findall(right) if w in self._numbers]
            target = [self._numbers[w] for w in _WORD.findall(left)[-1:] if w in self._numbers]
            if not assigns and named and _BY_REFERENCE.search(text):
                target = named[:1]
            self._known[line] = frozenset(target), frozenset(named)
        return self._known[line]
