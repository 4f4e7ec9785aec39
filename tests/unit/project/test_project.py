"""The project's own promises: metadata, entry points, layout of the wheel, what importing costs, what CI runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest

from tests.conftest import require

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirement_names(extra: str) -> set[str]:
    """Names of what an extra installs, with the extras it builds on."""
    names: set[str] = set()
    for requirement in PROJECT["project"]["optional-dependencies"][extra]:
        if nested := re.match(r"tessera\[(.+)\]$", requirement):
            for other in nested[1].split(","):
                names |= requirement_names(other)
        else:
            names.add(re.match(r"[\w-]+", requirement)[0].lower())
    return names


def test_version_stands_in_one_release():
    import tessera

    assert tessera.__version__ == PROJECT["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {tessera.__version__}" in changelog


@pytest.mark.parametrize("script", sorted(PROJECT["project"]["scripts"]))
def test_console_scripts_resolve(script):
    module, _, attribute = PROJECT["project"]["scripts"][script].partition(":")
    assert callable(getattr(import_module(module), attribute))


def test_extras_named_by_missing_dependency_exist():
    """Every `MissingDependency(library, extra, why)` in the sources names an extra that exists."""
    extras = set(PROJECT["project"]["optional-dependencies"])
    sources = [p for folder in ("tessera", "lsp", "jupyter_ext") for p in (ROOT / folder).rglob("*.py")]
    pattern = re.compile(r'MissingDependency\(\s*"[^"]+",\s*"([^"]+)"')
    named = {m for p in sources for m in pattern.findall(p.read_text(encoding="utf-8"))}
    assert named <= extras


def test_extras_build_on_each_other():
    assert requirement_names("nvrtc") < requirement_names("cuda")
    assert {"jupyterlab", "anywidget", "pygls"} <= requirement_names("jupyter")
    everything = requirement_names("all")
    for extra in ("cuda", "jupyter", "lsp", "plot", "torch"):
        assert requirement_names(extra) <= everything, extra


def test_core_stays_light():
    names = {re.match(r"[\w-]+", r)[0] for r in PROJECT["project"]["dependencies"]}
    assert names == {"numpy", "ml_dtypes", "llvmlite", "rich", "typer", "platformdirs"}


def test_import_loads_no_heavy_library():
    """`import tessera` stays instant: arrays, code generators and GPUs are loaded by what needs them."""
    code = (
        "import sys, tessera\n"
        "heavy = 'numpy ml_dtypes llvmlite cuda cupy torch jax plotly rich typer IPython'.split()\n"
        "print(*[m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_a_first_kernel_loads_no_scheduler(tmp_path):
    """Imports are most of what the first compilation of a process takes. A kernel has no operators to group, and its
    text, which Python has read before, no errors to recover from."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, numpy, tessera as ts\n"
        "@ts.kernel\n"
        "def twice(x: ts.Tensor['n', ts.f32]):\n"
        "    i = ts.tile.linear_id()\n"
        "    if i < n:\n"
        "        x[i] = x[i] * 2\n"
        "x = numpy.ones(8, numpy.float32)\n"
        "twice(x)\n"
        "assert x[0] == 2\n"
        "later = 'schedule.grouping lower.schedule_to_tile lower.memory_limit frontend.syntax.fragments'.split()\n"
        "print(*[m for m in later if f'tessera.compiler.{m}' in sys.modules])",
        encoding="utf-8",
    )
    env = {**os.environ, "TESSERA_CACHE_DIR": str(tmp_path / "cache"), "TESSERA_TARGET": "cpu"}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, cwd=ROOT, env=env)
    assert done.stdout.strip() == ""


def test_editable_install_has_no_import_hook():
    """A finder hook would cost every interpreter start; folders on sys.path do not."""
    files = metadata.distribution("tessera").files or []
    pth = [f for f in files if f.suffix == ".pth"]
    for file in pth:
        assert "import" not in Path(str(file.locate())).read_text(encoding="utf-8")


def test_every_package_is_packed():
    """Folders with Python files under the three packages are packages, so that nothing is left out of the wheel."""
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        base = ROOT / package
        assert (base / "py.typed").exists()
        folders = {p.parent for p in base.rglob("*.py") if "node_modules" not in p.parts}
        missing = sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists())
        assert not missing


def test_import_contracts_name_the_rooms_in_order():
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    text = " ".join(contract["layers"])
    order = ["cli", "profiler", "runtime", "targets", "pipeline", "lower", "graph", "compiler.ir", "language", "errors"]
    places = [text.index(name) for name in order]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "script", [".ci/run", *(f"scripts/{p.name}" for p in (ROOT / "scripts").iterdir() if p.is_file() and not p.suffix)]
)
def test_scripts_are_executable(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash")
    assert "set -euo pipefail" in text


def test_ci_runs_checks_and_tests():
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    commands = [line.partition("#")[0].rstrip(" &") for line in lines]  # the checks run beside the tests
    assert "make check" in commands
    assert any(command.startswith("make test") for command in commands)
    assert any(line.startswith("wait $check") for line in lines), "their failure counts"


def test_make_help_lists_every_command():
    out = subprocess.run([require("make"), "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in ("demo", "test", "lab", "vscode", "check", "bench", "docs", "dev-setup", "clean"):
        assert re.search(rf"make {command}\s", out), command
