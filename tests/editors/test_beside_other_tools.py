"""With the documented settings, linters and type checkers find no fault with programs in their folder; and they find
real mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
VALID = """from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tessera as ts
from tessera import Tensor, nn

Pair = Tensor["N", 2]
SHARED = Tensor[4, "D", ts.f16 @ ts.saturate]


class Net(nn.Module):
    first: nn.Linear
    rest: list[nn.Linear]
    norm: nn.BatchNorm1d
    shift: Tensor["D"]

    def __call__(self, x: Tensor["B", "D"], key: ts.int64 | None = None) -> Tensor["B", "D"]:
        for layer in self.rest:
            x = ts.relu(layer(x))
        return self.first(x) + self.shift


def halves(x: Pair, scale: ts.f32, all: Sequence[SHARED], flag: ts.Bool = False) -> tuple[Tensor["N"], Tensor["N"]]:
    first, second = x[:, 0] * scale, x[:, 1].to(ts.f32).sum(axis=0)
    return first, second if flag else first.T.copy().relu()


net = Net(nn.Linear(4, 4, key=0), [nn.Linear(4, 4, key=1)], nn.BatchNorm1d(4), ts.zeros((4,)))
convolution = nn.Conv2d(3, 8, 3, key=0, padding=1)
arrays = np.ones((2, 4), np.float32)
print(net.first(arrays), net.count, nn.relu(arrays), ts.f32.numpy, ts.f32.bits, arrays.astype(ts.bf16.numpy))
print(ts.zeros((2,), ts.f32).dtype == ts.f32, Tensor[3, 4], isinstance(ts.ones(3), ts.Tensor), convolution.weight)
loss, gradient = ts.value_and_grad(lambda net: ts.mse(net.first(arrays), arrays))(net)
ts.optimizers.AdamW(net.parameters(), lr=1e-3).step()
"""
PLANTED = """from __future__ import annotations

import numpy as np
import tessera as ts
from tessera import Tensor, nn


@ts.function
def weights(x: Tensor["B", "D"]):
    return x.sofmax(-1)  # method of a parameter


class Net(nn.Module):
    out: nn.Linear

    def __call__(self, x: Tensor["B", "D"]):
        return ts.mean(self.out(x.sqeeze(0)))  # method of a parameter


x = ts.ones((2, 3))
x.sofmax(-1)  # method
x.reshape(2, 3).to(ts.f64).sofmax()  # method
x.requires_gradient  # attribute
ts.sofmax(x)  # function
nn.Liner(4, 4, key=0)  # layer
nn.init.kaiming(4)  # function of a module
ts.softmax()  # arguments
ts.where(x > 0, x, 0.0, 1.0, 2.0)  # arguments
ts.relu(x, axe=1)  # arguments
nn.Linear(4)  # arguments of a layer
nn.Conv2d(3, 8, 3, key=0, strides=2)  # arguments of a layer
Net(nn.Linear(4, 4, key=0), 3)  # arguments of a module
Net(nn.Linear(4, 4, key=0)).parameter()  # method of a module
ts.tile.sofmax(x)  # function of kernels
ts.linalg.choleski(np.eye(3))  # function of a module
ts.zeros("2", 3, 4, 5)  # arguments
"""
"""a mistake on each line with a comment, which says of what kind"""


@dataclass(frozen=True)
class Checker:
    """How a type checker is called in the folder of a project, and how it writes what it has found."""

    options: str
    finding: str = r"(?P<path>\S+?):(?P<line>\d+):\d+:? (?:- )?error(?P<said>.*)"
    blind: frozenset[str] = frozenset()
    """the kinds of mistakes that docs/editors.md says it does not find"""


PYTHON = sys.executable
CHECKERS = {
    "pyright": Checker(f"--pythonpath {PYTHON} --pythonversion 3.12"),
    "basedpyright": Checker(f"--pythonpath {PYTHON} --pythonversion 3.12"),
    "mypy": Checker("--python-version 3.12 --show-column-numbers --ignore-missing-imports models elsewhere"),
    "ty": Checker(
        f"check --python {PYTHON} --python-version 3.12 --extra-search-path {ROOT} --output-format concise",
        blind=frozenset({"method of a parameter"}),
    ),
    "pyrefly": Checker(
        f"check --python-interpreter-path {PYTHON} --python-version 3.12 --search-path {ROOT} --search-path ."
        " --output-format min-text",
        r"ERROR (?P<path>\S+?):(?P<line>\d+):[\d-]+: (?P<said>.*)",
    ),
}
"""a checkout is found by a path of its own, so that it need not be the installed one"""


def programs(folder: Path) -> None:
    """Every program of README, of the pages for users, and of the examples, as modules of one package."""
    pages = [ROOT / "README.md", *(p for p in sorted((ROOT / "docs").glob("*.md")) if not p.stem.startswith("adding-"))]
    for page in pages:
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)):
            if "import tessera" in block:
                (folder / f"{page.stem.replace('-', '_')}_{number}.py").write_text(block, "utf-8")
    examples = [*(ROOT / "examples").glob("*.py")]
    others = "|".join(e.stem for e in examples)
    for example in examples:  # scripts import each other by their names alone
        text = re.sub(rf"^from ({others}) import", r"from .\1 import", example.read_text("utf-8"), flags=re.M)
        (folder / example.name).write_text(text, "utf-8")
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        (folder / f"notebook_{notebook.stem}.py").write_text(cells(notebook), "utf-8")


def cells(notebook: Path) -> str:
    """The text of a notebook without magics, and without the cells that show a mistake."""
    found = [c for c in json.loads(notebook.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    valid = ["".join(c["source"]) for c in found if "raises-exception" not in c["metadata"].get("tags", ())]
    text = re.sub(r"^( *)[%!].*$", r"\1", "\n\n".join(valid), flags=re.M)
    return re.sub(r"= %.*$", "= ts.Profiler()", text, flags=re.M) + "\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two folders with the same program, and the settings for one of them."""
    for folder in ("models", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "program.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text(beside_other_tools())
    return tmp_path


def run(project: Path, name: str, *arguments: str) -> str:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": paths, "MYPYPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False).stdout


def test_ruff(project: Path) -> None:
    require("ruff")
    report = run(project, "ruff", "check", "--no-cache", "--select", "E4,E7,E9,F,UP", "--output-format", "json", ".")
    found: dict[str, set[str]] = {"models": set(), "elsewhere": set()}
    for finding in json.loads(report):
        found[Path(finding["filename"]).parent.name].add(finding["code"])
    assert found["models"] == set()
    assert {"F821", "UP037"} <= found["elsewhere"]


@pytest.mark.parametrize("name", CHECKERS)
def test_type_checkers(project: Path, name: str) -> None:
    require(name)
    checker, models = CHECKERS[name], project / "models"
    programs(models)
    assert len([*models.iterdir()]) > 90
    (models / "valid.py").write_text(VALID)
    (models / "planted.py").write_text(PLANTED)
    with (project / "pyproject.toml").open("a") as settings:  # mypy takes for the project's own what MYPYPATH has
        settings.write('\n[[tool.mypy.overrides]]\nmodule = "tessera.*"\nfollow_imports = "silent"\n')

    report = run(project, name, *checker.options.split())

    found = [(Path(project, m["path"]), int(m["line"]), m["said"]) for m in re.finditer(checker.finding, report)]
    wrong = {p.relative_to(project) for p, *_ in found if p.parent != models}
    assert wrong == {Path("elsewhere/program.py")}, f"the settings are needed, there alone:\n{report}"
    assert [f for f in found if f[0].parent == models and f[0].name != "planted.py"] == []
    expected = {i: line.partition("  # ")[2] for i, line in enumerate(PLANTED.splitlines(), 1) if "  # " in line}
    assert {line for path, line, _ in found if path.name == "planted.py"} == {
        line for line, kind in expected.items() if kind not in checker.blind
    }
