"""Documentation that is made from the sources, and the links between pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tessera import knobs
from tessera.codes import CODES
from tests.conftest import require
from tests.processes import run_python

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built documentation; strict mode fails on a broken link or anchor between pages (not with `--quiet`)."""
    require("mkdocs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_every_code_has_an_anchor(site):
    page = (site / "errors.html").read_text(encoding="utf-8")
    for code, entry in CODES.items():
        assert f'id="{code.lower()}"' in page
        assert entry.kind in page


def test_every_setting_is_listed(site):
    page = (site / "settings.html").read_text(encoding="utf-8")
    for variable, _, _ in knobs.table():
        assert f"<code>{variable}</code>" in page


def test_every_decision_is_listed(site):
    index = (site / "decisions/index.html").read_text(encoding="utf-8")
    for record in (ROOT / "docs/decisions").glob("*.md"):
        assert f"{record.stem}.html" in index


def test_the_site_fetches_nothing(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preload|preconnect)"[^>]+href="(https?:[^"]+)"', text)
        assert not loaded, page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_files_exist(page):
    text = re.sub(r"`[^`\n]+`", "code", page.read_text(encoding="utf-8"))  # `kernel[grid](x)` is no link
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            generated = target in {
                "errors.md",
                "operators.md",
                "tile-functions.md",
                "settings.md",
                "decisions/index.md",
            }
            assert generated or (page.parent / target).exists(), target


def test_decisions_are_numbered_without_gaps():
    records = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    assert [int(r.name[:4]) for r in records] == list(range(1, len(records) + 1))
    for record in records:
        head = record.read_text(encoding="utf-8").splitlines()[0]
        assert head.startswith(f"# {int(record.name[:4])}. "), record


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


SNIPPETS = [pytest.param(b, id=f"{p.name}-{i}") for p in PAGES for i, b in enumerate(python_blocks(p))]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet, tmp_path):
    """Every Python block of a page is a program of its own."""
    file = tmp_path / "snippet.py"
    file.write_text(snippet, encoding="utf-8")
    done = run_python([file])
    assert done.returncode == 0, done.stderr


def test_the_readme_describes_its_shape_error(tmp_path):
    """Without the transpose, the error is the one that README promises: at the `@`, with both dims and their places."""
    file = tmp_path / "snippet.py"
    broken = python_blocks(ROOT / "README.md")[0].replace("k.transpose(1, 2)", "k")
    file.write_text(broken, encoding="utf-8")
    done = run_python(["-c", "from tessera.cli import main; main()", "check", file, "--json"])
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    found = found["diagnostics"] if isinstance(found, dict) else found
    error = next(d for d in found if d["severity"] == "error")
    line = broken.splitlines()[error["line"] - 1]
    assert "@" in line[error["column"] - 1 : error["end_column"] - 1]
    assert error["code"] == "TS203"
    assert all(dim in error["message"] + error["label"] for dim in ("D", "S"))
    assert any(note.get("line") for note in error["notes"])


PATH = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:py|pyi|cuh|ipynb)|(?:[\w.-]+/)+")


def missing_paths(page: str, files: list[str]) -> list[str]:
    """The files and folders that a page names, in backticks or in a tree, and that do not exist among `files`."""
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    named = [name for name in re.findall(r"`([^`\s]+)`", text) if PATH.fullmatch(name)]
    for block in re.findall(r"```\n(\w+/\n.*?)```", page, flags=re.DOTALL):
        named += re.findall(r"(?:^|\s)([a-z_/]+(?:\.py|/))(?=\s|$)", block)
    paths = [f"/{f}" for f in files]
    return [n for n in named if not any(f"/{n}" in p if n.endswith("/") else p.endswith(f"/{n}") for p in paths)]


@pytest.fixture(scope="module")
def files() -> list[str]:
    """The files of the checkout, new ones too."""
    require("git")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_name_files_that_exist(page, files):
    assert not missing_paths(page.read_text(encoding="utf-8"), files)


def test_a_path_without_a_file_is_found():
    page = "`a/b.py`, `b.py`, `c.py`, `a/`, `d/`, `x.y`\n```\na/\n  b.py  text   e.py\n  f/    more\n```\n"
    assert missing_paths(page, ["a/b.py"]) == ["c.py", "d/", "e.py", "f/"]
