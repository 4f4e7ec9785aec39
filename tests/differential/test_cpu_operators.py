"""Every operator through the whole compiler on the CPU target, against its NumPy reference."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.compiler.tile.program import Program
from tests.differential import test_operators_lowered
from tests.differential.operator_examples import EXAMPLES, Example

TARGET = CpuTarget()


class OnCpu:
    """Stands where the corpus runs its programs."""

    def __init__(self, program: Program, options: Any) -> None:
        self.executable = TARGET.load(generate(program, TARGET))

    def run(self, *args: Any) -> None:
        self.executable.run(*args)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_operator_on_the_cpu_means_what_its_reference_means(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_operators_lowered, "ReferenceExecutable", OnCpu)
    test_operators_lowered.lowered_means_what_is_meant(example, "cpu", len(test_operators_lowered.SIZES))
