"""Imports from other files of the workspace: what their text says, as it is now, and nothing is executed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.workspace import Modules

LAYERS = """import tessera as ts
from tessera import Tensor
from .config import HEADS, SCALE

WIDTH = 64


def heads(x):
    B, S, D = x.shape
    return x.reshape(B, S, HEADS, D // HEADS)


@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    return x / ts.sqrt((x * x).mean(axis=-1, keepdim=True) + SCALE)


def other(x):
    return x
"""

MODEL = """import tessera as ts
from tessera import Tensor
{imports}


@ts.function
def split(x: Tensor["B", "S", WIDTH]):
    y = {heads}(x)
    return y


@ts.function
def normed(x: Tensor["B", "D"]):
    z = {norm}(x)
    return z


@ts.function
def alone(x: Tensor["B", "D"]):
    return x + 1
"""

FROM = {"imports": "from {}layers import WIDTH, heads, norm", "heads": "heads", "norm": "norm"}
WAYS = {
    "from": FROM,
    "star": FROM | {"imports": "from {}layers import *"},
    "module": {"imports": "from {0}layers import WIDTH\nimport layers as L", "heads": "L.heads", "norm": "L.norm"},
    "renamed": {"imports": "from {0}layers import WIDTH, heads as h, norm as n", "heads": "h", "norm": "n"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.py").write_text("HEADS = 4\nSCALE = 1e-5\n")
    (tmp_path / "layers.py").write_text(LAYERS)
    return tmp_path


def model(way: str, dot: str = "") -> str:
    return MODEL.format(**{k: v.format(dot) for k, v in WAYS[way].items()})


def types(file: FileAnalysis) -> dict[str, str]:
    return {f"{a.name}.{e.name}": e.text for a in file.analyses for e in a.expressions if e.kind == "assign"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dot", ["", "."])
def test_every_way_to_import(folder: Path, way: str, dot: str) -> None:
    file = FileAnalysis(str(folder / "model.py"))
    file.update(model(way, dot))
    assert types(file) == {"split.y": "[B, S, 4, 16] f32", "normed.z": "[B, D] f32"}
    assert not file.diagnostics
    assert "layers" not in sys.modules


def test_a_change_reaches_those_who_depend_on_it(folder: Path) -> None:
    """Through a second import too; whoever does not depend on it keeps the analysis that there is."""
    file = FileAnalysis(str(folder / "model.py"))
    file.update(model("from"))
    before = {a.name: a.op for a in file.analyses}
    (folder / "config.py").write_text("HEADS = 8\nSCALE = 1e-5\n# longer\n")
    file.update(model("from"))
    now = {a.name: a.op for a in file.analyses}
    assert types(file)["split.y"] == "[B, S, 8, 8] f32"
    assert now["split"] is not before["split"]
    assert now["normed"] is before["normed"] and now["alone"] is before["alone"]
    (folder / "layers.py").write_text(LAYERS.replace("return x / ts.sqrt(", "return x * ts.sqrt("))
    file.update(model("from"))
    assert {a.name for a in file.analyses if a.op is not now[a.name]} == {"normed"}


def test_an_open_text_comes_before_the_disk(folder: Path) -> None:
    modules, told = Modules(), list[str]()
    modules.changed.append(told.append)
    file = FileAnalysis(str(folder / "model.py"), modules=modules)
    path = str(folder / "layers.py")
    modules.open(path, LAYERS.replace("WIDTH = 64", "WIDTH = 128"))
    file.update(model("from"))
    assert types(file)["split.y"] == "[B, S, 4, 32] f32"
    modules.open(path, LAYERS.replace("return x.reshape(", "return x.reshape("[:-1] + "(("))
    file.update(model("from"))
    assert types(file)["split.y"] == "[B, S, 4, 16] f32", "the helper does not parse, and counts as it did last"
    modules.open(path, None)
    file.update(model("from"))
    assert types(file)["split.y"] == "[B, S, 4, 16] f32"
    assert told == [path] * 3


def test_imported_functions_use_pythons_builtins(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("def flat(x, n: int = 1):\n    return x.reshape((len(x.shape), int(n), -1))\n")
    file = FileAnalysis(str(tmp_path / "model.py"), modules=Modules())
    head = "import tessera as ts\nfrom tessera import Tensor\n"
    body = "\n@ts.function\ndef f(x: Tensor[4, 4]):\n    y = flat(x)\n    return y\n"
    file.update(f"{head}from layers import flat{body}")
    assert not file.diagnostics and types(file)["f.y"] == "[2, 1, 8] f32"
    file.update(f"{head}import layers{body.replace('flat', 'layers.len')}")
    assert [d.code for d in file.diagnostics] == ["TS104"], "these are not names of the file"


def test_mistakes_in_calls_of_imported_functions(folder: Path) -> None:
    file = FileAnalysis(str(folder / "model.py"))
    file.update(model("from").replace("z = norm(x)", "z = norm(x.sum(-1))"))
    (found,) = file.diagnostics
    assert found.code == "TS209" and any(n.span and n.span.file.endswith("layers.py") for n in found.notes)
    file.update(model("module").replace("L.norm", "L.nrom"))
    (found,) = file.diagnostics
    assert found.code == "TS104" and "did you mean 'norm'?" in found.message


def test_packages(tmp_path: Path) -> None:
    package = tmp_path / "net"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("from .parts.attention import attend\nDEPTH = 3\n")
    (package / "parts" / "__init__.py").write_text("")
    (package / "parts" / "attention.tess").write_text("from ...net import DEPTH\ndef attend(x):\n    return x.sum(0)\n")
    for importer, line, call in (
        ("run.py", "from net import attend", "attend(x)"),
        ("run.py", "import net", "net.attend(x)"),
        ("run.py", "import net.parts.attention as a", "a.attend(x)"),
        ("run.py", "from net.parts import attention", "attention.attend(x)"),
        ("net/model.py", "from . import attend", "attend(x)"),
        ("net/parts/model.py", "from .. import attend", "attend(x)"),
        ("net/parts/model.py", "from net.parts.attention import attend", "attend(x)"),
        ("net/parts/model.py", "from . import attention", "attention.attend(x)"),
    ):
        file = FileAnalysis(str(tmp_path / importer))
        file.update(
            f"import tessera as ts\n{line}\n@ts.function\ndef f(x: ts.Tensor['B', 'D']):\n"
            f"    y = {call}\n    return y\n"
        )
        assert types(file) == {"f.y": "[D] f32"}, (importer, line, file.diagnostics)


def test_cycles_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import x, g\ny = x\ndef f(t):\n    return g(t)\n")
    (tmp_path / "b.py").write_text("from a import y, f\nx = y\nN = 5\ndef g(t):\n    return t.sum(0)\n")
    file = FileAnalysis(str(tmp_path / "a.py"))
    file.update(
        "import tessera as ts\nfrom b import x, g, N\ny = x\n"
        "@ts.function\ndef h(t: ts.Tensor['B', N]):\n    z = g(t)\n    return z\n"
    )
    assert types(file) == {"h.z": "[5] f32"} and not file.diagnostics


def test_files_that_take_all_names_of_each_other(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("from a import *\nfrom b import *\nN = 5\ndef g(t):\n    return t.sum(0) * HERE\n")
    (tmp_path / "a.py").write_text("")
    file = FileAnalysis(str(tmp_path / "a.py"), modules=(modules := Modules()))
    text = (
        "import tessera as ts\nfrom b import *\nHERE = 2\n"
        "@ts.function\ndef h(t: ts.Tensor['B', N]):\n    z = g(t)\n    return z * nowhere\n"
    )
    modules.open(str(tmp_path / "a.py"), text)
    file.update(text)
    assert types(file) == {"h.z": "[5] f32"}
    (found,) = file.diagnostics
    assert found.code == "TS103" and found.message.startswith("'nowhere' is not defined")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"HEADS = (", b"\x00", b"x = 1\n" * 400_000])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.py").write_bytes(content)
    (tmp_path / "layers.py").mkdir()
    file = FileAnalysis(str(tmp_path / "model.py"))
    file.update(
        "import tessera as ts\nfrom config import HEADS\nfrom layers import f\nimport \\\n  no.such.thing\n"
        "@ts.function\ndef g(x: ts.Tensor['B', 'D']):\n"
        "    y = x.reshape(B, HEADS, -1)\n    z = f(x)\n    return x + 1\n"
    )
    assert not file.diagnostics and [a.name for a in file.analyses] == ["g"]
    (tmp_path / "config.py").unlink()
    (tmp_path / "config.py").write_text("HEADS = 2")
    file.update(file.text + "\n")
    assert not file.diagnostics


def test_nothing_is_executed(folder: Path) -> None:
    marker = folder / "ran"
    (folder / "layers.py").write_text(f"open({str(marker)!r}, 'w')\n" + LAYERS)
    file = FileAnalysis(str(folder / "model.py"))
    file.update(model("from"))
    assert types(file) and not marker.exists()


MODEL_WITH_IDLE_LAYERS = """import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    mlp: nn.MLP
    norm: nn.LayerNorm
    idle: nn.Linear
    pair: nn.Linear
    conv: nn.Conv2d

    def __call__(self, x):
        h = self.norm(self.mlp(x))
        return h + ts.sum(self.pair.weight)


class Chosen(nn.Module):
    first: nn.Linear
    second: nn.Linear
    deep: int

    def __call__(self, x):
        y = self.first(x)
        if self.deep > 3:
            y = self.second(x)
        return y


class Repeated(nn.Module):
    first: nn.Linear
    hidden: list[nn.Linear]

    def __call__(self, x):
        h = self.first(x)
        for layer in self.hidden:
            h = h + layer(h)
        return h


@ts.function
def train(model: {model}, x: Tensor["B", "D"], y: Tensor["B", "D"]):
    loss, gradient = ts.value_and_grad(lambda model: ts.mse(model(x), y))(model)
    return loss, gradient
"""


def found_in(text: str) -> list[str]:
    file = FileAnalysis("/work/idle.py")
    return [d.message for a in file.update(text) for d in a.diagnostics if a.name == "train"]


def test_layers_that_a_loss_does_not_reach_are_said_of_a_text() -> None:
    """What a text leaves open (optional biases, numbers of layers) decides about no path here."""
    said = "the result does not depend on model.{}: its gradient is 0"
    assert found_in(MODEL_WITH_IDLE_LAYERS.format(model="Net")) == [
        said.format(part) for part in ("idle", "pair.bias", "conv")
    ]


@pytest.mark.parametrize("model", ["Chosen", "Repeated"])
def test_a_layer_on_an_open_path_may_be_reached(model: str) -> None:
    assert not found_in(MODEL_WITH_IDLE_LAYERS.format(model=model))
