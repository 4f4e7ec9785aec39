"""Frozen arrays: products pack them once, with the same bits; what changes is another array."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import LaunchError
from tessera.compiler.targets.cpu.kernel.constants import pack_constants
from tessera.compiler.targets.cpu.target import CpuTarget

RNG = np.random.default_rng(11)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@ts.function
def layer(x, w, b):
    return ts.gelu(x @ w + b)


@ts.function
def turned(x, w, b):
    return ts.gelu(x @ w.T + b)


@ts.function(open_dims="B")
def open_rows(x: ts.Tensor["B", "D"], w: ts.Tensor["D", "H"]):
    return x @ w


@ts.function
def bytes_product(x, w):
    return x.to(ts.int32) @ w.to(ts.int32)


SIZES = [(256, 300, 700), (3, 700, 300), (1, 256, 64), (64, 1024, 512), (40, 513, 33), (600, 200, 1100)]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.float64], ids=str)
def test_bits_are_those_of_other_arrays(dtype: Any) -> None:
    for m, k, n in SIZES:
        x, w, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype), normal(n, dtype=dtype)
        want = layer(x, w, b).tobytes()
        once, across = ts.frozen(w), ts.frozen(np.ascontiguousarray(w.T))
        for _ in range(4):  # calls that are like the last have code of their own
            result = layer(x, once, b)
            assert type(result) is np.ndarray
            assert result.tobytes() == want, (m, k, n)
        assert turned(x, across, b).tobytes() == want, (m, k, n)
        assert layer(ts.tensor(x), once, ts.frozen(b)).numpy().tobytes() == want


def test_packed_once_and_counted() -> None:
    x, w = normal(128, 512, dtype=ml_dtypes.bfloat16), ts.frozen(normal(512, 512, dtype=ml_dtypes.bfloat16))
    assert w.packed_bytes == 0
    layer(x, w, np.zeros(512, ml_dtypes.bfloat16))
    size = w.packed_bytes
    assert w.nbytes <= size <= 2 * w.nbytes + 64, "twice where no instruction takes bf16"
    layer(x[:60], w, np.zeros(512, ml_dtypes.bfloat16))
    open_rows(x, w)
    assert w.packed_bytes == size, "all these products read one layout"


def test_bytes_and_open_rows() -> None:
    x, w = (RNG.integers(-128, 128, s).astype(np.int8) for s in ((70, 515), (515, 130)))
    np.testing.assert_array_equal(bytes_product(x, ts.frozen(w)), x.astype(np.int32) @ w.astype(np.int32))
    for dtype in (np.float32, ml_dtypes.bfloat16):
        a, b = normal(40, 300, dtype=dtype), normal(300, 700, dtype=dtype)
        frozen = ts.frozen(b)
        for rows in (1, 3, 8, 16, 17, 40):
            assert open_rows(a[:rows], frozen).tobytes() == open_rows(a[:rows], b).tobytes(), rows
        assert frozen.packed_bytes > 0


def test_a_changed_weight_is_another_array() -> None:
    x, w, b = normal(256, 256), normal(256, 512), np.zeros(512, np.float32)
    frozen = ts.frozen(w)
    before = layer(x, frozen, b)
    w *= 2
    assert (layer(x, frozen, b) == before).all(), "the array that was frozen is another one"
    for factor in range(2, 6):  # each in its turn, and back again
        other = ts.frozen(w * factor)
        assert (layer(x, other, b) == layer(x, w * factor, b)).all()
        assert (layer(x, frozen, b) == before).all()
        del other
        gc.collect()
    with pytest.raises(ValueError, match="read-only"):
        frozen.numpy()[0] = 0


weights: Any = None


@ts.function
def reads_outside(x):
    return x @ weights


def test_arrays_from_outside() -> None:
    global weights
    x, w = normal(256, 256), normal(256, 512)
    for scale in (1, 2, 3):
        weights = ts.frozen(w * np.float32(scale))
        for _ in range(4):
            assert (reads_outside(x) == layer_of(x, w * np.float32(scale))).all()
        assert weights.packed_bytes > 0
    weights = w
    assert (reads_outside(x) == layer_of(x, w)).all()


@ts.function
def layer_of(x, w):
    return x @ w


@dataclass
class Model:
    first: Any
    second: Any
    scale: float

    def __call__(self, x: Any) -> Any:
        return ts.relu(x @ self.first) @ self.second * self.scale


@ts.function
def run(model, x):
    return model(x)


def test_models_are_frozen_whole() -> None:
    model = Model(normal(256, 512), normal(512, 256), 0.5)
    frozen = ts.frozen(model)
    x = normal(256, 256)
    for _ in range(4):
        assert (run(frozen, x) == run(model, x)).all()
    assert frozen.first.packed_bytes > 0
    assert frozen.scale == 0.5
    assert ts.frozen(frozen).first is frozen.first


def test_profiles_and_threads_run_the_same_code() -> None:
    x, w, b = normal(256, 256), normal(256, 512), normal(512)
    frozen = ts.frozen(w)
    want = layer(x, w, b)
    with ts.Profiler() as profile:
        assert (layer(x, frozen, b) == want).all()
    assert profile.launches


def test_memory_goes_with_the_array() -> None:
    x, b = normal(256, 256), np.zeros(512, np.float32)
    frozen = ts.frozen(normal(256, 512))
    layer(x, frozen, b)
    gone = weakref.ref(frozen)
    del frozen
    layer(x, ts.frozen(normal(256, 512)), b)
    gc.collect()
    assert gone() is None


def test_gradients_and_stores() -> None:
    x, w = normal(64, 256), ts.frozen(normal(256, 512))

    @ts.function
    def loss(x, w):
        return (x @ w).sum()

    np.testing.assert_array_equal(ts.grad(loss)(x, w), ts.grad(loss)(x, w.numpy()))

    @ts.kernel
    def clear(y: ts.Tensor["n", ts.f32]):
        y[ts.tile.linear_id()] = 0.0

    with pytest.raises(LaunchError) as error:
        clear(ts.frozen(normal(8)))
    assert "frozen arrays never change" in str(error.value)


def test_compiled_ahead_and_saved_code_packs_nothing() -> None:
    compiled = ts.compile(reads_outside_of_globals, arguments=(normal(64, 256),), target="cpu")
    assert not compiled.artifact.meta["packs"]
    x = normal(64, 256)
    assert (compiled(x) == layer_of(x, KEPT.numpy())).all()
    assert (reads_outside_of_globals(x) == layer_of(x, KEPT.numpy())).all()


KEPT = ts.frozen(normal(256, 512))


@ts.function
def reads_outside_of_globals(x):
    return x @ KEPT


@pytest.mark.parametrize("value", [3, "text", None, [1, 2]])
def test_what_holds_no_array(value: Any) -> None:
    assert ts.frozen(value) == value


def test_code_for_other_processors_packs_ahead_too() -> None:
    compiled = ts.compile(typed, target="cpu", dims={"B": 128})
    program = compiled.lowered.program
    program = replace(program, params=tuple(replace(p, constant=p.name == "w") for p in program.params))
    for level in ("avx2", "baseline"):
        target = CpuTarget(level)
        changed, packed = pack_constants(program, target.isa)
        assert [c.sizes for c in packed] == [(256, 512)]
        assert changed.launches[0].kernel is not program.launches[0].kernel


@ts.function
def typed(x: ts.Tensor["B", 256, ts.f32], w: ts.Tensor[256, 512, ts.f32]):
    return x @ w


def test_nothing_that_shares_its_memory_leaves():
    torch = pytest.importorskip("torch")
    frozen = ts.frozen(np.ones((4, 4), np.float32))
    for made in (torch.from_dlpack(frozen), torch.as_tensor(frozen), torch.asarray(frozen)):
        made.add_(1)  # PyTorch does not care that memory is read-only
    assert (np.asarray(frozen) == 1).all()
    with pytest.raises(BufferError, match="exported as a copy"):
        frozen.__dlpack__(copy=False)


def test_copies_of_models_share_what_is_frozen():
    model = ts.frozen({"w": np.ones((4, 4), np.float32)})
    assert copy.deepcopy(model)["w"] is model["w"] and copy.copy(model["w"]) is model["w"]
    again = pickle.loads(pickle.dumps(model["w"]))  # noqa: S301 (of this test)
    assert type(again) is type(model["w"]) and (np.asarray(again) == 1).all()
