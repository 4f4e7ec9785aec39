"""`tessera.Tensor`: what it shares, what it computes, how it shows itself."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tessera as ts
from tessera.compiler.graph.operator import METHODS
from tessera.errors import CompileError, LaunchError, MissingDependency
from tessera.runtime.eager.tensor import Tensor

ROOT = Path(__file__).parents[3]
SMALL = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats(-8, 8, width=16))


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def target(request, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", request.param)


# Making tensors


def test_arrays_share_their_memory():
    x = np.arange(6, dtype=np.float32)
    t = ts.asarray(x)
    x[0] = 7
    assert t[0].item() == 7
    assert ts.asarray(t) is t
    assert t.numpy() is x


def test_tensor_copies():
    x = np.arange(6, dtype=np.float32)
    t = ts.tensor(x)
    x[0] = 7
    assert t[0].item() == 0


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (3, ts.int64, ()),
        (2.5, ts.f32, ()),
        (True, ts.bool, ()),
        (1j, ts.complex64, ()),
        ([[1, 2], [3, 4]], ts.int64, (2, 2)),
        ([1.5, 2], ts.f32, (2,)),
        (np.float64(2), ts.f64, ()),
        ([np.float64(2)], ts.f64, (1,)),
        ([], ts.f32, (0,)),
    ],
)
def test_python_values_get_modest_dtypes(data, dtype, shape):
    t = ts.tensor(data)
    assert (t.dtype, t.shape) == (dtype, shape)


def test_dtypes_can_be_asked_for():
    assert ts.tensor([1, 2], dtype=ts.bf16).dtype == ts.bf16
    assert ts.tensor([1, 2], dtype="f16").numpy().dtype == np.float16
    assert ts.asarray(np.zeros(2), np.float32).dtype == ts.f32
    with pytest.raises(LaunchError, match="TS501"):
        ts.tensor([1], dtype="float7")


def test_what_cannot_be_a_tensor():
    for data in ("text", [object()], {"a": 1}):
        with pytest.raises(LaunchError, match="TS501"):
            ts.tensor(data)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.float8_e4m3fn], ids=str
)
def test_torch_both_ways_without_copies(dtype):
    x = torch.ones(2, 3).to(dtype)
    t = ts.from_dlpack(x)
    assert t.numpy().ctypes.data == x.data_ptr()
    back = torch.from_dlpack(t)
    assert (back.data_ptr(), back.dtype, back.shape) == (x.data_ptr(), dtype, (2, 3))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32], ids=lambda d: np.dtype(d).name)
def test_jax_both_ways(dtype):
    x = jnp.ones((2, 3), dtype)
    t = ts.from_dlpack(x)
    assert t.numpy().ctypes.data == x.unsafe_buffer_pointer()
    assert (jnp.from_dlpack(ts.tensor(np.ones((2, 3), dtype))) == x).all()


def test_numpy_both_ways():
    t = ts.tensor([[1.0, 2.0]])
    assert np.asarray(t) is t.numpy()
    assert np.from_dlpack(t).ctypes.data == t.numpy().ctypes.data
    assert np.array(t, dtype=np.float64).dtype == np.float64
    with pytest.raises(LaunchError, match="asarray"):
        ts.from_dlpack([1, 2])


def test_devices():
    t = ts.tensor([1.0])
    assert t.device == "cpu"
    assert t.to("cpu") is t
    assert t.cpu() is t
    with pytest.raises(LaunchError, match="no device"):
        t.to("tpu")


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingDependency, match=r"tessera\[cuda\]") as caught:
        ts.tensor([1.0]).cuda()
    assert caught.value.code == "TS604"


# Operators


@settings(max_examples=15)
@given(SMALL)
def test_operators_are_numpys(x):
    t = ts.tensor(x)
    pairs = [
        (t + 1, x + 1), (1 - t, 1 - x), (t * t, x * x), (2.0 * t, 2 * x), (-t, -x), (abs(t), abs(x)), (t / 2, x / 2),
        (t > 0, x > 0), (t == t, x == x), (t != 1, x != 1), (t**2, x**2), (t.T, x.T), (t.sum(), x.sum()),
        (t.max(axis=0), x.max(axis=0)),
    ]  # fmt: skip
    for ours, theirs in pairs:
        assert isinstance(ours, Tensor)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


def test_matmul_and_its_mistakes():
    a, b = ts.tensor(np.ones((2, 3), np.float32)), ts.tensor(np.ones((3, 4), np.float32))
    assert (a @ b).shape == (2, 4)
    assert (np.ones((4, 2), np.float32) @ a).shape == (4, 3)
    with pytest.raises(CompileError) as caught:
        b @ a
    (found,) = caught.value.diagnostics
    assert found.code == "TS203"
    assert found.span.file == __file__
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[found.span.line - 1]
    assert line[found.span.col - 1 : found.span.end_col - 1] == "b @ a"


def test_numpy_on_the_left_gives_way():
    x = np.ones(3, np.float32)
    assert isinstance(x + ts.tensor(x), Tensor)
    assert isinstance(x @ ts.tensor(x), Tensor)


def test_comparisons_are_truthy_at_the_end():
    y = ts.tensor.rand((16, 16))
    assert (y == y).all()
    assert not (y != y).any()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(y == y)


def test_small_floats_stay_what_they_are():
    t = ts.tensor([1.0, 2.0, 3.0], dtype=ts.bf16)
    assert (t * 2).dtype == ts.bf16
    assert t.astype(ts.f32).dtype == ts.f32
    assert t.to(ts.f16).dtype == ts.f16
    assert t.astype(ts.bf16) is t
    assert t.tolist() == [1.0, 2.0, 3.0]


def test_every_method_of_the_definitions_is_there_and_documented():
    for name, operator in METHODS.items():
        method = getattr(Tensor, name)
        assert inspect.getdoc(method), name
        if name not in ("to", "astype"):
            assert operator.doc.splitlines()[0] in inspect.getdoc(method), name


def test_views_share_and_everything_else_does_not():
    t = ts.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    for view in (t.T, t[1:], t.reshape(3, 2), t.transpose(1, 0), t.unsqueeze(0), t.flatten(), t.permute(1, 0)):
        assert np.shares_memory(view.numpy(), t.numpy())
    assert not np.shares_memory((t + 0).numpy(), t.numpy())


def test_transposes_by_einsum_are_views():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (x, ts.asarray(x)):
        turned = ts.einsum("ij->ji", array)
        assert np.shares_memory(np.asarray(turned), x)
        np.testing.assert_array_equal(turned, x.T)
        np.testing.assert_array_equal(ts.einsum("...j->j...", array), x.T)


def test_views_that_are_not_contiguous_compute_right():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = ts.tensor(x)
    np.testing.assert_array_equal((t.T * 2).numpy(), x.T * 2)
    np.testing.assert_array_equal((t[:, ::2] + t[:, 1::2]).numpy(), x[:, ::2] + x[:, 1::2])
    assert t.T.contiguous().numpy().flags.c_contiguous


def test_indexing():
    x = np.arange(24).reshape(2, 3, 4)
    t = ts.tensor(x)
    for index in (0, (1, 2), slice(None, None, 2), (..., 1), (slice(None), [0, 2]), (0, slice(1, 3), 2)):
        np.testing.assert_array_equal(t[index].numpy(), x[index])
    np.testing.assert_array_equal(t[ts.tensor([1, 0])].numpy(), x[[1, 0]])
    np.testing.assert_array_equal(t[t > 5].numpy(), x[x > 5])
    t[0, 0] = ts.tensor([9, 9, 9, 9])
    assert t[0, 0].tolist() == [9, 9, 9, 9]
    assert [row.shape for row in t] == [(3, 4), (3, 4)]


def test_python_numbers_of_single_elements():
    assert float(ts.tensor(2.5)) == 2.5
    assert int(ts.tensor(3)) == 3
    assert complex(ts.tensor(1j)) == 1j
    assert ts.tensor([[4]]).item() == 4
    assert isinstance(ts.tensor(1.5, dtype=ts.bf16).item(), float)
    assert [10, 20, 30][ts.tensor(1)] == 20
    with pytest.raises(TypeError):
        [10, 20][ts.tensor(1.0)]
    with pytest.raises(ValueError):
        ts.tensor([1, 2]).item()


def test_empty_tensors():
    t = ts.zeros((0, 3))
    assert (t + 1).shape == (0, 3)
    assert t.sum().item() == 0
    assert t.sum(axis=0).tolist() == [0, 0, 0]
    assert len(t) == 0


def test_equal_tensors_are_still_different_keys():
    a, b = ts.tensor(1.0), ts.tensor(1.0)
    assert len({a, b}) == 2


def test_no_pickle_surprises():
    t = ts.tensor([1.0, 2.0])
    assert pickle.loads(pickle.dumps(t)).tolist() == [1.0, 2.0]  # noqa: S301


# Creation and random numbers


def test_creation_functions():
    np.testing.assert_array_equal(ts.zeros((2, 3)).numpy(), np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(ts.tensor.ones((2,)).numpy(), np.ones(2))
    np.testing.assert_array_equal(ts.full((2,), 7).numpy(), [7, 7])
    np.testing.assert_array_equal(ts.arange(5).numpy(), np.arange(5))
    np.testing.assert_array_equal(ts.tensor.eye(2).numpy(), np.eye(2))
    assert ts.empty(2, 3).shape == (2, 3)
    assert ts.tensor.empty((2, 3), dtype=ts.f16).dtype == ts.f16


def test_random_numbers_follow_the_seed():
    ts.manual_seed(7)
    first, second = ts.rand(100), ts.rand(100)
    ts.manual_seed(7)
    again = ts.tensor.rand((100,))
    assert (first == again).all()
    assert (first != second).any()
    assert (ts.randn(10, seed=1) == ts.randn(10, seed=1)).all()
    assert (ts.rand(10, seed=1) != ts.rand(10, seed=2)).any()


def test_random_bits_are_the_same_on_every_target(monkeypatch):
    drawn = []
    for target in ("reference", "cpu"):
        monkeypatch.setenv("TESSERA_TARGET", target)
        drawn.append(ts.rand(1000, seed=42).numpy())
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_distributions():
    u, n = ts.rand(4000, seed=3).numpy(), ts.randn(4000, seed=3).numpy()
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.03
    assert abs(n.mean()) < 0.08
    assert abs(n.std() - 1) < 0.05


# How it looks


def test_repr_says_values_shape_dtype_and_device():
    assert repr(ts.tensor([1.0, 2.0])) == "Tensor([1., 2.], [2] f32 on cpu)"
    assert repr(ts.tensor([[1.0]], dtype=ts.bf16)) == "Tensor([[1.]], [1, 1] bf16 on cpu)"
    assert len(repr(ts.zeros((1000, 1000)))) < 1000


def test_html_is_small_escaped_and_says_what_is_not_finite():
    assert "2 not finite" in ts.tensor([1.0, float("nan"), float("inf")])._repr_html_()
    assert len(ts.zeros((100, 100, 100))._repr_html_()) < 5000
    assert "[0, 3] f32" in ts.zeros((0, 3))._repr_html_()


def test_the_class_is_the_annotation():
    assert str(ts.Tensor["B", "S", ts.f32]) == 'Tensor["B", "S", f32]'


def test_importing_the_class_loads_no_numpy():
    code = "import sys; from tessera import Tensor; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


# Operators as functions


def test_functions_give_back_the_library_of_their_arguments():
    for value, kind in (
        (np.ones(2, np.float32), np.ndarray),
        (torch.ones(2), torch.Tensor),
        (ts.tensor([1.0, 1.0]), Tensor),
    ):
        result = ts.exp(value)
        assert isinstance(result, kind)
        np.testing.assert_allclose(np.asarray(result), np.exp(np.ones(2)), rtol=1e-6)
    assert isinstance(ts.exp(jnp.ones(2)), jnp.ndarray)
    assert ts.exp(0.0).item() == 1.0


def test_several_results_are_a_tuple():
    parts = ts.split(ts.arange(6), 3)
    assert isinstance(parts, tuple)
    assert [p.tolist() for p in parts] == [p.tolist() for p in np.split(np.arange(6), len(parts))]


def test_operators_by_name_and_by_mistake():
    x = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(ts.op.matmul(x, x), x @ x)
    assert "matmul" in dir(ts.op)
    with pytest.raises(AttributeError, match="softmax"):
        ts.op.sofmax
    with pytest.raises(LaunchError, match="TS105"):
        ts.exp(x, x, x)
    with pytest.raises(CompileError, match="TS204"):
        ts.softmax(x, axis=5)
    assert ts.softmax.__doc__.startswith("softmax(x")


def test_operands_on_the_left_may_be_numbers_of_any_size():
    x = ts.tensor([1, 2], dtype=ts.int8)
    assert (x + 1).dtype == ts.int8
    with pytest.raises(CompileError, match="TS302"):
        x + 1000


def test_the_number_of_elements_says_what_its_call_is_in_pytorch():
    x = ts.Tensor(np.ones((2, 3), np.float32))
    assert x.size == 6 and repr(x.size) == "6" and ts.zeros((x.size,)).shape == (6,)
    assert ts.function(lambda x, n: x * n)(x, x.size).tolist() == [[6.0] * 3] * 2
    with pytest.raises(ts.LaunchError, match=r"TS105(.|\n)*write x.shape\[0\] for PyTorch's x.size\(0\)"):
        x.size(0)
    with pytest.raises(ts.LaunchError, match=r"write x\.shape for"):
        x.size()
