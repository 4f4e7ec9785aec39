"""Structures of tensors: dicts in any order of keys, lists, dicts and models from outside of the function."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tessera as ts
from tessera import nn

X = np.arange(1.0, 7.0).reshape(3, 2)
PARAMS = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": [np.array([1.0, 0.5]), np.array([2.0, -1.0])]}
MATRICES = np.arange(8.0).reshape(2, 2, 2)
STACKED = {"w": MATRICES}
MODEL = nn.Linear(2, 2, key=0)


def turned(c):
    """The next state, with its keys in another order than before."""
    return {"b": c["b"] * 2, "a": c["a"] + 1}


def of_scan(x):
    return ts.scan(lambda c, _: (turned(c), None), {"a": x, "b": x * 5}, length=3)[0]


def of_range(x):
    c = {"a": x, "b": x * 5}
    for _ in ts.range(3):
        c = turned(c)
    return c


def of_while(x):
    c = {"a": x, "b": x * 5}
    while ts.sum(c["a"]) < 10:
        c = turned(c)
    return c


def of_nested(x):
    last, _ = ts.scan(
        lambda c, _: (({"a": c[0]["a"] + 1, "b": c[0]["b"] * 2}, c[1]),) * 2, ({"b": x * 5, "a": x}, x), length=3
    )
    return last[0]


@pytest.mark.parametrize("f", [of_scan, of_range, of_while, of_nested])
def test_items_of_dicts_are_carried_by_their_keys(f):
    found = ts.function(f)(np.ones(2))
    times = {"of_while": 4}.get(f.__name__, 3)
    assert found["a"].tolist() == [1.0 + times] * 2 and found["b"].tolist() == [5.0 * 2**times] * 2


def other_keys(x):
    return ts.scan(lambda c, _: ({"b": c["a"], "c": c["b"]}, None), {"a": x, "b": x}, length=3)[0]


def other_name(x):
    return ts.scan(lambda c, _: ({"name": "later", "a": c["a"]}, None), {"name": "first", "a": x}, length=3)[0]["a"]


def other_keys_of_a_loop(x):
    c = {"a": x, "b": x}
    for _ in ts.range(3):
        c = {"b": c["b"], "c": c["a"]}
    return x


def deeper(x):
    c = {"a": x}
    for _ in ts.range(3):
        c = {"a": (x,)}
    return x


@pytest.mark.parametrize("f", [other_keys, other_name, other_keys_of_a_loop, deeper])
def test_what_is_carried_keeps_its_structure(f):
    with pytest.raises(ts.CompileError, match="TS212"):
        ts.function(f)(np.ones(2))


def loss(p, x):
    return ts.sum(ts.square(x @ p["w"] + p["b"][0] * p["b"][1]))


def both(p, v):
    return v @ p["w"]


def added(c, v):
    return {"w": c["w"] + v, "b": c["b"]}, None


FROM_OUTSIDE = {
    "grad": (lambda x: ts.grad(loss)(PARAMS, x), lambda x: ts.grad(loss)(PARAMS, x)),
    "jvp": (lambda x: ts.jvp(loss, (PARAMS, x), (PARAMS, x)), lambda x: ts.jvp(loss, (PARAMS, x), (PARAMS, x))),
    "tree_map": (lambda x: ts.tree_map(lambda a: a * 2, PARAMS), lambda x: ts.tree_map(lambda a: a * 2, PARAMS)),
    "vmap": (lambda x: ts.vmap(both)(STACKED, x[:2]), lambda x: np.einsum("ni,nij->nj", x[:2], MATRICES)),
    "result": (lambda x: PARAMS, lambda x: PARAMS),
    "scan": (lambda x: ts.scan(added, PARAMS, x)[0]["w"], lambda x: PARAMS["w"] + x.sum(0)),
    "model": (lambda x: ts.grad(lambda m: ts.sum(m(x.to(ts.f32))))(MODEL).bias, lambda x: np.full(2, 3.0)),
}


def lists(value):
    items = value.values() if isinstance(value, dict) else value
    return [lists(v) for v in items] if isinstance(value, (dict, list, tuple)) else np.asarray(value).tolist()


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_arrays_in_structures_from_outside_are_tensors(name):
    inside, outside = FROM_OUTSIDE[name]
    assert lists(ts.function(inside)(X)) == lists(outside(X))


def test_a_loop_carries_a_dict_from_outside():
    @ts.function
    def f(x):
        c = PARAMS
        for _ in ts.range(3):
            c = {"b": c["b"], "w": c["w"] * 2}
        return c["w"] + 0 * x[:2]

    assert f(X).tolist() == (PARAMS["w"] * 8).tolist() and PARAMS["w"][0, 0] == 1


def test_a_branch_chooses_between_a_model_from_outside_and_another_one():
    @ts.function
    def f(x):
        m = MODEL
        if ts.sum(x) > 0:
            m = ts.replace(MODEL, weight=MODEL.weight * 2)
        return m.weight

    assert np.array_equal(f(X), np.asarray(MODEL.weight) * 2) and np.array_equal(f(-X), np.asarray(MODEL.weight))


def halves(p, x):
    return {"y": p["w"] * x + p["b"], "s": (x.sum(), p["b"])}


def test_axes_of_the_parts_of_structures():
    p, x = {"w": X, "b": np.ones(2)}, X[::-1].copy()
    found = ts.vmap(halves, in_axes=({"w": 0, "b": None}, 0), out_axes={"y": 1, "s": [0, None]})(p, x)

    @ts.function
    def inside(p, x):
        return ts.vmap(halves, in_axes=({"b": None, "w": 0}, 0), out_axes={"y": 1, "s": [0, None]})(p, x)

    for got in (found, inside(p, x)):
        assert np.array_equal(got["y"], (X * x + 1).T) and np.array_equal(got["s"][0], x.sum(1))
        assert np.array_equal(got["s"][1], np.ones(2))
    models = ts.tree_map(lambda a: ts.stack([a, a * 2, a * 3]), MODEL)
    x = X.astype(np.float32)
    shared = ts.vmap(lambda m, x: m(x), in_axes=({"weight": 0, "bias": None}, 0))(models.replace(bias=MODEL.bias), x)
    wanted = np.stack([x[i] @ np.asarray(MODEL.weight) * (i + 1) + np.asarray(MODEL.bias) for i in range(3)])
    np.testing.assert_allclose(shared, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "axes", [({"w": 0}, 0), ({"w": 0, "b": None, "c": 0}, 0), ({"w": 0, "b": "x"}, 0), ((0, 1), 0)]
)
def test_axes_of_parts_that_are_not_there_are_refused(axes):
    with pytest.raises(ts.CompileError, match="TS105"):
        ts.vmap(halves, in_axes=axes)({"w": X, "b": np.ones(2)}, X)


def test_a_tensor_is_filled_with_what_a_function_computes():
    @ts.function
    def f(x, a: ts.f32):
        return ts.full((2, 3), x.max()), ts.full_like(x, x[0, 1]), ts.full((3,), a), ts.full((2, 2), x[0], ts.int32)

    found = f(X, 2.5)
    assert [v.tolist() for v in found] == [[[6.0] * 3] * 2, [[2.0] * 2] * 3, [2.5] * 3, [[1, 2]] * 2]
    assert [v.dtype for v in found] == [np.float64, np.float64, np.float32, np.int32]
    assert ts.vmap(lambda a: ts.full((2,), a))(X[:, 0]).tolist() == [[1.0] * 2, [3.0] * 2, [5.0] * 2]
    with pytest.raises(ts.CompileError, match="TS202"):
        ts.function(lambda x: ts.full((4,), x[0]))(X)


def test_tensors_in_lists_have_the_dtype_that_they_have_in_functions():
    x = ts.Tensor(np.array([1.0, 2.0, 3.0], np.float32))
    for f in (
        lambda x: ts.array([x[0], 3]),
        lambda x: ts.array([[x[0], 1], [2, x[1]]]),
        lambda x: ts.asarray([x, x]),
        lambda x: x * ts.tensor([0.5, 2, 1]),
        lambda x: x + ts.Tensor(3, dtype=ts.f32),
    ):
        outside, inside = f(x), ts.function(f)(x)
        assert outside.dtype == inside.dtype == ts.f32 and np.array_equal(outside, inside)
    assert ts.asarray([x[0], 2.5], dtype=ts.int32).tolist() == [1, 2]
    with pytest.raises(ts.CompileError, match=r"TS105[\s\S]*takes data and a dtype"):
        ts.function(lambda x: x * ts.tensor([1.0], requires_grad=True))(x)


def test_numpys_constants_are_there_inside_and_outside():
    f = lambda x: (x * ts.pi + ts.e, x - ts.inf, x * ts.nan, x[:, ts.newaxis])  # noqa: E731
    for outside, inside in zip(f(X), ts.function(f)(X), strict=True):
        np.testing.assert_allclose(inside, outside)


def test_integers_to_negative_powers_are_refused_and_floats_are_not():
    whole = ts.Tensor([2, 4])
    for f in (lambda x: x**-1, lambda x: ts.pow(x, -2)):
        for call in (f, ts.function(f)):
            with pytest.raises(ts.CompileError, match="TS301"):
                call(whole)
    assert (whole**-1.0).tolist() == [0.5, 0.25] == (whole.to(ts.f32) ** -1).tolist() and (whole**2).tolist() == [4, 16]


@dataclasses.dataclass
class Layer:
    weight: ts.Tensor
    parts: int
    scale: float = 2.0


def halved_rows(layer):
    """Needs the number of parts when it is compiled."""
    cut = ts.reshape(layer.weight, (layer.parts, -1))
    return dataclasses.replace(layer, weight=ts.reshape(cut / layer.scale, layer.weight.shape))


def a_layer_in_range(layer, n):
    for _ in ts.range(n):
        layer = halved_rows(layer)
    return layer


def a_layer_in_while(layer, n):
    i = ts.zeros((), ts.int64)
    while i < n:
        layer, i = halved_rows(layer), i + 1
    return layer


def a_scale_that_grows(layer, n):
    for _ in ts.range(n):
        layer = dataclasses.replace(halved_rows(layer), scale=layer.scale * 2)
    return layer


@pytest.mark.parametrize("loop", [a_layer_in_range, a_layer_in_while])
def test_numbers_of_a_dataclass_are_configuration_in_loops(loop):
    @ts.function
    def f(layer, n: ts.int64):
        found = loop(layer, n)
        return found, ts.tree_map(lambda a, b: a - b, found, layer)

    layer = Layer(X, 3)
    found, less = f(layer, 3)
    assert (type(found.parts), found.parts, found.scale) == (int, 3, 2.0)
    assert np.array_equal(found.weight, X / 8) and np.array_equal(less.weight, X / 8 - X)
    assert np.array_equal(ts.grad(lambda w: ts.sum(loop(Layer(w, 3), 3).weight))(X), np.full_like(X, 1 / 8))


def test_numbers_of_a_dataclass_that_a_loop_changes_are_carried():
    found = ts.function(a_scale_that_grows)(Layer(X, 3), 3)
    assert found.parts == 3 and float(found.scale) == 16.0 and np.array_equal(found.weight, X / 64)


@pytest.mark.parametrize("reps", [2, (2,), (3, 1), (2, 1, 3)])
def test_ts_tile_is_numpys_outside_of_kernels(reps):
    x = X.astype(np.float32)
    wanted = np.tile(x, reps)
    np.testing.assert_array_equal(ts.tile(x, reps), wanted)
    np.testing.assert_array_equal(ts.function(lambda x: ts.tile(x, reps=reps))(x), wanted)
    (gradient,) = ts.grad(lambda x: ts.sum(ts.tile(x, reps)), argnums=(0,))(x)
    np.testing.assert_array_equal(gradient, np.full_like(x, np.prod(reps)))
