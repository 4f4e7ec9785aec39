"""The functions of `ts.tile` are defined once: what is derived from the definitions, and that what they say holds."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.kernel.builtins import FAMILIES, public
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tests.conftest import require
from tests.kernel_runner import check

ROOT = Path(__file__).parents[3]
BUILTINS = list(dict.fromkeys(public().values()))
HEAD = "import numpy as np\nimport tessera as ts\nfrom tessera import Tensor\n\n\n"
_loaded = 0


def loaded(text: str, folder: Path) -> dict[str, Any]:
    """The names of a program, which needs a file: kernels are read from their source."""
    global _loaded
    _loaded += 1
    file = folder / f"example_{_loaded}.py"
    file.write_text(HEAD + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def calls(example: str) -> tuple[str, list[tuple[str, str]]]:
    """The program of an example, and its calls with what they print."""
    program, *parts = example.strip("\n").split("\n>>> ")
    return program, [(call, printed.strip()) for call, _, printed in (p.partition("\n") for p in parts)]


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda b: b.name)
def test_example(builtin: TileBuiltin, tmp_path: Path) -> None:
    """It prints what it says, on the CPU and in the interpreter."""
    program, steps = calls(builtin.example)
    assert any(printed for _, printed in steps), builtin.name
    assert any(f"ts.tile.{n}(" in program for n in builtin.names), "the example does not use it"
    for target in ("cpu", "reference"):
        names = loaded(program, tmp_path)
        with knobs.target.override(target):
            for call, printed in steps:
                if " = " in call.partition("(")[0]:
                    exec(call, names)
                    continue
                found = eval(call, names)
                if printed:
                    text = np.array2string(np.asarray(found), precision=4)
                    assert text == printed, (target, call)


def test_every_name_is_documented() -> None:
    for builtin in BUILTINS:
        assert builtin.doc and builtin.cost and builtin.example, builtin.name
        assert builtin.shapes or not builtin.parameters, builtin.name
        for _, text in builtin.facts:
            assert "  " not in text and not text.endswith(" "), builtin.name
    families = {f.__name__.rpartition(".")[2] for f in FAMILIES}
    assert {b.family for b in BUILTINS} == families


def test_the_reference_page_has_every_name() -> None:
    require("mkdocs")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from tile_pages import tile_page  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    page = tile_page()
    for name, builtin in public().items():
        assert f"`{builtin.signature}`" in page and builtin.dtypes in page
        assert f'id="{name}"' in page or f"#{name} }}" in page, name
        _, steps = calls(builtin.example)
        assert steps[-1][1].partition("\n")[0] in page, name


def test_python_sees_the_definition() -> None:
    for name, builtin in public().items():
        function = getattr(ts.tile, name)
        assert function.__doc__ == builtin.text and function.__name__ == name
        assert list(inspect.signature(function).parameters) == list(builtin.parameters)


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="is taken by Mma"):
        type("Other", (TileBuiltin,), {"name": "dot", "__module__": "tessera.tile"})


# What the definitions say of dtypes, in words

TAKEN: dict[str, Callable[[DType], bool]] = {
    "any": lambda d: True,
    "numbers": lambda d: d.kind != "bool",
    "numbers and bools": lambda d: True,
    "real numbers": lambda d: d.kind != "bool" and not d.is_complex,
    "real numbers and bools": lambda d: not d.is_complex,
    "floats": lambda d: d.is_float,
    "complex numbers": lambda d: d.is_complex,
    "integers": lambda d: d.is_integer,
    "integers and bools": lambda d: d.is_integer or d.kind == "bool",
}


def _float(d: DType) -> DType:
    return d.compute if d.is_float or d.is_complex else dtypes.f32


def _wide(d: DType) -> DType:
    return d.accumulate


GIVEN: dict[str, Callable[[DType], DType]] = {
    "the same": lambda d: d,
    "bool": lambda d: dtypes.bool_,
    "int64": lambda d: dtypes.int64,
    "the dtype, f32 for narrower floats": lambda d: d.compute,
    "the common dtype, f32 for narrower floats": lambda d: d.compute,
    "the dtype, f32 for narrower floats, 64 bits for integers and bools": _wide,
    "the dtype, f32 for narrower floats, 64 bits for integers": _wide,
    "the dtype, f32 for integers and narrower floats": _float,
    "the common dtype, f32 for integers and narrower floats": _float,
    "the dtype of the real part, f32 for narrower floats": lambda d: d.part.compute,
    "the complex dtype with such parts": lambda d: d.compute.paired,
}
SEVERAL = {
    "expand_dims": "ts.tile.expand_dims(t, 0)",
    "repeat": "ts.tile.repeat(t, 2)",
    "reshape": "ts.tile.reshape(t, 8, 4)",
    "fma": "ts.tile.fma(t, t, t)",
    "reduce": "ts.tile.reduce(t, lambda a, b: b)",
    "associative_scan": "ts.tile.associative_scan(t, lambda a, b: b)",
}
DTYPES = (dtypes.f64, dtypes.f32, dtypes.bf16, dtypes.f16, dtypes.int32, dtypes.uint8, dtypes.bool_, dtypes.complex64)


def _of_tiles(builtin: TileBuiltin) -> bool:
    """Whether what it says of dtypes is about tiles of one dtype that it takes."""
    return " -> " in builtin.dtypes and builtin.dtypes.partition(" -> ")[2] in GIVEN


@pytest.mark.parametrize("builtin", [b for b in BUILTINS if _of_tiles(b)], ids=lambda b: b.name)
def test_dtypes(builtin: TileBuiltin, tmp_path: Path) -> None:
    takes, _, gives = builtin.dtypes.partition(" -> ")
    required = [p for p in builtin.parameters.values() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    call = SEVERAL.get(builtin.name) or f"ts.tile.{builtin.name}({', '.join('t' for _ in required)})"
    for dtype in DTYPES:
        name = "bool_" if dtype is dtypes.bool_ else dtype.name
        program = f"""
@ts.kernel
def example(x: Tensor["M", "N", ts.{name}], y: Tensor["M", "N", ts.{name}]):
    t = x[0:4, 0:8]
    found = {call}
    y[0:4, 0:8] = t
"""
        analysis = check(loaded(program, tmp_path)["example"])
        refused = [d.message for d in analysis.diagnostics if d.severity == "error"]
        assert bool(refused) != TAKEN[takes](dtype), (dtype, refused)
        if not refused:
            found = next(e.type for e in analysis.expressions if e.name == "found")
            assert found.dtype == GIVEN[gives](dtype), dtype


def test_arguments_by_the_names_that_are_shown(tmp_path: Path) -> None:
    """And by those of other libraries, wherever ours is a parameter."""
    program = """
@ts.kernel
def example(a: Tensor["M", "N", ts.f32], b: Tensor["M", "N", ts.f32], out: Tensor["K", "M", "N", ts.f32]):
    s, t = a[0:4, 0:8], b[0:4, 0:8]
    out[0, 0:4, 0:8] = ts.tile.atan2(y=s, x=t)
    out[1, 0:4, 0:8] = ts.tile.sort(s, dim=0)
    out[2, 0:4, 0:8] = s.cumsum(dim=1)
    out[3, 0:4, 0:8] = s - ts.tile.max(s, dim=1, keepdims=True)
    out[4, 0:4, 0:8] = s - ts.tile.row_sum(s, keepdim=True)
"""
    a, b = np.random.default_rng(0).standard_normal((2, 4, 8), np.float32)
    out = np.zeros((5, 4, 8), np.float32)
    loaded(program, tmp_path)["example"](a, b, out)
    wanted = [np.arctan2(a, b), np.sort(a, 0), a.cumsum(1), a - a.max(1, keepdims=True), a - a.sum(1, keepdims=True)]
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)


def test_an_argument_given_twice_is_refused(tmp_path: Path) -> None:
    program = """
@ts.kernel
def example(a: Tensor["M", "N", ts.f32], out: Tensor["M", "N", ts.f32]):
    out[0:4, 0:8] = ts.tile.sort(a[0:4, 0:8], axis=0, dim=0)
"""
    (found,) = [d for d in check(loaded(program, tmp_path)["example"]).diagnostics if d.severity == "error"]
    assert found.code == "TS105" and found.message.startswith("sort(x, axis=-1, descending=False): ")
