"""`x[key] = value` in functions: NumPy's elements, in the tensor that the name stands for from there on."""

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, f64
from tessera.compiler.frontend.incremental import analyse_file

RNG = np.random.default_rng(0)
X, V = RNG.standard_normal((5, 6)), RNG.standard_normal((3, 4))
I, J = np.array([0, 2, -1]), np.array([1, 3, 1])
STORES = [
    "x[1:-1] = 0",
    "x[1:-1, 1:-1] = V",
    "x[0] = 1; x[-1] = 2; x[:, 0] = 3; x[:, -1] = 4",
    "x[2, 3] = 9; x[-1, -2] += 1",
    "x[::2] = 1; x[:, 1::2] *= 3; x[::-1] = x",
    "x[I] = V[:, :1]",
    "x[I, J] = 7; x[:, J] = 5; x[1:3, [0, 2]] = 1",
    "x[x < 0] = 0; x[x[:, 0] > 0.5] = x[1]",
    "x[1:4] += x[0:3]",
    "x[...] = 2; x[..., 2] = 1; x[1:1] = 3",
    "x[2, 1:3] -= 1; x[1:4, 2] = V[:, 0]",
    "x[0][1] = 5",
    "x[2] = np.arange(6.0); x[:, 2:4] = [[1.0, 2.0]]; x[0, :2] = [x[1, 1], 4]",
]


def written(text: str, *more: str) -> object:
    """A function of x that does this and returns x."""
    file = f"<store: {text}>"
    source = f"def f(x{''.join(f', {m}' for m in more)}):\n    {text}\n    return x\n"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"np": np, "ts": ts, "V": V, "I": I, "J": J}
    exec(compile(source, file, "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize("text", STORES)
def test_elements_are_numpys(text: str) -> None:
    f = written(text)
    given = X.copy()
    found = ts.function(f)(given)
    np.testing.assert_array_equal(found, f(X.copy()))
    np.testing.assert_array_equal(given, X)  # the caller's array does not change
    several = ts.vmap(f)(np.stack([X, X + 1]))
    np.testing.assert_array_equal(several[1], f(X + 1))


@pytest.mark.parametrize("text", [s for s in STORES if "..." not in s])
def test_derivatives(text: str) -> None:
    f = written(text)
    ts.check_grad(lambda x: ts.sum(f(x) ** 2), X)


@ts.function(open_dims="N")
def heat(u: Tensor["N", f64], rounds: ts.int64) -> Tensor["N", f64]:
    for _ in ts.range(rounds):
        u[1:-1] += 0.1 * (u[:-2] - 2 * u[1:-1] + u[2:])
    u[0], u[-1] = 0, 1
    return u


def test_loops_carry_what_they_store_to() -> None:
    for n in (5, 9):
        u = RNG.standard_normal(n)
        want = u.copy()
        for _ in range(30):
            want[1:-1] += 0.1 * (want[:-2] - 2 * want[1:-1] + want[2:])
        want[0], want[-1] = 0, 1
        np.testing.assert_allclose(heat(u, 30), want, rtol=1e-12)

    @ts.function
    def states(x: Tensor["T", "D", f64]):
        out, h = ts.zeros_like(x), x[0].copy()
        for t in ts.range(1, x.shape[0]):
            h = 0.9 * h + x[t]
            out[t] = h
        while ts.max(out) > 1:
            out[1:] *= 0.5
        return out

    want, h = np.zeros_like(X), X[0]
    for t in range(1, 5):
        h = want[t] = 0.9 * h + X[t]
    while want.max() > 1:
        want[1:] *= 0.5
    np.testing.assert_allclose(states(X), want)
    ts.check_grad(lambda x: ts.sum(states(x) ** 2), X)


def test_branches_structures_and_states() -> None:
    @ts.function
    def chosen(x, parts):
        if ts.sum(x) > 0:
            x[0] = 100
        else:
            x[1] = -100
        parts["w"][0] = 5
        parts["b"][1][1:] = 7
        return x, parts

    class Row(ts.StatefulObject):
        cells: Tensor["N", f32]

        @ts.effect("update")
        def put(self, x):
            self.cells[1:3] = x

    a = np.ones(3)
    x, parts = chosen(a, {"w": a, "b": [a, a]})
    assert x.tolist() == [100, 1, 1] and chosen(-a, {"w": a, "b": [a, a]})[0].tolist() == [-1, -100, -1]
    assert [parts["w"].tolist(), *(p.tolist() for p in parts["b"])] == [[5, 1, 1], [1, 1, 1], [1, 7, 7]]
    row = Row(ts.zeros((4,)))
    row.put(np.float32([2, 3]))
    assert row.cells.tolist() == [0, 2, 3, 0]


HEAD = "import tessera as ts\nfrom tessera import Tensor\n\ndef edge(u):\n    u[0] = 0\n\n@ts.function\n"
HEAD += 'def f(u: Tensor["N", ts.f32], v: Tensor["N", ts.int32]):\n    '


@pytest.mark.parametrize(
    "text, at, code, said",
    [
        ("edge(u)\n    return u", "u[0] = 0", "TS102", "what is stored to u is lost.*return u"),
        ("u[:] = 2 * u\n    return ts.sum(v)", "u[:]", "TS102", "what is stored to u is lost"),
        ("v[0] = u[0]\n    return v", "v[0]", "TS301", r"f32 is stored to a tensor of int32.*\.to\(ts\.int32\)"),
        ("u[1:3] = ts.ones(3)\n    return u", "u[1:3]", "TS202", r"\[3\] does not broadcast to \[min\(3, N\)-1\]"),
        ("u[u > 0] = u\n    return u", "u", "TS207", r"x = where\(mask, y, x\)"),
        ("u[:, None] = 1\n    return u", "u", "TS207", "a store cannot insert an axis"),
        ("u.T[0] = 1\n    return u", "u.T[0]", "TS102", "would not change u"),
        ("u[0] = 'a'\n    return u", "u[0]", "TS105", "a tensor or a number is stored"),
        ("(u + 1)[0] = 1\n    return u", "(u + 1)[0]", "TS102", "give it one before"),
    ],
)
def test_what_is_refused(text: str, at: str, code: str, said: str) -> None:
    source = HEAD + text + "\n"
    (found,) = (d for a in analyse_file("stores.py", source) for d in a.diagnostics)
    assert found.code == code and re.search(said, found.message), found.message
    line = source.splitlines()[found.span.line - 1]
    assert line[found.span.col - 1 :].startswith(at), line[found.span.col - 1 :]


@pytest.mark.parametrize(
    "text, keeps",
    [
        ("y = u\n    y[0] = 1\n    return u + y", "u"),
        ("y = u[1:]\n    y[:] = 0\n    return u", "u"),
        ("y = u[1:]\n    u[0] = 0\n    return u, y", "y"),
        ("kept = [v, u[1:]]\n    u[0] = 0\n    return u[1:] + kept[1]", "kept[1]"),
        ("kept = {'a': (u,)}\n    u[0] = 0\n    return u + kept['a'][0]", "kept['a'][0]"),
        ("kept = {'a': u}\n    kept['a'][0] = 0\n    return u + kept['a']", "u"),
        ("kept = [u.copy()]\n    u[0] = 0\n    return u + kept[0]", ""),
        ("kept = [u]\n    u[0] = 0\n    return u", ""),
        ("y = u.copy()\n    y[0] = 1\n    return u + y", ""),
        ("y = u[1:]\n    u[1:] = 2 * y\n    return u", ""),
        ("y = ts.sum(u[1:])\n    u[0] = 0\n    return u * y", ""),
        ("for _ in ts.range(3):\n        y = u\n        u[1:] = y[1:] + 1\n    return u", ""),
        ("for _ in ts.range(3):\n        y = u\n        u[1:] = 1\n        u = u + y\n    return u", "y"),
    ],
)
def test_other_names_of_the_same_elements_are_reported(text: str, keeps: str) -> None:
    """NumPy would change them too."""
    found = [d for a in analyse_file("stores.py", HEAD.replace("edge", "unused") + text + "\n") for d in a.diagnostics]
    assert [d.severity for d in found] == ["warning"] * bool(keeps)
    assert all(d.code == "TS102" and d.message.startswith(f"{keeps} keeps the elements that it had") for d in found)


def test_names_from_outside_are_not_stored_to() -> None:
    held = np.ones(3)

    def around(x):
        held[0] = 1
        return x + held

    with pytest.raises(ts.CompileError, match=r"TS102(.|\n)*held belongs to what is around this function"):
        ts.function(around)(np.ones(3))
