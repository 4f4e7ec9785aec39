"""Names that the package does not have, found in a text that nobody runs; and that both agree on what there is."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.values import MISSING
from tessera.nearest import nearest

ROOT = Path(__file__).parents[3]


def found(text: str) -> list[tuple[str, int, str]]:
    file = FileAnalysis("names.py")
    file.update(text)
    return [(d.code, d.span.line, d.message) for d in file.diagnostics]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("@ts.frobnicate\ndef g(x): return x", "tessera has no 'frobnicate'"),
        ("y = ts.nonsense.thing(3)", "tessera has no 'nonsense'"),
        ("from tessera.nn.unstable import *", "tessera.nn has no 'unstable'"),
        ("from tessera.nn import relu, rellu", "tessera.nn has no 'rellu'; did you mean 'relu'?"),
        ("from tessera import sofmax as s", "tessera has no 'sofmax'; did you mean 'softmax'?"),
        ("import tessera.serving", "tessera has no 'serving'"),
        ("import tessera.serving.http as h", "tessera has no 'serving'"),
        ("from tessera.serving import run", "tessera has no 'serving'"),
        ("class A:\n    def f(self): return ts.profler", "tessera has no 'profler'; did you mean 'profiler'?"),
        ("def f(x):\n    return ts.nn.functional.relu(x)", "tessera.nn has no 'functional'"),
        ("f = lambda x: ts.Profiller(x)", "tessera has no 'Profiller'; did you mean 'Profiler'?"),
        ("def f():\n    from tessera import learning", "tessera has no 'learning'"),
        ("y = ts.tile.anything_at_all", "tessera.tile has no 'anything_at_all'"),
        ("def f(x):\n    return ts.tile.sofmax(x)", "tessera.tile has no 'sofmax'"),
        ("from tessera.tile import lod", "tessera.tile has no 'lod'; did you mean 'load'?"),
        ("from tessera import tile\ny = tile.nonsense", "tessera.tile has no 'nonsense'"),
        ("import tessera.kernels.nonsense", "tessera.kernels has no 'nonsense'"),
        ("import tessera.kernels.nonsense.deeper as d", "tessera.kernels has no 'nonsense'"),
        (
            "from tessera.kernels import softmax_saf",
            "tessera.kernels has no 'softmax_saf'; did you mean 'softmax_safe'?",
        ),
        ("from tessera.kernels.rows import nonsense", "tessera.kernels.rows has no 'nonsense'"),
        ("from tessera.compiler.nonsense import x", "tessera.compiler has no 'nonsense'"),
        ("y = ts.kernels.nonsense.thing(3)", "tessera.kernels has no 'nonsense'"),
        ("import tessera.kernels as K\ny = K.nonsense", "tessera.kernels has no 'nonsense'"),
        ("from tessera import kernels as K\ny = K.nonsense", "tessera.kernels has no 'nonsense'"),
        ("with ts.profiler.Profilr(): pass", "tessera.profiler has no 'Profilr'; did you mean 'Profiler'?"),
        ("y = ts.errors.TesseraErr", "tessera.errors has no 'TesseraErr'; did you mean 'TesseraError'?"),
        ("y = ts.dist.nonsense", "tessera.dist has no 'nonsense'"),
    ],
)
def test_a_name_that_is_not_there_is_an_error(line, said):
    got = found(f"import tessera as ts\n{line}\n")
    assert [code for code, _, _ in got] == ["TS104"]
    assert got[0][2] == said or got[0][2].startswith(
        (f"{said}; there ", f"{said}; functions are ")
    )  # what there is instead


@pytest.mark.parametrize(
    "text",
    [
        "import tessera as ts\ny = ts.softmax, ts.Profiler, ts.kernels.attention, ts.f32, ts.__version__, ts.nn.relu",
        "from tessera import Tensor, kernels, dist, nn, errors, CompileError, softmax, f32, op\n",
        "import tessera.profiler.export\nimport tessera.runtime.events as E\nfrom tessera.compiler.ir import core",
        "import tessera as ts\ndef f(ts): return ts.nonsense",
        "import tessera as ts\ndef f():\n    ts = 3\n    return ts.nonsense",
        "ts = object()\nts.nonsense",
        "import numpy as ts\nts.nonsense",
        "try:\n    from tessera import serving\nexcept ImportError:\n    serving = None\n",
        "from .tessera import anything\nimport other.tessera.anything",
        "import tessera as ts\nts.tile.load, ts.tile.exp, ts.tile.row_max, ts.tile.fabs, ts.tile.__name__\n",
        "import tessera as ts\nts.tensor([1.0]).nonsense, ts.softmax.nonsense, ts.kernels.attention_safe.nonsense\n",
        "import tessera as ts\nfrom tessera.kernels import attention, rows, softmax_safe\nsoftmax_safe.anything\n",
        "import tessera as ts\nwith ts.profiler() as p: p.anything\nts.errors.CODES, ts.knobs.target.override\n",
        "import tessera as ts\nfrom tessera.compiler.targets import cpu\nfrom tessera.array_api import fft",
        "import tessera as ts\ndef f(n):\n    for i in ts.range(ts.cdiv(n, 8)):\n        pass\n",
    ],
)
def test_names_that_are_there_and_names_of_others_are_none(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('m = ts.mesh(4, topology="ring")', "a mesh has no parameter 'topology'; how devices are wired"),
        ("m = Mesh(4, axis='data')", "a mesh has no parameter 'axis'"),
        (
            "@ts.distributed(ts.mesh(4, layout={}))\n@ts.function\ndef f(x: ts.Tensor['B']): return x",
            "a mesh has no parameter 'layout'",
        ),
        ("@ts.distributed(2, dim='B')\ndef f(x: ts.Tensor['B']): return x", "distributed has no parameter 'dim'"),
        (
            "class A:\n    def f(self): self.m = ts.mesh(devices=2, shpe=(2,))",
            "no parameter 'shpe'; did you mean shape?",
        ),
        ("with ts.mesh(devices=range(8)) as m:\n    pass", "a mesh is not a context manager: pass it to a function"),
    ],
)
def test_what_a_mesh_does_not_take_is_said_before_it_runs(text, said):
    text = f"import tessera as ts\nfrom tessera.dist import Mesh\n{text}\n"
    assert [(code, said in message) for code, _, message in found(text)] == [("TS105", True)], found(text)
    with pytest.raises(ts.CompileError, match="TS105") as ours:
        exec(compile(text + "A().f()\n" if "class" in text else text, "mesh.py", "exec"), {})
    assert said in str(ours.value)
    assert not [e for e in ours.traceback if "tessera/" in str(e.path).replace(str(ROOT), "")[:10]]


def test_a_name_that_only_stands_outside_is_no_spelling_mistake():
    text = "import tessera as ts\n@ts.function\ndef f(x: ts.Tensor['N']):\n    return x * ts.rand(3)\n"
    ((code, _, message),) = found(text)
    assert code == "TS104" and message.endswith("give a seed: ts.uniform(seed, shape)")
    ((_, _, message),) = found(text.replace("ts.rand(3)", "ts.train(f)"))
    assert message == "tessera.train cannot be used in a function; it is called outside of functions and kernels"


def test_the_fix_mends_it():
    text = "import tessera as ts\n\nf = ts.sofmax\nfrom tessera import profler\n"
    file = FileAnalysis("fixed.py")
    file.update(text)
    mended = text
    for d in file.diagnostics:
        mended = apply(mended, d.fixes[0])
    assert mended == text.replace("sofmax", "softmax").replace("profler", "profiler")


def test_one_mistake_inside_a_function_is_one_finding():
    text = "import tessera as ts\n@ts.function\ndef f(x: ts.Tensor['N']):\n    return ts.nonsense(x)\n"
    assert len(found(text)) == 1
    helper = "import tessera as ts\ndef g(x):\n    return ts.nonsense(x)\n@ts.function\ndef f(x: ts.Tensor['N']):\n"
    assert len(found(helper + "    return g(x)\n")) == 1


def test_what_functions_may_use_is_there_outside_too():
    for name in vocabulary.NAMESPACES:
        assert hasattr(ts, name)
    for path in ("tessera", "tessera.nn", "tessera.op"):
        module = ts if path == "tessera" else getattr(ts, path.rpartition(".")[2])
        missing = [n for n in vocabulary.members(path) if not hasattr(module, n)]
        assert set(missing) <= ({"bool", "range", "cdiv"} if module is ts else set()), missing
    assert vocabulary.member("tessera.nn", "unheard_of") is MISSING
    assert ts.nn.relu is ts.relu
    assert ts.nn.relu(np.array([-1.0, 2.0])).tolist() == [0.0, 2.0]
    assert importlib.import_module("tessera.nn").softmax is ts.softmax


def test_functions_that_are_made_of_operators_are_known_by_their_text():
    from tessera.compiler.frontend.library import TextLibrary
    from tessera.functions import HOME

    assert TextLibrary("tessera.functions").homes == HOME


def test_what_is_offered_is_near():
    known = ["sin", "ones", "softmax", "layer_norm", "relu", "N"]
    assert nearest("serving", known) is None and nearest("nonsense", known) is None
    assert nearest("sofmax", known) == "softmax" and nearest("layernorm", known) == "layer_norm"
    assert nearest("RELU", known) == "relu" and nearest("n", known) == "N" and nearest("rleu", known) == "relu"


def test_checking_examples_finds_no_such_name():
    """The package's own examples use names that it has."""
    command = [sys.executable, "-P", "-m", "tessera", "check", "--json"]
    command += [str(ROOT / "examples"), str(ROOT / "benchmarks")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "TS104" not in done.stdout


def test_inspection_asks_for_no_suggestion(monkeypatch):
    """Every compilation asks modules for `__wrapped__`; what is near takes milliseconds to find."""
    asked = []
    monkeypatch.setattr("tessera.nearest.nearest", lambda *args: asked.append(args))
    assert not hasattr(ts, "__wrapped__") and asked == []
    assert not hasattr(ts, "sofmax") and asked


MODULES = ("checkpoint", "fft", "kernels", "linalg", "nn", "nn.init", "optimizers", "profiler")


@pytest.mark.parametrize("path", ["tessera", *(f"tessera.{name}" for name in MODULES)])
def test_every_name_that_a_module_gives_is_known(path: str) -> None:
    module = importlib.import_module(path)
    names = [n for n in getattr(module, "__all__", dir(module)) if not n.startswith("_")]
    lines = [f"from {path} import {n}\n{path.replace('tessera', 'ts')}.{n}" for n in names]
    assert names and found("\n".join(["import tessera as ts", *lines])) == []
