"""A function means what its text means on NumPy: control flow, calls, containers, closures."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tests.frontend_harness import agree, analysed, golden

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)
W = RNG.standard_normal((4, 4)).astype(np.float32)
SCALE = 0.5


@pytest.mark.parametrize("x", [X, -abs(X), abs(X)], ids=["mixed", "negative", "positive"])
class TestBranches:
    def test_names_of_both_paths_are_merged(self, x: np.ndarray) -> None:
        def f(x):
            y, k = x, 1.0
            if x.sum() > 0:
                y = x * 2
                k = 3.0
            elif x.sum() < -5:
                y = x - 1
            else:
                k = 4.0
            return y * k

        agree(f, x)

    def test_early_return_takes_the_rest_as_the_other_path(self, x: np.ndarray) -> None:
        def f(x, y):
            if x.sum() > 0:
                return x + y
            z = x * y
            if z.max() > 1:
                return z
            return z - 1

        agree(f, x, Y)

    def test_early_return_from_a_branch_decided_at_compile_time(self, x: np.ndarray) -> None:
        def f(x, deep):
            if deep:  # noqa: SIM102 - two statements are what is tested
                if x.sum() > 0:
                    return x * 2
            return x - 1

        agree(f, x, True)
        agree(f, x, False)

    def test_tuples_and_dicts_are_merged_item_by_item(self, x: np.ndarray) -> None:
        def f(x):
            pair, state = (x, 1), {"a": x, "b": [x, x]}
            if x.mean() > 0:
                pair = (x + 1, 1)
                state = {"a": x * 3, "b": [x, x - 1]}
            return pair[0] * pair[1] + state["a"] + state["b"][1]

        agree(f, x)

    def test_conditional_expressions_and_logic(self, x: np.ndarray) -> None:
        def f(x):
            positive = x.sum() > 0
            big = x.max() > 1
            y = x * 2 if positive and big else x / 2
            if positive or not big:
                y = y + 1
            return y if 0 < x.max() < 2 else -y

        agree(f, x)


class TestLoops:
    def test_while_over_a_tensor(self) -> None:
        def f(x):
            steps = 0
            while (x * x).sum() > 0.01:
                x = x * 0.5
                steps += 1
            return x, steps

        agree(f, X)

    def test_counted_loop_carries_what_it_changes(self) -> None:
        def f(x, n):
            total, last = 0.0, x
            for i in ts.range(1, n, 2):
                total = total + x.sum() * i
                last = last * 0.5 + i
            return total, last

        agree(f, X, 8)

    def test_a_number_takes_the_shape_the_loop_gives_it(self) -> None:
        def f(x):
            acc = 0.0
            for _ in ts.range(3):
                acc = acc + x.sum(0)
            return acc

        agree(f, X)

    def test_bound_from_a_tensor(self) -> None:
        def f(x, n):
            for i in ts.range(n.sum()):
                x = x + i
            return x

        agree(f, X, np.array([2, 3]))

    def test_branch_in_a_loop_in_a_branch(self) -> None:
        def f(x):
            if x.max() > 0:
                for i in ts.range(4):
                    if x.sum() > i:
                        x = x * 0.5
                    else:
                        x = x + 1
            return x

        agree(f, X)
        agree(f, -abs(X))

    def test_compile_time_loops_unroll(self) -> None:
        def f(x, layers):
            outs = []
            for i in range(layers):
                if i % 2:
                    continue
                x = x * (i + 1)
                outs.append(x)
                if len(outs) == 3:
                    break
            else:
                outs.append(x)
            i = 0
            while i < 3:
                outs.append(x + i)
                i += 1
            return sum(outs[1:], outs[0])

        agree(f, X, 4)
        agree(f, X, 9)

    def test_carried_containers(self) -> None:
        def f(x):
            state = {"h": x, "n": 0}
            pair = (x, x)
            for i in ts.range(3):
                state = {"h": state["h"] * 0.5 + i, "n": state["n"] + 1}
                pair = (pair[1], pair[0] + 1)
            return state["h"] * state["n"] + pair[0]

        agree(f, X)


@dataclass
class Weights:
    w: object
    b: object = 0.0

    def apply(self, x):
        return x @ self.w + self.b


class TestPython:
    def test_calls_with_every_kind_of_argument(self) -> None:
        def helper(x, *rest, scale=2.0, **options):
            y = x * scale
            for r in rest:
                y = y + r
            return y - options.get("shift", 0.0)

        def f(x, y):
            args = (x, y)
            return helper(*args, y, scale=3.0, shift=1.5) + helper(x, **{"scale": 0.5})  # noqa: PIE804

        agree(f, X, Y)

    def test_closures_lambdas_nested_functions(self) -> None:
        def f(x):
            k = 3.0

            def inner(y, power=2):
                return y**power + k

            return functools_reduce(inner, [x, x + 1])

        def functools_reduce(g, items):
            return sum((g(i) for i in items[1:]), (lambda v: g(v, power=3))(items[0]))

        agree(f, X)

    def test_comprehensions_and_unpacking(self) -> None:
        def f(x):
            rows = [x[i] * j for i, j in enumerate(range(3)) if j != 1]
            first, *others = [*rows, x[1]]
            named = {str(i): r for i, r in enumerate(others)}
            (a, b), c = (first, named["0"]), others[-1]
            return a + b * c + sum([r for _, r in zip(range(2), others, strict=False)])

        agree(f, X)

    def test_shapes_are_numbers(self) -> None:
        def f(x):
            rows, columns = x.shape
            half = columns // 2
            y = x.reshape(rows * half, -1) if rows * columns % half == 0 else x
            assert y.shape[0] == rows * half and len(y.shape) == 2
            return y / math.sqrt(columns) + max(rows, columns) + int(f"{rows:02d}")

        agree(f, X)

    def test_walrus_chained_comparisons_and_static_branches(self) -> None:
        def f(x, mode):
            if (n := x.shape[0]) > 2 and mode in ("a", "b") and 1 < n <= 3:
                return x * n
            return x if mode is None else -x

        agree(f, X, "a")
        agree(f, X, "c")

    def test_dataclasses_of_tensors(self) -> None:
        def f(x, y):
            layer = Weights(y.T)
            other = Weights(w=y.T, b=1.0)
            return layer.apply(x) + other.apply(x) * other.b

        agree(f, X, Y)

    def test_captured_arrays_are_arguments(self) -> None:
        def f(x):
            return x @ W * SCALE

        agree(f, X)
        a = analysed(f, X)
        assert a.captures[0] is W and a.capture_names == ("W",)
        assert dict(a.dependencies)["SCALE"] == "0.5"

    def test_recursion_that_ends_at_compile_time(self) -> None:
        def power(x, n):
            return x if n == 1 else x * power(x, n - 1)

        def f(x):
            return power(x, 5)

        agree(f, X)

    def test_partial_and_methods(self) -> None:
        def scaled(x, k, shift):
            return x * k + shift

        double = functools.partial(scaled, k=2.0)

        def f(x):
            return double(x, shift=1.0)

        agree(f, X)

    def test_builtins_over_tensors(self) -> None:
        def f(x, y):
            return abs(x) + max(1, 2) + sum([x, y]) + len(x), float(x.sum()) + pow(y, 2)

        agree(f, X, Y)

    def test_augmented_assignment_and_subscripts(self) -> None:
        def f(x):
            parts = [x, x]
            parts[0] = parts[0] + 1
            y = x + 0
            y *= 2
            return parts[0][1:, ::2] + y[:-1, [0, 2]], x[None, -1], x[:, ::-1], x[..., None, 1:3]

        agree(f, X)

    def test_scalars_are_passed_when_it_runs(self) -> None:
        def f(x, alpha: float, n: int):
            return x * alpha + n

        np.testing.assert_allclose(golden(f, X, 0.25, 3), X * np.float32(0.25) + 3, rtol=1e-6)
        a = analysed(f, X, 0.25, 3)
        assert [(p.name, p.shape) for p in a.params] == [("x", (3, 4)), ("alpha", None)]


class TestOptional:
    @staticmethod
    def masked(x: ts.Tensor["B", "S"], mask: ts.Tensor["B"] | None = None) -> ts.Tensor["B", "S"]:
        if mask is not None:
            x = x * mask[:, None]
        return x + 1

    def test_specialises(self) -> None:
        m = np.array([1, 0, 1], np.float32)
        np.testing.assert_allclose(golden(self.masked, X, m), X * m[:, None] + 1)
        np.testing.assert_allclose(golden(self.masked, X, None), X + 1)
        np.testing.assert_allclose(golden(self.masked, X), X + 1)


def test_two_loops_may_use_the_same_names():
    def f(x):
        a, b = x, x
        for i in ts.range(3):
            part = a * 0.5
            a = part + i
        for i in ts.range(2):
            part = b * 0.25
            b = part + a * i
        return a + b

    agree(f, np.linspace(-1, 1, 6).reshape(2, 3))


def test_loops_on_both_paths_may_use_the_same_counter():
    """Behind them nobody knows what it is: no path has to give it."""

    def f(x):
        if x.sum() > 0:
            for i in ts.range(3):
                x = x + i
        else:
            for i in ts.range(2):
                x = x * i - 1
        if x.max() > 2:
            i = 4
        else:
            i = 5
        return x * i

    for start in (-1, 1):
        agree(f, np.linspace(start, 2 * start, 6).reshape(2, 3))


def test_every_method_that_the_evaluator_declares_is_given_by_a_module() -> None:
    """Modules of `evaluate` give the evaluator its methods when the package is imported: a missing one fails late."""
    missing = [name for name in vars(Evaluator)["__annotations__"] if not callable(getattr(Evaluator, name, None))]
    assert not missing
