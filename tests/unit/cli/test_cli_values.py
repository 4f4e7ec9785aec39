"""`--set NAME=VALUE`: parameters that are not tensors, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.test_cli import tessera

SOURCE = """import tessera as ts

@ts.function
def f(x: ts.Tensor["S", ts.f32], rate: float, n: int, mode: str = "plain", causal: ts.Const[bool] = False):
    y = x * rate + n
    return -y if causal else ts.exp(y) if mode == "exp" else y
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["n=2"], "2.0) : [S] f32"),
        (["n=2", "causal=True"], "= neg("),
        (["n=2", "mode=exp"], "= exp("),
        (["n=2", "mode='exp'"], "= exp("),
    ],
)
def test_ir_is_of_these_values(folder: Path, given: list[str], found: str) -> None:
    options = [word for each in given for word in ("--set", each)]
    result = tessera("ir", "model.py:f", "--target", "reference", *options, cwd=folder)
    assert result.returncode == 0 and found in result.stdout, result.stderr


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("rate=2", "rate is passed at each call"),
        ("n=2.5", "n is int, not 2.5"),
        ("x=2", "it has rate, n, mode, causal"),
        ("n", "gives no value to a number"),
    ],
)
def test_what_is_no_value(folder: Path, given: str, why: str) -> None:
    result = tessera("ir", "model.py:f", "--set", given, cwd=folder)
    assert result.returncode == 2 and why in " ".join(result.stderr.replace("│", " ").split())


def test_a_profile_runs_with_these_values(folder: Path) -> None:
    options = ["--dims", "S=4", "--set", "rate=2.5", "--set", "n=7", "--set", "mode=exp", "--target", "reference"]
    result = tessera("profile", "model.py:f", "--json", *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["values"] == {"rate": 2.5, "n": 7, "mode": "exp"} and said["assumed"] == []
    assert any("exp" in k["kernel"] for k in said["kernels"])
    result = tessera("profile", "model.py:f", "--set", "rate=fast", cwd=folder)
    assert result.returncode == 2 and "rate is" in result.stderr
