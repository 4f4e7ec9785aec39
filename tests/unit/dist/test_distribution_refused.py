"""What cannot be distributed, and which mesh makes no sense: the place, the operator, the reason."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.dist.plan import parts_of
from tessera.errors import CompileError, LaunchError, TesseraError
from tessera.language.distribution import Mesh
from tests.unit.dist.test_distribution import RNG, C, W, X, doubled, layer, same


def refused(code: str, *said: str) -> Any:
    class Refused:
        def __enter__(self) -> None: ...

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            assert isinstance(error, TesseraError), "nothing was refused"
            assert [d.code for d in error.diagnostics] == [code], str(error)
            assert all(s in str(error) for s in said), str(error)
            return True

    return Refused()


def test_an_operator_that_needs_all_of_the_dim_is_underlined() -> None:
    @ts.distributed(2)
    def f(x: Tensor["B", "D"]):
        p = ts.cumsum(x, axis=0)
        return p * 2

    with refused("TS801", "ts.cumsum(x, axis=0)\n", "^^^^^^^^^^^^^^^^^^^^ needs all of B", "it runs along B"):
        f(X)
    assert np.isfinite(f.single(X)).all()


@pytest.mark.parametrize(
    "body, said",
    [
        (lambda x: x[1:], "takes a piece of B"),
        (lambda x: x[::-1], "reverses B"),
        (lambda x: x @ x.T, "B is on 2 axes"),
        (lambda x: ts.concat([x, x], axis=0), "one after the other along B"),
        (lambda x: ts.cumsum(x, axis=0), "runs along B"),
        (lambda x: ts.argmax(x, axis=0), "compares elements all along B"),
        (lambda x: x.take(ts.arange(3), axis=0), "anywhere along B"),
        (lambda x: x.T.reshape(-1), "varies more slowly"),
        (lambda x: ts.pad(x, ((1, 0), (0, 0))), "adds elements at the ends of B"),
        (lambda x: ts.dropout(x, 7), "draws by its position"),
        (lambda x: x + ts.arange(x.shape[0])[:, None], "counts along B"),
    ],
)  # fmt: skip
def test_reasons(body: Callable[..., Any], said: str) -> None:
    def f(x: Tensor["B", "D"]):
        return body(x)

    with refused("TS801", said):
        ts.distributed(2)(f)(X)


def test_loops_and_branches() -> None:
    @ts.distributed(3)
    def f(x: Tensor["B", "S", "D"], n: ts.int64):
        h = ts.zeros((B, D))
        for i in range(S):
            h = h * 0.5 + ts.tanh(x[:, i])
        if n > 0:
            h = h * 2
        return h

    x, one = RNG.standard_normal((7, 4, 5)).astype(np.float32), 1
    same(f(x, one), f.single(x, one))

    @ts.distributed(3)
    def g(x: Tensor["B", "D"]):
        while x.sum() > 1:
            x = x * 0.5
        return x

    with refused("TS801", "sum in line", "inside a loop or branch"):
        g(X)


def test_conditions_on_the_dim() -> None:
    @ts.distributed(2)
    def f(x: Tensor["B", "D"]):
        assert B % 4 == 0
        return x

    with refused("TS801", "it is checked that"):
        f(X[:8])


def test_a_dim_that_no_parameter_has() -> None:
    with refused("TS802", "no parameter of doubled has an axis Q; its dims are B, D"):
        ts.distributed(2, over="Q")(doubled)(X)

    @ts.distributed(2)
    def f(x: Tensor["B*S", "D"], y: Tensor["B"]):
        return x

    with refused("TS802", "which rows of x belong to one of B does not follow from B*S"):
        f(X, X[:5, 0].copy())


def test_tensors_inside_of_others_are_not_cut() -> None:
    @ts.distributed(2)
    def pair(x: Tensor["B", "D"], xs: tuple[Tensor["D"], Tensor["B"]]):
        return x * xs[1][:, None] + xs[0]

    @ts.distributed(2)
    def spread(*xs: Tensor["B", "D"]):
        return xs[0] + xs[1]

    with refused("TS802", "xs holds tensors with an axis B"):
        pair(X, (X[0], X[:, 0]))
    with refused("TS802", "xs holds tensors with an axis B", "give each of them a parameter"):
        spread(X, X)

    @ts.distributed(2)
    def others(x: Tensor["B", "D"], xs: tuple[Tensor["D"], Tensor["D"]]):
        return x * xs[0] + xs[1]

    same(others(X, (X[0], X[1])), others.single(X, (X[0], X[1])))


def test_a_number_that_depends_on_the_dim() -> None:
    @ts.distributed(2)
    def f(x: Tensor["B", "D"], n: ts.Const["B"]):
        return x

    with refused("TS802", "n is the size of B"):
        f(X, 10)

    @ts.distributed(2)
    def g(x: Tensor["B", "D"]):
        return x.reshape([B, D] if B > 4 else [B, D, 1])

    with pytest.raises(CompileError) as error:
        g(X)
    assert {d.code for d in error.value.diagnostics} <= {"TS801", "TS802"}


def test_a_part_of_another_shape() -> None:
    @ts.distributed(10)
    def f(x: Tensor["B", "D"]):
        return x.squeeze()

    with refused("TS802", "part 0:1 on cpu gives a result [16] instead of [1, 16]", "name the axes"):
        f(X)


def test_what_is_not_distributed() -> None:
    @ts.kernel
    def k(x: Tensor["n"]):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = x[i] * 2

    with refused("TS802", "k is a kernel"):
        ts.distributed(2)(k)
    with refused("TS802", "distributed already"):
        ts.distributed(2)(layer)
    with refused("TS802", "one axis, this one has data, model"):
        ts.distributed(ts.mesh(4, axes={"data": 2, "model": 2}))(doubled)
    with refused("TS105", "the name of a dim"):
        ts.distributed(2, over="B*S")


def test_the_arguments_are_checked_as_ever() -> None:
    with pytest.raises(LaunchError, match="D is 16"):
        layer(X, W[:3], C)
    with pytest.raises(LaunchError, match="missing"):
        layer(X)


# meshes


def test_meshes() -> None:
    assert ts.mesh(3).devices == (0, 1, 2) and ts.mesh(range(2)).axes == (("data", 2),)
    assert ts.mesh(["cuda:0", "cpu"], axes=("dp",)).axes == (("dp", 2),)
    assert ts.dist.mesh(devices=[f"cuda:{i}" for i in range(8)], axes=("dp", "tp"), shape=(4, 2)).axes == (
        ("dp", 4), ("tp", 2))  # fmt: skip
    assert ts.mesh() == ts.mesh(None) and ts.mesh().devices is None
    seeds = ts.dist.Mesh(axes=["dp"], devices=[0, 1, 2, 3])
    assert seeds == ts.mesh(4, axes=["dp"]) and str(seeds) == "dp=4: 0, 1, 2, 3" and ts.dist.Mesh() == ts.mesh()
    assert ts.mesh(2) == ts.mesh([0, 1]) and hash(ts.mesh(2)) == hash(ts.mesh([0, 1]))


@pytest.mark.parametrize(
    "args, said",
    [
        ({"devices": 0}, "takes a number of devices"),
        ({"devices": True}, "takes a number of devices"),
        ({"devices": []}, "takes a number of devices"),
        ({"devices": "cuda:0"}, "takes a number of devices"),
        ({"devices": ["gpu"]}, "takes a number of devices"),
        ({"devices": [-1]}, "takes a number of devices"),
        ({"devices": 8, "axes": {"a": 2, "b": 3}}, "do not hold 8 devices"),
        ({"devices": 8, "axes": ("a", "b")}, "needs one size for each"),
        ({"axes": {"a": 2}}, "a mesh of all devices"),
        ({"devices": 2, "axes": "dp"}, "a list of names"),
        ({"devices": 10**9}, "at most 65,536 devices"),
        ({"devices": itertools.count()}, "at most 65,536 devices"),
    ],
)
def test_meshes_that_make_no_sense(args: dict[str, Any], said: str) -> None:
    with refused("TS105", said):
        ts.mesh(**args)
    with refused("TS105", said):
        ts.dist.Mesh(**args)


def test_parts_are_as_equal_as_can_be() -> None:
    assert [p.size for p in parts_of(ts.mesh(4), "cpu", 10)] == [3, 3, 2, 2]
    assert [p.size for p in parts_of(ts.mesh(4), "cpu", 2)] == [1, 1]
    assert [p.size for p in parts_of(ts.mesh(4), "cpu", 0)] == [0]
    assert [p.device for p in parts_of(ts.mesh(), "cpu", 10)] == ["cpu"]


def test_a_device_that_is_not_there() -> None:
    with refused("TS605", "the mesh names cuda:97"):
        ts.distributed(ts.mesh(["cpu", "cuda:97"]))(doubled)(X)


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, tessera as ts; m = ts.mesh(2)\n"
        "@ts.distributed(m)\n@ts.function\ndef f(x: 'ts.Tensor[B]'): return x\n"
        "assert not {'numpy', 'tessera.dist', 'tessera.runtime', 'tessera.compiler'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(
    "made, said",
    [
        (
            lambda: ts.mesh(4, topology="ring"),
            "a mesh has no parameter 'topology'; how devices are wired is not used yet",
        ),
        (
            lambda: ts.mesh(devices=2, layout={"model": "shard"}),
            'one dim of the arguments, @ts.distributed(mesh, over="B")',
        ),
        (lambda: Mesh(4, axis_names=("a",)), 'axes are named with axes={"data": 8}'),
        (lambda: ts.mesh(4, devcies=2), "did you mean devices?"),
        (lambda: ts.mesh(4, colour=2), "it takes devices, axes, shape"),
        (lambda: ts.distributed(2, axis="B"), "distributed has no parameter 'axis'"),
        (lambda: ts.distributed(2, ovr="B"), "did you mean over?"),
    ],
)
def test_keywords_that_nobody_takes(made: Callable[[], Any], said: str) -> None:
    with refused("TS105", said, "test_distribution_refused.py:", "^^^^"):
        made()
