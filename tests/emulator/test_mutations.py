"""What keeps pipelined loops right is taken out of their text, one piece at a time; the emulator has to report each.

A mutant that no order of the threads brings to light is a barrier that was not needed, or a hole in the emulator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cuda import host_library
from tessera.compiler.targets.cuda.emulate import EmulatedExecutable
from tessera.compiler.tile.program import Program
from tessera.errors import DebugCheckError
from tests.emulator.pipelined import program, run

SEEDS = (0, 1, 2, 7)
CHANGES = (
    (r"ts::sync\(\);", ""),
    (r"ts::barrier\(\);", ""),
    (r"ts::barrier\(\);", "ts::sync();"),
    (r"ts::barrier\(\);", "ts::hw::wait_all_async();"),
    (r"ts::commit\(\);", ""),
    (r"ts::wait_for_stage<1>\(\);", ""),
    (r"ts::wait_for_stage<1>\(\);", "ts::wait_for_stage<2>();"),
    (r"ts::wait_for_stage<1>\(\);", "ts::sync();"),
    (r"ts::wait_for_stage<1>\(\);", "ts::hw::wait_async<1>();"),
    (r"_stages\[stage \+ 2\]", "_stages[stage + 1]"),
    (r"_stages\[stage \+ 2\]", "_stages[stage + 3]"),
    (r"_stages\[stage\];", "_stages[stage + 1];"),
    (r"if \(stage < 0\) continue;", ""),
    (r", 3> (\w+_stages)\(", r", 2> \1("),
)


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, change, text): one place changed at a time."""
    lines = source.splitlines()
    for number, line in enumerate(lines, 1):
        for pattern, put in CHANGES:
            if re.search(pattern, line):
                changed = re.sub(pattern, put, line)
                text = "\n".join([*lines[: number - 1], changed, *lines[number:]]) + "\n"
                yield number, f"{line.strip()}  ->  {changed.strip() or 'nothing'}", text


def changed(artifact: Artifact, text: str) -> EmulatedExecutable:
    """The kernel with another text."""
    executable = EmulatedExecutable(replace(artifact, source=text, files={**artifact.files, "code.cu": text.encode()}))
    host_library.build_later(executable.text)
    return executable


def reported(name: str, executable: EmulatedExecutable, p: Program) -> str:
    """What the emulator says of a changed kernel; empty where it says nothing."""
    for seed in SEEDS:
        try:
            run(name, executable, p, seed)
        except DebugCheckError as e:
            (d,) = e.diagnostics
            assert d.span.line > 0 and d.span.file.endswith(".py"), "reported at no line of the user's"
            return d.message
    return ""


@pytest.mark.parametrize("name", ["gemm", "flash_attention", "side_by_side"])
def test_every_mutant_is_reported(name: str) -> None:
    p = program(name, 3)
    artifact = generate(p, base.get("emulator:sm_80"))
    with host_library.together():
        made = {f"line {n}: {change}": changed(artifact, text) for n, change, text in mutants(artifact.source)}
    found = {place: reported(name, executable, p) for place, executable in made.items()}
    alive = [place for place, message in found.items() if not message]
    print(f"{name}: {len(found) - len(alive)} of {len(found)} mutants reported")
    assert len(found) >= 8 and not alive, alive
