"""What a function that calls a kernel depends on: the kernel, what it reads from outside, its configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.ir.launches import kernel_of
from tessera.errors import TesseraError
from tests.unit.frontend.test_launching import launches

scale = 2.0
table = np.arange(6, dtype=np.float32)


@ts.kernel
def reading(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    i = ts.tile.linear_id()
    return x[i] * scale + table[i]


@ts.kernel
def fours(x: ts.Tensor["K", ts.f32]) -> ts.Tensor["K", ts.f32]:
    assert K % 4 == 0
    i = ts.tile.linear_id()
    return x[i] * 4.0


TEXT = """import tessera as ts
from tessera import Tensor, f32

SCALE = 2.0


@ts.kernel
def k(x: Tensor["M", f32]) -> Tensor["M", f32]:
    i = ts.tile.linear_id()
    return x[i] * SCALE


@ts.function
def f(x: Tensor["N", f32]):
    return k(x)


@ts.function
def g(x: Tensor["N", f32]):
    return x + 1
"""


@pytest.mark.parametrize(
    "change",
    [("x[i] * SCALE", "x[i] + SCALE"), ("SCALE = 2.0", "SCALE = 3.0"), ("@ts.kernel", "@ts.kernel(BLOCK=32)")],
)
def test_a_changed_kernel_is_analysed_with_its_callers(change: tuple[str, str]) -> None:
    file = FileAnalysis("model.py")
    k, f, g = file.update(TEXT)
    k2, f2, g2 = file.update(TEXT.replace(*change))
    assert (k.op is k2.op, f.op is f2.op, g.op is g2.op) == (False, False, True)


def test_configurations_in_a_text() -> None:
    named = TEXT.replace("@ts.function\ndef f", "small = k.with_config(BLOCK=32)\n\n\n@ts.function\ndef f")
    both = named.replace("return k(x)", "return k(x), small(x), k.with_config(BLOCK=64)(x)")
    _, f, _ = FileAnalysis("model.py").update(both)
    grids = [kernel_of(op).attrs["grid"] for op in launches(f.op)]
    assert [str(*g) for g in grids] == ["(N+1023)//1024", "(N+31)//32", "(N+63)//64"]


@pytest.mark.parametrize("before", ["SCALE = 2.0", "@ts.kernel", "@ts.function\ndef f", "@ts.function\ndef g"])
def test_lines_of_a_kernel_are_where_it_stands(before: str) -> None:
    """Also where the function that launches it has moved by another distance, or not at all."""
    file = FileAnalysis("model.py")
    file.update(TEXT)
    text = TEXT.replace(before, "\n\n\n" + before)
    _, f, _ = file.update(text)
    op = launches(f.op)[0]
    lines = {o.span.line for o in kernel_of(op).walk()}
    first = text[: text.index("def k")].count("\n") + 1
    assert lines == {first, first + 2}
    assert op.span.line == text[: text.index("return k(x)")].count("\n") + 1


def test_a_changed_kernel_is_compiled_with_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "reference")

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return reading(x)

    x = np.ones(6, np.float32)
    np.testing.assert_array_equal(f(x), 2 + table)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "scale", 5.0)
        np.testing.assert_array_equal(f(x), 5 + table)
        assert "scale: 2.0 -> 5.0" in str(ts.why_recompiled(f))
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "reading", fours.with_config(BLOCK=64))
        with pytest.raises(TesseraError, match="K % 4"):
            f(x)
        np.testing.assert_array_equal(f(x[:4]), 4)
        assert "callee reading" in str(ts.why_recompiled(f))
    table[0] = 7
    np.testing.assert_array_equal(f(x), 2 + table)
    table[0] = 0


def test_a_changed_kernel_is_no_disk_hit(tmp_path: Path, own_cache: Path) -> None:
    """Of another process, which knows only what the files say."""
    end = """
import numpy as np
x = np.ones(4, np.float32)
print(f(x)[0])
from tessera.runtime.call.dispatch import launcher_of
print(launcher_of(f).last.origin)
"""

    def run(text: str) -> list[str]:
        (tmp_path / "model.py").write_text(text + end)
        environment = {**os.environ, "TESSERA_TARGET": "reference"}
        command = [sys.executable, str(tmp_path / "model.py")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run(TEXT) == ["2.0", "miss"]
    assert run(TEXT) == ["2.0", "disk"]
    assert run(TEXT.replace("x[i] * SCALE", "x[i] + SCALE")) == ["3.0", "miss"]
    assert run(TEXT.replace("SCALE = 2.0", "SCALE = 7.0")) == ["7.0", "miss"]
    assert run(TEXT) == ["2.0", "disk"]


def test_a_kernels_arrays_are_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another module under one name too."""
    monkeypatch.setenv("TESSERA_TARGET", "reference")

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return reading(x) + table

    x = np.ones(6, np.float32)
    np.testing.assert_array_equal(f(x), 2 + 2 * np.arange(6))
    monkeypatch.setitem(globals(), "table", np.full(6, 3, np.float32))
    np.testing.assert_array_equal(f(x), 8)
