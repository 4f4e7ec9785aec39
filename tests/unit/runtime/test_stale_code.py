"""Code on the disk belongs to what the program reads now: classes, closures, long chains of calls, objects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("stale_code.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What the two texts give, the second with what the first left in the cache."""
    env = {**os.environ, "TESSERA_CACHE_DIR": str(tmp_path_factory.mktemp("cache")), "TESSERA_TARGET": "reference"}
    out = {}
    for text in ("a", "b"):
        done = subprocess.run([sys.executable, PROGRAM, text], env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        out[text] = json.loads(done.stdout)
    return out


def test_another_text_has_other_code(runs):
    assert {n: v for n, v in runs["a"]["found"].items() if v != 2} == {}
    assert {n: v for n, v in runs["b"]["found"].items() if v != 3} == {}


def test_what_changes_while_the_process_runs(runs):
    assert set(runs["a"]["changed"].values()) == {9}
