"""Machine instructions, live registers and spills by line of the user's program: static figures of the code."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.compiler.targets.base import Instruction
from tessera.errors import source_line
from tessera.profiler.views.markup import table, text
from tessera.runtime.code.assembly import assembly_of
from tessera.runtime.compiled import Compiled

REGISTERS = 255
"""the most that a thread may have"""


@dataclass(slots=True)
class MachineLine:
    """What became of one line in one kernel. `live`: the most registers that held something at any of its
    instructions; None where no life ranges are known. `spills`: instructions that move registers to or from memory."""

    file: str
    line: int
    instructions: int = 0
    live: int | None = None
    spills: int = 0


def machine_lines(compiled: Compiled) -> dict[str, list[MachineLine]]:
    """Kernel -> its lines, in order; line 0 stands for instructions of no line. Empty where the target's assembly says
    nothing of lines.

    Raises MissingDependency without a disassembler.
    """
    read = getattr(compiled.target, "machine_code", None)
    if read is None:
        return {}
    found: dict[str, dict[tuple[str, int], MachineLine]] = {}
    code: list[Instruction] = read(compiled.artifact, assembly_of(compiled.artifact) or "")
    for one in code:
        if one.text.startswith("NOP"):  # fills the code up to a whole cache line
            continue
        of_kernel = found.setdefault(one.kernel, {})
        row = of_kernel.setdefault((one.file, one.user_line), MachineLine(one.file, one.user_line))
        row.instructions += 1
        row.spills += one.spill
        if one.live is not None:
            row.live = max(row.live or 0, one.live)
    return {kernel: [rows[place] for place in sorted(rows)] for kernel, rows in found.items()}


def machine_lines_title(lines: list[MachineLine]) -> str:
    return "Instructions and live registers" if any(row.live for row in lines) else "Instructions"


def machine_lines_table(lines: list[MachineLine], own: str) -> str:
    """`own`: the file whose lines need no name."""
    most = max((row.live or 0 for row in lines), default=0)
    names = ["line", "instructions"]
    rows = [[_source(row, own), f"{row.instructions:,}"] for row in lines]
    if most:
        names.append(f"live registers at most <small>of {REGISTERS}</small>")
        rows = [[*told, _bar(row.live, most)] for told, row in zip(rows, lines, strict=True)]
    if any(row.spills for row in lines):
        names.append("moves of spilled registers")
        rows = [[*told, f"{row.spills:,}"] for told, row in zip(rows, lines, strict=True)]
    return table(names, rows)


def _source(row: MachineLine, own: str) -> str:
    if not row.line:
        return "no line"
    said = (source_line(row.file, row.line) or "").strip()
    place = f"{row.line}" if row.file == own else f"{row.file.rpartition('/')[2]}:{row.line}"
    return f"{text(place)} <code>{text(said if len(said) <= 64 else said[:61] + '...')}</code>"


def _bar(live: int | None, most: int) -> str:
    if live is None:
        return "-"
    mark = " <b>the most</b>" if live == most else ""
    return f'<i class="ts-filled" style="width:{live * 12 / REGISTERS:.2f}em"></i> {live}{mark}'
