"""What the machine code of matrix products holds: static evidence, on a machine without a GPU."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.base import CUDA_ARCHITECTURES, Artifact
from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.target import SHARED_LIMITS
from tessera.kernels import attention_safe
from tessera.language import dtypes as dt
from tests import machine_code
from tests.conftest import require
from tests.emulator import kernels as k
from tests.emulator.warpgroup_kernels import attention, product
from tests.seeds import kernels as seeds

require("cuda.bindings")

# (dtype, block, transposed operands, gelu): every instruction kind, either order of operands, both kinds of producer
PRODUCTS: dict[str, tuple[dt.DType, tuple[int, int], str, bool]] = {
    "bf16 128x128": (dt.bf16, (128, 128), "", False),
    "bf16 128x256 gelu": (dt.bf16, (128, 256), "", True),
    "bf16 128x128 B transposed": (dt.bf16, (128, 128), "B", True),
    "f16 256x128 A transposed": (dt.f16, (256, 128), "A", False),
    "f16 64x64 both transposed": (dt.f16, (64, 64), "AB", True),
    "bf16 64x96": (dt.bf16, (64, 96), "", False),
    "bf16 1x256": (dt.bf16, (1, 256), "", False),
    "tf32 128x128": (dt.tf32, (128, 128), "B", False),
}


read: dict[bytes, str] = {}
"""the machine code of cubins; several things are looked for in each"""


def compiled(name: str, arch: str) -> Artifact:
    dtype, block, transposed, gelu = PRODUCTS[name]
    rows = 1024 if block[0] > 1 else 1
    program = k.product(rows, 1536, 2048, dtype, block, warps=8, transposed=transposed, gelu=gelu)
    return generate(program, base.get(arch))


@pytest.fixture(scope="module")
def hopper() -> dict[str, Artifact]:
    made = {name: compiled(name, "sm_90a") for name in PRODUCTS}
    codes = [a.files["code.cubin"] for a in made.values()]
    read.update(zip(codes, machine_code.instructions("sm_90a", codes), strict=True))
    return made


def instructions(artifact: Artifact, pattern: str) -> list[str]:
    code = artifact.files["code.cubin"]
    if code not in read:
        (read[code],) = machine_code.instructions(artifact.target, [code])
    return re.findall(rf"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?\s*({pattern}\S*)", read[code], re.MULTILINE)


@pytest.mark.parametrize("name", PRODUCTS)
def test_hopper_multiplies_by_warpgroups_from_tensor_copies(hopper: dict[str, Artifact], name: str) -> None:
    products = instructions(hopper[name], "HGMMA")
    assert products and not instructions(hopper[name], "HMMA") and not instructions(hopper[name], "LDSM")
    wanted = {"tf32": r"x8\.F32\.TF32", "bf16": r"x16\.F32\.BF16", "f16": r"x16\.F32"}[name.split()[0]]
    assert all(re.match(rf"HGMMA\.64x\d+{wanted}", p) for p in products)
    assert instructions(hopper[name], "UTMALDG"), "stages are filled by tensor copies"
    assert not instructions(hopper[name], "LDGSTS") and not instructions(hopper[name], "LDG")
    assert instructions(hopper[name], "SYNCS.EXCH") and instructions(hopper[name], "SYNCS.PHASECHK")
    assert instructions(hopper[name], "SYNCS.ARRIVE"), "full and empty mbarriers"


@pytest.mark.parametrize("name", PRODUCTS)
def test_hopper_products_stay_in_flight(hopper: dict[str, Artifact], name: str) -> None:
    """ptxas neither serialises them nor puts waits between them, nothing spills, and the block fits. The source
    ends with what the compiler warns of."""
    a = hopper[name]
    assert "C75" not in a.source and "warning" not in a.source, a.source
    waits = instructions(a, "WARPGROUP.DEPBAR")
    assert len(waits) == 2, "one in the loop, which leaves a stage under way, and one behind the last stage"
    (figures,) = a.resources.values()
    assert figures["shared"] <= SHARED_LIMITS[90] and figures["blocks_per_sm"] >= 1
    assert figures["spills"] == 0


def test_long_epilogues_are_loops(hopper: dict[str, Artifact]) -> None:
    """128 accumulators to a thread: gelu takes some at a time, and neighbours are stored as words."""
    wide = hopper["bf16 128x256 gelu"]
    assert 0 < len(instructions(wide, "MUFU.EX2")) < 128 // 4
    assert instructions(wide, "STG") == ["STG.E"] * 64


def test_small_accumulators_share_a_multiprocessor(hopper: dict[str, Artifact]) -> None:
    assert hopper["bf16 128x128"].resources["matmul"]["blocks_per_sm"] == 2
    assert hopper["f16 64x64 both transposed"].resources["matmul"]["blocks_per_sm"] >= 3


def test_large_accumulators_take_the_producers_registers(hopper: dict[str, Artifact]) -> None:
    assert set(instructions(hopper["bf16 128x256 gelu"], "USETMAXREG")) == {
        "USETMAXREG.DEALLOC.CTAPOOL",
        "USETMAXREG.TRY_ALLOC.CTAPOOL",
    }
    assert not instructions(hopper["bf16 128x128"], "USETMAXREG")
    assert hopper["bf16 128x256 gelu"].resources["matmul"]["threads"] == 384


def test_the_evidence_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accumulator read while products write it: the source ends with what the test above looks for."""

    def spoil(source: str, *rest: Any, compile_code: Any = nvrtc.compile_code) -> Any:
        spoilt = re.sub(r"(ts::finish_products<1>\((\w+)\);)", r"\2.v[0] += 1.0f; \1", source)
        assert spoilt != source
        return compile_code(spoilt, *rest)

    monkeypatch.setattr(nvrtc, "compile_code", spoil)
    assert "C75" in compiled("bf16 128x128", "sm_90a").source


@pytest.mark.parametrize("arch", [a for a in CUDA_ARCHITECTURES if a not in ("sm_90a", "sm_70")])
def test_other_architectures_keep_to_mma(arch: str) -> None:
    artifact = compiled("f16 64x64 both transposed", arch)
    assert instructions(artifact, "HMMA") and not instructions(artifact, "HGMMA")
    assert bool(instructions(artifact, "LDGSTS")) == (arch != "sm_75")
    assert all(f["spills"] == 0 for f in artifact.resources.values())


def test_large_products_of_functions_get_large_blocks() -> None:
    from tessera.compiler.machines import sizes_of
    from tessera.compiler.schedule.blocks import contract_block
    from tessera.language.dims import symbol

    sm90 = sizes_of("sm_90a")
    assert sizes_of("emulator:sm_90a") == sizes_of("h100") == sm90 != sizes_of("sm_80") == sizes_of("cuda")
    assert contract_block(4096, 4096, sm90, dt.bf16) == (128, 256)
    assert contract_block(symbol("M"), 4096, sm90, dt.f16) == (128, 256)
    assert contract_block(1024, 2048, sm90, dt.bf16) == (64, 128)
    assert contract_block(256, 256, sm90, dt.bf16, 64) == (128, 128)
    assert contract_block(1, 4096, sm90, dt.bf16) == (1, 64)
    assert contract_block(4096, 4096, sm90, dt.f32) == contract_block(4096, 4096, "cuda", dt.f32)


# Kernels that users write: explicit shared tiles, loads that run ahead, attention with both kinds of operands.


def kernel_artifact(kernel: Any, *args: Any, **config: Any) -> Artifact:
    from tests import kernel_runner

    target = base.get("sm_90a")
    return generate(lower(kernel_runner.check(kernel, *args, **config).unit(), target).program, target)


def of_warpgroups_alone(a: Artifact) -> dict[str, Any]:
    """Asserts what every such kernel must show; gives its figures."""
    assert instructions(a, "HGMMA") and instructions(a, "UTMALDG")
    assert not instructions(a, "HMMA") and not instructions(a, "LDSM") and not instructions(a, "LDGSTS")
    assert not instructions(a, "STL") and not instructions(a, "LDL")
    assert "C75" not in a.source and "warning" not in a.source, a.source
    (figures,) = a.resources.values()
    assert figures["spills"] == 0 and figures["stack"] == 0 and figures["shared"] <= SHARED_LIMITS[90]
    return figures


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("d", "bm", "bn", "blocks"),
    [(64, 64, 64, 4), (64, 64, 128, 2), (64, 128, 64, 1), (128, 64, 64, 2), (128, 128, 128, 1)],
)
def test_attention_multiplies_by_warpgroups(d: int, bm: int, bn: int, blocks: int, causal: bool) -> None:
    q = np.zeros((4, 1024, d), ml_dtypes.bfloat16)
    a = kernel_artifact(attention, q, q, q, causal, BLOCK_M=bm, BLOCK_N=bn, num_stages=2, num_warps=8)
    figures = of_warpgroups_alone(a)
    assert figures["blocks_per_sm"] >= blocks
    assert figures["threads"] == (128 if bm == 64 else 288 if d == bn == 64 else 384), "two warpgroups have a producer"
    assert bool(instructions(a, "USETMAXREG")) == (figures["threads"] == 384)
    products = instructions(a, r"HGMMA\.64x\d+x16\.F32\.BF16")
    across = (d // 16) + (bn // 16)  # 16 of k to an instruction; n up to 256
    assert len(products) == across
    assert len(instructions(a, "WARPGROUP.DEPBAR")) == 2, "one wait to each product"


@pytest.mark.parametrize(("bm", "bn", "warps", "producers"), [(64, 64, 4, 0), (128, 128, 8, 1), (128, 256, 8, 4)])
def test_products_of_loads_that_run_ahead_multiply_by_warpgroups(bm: int, bn: int, warps: int, producers: int) -> None:
    a, b = np.zeros((512, 512), np.float16), np.zeros((512, 512), np.float16)
    made = kernel_artifact(product, a, b, BM=bm, BN=bn, BK=64, AHEAD=3, num_stages=3, num_warps=warps)
    figures = of_warpgroups_alone(made)
    assert figures["threads"] == 32 * (warps + producers)


def test_the_seeds_gemm_and_attention_multiply_by_warpgroups() -> None:
    a, c = np.zeros((512, 512), ml_dtypes.bfloat16), np.zeros((512, 512), np.float32)
    of_warpgroups_alone(kernel_artifact(seeds.gemm, a, a, c, num_stages=3))
    of_warpgroups_alone(kernel_artifact(seeds.matmul_kernel, a, a, c, num_stages=3))
    q = np.zeros((4, 512, 64), ml_dtypes.bfloat16)
    of_warpgroups_alone(kernel_artifact(seeds.flash_attention, q, q, q, True, BLOCK_M=128, BLOCK_N=64, num_stages=3))


@pytest.mark.parametrize("d", [64, 128])
def test_attention_safe_multiplies_by_warpgroups(d: int) -> None:
    q = np.zeros((4, 512, d), ml_dtypes.bfloat16)
    of_warpgroups_alone(kernel_artifact(attention_safe, q, q, q))
