"""Ctrl-C reaches kernels that run for long, wherever they are at it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("interrupted.py")


@contextmanager
def program(*arguments: str) -> Generator[Any]:
    command = [sys.executable, "-X", "faulthandler", str(PROGRAM), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "go\n", process.stderr.read()
            time.sleep(0.2)  # it is in the kernel, or will be: the outcome is the same
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["counted", "many", "unending", "repeated", "exchanged"])
def test_a_long_kernel_is_interrupted(own_cache: Path, name: str, threads: int) -> None:
    """Without a look at signals each would run for hours."""
    with program(name, str(threads), "plain") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert (out, err, process.returncode) == ("KeyboardInterrupt\ngoes on\n", "", 0)


@pytest.mark.parametrize("how", ["heard", "profiled"])
def test_a_kernel_that_is_observed_is_interrupted(own_cache: Path, how: str) -> None:
    with program("counted", "2", how) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert (out, err, process.returncode) == ("KeyboardInterrupt\ngoes on\n", "", 0)


@pytest.mark.parametrize("name", ["counted", "many"])
def test_a_handler_that_returns_lets_the_kernel_go_on(own_cache: Path, name: str) -> None:
    with program(name, "2", "handled") as process:
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "asked\n"
        # what `readline` has read ahead is not there for `communicate`
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(200)
    assert (out, err, process.returncode) == ("TimeoutError\ngoes on\n", "", 0)
