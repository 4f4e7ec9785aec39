"""What a profile leaves for editors."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import analyse_file
from tessera.compiler.predict import _path, digest, last, predict, sizes_text

TEXT = """import tessera as ts
from tessera import Tensor

@ts.function
def norm(x: Tensor["B", "D"]):
    return ts.softmax(x) * 2
"""


def profiled(file, *rows):
    """What a profiler saw of `norm` in the file, called with so many rows each time."""
    file.write_text(TEXT, encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(TEXT, str(file), "exec"), names)
    with ts.profiler() as prof:
        for n in rows:
            names["norm"](np.ones((n, 16), np.float32))  # type: ignore[operator]
    return prof


def test_a_profile_leaves_what_functions_took(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "größe.py"
    prof = profiled(file, 8)
    (found,) = last(str(file)).items()
    name, measured = found
    assert name == "norm"
    assert measured.ns == sum(launch.duration or 0 for launch in prof.launches())
    assert measured.launches == len(prof.launches()) and measured.text == digest(TEXT)
    assert measured.sizes == {"B": 8, "D": 16}
    _path(str(file)).write_text("{", encoding="utf-8")
    assert last(str(file)) == {}


def test_sizes_in_which_launches_differ_are_several(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "model.py"
    prof = profiled(file, 8, 4)
    assert last(str(file))["norm"].sizes == {"B": None, "D": 16}
    assert [k.sizes for k in prof.summary().kernels] == [{"B": None, "D": 16}]
    page = prof.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert [f">{sizes}</small>" in page for sizes in ("D=16, several B", "B=8, D=16", "B=4, D=16")] == [True] * 3


@pytest.mark.parametrize(
    "sizes, said",
    [({}, ""), ({"B": 8}, "B=8"), ({"B": 8, "S": 4, "D": 4}, "B=8, S=D=4"), ({"B": None, "D": 4}, "D=4, several B")],
)
def test_sizes_as_text(sizes, said):
    assert sizes_text(sizes) == said


def test_functions_without_a_file_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    from tessera.errors import register_source

    register_source("In[4]", TEXT)
    names: dict[str, object] = {}
    exec(compile(TEXT, "In[4]", "exec"), names)
    with ts.profiler():
        names["norm"](np.ones((8, 16), np.float32))  # type: ignore[operator]
    assert not (tmp_path / "profiles").exists()


def test_what_cannot_be_compiled_says_at_which_sizes() -> None:
    source = (
        "import tessera as ts\n\n@ts.function\ndef f(x: ts.Tensor['S', 'D']):\n"
        "    return (x.reshape(S, 8, -1) @ x).reshape(5003, -1)\n"
    )
    (analysis,) = analyse_file("sizes.py", source)
    for dims in ({"S": 512}, {"D": 64}, {}):  # sizes that are given are not mixed with open ones
        missing = ", ".join(n for n in ("S", "D") if n not in dims)
        assert predict(analysis, dims, "cpu").why == f"set a size for {missing}"
    why = predict(analysis, {"S": 512, "D": 64}, "cpu").why
    assert why.startswith("f cannot be compiled at S=512, D=64: [512, 8, 8] @ [512, 64]: ")
