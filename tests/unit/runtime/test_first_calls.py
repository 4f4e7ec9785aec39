"""What a process does once, asked for by eight threads at the same time; in processes of their own, which may crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("first_calls.py")


@pytest.mark.parametrize("attempt", range(4))
def test_first_calls_of_eight_threads(own_cache: Path, attempt: int) -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", str(PROGRAM), str(attempt)], cwd=ROOT,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "8 threads\n"
