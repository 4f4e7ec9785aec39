"""Code on the disk belongs to what the program reads now: classes, closures, long chains of calls, objects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tessera

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


LIBRARIES = {
    "functions": ("activations.py", "ts.clip(x, 0.0, 6.0)", "ts.clip(x, 0.0, 5.0)", "ts.relu6(x)", 6.0, 5.0),
    "kernels": ("rows.py", "return ts.exp(", "return 4 * ts.exp(", "ts.exp(kernels.logsumexp_safe(x) - 9)", 2.0, 8.0),
    "nn": ("dense.py", "return self.down(", "return 1 + self.down(", "layer(x)", 0.0, 1.0),
}
"""a folder of Tessera's own, a text in it and another in its place, a call, and its results with the two"""
USER = """import numpy as np
import tessera as ts
from tessera import kernels, nn

layer = nn.MLP(2, 4, key=0)
layer.down.weight = np.zeros((4, 2), np.float32)

@ts.function
def called(layer: nn.MLP, x: ts.Tensor["N", 2]):
    return {call}

print(np.asarray(called(layer, np.full((1, 2), 9, np.float32))).flat[0])
"""


@pytest.mark.parametrize("folder", LIBRARIES)
def test_code_of_an_edited_library_is_not_taken(folder, tmp_path):
    """What a developer edits below `tessera/` is part of programs, however they reach it."""
    name, before, after, call, first, second = LIBRARIES[folder]
    checkout = tmp_path / "tessera"
    checkout.mkdir()
    for entry in Path(tessera.__file__).parent.iterdir():
        if entry.name == folder:
            shutil.copytree(entry, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (checkout / entry.name).symlink_to(entry)
    (tmp_path / "user.py").write_text(USER.format(call=call))
    env = {**os.environ, "TESSERA_CACHE_DIR": str(tmp_path / "cache"), "TESSERA_TARGET": "cpu"}
    env |= {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def result() -> float:
        command = [sys.executable, str(tmp_path / "user.py")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    assert result() == pytest.approx(first)
    edited = checkout / folder / name
    text = edited.read_text("utf-8")
    assert before in text
    edited.write_text(text.replace(before, after), "utf-8")
    assert result() == pytest.approx(second)
