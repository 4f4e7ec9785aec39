"""The emulator's kernels and every tile op, on the GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tessera.compiler.pipeline import generate
from tessera.language import dtypes as dt
from tests.device import gpu
from tests.emulator import kernels as k
from tests.emulator import test_tile_ops as ops

for _name in [n for n in dir(ops) if n.startswith("test_")]:
    globals()[f"{_name}_on_the_gpu"] = getattr(ops, _name)  # the same tests, run through the fixture below


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "check", gpu.check)


@pytest.mark.parametrize("name", k.TYPICAL)
def test_typical_kernels(name: str) -> None:
    gpu.check(k.TYPICAL[name]())


@pytest.mark.parametrize("make", [k.softmax, k.layernorm, k.gemm, k.matmul], ids=lambda f: f.__name__)
def test_the_number_of_warps_changes_no_bit(make: Any) -> None:
    results = []
    for warps in (1, 4, 8):
        k.RNG = np.random.default_rng(5)
        results.append(gpu.check(make(warps=warps)))
    for other in results[1:]:
        assert all(other[name].tobytes() == value.tobytes() for name, value in results[0].items())


@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16, dt.f32, dt.tf32, dt.f64], ids=str)
@pytest.mark.parametrize("shape", [(512, 384, 256), (301, 211, 173)])
def test_larger_products(dtype: dt.DType, shape: tuple[int, int, int]) -> None:
    gpu.check(k.matmul(*shape, dtype=dtype, block=(64, 64)))


@pytest.mark.parametrize("causal", [True, False])
def test_larger_attention(causal: bool) -> None:
    gpu.check(k.attention(s=1024, d=64, bm=64, bn=64, warps=4, causal=causal))


def test_misaligned_arrays() -> None:
    for case in (k.saxpy(), k.softmax(), k.gemm()):
        expected = gpu.run(case)
        shifted = gpu.run(case, shift=1)
        assert all(shifted[n].tobytes() == v.tobytes() for n, v in expected.items())


def test_runs_on_the_given_stream() -> None:
    import cupy

    case = k.saxpy(n=100_000)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        np.testing.assert_allclose(gpu.run(case, stream=stream.ptr)["y"], case.expected["y"], rtol=1e-6)


def test_launches_are_captured_into_a_graph() -> None:
    import cupy

    case = k.saxpy(n=4096)
    executable = gpu.load(case)
    x, y = gpu.DeviceArray(case.inputs["x"]), gpu.DeviceArray(case.inputs["y"])
    executable.run([x.pointer, y.pointer], [case.inputs["alpha"]], [])  # loads the module, which capture does not allow
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        executable.run([x.pointer, y.pointer], [case.inputs["alpha"]], [], stream=stream.ptr)
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    alpha = np.float32(case.inputs["alpha"])
    expected = alpha * case.inputs["x"] + (alpha * case.inputs["x"] + case.inputs["y"])
    np.testing.assert_allclose(y.get(), expected, rtol=1e-6, atol=1e-6)


def test_profile_records_lie_in_the_launch() -> None:
    from types import SimpleNamespace

    case = k.softmax(rows=4096, cols=1024, block=1)
    executable = gpu.load(case, profile=True)
    seen: list[dict[str, Any]] = []
    x, y = gpu.DeviceArray(case.inputs["x"]), gpu.DeviceArray(np.zeros((4096, 1024), np.float32))
    executable.run([x.pointer, y.pointer], [], [], record=SimpleNamespace(record=seen.append))
    (columns,) = seen
    assert set(columns["tile"].tolist()) == set(range(4096))
    assert (columns["duration"] >= 0).all() and columns["duration"].max() < 1e9
    assert len(set(columns["resource"].tolist())) > 1, "a large launch runs on many multiprocessors"


def test_loops_branches_and_temporaries() -> None:
    from tests.emulator.programs import loop_program, two_step_program

    program, x, expected = two_step_program()
    a, b = gpu.DeviceArray(x), gpu.DeviceArray(np.zeros_like(x))
    compiled = gpu.target()
    compiled.load(generate(program, compiled)).run([a.pointer, b.pointer], [], [])
    np.testing.assert_allclose(b.get(), expected, rtol=1e-6)
    program, value = loop_program()
    a, b = gpu.DeviceArray(np.array([5.0], np.float32)), gpu.DeviceArray(np.zeros(1, np.float32))
    compiled.load(generate(program, compiled)).run([a.pointer, b.pointer], [], [])
    assert b.get()[0] == value


def test_debug_asserts() -> None:
    from tessera.errors import DebugCheckError
    from tests.emulator.programs import assert_program

    compiled = gpu.target()
    executable = compiled.load(generate(assert_program(), compiled, debug=True))
    with pytest.raises(DebugCheckError, match="x must be positive"):
        executable.run([gpu.DeviceArray(-np.ones(40, np.float32)).pointer], [], [])


def test_compute_sanitizer_finds_nothing() -> None:
    tool = shutil.which("compute-sanitizer")
    if not tool:
        pytest.skip("compute-sanitizer is not installed")
    imports = "from tests.device import gpu; from tests.emulator import kernels as k"
    script = f"{imports}\n[gpu.run(make()) for make in k.TYPICAL.values()]\n"
    for check in ("memcheck", "racecheck", "synccheck"):
        out = subprocess.run(
            [tool, "--tool", check, "--error-exitcode", "9", sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
        )
        assert out.returncode == 0, f"{check}: {out.stdout[-3000:]}"
