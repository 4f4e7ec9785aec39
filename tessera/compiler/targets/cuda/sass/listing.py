"""SASS with marks of source lines and registers, as nvdisasm tells them, and the same read back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tessera.compiler.targets.cuda import cubin
from tessera.immutable import immutable

_TABLE = re.compile(r"^(.*?)// \|(.*)$")
_SPILL = '"SpillRefill"'
_MOVED = re.compile(r"[\^vx]")
"""in the column of a register: written, read, both"""
_REGISTERS = re.compile(r"//## Registers: writes ([\d -]*); reads ([\d -]*)(; spill)?")
_LABEL = re.compile(r"^([\w.$]+):")


def disassemble_with_registers(code: bytes) -> str:
    """As `cubin.disassemble`, and behind each instruction the registers of a thread that hold something: `// 23 live`.
    Before each instruction of a kernel that spills, a mark says which registers it writes and reads.

    nvdisasm prints either marks or life ranges, so that two run side by side. Of code whose life ranges it does not
    find counts and marks are left out.
    """
    marked, ranges = cubin.nvdisasm(code, ["-c", "-gi", "-ndf"], ["-c", "-plr", "-lrm", "narrow"])
    lives = _life_ranges(ranges)
    spilling = {kernel for (kernel, _), life in lives.items() if life.spill}
    out: list[str] = []
    for kernel, line in cubin.with_kernel(marked):
        row = cubin.INSTRUCTION.match(line)
        life = lives.get((kernel, row[1])) if row else None
        if life is not None and kernel in spilling:
            spill = "; spill" if life.spill else ""
            out.append(f"\t//## Registers: writes {_ranges(life.writes)}; reads {_ranges(life.reads)}{spill}")
        out.append(line if life is None else f"{line.rstrip():<80}  // {life.live} live")
    return "\n".join(out) + "\n"


@immutable
class LifeRange:
    """What one instruction does to a thread's registers. `live`: how many hold something; `spill`: whether it moves a
    register to or from memory because there are not enough."""

    live: int
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    spill: bool


def _life_ranges(text: str) -> dict[tuple[str, str], LifeRange]:
    """(kernel, offset) -> its life range: a table with a column of one character for each register."""
    out: dict[tuple[str, str], LifeRange] = {}
    heads: list[str] = []
    columns: dict[int, int] = {}
    for kernel, line in cubin.with_kernel(text):
        cells = _TABLE.match(line)
        if cells is None:
            continue
        registers = cells[2].partition("|")[0]
        row = cubin.INSTRUCTION.match(cells[1])
        if row is None:  # the head: numbers of registers, a line for each digit
            if "#" in registers:
                columns = _columns([*heads, registers])
            heads = [*heads, registers][-2:] if not registers.strip("0123456789 ") and registers.strip() else []
            continue
        found = [(columns[mark.start()], mark[0]) for mark in _MOVED.finditer(registers)]
        out[kernel, row[1]] = LifeRange(
            int(registers[: min(columns, default=len(registers))].strip() or 0),
            tuple(number for number, mark in found if mark in "^x"),
            tuple(number for number, mark in found if mark in "vx"),
            _SPILL in cells[1],
        )
    return out


def _columns(heads: list[str]) -> dict[int, int]:
    """The place of each column -> the number of its register: the digits of a number stand one below the other."""
    ones = heads[-1]
    first = ones.index("#") + 1
    return {
        at: int("".join(head[at] for head in heads if head[at : at + 1].isdigit()))
        for at in range(first, len(ones))
        if ones[at].isdigit()
    }


def _ranges(numbers: Iterable[int]) -> str:
    """`4-7 12`"""
    out: list[list[int]] = []
    for n in numbers:
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return " ".join(f"{a}-{b}" if b > a else str(a) for a, b in out)


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.partition("-") for part in text.split()]
    return tuple(n for first, _, last in parts for n in range(int(first), int(last or first) + 1))


@immutable
class SassInstruction:
    """One instruction of a kernel that spills: its text, the line of the generated source (0: not known), the labels
    before it, and the registers that it writes and reads."""

    offset: int
    text: str
    line: int
    labels: tuple[str, ...]
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    spill: bool

    @property
    def predicated(self) -> bool:
        return self.text.startswith("@")

    @property
    def operation(self) -> str:
        """`STL.64`"""
        return self.text.split()[1 if self.predicated else 0]

    @property
    def opcode(self) -> str:
        """`STL`"""
        return self.operation.partition(".")[0]

    @property
    def operands(self) -> str:
        return self.text.partition(self.operation)[2].strip()


def spilling_kernels(assembly: str, file: str) -> dict[str, list[SassInstruction]]:
    """Symbol -> the instructions of each kernel that spills, in order; lines count in `file`."""
    marks = _marks(assembly)
    out: dict[str, list[SassInstruction]] = {}
    for row in cubin.rows(assembly, file):
        if (found := marks.get((row.kernel, row.offset))) is not None:
            labels, registers = found
            out.setdefault(row.kernel, []).append(
                SassInstruction(
                    row.offset, row.text, row.line, labels, _numbers(registers[1]), _numbers(registers[2]),
                    registers[3] is not None,
                )
            )  # fmt: skip
    return out


def _marks(assembly: str) -> dict[tuple[str, int], tuple[tuple[str, ...], re.Match[str]]]:
    """(kernel, offset) -> the labels and the mark of registers before the instruction, where there is a mark."""
    out: dict[tuple[str, int], tuple[tuple[str, ...], re.Match[str]]] = {}
    labels: list[str] = []
    mark: re.Match[str] | None = None
    for kernel, line in cubin.with_kernel(assembly):
        if label := _LABEL.match(line):
            labels.append(label[1])
        elif found := _REGISTERS.search(line):
            mark = found
        elif row := cubin.INSTRUCTION.match(line):
            if mark is not None:
                out[kernel, int(row[1], 16)] = tuple(labels), mark
            labels, mark = [], None
    return out
