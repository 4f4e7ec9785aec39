"""Dataclasses in texts: whose sizes are whose, across classes and their methods."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import analyse_file

HEAD = """
    from __future__ import annotations
    from dataclasses import dataclass
    import tessera as ts
    from tessera import Tensor

    @dataclass
    class Linear:
        weight: Tensor["In", "Out"]
        bias: Tensor["Out"] | None = None

        def __call__(self, x: Tensor["...", "In"]) -> Tensor["...", "Out"]:
            y = x @ self.weight
            return y if self.bias is None else y + self.bias

    @dataclass
    class Network:
        up: Linear["D", "H"]
        down: Linear["H", "D"]
        same: list[Linear["D", "D"]]
        other: Linear
        several: list[Linear]
"""


def found(body: str, head: str = HEAD) -> list[tuple[str, str]]:
    text = textwrap.dedent(head) + textwrap.dedent(body)
    return [(d.code, d.message) for a in analyse_file("file.py", text) for d in a.diagnostics if d.severity == "error"]


def types(body: str) -> dict[str, str]:
    text = textwrap.dedent(HEAD) + textwrap.dedent(body)
    return {e.name: e.text for a in analyse_file("file.py", text) for e in a.expressions if e.kind == "assign"}


def test_sizes_that_are_given_meet():
    body = """
    @ts.function
    def f(n: Network, x: Tensor["B", "D"]):
        h = n.up(x)
        y = n.down(h)
        for layer in n.same:
            y = layer(y)
        return y + x
    """
    assert found(body) == []
    assert types(body)["h"] == "[B, H] f32" and types(body)["y"] == "[B, D] f32"


@pytest.mark.parametrize("line, code, said", [
    ("n.down(x)", "TS208", "n.down: Linear expects H features, got D"),
    ("n.up(x) + x", "TS202", "[B, H] and [B, D] do not broadcast: H meets D at axis -1"),
    ("n.up.weight @ n.up.weight", "TS203", "[D, H] @ [D, H]: contracted dimensions H and D differ"),
])  # fmt: skip
def test_sizes_that_do_not_meet(line, code, said):
    body = f"""
    @ts.function
    def f(n: Network, x: Tensor["B", "D"]):
        return {line}
    """
    assert [(c, m.partition("\n")[0]) for c, m in found(body)] == [(code, said)]


def test_of_sizes_that_are_not_given_nothing_is_known():
    body = """
    @ts.function
    def f(n: Network, x: Tensor["B", "D"]):
        y = n.other(x)
        for layer in n.several:
            y = layer(y)
        return y
    """
    assert found(body) == []
    assert types(body)["y"] == "[B, Out] f32"


def test_those_of_a_parameter_are_the_functions():
    body = """
    @ts.function
    def f(layer: Linear, x: Tensor["B", "Out"]):
        return layer(x)
    """
    assert [c for c, _ in found(body)] == ["TS208"]


def test_as_many_sizes_as_there_are_names():
    body = """
    @ts.function
    def f(layer: Linear["D"], x: Tensor["B", "D"]):
        return layer(x)
    """
    assert ("TS211", "Linear names 2 sizes (In, Out), not 1") in found(body)


def test_numbers_and_expressions():
    body = """
    @ts.function
    def f(layer: Linear["2*D", 4], x: Tensor["B", "2*D"]):
        return layer(x)
    """
    assert found(body) == []
    text = body.replace("return layer(x)", "y = layer(x)\n        return y")
    assert types(text)["y"] == "[B, 4] f32"


def methods(body: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Types of names, and findings, in a text of classes alone."""
    text = textwrap.dedent(HEAD) + textwrap.dedent(body)
    analyses = [a for a in analyse_file("file.py", text) if a.definition.owner is not None]
    shown = {e.name: e.text for a in analyses for e in a.expressions if e.kind in ("assign", "param")}
    return shown, [(d.code, d.message.partition("\n")[0]) for a in analyses for d in a.diagnostics]


def test_a_method_is_looked_at_without_a_call():
    shown, said = methods("")
    assert shown["y"] == "[..., Out] f32" and shown["x"] == "[..., In] f32" and said == []


def test_its_shapes_are_checked():
    body = """
    @dataclass
    class Wrong:
        w: Tensor["A", "B"]

        def __call__(self, x: Tensor["N", "B"]):
            return x @ self.w
    """
    assert methods(body)[1] == [("TS203", "[N, B] @ [A, B]: contracted dimensions B and A differ")]


def test_a_method_that_python_runs_is_left_alone():
    body = """
    @dataclass
    class Saved:
        w: Tensor["A", "B"]

        def save(self, x: Tensor["A"], path: str):
            with open(path, "wb") as file:
                file.write(x.tobytes())

        def plain(self, path):
            raise OSError(path)
    """
    assert methods(body)[1] == []


def test_a_field_that_changes_is_seen():
    from tessera.compiler.frontend.incremental import FileAnalysis

    text = textwrap.dedent(HEAD)
    file = FileAnalysis("file.py")
    file.update(text)
    file.update(text.replace('weight: Tensor["In", "Out"]', 'weight: Tensor["Out", "In"]'))
    assert any(d.code == "TS203" for d in file.diagnostics)


LAYERS = """
    from __future__ import annotations
    import tessera as ts
    from tessera import Tensor, nn

    class Network(nn.Module):
        up: nn.Linear["D", "H"]
        norm: nn.LayerNorm["D"]
        down: nn.Linear["H", "D"]

        def __call__(self, x: Tensor["B", "D"]) -> Tensor["B", "D"]:
            h = ts.gelu(self.up(self.norm(x)))
            return self.down(h)

    class Deep(Network):
        last: nn.Linear["D", "E"]

        def __call__(self, x: Tensor["B", "D"]) -> Tensor["B", "E"]:
            return self.last(ts.relu(self.down(self.up(x))))

    @ts.function
    def f(n: Network, x: Tensor["B", "D"]):
        y = n(x)
        return y
"""


def test_modules_of_the_library():
    analyses = analyse_file("file.py", textwrap.dedent(LAYERS))
    assert [d.message for a in analyses for d in a.diagnostics] == []
    shown = {e.name: e.text for a in analyses for e in a.expressions if e.kind == "assign"}
    assert shown == {"h": "[B, H] f32", "y": "[B, D] f32"}


@pytest.mark.parametrize("right, wrong", [
    ("return self.down(h)", "return self.down(x)"),
    ("self.last(ts.relu(self.down(self.up(x))))", "self.last(self.up(x))"),
])  # fmt: skip
def test_a_mistake_between_modules_of_the_library(right, wrong):
    assert {c for c, _ in found("", LAYERS.replace(right, wrong))} == {"TS208"}


def test_numbers_and_properties_of_a_dataclass():
    body = """
    @dataclass
    class Norm:
        weight: Tensor["D"]
        eps: float = 1e-5
        heads: int = 4

        @property
        def twice(self):
            return self.eps * 2

        def __call__(self, x: Tensor["B", "S", "D"]):
            y = ts.layer_norm(x, self.weight, eps=self.twice) * self.eps
            z = y.reshape(y.shape[0], y.shape[1], self.heads, y.shape[2] // self.heads)
            return z
    """
    shown, said = methods(body)
    assert said == [] and shown["y"] == "[B, S, D] f32" and shown["z"] == "[B, S, heads, D//(heads)] f32"


def test_settings_that_operators_must_know_are_open_in_a_text():
    body = """
    @dataclass
    class Pool:
        weight: Tensor["C"]
        size: int
        groups: int

        def __call__(self, x: Tensor["B", "C", "H", "W"]):
            pooled = ts.max_pool2d(x, self.size)
            normed = ts.group_norm(x, self.groups, self.weight)
            mean = ts.avg_pool2d(x, x.shape[2:])
            wrong = ts.max_pool2d(x, "2")
            parts = ts.unbind(x, 2), x[:, :, -1::-1], x[:, :, :: self.size]
            return ts.split(x, self.groups, axis=1), ts.cumsum(x, axis=self.size), pooled, mean
    """
    shown, said = methods(body)
    assert shown["normed"] == "[B, C, H, W] f32" and "pooled" not in shown and "mean" not in shown
    assert said == [("TS213", "kernel_size must be an integer known at compile time, not '2'")]


def test_a_kernel_whose_size_is_a_name_is_no_mistake():
    text = """
    import tessera as ts
    from tessera import Tensor

    @ts.function
    def f(x: Tensor["B", "C", "H", "W"], w: Tensor["O", "C", "K", "K"]):
        return ts.conv2d(x, w)
    """
    assert [list(a.diagnostics) for a in analyse_file("file.py", textwrap.dedent(text))] == [[]]


def test_what_an_operator_must_know_needs_sizes():
    @ts.function
    def mean(x: Tensor["B", "C", "H", "W", ts.f32]):
        return ts.avg_pool2d(x, x.shape[2:]), ts.group_norm(x, x.shape[1])

    x = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
    with pytest.raises(ts.CompileError, match=r"(?s)TS502.*kernel_size must be an integer known .* not H"):
        ts.compile(mean)
    for found in (mean(x), ts.compile(mean, dims={"H": 4, "W": 4})(x)):
        np.testing.assert_array_equal(found[0], x.mean((2, 3), keepdims=True))
        np.testing.assert_allclose(np.asarray(found[1]).mean((2, 3)), 0, atol=1e-6)


def test_a_name_that_the_library_does_not_have():
    from tessera.compiler.frontend.incremental import FileAnalysis

    file = FileAnalysis("file.py")
    file.update(textwrap.dedent(LAYERS).replace("nn.LayerNorm", "nn.LayerNrm"))
    assert any(d.code == "TS104" and "LayerNorm" in d.message for d in file.diagnostics)


def test_the_library_itself_has_no_mistakes():
    from pathlib import Path

    files = sorted(Path(ts.nn.__file__).parent.glob("*.py"))
    assert len(files) > 5
    assert {f.name: [d.message for a in analyse_file(str(f)) for d in a.diagnostics] for f in files} == {
        f.name: [] for f in files
    }
