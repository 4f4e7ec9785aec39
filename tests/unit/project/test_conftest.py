"""The promises of tests/conftest.py, on which the other tests stand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import conftest


def test_the_cache_is_private_to_the_run():
    assert Path(os.environ["TESSERA_CACHE_DIR"]).is_dir()
    assert {v for v in os.environ if v.startswith("TESSERA_")} == {"TESSERA_CACHE_DIR", "TESSERA_FIGURES"}


def test_require_gives_modules_and_programs():
    assert conftest.require("numpy").__name__ == "numpy"
    assert conftest.require("os.path") is os.path
    assert conftest.require("sh") == shutil.which("sh")


@pytest.mark.parametrize(("in_ci", "outcome"), [(True, pytest.fail.Exception), (False, pytest.skip.Exception)])
def test_what_is_missing_fails_in_ci_and_skips_elsewhere(monkeypatch, in_ci, outcome):
    monkeypatch.setattr(conftest, "IN_CI", in_ci)
    with pytest.raises(outcome, match="no_such_thing is not installed"):
        conftest.require("no_such_thing")


def test_processes_of_tests_hear_ctrl_c_where_the_shell_ignores_it(pytester_run):
    """As in the background of a script, whose shell leaves Ctrl-C to what stands in front."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert pytester_run("", program="""
            import os, signal, subprocess, sys

            def test_it():
                code = "import signal; signal.raise_signal(signal.SIGINT)"
                done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
                assert "KeyboardInterrupt" in done.stderr
        """).returncode == 0  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def test_golden_files_are_compared_and_updated(pytester_run):
    first = pytester_run("one")
    assert first.returncode == 1
    assert "does not exist" in first.stdout
    assert pytester_run("one", "--update-golden").returncode == 0
    assert pytester_run("one").returncode == 0
    assert pytester_run("two").returncode == 1


@pytest.fixture
def pytester_run(tmp_path):
    """Runs pytest in a folder with our conftest and one golden test of the given text."""
    shutil.copy(conftest.__file__, tmp_path / "conftest.py")

    def run(text: str, *args: str, program: str = "") -> subprocess.CompletedProcess[str]:
        program = program or f"def test_it(golden):\n    golden('it', {text!r})\n"
        (tmp_path / "test_it.py").write_text(textwrap.dedent(program))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args, "."]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a second each
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run
