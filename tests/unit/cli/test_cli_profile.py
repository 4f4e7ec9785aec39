"""`tessera profile FILE:NAME`: one function, on arguments made from its annotations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f16, int8
from tessera.compiler.frontend.incremental import analyse_file
from tessera.compiler.frontend.sizes import ELEMENTS, usual_sizes
from tessera.compiler.predict import last
from tessera.errors import LaunchError
from tessera.language.dims import evaluate, prod
from tessera.runtime.call.examples import example_arguments
from tests.unit.cli.test_cli import tessera

PROGRAM = '''"""𝒮"""
import tessera as ts
from tessera import Const, Tensor, bf16, f32, int32
print("imported as", __name__)

@ts.function
def attend(q: Tensor["B", "H", "S", "E", bf16], k: Tensor["B", "H", "S", "E", bf16], mask: Tensor["S", "S", bool] | None = None):
    scores = q @ k.transpose(2, 3)
    if mask is not None:
        scores = ts.where(mask, scores, -1e9)
    return ts.softmax(scores, axis=-1)

@ts.function
def embed(ids: Tensor["B", "S", int32], table: Tensor["V", "D"], scale: float, heads: Const["H"] = 4, h: int = 2):
    return table[ids] * scale

@ts.kernel
def saxpy(x: Tensor["n", f32], y: Tensor["n", f32], alpha: f32) -> Tensor["n", f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y

@ts.function
def normed(x: Tensor[..., "D"]):
    return ts.softmax(x)

@ts.function
def split(x: Tensor["B", "D"], h: int):
    B, D = x.shape
    assert D % h == 0
    return x.reshape(B, h, D // h).sum(-1)

@ts.function
def wrong(x: Tensor["B", "S"], w: Tensor["D", "E"]):
    return x @ w

@ts.function
def loose(x, y: Tensor["N"]):
    return x + y

@ts.function
def outer(x: Tensor["N"], y: Tensor["M"]):
    return x[:, None] - y[None, :]
'''  # noqa: E501


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "model.py").write_text(PROGRAM, encoding="utf-8")
    return folder


def analyses(folder: Path):
    return {a.name: a for a in analyse_file(str(folder / "model.py"))}


def test_the_report_of_a_function(folder: Path) -> None:
    words = ("--dims", "B=2,S=64", "--html", "p.html", "--trace", "t.json")
    result = tessera("profile", "model.py:attend", *words, "--target", "cpu", cwd=folder)
    assert result.returncode == 0, result.stderr
    first, said, *_ = result.stdout.splitlines()
    assert first == "imported as __profile__"  # a guarded main does not run
    assert said == "attend on cpu with B=2, H=128, S=64, E=128 (not given, so assumed: H, E; --dims sets them)"
    assert "Kernel Execution Summary" in result.stdout and "  attend:" in result.stdout
    assert "  model.py:7: " in result.stdout  # what was allocated counts for the function
    assert "<th>attend:" in (folder / "p.html").read_text()
    assert json.loads((folder / "t.json").read_text())["traceEvents"]
    measured = last(str(folder / "model.py"))["attend"]
    assert measured.target == "cpu" and measured.ns > 0


def test_figures_as_json(folder: Path) -> None:
    words = ("--dims", "n=4096", "--repeat", "3", "--json", "--target", "cpu")
    result = tessera("profile", "model.py:saxpy", *words, cwd=folder)
    found = json.loads(result.stdout.partition("\n")[2])
    assert (found["function"], found["target"], found["sizes"], found["assumed"]) == ("saxpy", "cpu", {"n": 4096}, [])
    (kernel,) = found["kernels"]
    assert (kernel["launches"], kernel["bytes"]) == (3, 3 * 3 * 4096 * 4)
    assert kernel["sizes"] == {"n": 4096}
    assert kernel["time_is"] == "measured" and kernel["time"] > 0
    assert last(str(folder / "model.py"))["saxpy"].launches == 3


@pytest.mark.parametrize(
    "words, said",
    [
        (("model.py:attend", "--dims", "Q=3"), "attend has no size 'Q'; it has B, H, S, E"),
        (("model.py:atend",), "did you mean 'attend'?"),
        (("model.py:wrong",), "contracted dimensions S and D differ"),
        (("model.py:loose",), "x has no default, and no value for it follows from sizes"),
        (("model.py:saxpy", "--dims", "n=99999999999999"), "x would take 363.8 TiB"),
        (("model.py", "--dims", "B=3"), "are for FILE:NAME"),
        (("model.py:attend", "--target", "sm_75000"), "TS601"),
    ],
)
def test_mistakes(folder: Path, words: tuple[str, ...], said: str) -> None:
    result = tessera("profile", *words, cwd=folder)
    text = " ".join((result.stderr + result.stdout).replace("│", " ").split())
    assert result.returncode in (1, 2) and said in text and "Traceback" not in text
    ran = "imported" in text
    assert ran == (words[0] in ("model.py:loose", "model.py:saxpy"))  # what can be seen in the text is seen first


def test_a_gpu_that_is_not_there_is_missed_before_anything_runs(folder: Path) -> None:
    from tessera.runtime.arrays.devices import cuda_devices

    if cuda_devices():
        pytest.skip("this machine has a GPU")
    result = tessera("profile", "model.py:attend", "--target", "sm_90a", cwd=folder)
    assert result.returncode == 1 and "TS605" in result.stderr and "imported" not in result.stdout


def test_sizes_where_none_are_given(folder: Path) -> None:
    """Defaults are kept; dims get one size for which no tensor is too large, those in between included."""
    found = {name: usual_sizes(a, {}) for name, a in analyses(folder).items()}
    assert found["saxpy"] == {"n": 1024}
    assert found["attend"] == {"B": 32, "H": 32, "S": 32, "E": 32}
    assert found["embed"] == {"B": 128, "S": 128, "V": 128, "D": 128, "H": 4, "h": 2}
    assert found["split"] == {"B": 1024, "D": 1024, "h": 1}
    assert found["normed"] == {"...": 1024, "D": 1024}
    assert found["outer"] == {"N": 1024, "M": 1024}
    some = usual_sizes(analyses(folder)["outer"], {"N": 2**18})
    assert some == {"N": 2**18, "M": 16}
    attend: Any = analyses(folder)["attend"].op
    counts = [evaluate(prod(v.type.shape), found["attend"]) for op in attend.walk() for v in op.results]
    assert counts and max(counts) <= ELEMENTS


@ts.function
def looked_up(ids: Tensor["B", int8], table: Tensor["V", 1, f16], keep: Tensor["B", bool], s: float) -> Tensor["B"]:
    return ts.where(keep, ts.sum(table[ids], axis=-1), s)


def test_arguments_are_of_the_annotated_types() -> None:
    made = example_arguments(looked_up, {"B": 300, "V": 90})
    assert {k: (v.shape, str(v.dtype)) for k, v in made.items() if k != "s"} == {
        "ids": ((300,), "int8"), "table": ((90, 1), "float16"), "keep": ((300,), "bool")
    }  # fmt: skip
    assert made["s"] == 1 and isinstance(made["s"], float)
    assert 0 <= made["ids"].min() < made["ids"].max() < 90  # indices that are valid, and not all the same
    assert 0 < made["keep"].sum() < 300
    assert made["table"].std() == pytest.approx(1, abs=0.3)
    again = example_arguments(looked_up, {"B": 300, "V": 90})
    np.testing.assert_array_equal(made["table"], again["table"])
    looked_up(**made)


def test_a_size_that_is_missing() -> None:
    with pytest.raises(LaunchError, match=r"TS502[\s\S]*the size of V is needed to make table"):
        example_arguments(looked_up, {"B": 3})


HOLDERS = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple
import tessera as ts
from tessera import Tensor, f32

@dataclass
class Feed:
    up: Tensor["D", "F", f32]
    names: ClassVar[list[str]] = []

class Pair(NamedTuple):
    weight: Tensor["D", "F", f32]
    bias: Tensor["F", f32]

@ts.function
def dense(x: Tensor["B", "D", f32], p: tuple[Pair, Tensor["B", f32]], scale: f32):
    return (x @ p[0].weight + p[0].bias) * p[1][:, None] * scale

@ts.function
def feed(x: Tensor["B", "D", f32], p: Feed):
    return x @ p.up

@dataclass
class Layer:
    feed: Feed
    bias: Tensor["F", f32]
    activation: str

@ts.function
def layered(x: Tensor["B", "D", f32], p: Layer):
    return x @ p.feed.up + p.bias
"""

ASSERTING = """
import tessera as ts
from tessera import Tensor

@ts.function
def bounded(x: Tensor["S", "D"]):
    assert x.shape[0] <= 100
    assert x.shape[1] % 3 == 0
    return ts.softmax(x)

@ts.function
def heads(x: Tensor["S", "D"], H: int, W: int):
    S, D = x.shape
    assert D == H * 48
    assert W <= S and S >= 3000
    assert H == 4
    return ts.softmax(x)[:W]

@ts.function
def impossible(x: Tensor["S", "D"]):
    assert x.shape[0] == 2 * x.shape[0] - 3000
    return x + 1
"""


def test_sizes_are_those_that_asserts_allow(tmp_path: Path) -> None:
    file = tmp_path / "asserting.py"
    file.write_text(ASSERTING, encoding="utf-8")
    found = {a.name: usual_sizes(a, {}) for a in analyse_file(str(file))}
    assert found["bounded"] == {"S": 64, "D": 768}
    assert found["heads"] == {"S": 4096, "D": 192, "H": 4, "W": 1}
    assert found["impossible"] == {"S": 1024, "D": 1024}, "the call says what is broken"
    given = {a.name: usual_sizes(a, {"S": 70}) for a in analyse_file(str(file))}
    assert given["bounded"] == {"S": 70, "D": 768}
    result = tessera("profile", "asserting.py:heads", "--target", "cpu", "--repeat", "1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_what_holds_tensors(tmp_path: Path) -> None:
    """Tuples, named tuples and dataclasses are made; a field that nothing says a value of is asked for."""
    (tmp_path / "holders.py").write_text(HOLDERS, encoding="utf-8")
    result = tessera("profile", "holders.py:dense", "--target", "cpu", "--dims", "F=24,B=4", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["sizes"] == {"B": 4, "D": 1024, "F": 24} and said["assumed"] == ["D"]
    seldom = ("--every", "2", "--repeat", "5")
    result = tessera(
        "profile", "holders.py:feed", "--target", "cpu", "--dims", "B=4,F=24", *seldom, "--json", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["sizes"] == {"B": 4, "D": 1024, "F": 24}
    (calls,) = said["calls"]
    assert (calls["calls"], calls["recorded"]) == (5, 3) and said["kernels"][0]["launches"] == 3
    result = tessera("profile", "holders.py:layered", "--target", "cpu", cwd=tmp_path)
    assert result.returncode == 1 and "TS501" in result.stderr and "p.activation has no default" in result.stderr
    for name in ("dense", "feed"):
        result = tessera("ir", f"holders.py:{name}", "--dims", "B=4", cwd=tmp_path)
        assert result.returncode == 0 and "func " in result.stdout, result.stderr
