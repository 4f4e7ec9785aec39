"""What a long session of edits leaves behind: trees of texts that are gone, counted and not weighed."""

from __future__ import annotations

import ast
import gc
import sys
import weakref

import pytest

from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.frontend.workspace import Modules

TEXT = """from dataclasses import dataclass

import tessera as ts
from tessera import Tensor

RATE = 0.01


@dataclass
class Pair:
    a: Tensor["B", "D"]
    b: Tensor["B", "D"]


def helper(x, by=RATE):
    return x * by * 0.01


@ts.function
def added(p: Pair) -> Tensor["B", "D"]:
    return helper(p.a) + p.b * 0.01


@ts.kernel
def scaled(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    y[tile_m, tile_n] += x[tile_m, tile_n] * 0.01


def around():
    @ts.function
    def inner(x: Tensor["B", "D"]):
        return added(Pair(x, x)) + helper(x) * 0.01
    return inner
"""


def trees() -> int:
    gc.collect()
    return sum(type(o) in (ast.FunctionDef, ast.Module, ast.BinOp) for o in gc.get_objects())


def edited(n: int) -> str:
    """One constant is changed, and now and then a line put in, which moves what stands below."""
    text = TEXT.replace("0.01", f"0.{n + 100}")
    return text.replace("RATE", "\n" * (n % 3) + "RATE", 1)


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("texts", [lambda n: edited(n), lambda n: edited(n) + "\n\ndef broken(x:\n"])
def test_trees_of_old_texts_go(texts):
    file = FileAnalysis("growth.py")
    for n in range(10):
        file.update(texts(n))
    first = trees()
    for n in range(10, 60):
        file.update(texts(n))
    assert not [d for d in file.diagnostics if d.code == "TS900"]
    assert trees() <= first + 20


@pytest.mark.usefixtures("young")
def test_trees_of_imported_files_go(tmp_path):
    (tmp_path / "layers.py").write_text(TEXT)
    modules = Modules()
    text = (
        "import tessera as ts\nfrom layers import added, Pair\n\n@ts.function\ndef f(p: Pair):\n    return added(p)\n"
    )
    file = FileAnalysis(str(tmp_path / "model.py"), modules=modules)
    counts = []
    for n in range(40):
        modules.open(str(tmp_path / "layers.py"), edited(n))
        file.update(text)
        assert file.analyses[0].ok
        counts.append(trees() if n in (9, 39) else 0)
    assert counts[39] <= counts[9] + 20


@pytest.mark.usefixtures("young")
def test_an_answer_goes_with_its_node():
    asked = []

    @by_node
    def names(node: ast.FunctionDef) -> list[ast.stmt]:
        asked.append(node.name)
        return node.body

    tree = ast.parse("def f(x):\n    return x\n").body[0]
    assert names(tree) is names(tree) and asked == ["f"]
    seen = weakref.ref(tree.body[0])
    del tree
    gc.collect()
    assert seen() is None


def test_checking_twice_the_accesses_is_twice_the_work():
    """Each has a finding of its own, whose fix asks for all places of the name."""

    def calls(stores: int) -> int:
        lines = [f"        y[i * {stores} + {j}] = x[i] + {j}.0" for j in range(stores)]
        head = "import tessera as ts\n\n@ts.kernel\ndef k(x: ts.Tensor['n', ts.f32], y: ts.Tensor['m', ts.f32]):\n"
        text = head + "    i = ts.tile.linear_id()\n    if i < n:\n" + "\n".join(lines) + "\n"
        count = 0

        def note(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event == "call"

        file, before = FileAnalysis(f"stores{stores}.py"), sys.getprofile()
        sys.setprofile(note)
        try:
            file.update(text)
        finally:
            sys.setprofile(before)
        assert len([d for d in file.diagnostics if d.severity != "error"]) >= stores
        return count

    calls(3)  # what is loaded once
    assert calls(80) < 2.3 * calls(40)
