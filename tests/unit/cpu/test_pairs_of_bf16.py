"""Loops over bf16 take two registers of f32 a step: the same bits as with narrower vectors, at any place and length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.llvm.isa import LEVELS, host
from tessera.compiler.targets.cpu.target import CpuTarget

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-40, 1.00390625, 2.0**-133]


@ts.function
def maps(x: ts.Tensor["N", ts.bf16], y: ts.Tensor["N", ts.bf16], z: ts.Tensor["N", ts.f32]):
    wide = x.to(ts.f32) * z
    drawn = ts.stochastic_cast(wide, ts.bf16, 7)
    return x * 2 + y, ts.exp(x), ts.where(x > y, x, y), wide, wide.to(ts.bf16), drawn, ts.arange(x.shape[0]).to(ts.bf16)


@ts.function
def places(x: ts.Tensor["M", "N", ts.bf16], row: ts.Tensor["N", ts.bf16]):
    return ts.relu(x[1:, 3:] + row[3:]), x[:, ::2] * x[:, 1::2], x[:, ::-1] - x[:, :1], x.T + row[:, None]


def bf16(values: Any) -> Any:
    return np.asarray(ts.asarray(np.asarray(values, np.float32)).astype(ts.bf16))


def numbers(n: int, seed: int) -> Any:
    found = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    found[: len(SPECIAL)] = SPECIAL[:n]
    return found


def bits_at(level: str, f: Any, dims: dict[str, int], arrays: list[Any], like: list[Any]) -> list[Any]:
    """The results of `f` by code for a narrower processor."""
    target, out = CpuTarget(level), [np.zeros_like(a) for a in like]
    program = ts.compile(f, target="cpu", dims=dims).lowered.program
    placed = [out[program.outputs.index(b.id)] for b in program.buffers if b.role == "output"]
    target.load(generate(program, target)).run([a.ctypes.data for a in (*arrays, *placed)], [], [])
    return out


@pytest.mark.parametrize("n", [1, 15, 16, 31, 32, 33, 64, 129, 1000])
def test_maps_have_the_bits_of_narrower_vectors(n: int) -> None:
    x, y, z = bf16(numbers(n, 0)), bf16(numbers(n, 1)[::-1]), numbers(n, 2)
    got = [np.asarray(a) for a in maps(x, y, z)]
    for level in LEVELS:
        for a, b in zip(got, bits_at(level, maps, {"N": n}, [x, y, z], got), strict=True):
            assert a.tobytes() == b.tobytes(), level
    with np.errstate(all="ignore"):
        want = bf16(bf16(2 * x.astype(np.float32)).astype(np.float32) + y.astype(np.float32))
    np.testing.assert_array_equal(got[0].astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize(("m", "n"), [(3, 36), (5, 70), (33, 64)])
def test_rows_that_begin_anywhere(m: int, n: int) -> None:
    x, row = bf16(numbers(m * n, 3).reshape(m, n)), bf16(numbers(n, 4))
    got = [np.asarray(a) for a in places(x, row)]
    for level in LEVELS:
        for a, b in zip(got, bits_at(level, places, {"M": m, "N": n}, [x, row], got), strict=True):
            assert a.tobytes() == b.tobytes(), level


@pytest.mark.skipif(not host().masks, reason="for AVX-512")
def test_a_register_of_bf16_is_moved_by_one_instruction_for_each_half() -> None:
    @ts.function
    def scaled(x: ts.Tensor["N", ts.bf16]):
        return x * 3

    text = ts.compile(scaled, target="cpu", dims={"N": 4096}).assembly
    assert "vpermw" in text and ("vpermt2w" in text or "vpermi2w" in text)
