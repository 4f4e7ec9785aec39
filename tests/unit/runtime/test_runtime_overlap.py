"""Arguments that share memory: in place where a kernel has a meaning then, a diagnostic where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tessera as ts
from tessera.compiler.targets.cpu.call import executable
from tessera.errors import LaunchError
from tessera.runtime.call import straight
from tessera.runtime.call.overlaps import Extent, Overlaps
from tests.conftest import require
from tests.unit.cuda.host_cuda import GpuArray, HostGpu, gpu  # noqa: F401 - a fixture


@pytest.fixture(params=["reference", "cpu", "emulator:sm_80", "emulator:sm_90a"])
def target(request: Any, monkeypatch: Any) -> str:
    if request.param.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    return request.param


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a * x[i] + y[i]


@ts.kernel
def softmax(x: ts.Tensor["B", "M", 48, ts.f32], y: ts.Tensor["B", "M", 48, ts.f32]):
    t = x[tile_m : tile_m + 4, 0:48]
    p = ts.tile.exp(t - ts.tile.row_max(t))
    y[tile_m : tile_m + 4, 0:48] = p / ts.tile.row_sum(p)


@ts.kernel
def shifted(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n - 1:
        y[i] = x[i + 1]


@ts.kernel
def turned(x: ts.Tensor["M", "M", ts.f32], y: ts.Tensor["M", "M", ts.f32]):
    y[0:16, tile_m : tile_m + 16] = x[tile_m : tile_m + 16, 0:16].T


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    C[tile_m : tile_m + 16, tile_n : tile_n + 16] += (
        A[tile_m : tile_m + 16, tile_k : tile_k + 16] @ B[tile_k : tile_k + 16, tile_n : tile_n + 16]
    )


@ts.kernel
def both(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] + 1.0
        z[i] = x[i] + 2.0


@ts.kernel
def twice(x: ts.Tensor["M", 8192, ts.f32], y: ts.Tensor["M", 8192, ts.f32]):
    t = x[tile_m : tile_m + 4, 0:8192]
    y[tile_m : tile_m + 4, 0:8192] = t + 1.0
    y[tile_m : tile_m + 4, 0:8192] = t - ts.tile.row_max(t)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def refused(call: Any, said: str) -> None:
    with pytest.raises(LaunchError, match=said) as caught:
        call()
    (d,) = caught.value.diagnostics
    assert d.code == "TS507" and "Pass " in d.message


def test_in_place_where_programs_read_what_they_store(target: str) -> None:
    for _ in range(2):  # the second call is the repeated one
        x = numbers(3000)
        want = np.float32(2.5) * x + x
        saxpy(x, x, 2.5)
        np.testing.assert_allclose(x, want, rtol=1e-6)
        x = numbers(2, 10, 48)
        e = np.exp(x - x.max(-1, keepdims=True))
        softmax(x, x)
        np.testing.assert_allclose(x, e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_what_would_depend_on_the_order_is_refused(target: str) -> None:
    x, square = numbers(3000), numbers(16, 16)
    kept = x.copy()
    for _ in range(2):
        refused(lambda: saxpy(x[1:], x[:-1], 1.0), "overlap in part")
        refused(lambda: saxpy(x[:-1], x[1:], 1.0), "one and the same")
        refused(lambda: shifted(x, x), "x at other places than it stores to y")
        refused(lambda: turned(square, square), "other places")
        for arguments in ((square, numbers(16, 16), square), (numbers(16, 16), square, square)):
            refused(lambda a=arguments: product(*a), "stores to C")
        refused(lambda: both(numbers(3000), x, x), "stores to y, which shares memory with z")
    np.testing.assert_array_equal(x, kept)


def test_a_long_tile_is_loaded_again_after_the_first_of_two_stores(target: str) -> None:
    x = numbers(8, 8192)
    y = np.zeros_like(x)
    twice(x, y)
    np.testing.assert_array_equal(y, x - x.max(1, keepdims=True))
    refused(lambda: twice(x, x), "or again after that")


def test_neighbours_copies_and_nothing_do_not_overlap(target: str) -> None:
    x = numbers(2000)
    want = x[:1000] + x[1000:]
    for _ in range(2):
        a, b = x.copy()[:1000], x[1000:].copy()
        saxpy(a, b, 1.0)
        np.testing.assert_allclose(b, want, rtol=1e-6)
    whole = x.copy()
    saxpy(whole[:1000], whole[1000:], 1.0)
    np.testing.assert_allclose(whole[1000:], want, rtol=1e-6)
    strided = np.zeros((1000, 2), np.float32)
    strided[:, 0] = x[:1000]
    flat = strided.reshape(-1)[:1000]
    before = flat.copy()
    saxpy(strided[:, 0], flat, 1.0)  # what is not contiguous is copied first
    np.testing.assert_allclose(flat, before + x[:1000], rtol=1e-6)
    saxpy(x[:0], x[:0], 1.0)


@pytest.mark.parametrize("library", ["torch", "tensor"])
def test_other_libraries(library: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    make = torch.from_numpy if library == "torch" else ts.tensor
    for _ in range(2):
        x = numbers(3000)
        same = make(x)
        refused(lambda a=same: saxpy(a[1:], a[:-1], 1.0), "overlap in part")
        refused(lambda a=same: shifted(a, a), "other places")
        want = 3 * x
        saxpy(same, same, 2.0)
        np.testing.assert_allclose(np.asarray(same), want, rtol=1e-6)


def test_a_different_shape_at_one_address(monkeypatch: Any) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "cpu")

    @ts.kernel
    def widened(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f64]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = ts.tile.cast(x[i], ts.f64)

    raw = np.zeros(8000, np.uint8)
    refused(lambda: widened(raw[:4000].view(np.float32), raw.view(np.float64)), "stores to y")


def test_compiled_code_refuses_too() -> None:
    code = ts.compile(shifted, target="cpu")
    x = numbers(100)
    refused(lambda: code(x, x), "other places")


def test_on_a_gpu(gpu: HostGpu) -> None:  # noqa: F811
    in_place, moved = ts.kernel(saxpy.__wrapped__), ts.kernel(shifted.__wrapped__)
    x = numbers(300)
    a = gpu.put(x)
    part = GpuArray(a.host[:-4])
    rest = GpuArray(a.host[4:])
    for n in (1, 2):
        launches = len([c for c in gpu.calls if " on " in c])
        refused(lambda: moved(a, a), "other places")
        refused(lambda: in_place(part, rest, 1.0), "overlap in part")
        assert len([c for c in gpu.calls if " on " in c]) == launches
        in_place(a, a, 1.0)
        np.testing.assert_array_equal(a.get(), x * 2**n)


@ts.kernel
def many(
    x: ts.Tensor["n", ts.f32], a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], c: ts.Tensor["n", ts.f32],
    d: ts.Tensor["n", ts.f32], e: ts.Tensor["n", ts.f32], f: ts.Tensor["n", ts.f32], g: ts.Tensor["n", ts.f32],
    h: ts.Tensor["n", ts.f32],
):  # fmt: skip
    i = ts.tile.linear_id()
    if i < n:
        a[i] = x[i] + 1.0
        b[i] = x[i] + 2.0
        c[i] = x[i] + 3.0
        d[i] = x[i] + 4.0
        e[i] = x[i] + 5.0
        f[i] = x[i] + 6.0
        g[i] = x[i] + 7.0
        h[i] = x[i] + 8.0


@pytest.mark.parametrize("library", ["numpy", "torch", "tensor"])
def test_pairs_of_many_arrays(library: str, monkeypatch: Any) -> None:
    """They are compared by address, and not one by one."""
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    make = {"numpy": np.asarray, "torch": torch.from_numpy, "tensor": ts.tensor}[library]
    row = make(np.zeros(1200, np.float32))  # what lies side by side does not overlap
    x = make(numbers(100))
    for order in ([0, 1, 2, 3, 4, 5, 6, 7], [7, 3, 5, 1, 0, 2, 6, 4]):
        for _ in range(2):
            parts = [row[100 * k : 100 * k + 100] for k in order]
            many(x, *parts)
            for k, part in enumerate(parts):
                np.testing.assert_array_equal(np.asarray(part), np.asarray(x) + np.float32(k + 1))
            before = np.asarray(row).copy()
            for k in range(7):
                shifted = row[100 * order[k] + 99 : 100 * order[k] + 199]
                given = (*parts[: k + 1], shifted, *parts[k + 2 :])
                refused(lambda given=given: many(x, *given), "shares memory with")
                given = (*parts[:k], x, *parts[k + 1 :])
                refused(lambda given=given: many(x, *given), "shares memory with x")
                np.testing.assert_array_equal(np.asarray(row), before)


def test_a_step_that_changes_many_arrays(monkeypatch: Any) -> None:
    """The text of its call grows as the arrays do, and not as their pairs."""
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    monkeypatch.setattr(executable, "FAST_BYTES", -1)  # as for a program with more than that of temporaries
    sources: list[str] = []
    define = straight.define
    monkeypatch.setattr(straight, "define", lambda source, names: (sources.append(source), define(source, names))[1])

    @ts.function
    def step(state: ts.optimizers.TrainingState, x: ts.Tensor["n", ts.f32]):
        loss, gradient = ts.value_and_grad(lambda model: ts.mean(x * sum(model)))(state.model)
        state.step(gradient)
        return loss

    state = ts.optimizers.TrainingState([numbers(3) for _ in range(40)], ts.optimizers.AdamW(0.1))
    x = np.ones(3, np.float32)
    losses = [float(step(state, x)) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert sources and max(map(len, sources)) < 20_000


@pytest.mark.parametrize("quick", [True, False])
def test_arrays_at_random_places(quick: bool, monkeypatch: Any) -> None:
    """Sorted by address, with and without Python in between: what is refused is what comparing all pairs refuses."""
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    if not quick:
        monkeypatch.setattr(executable, "FAST_BYTES", -1)
    rng = np.random.default_rng(0)
    row = np.zeros(2000, np.float32)
    kernel = ts.kernel(many.__wrapped__)
    outcomes: set[bool] = set()
    for _ in range(200):
        size = int(rng.choice([1, 16, 100]))
        starts = rng.permutation(2000 // size)[:9] * size + rng.integers(0, 2, 9) * int(rng.random() < 0.3)
        starts = np.minimum(starts, 2000 - size)
        x, *stored = (row[at : at + size] for at in starts)
        apart = all(abs(int(a) - int(b)) >= size for i, a in enumerate(starts) for b in starts[:i])
        outcomes.add(apart)
        if apart:
            wanted = x.copy()
            kernel(x, *stored)
            for k, part in enumerate(stored):
                np.testing.assert_array_equal(part, wanted + np.float32(k + 1))
        else:
            refused(lambda x=x, stored=stored: kernel(x, *stored), "shares memory with")
    assert outcomes == {True, False}


def test_in_place_among_many_arrays() -> None:
    """Where arrays are gone through by address, one that a kernel may change in place is looked at once more."""
    overlaps = Overlaps([Extent(i, 8, i == 0) for i in range(40)], frozenset({(0, 3)}))
    assert not overlaps.listed
    places = [100 * i for i in range(40)]
    assert overlaps.found(places) is None
    for other, at, clash in ((3, 0, False), (3, 4, True), (4, 0, True), (39, 7, True), (39, 8, False), (5, 400, False)):
        pair = overlaps.found([*places[:other], at, *places[other + 1 :]])
        assert (pair is not None) == clash
        assert pair is None or (pair.written.slot, pair.other.slot, pair.in_place) == (0, other, other == 3)


def test_the_plan_of_a_step_lists_arrays_and_no_pairs(monkeypatch: Any) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "cpu")

    @ts.function
    def step(state: ts.optimizers.TrainingState, x: ts.Tensor["n", ts.f32]):
        loss, gradient = ts.value_and_grad(lambda model: ts.mean(x * sum(model)))(state.model)
        state.step(gradient)
        return loss

    def length(count: int) -> int:
        state = ts.optimizers.TrainingState([numbers(3) for _ in range(count)], ts.optimizers.AdamW(0.1))
        step(state, np.ones(3, np.float32))
        return len(str(step.launcher.ready.prepared.plan.aliasing))

    assert length(20) < 2.5 * length(10)
