"""Pipelines of sm_90a that are wrong by one statement: the emulator must not let them pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tessera.compiler.targets.cuda import emulate
from tessera.errors import DebugCheckError
from tessera.language import dtypes as dt
from tests.emulator import kernels as k
from tests.emulator.harness import Case, check, run

SM90 = "emulator:sm_90a"


def case() -> Case:
    return k.matmul(m=64, n=64, k=456, dtype=dt.bf16, block=(64, 64))


def spoil(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    plain = emulate.generate

    def spoilt(*arguments: Any) -> Any:
        made = plain(*arguments)
        assert old in made.source
        return replace(made, source=made.source.replace(old, new))

    monkeypatch.setattr(emulate, "generate", spoilt)


FAULTS = {
    "no wait for the copies": ("ring.wait();", ";", "wgmma reads shared memory at byte"),
    "no wait for the products": ("ts::finish_products<0>(acc);", ";", "with products under way"),
    "slots never released": ("ring.release_previous();", ";", "waits for the mbarrier"),
    "barriers not initialised": ("ring.start();", ";", "read before anything was written there"),
    "too few bytes announced": ("(A_stages.bytes + B_stages.bytes)", "(A_stages.bytes)", "mbarrier|under way"),
    "too many bytes announced": ("acquire(A_stages.bytes", "acquire(1024 + A_stages.bytes", "waits for the mbarrier"),
    "an operand never fetched": ("B_stages.fetch(", "if (k < 0) B_stages.fetch(", "waits for the mbarrier"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_missing_or_wrong_step_is_reported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    old, new, message = FAULTS[name]
    spoil(monkeypatch, old, new)
    with pytest.raises(DebugCheckError, match=message):
        for seed in (0, 1, 2):
            run(case(), SM90, seed)


def test_products_without_a_fence_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    product = "ts::hw::wgmma<ts::hw::Kind::bf16, false, true>(d, A_stages.descriptor(0), B_stages.descriptor(0));"
    spoil(monkeypatch, "ring.enter_user();", f"float d[32]; {product}")
    with pytest.raises(DebugCheckError, match=r"without wgmma\.fence"):
        run(case(), SM90)


WRONG_NUMBERS = {
    "slots released before they are read": [("finish_products<1>", "finish_products<5>")],
    "coordinates exchanged": [("ring.slot, B_map, full, i_2, k", "ring.slot, B_map, full, k, i_2")],
    "another part of k": [("ring.slot, A_map, full, i, k", "ring.slot, A_map, full, i, k + 8")],
    "a descriptor for the other order": [
        (
            "ring.start();",
            "ts::TensorStages<ts::bf16, 64, 64, 4, ts::Major::k> wrong(B_stages.first);\n  ring.start();",
        ),
        ("ts::start_products(acc, A_stages, B_stages, ", "ts::start_products(acc, A_stages, wrong, "),
    ],
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_coordinates_and_descriptors_give_wrong_numbers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for old, new in WRONG_NUMBERS[name]:
        spoil(monkeypatch, old, new)
    with pytest.raises(AssertionError, match="Mismatched"):
        check(case(), SM90, (0,))
