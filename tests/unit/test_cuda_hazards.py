"""What an emulator does not notice and a GPU does: narrow copies, rounding of ties, bytes that are counted twice."""

from __future__ import annotations

import re

import pytest

import tessera as ts
from tessera.compiler.targets import base
from tests.conftest import require
from tests.emulator import kernels as k

SIZES = {"M": 128, "N": 128, "K": 128}


@ts.function
def plain(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x @ w


@ts.function
def right_transposed(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["N", "K", ts.f32]):
    return x @ w.T


@ts.function
def left_transposed(x: ts.Tensor["K", "M", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x.T @ w


@ts.function
def both_transposed(x: ts.Tensor["K", "M", ts.f32], w: ts.Tensor["N", "K", ts.f32]):
    return x.T @ w.T


@ts.function
def right_sliced(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x @ w[:, :64]


@ts.function
def left_sliced(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["N", "K", ts.f32]):
    return x[:, 64:] @ w.T[64:]


@pytest.mark.parametrize(
    "f",
    [plain, right_transposed, left_transposed, both_transposed, right_sliced, left_sliced],
    ids=lambda f: f.__name__,
)
def test_stages_of_products_are_filled_16_bytes_at_a_time(f: object) -> None:
    """However the operands lie: neighbours in memory are neighbours in the stage."""
    require("cuda.bindings")
    copies = re.findall(
        r"ts::copy_async<ts::Box<\d+, \d+>, ts::(\w+)<", ts.compile(f, target="sm_80", dims=SIZES).source
    )
    assert copies == ["Aligned", "Aligned"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_shared_memory_is_counted_once(arch: str) -> None:
    """What the system keeps of each block is no part of the kernel's own bytes, in which a cubin counts it from sm_90 on."""
    require("cuda.bindings")
    artifact = base.get(arch).compile(k.matmul(m=128, n=128, k=128, block=(64, 64)).program)
    (name,) = artifact.meta["kernels"]
    assert artifact.resources[name]["shared"] == artifact.meta["kernels"][name]["shared"] > 0
