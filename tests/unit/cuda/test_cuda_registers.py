"""Registers that tiles hold: what is foretold is what the compiler finds, and what does not fit says what to shrink."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import cubin, nvrtc
from tessera.compiler.targets.cuda.generate import GeneratedKernel, _write_kernel, generate
from tessera.compiler.targets.cuda.report.registers import pressure
from tessera.compiler.targets.cuda.target import settings_for
from tessera.compiler.targets.cuda.write.source import CxxSource
from tessera.errors import Diagnostic, TargetError, source_line
from tests import kernel_runner
from tests.conftest import require


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16]) -> ts.Tensor["M", "N", ts.f32]:
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(ctx.BM, ctx.BK))
    b = ts.tile.load(B, shape=(ctx.BK, ctx.BN))
    acc = ts.tile.zeros((ctx.BM, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, ctx.BK):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc


def generated(**config: int) -> GeneratedKernel:
    arrays = np.zeros((128, 64), np.float16), np.zeros((64, 512), np.float16)
    program = lower(kernel_runner.check(product, *arrays, **config).unit(), base.get("sm_80")).program
    (kernel,) = generate(program, settings_for(80, False, False)).kernels.values()
    return kernel


def refusal(**config: int) -> Diagnostic:
    with pytest.raises(TargetError) as e:
        generated(**config)
    return e.value.diagnostics[0]


def test_tiles_beyond_the_registers_say_what_to_shrink() -> None:
    d = refusal(BM=128, BN=256, BK=32, num_warps=2)
    assert d.code == "TS411" and source_line(d.span.file, d.span.line).strip().startswith("acc = ts.tile.zeros")
    assert "Tiles hold 512 registers of each of 64 threads here; a thread has 255 for tiles and all else." in d.message
    assert "Use num_warps=8 instead of 2, or acc of 128 x 64 instead of 128 x 256." in d.message
    assert d.notes[0].message == "acc: 128 x 256 f32, 512 registers of each thread"
    d = refusal(BM=256, BN=256, BK=32, num_warps=16)
    assert "a thread has 128 (512 share 65536)" in d.message and "num_warps" not in d.message
    assert "Use acc of 256 x 128 instead of 256 x 256." in d.message  # 128 of 128 leave none for addresses


def test_warps_that_nobody_asked_for_follow_the_registers() -> None:
    assert generated(BM=64, BN=64, BK=32).threads == 128
    assert generated(BM=128, BN=256, BK=32).threads == 256
    largest = generated(BM=256, BN=256, BK=32)  # nobody set a schedule that could be wrong: slow, and said
    assert largest.threads == 256 and largest.tight[0].startswith("tiles hold 256 of the 255 registers")


def test_many_registers_are_noted_where_no_compiler_counts_them() -> None:
    few, many = (generated(BM=m, BN=128, BK=32, num_warps=4).tight for m in (64, 192))
    assert not few
    assert many[0].startswith("tiles hold 192 of the 255 registers of a thread") and "acc: 192 x 128 f32" in many[1]


@ts.kernel(num_warps=1)
def branches(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    block = x[tile_n : tile_n + 4096]
    if ts.tile.max(block) > 0:
        y[tile_n : tile_n + 4096] = block / ts.tile.sum(block)
    else:
        y[tile_n : tile_n + 4096] = block * ts.tile.min(block)


@ts.kernel(num_warps=1)
def captured(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    block = x[tile_n : tile_n + 4096]
    before = block * 2
    for k in ts.tile.range_k(0, 3):
        y[tile_n : tile_n + 4096] = y[tile_n : tile_n + 4096] + block * k
    y[tile_n : tile_n + 4096] = before


def held(kernel: Any) -> int:
    arrays = np.zeros(8192, np.float32), np.zeros(8192, np.float32)
    program = lower(kernel_runner.check(kernel, *arrays).unit(), base.get("sm_80")).program
    (launch,) = program.launches
    settings = settings_for(80, False, False)
    return pressure(_write_kernel(program, launch.kernel, "k", settings, CxxSource(), 1, 1)).registers


def test_what_is_held_at_once() -> None:
    assert held(branches) == 128  # the branch that is not taken holds nothing
    assert held(captured) == 256  # one is used in each step, one behind the loop


@pytest.mark.parametrize("n", [2, 4])
def test_the_figure_is_what_the_compiler_finds(n: int) -> None:
    """Just below the limit and above it: the compiler spills where, and only where, it was foretold."""
    require("cuda.bindings")
    arrays = (np.zeros((128 * n, 128 * n), np.float16),) * 2
    unit = kernel_runner.check(product, *arrays, BM=128, BN=64 * n, num_warps=4).unit()
    program = lower(unit, base.get("sm_80")).program
    kernel = program.launches[0].kernel
    settings, source = settings_for(80, False, False), CxxSource()
    e = _write_kernel(program, kernel, "product", settings, source, 2, 4)
    text = (
        "".join(f"#include <tessera/{h}.cuh>\n" for h in sorted(e.headers)) + "namespace ts = tessera;\n" + source.text
    )
    code, _ = nvrtc.compile_cubin(text, "sm_80", "product", [])
    assert bool(cubin.resources(code)["product_kernel"].stack) == (not pressure(e).fits)
