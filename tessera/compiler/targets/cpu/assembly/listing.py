"""Assembly with marks of the lines of LLVM IR and of the vectors that spills move, and the same read back.

LLVM writes debug information among the instructions as directives and comments. What of it says something of an
instruction becomes a mark before that (`//## line 57`, `//## moves v34 v35`), all else is left out.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tessera.compiler.targets.cpu.assembly.places import with_places
from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.immutable import immutable

_COMMENT = re.compile(r"\s*(?:#+|//+|;+) (.*)$")
_VALUE = re.compile(r"\s*(?:#+|//+|;+)\s*DEBUG_VALUE: [^:]+:(\S+) <- (.*)$")
_LOC = re.compile(r"\s+\.loc\s+\d+ (\d+)")
_LABEL = re.compile(r"([A-Za-z_.$][\w.$]*):")
_BLOCK = re.compile(r"\.?L(?:BB\d+_\d+)?:|(?:#+|//+|;+) %bb\.\d+:")
_OF_DEBUGGING = re.compile(r"\.?L(?:tmp|func_begin|debug\w*)\d*:|\s+\.(?:loc\b|cfi_)|\s+\.file\s+\d")
_DEBUG_SECTION = re.compile(r"\s+\.section\s+(?:\.debug|__DWARF)")
_SECTION = re.compile(r"\s+\.(?:section|text)\b")
_SPILL = re.compile(r"(\d+)-byte (?:Folded )?(Spill|Reload)")
_DEPTH = re.compile(r"(?:Loop Header|in Loop|Inner Loop Header):.*Depth=(\d+)")
_MEMORY = re.compile(r"(?:(-?\d*)\(%(rsp|rbp)\))|(?:\[(sp|x29)(?:, #(-?\d+))?\])")
_VARIABLE = re.compile(r"\[(?:DW_OP_(?:plus_uconst|constu) (\d+), )?(DW_OP_minus, )?DW_OP_deref\] \$(\w+)$")
_CALL = re.compile(r"call|blr?$")
_REGISTER = re.compile(r"[%$]?\b(?:[xyz]mm|[vzqdsh])(\d+)\b")

Place = tuple[str, int]
"""("register", its number), or the register that an address starts from and the distance"""


def marked_assembly(text: str, isa: VectorISA) -> str:
    """The assembly of the text of an LLVM module, with marks."""
    module = jit.parsed(text)
    return _Reader(jit.assembly(jit.parsed(with_places(text, module)), isa)).read()


@dataclass(slots=True)
class _Reader:
    """Reads what LLVM wrote from top to bottom, and keeps where it says that each variable lies."""

    raw: str
    out: list[str] = field(default_factory=list[str])
    where: dict[str, Place] = field(default_factory=dict[str, Place])
    line: int = 0
    told: int = 0
    """the line of the last mark"""
    depth: int = 0
    spill: tuple[int, str, Place] | None = None
    """where the mark of the last spill stands in `out`, its instruction, and the place on the stack"""
    instruction: tuple[int, str] | None = None

    def read(self) -> str:
        debugging = False
        for written in self.raw.splitlines():
            if _SECTION.match(written):
                debugging = bool(_DEBUG_SECTION.match(written))
            if debugging:
                continue
            if value := _VALUE.match(written):
                self._variable(value[1], value[2])
            elif place := _LOC.match(written):
                self.line = int(place[1]) or self.line
            elif not _OF_DEBUGGING.match(written):
                self._other(written)
        return "\n".join(self.out) + "\n"

    def _other(self, written: str) -> None:
        block = _BLOCK.match(written)
        if block or _LABEL.match(written):
            self.where, self.spill = {}, None
            self.line = self.line if block else 0
            self.depth = 0
        comment = _COMMENT.search(written)
        code = written[: comment.start()] if comment else written.rstrip()
        if comment and (depth := _DEPTH.search(comment[1])):
            self.depth = int(depth[1])
            self.out.append(f"\t//## depth {self.depth}")
        elif block:
            self.out.append("\t//## depth 0")
        if code.strip():
            if code.startswith("\t") and code[1] != ".":
                self._instruction(code)
            else:
                self.out.append(code)
        if comment and (spill := _SPILL.search(comment[1])):
            self._moves(spill)

    def _instruction(self, code: str) -> None:
        if self.line != self.told:
            self.out.append(f"\t//## line {self.line}")
            self.told = self.line
        self.spill, self.instruction = None, (len(self.out), code)
        self.out.append(code)
        written = _written(code)
        self.where = {v: place for v, place in self.where.items() if place[0] != "register" or place[1] not in written}

    def _moves(self, comment: re.Match[str]) -> None:
        """A spill: LLVM says so behind the instruction, or on the next line where it says more than this."""
        assert self.instruction is not None
        at, code = self.instruction
        stack = place_of(code)
        if stack is None:
            return
        register = registers(code)
        place = stack if comment[2] == "Reload" else ("register", register[0] if register else -1)
        held = [v for v, at_present in self.where.items() if at_present == place]
        if comment[2] == "Spill":
            self.where = {v: at_present for v, at_present in self.where.items() if at_present != stack}
        self.out[at] = f"{code:<50} # {comment[0]}"
        self.out.insert(at, _moves(int(comment[1]), comment[2], held))
        self.spill, self.instruction = (at, code, stack), (at + 1, code)

    def _variable(self, name: str, said: str) -> None:
        """What LLVM says of a variable from here on. Behind a spill it says what that moved."""
        found = _VARIABLE.match(said)
        if found:
            self.where[name] = found[3], int(found[1] or 0) * (-1 if found[2] else 1)
        elif register := _REGISTER.fullmatch(said):
            self.where[name] = "register", int(register[1])
        else:
            self.where.pop(name, None)
            return
        if self.spill is not None:
            at, code, stack = self.spill
            loaded = "//## Reload" in self.out[at] and " Folded " not in self.out[at + 1]
            if self.where[name] == stack or (loaded and self.where[name][1] in _written(code)):
                self.out[at] = f"{self.out[at]} {name}"


def _moves(size: int, kind: str, held: list[str]) -> str:
    return " ".join([f"\t//## {kind} {size}", *held])


def place_of(code: str) -> Place | None:
    """The place on the stack that an instruction names, where it names a fixed one."""
    found = _MEMORY.search(code)
    if found is None or ",%" in code[found.start() : found.end()]:
        return None
    return (found[2] or found[3]), int(found[1] or found[4] or 0)


_ALL = range(64)


def _written(code: str) -> Container[int]:
    """The vector registers that an instruction may write: of x86 the last operand, of AArch64 the first."""
    operation, _, operands = code.strip().partition("\t")
    if _CALL.match(operation):
        return _ALL
    if "%" in operands:
        return registers(f"{operation} %{operands.rpartition('%')[2]}") if not operands.endswith(")") else ()
    return () if operation.startswith("st") else registers(f"{operation} {operands.partition(',')[0]}")


def registers(text: str) -> list[int]:
    """The vector registers that an instruction names, in order."""
    return [int(n) for n in _REGISTER.findall((text.split(None, 1)[1:] or [""])[0])]


@immutable
class AsmInstruction:
    """One instruction of a function: its text, its line of the IR (0: not known), the labels before it, how deep in
    loops it stands, and of a spill the kind ("Spill", "Reload"), the bytes, and the vectors that LLVM says it moves."""

    text: str
    line: int
    labels: tuple[str, ...]
    depth: int
    spill: str
    bytes: int
    holds: tuple[str, ...]

    @property
    def operation(self) -> str:
        return self.text.split(None, 1)[0]

    @property
    def operands(self) -> str:
        return (self.text.split(None, 1)[1:] or [""])[0]

    @property
    def of_vector(self) -> bool:
        """Whether it names a vector register, or moves as much as only they hold."""
        return self.bytes >= 16 or bool(registers(self.text))


_MARK = re.compile(r"\t//## (line|depth|Spill|Reload) (\d+)((?: \S+)*)$")
_FUNCTION = re.compile(r"_?([A-Za-z][\w.$]*):")


@lru_cache(maxsize=4)
def functions(assembly: str) -> tuple[tuple[str, list[AsmInstruction]], ...]:
    """Each function of a marked listing, and its instructions. Several views of one panel ask for them."""
    return tuple(_functions(assembly))


def _functions(assembly: str) -> Iterator[tuple[str, list[AsmInstruction]]]:
    name, code = "", list[AsmInstruction]()
    labels: list[str] = []
    line = depth = 0
    spill: re.Match[str] | None = None
    for written in assembly.splitlines():
        if mark := _MARK.match(written):
            if mark[1] == "line":
                line = int(mark[2])
            elif mark[1] == "depth":
                depth = int(mark[2])
            else:
                spill = mark
        elif label := _LABEL.match(written):
            function = _FUNCTION.match(written)
            if function and not re.match(r"\.?L(BB|CPI|JTI|func)", label[1]):
                if code:
                    yield name, code
                name, code, labels, depth = function[1], [], [], 0
            else:
                labels.append(label[1])
        elif written.startswith("\t") and written[1:2] not in (".", "") and name:
            text = _COMMENT.sub("", written).strip()
            code.append(
                AsmInstruction(
                    text, line, tuple(labels), depth, spill[1] if spill else "", int(spill[2]) if spill else 0,
                    tuple(spill[3].split()) if spill else (),
                )
            )  # fmt: skip
            labels, spill = [], None
    if code:
        yield name, code
