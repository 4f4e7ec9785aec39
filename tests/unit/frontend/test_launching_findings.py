"""What is found in a function that calls a kernel, and where it is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.analyse import analyse
from tessera.errors import CompileError, LaunchError
from tests.unit.frontend.test_launching import analysed, saxpy

table = np.arange(6, dtype=np.float32)


@ts.kernel
def fours(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    assert K % 4 == 0
    i = ts.tile.linear_id()
    return x[i] * 4.0


@ts.kernel
def mistaken(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    i = ts.tile.linear_id()
    return x[i] + missing


def findings(f: Any) -> list[tuple[str, str]]:
    """Codes and the text they underline."""
    found = analyse(f.definition())
    assert found.op is None
    return [(d.code, found.definition.text.segment(d.span)) for d in found.diagnostics if d.severity == "error"]


def test_sizes_that_a_kernel_asserts() -> None:
    @ts.function
    def unknown(x: ts.Tensor["N", ts.f32]):
        return fours(x)

    @ts.function
    def known(x: ts.Tensor["N", ts.f32]):
        assert x.shape[0] % 4 == 0
        return fours(x)

    @ts.function
    def wrong(x: ts.Tensor[6, ts.f32]):
        return fours(x)

    assert [str(c.left) for c in analysed(unknown).checks] == ["N%4"]
    assert len(analysed(known).checks) == 1, "the function's own"
    assert findings(wrong) == [("TS106", "fours(x)")]
    with pytest.raises(LaunchError, match=r"fours: assert K % 4 == 0"):
        ts.compile(unknown, target="reference")(np.ones(6, np.float32))


def test_mistakes_of_the_kernel_itself_stop_the_call() -> None:
    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return mistaken(x) + 1

    with pytest.raises(CompileError, match="'missing' is not defined") as e:
        f(np.ones(4, np.float32))
    assert any("called from f" in n.message for n in e.value.diagnostics[0].notes)


def test_updates_that_nobody_would_see() -> None:
    @ts.function
    def expression(x: ts.Tensor["N", ts.f32]):
        saxpy(x, x * 2, 1.0)
        return x

    @ts.function
    def global_array(x: ts.Tensor[6, ts.f32]):
        saxpy(x, table, 1.0)
        return x

    @ts.kernel
    def both(x: ts.Tensor["K", ts.f32], y: ts.Tensor["K", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = 1.0
        y[i] = 2.0

    @ts.function
    def twice(x: ts.Tensor["N", ts.f32]):
        both(x, x)
        return x

    @ts.kernel
    def outside(x: ts.Tensor["K", ts.f32]):
        i = ts.tile.linear_id()
        table[i] = x[i]

    @ts.function
    def captured(x: ts.Tensor[6, ts.f32]):
        outside(x)
        return x

    @ts.function
    def around(x: ts.Tensor["N", ts.f32]):
        y = x * 2
        for_all = [saxpy(x, y, 1.0) for _ in range(2)]
        return y * len(for_all)

    assert findings(around) == [("TS406", "y")]
    assert "y is a variable of the code around" in analyse(around.definition()).diagnostics[0].message
    assert findings(expression) == [("TS406", "x * 2")]
    assert findings(global_array) == [("TS406", "table")]
    assert findings(twice) == [("TS406", "x"), ("TS406", "x")]
    assert findings(captured) == [("TS406", "outside(x)")]


def test_numbers_that_the_kernel_cannot_take() -> None:
    @ts.kernel
    def counted(x: ts.Tensor["K", ts.f32], n: ts.int8) -> ts.Tensor["K", ts.f32]:
        i = ts.tile.linear_id()
        return x[i] * ts.tile.cast(n, ts.f32)

    @ts.function
    def f(x: ts.Tensor["N", ts.f32], a: float):
        return counted(x, 1.5), counted(x, 300), counted(x, a), counted(x, x), counted(x, "n"), counted(x, 3)

    wrong = [("TS304", "1.5"), ("TS304", "300"), ("TS304", "a"), ("TS105", "x"), ("TS105", '"n"')]
    assert findings(f) == wrong


def test_whole_numbers_that_may_not_fit() -> None:
    @ts.kernel
    def counted(x: ts.Tensor["K", ts.f32], n: ts.int8) -> ts.Tensor["K", ts.f32]:
        i = ts.tile.linear_id()
        return x[i] * n

    @ts.function
    def wide(x: ts.Tensor["N", ts.f32], n: ts.int64):
        return counted(x, n), counted(x, n.to(ts.int8)), counted(x, x.sum().to(ts.uint8))

    @ts.function
    def cast(x: ts.Tensor["N", ts.f32], n: ts.int64):
        return counted(x, n.to(ts.int8))

    assert findings(wide) == [("TS304", "n"), ("TS304", "x.sum().to(ts.uint8)")]
    x = np.ones(5, np.float32)
    np.testing.assert_array_equal(ts.compile(cast, "reference")(x, 7), 7)


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any


def test_several_tensors_for_one_parameter() -> None:
    @ts.kernel
    def summed(xs, n: int):
        i = ts.tile.linear_id()
        total = xs[0][i]
        for k in ts.static_range(1, n):
            total = total + xs[k][i]
        return total

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return summed((x, x * 2, x[::1]), 3), summed(xs=[x], n=1)

    @ts.function
    def g(x: ts.Tensor["N", ts.f32]):
        return summed(Pair(x, x), 2)

    x = np.ones(5, np.float32)
    several, one = ts.compile(f, "reference", arguments=(x,))(x)
    np.testing.assert_array_equal(several, 4 * x)
    np.testing.assert_array_equal(one, x)
    assert findings(g) == [("TS105", "Pair(x, x)")]
