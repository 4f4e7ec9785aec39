"""What annotations say of lists, dicts, tuples and dataclasses of tensors holds at calls, as it does in editors."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.incremental import analyse_file


@dataclass
class Pair:
    a: Tensor["D"]
    b: Tensor["D"]


class Both(NamedTuple):
    a: Tensor["D"]
    b: Tensor["D"]


class Layer(ts.nn.Module):
    w: Tensor["I", "O"]
    b: Tensor["O"] | None

    def __call__(self, x: Tensor["B", "I"]):
        return x @ self.w if self.b is None else x @ self.w + self.b


class Deep(ts.nn.Module):
    up: Layer["D", "H"]
    down: Layer["H", "D"]
    more: list[Layer]

    def __call__(self, x):
        return self.down(self.up(x))


@ts.function
def of_list(x: list[Tensor["B"]]):
    return x[0] + 1.0


@ts.function
def of_tuple(x: tuple[Tensor["B"], Tensor["B"]]):
    return x[0] + x[1]


@ts.function
def of_dict(x: dict[str, Tensor["B"]]):
    return x["a"] + 1.0


@ts.function
def of_pair(x: Pair):
    return x.a + x.b


@ts.function
def of_deep(x: Deep, y):
    return x(y)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def deep(d: int = 2, h: int = 3, back: int = 3) -> Deep:
    return Deep(Layer(ones(d, h), None), Layer(ones(back, d), ones(d)), [Layer(ones(5, 6), ones(6))])


def test_what_fits_runs():
    np.testing.assert_array_equal(of_list((ones(3),)), 2 * ones(3))
    np.testing.assert_array_equal(of_tuple([ones(3), ones(3)]), 2 * ones(3))
    np.testing.assert_array_equal(of_dict({"a": ones(3), "b": ones(3)}), 2 * ones(3))
    np.testing.assert_array_equal(of_pair(Pair(ones(3), ones(3))), 2 * ones(3))
    np.testing.assert_array_equal(of_deep(deep(), ones(1, 2)), [[7, 7]])


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (lambda: of_list(ones(2, 3)), "TS501", "x must be a tuple or list of tensors"),
        (lambda: of_list({0: ones(3)}), "TS501", "x must be a tuple or list of tensors"),
        (lambda: of_tuple(ones(2, 3)), "TS501", "x must be a tuple or list of tensors"),
        (lambda: of_dict([ones(3)]), "TS501", "x must be a dict of tensors"),
        (lambda: of_dict(ones(3)), "TS501", "x must be a dict of tensors"),
        (lambda: of_pair(ones(2, 3)), "TS501", "x must be a Pair"),
        (lambda: of_pair(Pair(ones(3), ones(2, 3))), "TS209", "x.b has 2 axes"),
        (lambda: of_pair(Pair(ones(3), ones(1))), "TS208", "D is 3 (axis 0 of x.a) and 1 (axis 0 of x.b)"),
        (lambda: of_deep(deep(back=4), ones(1, 2)), "TS208", "H is 3 (axis 1 of x.up.w) and 4 (axis 0 of x.down.w)"),
    ],
)
def test_what_does_not_fit_is_an_error_of_the_call(call, code, said):
    with pytest.raises(ts.LaunchError) as e:
        call()
    assert e.value.code == code
    assert said in str(e.value)


def test_a_method_checks_the_rank_of_what_it_reads():
    @ts.function
    def run(layer, x):
        return layer(x)

    with pytest.raises(
        ts.CompileError, match=r'self\.b of __call__ is Tensor\["O"\] \| None, a tensor \[4, 3\] is held'
    ):
        run(Layer(ones(2, 3), ones(4, 3)), ones(4, 2))


TEXT = """
    import tessera as ts
    from dataclasses import dataclass
    from typing import NamedTuple
    from tessera import Tensor

    @dataclass
    class Pair:
        a: Tensor["D"]
        b: Tensor["D"]

    class Both(NamedTuple):
        a: Tensor["D"]
        b: Tensor["D"]

    @ts.function
    def of_list(x: list[Tensor["B"]]): return x[0] + 1.0
    @ts.function
    def of_dict(x: dict[str, Tensor["B"]]): return x["a"] + 1.0
    @ts.function
    def of_pair(x: Pair): return x.a + x.b
    @ts.function
    def caller(x: Tensor[2, 3]): return CALL
"""


CALLS = [
    (
        ts.function(lambda x: of_list(x)),
        "of_list(x)",
        "x of of_list is a tuple or list of tensors, a tensor [2, 3] f32 is given",
    ),
    (
        ts.function(lambda x: of_list({"a": x[0]})),
        'of_list({"a": x[0]})',
        "x of of_list is a tuple or list of tensors, a dict is given",
    ),
    (
        ts.function(lambda x: of_dict([x[0]])),
        "of_dict([x[0]])",
        "x of of_dict is a dict of tensors, a list is given",
    ),
    (
        ts.function(lambda x: of_pair(x)),
        "of_pair(x)",
        "x of of_pair is a Pair, a tensor [2, 3] f32 is given",
    ),
    (
        ts.function(lambda x: of_pair(Pair(x[0], x))),
        "of_pair(Pair(x[0], x))",
        'x.b of of_pair is Tensor["D"], a tensor [2, 3] is given',
    ),
]


@pytest.mark.parametrize(("program", "call", "said"), CALLS, ids=[call for _, call, _ in CALLS])
def test_calls_in_texts_and_in_programs_say_the_same(program, call, said):
    text = textwrap.dedent(TEXT).replace("CALL", call)
    found = [d for a in analyse_file("file.py", text) for d in a.diagnostics if d.severity == "error"]
    assert [d.message for d in found] == [said]
    with pytest.raises(ts.CompileError) as e:
        program(ones(2, 3))
    assert [(d.code, d.message) for d in e.value.diagnostics] == [(d.code, d.message) for d in found]


RETURNED = [
    ("Pair(x[0], x[1])", None),
    ("Both(x[0], x[1])", None),
    ("Pair(x[0], x)", "field b"),
    ("Both(x, x[0])", "field a"),
    ("Pair(x[0], x[:, 0])", "field b"),
    ("x", "Expected: Pair"),
]


@pytest.mark.parametrize(("returned", "said"), RETURNED)
def test_annotated_results_are_checked_field_by_field(returned, said):
    named = returned.split("(")[0] if "(" in returned else "Pair"
    text = textwrap.dedent(TEXT).replace("CALL", returned).replace("Tensor[2, 3]):", f'Tensor["B", "D"]) -> {named}:')
    found = [d.message for a in analyse_file("file.py", text) for d in a.diagnostics if d.severity == "error"]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_sizes_that_only_a_class_names_are_its_own():
    text = textwrap.dedent(TEXT).replace("CALL", "Pair(x[0], x[1])").replace("3]):", "3]) -> Pair:")
    assert not [d for a in analyse_file("file.py", text) for d in a.diagnostics if d.severity == "error"]


def test_annotated_results_are_checked_when_programs_run():
    @ts.function
    def pair(x: Tensor["B", "D"]) -> Pair:
        return Pair(x[0], x)

    @ts.function
    def both(x: Tensor["B", "D"]) -> Both:
        return Both(x[0], x[0] * 2)

    with pytest.raises(ts.CompileError, match="field b"):
        pair(ones(2, 3))
    assert isinstance(both(ones(2, 3)), Both)


def test_a_named_tuple_comes_back_as_one():
    @ts.function
    def swapped(x: Both):
        return {"both": Both(x.b, x.a), "inner": (x, [x])}

    for _ in range(3):
        found = swapped(Both(ones(3), 2 * ones(3)))
        assert type(found["both"]) is type(found["inner"][0]) is type(found["inner"][1][0]) is Both
        np.testing.assert_array_equal(found["both"].a, 2 * ones(3))
        np.testing.assert_array_equal(found["inner"][0].a, ones(3))
    slopes = ts.grad(lambda x: ts.sum(x.a * x.b))(Both(ones(3), 2 * ones(3)))
    assert type(slopes) is Both
    np.testing.assert_array_equal(slopes.a, 2 * ones(3))
