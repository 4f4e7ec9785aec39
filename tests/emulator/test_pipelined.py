"""Loads that run ahead change no bit, whatever their number, the target and the order of the threads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tessera.compiler.targets.cuda.emulate import EmulatedExecutable
from tests.emulator.pipelined import CASES, load, program, run
from tests.together import builds

KERNELS = sorted(CASES)


def loaded(name: str, stages: Sequence[int], target: str = "emulator:sm_80") -> list[EmulatedExecutable]:
    return [load(name, n, target) for n in stages]


@builds(lambda name: loaded(name, (1, 2, 3, 4)))
@pytest.mark.parametrize("name", KERNELS)
def test_any_number_of_stages_gives_the_same_bits(name: str, built: list[EmulatedExecutable]) -> None:
    results = {
        (stages, seed): run(name, executable, program(name, stages), seed)
        for stages, executable in enumerate(built, 1)
        for seed in (0, 3, 8)
    }
    assert len(set(results.values())) == 1, [key for key, value in results.items() if value != results[1, 0]]


@builds(lambda name, target: loaded(name, (1, 3), target))
@pytest.mark.parametrize("target", ["emulator:sm_75", "emulator:sm_90a"])
@pytest.mark.parametrize("name", ["gemm", "flash_attention"])
def test_on_other_architectures(name: str, target: str, built: list[EmulatedExecutable]) -> None:
    plain, ahead = (run(name, x, program(name, n, target), 5) for n, x in zip((1, 3), built, strict=True))
    assert plain == ahead


@pytest.mark.parametrize("name", KERNELS)
def test_each_is_pipelined(name: str) -> None:
    kernel = program(name, 3).launches[0].kernel
    assert [op.name for op in kernel.walk()].count("tile.pipeline") == 1
    inside = [op for op in kernel.walk() if op.name == "tile.barrier" and op.parent is not kernel]
    assert len(inside) == (name == "side_by_side")
    source = load(name, 3).artifact.source
    assert "ts::wait_for_stage<1>();" in source and "_stages[stage + 2]" in source


def test_shared_memory_bounds_the_stages() -> None:
    kept = load("gemm", 40)
    assert "ts::Stages<ts::bf16, 64, 32, 20, 64> smem_a_stages" in kept.artifact.source, kept.artifact.source
    assert run("gemm", kept, program("gemm", 40), 2) == run("gemm", load("gemm", 1), program("gemm", 1))
