"""What is printed is read back: by our own parser exactly, and by xDSL as valid MLIR."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from hypothesis import given

from tessera.compiler.frontend.incremental import analyse_file
from tessera.compiler.ir.core import Block, Builder, Op, Region
from tessera.compiler.ir.parser import ParseError, parse_op
from tessera.compiler.ir.printer import print_lines, print_op
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.errors import Span
from tessera.language import dims, dtypes
from tests.conftest import require
from tests.ir.random_ir import ops

HERE = Span("model.py", 3, 5, 3, 9)


def same_attribute(a: object, b: object) -> bool:
    """Equality that tells 1 from 1.0 and True, 0.0 from -0.0, and finds a NaN equal to itself."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_attribute, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


def assert_same(a: Op, b: Op, numbering: dict) -> None:
    """Structural equality; `numbering` maps the values of one to those of the other."""
    assert (a.name, a.span) == (b.name, b.span)
    assert list(a.attrs) == list(b.attrs)
    assert all(same_attribute(a.attrs[k], b.attrs[k]) for k in a.attrs)
    assert [numbering[v] for v in a.operands] == list(b.operands)
    assert [r.type for r in a.results] == [r.type for r in b.results]
    assert len(a.regions) == len(b.regions)
    for ra, rb in zip(a.regions, b.regions, strict=True):
        assert len(ra.blocks) == len(rb.blocks)
        for ba, bb in zip(ra.blocks, rb.blocks, strict=True):
            assert [v.type for v in ba.args] == [v.type for v in bb.args]
            numbering.update(zip(ba.args, bb.args, strict=True))
            assert len(ba.ops) == len(bb.ops)
            for x, y in zip(ba.ops, bb.ops, strict=True):
                assert_same(x, y, numbering)
    numbering.update(zip(a.results, b.results, strict=True))


@given(ops())
def test_our_parser_reads_what_we_print(op):
    text = print_op(op, locations=True)
    back = parse_op(text)
    assert_same(op, back, {})
    assert print_op(back, locations=True) == text
    assert print_op(back) == print_op(op)


@given(ops())
def test_xdsl_reads_what_we_print(op):
    """xDSL's view of the text has our ops, operands and attributes."""
    module = read_with_xdsl(print_op(op, locations=True))
    (theirs,) = module.body.block.ops
    ours, found = list(op.walk()), list(theirs.walk())
    assert [o.attributes["op_name__"].data for o in found] == [o.name for o in ours]
    for x, y in zip(ours, found, strict=True):
        assert (len(x.operands), len(x.results), len(x.regions)) == (len(y.operands), len(y.results), len(y.regions))
        assert set(x.attrs) == set(y.attributes) - {"op_name__"}
        assert [str(v.type) for v in x.operands] == [str(v.type) for v in y.operands]


@given(ops())
def test_xdsl_prints_what_it_reads(op):
    """Printed by xDSL and read again, nothing is lost. Without hints: xDSL 0.74 may print one name twice for `x_1`."""
    for o in op.walk():
        for v in (*o.results, *(a for r in o.regions for b in r.blocks for a in b.args)):
            v.hint = ""
    first = print_with_xdsl(read_with_xdsl(print_op(op)))
    assert print_with_xdsl(read_with_xdsl(first)) == first


def read_with_xdsl(text: str):
    require("xdsl")
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.parser import Parser

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def print_with_xdsl(module) -> str:
    from xdsl.printer import Printer

    out = io.StringIO()
    Printer(out, print_generic_format=True).print_op(module)
    return out.getvalue()


@given(ops())
def test_every_line_has_the_place_of_its_op(op):
    printed = print_lines(op)
    lines = printed.text.splitlines()
    assert len(lines) == len(printed.spans)
    opening = [(line, span) for line, span in zip(lines, printed.spans, strict=True) if span is not None]
    assert [span for _, span in opening] == [o.span for o in op.walk()]
    assert all(f'"{o.name}"' in line for o, (line, _) in zip(op.walk(), opening, strict=True))


def example() -> Op:
    t = TensorType((dims.symbol("B"), dims.parse("D//H")), dtypes.f32)
    block = Block([t, t], ["x", "y"])
    b = Builder(block, span=HERE)
    total = b.value("graph.add", block.args, t, hint="x")
    b.op("graph.return", [total])
    return Op("graph.func", (), (), HERE, {"sym_name": "f", "arg_names": ("x", "y")}, [Region([block])])


def test_the_text():
    assert print_op(example()) == (
        '"graph.func"() ({\n'
        "^bb0(%x: !tessera.tensor<[B, D//H], f32>, %y: !tessera.tensor<[B, D//H], f32>):\n"
        '  %x_1 = "graph.add"(%x, %y) : (!tessera.tensor<[B, D//H], f32>, !tessera.tensor<[B, D//H], f32>) -> '
        "!tessera.tensor<[B, D//H], f32>\n"
        '  "graph.return"(%x_1) : (!tessera.tensor<[B, D//H], f32>) -> ()\n'
        '}) {sym_name = "f", arg_names = ["x", "y"]} : () -> ()\n'
    )


@pytest.mark.parametrize(
    "file", ["seeds/kernels.py", "errors/programs/shapes.py", "errors/programs/sizes.py", "lsp/markers/launches.py"]
)
def test_analysed_programs_round_trip(file):
    """Graph and Tile IR as the front end makes it, sizes symbolic."""
    analyses = [a for a in analyse_file(Path(__file__).parents[1] / file) if a.op is not None]
    assert analyses
    for analysis in analyses:
        verify(analysis.op)
        text = print_op(analysis.op, locations=True)
        back = parse_op(text)
        verify(back)
        assert_same(analysis.op, back, {})
        read_with_xdsl(text)


@pytest.mark.parametrize(
    ("text", "line", "col", "reason"),
    [
        ('"a.b"(%x) : (index) -> ()', 1, 7, "%x is not defined"),
        ('"a.b"() : () -> ()\n"a.c"() : () -> ()', 2, 1, "follows"),
        ('%x = "a.b"() : () -> ()', 1, 22, "0 results, 1 are named"),
        ('"a.b"() {k = !tessera.tensor<[B], f33>} : () -> ()', 1, 35, "f33"),
        ('"a.b"() {k = !tessera.tensor<[B+], f32>} : () -> ()', 1, 31, "B+"),
        ('"a.b"() {k = !tessera.tensor<[B', 1, 32, "closed"),
        ('"a.b"() {k = !tessera.brick<[B], f32>} : () -> ()', 1, 14, "brick"),
        ('"a.b"() {k = 3} : () -> ()', 1, 15, "':'"),
        ('"a.b"() {k = #tessera.dtype<"f33">} : () -> ()', 1, 29, "f33"),
        ('"a.b"() {k = #other.thing<"x">} : () -> ()', 1, 14, "#other.thing"),
        ('"a.b"() ({\n  %x = "a.c"() : () -> index\n  "a.d"(%x) : () -> ()\n}) : () -> ()', 3, 15, "operand types"),
        ('"a.b"() : () ->', 1, 16, "found"),
        ("", 1, 1, "found"),
        ('"a.b', 1, 1, "string"),
    ],
)
def test_errors_have_line_and_column(text, line, col, reason):
    with pytest.raises(ParseError) as e:
        parse_op(text)
    assert reason in str(e.value)
    assert (e.value.line, e.value.col) == (line, col)


@given(ops())
def test_damaged_text_is_rejected_with_a_place(op):
    text = print_op(op)
    for cut in range(1, len(text) - 1, max(1, len(text) // 7)):
        try:
            parse_op(text[:cut] + text[cut + 1 :])
        except ParseError as e:
            assert 1 <= e.line <= text.count("\n") + 2
            assert e.col >= 1
