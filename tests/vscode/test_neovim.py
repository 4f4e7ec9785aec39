"""The configuration for Neovim in docs/editors.md, in a real Neovim."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require
from tests.vscode.documented import snippet

DRIVER = Path(__file__).with_name("neovim.lua")
PROGRAM = """import tessera as ts
from tessera import Tensor


@ts.function
def project(x: Tensor["R", "C"], w: Tensor["D", "C"]) -> Tensor["R", "D"]:
    y = x * 2
    return y @ w
"""


@pytest.mark.parametrize(("name", "filetype"), [("program.py", "python"), ("program.tess", "tess")])
def test_documented_configuration(name: str, filetype: str, server_on_path: dict[str, str], tmp_path: Path) -> None:
    neovim = require("nvim")
    (tmp_path / name).write_text(PROGRAM)
    (tmp_path / "documented.lua").write_text(snippet("### Neovim", "lua"))
    report = tmp_path / "report.json"
    env = {**os.environ, **server_on_path, "DOCUMENTED": str(tmp_path / "documented.lua"), "REPORT": str(report)}
    env |= {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    words = [neovim, "--headless", "-u", str(DRIVER), name]
    run = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert report.exists(), run.stdout + run.stderr
    seen = json.loads(report.read_text())
    assert seen["filetype"] == filetype
    (found,) = seen["diagnostics"]
    assert found["message"].startswith("[R, C] @ [D, C]: contracted dimensions C and D differ")
    assert (found["line"], found["col"]) == (7, 11)
    labels = ["".join(part["value"] for part in hint["label"]) for hint in seen["hints"]]
    assert labels == [": [R, C] f32"]
