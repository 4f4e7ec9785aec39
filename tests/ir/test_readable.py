"""IR as people read it: golden texts of the three levels, and what holds of every text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from tessera.compiler.frontend.incremental import analyse_file
from tessera.compiler.ir.core import Block, Builder, Op, Region
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.readable import readable
from tessera.compiler.ir.spec import SPECS
from tessera.compiler.ir.types import TensorType, ViewType
from tessera.compiler.pipeline import Lowered
from tessera.errors import NOWHERE, Span
from tessera.language import dims, dtypes
from tests.ir import readable_programs as programs
from tests.ir.random_ir import ops
from tests.unit.frontend.test_launching import lowered

HERE = Span("/home/me/model.py", 8, 5, 8, 9)


def levels(name: str, target: str, **sizes: int) -> Lowered:
    return lowered(getattr(programs, name), target, **sizes)


@pytest.mark.parametrize("level", ["graph", "schedule", "tile"])
@pytest.mark.parametrize("name", ["attend", "until"])
def test_functions(golden: Callable[[str, str], None], name: str, level: str) -> None:
    golden(f"{name}.{level}.txt", levels(name, "cpu", D=64).text(level))


def test_a_kernel(golden: Callable[[str, str], None]) -> None:
    golden("product.tile.txt", levels("product", "sm_80", K=512).text("tile"))


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_attention_walks_the_keys_that_there_are(golden: Callable[[str, str], None], target: str) -> None:
    """The bound of the loop over keys is an element of `lengths`."""
    text = levels("continued", target, D=64, T=2048).text("tile")
    golden(f"continued.{target}.tile.txt", re.sub(r"   # .*", "", text))


def test_the_generic_form_is_there_too() -> None:
    found = levels("attend", "cpu", D=64)
    assert found.graph is not None
    assert found.text("graph", generic=True) == print_op(found.graph)


def scores() -> Op:
    shape = tuple(map(dims.symbol, "BHSS"))
    t = TensorType(shape, dtypes.bf16)
    block = Block([t, t], ["q", "k"])
    b = Builder(block, span=HERE)
    b.op("graph.return", [b.value("graph.matmul", block.args, t, hint="scores")], span=NOWHERE)
    return Op("graph.func", (), (), HERE, {"sym_name": "f", "arg_names": ("q", "k")}, [Region([block])])


def test_a_line_names_the_value_the_operator_the_type_and_the_place() -> None:
    assert readable(scores()).text.splitlines() == [
        "func f(q: [B, H, S, S] bf16, k: [B, H, S, S] bf16) -> [B, H, S, S] bf16 {   # model.py:8",
        "  scores = matmul(q, k) : [B, H, S, S] bf16   # model.py:8",
        "  return scores",
        "}",
    ]


def one(name: str, type: TensorType, operands: int = 0, **attrs: object) -> str:
    """The line of an op between its operands and its user."""
    block = Block([type] * operands)
    b = Builder(block, span=NOWHERE)
    b.op("graph.return", [b.value(name, block.args, type, attrs)])  # type: ignore[arg-type]
    func = Op("graph.func", (), (), NOWHERE, {"sym_name": "f"}, [Region([block])])
    return readable(func).text.splitlines()[1].strip()


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (2.0, dtypes.f32, "2.0"),
        (2.0, dtypes.bf16, "bf16(2.0)"),
        (3, dtypes.int64, "3"),
        (3, dtypes.int32, "int32(3)"),
        (True, dtypes.bool_, "True"),
        (float("-inf"), dtypes.f32, "-inf"),
    ],
)
def test_constants_stand_where_they_are_used(value: object, dtype: dtypes.DType, text: str) -> None:
    assert one("graph.constant", TensorType((), dtype), value=value) == f"return {text}"


def test_attributes_with_their_default_are_left_out() -> None:
    t = TensorType((4,), dtypes.f32)
    assert one("graph.softmax", t, 1, axis=-1) == "t1 = softmax(t0) : [4] f32"
    assert one("graph.softmax", t, 1, axis=0) == "t1 = softmax(t0, axis=0) : [4] f32"
    assert one("graph.concat", t, 2, axis=0, segments=(2,)) == "t2 = concat([t0, t1]) : [4] f32"
    assert one("graph.clip", t, 2, segments=(-1, -2, -1)) == "t2 = clip(t0, None, t1) : [4] f32"


def test_strides_of_a_view_are_shown() -> None:
    block = Block([ViewType((4, 8), dtypes.f32, (1, 4))], ["x"])
    Builder(block, span=NOWHERE).op("tile.return")
    func = Op("tile.func", (), (), NOWHERE, {"sym_name": "f", "grid": (2,)}, [Region([block])])
    assert readable(func).text.startswith("func f(x: [4, 8] f32 strides [1, 4]) with grid=[2] {")


@given(ops())
def test_any_op_has_a_line_with_its_span(op: Op) -> None:
    found = readable(op)
    assert len(found.text.splitlines()) >= len(found.spans)  # a string's line breaks are escaped
    shown = [o for o in op.walk() if o.name not in SPECS or not SPECS[o.name].reading.literal]
    assert [span for span in found.spans if span is not None] == [o.span for o in shown]


@pytest.mark.parametrize("file", ["seeds/kernels.py", "lsp/markers/launches.py", "ir/readable_programs.py"])
def test_a_name_means_one_value_in_its_region(file: str) -> None:
    analyses = [a for a in analyse_file(Path(__file__).parents[1] / file) if a.op is not None]
    assert analyses
    for analysis in analyses:
        assert analysis.op is not None
        scopes: list[set[str]] = [set()]
        for line in readable(analysis.op).text.splitlines():
            text = line.strip()
            if text.startswith("}"):
                scopes.pop()
            names = text.partition(" = ")[0].split(", ") if " = " in text.partition("(")[0] else []
            assert not scopes[-1] & set(names), line
            scopes[-1].update(names)
            if text.partition("   #")[0].endswith("{"):
                scopes.append(set())
