"""Functions of kernels from outside the package: the programs of the page, and what is refused."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler import extensions
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.kernel.builtins import BUILTINS
from tessera.compiler.ir.spec import SPECS
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.primitive import PRIMITIVES, At, Element, ElementWriter, Operand, TilePrimitive
from tessera.errors import CompileError, TargetError
from tessera.language import dtypes
from tests.conftest import require
from tests.kernel_runner import check, run

HERE = Path(__file__).parent
TARGETS = ("cpu", "reference", "emulator:sm_90a")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    tables: tuple[dict[str, Any], ...] = (BUILTINS, PRIMITIVES, SPECS, extensions.BUILTINS)
    before = [dict(t) for t in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    extensions.changed()


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def page() -> list[str]:
    text = (HERE.parents[1] / "docs/adding-a-tile-builtin.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


def needs(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")


def test_the_page_shows_the_programs_of_this_folder() -> None:
    assert page() == [(HERE / f"{name}.py").read_text(encoding="utf-8") for name in ("roll", "bits")]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", [0, 1])
def test_what_the_page_says(block: int, target: str, tmp_path: Path) -> None:
    """Each of its programs, word for word, compared with NumPy."""
    needs(target)
    file = tmp_path / f"page_{block}.py"
    file.write_text(page()[block], encoding="utf-8")
    loaded(file).check(target)


# More operands, other shapes, all dtypes


class Pick(TilePrimitive):
    """The elements of a vector at computed places, `otherwise` where there is none."""

    def result(self, x: TileType, places: TileType, scale: TileType, otherwise: float = -1.0) -> TileType:
        if len(x.shape) != 1 or not places.dtype.is_integer:
            raise ValueError("takes a vector and integers")
        return TileType(places.shape, x.dtype)

    def reference(self, x: Any, places: Any, scale: Any, otherwise: float) -> Any:
        inside = (places >= 0) & (places < len(x))
        return np.where(inside, x[np.clip(places, 0, len(x) - 1)] * scale, otherwise)

    def element(
        self, c: ElementWriter, at: list[At], x: Operand, places: Operand, scale: Operand, otherwise: float
    ) -> Element:
        n, i = x.shape[0], c.place(places(*at))
        found = c.apply("mul", x(i.clip(n)), scale())
        inside = c.apply("logical_and", At(c, -1) < i, i < n)
        return c.choose(inside, found, otherwise)


pick = Pick.function()


class Moved(TilePrimitive):
    """Every element one place further, the columns of a matrix in the other order."""

    def result(self, x: TileType) -> TileType:
        return x

    def reference(self, x: Any) -> Any:
        return np.roll(x[:, ::-1], 1, 0)

    def element(self, c: ElementWriter, at: list[At], x: Operand) -> Element:
        i, j = at
        rows, columns = x.shape
        return x((i - 1) % rows, columns - 1 - j)


moved = Moved.function()


@pytest.mark.parametrize("target", TARGETS)
def test_several_operands_and_another_shape(target: str) -> None:
    needs(target)

    def k(
        x: "ts.Tensor['N', ts.f32]", at: "ts.Tensor['A', 'B', ts.int32]", y: "ts.Tensor['A', 'B', ts.f32]", s: "ts.f32"
    ):  # type: ignore[name-defined]
        y[0:3, 0:4] = pick(x[0:8], at[0:3, 0:4], s, otherwise=7.0)

    x, at = np.arange(8, dtype=np.float32), np.array([[0, 7, 8, -1], [1, 2, 3, 4], [9, 5, 6, 0]], np.int32)
    y = np.zeros((3, 4), np.float32)
    run(k, x, at, y, 3.0, target=target)
    np.testing.assert_array_equal(y, [[0, 21, 7, 7], [3, 6, 9, 12], [7, 15, 18, 0]])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "int64", "uint8", "bool_", "complex64"])
def test_every_dtype(dtype: str, target: str, tmp_path: Path) -> None:
    needs(target)
    file = tmp_path / "kernel.py"
    text = f"""
import tessera as ts
from {__name__} import moved


def k(x: ts.Tensor["M", "N", ts.{dtype}], y: ts.Tensor["M", "N", ts.{dtype}]):
    y[0:4, 0:8] = moved(x[0:4, 0:8])
"""
    file.write_text(text, encoding="utf-8")
    numpy = ml_dtypes.bfloat16 if dtype == "bf16" else dtypes.BY_NAME[dtype.rstrip("_")].numpy
    x = (np.arange(32).reshape(4, 8) % 5 * (1 + 1j if dtype == "complex64" else 1)).astype(numpy)
    y = np.zeros_like(x)
    run(loaded(file).k, x, y, target=target)
    np.testing.assert_array_equal(y, np.roll(x[:, ::-1], 1, 0))


@pytest.mark.parametrize("target", TARGETS)
def test_what_does_not_exist_is_padding(target: str) -> None:
    """5 rows of 3: a block of 4 x 4 rolls zeros in, and neither stores nor sums what lies outside."""
    needs(target)

    def k(x: "ts.Tensor['M', 'N', ts.f32]", y: "ts.Tensor['M', 'N', ts.f32]", z: "ts.Tensor['M', ts.f32]"):  # type: ignore[name-defined]
        for i in ts.tile.range(0, M, 4):
            t = moved(x[i : i + 4, 0:4] + 1)
            y[i : i + 4, 0:4] = t
            z[i : i + 4] = ts.tile.row_sum(t)

    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    y, z = np.zeros_like(x), np.zeros(5, np.float32)
    run(k, x, y, z, target=target)
    wanted = np.zeros((8, 4), np.float32)
    wanted[:5, :3] = x + 1
    wanted = np.concatenate([np.roll(wanted[i : i + 4, ::-1], 1, 0) for i in (0, 4)])[:5, :3]
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(z, wanted.sum(-1))


# What is refused


def half(cls: type[TilePrimitive]) -> Any:
    function = cls.function()

    def k(x: "ts.Tensor['N', ts.f32]", y: "ts.Tensor['N', ts.f32]"):  # type: ignore[name-defined]
        y[0:8] = function(x[0:8])

    return k


def test_a_target_without_code_refuses_and_the_others_run() -> None:
    class OnlyCpu(TilePrimitive):
        def result(self, x: TileType) -> TileType:
            return x

        def cpu(self, c: Any, at: Any, x: Operand) -> Element:
            return c.apply("add", x(*at), 1)

    k, x, y = half(OnlyCpu), np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run(k, x, y, target="cpu")
    np.testing.assert_array_equal(y, x + 1)
    with pytest.raises(TargetError, match="only_cpu has no code for the target cuda: the class OnlyCpu") as e:
        run(k, x, y, target="emulator:sm_90a")
    assert e.value.code == "TS602" and e.value.diagnostics[0].span.line > 0
    with pytest.raises(TargetError, match="target reference: the class OnlyCpu has no `reference`") as e:
        run(k, x, y, target="reference")
    assert e.value.code == "TS602"


def test_a_reference_of_another_shape_is_said() -> None:
    class Wrong(TilePrimitive):
        def result(self, x: TileType) -> TileType:
            return x

        def reference(self, x: Any) -> Any:
            return x[:-1]

    x = np.zeros(8, np.float32)
    with pytest.raises(TargetError, match=r"its `reference` gives \(7,\), its `result` \(8,\)"):
        run(half(Wrong), x, x.copy(), target="reference")


def test_operands_that_do_not_fit_and_numbers_that_are_not_known() -> None:
    def scalar(x: "ts.Tensor['N', ts.f32]", y: "ts.Tensor['N', ts.f32]"):  # type: ignore[name-defined]
        y[0:8] = pick(1.0, x[0:8], 1.0)

    def number(x: "ts.Tensor['N', ts.f32]", at: "ts.Tensor['N', ts.int32]", y: "ts.Tensor['N', ts.f32]"):  # type: ignore[name-defined]
        y[0:8] = pick(x[0:8], at[0:8], 1.0, otherwise=x[0:1])

    found = [[(d.code, d.message) for d in check(k).diagnostics if d.severity == "error"] for k in (scalar, number)]
    assert found[0] == [("TS402", "pick: takes a vector and integers")]
    assert [code for code, _ in found[1]] == ["TS105"] and "known at compile time" in found[1][0][1]


def test_outside_of_kernels_it_says_where_it_belongs() -> None:
    with pytest.raises(CompileError, match=r"pick has a meaning inside a @ts.kernel only") as e:
        pick(1)
    assert e.value.code == "TS401" and pick.__doc__ == Pick.definition.text

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):  # type: ignore[name-defined]
        return moved(x)

    with pytest.raises(CompileError, match="belongs in a") as e:
        f(np.zeros(4, np.float32))
    assert e.value.code == "TS401"


def test_a_second_definition_replaces_the_first_and_is_another_key(tmp_path: Path) -> None:
    """As when a cell of a notebook runs again."""
    text = page()[0]
    loaded_ones = []
    for by, name in ((1, "again"), (2, "again")):
        file = tmp_path / f"{by}" / f"{name}.py"
        file.parent.mkdir()
        file.write_text(text.replace("(i - by)", f"(i - {by} * by)"), encoding="utf-8")
        loaded_ones.append((loaded(file), extensions.state()))
    (_, before), (second, after) = loaded_ones
    assert before != after
    x = np.arange(7, dtype=np.float32).reshape(1, 7)
    np.testing.assert_array_equal(second.neighbours(x), x + np.roll(x, 2, -1) + np.roll(x, -2, -1))


def test_the_editor_does_not_run_it(tmp_path: Path) -> None:
    """A file that imports a builtin is analysed as text: nothing is said of the calls, and nothing is imported."""
    (tmp_path / "own.py").write_text("raise SystemExit('an editor ran this')\n" + page()[0], encoding="utf-8")
    user = "import tessera as ts\nfrom own import roll\n\n\n@ts.kernel\ndef k(x: ts.Tensor['N', ts.f32], y: ts.Tensor['N', ts.f32]):\n    y[0:8] = roll(x[0:8], 2)\n"  # noqa: E501
    (tmp_path / "user.py").write_text(user, encoding="utf-8")
    file = FileAnalysis(str(tmp_path / "user.py"))
    assert [a.definition.name for a in file.update(user)] == ["k"]
    assert [d.message for d in file.diagnostics if d.severity == "error"] == []
    assert "own" not in sys.modules
