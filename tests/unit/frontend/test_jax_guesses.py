"""What a person who knows JAX, Numba or Triton writes first: it works, or the error says what to write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tessera.compiler.frontend.incremental import analyse_file

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def noisy(x, key):
    return x + ts.normal(key, x.shape)


def walked(carry, key):
    carry = carry + ts.normal(key, carry.shape)
    return carry, None


class Answer(NamedTuple):
    value: Tensor
    cache: Tensor | None = None


def test_keys_of_a_key_are_mapped_scanned_and_unpacked():
    @ts.function
    def drawn(key: ts.int64, x: Tensor["B", "D", f32]):
        mine, other = ts.split_key(key)
        last, nothing = ts.scan(walked, x[0], ts.split_key(other, 5))
        return ts.vmap(noisy)(x, ts.split_key(mine, x.shape[0])), last, nothing

    each, last, nothing = drawn(7, X)
    mine, other = ts.split_key(7)
    assert np.array_equal(each, [noisy(row, key) for row, key in zip(X, ts.split_key(mine, 2), strict=True)])
    at = X[0]
    for key in ts.split_key(other, 5):
        at = np.asarray(noisy(at, key))
    assert np.array_equal(last, at) and nothing is None


def test_none_among_results_is_given_back():
    @ts.function
    def chosen(x: Tensor["B", "D", f32], kept: bool):
        return Answer(x * 2), {"loss": ts.sum(x), "extra": x if kept else None}

    answer, named = chosen(X, False)
    assert answer.cache is None and named["extra"] is None and answer.value[1, 2] == 10 and named["loss"] == 15
    assert chosen(X, True)[1]["extra"].shape == (2, 3)
    assert ts.scan(lambda c, x: (c + x, None), X[0], X)[1] is None
    (value, aux), gradient = ts.value_and_grad(lambda x: (ts.sum(x * x), (x, None)), has_aux=True)(X)
    assert value == 55 and aux[1] is None and np.array_equal(gradient, 2 * X)

    text = (
        'import tessera as ts\nfrom tessera import Tensor\n\n@ts.function\ndef f(x: Tensor["B"]) -> tuple[Tensor["B"], '
    )
    assert analyse_file("optional.py", text + 'Tensor["B"] | None]:\n    return x, None\n')[0].ok
    (found,) = analyse_file("missing.py", text + 'Tensor["B"]]:\n    return x, None\n')[0].diagnostics
    assert found.code == "TS201" and "Received: None" in found.message


def test_leaves_of_a_tree():
    tree = [{"w": X, "b": X[0]}, (X[1], 3.0)]

    def squares(tree):
        return sum(ts.sum(leaf**2) for leaf in ts.tree_leaves(tree))

    assert ts.function(squares)(tree) == squares(tree) == (X**2).sum() * 2
    assert np.array_equal(ts.grad(squares)(tree)[0]["b"], 2 * X[0])
    with pytest.raises(ts.CompileError, match="tree_leaves takes a tree"):
        ts.function(lambda x: ts.tree_leaves())(X)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: ts.scan(walked, X, [1, 2]), r"not an int; ts\.array makes a tensor of a list of numbers"),
        (lambda: ts.vmap(lambda key: ts.normal(key, (2,)))([1, 2]), r"np\.asarray makes an array of a list of numbers"),
        (lambda: ts.jit(static_argnums=1), r"static_argnums.*leave it out: numbers annotated int"),
        (lambda: ts.jit(nopython=True), "nopython.*leave it out"),
        (lambda: ts.function(wrong=1), r"function has no parameter 'wrong'; it takes numerics= and open_dims=$"),
        (lambda: doubled[(4,)](X[0]), r"a kernel takes no grid.*call doubled\(\.\.\.\)"),
        (lambda: doubled(X[0], num_warps=4), r"Write @ts\.kernel\(num_warps=\.\.\.\) or doubled\.with_config"),
        (lambda: ts.associative_scan(max, X), r"ts\.cumsum.*ts\.scan"),
    ],
)
def test_the_error_says_what_to_write(call, said):
    with pytest.raises((ts.TesseraError, TypeError), match=said):
        call()


@ts.kernel
def doubled(x: Tensor["n", f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] * 2


@ts.kernel
def rows_by_python(
    values: Tensor["nnz", f32], columns: Tensor["nnz", ts.int32], starts: Tensor["k+1", ts.int32], x: Tensor["n", f32],
    y: Tensor["k", f32],
):  # fmt: skip
    row = ts.tile.program_id()
    total = 0.0
    for j in range(starts[row], starts[row + 1]):
        total += values[j] * x[columns[j]]
    y[row] = total


def test_pythons_range_counts_between_loaded_numbers():
    values, columns, starts = np.float32([1, 2, 3]), np.int32([0, 2, 1]), np.int32([0, 2, 2, 3])
    y = np.full(3, 9, np.float32)
    rows_by_python(values, columns, starts, np.float32([1, 10, 100]), y)
    assert y.tolist() == [201, 0, 30]


def test_one_number_needs_no_shape():
    @ts.function
    def drawn(key: ts.int64):
        return ts.uniform(key), ts.normal(key)

    one, other = drawn(3)
    assert float(one) == float(ts.uniform(3, ())) and float(other) == float(ts.normal(3))
    assert np.array_equal(ts.vmap(ts.uniform)(np.arange(3)), [float(ts.uniform(key)) for key in range(3)])


@ts.kernel
def scores(
    q: Tensor["B", "H", "S", "D", f32], k: Tensor["B", "H", "S", "D", f32], out: Tensor["B", "H", "S", "S", f32]
):
    for i in ts.tile.range(0, S, 8):
        for j in ts.tile.range(0, S, 8):
            out[..., i : i + 8, j : j + 8] = q[..., i : i + 8, :] @ k[..., j : j + 8, :].mT


@ts.kernel
def turned_around(
    q: Tensor["B", "H", "S", "D", f32], k: Tensor["B", "H", "S", "D", f32], out: Tensor["B", "H", "S", "S", f32]
):
    for i in ts.tile.range(0, S, 8):
        out[..., i : i + 8, :] = q[..., i : i + 8, :] @ k[...].T


def test_batches_of_tiles_are_turned_by_mT():
    q = np.random.default_rng(0).standard_normal((2, 3, 10, 4), np.float32)
    out = np.zeros((2, 3, 10, 10), np.float32)
    scores(q, q, out)
    np.testing.assert_allclose(out, q @ q.swapaxes(-1, -2), rtol=1e-5, atol=1e-5)
    with pytest.raises(ts.CompileError, match=r"\.T turns all axes around, \.mT the last two"):
        turned_around(q, q, out)


def test_parts_of_complex_numbers_are_attributes():
    z = np.array([1 + 2j, 3 - 1j])

    @ts.function
    def parts(z):
        return z.real, z.imag, ts.exp(1j * z.real)

    real, imag, turned = parts(z)
    assert np.array_equal(real, z.real) and np.array_equal(imag, z.imag) and np.allclose(turned, np.exp(1j * z.real))
    assert np.array_equal(ts.tensor(z).imag, np.imag(ts.tensor(z))) and np.array_equal(ts.tensor(z).real, z.real)


def nothing(x):
    x + 1


class Column:
    """As pandas' Series."""

    def to_numpy(self):
        return X[0]


@pytest.mark.parametrize(
    "f, said",
    [
        (lambda x: nothing(x) + 1, r"TypeError: unsupported operand.*; nothing returns nothing, its def has no return"),
        (lambda x: x[: len(x) / 2], r"not 1\.0; write // for /"),
        (lambda x: ts.sin([1, 2]), r"; ts\.array makes a tensor of a list"),
        (lambda x: np.array([x[0], x[1]]), r"numpy\.array cannot be called.*; use ts\.array"),
        (lambda x: np.percentile(x, 5), r"; use ts\.percentile"),
        (lambda x: x.avg(), r"'avg'; write x\.mean\(axis\)"),
    ],
)
def test_common_mistakes(f, said):
    with pytest.raises(ts.CompileError, match=said):
        ts.function(f)(X)


def test_arguments_and_annotations_that_do_not_fit():
    @ts.function
    def free(x) -> Tensor["B", "D"]:
        return x

    @ts.function
    def doubled_row(x: Tensor["N", f32]):
        return x * 2

    with pytest.raises(ts.CompileError, match=r"no parameter binds B, D: annotate the parameters with these dims"):
        free(X)
    with pytest.raises(ts.LaunchError, match=r"Received: a Column; make it one with np\.asarray\(x, np\.float32\)"):
        doubled_row(Column())


def test_what_a_compiled_function_does_not_do_is_said_at_the_call():
    @ts.function
    def shown(x):
        print("shape", x.shape)
        return x * 3

    with pytest.warns(ts.CompilationWarning, match="TS102(.|\n)*print does nothing in a compiled function") as said:
        shown(X)
    assert said[0].filename == __file__

    @ts.function
    def by_elements(x):
        total = 0.0
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                total += x[i, j]
        return total

    with pytest.warns(ts.CompilationWarning, match=r"TS112(.|\n)*ts\.range loops when the function runs"):
        assert by_elements(np.ones((40, 40), np.float32)) == 1600


class Weights(NamedTuple):
    w: ts.Tensor
    b: ts.Tensor


def test_named_tuples_have_the_methods_of_pythons():
    def f(p):
        q = p._replace(b=p.b + 1)
        return q, Weights._make([q.b, q.w]), sum(q._asdict().values()) * len(q._fields)

    given = Weights(X, 2 * X)
    for outside, inside in zip(f(given), ts.function(f)(given), strict=True):
        assert type(inside) is type(outside) and np.array_equal(inside, outside)
    with pytest.raises(ts.CompileError, match="c"):
        ts.function(lambda p: p._replace(c=p.w))(given)


NAMED = """
from typing import NamedTuple
import tessera as ts
from tessera import Tensor


class Weights(NamedTuple):
    w: Tensor["N", 3]
    b: Tensor[3]


@ts.function
def f(p: Weights):
    q = p._replace(b=p.w @ p.b)
    return q.w @ q.b, Weights._make(p), p._asdict()["w"] @ p.b, p._replace(c=1)
"""


def test_editors_know_the_methods_of_named_tuples():
    (analysis,) = analyse_file("named.py", NAMED)
    found = [(d.code, d.message) for d in analysis.diagnostics]
    assert [code for code, _ in found] == ["TS203", "TS105"], found
    assert "no field 'c'" in found[1][1]


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (lambda peers, x: peers.F.softmax(x, dim=1), "torch.softmax cannot be called with a tensor .*; use ts.softmax"),
        (lambda peers, x: peers.torch.nn.Linear(3, 3)(x), "torch.Linear cannot be called with a tensor"),
        (lambda peers, x: peers.jax.numpy.sum(x), "jax.sum cannot be called with a tensor .*; use ts.sum"),
        (lambda peers, x: peers.jax.nn.relu(x), "jax.relu cannot be called with a tensor .*; use ts.relu"),
        (lambda peers, x: peers.jax.vmap(lambda row: row)(x), "jax.vmap cannot be called with the .*; use ts.vmap"),
        (lambda peers, x: peers.jax.grad(noisy)(x, 0), "what jax makes of noisy cannot be called with a tensor"),
    ],
)
def test_functions_of_other_libraries_are_refused_where_they_are_called(guess, said):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    peers = SimpleNamespace(torch=torch, F=torch.nn.functional, jax=jax)

    with pytest.raises(ts.errors.CompileError, match=said) as e:
        ts.function(lambda x: guess(peers, x))(X)
    assert len(e.value.diagnostics) == 1 and e.value.diagnostics[0].span.file == __file__
