"""Processes that tests fork from one that has loaded the compiler: each is what Python of the same words would be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.processes import run_python

SAYS = """import os, sys
print(sys.argv[1:], __name__, os.getcwd(), os.environ.get("SAID"), input())
print("a warning", file=sys.stderr)
sys.exit(3)
"""


def test_words_folder_environment_input_and_status(tmp_path: Path) -> None:
    file = tmp_path / "says.py"
    file.write_text(SAYS)
    for words in ([file, "a", 2], ["-c", SAYS, "a", 2]):
        found = run_python(words, cwd=tmp_path, env={"SAID": "é"}, text="typed\n")
        said = f"['a', '2'] __main__ {tmp_path} é typed\n"
        assert (found.stdout, found.stderr, found.returncode) == (said, "a warning\n", 3)


@pytest.mark.parametrize("name", ["functions.images", "nn", "optimizers", "profiler", "kernels", "checkpoint"])
def test_what_users_import_is_not_there_before(name: str) -> None:
    assert run_python(["-c", f"import sys; print('tessera.{name}' in sys.modules)"]).stdout == "False\n"


def test_nothing_goes_from_one_to_the_next() -> None:
    run_python(["-c", "import tessera; tessera.left = 1; import os; os.environ['LEFT'] = '1'"])
    said = run_python(["-c", "import tessera, os; print(hasattr(tessera, 'left'), 'LEFT' in os.environ)"]).stdout
    assert said == "False False\n"


def test_exceptions_signals_and_a_limit_of_time() -> None:
    failed = run_python(["-c", "raise ValueError('no')"])
    assert failed.returncode == 1 and failed.stderr.endswith("ValueError: no\n")
    assert run_python(["-c", "import os; os.kill(os.getpid(), 9)"]).returncode == -9
    with pytest.raises(subprocess.TimeoutExpired):
        run_python(["-c", "import time; time.sleep(600)"], timeout=1)
    assert run_python(["-m", "tessera", "--version"]).returncode == 0
