"""Results of tensor-core products stored to shared tiles: by stmatrix from sm_90 on, with the bits of word by word."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import SharedType, TileType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import cubin, host_library, nvrtc
from tessera.errors import DebugCheckError
from tessera.language import dtypes as dt
from tests.conftest import require
from tests.emulator.harness import Arg, Case, LineBuilder, build, check
from tests.emulator.warpgroup_kernels import compiled, lowered, run
from tests.together import builds

BF16, F16 = ml_dtypes.bfloat16, np.float16


@ts.kernel
def through(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["M", "N"]):
    """A product by way of a shared tile."""
    ctx = ts.tile.context()
    BM, BN = ctx.BM, ctx.BN
    s = ts.tile.alloc_shared((BM, BN), A.dtype)
    s[:] = ts.tile.cast(ts.tile.mma(A[tile_m : tile_m + BM, 0:32], B[0:32, tile_n : tile_n + BN]), A.dtype)
    ts.tile.barrier()
    C[tile_m : tile_m + BM, tile_n : tile_n + BN] = s[:]
    return C


@ts.kernel
def turned(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["N", "M"]):
    """Read back turned."""
    ctx = ts.tile.context()
    BM, BN = ctx.BM, ctx.BN
    s = ts.tile.alloc_shared((BM, BN), A.dtype)
    s[:] = ts.tile.cast(ts.tile.mma(A[tile_m : tile_m + BM, 0:32], B[0:32, tile_n : tile_n + BN]), A.dtype)
    ts.tile.barrier()
    C[tile_n : tile_n + BN, tile_m : tile_m + BM] = ts.tile.transpose(s[:])
    return C


@ts.kernel
def turning(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["N", "M"]):
    """Stored turned."""
    ctx = ts.tile.context()
    BM, BN = ctx.BM, ctx.BN
    s = ts.tile.alloc_shared((BN, BM), A.dtype)
    acc = ts.tile.mma(A[tile_m : tile_m + BM, 0:32], B[0:32, tile_n : tile_n + BN])
    s[:] = ts.tile.transpose(ts.tile.cast(acc, A.dtype))
    ts.tile.barrier()
    C[tile_n : tile_n + BN, tile_m : tile_m + BM] = s[:]
    return C


@ts.kernel
def fed(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["N", "N", ts.f32]):
    """Stored either way, then an operand of further products: P^T P and P^T (P^T)^T."""
    s, r = ts.tile.alloc_shared((64, 48), A.dtype), ts.tile.alloc_shared((48, 64), A.dtype)
    p = ts.tile.cast(ts.tile.mma(A[0:64, 0:32], B[0:32, 0:48]), A.dtype)
    s[:] = p
    r[:] = ts.tile.transpose(p)
    ts.tile.barrier()
    C[0:48, 0:48] = ts.tile.mma(r, s) - ts.tile.mma(r, r.T) * 0.5
    return C


# Whole tiles, an odd number of 8 columns, warps without rows; then rows that are not whole pieces, and a product that
# keeps off the tensor cores of sm_120.
TILES = ["64x64", "64x24", "48x40", "16x8", "128x72", "64x20", "24x32"]
CASES = [(t, w, F16) for t in TILES for w in (4, 8)] + [("64x64", 4, BF16), ("48x40", 8, BF16)]
TARGETS = "emulator:sm_90a", "emulator:sm_120"


def arguments(dtype: Any, m: int = 150, n: int = 100) -> tuple[Any, Any, Any]:
    """Operands whose products are exact in f32, so that results are rounded once, whatever the order of the sums."""
    rng = np.random.default_rng(m)
    a, b = ((rng.integers(-9, 10, s) * 0.375).astype(dtype) for s in ((m, 32), (32, n)))
    return a, b, np.zeros((m, n), dtype)


def exact(a: Any, b: Any) -> Any:
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


def sizes(tile: str, warps: int) -> dict[str, int]:
    bm, bn = map(int, tile.split("x"))
    return {"BM": bm, "BN": bn, "num_warps": warps}


def everywhere(kernel: Any, a: Any, b: Any, c: Any, **config: Any) -> list[Callable[[], Any]]:
    """What runs it on each target."""
    return [compiled(kernel, a, b, c.copy(), target=target, **config) for target in TARGETS]


@builds(lambda tile, warps, dtype: everywhere(through, *arguments(dtype), **sizes(tile, warps)))
@pytest.mark.parametrize(("tile", "warps", "dtype"), CASES)
def test_a_tile_holds_what_was_stored(tile: str, warps: int, dtype: Any, built: list[Callable[[], Any]]) -> None:
    a, b, _ = arguments(dtype)
    for result in built:
        np.testing.assert_array_equal(result(), exact(a, b))


def across(kernel: Any, dtype: Any, **config: Any) -> list[Callable[[], Any]]:
    a, b, c = arguments(dtype)
    return everywhere(kernel, a, b, c.T, **config)


@builds(lambda kernel, dtype: across(kernel, dtype, **sizes("48x40", 8)))
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("kernel", [turned, turning], ids=lambda k: k.__name__)
def test_read_back_turned(kernel: Any, dtype: Any, built: list[Callable[[], Any]]) -> None:
    a, b, _ = arguments(dtype)
    for result in built:
        np.testing.assert_array_equal(result(), exact(a, b).T)


@builds(lambda warps: everywhere(fed, *arguments(F16, 64, 48)[:2], np.zeros((48, 48), np.float32), num_warps=warps))
@pytest.mark.parametrize("warps", [4, 8])
def test_stored_for_another_product(warps: int, built: list[Callable[[], Any]]) -> None:
    a, b, _ = arguments(F16, 64, 48)
    p = exact(a, b).astype(np.float64)
    for result in built:
        np.testing.assert_allclose(result(), p.T @ p * 0.5, rtol=1e-4, atol=1e-1)


@builds(lambda tile, warps: across(turning, F16, **sizes(tile, warps)))
@pytest.mark.parametrize(("tile", "warps"), [("64x64", 4), ("128x24", 8), ("64x20", 4)])
def test_a_tile_that_is_stored_turned(tile: str, warps: int, built: list[Callable[[], Any]]) -> None:
    a, b, _ = arguments(F16)
    for result in built:
        np.testing.assert_array_equal(result(), exact(a, b).T)


def test_lanes_write_for_each_other() -> None:
    """Stored and loaded in one layout, which takes no barrier where every lane keeps to its own elements."""

    def body(t: LineBuilder, a: Value, b: Value, c: Value) -> None:
        acc = t.full((32, 32), 0.0, dt.f32)
        acc = t.value("tile.mma", [t.load(a, t.ints(0, 0), (32, 32)), t.load(b, t.ints(0, 0), (32, 32)), acc], acc.type)
        s = t.value("tile.alloc_shared", (), SharedType((32, 32), dt.f16), hint="s")
        t.op("tile.store_shared", [s, t.cast(acc, dt.f16)])
        rounded = t.value("tile.load_shared", [s], TileType((32, 32), dt.f16))
        t.store(c, t.map("sub", acc, t.cast(rounded, dt.f32)), t.ints(0, 0))

    args = [Arg("a", (32, 32), dt.f16), Arg("b", (32, 32), dt.f16), Arg("c", (32, 32), dt.f32, out=True)]
    a, b, _ = arguments(F16, 32, 32)
    left = a.astype(np.float32) @ b.astype(np.float32) - exact(a, b).astype(np.float32)
    case = Case(build("rest", args, (1,), body), {"a": a, "b": b}, {"c": left}, rtol=0, atol=0)
    for target in ("emulator:sm_80", *TARGETS):
        check(case, target=target, seeds=(0, 3))


WRONG = {
    "another row": ("row + lane % 16", "row + (lane ^ 1) % 16"),
    "halves exchanged": ("row + lane % 16", "row + (lane ^ 8) % 16"),
    "the same columns": ("L::col(k + 4, warp)", "L::col(k, warp)"),
    "a turned row": ("col + lane % 8", "col + (lane ^ 1) % 8"),
    "rows that are not aligned": ("row + lane % 16, col)", "row + lane % 16, col + 2)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    shutil.copytree(nvrtc.INCLUDE, tmp_path, dirs_exist_ok=True)
    header = tmp_path / "tessera" / "shared.cuh"
    right, wrong = WRONG[name]
    assert right in header.read_text()
    header.write_text(header.read_text().replace(right, wrong))
    monkeypatch.setattr(nvrtc, "INCLUDE", tmp_path)
    monkeypatch.setattr(nvrtc, "headers_fingerprint", nvrtc.headers_fingerprint.__wrapped__)
    monkeypatch.setattr(host_library, "_compiled_ahead", lambda *flags: [])
    a, b, _ = arguments(F16)
    with pytest.raises((AssertionError, DebugCheckError)):
        kernel, want = (turning, exact(a, b).T) if "turned" in name else (through, exact(a, b))
        got = run(kernel, a, b, np.zeros_like(want), target="emulator:sm_90a", BM=64, BN=64)
        np.testing.assert_array_equal(got, want)


def stores(arch: str, tile: str, kernel: Any = through) -> set[str]:
    """The instructions that store to shared memory, without what says where."""
    require("cuda.bindings")
    *operands, c = arguments(F16, 128, 192)
    c = c.T.copy() if kernel is turning else c
    artifact = generate(lowered(kernel, *operands, c, target=arch, **sizes(tile, 4)), base.get(arch))
    return set(re.findall(r"\bSTSM?\b[.\w]*", cubin.disassemble(artifact.files["code.cubin"])))


def test_the_instructions_are_there() -> None:
    assert stores("sm_90a", "64x64") == {"STSM.16.M88.4"}
    assert stores("sm_90a", "64x24") == {"STSM.16.M88.4", "STSM.16.M88.2"}
    assert stores("sm_90a", "64x24", turning) == {"STSM.16.MT88.4", "STSM.16.MT88.2"}
    assert "STSM.16.M88.4" in stores("sm_120", "64x64")
    for arch, tile in (("sm_80", "64x64"), ("sm_90a", "64x20")):
        assert not any(s.startswith("STSM") for s in stores(arch, tile))
