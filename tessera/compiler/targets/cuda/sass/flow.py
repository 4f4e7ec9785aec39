"""Which definitions reach which uses, in registers and in the places of spilled ones.

A web is one value of the machine's: definitions and uses that belong together because each definition reaches one of
the uses. Copies, moves to memory and back, and an accumulator that a product adds to, join webs: the value is the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tessera.compiler.targets.base import UnknownFlow
from tessera.compiler.targets.cuda.sass.listing import SassInstruction
from tessera.immutable import immutable

Place = int
"""A register's number, or -1 - n for the n-th word of local memory."""

_TARGET = re.compile(r"`\(([\w.$]+)\)")
_COMPUTED = frozenset({"BRX", "BRXU", "JMX", "JMXU", "JMP", "CALL.ABS"})
_REGISTER = re.compile(r"\bR(\d+|Z)\b")
_LOCAL = re.compile(r"\[R1(?:\+(0x[0-9a-f]+))?\]")
_COPIES = re.compile(r"MOV(\.64)?$|IMAD\.MOV(\.U32)?$")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@immutable
class SpillMove:
    """A move between registers and local memory: word by word (register or None for zero, word), and its bytes."""

    words: tuple[tuple[int | None, int], ...]
    bytes: tuple[int, ...]


def moved(one: SassInstruction) -> SpillMove | None:
    """What a spill moves; None where the place is not a fixed one."""
    at = _LOCAL.search(one.operands)
    if at is None:
        return None
    size = next((_WIDTHS[part] for part in one.operation.split(".") if part in _WIDTHS), 4)
    first = int(at[1] or "0", 16)
    data = _REGISTER.findall(_LOCAL.sub("", one.operands))
    if not data:
        return None
    register = None if data[0] == "Z" else int(data[0])
    words = range(first // 4, (first + max(size, 4)) // 4)
    return SpillMove(
        tuple((None if register is None else register + i, word) for i, word in enumerate(words)),
        tuple(range(first, first + size)),
    )


def successors(code: Sequence[SassInstruction]) -> list[list[int]]:
    """For each instruction those that may follow it. Raises UnknownFlow where a jump's target is computed."""
    labels = {label: i for i, one in enumerate(code) for label in one.labels}
    behind_calls = [i + 1 for i, one in enumerate(code) if one.opcode == "CALL" and i + 1 < len(code)]
    joins: dict[str, list[int]] = defaultdict(list)
    for one in code:
        if one.opcode == "BSSY" and (target := _TARGET.search(one.text)) and target[1] in labels:
            joins[one.operands.partition(",")[0]].append(labels[target[1]])
    out: list[list[int]] = []
    for i, one in enumerate(code):
        target = _TARGET.search(one.text)
        if one.opcode in _COMPUTED or one.operation.startswith("CALL.ABS"):
            raise UnknownFlow(f"it jumps to a computed place ({one.operation})")
        found: list[int] = []
        if target is not None and one.opcode != "BSSY":
            if target[1] not in labels:
                raise UnknownFlow(f"it jumps to {target[1]}, outside of the kernel")
            found.append(labels[target[1]])
        if one.opcode == "BSYNC":
            found += joins[one.operands]
        ends = one.opcode in ("EXIT", "RET") or (one.operation == "BRA" and one.operands.startswith("`"))
        if one.opcode == "RET":
            found += behind_calls
        ends = ends or one.opcode == "CALL"
        if (not ends or one.predicated) and i + 1 < len(code):
            found.append(i + 1)
        out.append(found)
    return out


def in_loops(after: Sequence[Sequence[int]]) -> set[int]:
    """The instructions that may run again after themselves: Tarjan's strongly connected components."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    out: set[int] = set()
    for root in range(len(after)):
        if root in order:
            continue
        work: list[tuple[int, Iterator[int]]] = []

        def enter(n: int, work: list[tuple[int, Iterator[int]]] = work) -> None:
            order[n] = low[n] = len(order)
            stack.append(n)
            on.add(n)
            work.append((n, iter(after[n])))

        enter(root)
        while work:
            n, rest = work[-1]
            for following in rest:
                if following not in order:
                    enter(following)
                    break
                if following in on:
                    low[n] = min(low[n], order[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[n])
                if low[n] == order[n]:
                    component: list[int] = []
                    while not component or component[-1] != n:
                        component.append(stack.pop())
                    on.difference_update(component)
                    if len(component) > 1 or n in after[n]:
                        out.update(component)
    return out


@immutable
class _Block:
    first: int
    end: int
    before: tuple[int, ...]


class Webs:
    """The webs of a kernel. A definition is (instruction, place). `defined` gives the instructions that compute a web,
    `used` those that use it and where they find it; copies, moves and constants are neither."""

    def __init__(self, code: Sequence[SassInstruction]) -> None:
        self.code = code
        self.after = successors(code)
        self._blocks, self._block_of = _blocks(self.after)
        self._places: dict[tuple[int, Place], list[int]] = defaultdict(list)
        """(block, place) -> the instructions there that write it"""
        self._parent: dict[tuple[int, Place], tuple[int, Place]] = {}
        self.used: dict[tuple[int, Place], set[tuple[int, Place]]] = defaultdict(set)
        self.defined: dict[tuple[int, Place], set[int]] = defaultdict(set)
        links = [_links(one) for one in code]
        for i, one in enumerate(code):
            for place in _written(one):
                self._places[self._block_of[i], place].append(i)
                self._parent[i, place] = (i, place)
        uses: list[tuple[int, Place, tuple[int, Place]]] = []
        for i, one in enumerate(code):
            for place in _read(one):
                if found := self._reaching(i, place):
                    self._join(found)
                    to = [(i, d) for d, s in links[i] if s == place]
                    if to:
                        self._join([found[0], *to])
                    else:
                        uses.append((i, place, found[0]))
        for i, place, found in uses:
            self.used[self.web(found)].add((i, place))
        for i, one in enumerate(code):
            copied = {d for d, _ in links[i]}
            for place in _written(one):
                if not (is_constant(one) or (place in copied and not _adds(one))):
                    self.defined[self.web((i, place))].add(i)

    def web(self, definition: tuple[int, Place]) -> tuple[int, Place]:
        """The definition that stands for the whole web."""
        root = definition
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[definition] != root:
            self._parent[definition], definition = root, self._parent[definition]
        return root

    def at_use(self, i: int, place: Place) -> tuple[int, Place] | None:
        """The web of what an instruction reads; None where nothing has been written there."""
        found = self._reaching(i, place)
        return self.web(found[0]) if found else None

    def _join(self, found: Sequence[tuple[int, Place]]) -> None:
        root = self.web(found[0])
        for other in found[1:]:
            self._parent[self.web(other)] = root

    def _reaching(self, i: int, place: Place) -> list[tuple[int, Place]]:
        """The definitions of a place that an instruction may find there. One under a predicate leaves earlier ones."""
        out: list[tuple[int, Place]] = []
        seen: set[int] = set()
        work = [(self._block_of[i], i)]
        while work:
            b, before = work.pop()
            inside = self._places.get((b, place), ())
            for at in reversed(inside[: bisect_left(inside, before)]):
                out.append((at, place))
                if not self.code[at].predicated:
                    break
            else:
                for earlier in self._blocks[b].before:
                    if earlier not in seen:
                        seen.add(earlier)
                        work.append((earlier, self._blocks[earlier].end))
        return out


def _blocks(after: Sequence[Sequence[int]]) -> tuple[list[_Block], list[int]]:
    """Runs of instructions without a jump into or out of them, and the run of each instruction."""
    starts = {0} | {n for i, following in enumerate(after) for n in following if following != [i + 1]}
    starts |= {i + 1 for i, following in enumerate(after) if following != [i + 1] and i + 1 < len(after)}
    firsts = sorted(starts)
    ends = [*firsts[1:], len(after)]
    block_of = [b for b, (first, end) in enumerate(zip(firsts, ends, strict=True)) for _ in range(first, end)]
    before: dict[int, list[int]] = defaultdict(list)
    for b, end in enumerate(ends):
        for following in after[end - 1]:
            before[block_of[following]].append(b)
    made = [_Block(first, end, tuple(before[b])) for b, (first, end) in enumerate(zip(firsts, ends, strict=True))]
    return made, block_of


def _slot(word: int) -> Place:
    return -1 - word


def _written(one: SassInstruction) -> Iterable[Place]:
    if one.spill and one.opcode == "STL":
        found = moved(one)
        return [_slot(word) for _, word in found.words] if found else []
    return () if one.opcode == "CALL" else one.writes  # listed as if any register were changed


def _read(one: SassInstruction) -> Iterable[Place]:
    if one.spill and one.opcode == "LDL":
        found = moved(one)
        return [*one.reads, *(_slot(word) for _, word in found.words)] if found else one.reads
    return () if one.opcode == "CALL" else one.reads


def is_constant(one: SassInstruction) -> bool:
    """Whether an instruction writes a number that stands in the code, whatever statement needs it."""
    stored = one.spill and one.opcode == "STL" and one.reads == (1,)
    zero = one.opcode == "CS2R" and one.operands.endswith("SRZ")
    return stored or zero or bool(_COPIES.match(one.operation) and not one.reads and "UR" not in one.operands)


def _adds(one: SassInstruction) -> bool:
    """Whether an instruction of the tensor cores adds to an accumulator: the same value, with a product in it."""
    return one.opcode.endswith("MMA")


def _links(one: SassInstruction) -> list[tuple[Place, Place]]:
    """(written, read) places that hold the same value before and after an instruction."""
    if one.spill and one.opcode in ("STL", "LDL") and (found := moved(one)) is not None:
        pairs = [(register, _slot(word)) for register, word in found.words if register is not None]
        return [(slot, register) if one.opcode == "STL" else (register, slot) for register, slot in pairs]
    if _adds(one) and one.writes:
        named = _REGISTER.findall(one.operands)
        if one.opcode == "HGMMA":
            last = "Z" if "!UPT" in one.operands or len(named) < 2 else named[-1]
        else:
            last = named[3] if len(named) > 3 else "Z"
        if last == "Z":
            return []
        first, into = int(last), int(named[0])
        return [(into + k, first + k) for k in range(len(one.writes))]
    if _COPIES.match(one.operation) and len(one.reads) == len(one.writes) > 0:
        return list(zip(one.writes, one.reads, strict=True))
    return []
