"""The rewriting driver on small dialect-free programs, and its trace on real graph rules."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.passes.canonicalize import canonicalize
from tessera.compiler.ir.core import Block, Builder, Op, Region, Value
from tessera.compiler.ir.rewriter import ANY, Step, erase_dead, fused, replace_op, rewrite
from tessera.compiler.ir.spec import InvalidIR
from tessera.compiler.ir.types import INDEX, TensorType
from tessera.compiler.ir.verifier import verify
from tessera.errors import Span
from tessera.language import dtypes


def at(line: int) -> Span:
    return Span("model.py", line, 5, line, 9)


def program(*steps: tuple[str, int]) -> Op:
    """A chain of unary ops on an index, one a line."""
    block = Block([INDEX], ["x"])
    value = block.args[0]
    for line, (name, amount) in enumerate(steps, 1):
        value = Builder(block, span=at(line)).value(f"calc.{name}", [value], INDEX, {"by": amount}, f"v{line}")
    Builder(block, span=at(len(steps) + 1)).op("calc.end", [value])
    return Op("calc.func", (), (), at(0), {}, [Region([block])])


def chain(func: Op) -> list[tuple[str, object]]:
    return [(op.name.removeprefix("calc."), op.attrs.get("by")) for op in func.region.block.ops]


def merge_adds(b: Builder, op: Op) -> Value | None:
    inner = op.operands[0].op
    if inner is None or inner.name != "calc.add":
        return None
    total = op.attrs["by"] + inner.attrs["by"]
    return b.op("calc.add", [inner.operands[0]], [INDEX], {"by": total}, span=fused(inner, op)).result


def drop_zero(b: Builder, op: Op) -> Value | None:
    return op.operands[0] if op.attrs["by"] == 0 else None


def expand_double(b: Builder, op: Op) -> Value | None:
    return b.value("calc.add", [b.value("calc.add", op.operands, INDEX, {"by": 1})], INDEX, {"by": 1})


PATTERNS = {"calc.add": [drop_zero, merge_adds], "calc.inc2": [expand_double]}


def settle(func: Op) -> int:
    count = rewrite(func, PATTERNS)
    erase_dead(func, lambda op: op.name == "calc.end")
    return count


def test_rules_apply_until_none_fits():
    func = program(("add", 2), ("inc2", 0), ("add", -4), ("mul", 3), ("add", 0))
    assert settle(func) > 3
    assert chain(func) == [("mul", 3), ("end", None)]


@given(st.lists(st.tuples(st.sampled_from(["add", "inc2", "mul"]), st.integers(-2, 2)), max_size=12))
def test_meaning_is_kept(steps):
    def run(func: Op, x: int) -> int:
        for name, by in chain(func):
            x = {"add": x + (by or 0), "inc2": x + 2, "mul": x * (by or 0), "end": x}[name]
        return x

    func = program(*steps)
    want = [run(func, x) for x in (-3, 0, 5)]
    settle(func)
    assert [run(func, x) for x in (-3, 0, 5)] == want
    assert settle(func) == 0
    names = [name for name, _ in chain(func)]
    assert "inc2" not in names
    assert ("add", "add") not in list(itertools.pairwise(names))


def test_spans_are_kept_or_fused():
    func = program(("add", 1), ("mul", 2), ("inc2", 0))
    rewrite(func, {"calc.inc2": [expand_double]})
    assert [op.span.line for op in func.region.block.ops] == [1, 2, 3, 3, 4]
    settle(func)
    merged = func.region.block.ops[2]
    assert (merged.span.line, merged.span.end_line) == (3, 3)
    func = program(("add", 1), ("add", 2))
    settle(func)
    assert func.region.block.ops[0].span == Span("model.py", 1, 5, 2, 9)


def test_names_are_inherited():
    func = program(("add", 1), ("add", 2))
    settle(func)
    assert func.region.block.ops[0].result.hint == "v2"


def test_the_trace_says_what_where_and_how():
    trace: list[Step] = []
    rewrite(program(("add", 1), ("add", 0), ("inc2", 0)), PATTERNS, trace)
    assert [s.pattern for s in trace] == ["drop_zero", "expand_double", "merge_adds", "merge_adds"]
    first, second = trace[:2]
    assert (first.span, first.before, first.after) == (
        at(2),
        '%v2 = "calc.add"(%v1) {by = 0 : i64} : (index) -> index',
        "%v1",
    )
    assert second.before.startswith('%v3 = "calc.inc2"(%v1)')
    assert second.after.count('"calc.add"') == 2
    assert str(first) == f"drop_zero at model.py:2:5\n- {first.before}\n+ %v1\n"


def test_patterns_that_undo_each_other_are_stopped():
    def flip(b: Builder, op: Op) -> Value:
        name = "calc.b" if op.name == "calc.a" else "calc.a"
        return b.value(name, op.operands, INDEX, {"by": 0})

    with pytest.raises(InvalidIR, match="do not settle; the last one was flip"):
        rewrite(program(("a", 0)), {"calc.a": [flip], "calc.b": [flip]})


def test_patterns_may_look_at_every_op():
    func = program(("add", 0), ("mul", 0))
    assert rewrite(func, {ANY: [lambda b, op: op.operands[0] if op.results else None]}) == 2
    assert chain(func) == [("end", None)]


def test_a_pattern_that_declines_leaves_nothing_behind():
    def declines(b: Builder, op: Op) -> None:
        b.value("calc.add", op.operands, INDEX, {"by": 9})

    def wrong_type(b: Builder, op: Op) -> Value:
        return b.value("calc.cast", op.operands, TensorType((), dtypes.f32))

    func = program(("add", 1))
    assert rewrite(func, {"calc.add": [declines, wrong_type]}) == 0
    assert chain(func) == [("add", 1), ("end", None)]
    assert len(func.region.block.args[0].uses) == 1


def test_ops_inside_a_replaced_op_are_left_alone():
    """The region of a replaced op is not visited after it is gone."""
    seen: list[str] = []

    def look(b: Builder, op: Op) -> None:
        seen.append(op.name)

    def unwrap(b: Builder, op: Op) -> Value:
        return op.operands[0]

    func = program(("add", 1))
    inner = Block([INDEX])
    Builder(inner, span=at(7)).value("calc.inside", inner.args, INDEX)
    outer = Op("calc.loop", [func.region.block.args[0]], [INDEX], at(6), {}, [Region([inner])])
    func.region.block.insert(0, outer)
    rewrite(func, {"calc.loop": [unwrap], "calc.inside": [look], "calc.add": [look]})
    assert seen == ["calc.add", "calc.add"]  # once in each sweep


def test_replace_op_demands_fitting_values():
    func = program(("add", 1))
    op = func.region.block.ops[0]
    with pytest.raises(InvalidIR, match="0 values cannot replace 1"):
        replace_op(op, [])
    other = Builder(func.region.block, 0, at(1)).value("calc.c", (), TensorType((), dtypes.f32))
    with pytest.raises(InvalidIR, match="cannot replace index"):
        replace_op(op, [other])


def test_graph_rules_leave_a_trace():
    t = TensorType((4, 5), dtypes.f32)
    block = Block([t], ["x"])
    g = GraphBuilder(Builder(block, span=at(3)))
    y = g.transpose(g.transpose(block.args[0], (1, 0)), (1, 0))
    g.builder.op("graph.return", [g.mul(y, 1.0)])
    func = Op("graph.func", (), (), at(1), {"sym_name": "f", "arg_names": ("x",)}, [Region([block])])
    trace: list[Step] = []
    canonicalize(func, trace)
    verify(func)
    assert {s.pattern for s in trace} == {"transpose", "times_one"}
    assert block.terminator.operands[0] is block.args[0]


def test_an_erased_op_uses_nothing_however_deep_inside() -> None:
    func = program(("add", 1))
    (added, _) = func.region.block.ops
    use = Op("calc.use", [added.result], (), at(4))
    inner = Op("calc.if", (), (), at(3), {}, [Region([Block([], [])])])
    outer = Op("calc.if", (), (), at(2), {}, [Region([Block([], [])])])
    inner.region.block.append(use)
    outer.region.block.append(inner)
    func.region.block.insert(1, outer)
    assert any(user is use for user, _ in added.result.uses)
    outer.erase()
    assert not any(user is use for user, _ in added.result.uses)
