"""What a text tells of errors inside plain functions and modules that it calls, before anything runs."""

from __future__ import annotations

import runpy
import textwrap
from pathlib import Path

import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import FileAnalysis

HEAD = """
import pytest
import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    def __init__(self, width, key=0):
        super().__init__()
        self.up = nn.Linear(width, 32, key=key)
        self.down = nn.Linear(width, width, key=key)

    def forward(self, x: Tensor["B", "D"]):
        return self.down(self.up(x))


def loss(model, x: Tensor["B", "D"]):
    return ts.mse(model(x), x)


x = ts.zeros((8, 64))
"""


def found(text: str) -> list[tuple[str, str]]:
    """Code and line of each error."""
    file = FileAnalysis("calls.py")
    file.update(HEAD + textwrap.dedent(text))
    lines = file.text.split("\n")
    return [(d.code, lines[d.span.line - 1].strip()) for d in file.diagnostics if d.severity == "error"]


IN_FORWARD = [("TS208", "return self.down(self.up(x))")]


@pytest.mark.parametrize(
    "text",
    [
        "model = Net(64)\ny = model(x)",
        "model = Net(64)\nl = loss(model, x)",
        "l, g = ts.value_and_grad(loss)(Net(64), x)",
        "step = ts.grad(loss)\nmodel = Net(64)\ng = step(model, x)\ng = step(model, x)",
        """
        model, opt = Net(64), ts.optimizers.SGD(0.1)
        state = opt.init(model)
        for x in batches:
            value, gradient = ts.value_and_grad(loss)(model, x)
            model, state = opt.update(model, gradient, state)
        """,
        "def main():\n    model = Net(64)\n    return ts.grad(loss)(model, x)",
    ],
)
def test_errors_of_calls_stand_at_their_lines_once(text: str) -> None:
    assert found(text) == IN_FORWARD


@pytest.mark.parametrize(
    "text",
    [
        "model = Net(32)\ny = model(ts.zeros((8, 32)))",
        "with pytest.raises(ts.CompileError):\n    Net(64)(x)",
        "try:\n    Net(64)(x)\nexcept ts.CompileError:\n    pass",
        "with pytest.raises(ts.CompileError):\n    ts.grad(loss)(Net(64), x)",
        "model = Net(64) if big else Net(32)\nmodel(x)",
        "model = Net(64)\nmodel = Net(32)\nmodel(ts.zeros((8, 32)))",
        "if big:\n    model = Net(64)\nelse:\n    model = Net(32)\nmodel(x)",
        "for model in (Net(64), Net(32)):\n    model(x)",
        "model = Net(64)\nwith other() as model:\n    model(x)",
        "def use(model=Net(64)):\n    return model(x)",
        "def use(model):\n    return model(x)\nuse(Net(32))",
        "def plain(model, x):\n    print(f'{x!r}')\n    return nonsense(model)\nplain(Net(64), x)",
    ],
)
def test_nothing_is_said_of_what_may_be_another_value_or_is_asked_for(text: str) -> None:
    assert found(text) == []


def test_the_compiler_says_the_same(tmp_path: Path) -> None:
    text = HEAD.replace("import pytest\n", "") + "model = Net(64)\nts.grad(loss)(model, x)\n"
    path = tmp_path / "calls.py"
    path.write_text(text)
    file = FileAnalysis(str(path))
    file.update(text)
    (said,) = (d for d in file.diagnostics if d.severity == "error")
    with pytest.raises(ts.CompileError) as raised:
        runpy.run_path(str(path))
    (compiled,) = raised.value.diagnostics
    assert (said.code, said.span) == (compiled.code, compiled.span)
    assert [n.message for n in said.notes][-2:] == ["Net.forward was called from loss", "called here"]


def test_an_edit_takes_the_error_away_and_brings_it_back() -> None:
    wrong = HEAD + "model = Net(64)\ny = model(x)\n"
    file = FileAnalysis("calls.py")
    for text, many in ((wrong, 1), (wrong.replace("nn.Linear(width, width", "nn.Linear(32, width"), 0), (wrong, 1)):
        file.update(text)
        assert len([d for d in file.diagnostics if d.severity == "error"]) == many
    file.update("\n\n" + wrong)
    (said,) = file.diagnostics
    assert file.text.split("\n")[said.span.line - 1].strip() == "return self.down(self.up(x))"
