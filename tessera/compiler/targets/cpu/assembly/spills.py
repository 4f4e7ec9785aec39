"""Which values lie on the stack because there are too few vector registers, as LLVM tells it.

Stores to a place on the stack and the loads that may find what they stored are one web. LLVM says of most moves which
vectors of the IR they move; a web has the name that the author gave to the tile whose elements these are. A web
without names is a temporary of the line that stores it, or of the compiler.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.compiler.targets.base import SpilledValue, UnknownFlow
from tessera.compiler.targets.cpu.assembly.listing import AsmInstruction, place_of
from tessera.compiler.targets.cpu.assembly.source import Line, SourceText

_Key = tuple[str, str, str, Line]
"""kind, name, what it is, and the user's line (("", 0): not known)"""
Bytes = tuple[str, int, int]
"""of the stack: the register that addresses start from, the first one, and the one behind the last"""
_TARGET = re.compile(r"(\.?LBB\d+_\d+)\b")
_ENDS = re.compile(r"(jmp|ret|b|br|ud2|brk)\w?\b")
_COMPUTED = re.compile(r"(jmpq?\s+\*|br\s+x)")


@dataclass(slots=True)
class _Web:
    moves: list[int] = field(default_factory=list[int])
    holds: set[str] = field(default_factory=set[str])
    places: set[Bytes] = field(default_factory=set[Bytes])


def spilled_values(
    kernel: str, code: Sequence[AsmInstruction], source: SourceText, function: str
) -> list[SpilledValue]:
    """The values of one function, which belongs to a kernel, the largest first."""
    found: dict[_Key, list[_Web]] = defaultdict(list)
    try:
        webs = _webs(code)
    except UnknownFlow as why:
        whole = _Web([i for i, one in enumerate(code) if one.spill and one.of_vector])
        found["unknown", "", str(why), ("", 0)] = [whole] if whole.moves else []
        webs = []
    for web in webs:
        found[_blame(web, code, source, function)].append(web)
    around = source.loops_around(function)
    made = [_made(kernel, key, some, code, source, around) for key, some in found.items() if some]
    return sorted(made, key=lambda s: (-s.bytes, s.line))


def _blame(web: _Web, code: Sequence[AsmInstruction], source: SourceText, function: str) -> _Key:
    values, defined = source.values[function], source.defined[function]
    named = {v["name"]: v for x in sorted(web.holds) if (v := values.get(x)) is not None}
    if named:
        first = min(named.values(), key=lambda v: (v["line"], v["name"]))
        what = dict.fromkeys(v["what"] for v in named.values())
        return "value", " or ".join(sorted(named)), " or ".join(what), (first["file"], first["line"])
    stores = [i for i in web.moves if code[i].spill == "Spill"]
    at = {defined[x] for x in web.holds if x in defined} or {
        source.lines[code[i].line] for i in stores or web.moves if code[i].line in source.lines
    }
    return ("temporary" if len(at) == 1 else "compiler"), "", "", min(at, default=("", 0))


def _made(
    kernel: str, key: _Key, webs: Sequence[_Web], code: Sequence[AsmInstruction], source: SourceText, around: int
) -> SpilledValue:
    """`around`: how many loops go over programs."""
    kind, name, what, at = key
    moves = sorted({i for web in webs for i in web.moves})
    stores = [i for i in moves if code[i].spill == "Spill"]
    places = {place for web in webs for place in web.places}
    standing = sorted({source.lines[code[i].line][1] for i in moves if code[i].line in source.lines})
    return SpilledValue(
        kernel, kind, name, what, *at, sum(end - first for _, first, end in places), 0, len(stores),
        len(moves) - len(stores), sum(code[i].depth > around for i in moves), tuple(standing), "on the stack",
    )  # fmt: skip


def _webs(code: Sequence[AsmInstruction]) -> list[_Web]:
    """Stores and loads of vectors that belong together. Raises UnknownFlow."""
    reached = _reaching(code)
    parent = {i: i for i, one in enumerate(code) if one.spill}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i], i = parent[parent[i]], parent[i]
        return i

    for load, stores in reached.items():
        for store in stores:
            parent[root(store)] = root(load)
    out: dict[int, _Web] = {}
    for i in parent:
        web = out.setdefault(root(i), _Web())
        web.moves.append(i)
        web.holds.update(code[i].holds)
        if (at := _bytes(code[i])) is not None and code[i].spill == "Spill":
            web.places.add(at)
    return [web for web in out.values() if any(code[i].of_vector for i in web.moves)]


def _reaching(code: Sequence[AsmInstruction]) -> dict[int, set[int]]:
    """For each load from the stack the stores that it may find."""
    after = _successors(code)
    known: dict[int, dict[Bytes, frozenset[int]]] = {i: {} for i in after}
    """before each instruction, the stores whose bytes lie at a place"""
    out: dict[int, set[int]] = defaultdict(set)
    work = list(after)[::-1]
    while work:
        i = work.pop()
        state, at = known[i], _bytes(code[i])
        if code[i].spill == "Spill" and at is not None:
            state = {place: stores for place, stores in state.items() if not _overlap(place, at)} | {at: frozenset({i})}
        elif code[i].spill == "Reload" and at is not None:
            out[i].update(s for place, stores in state.items() if _overlap(place, at) for s in stores)
        for following in after[i]:
            there = known[following]
            grown = {place: stores for place, stores in state.items() if not stores <= there.get(place, frozenset())}
            if grown:
                known[following] = there | {p: s | there.get(p, frozenset()) for p, s in grown.items()}
                work.append(following)
    return out


def _successors(code: Sequence[AsmInstruction]) -> dict[int, list[int]]:
    """For each spill, each jump and each place that is jumped to, those that may be the next of them. Raises
    UnknownFlow where a jump's target is computed."""
    labels = {label: i for i, one in enumerate(code) for label in one.labels}
    jumps = {i: found[1] for i, one in enumerate(code) if (found := _TARGET.search(one.operands))}
    ends = {i for i, one in enumerate(code) if _ENDS.fullmatch(one.operation)}
    if computed := next((one.text for one in code if _COMPUTED.match(one.text)), ""):
        raise UnknownFlow(f"it jumps to a computed place ({computed})")
    kept = [i for i, one in enumerate(code) if one.labels or one.spill or i in jumps or i in ends]
    out: dict[int, list[int]] = {}
    for i, following in zip(kept, [*kept[1:], -1], strict=True):
        there = [labels[jumps[i]]] if i in jumps and jumps[i] in labels else []
        out[i] = there if i in ends or following < 0 else [*there, following]
    return out


def _bytes(one: AsmInstruction) -> Bytes | None:
    """The bytes of the stack that a spill moves."""
    place = place_of(one.text) if one.spill else None
    return None if place is None else (place[0], place[1], place[1] + one.bytes)


def _overlap(a: Bytes, b: Bytes) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]
