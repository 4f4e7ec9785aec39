"""Every op of Tile IR and the typical kernels, compiled by the CPU target and compared with the interpreter.

The cases are the emulator's: what they say about reordered threads holds here for repeated runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pytest

from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cpu.llvm.isa import host
from tessera.compiler.targets.cpu.target import CpuTarget
from tests.emulator import harness, test_tile_ops, test_typical_kernels
from tests.emulator.test_tile_ops import *  # noqa: F403
from tests.emulator.test_typical_kernels import *  # noqa: F403

# These name the CUDA library's own order, writers and architectures.
del test_sums_are_folded_in_the_documented_order
del test_every_op_of_the_dialect_has_a_writer
del test_older_architecture_without_async_copies_or_bf16_products

READY = harness.ready
once = cache(jit._object)
"""Object code of a text. Cases that differ in what only a GPU knows, as warps, have the same text."""


@pytest.fixture(autouse=True, params=["host", "avx2", "baseline"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiles for one instruction set; cases ask for their target by the emulator's name."""
    wanted: str | None = None if request.param == "host" else request.param
    if wanted and host(wanted).bits >= host().bits:
        pytest.skip("this machine has no wider vectors")
    target = CpuTarget(wanted)
    monkeypatch.setattr(jit, "_object", once)

    def get(name: str) -> CpuTarget:
        assert name == "cpu", "these cases are the CPU's"
        return target

    monkeypatch.setattr(harness.base, "get", get)
    check: Any = partial(harness.check, target="cpu")
    monkeypatch.setattr(test_tile_ops, "check", check)
    monkeypatch.setattr(test_typical_kernels, "check", check)
    for module in (harness, test_tile_ops):
        monkeypatch.setattr(module, "ready", lambda case, _="": READY(case, "cpu"))
    yield


@pytest.fixture
def built(level: None, request: pytest.FixtureRequest) -> Any:
    """The case of a test, compiled for its instruction set; the emulator's are compiled together."""
    parameters: dict[str, Any] = getattr(request.node, "callspec").params  # noqa: B009 (not declared)
    return request.node.function.builds(**{n: v for n, v in parameters.items() if n != "level"})  # type: ignore[attr-defined]
