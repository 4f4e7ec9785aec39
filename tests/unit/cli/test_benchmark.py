"""`tessera benchmark FILE --compare REF`: a gate for what has become slower."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require
from tests.profiler.synthetic import time_is_work
from tests.unit.cli.test_cli import answered

PROGRAM = """import tessera as ts
from tessera import Tensor
from sizes_of_it import TURNS

@ts.function
def layer(x: Tensor["N", "D"], w: Tensor["D", "E"]):
    h = ts.softmax(x)
    for t in range(TURNS):
        h = h @ w
    return ts.exp(h)

@ts.function
def opened(x):
    return x + 1
"""
HELPER = "TURNS = 1\n"


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files under version control, as it was."""
    require("git")
    time_is_work(monkeypatch)
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "layers.py").write_text(PROGRAM)
    (folder / "models" / "sizes_of_it.py").write_text(HELPER)
    git(folder, "init", "-q", "-b", "trunk")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "as it was")
    yield folder
    sys.modules.pop("sizes_of_it", None)


def measured(folder: Path, *words: str):
    return answered(
        "benchmark", "models/layers.py:layer", "--dims", "N=64,D=64,E=64", "--seconds", "0", *words, cwd=folder
    )


def test_a_program_that_was_made_slower_fails_against_the_revision(repository: Path) -> None:
    path = repository / "models" / "layers.py"
    path.write_text(PROGRAM.replace("h = h @ w", "h = h" + " @ w" * 6))
    found = measured(repository, "--compare", "trunk")
    assert found.returncode == 1, found
    assert "layer is slower than trunk: it takes " in found.stdout
    edited = [line for line in found.stdout.splitlines() if "slower edited" in line]
    assert len(edited) == 1 and "h = h @ w @ w" in edited[0] and "layers.py:9" in edited[0]
    assert git(repository, "worktree", "list").count("\n") == 1
    assert " M models/layers.py" in git(repository, "status", "--porcelain")


def test_five_percent_more_work_fails(repository: Path) -> None:
    """21 products instead of 20: at the least slow-down that the gate must see, and at the line that has it."""
    path = repository / "models" / "layers.py"
    (repository / "models" / "sizes_of_it.py").write_text("TURNS = 20\n")
    git(repository, "commit", "-q", "-a", "-m", "twenty")
    path.write_text(PROGRAM.replace("    return ts.exp(h)", "    h = h @ w\n    return ts.exp(h)"))
    found = measured(repository, "--compare", "HEAD", "--json")
    assert found.returncode == 1, found
    total = json.loads(found.stdout)["compared"]["layer"]["total"]
    assert total["verdict"] == "slower" and 1.03 < total["ratio"][1] < 1.06, total


def test_what_a_file_imports_is_of_the_same_revision(repository: Path) -> None:
    (repository / "models" / "sizes_of_it.py").write_text("TURNS = 6\n")
    found = measured(repository, "--compare", "HEAD", "--json")
    assert found.returncode == 1, found
    compared = json.loads(found.stdout)["compared"]["layer"]
    assert compared["total"]["verdict"] == "slower"
    (line,) = (c for c in compared["lines"] if c["verdict"] == "slower")
    assert (line["line"], line["edited"], line["file"]) == (9, False, "models/layers.py")


def test_an_equal_program_passes(repository: Path) -> None:
    found = measured(repository, "--compare", "HEAD")
    assert found.returncode == 0, found
    assert "by turns" in found.stdout and "slower" not in found.stdout.splitlines()[-1]


def test_against_a_saved_result(repository: Path, tmp_path: Path) -> None:
    saved = tmp_path / "before.json"
    assert measured(repository, "--save", str(saved)).returncode == 0
    assert len(json.loads(saved.read_text())["programs"]["layer"]["total"]) >= 20
    path = repository / "models" / "layers.py"
    path.write_text(PROGRAM.replace("h = h @ w", "h = h" + " @ w" * 16))
    found = measured(repository, "--compare", str(saved))
    assert found.returncode == 1, found
    assert "one after the other" in found.stdout


def test_functions_that_say_what_is_measured(repository: Path) -> None:
    (repository / "models" / "layers.py").write_text(PROGRAM + "\n\ndef benchmark_nothing():\n    print('ran')\n")
    found = answered("benchmark", "models/layers.py", "--seconds", "0", "--compare", "HEAD", cwd=repository)
    assert found.returncode == 0
    assert "benchmark_nothing: " in found.stdout and "  not in HEAD" in found.stdout
    assert "only in HEAD: layer" in found.stderr


def test_what_cannot_be_called_is_named(repository: Path) -> None:
    found = answered("benchmark", "models/layers.py", "--dims", "N=8,D=8,E=8", "--seconds", "0", cwd=repository)
    assert found.returncode == 0 and "opened: left out: " in found.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("models/layers.py", "--compare", "nowhere"), "is neither a file nor a revision"),
        (("models/layers.py", "--compare=--all"), "is neither a file nor a revision"),
        (("models/none.py",), "there is no file"),
        (("models/layers.py:none",), "can be measured"),
        (("models/layers.py", "--compare", "models/sizes_of_it.py"), "is not a result that tessera benchmark"),
        (("models/new.py", "--compare", "HEAD"), "the revision has no file new.py"),
    ],
)
def test_bad_input(repository: Path, words: tuple[str, ...], why: str) -> None:
    (repository / "models" / "new.py").write_text(PROGRAM)
    found = answered("benchmark", "--seconds", "0", *words, cwd=repository)
    assert found.returncode == 2
    assert why in " ".join(found.stderr.replace("│", " ").split())
    assert git(repository, "worktree", "list").count("\n") == 1


def test_a_file_outside_of_any_repository(tmp_path: Path) -> None:
    require("git")
    (tmp_path / "alone.py").write_text("import tessera\n")
    found = answered("benchmark", "alone.py", "--compare", "HEAD", cwd=tmp_path)
    assert found.returncode == 2 and "not a git repository" in " ".join(found.stderr.split())
