"""Bytecode of the protocol's classes that is kept: the same classes, also where what is kept is damaged or absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import builtins, sys
real, calls = builtins.compile, []
builtins.compile = lambda *a, **k: calls.append(a[1]) or real(*a, **k)
from tessera_lsp import quick_types
quick_types.load()
from lsprotocol import types as lsp
place = lsp.Position(1, 2)
assert place == lsp.Position(1, 2) != lsp.Position(2, 2) and repr(place) == "1:2", place
item = lsp.InlayHint(place, "x")
assert item.kind is None and "label='x'" in repr(item), item
print(sum("attrs generated" in str(name) for name in calls))
"""


def compiled(folder: Path) -> int:
    """How many methods were compiled by a process that keeps bytecode in `folder`."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, None])
def test_what_is_kept_is_used_and_made_anew_when_it_is_damaged(tmp_path, damage):
    first = compiled(tmp_path)
    assert first > 300
    again = compiled(tmp_path)
    assert again < first // 10
    (kept,) = tmp_path.rglob("quick_types.*.bin")
    if damage is None:
        data = kept.read_bytes()
        kept.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
    else:
        kept.write_bytes(damage)
    assert compiled(tmp_path) == first
    assert compiled(tmp_path) == again


def test_a_folder_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, where the folder would be")
    assert compiled(blocked) > 300
