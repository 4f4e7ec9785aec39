"""With the documented settings, ruff and pyright find no fault with dims in a folder of programs, and elsewhere do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.editors.documented import beside_other_tools

ROOT = Path(__file__).parents[2]
PROGRAM = """from __future__ import annotations

import numpy as np
import tessera as ts
from tessera import Tensor, bf16

HEADS = 4


@ts.function
def project(x: Tensor["B", "S", "D", bf16], w: Tensor["D", "H*E"]) -> Tensor["B", "S", "H", "E"]:
    return (x @ w).reshape(B, S, H, E)


@ts.function
def split[D](x: Tensor["B", "S", D], gain: Tensor[D]) -> Tensor["B", "S", HEADS, "D//4"]:
    assert D % HEADS == 0
    x = x - x.mean(axis=-1, keepdim=True)
    x = x / ts.sqrt(ts.sum(x * x, dim=-1, keepdim=True))
    return (x * gain).reshape(B, S, HEADS, D // HEADS)


@ts.kernel
def scale(x: Tensor["M", "K", ts.f16], y: Tensor["M", "K", ts.f16]) -> None:
    ctx = ts.tile.context()
    rows = x[tile_m : tile_m + 16]
    y[tile_m : tile_m + 16] = rows * ctx.K + ts.tile.sum(rows, axis=1, keepdims=True)


x = np.ones((2, 3, 8), np.float32)
print(project(x, np.ones((8, 4), np.float32)).shape, split(x, gain=x[0, 0]).shape, scale)
"""
PYRIGHT = '[tool.pyright]\npythonVersion = "3.12"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two folders with the same program; the settings are for one of them."""
    for folder in ("models", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "program.py").write_text(PROGRAM)
    documented = beside_other_tools()
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.ruff.lint]\nselect = ["E4", "E7", "E9", "F", "UP"]\n{PYRIGHT}{documented}'
    )
    return tmp_path


def run(project: Path, *command: str) -> Any:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths}
    return json.loads(subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False).stdout)


def folders(project: Path, found: list[tuple[str, str]]) -> dict[str, set[str]]:
    """What was reported, by folder."""
    out: dict[str, set[str]] = {"models": set(), "elsewhere": set()}
    for path, rule in found:
        out[Path(path).relative_to(project).parts[0]].add(rule)
    return out


def test_ruff(project: Path) -> None:
    require("ruff")
    report = run(project, sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "json", ".")
    found = folders(project, [(d["filename"], d["code"]) for d in report])
    assert found["models"] == set()
    assert {"F821", "UP037"} <= found["elsewhere"]


def test_pyright(project: Path) -> None:
    require("pyright")
    report = run(project, sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson")
    found = folders(project, [(d["file"], d.get("rule", d["message"])) for d in report["generalDiagnostics"]])
    assert found["models"] == set()
    assert found["elsewhere"] == {"reportUndefinedVariable", "reportOperatorIssue"}


def test_pyright_finds_no_fault_with_the_programs_of_the_documentation(tmp_path: Path) -> None:
    """Each program of README and of the pages for users, with the documented settings; what it says of names that a
    loop or a `with` may not have bound is Python's, not ours."""
    require("pyright")
    folder = tmp_path / "models"
    folder.mkdir()
    pages = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").glob("*.md")) if not p.stem.startswith("adding-"))]
    for page in pages:
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)):
            if "import tessera" in block:
                (folder / f"{page.stem}_{number}.py").write_text(block)
    assert len(list(folder.iterdir())) > 20
    (tmp_path / "pyproject.toml").write_text(f"{PYRIGHT}{beside_other_tools()}")
    report = run(tmp_path, sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson")
    found = [(Path(d["file"]).name, d["message"]) for d in report["generalDiagnostics"]]
    assert [f for f in found if not f[1].endswith("is possibly unbound")] == []
