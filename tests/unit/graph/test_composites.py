"""Parameters that hold tensors (dataclasses, tuples, lists, dicts), and loops over sizes, in a text that is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.printer import print_op
from tessera.errors import LaunchError

HEAD = """from dataclasses import dataclass
from typing import NamedTuple
import tessera as ts
from tessera import Tensor

@dataclass
class Feed:
    up: Tensor["D", "F"]
    down: Tensor["F", "D"]
    scale: float = 1.0

class Pair(NamedTuple):
    a: Tensor["B", "D"]
    b: Tensor["B", "D"]

@dataclass
class Loop:
    weight: Tensor["D"]
    next: "Loop | None" = None

"""


INNER = """@ts.function
def inner(p: tuple[Tensor["B", "D"], Tensor["D"], Tensor["E", "D"]]):
    return p[0] + p[1], p[2]

"""


def read(parameters: str, *lines: str, head: str = "") -> Analysis:
    file = FileAnalysis("model.py")
    body = "".join(f"    {line}\n" for line in lines)
    file.update(f"{HEAD}{head}@ts.function\ndef f({parameters}):\n{body}    return y\n")
    (a,) = [a for a in file.analyses if a.name == "f"]
    return a


def shape(a: Analysis, name: str = "y") -> str:
    return [e.text for e in a.expressions if e.name == name and e.kind == "assign"][-1]


X = 'x: Tensor["B", "D"], '


@pytest.mark.parametrize(
    "parameters, line, want",
    [
        ("p: Loop", "y = x * p.weight", "[B, D] f32"),
        ("p: Feed | None", "y = x @ p.up", "[B, F] f32"),
        ('p: tuple[Tensor["D", "F"], int]', "y = x @ p[0]", "[B, F] f32"),
        ('p: list[Tensor["D", "E"]]', "y = x @ p[0]", "[B, E] f32"),
        ('p: tuple[Tensor["D", "E"], ...]', "y = x @ p[-1]", "[B, E] f32"),
        ('p: list[tuple[Tensor["D", "E"], Tensor["E"]]]', "w, b = p[0]; y = x @ w + b", "[B, E] f32"),
        ('p: dict[str, Feed]', 'y = x @ p["in"].up', "[B, F] f32"),
        ('*p: Tensor["D", "D"]', "y = sum([x @ w for w in p][:2]) if False else x @ p[0]", "[B, D] f32"),
        ('**p: Tensor["D"]', 'y = x + p["bias"]', "[B, D] f32"),
        ('p: list[Tensor["D", "E"]]', "a, b = p; y = x @ b", "[B, E] f32"),
        ('p: list[Tensor["D", "E"]]', "y = [x @ w for w in p][0]", "[B, E] f32"),
        ('p: list[Tensor["D", "E"]]', "y = [x[i] @ w for i, w in enumerate(p)][0]", "[E] f32"),
    ],
)  # fmt: skip
def test_what_a_parameter_holds(parameters: str, line: str, want: str) -> None:
    a = read(X + parameters, *line.split("; "))
    assert not a.diagnostics and a.op is None and a.undecided
    assert shape(a) == want


@pytest.mark.parametrize(
    "parameters, line, want, names",
    [
        ("p: Feed", "y = x @ p.up", "[B, F] f32", ["p.up", "p.down"]),
        ("p: Feed", "y = x @ p.up @ p.down * p.scale", "[B, D] f32", ["p.up", "p.down"]),
        ("p: Pair", "a, b = p; y = a + b", "[B, D] f32", ["p.a", "p.b"]),
        ("p: Pair", "y = x - p[1]", "[B, D] f32", ["p.a", "p.b"]),
        ('p: tuple[Tensor["D", "F"], Tensor["F"]]', "y = x @ p[0] + p[1]", "[B, F] f32", ["p.0", "p.1"]),
        ("p: tuple[Pair, Pair]", "y = p[0].a + p[1].b", "[B, D] f32", ["p.0.a", "p.0.b", "p.1.a", "p.1.b"]),
    ],
)
def test_what_is_passed_is_known_there_is_ir(parameters: str, line: str, want: str, names: list[str]) -> None:
    a = read(X + parameters, *line.split("; "))
    assert not a.diagnostics and not a.undecided and a.op is not None
    assert shape(a) == want
    assert a.op.attrs["arg_names"] == ("x", *names)
    assert "graph.func" in print_op(a.op)


class Pair(NamedTuple):
    a: Tensor["B", "D", ts.f32]
    b: Tensor["D", ts.f32]


@ts.function
def of_a_tuple(x: Tensor["B", "D", ts.f32], p: tuple[Tensor["B", "D", ts.f32], Tensor["D", ts.f32]]):
    a, b = p
    return x * a + b


@ts.function
def of_a_named_tuple(x: Tensor["B", "D", ts.f32], p: Pair):
    return x * p.a + p.b


@ts.function
def of_a_list(x: Tensor["B", "D", ts.f32], p: list[Tensor[..., "D", ts.f32]]):
    return x * p[0] + p[1]


@ts.function
def of_keywords(x: Tensor["B", "D", ts.f32], **p: Tensor[..., "D", ts.f32]):
    return x * p["a"] + p["b"]


def call(f: Any, x: Any, a: Any, b: Any) -> Any:
    """`f` on what holds `a` and `b`."""
    name = getattr(f, "name", None) or f.function.name
    if name == "of_keywords":
        return f(x, a=a, b=b)
    return f(x, Pair(a, b) if name == "of_a_named_tuple" else (a, b) if name == "of_a_tuple" else [a, b])


@pytest.mark.parametrize("f", [of_a_tuple, of_a_named_tuple, of_a_list, of_keywords], ids=lambda f: f.name)
def test_launches_check_what_is_annotated(f: Any) -> None:
    x, a, b = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(call(f, x, a, b), a + b)
    first = "p.a" if f is of_keywords else "p.0"
    with pytest.raises(LaunchError, match=f"D is 3 .axis 1 of x. and 1 .axis 1 of {first}.") as e:
        call(f, x, a[:, :1], b)
    assert e.value.code == "TS208"
    with pytest.raises(LaunchError, match="has elements of f64; convert it"):
        call(f, x, a, b.astype(np.float64))
    with pytest.raises(LaunchError, match="must be an array"):
        call(f, x, a, [1.0, 2.0, 3.0])
    if f in (of_a_tuple, of_a_named_tuple):
        with pytest.raises(LaunchError, match=r"p has 1 item\.\n *Expected: 2"):
            f(x, (a,))


@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
@pytest.mark.parametrize("f", [of_a_tuple, of_a_named_tuple], ids=lambda f: f.name)
def test_code_for_any_size_takes_tuples(f: Any, target: str) -> None:
    compiled = ts.compile(f, target=target)
    for rows, columns in ((2, 3), (5, 40)):
        x, b = np.ones((rows, columns), np.float32), np.arange(columns, dtype=np.float32)
        np.testing.assert_array_equal(call(compiled, x, x * 2, b), x * 2 + b)
    with pytest.raises(LaunchError, match=r"p\.1 is not given"):
        compiled(x, 5)


def test_inlined_functions_check_what_they_are_given() -> None:
    a = read(f'{X}w: Tensor["D", "E"]', "y = inner((x, x[0], w))", head=INNER)
    assert [(d.code, d.message) for d in a.diagnostics] == [
        ("TS208", "inner: D is D (axis 1 of p.0) and E (axis 1 of p.2)")
    ]
    a = read(f'{X}w: Tensor["D", "E"]', "y = inner((x, x[0, 0], w.T))", head=INNER)
    assert [d.code for d in a.diagnostics] == ["TS209"]
    assert not read(f'{X}w: Tensor["E", "D"]', "y = inner((x, x[0], w))", head=INNER).diagnostics


@pytest.mark.parametrize(
    "parameters, line, code",
    [
        ("p: Feed", "y = x @ p.down", "TS203"),
        ("p: Feed", "y = x @ p.upp", "TS104"),
        ('p: list[Tensor["D", "E"]]', "y = x @ p[0].T", "TS203"),
        ('p: tuple[Tensor["D"], Tensor["E"]]', "y = x + p[1]", "TS202"),
        ('p: tuple[Tensor["D"], Tensor["E"]]', "a, b, c = p; y = x", "TS105"),
        ('*p: Tensor["E"]', "y = x + p[0]", "TS202"),
    ],
)  # fmt: skip
def test_a_mistake_with_what_it_holds(parameters: str, line: str, code: str) -> None:
    a = read(X + parameters, *line.split("; "))
    assert [d.code for d in a.diagnostics] == [code]


@pytest.mark.parametrize("annotation", ["list[int]", "dict[str, float]", "list", "Unheard", "list[Unheard]", "object"])
def test_other_annotations_say_nothing(annotation: str) -> None:
    a = read(f'{X}p: "{annotation}"', "y = x @ p[0] + p.a")
    assert not a.diagnostics and a.op is None


@pytest.mark.parametrize(
    "lines, want",
    [
        (("for t in range(S):", "    y = x[:, t]"), "[B, D] f32"),
        (("for t in range(S):", "    y = x[:, t : t + 1]"), "[B, 1, D] f32"),
        (("for t in range(1, S):", "    y = x[:, t - 1] - x[:, t]"), "[B, D] f32"),
        (("for t in range(0, S, 16):", "    y = x[:, t : t + 16]"), "[B, 16, D] f32"),
        (("for t in range(S):", "    y = x[:, :t].sum(1)"), "[B, D] f32"),
        (("for row in x:", "    y = row"), "[S, D] f32"),
        (("rows = [x[:, t] for t in range(S)]", "y = rows[0]"), "[B, D] f32"),
        (("y = x.sum(1)", "for t in range(S):", "    y = y * 0.5 + x[:, t]"), "[B, D] f32"),
    ],
)
def test_loops_over_sizes(lines: tuple[str, ...], want: str) -> None:
    a = read('x: Tensor["B", "S", "D"]', *lines)
    assert not a.diagnostics and a.op is None
    assert shape(a) == want


@pytest.mark.parametrize(
    "lines, want",
    [
        (("for t in range(S):", "    y = x[:, : t + 1]"), "[B, t+1, D] f32"),
        (("for k, w in enumerate(ws):", "    y = x[:, :k] @ w"), "[B, k, D] f32"),
        (("for (k, w), v in zip(enumerate(ws), ws):", "    y = x[:, k:] @ w @ v"), "[B, S-k, D] f32"),
        (("for t in range(S):", "    y = x[:, :t]", "y = x"), "[B, S, D] f32"),
    ],
)
def test_a_counter_is_called_what_its_loop_calls_it(lines: tuple[str, ...], want: str) -> None:
    a = read('x: Tensor["B", "S", "D"], ws: list[Tensor["D", "D"]]', *lines)
    assert not a.diagnostics
    assert shape(a) == want


def test_a_counter_stays_within_its_range() -> None:
    (found,) = read('x: Tensor["B", 8]', "for t in range(8):", "    y = x[:, t + 1]").diagnostics
    assert found.code == "TS207"


def test_an_edit_of_the_class_is_seen() -> None:
    file = FileAnalysis("model.py")
    text = f"{HEAD}@ts.function\ndef f({X}p: Feed):\n    return x @ p.up\n"
    file.update(text)
    assert not file.diagnostics
    file.update(text.replace('up: Tensor["D", "F"]', 'up: Tensor["F", "D"]'))
    assert [d.code for d in file.diagnostics] == ["TS203"]


@dataclass
class Weights:
    w: np.ndarray
    b: np.ndarray


class Both(NamedTuple):
    a: np.ndarray
    b: np.ndarray


@ts.function
def difference(pair: Both):
    a, b = pair
    return pair.b - a + (b - pair[1])


def test_they_mean_the_same_when_it_runs() -> None:
    @ts.function
    def f(x: Tensor["B", "D"], p: Weights, *ws: Tensor["D", "D"]):
        for w in ws:
            x = x @ w
        total = x[0]
        for t in range(x.shape[0]):
            total = total + x[t]
        return Both(x @ p.w + p.b, total)

    x, w, b = np.ones((2, 3), np.float32), np.ones((3, 3), np.float32), np.ones(3, np.float32)
    y, total = f(x, Weights(w, b), w, w)
    np.testing.assert_allclose(np.asarray(difference(Both(x, 2 * x))), x)
    np.testing.assert_allclose(np.asarray(y), x @ w @ w @ w + b)
    np.testing.assert_allclose(np.asarray(total), 3 * (x @ w @ w)[0])
