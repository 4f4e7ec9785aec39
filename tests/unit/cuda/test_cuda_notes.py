"""What a compiled kernel says of itself, and what it says when it is too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.generate import GeneratedKernel, generate
from tessera.compiler.targets.cuda.target import settings_for
from tessera.errors import TargetError
from tessera.language import dtypes as dt
from tests import kernel_runner
from tests.emulator import kernels


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16]) -> ts.Tensor["M", "N", ts.f32]:
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK))
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN))
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, ctx.BK):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc


def generated(n: int, arch: int = 80, **config: int) -> GeneratedKernel:
    arrays = np.zeros((128, 64), np.float16), np.zeros((64, n), np.float16)
    analysis = kernel_runner.check(product, *arrays, **config)
    program = lower(analysis.unit(), base.get(f"sm_{arch}")).program
    (kernel,) = generate(program, settings_for(arch, False, False)).kernels.values()
    return kernel


BLOCKS: dict[str, Any] = {"BM": 64, "BN": 64, "BK": 32}


def test_copies_that_run_ahead_and_where_tiles_lie() -> None:
    kernel = generated(128, **BLOCKS, num_stages=3)
    (note,) = kernel.notes
    assert "A_ahead, B_ahead: copied 2 steps ahead, in 3 stages (24576 bytes" in note and "test_cuda_notes.py:" in note
    assert "16-byte pieces swapped by xor" in kernel.layouts["shared A_ahead"]
    assert "no bank conflicts" in kernel.layouts["shared B_ahead"]


def test_stages_of_a_product_have_a_shape() -> None:
    """The target chooses how much of k they hold."""
    program = kernels.product(128, 64, 96, dt.f32, (32, 64))
    (kernel,) = generate(program, settings_for(80, False, False)).kernels.values()
    assert [t["what"] for t in kernel.tiles if t["where"] == "shared memory"] == ["16 x 64 f32", "32 x 16 f32"]


def test_why_there_are_fewer_stages() -> None:
    assert (
        "num_stages asks for 40, shared memory has no room for more" in generated(128, **BLOCKS, num_stages=40).notes[0]
    )
    assert (
        "num_stages asks for 3, the architecture has no asynchronous"
        in generated(128, 75, **BLOCKS, num_stages=3).notes[0]
    )


def test_why_an_access_is_not_made_of_vectors() -> None:
    said = generated(100, **BLOCKS).notes
    assert any("B is not moved 8 elements at a time: its rows start every 100 elements" in text for text in said), said
    assert not any(text.partition(": ")[2].startswith("A is not") for text in said)


def test_what_to_shrink() -> None:
    with pytest.raises(TargetError) as e:
        generated(512, BM=512, BN=512, BK=256)
    (d,) = e.value.diagnostics
    assert d.code == "TS405" and "bytes of shared memory" in d.message and "instead of" in d.message
    assert any("512" in note.message and note.span is not None and note.span.line > 0 for note in d.notes)


@pytest.mark.parametrize("arch", [70, 75, 80])
def test_products_that_no_tensor_core_takes(arch: int) -> None:
    program = kernels.matmul(dtype=dt.bf16).program
    (kernel,) = generate(program, settings_for(arch, False, False)).kernels.values()
    said = any("bf16 is multiplied in f32 without tensor cores" in text for text in kernel.notes)
    assert said == (arch < 80)
