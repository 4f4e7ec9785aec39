"""Programs for sm_90a that are wrong by one statement: the emulator must not let them pass."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tessera.compiler.targets.cuda import emulate
from tessera.errors import DebugCheckError
from tessera.language import dtypes as dt
from tests.emulator import kernels as k
from tests.emulator import pipelined, warpgroup_kernels
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
    "an operand never fetched": (
        "B_stages[ring.slot].fetch(",
        "if (k < 0) B_stages[0].fetch(",
        "waits for the mbarrier",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_missing_or_wrong_step_is_reported(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    old, new, message = FAULTS[name]
    spoil(monkeypatch, old, new)
    with pytest.raises(DebugCheckError, match=message):
        for seed in (0, 1, 2):
            run(case(), SM90, seed)


def test_products_without_a_fence_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = "A_stages[0].descriptor<true>(), B_stages[0].descriptor<false>()"
    product = f"ts::hw::wgmma<ts::hw::Kind::bf16, false, true>(d, {operands});"
    spoil(monkeypatch, "ring.enter_user();", f"float d[32]; {product}")
    with pytest.raises(DebugCheckError, match=r"without wgmma\.fence"):
        run(case(), SM90)


WRONG_NUMBERS = {
    "slots released before they are read": [("finish_products<1>", "finish_products<5>")],
    "coordinates exchanged": [("fetch(B_map, full, k, i_2)", "fetch(B_map, full, i_2, k)")],
    "another part of k": [("fetch(A_map, full, i, k)", "fetch(A_map, full, i, k + 8)")],
    "a descriptor for the other order": [("(acc, A_stages[ring.slot],", "(acc, ts::transposed(A_stages[ring.slot]),")],
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_coordinates_and_descriptors_give_wrong_numbers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for old, new in WRONG_NUMBERS[name]:
        spoil(monkeypatch, old, new)
    with pytest.raises(AssertionError, match="Mismatched"):
        check(case(), SM90, (0,))


LATE = "mbarrier|under way|before anything was written"
# kernel -> fault -> (what is replaced, by what, what the emulator says)
KERNEL_FAULTS: dict[str, dict[str, tuple[str, str, str]]] = {
    "flash_attention": {
        "no wait for a stage": (r"ring\.wait\(\);", "", "wgmma reads shared memory at byte|under way"),
        "no wait for what is copied once": (r"copies\.barrier\(\);", "ts::sync();", "wgmma reads|under way"),
        "a barrier that no copy is counted for": (
            r"copies\.expect\(smem_q\.bytes\)",
            "copies.landed",
            LATE,
        ),
        "slots never released": (r"ring\.release\(\);", "", "waits for the mbarrier"),
        "slots released before they are read": (
            r"ring\.wait\(\);",
            "ring.release(); ring.wait();",
            LATE,
        ),
        "users stay at one slot": (r"ring\.next\(\);", "", LATE),
        "fetches stay at one slot": (r"fetches\.next\(\);", "", LATE),
        "the users' slot is filled": (
            r"stages\[fetches\.slot\]",
            "stages[ring.slot]",
            LATE,
        ),
        "too few bytes announced": (r" \+ smem_v_stages\.bytes", "", LATE),
        "an operand never fetched": (r"smem_v_stages\[.*\]\.fetch\(.*;", "", "waits for the mbarrier"),
        "every thread fetches": (r"leader && ", "", "mbarrier|under way|more than 256"),
        "mbarriers not initialised": (r"ring\.start\(\);", "", "no initialised mbarrier|before anything was written"),
    },
    "gemm": {
        "no wait for a stage": (r"ring\.wait\(\);", "", "wgmma reads shared memory at byte|under way"),
        "slots never released": (r"ring\.release\(\);", "", "waits for the mbarrier"),
    },
    "gemm_ragged": {  # its rows are not a multiple of 16 bytes: threads copy
        "copies not published": (r"publish_stage<1>", "wait_for_stage<1>", r"without fence\.proxy\.async"),
        "copies not waited for": (
            r"publish_stage<1>",
            "publish_stage<2>",
            "under way|without a barrier|before anything",
        ),
    },
}


PRODUCER_FAULTS = {
    "the producer does not wait for its slot": (r"= ring\.acquire\(.*\);", "= ring.full + ring.slot;", LATE),
    "slots never released": (r"ring\.release\(\);", "", "waits for the mbarrier"),
    "slots released before they are read": (r"ring\.wait\(\);", "ring.release(); ring.wait();", LATE),
    "no wait for a stage": (r"ring\.wait\(\);", "", "wgmma reads shared memory at byte|under way"),
    "one step too few": (r"j < 300(; j \+= 32\) \{\n\s+auto full)", r"j < 256\1", "waits for the mbarrier"),
    "the program meets the producer": (
        r"ring\.enter_user\(\);",
        "ts::hw::sync_block();",
        "do not reach|waits for the mbarrier",
    ),
    "the producer waits with the program": (
        r"return;\n  \}\n  ring",
        "ts::sync(); return;\n  }\n  ring",
        "do not reach|waits",
    ),
}


@pytest.mark.parametrize("fault", PRODUCER_FAULTS)
def test_a_producer_without_a_step_is_reported(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    old, new, message = PRODUCER_FAULTS[fault]
    spoil_by_pattern(monkeypatch, old, new)
    with pytest.raises(DebugCheckError, match=message):
        warpgroup_kernels.produced()


def spoil_by_pattern(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    plain = emulate.generate

    def spoilt(*arguments: Any) -> Any:
        made = plain(*arguments)
        text, n = re.subn(old, new, made.source)
        assert n, f"{old} is not in the text:\n{made.source}"
        return replace(made, source=text)

    monkeypatch.setattr(emulate, "generate", spoilt)


def spoilt_run(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> list[bytes]:
    spoil_by_pattern(monkeypatch, old, new)
    executable, p = pipelined.load(name, 3, SM90), pipelined.program(name, 3, SM90)
    return [pipelined.run(name, executable, p, seed) for seed in (0, 1, 2, 7)]


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, faults in KERNEL_FAULTS.items() for fault in faults]
)
def test_a_kernel_without_a_step_is_reported(monkeypatch: pytest.MonkeyPatch, name: str, fault: str) -> None:
    old, new, message = KERNEL_FAULTS[name][fault]
    with pytest.raises(DebugCheckError, match=message):
        spoilt_run(monkeypatch, name, old, new)


KERNEL_NUMBERS = {
    "the other operand's coordinates": (r"fetch\(V_map, (\w+), (\w+)", r"fetch(V_map, \1, \2 + 8"),
    "keys of another order": (r"ts::transposed\(smem_k\)", "smem_k"),
    "the first rows only": (r"fetch\(K_map, (\w+), (\w+)", r"fetch(K_map, \1, 0"),
}


@pytest.mark.parametrize("fault", KERNEL_NUMBERS)
def test_wrong_operands_give_other_bits(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name = "flash_attention"
    right = pipelined.run(name, pipelined.load(name, 3, SM90), pipelined.program(name, 3, SM90))
    assert right not in spoilt_run(monkeypatch, name, *KERNEL_NUMBERS[fault])


def test_staged_operands_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, "ts::publish();", "")
    with pytest.raises(DebugCheckError, match=r"without fence\.proxy\.async"):
        warpgroup_kernels.safe(32, 32, causal=False)
