"""The first minute on a GPU: each case asks one question of the hardware. `python -m benchmarks.ladder.smoke NAME`

Needs the driver, cuda-bindings, NVRTC and NumPy, nothing else. Every output starts as NaN, and arrays have guards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.ladder.products import product_bf16, product_bf16_turned, product_f16, product_f32, product_tf32_turned
from benchmarks.ladder.raw import Gpu, word
from benchmarks.ladder.runner import reporting, result

BF16 = np.dtype(ml_dtypes.bfloat16)
CASES: dict[str, Callable[[Gpu], dict[str, Any]]] = {}
RNG = np.random.default_rng(17)


class NotHere(Exception):
    """This GPU or this machine does not have what the case is about."""


def case(name: str) -> Callable[[Any], Any]:
    def add(f: Any) -> Any:
        CASES[name] = f
        return f

    return add


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def relative(got: Any, want: Any) -> float:
    """The norm of the difference over the norm of what is right; infinite for NaN."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    found = float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30))
    return found if np.isfinite(found) else float("inf")


def near(got: Any, want: Any, most: float) -> dict[str, Any]:
    error = relative(got, want)
    assert error <= most, f"relative error {error:.3g}, at most {most:.3g} was expected"
    return {"error": error}


@case("driver")
def _driver(gpu: Gpu) -> dict[str, Any]:
    x = normal(1 << 16)
    assert gpu.put(x).get().tobytes() == x.tobytes(), "what was copied to the GPU came back different"
    return {"capability": list(gpu.capability), "target": gpu.target}


@case("saxpy")
def _saxpy(gpu: Gpu) -> dict[str, Any]:
    return _saxpy_at(gpu, 0)


@case("saxpy off 16 bytes")
def _saxpy_off(gpu: Gpu) -> dict[str, Any]:
    return _saxpy_at(gpu, 4)


@ts.function
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    return x * 2 + y


def _saxpy_at(gpu: Gpu, shift: int) -> dict[str, Any]:
    x, y = normal(5003), normal(5003)
    compiled = ts.compile(saxpy, target=gpu.target)
    out = _only(compiled)
    got = gpu.run(compiled, {"x": x, "y": y, out: ((5003,), np.float32)}, dims=[5003], shift=shift)[out]
    return near(got, np.float64(x) * 2 + y, 2e-7)


def _only(compiled: Any) -> str:
    """The name of a program's one result."""
    (name,) = (b["name"] for b in compiled.artifact.meta["buffers"] if b["role"] == "output")
    return name


COPY = """
#include <tessera/tma.cuh>
namespace ts = tessera;
extern "C" __global__ void copied_kernel(const __grid_constant__ ts::TensorMap map, TYPE* out, ts::idx row,
                                         ts::idx col) {
  ts::Swizzled<TYPE, 64, COLS> tile(0);
  ts::Copies copies(64 * COLS * sizeof(TYPE));
  copies.start();
  if (ts::is_first()) tile.fetch(map, copies.expect(64 * COLS * sizeof(TYPE)), row, col);
  copies.barrier();
  for (int i = ts::hw::thread(); i < 64 * COLS; i += ts::hw::threads()) out[i] = *tile.at(i / COLS, i % COLS);
}
"""


def _copied(gpu: Gpu, x: Any, dtype: str, kind: str, row: int, col: int) -> Any:
    """A tile of 64 lines of 128 bytes, fetched by a tensor copy from (row, col) of a matrix."""
    if gpu.capability[0] != 9:
        raise NotHere("tensor copies are used on compute capability 9.0 alone")
    cols = 128 // x.itemsize
    function = gpu.kernel(COPY.replace("TYPE", kind).replace("COLS", str(cols)), "copied")
    source, out = gpu.put(x), gpu.put(np.full((64, cols), 7, x.dtype))
    places = [word(out.pointer), *(n.to_bytes(8, "little", signed=True) for n in (row, col))]
    gpu.launch(function, 1, 128, 64 * 128 + 64, gpu.tensor_map(source, dtype, (cols, 64)), *places)
    return out.get()


@case("one tensor copy")
def _tensor_copy(gpu: Gpu) -> dict[str, Any]:
    x = normal(100, 80, dtype=BF16)
    for row, col in ((0, 0), (64, 64), (-8, 8), (96, -8)):
        want = np.zeros((64, 64), BF16)
        for r in range(64):
            for c in range(64):
                if 0 <= r + row < 100 and 0 <= c + col < 80:
                    want[r, c] = x[r + row, c + col]
        assert _copied(gpu, x, "bf16", "ts::bf16", row, col).tobytes() == want.tobytes(), f"the tile at {row}, {col}"
    return {}


TIES = np.array([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11, 2 - 2**-11, 1 + 2**-11 + 2**-20, 3], np.float32)
ROUND = """
#include <tessera/memory.cuh>
extern "C" __global__ void rounded_kernel(tessera::u32* x) {
  x[tessera::hw::thread()] = tessera::hw::tf32_bits(x[tessera::hw::thread()]);
}
"""


def _ties(got: Any) -> dict[str, Any]:
    from tessera.language import dtypes
    from tessera.language.rounding import round_to

    given = np.resize(TIES, got.size).astype(np.float32)
    got, want = got.reshape(-1), round_to(given, dtypes.tf32)
    cut = (given.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    how = "to even" if np.array_equal(got, want) else "not at all" if np.array_equal(got, given) else "otherwise"
    how = "towards zero" if how == "otherwise" and np.array_equal(got, cut) else how
    assert how == "to even", f"ties go {how}: {given[:6].tolist()} became {got[:6].tolist()}"
    return {"ties": how}


@case("tf32 ties, by threads")
def _ties_by_threads(gpu: Gpu) -> dict[str, Any]:
    held = gpu.put(np.resize(TIES, 128).astype(np.float32))
    gpu.launch(gpu.kernel(ROUND, "rounded"), 1, 128, 0, word(held.pointer))
    return _ties(held.get())


@case("tf32 ties, by a tensor copy")
def _ties_by_copy(gpu: Gpu) -> dict[str, Any]:
    x = np.resize(TIES, (64, 32)).astype(np.float32)
    return _ties(_copied(gpu, x, "tf32", "ts::tf32", 0, 0))


def _product(gpu: Gpu, function: Any, m: int, n: int, k: int) -> dict[str, Any]:
    name = function.name
    numpy = BF16 if "bf16" in name else np.dtype(np.float16) if "_f16" in name else np.dtype(np.float32)
    most = 1e-2 if "bf16" in name else 2e-3 if "_f16" in name else 1e-3 if "tf32" in name else 1e-6
    x, w = normal(m, k, dtype=numpy), normal(k, n, dtype=numpy)
    compiled = ts.compile(function, target=gpu.target, dims={"M": m, "N": n, "K": k})
    out = _only(compiled)
    given = {"x": x, "w": np.ascontiguousarray(w.T) if "turned" in name else w, out: ((m, n), numpy)}
    got = gpu.run(compiled, given)[out]
    how = "wgmma" if "start_products" in compiled.source else "mma" if "ts::mma" in compiled.source else "plain"
    return {**near(got, x.astype(np.float64) @ w.astype(np.float64), most), "how": how}


for _name, _sizes in {
    "one matrix tile bf16": (product_bf16, 64, 64, 64),
    "one matrix tile f16": (product_f16, 64, 64, 64),
    "one matrix tile tf32, k inside": (product_tf32_turned, 64, 64, 64),
    "x @ w.T bf16": (product_bf16_turned, 192, 136, 200),
    "x @ w f32": (product_f32, 100, 72, 96),
    "several blocks bf16": (product_bf16, 520, 776, 328),
}.items():
    CASES[_name] = lambda gpu, s=_sizes: _product(gpu, *s)


@case("odd N")
def _odd(gpu: Gpu) -> dict[str, Any]:
    """Products of functions whose n is not a multiple of a swizzle's line, with n inside in memory and k inside."""
    wrong: dict[str, str] = {}
    for function in (product_bf16, product_bf16_turned):
        for n in (8, 24, 40, 88, 136):
            try:
                _product(gpu, function, 64, n, 64)
            except AssertionError as e:
                wrong[f"{function.name}, n={n}"] = str(e)
    assert not wrong, f"{wrong}"
    return {}


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16]) -> ts.Tensor["M", "N", ts.f32]:
    ctx = ts.tile.context()
    a = ts.tile.load(A, shape=(64, 32), prefetch=2)
    b = ts.tile.load(B, shape=(32, ctx.BN), prefetch=2)
    acc = ts.tile.zeros((64, ctx.BN), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc


@case("odd N, kernels")
def _odd_kernels(gpu: Gpu) -> dict[str, Any]:
    """The same for tiles of kernels, which are padded to less."""
    wrong: dict[str, str] = {}
    for n in (8, 24, 40, 72, 88):
        a, b = normal(64, 96, dtype=BF16), normal(96, n, dtype=BF16)
        compiled = ts.compile(product.with_config(BN=n), target=gpu.target, dims={"M": 64, "N": n, "K": 96})
        out = _only(compiled)
        got = gpu.run(compiled, {"A": a, "B": b, out: ((64, n), np.float32)})[out]
        if (error := relative(got, a.astype(np.float64) @ b.astype(np.float64))) > 1e-2:
            wrong[f"n={n}"] = f"relative error {error:.3g}"
    assert not wrong, f"{wrong}"
    return {}


@ts.function
def softmax(x: ts.Tensor["n", "m", ts.f32]):
    return ts.softmax(x, axis=-1)


@case("softmax of rows")
def _softmax(gpu: Gpu) -> dict[str, Any]:
    x = normal(33, 1021)
    compiled = ts.compile(softmax, target=gpu.target, dims={"m": 1021})
    out = _only(compiled)
    got = gpu.run(compiled, {"x": x, out: ((33, 1021), np.float32)}, dims=[33])[out]
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return near(got, e / e.sum(1, keepdims=True), 1e-6)


def main(name: str) -> None:
    """Prints how the case went; see `runner` for the words."""
    with reporting():
        try:
            gpu = Gpu()
            result("ok", **CASES[name](gpu))
        except NotHere as e:
            result("skipped", why=str(e))


if __name__ == "__main__":
    main(sys.argv[1])
