"""Every cause for which two operators that follow one another are in two kernels."""

from __future__ import annotations

from typing import Any

import pytest

import tessera as ts
from tessera import Tensor, f32
from tessera.compiler import levels
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.parser import parse_op
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.readable import readable
from tessera.compiler.schedule.refusals import CAUSES, Refusal, refusals
from tessera.scheduler import FusionGroup, FusionGrouping, graph_to_schedule


@ts.kernel
def twice(x: Tensor["M", "N", f32]) -> Tensor["M", "N", f32]:
    return x * 2


def product_reads(x: Tensor["M", "K", f32], w: Tensor["K", "N", f32]):
    return ts.exp(x) @ w


def number(x: Tensor[64, f32], y: Tensor[64, f32]):
    return y * ts.sum(x)


def computed_places(x: Tensor["M", "K", f32], i: Tensor["N", ts.int64]):
    return ts.take(ts.exp(x), i, axis=0)


def parts(x: Tensor["M", "K", f32]):
    y = x * 2
    return ts.cat([y, x], axis=0), y


def of_parts(x: Tensor["M", "K", f32]):
    return ts.max(ts.cat([x, x], axis=0), axis=0)


def pieces(x: Tensor["M", 1000, f32], i: Tensor["M", ts.int64]):
    y = ts.pad(x, 1)
    return ts.exp(y), ts.sum(y)


def dear(x: Tensor["M", f32]):
    y = ts.erf(ts.sin(ts.exp(x)))
    return y[3:] + y[2:-1] + y[1:-2] + y[:-3]


def looped(x: Tensor["M", "K", f32], n: ts.int64):
    y = x * 2
    for _ in ts.range(n):
        y = y + x
    return y


def called(x: Tensor["M", "N", f32]):
    return ts.exp(twice(x))


def everything(x: Tensor["M", "N", f32]):
    return x / ts.sum(x)


def rows(x: Tensor["M", "K", f32], w: Tensor["K", "N", f32]):
    return ts.max(x @ w, axis=-1)


def axes(x: Tensor["M", "N", f32]):
    shares = ts.softmax(x, axis=-1)
    return ts.sum(shares, axis=0), shares


def order(x: Tensor["M", "N", f32]):
    return ts.exp(ts.exp(x).T.reshape(M * N))


def transposed(x: Tensor["M", "N", f32]):
    return ts.exp(ts.softmax(x, axis=-1).T)


def shape(x: Tensor["M", "N", f32], y: Tensor["N", f32]):
    return x + ts.exp(y)


def between(x: Tensor["N", f32]):
    y = ts.exp(x)
    return y / ts.sum(y)


def epilogue(x: Tensor["B", "M", "K", f32], w: Tensor["K", "N", f32], b: Tensor["M", "N", f32]):
    return x @ w + b


def reduced(x: Tensor["M", "K", f32], w: Tensor["K", "N", f32]):
    y = x @ w
    return y, ts.sum(ts.square(y * 2))


def later(x: Tensor[4096, 64, f32], y: Tensor[4096, 64, f32], i: Tensor[4096, ts.int64]):
    first = x.T @ y
    return first + ts.segment_sum(ts.exp(y), i, 64)


def other_results(x: Tensor["N", f32]):
    y = ts.exp(x)
    return y, ts.sum(y)


def size(x: Tensor["N", f32]):
    for _ in range(70):
        x = ts.exp(x)
    return x


def two_kernels(x: Tensor["M", "K", f32], w: Tensor["K", "N", f32], y: Tensor["M", "N", f32]):
    return x @ w + ts.exp(y)


def random(x: Tensor["N", f32], key: ts.int64):
    return x + ts.uniform(key * 3, (4,))[0]


def segments(x: Tensor["M", "K", f32], i: Tensor["M", ts.int64]):
    return ts.exp(ts.segment_sum(x * 2, i, 8))


def transformed(x: Tensor["M", 128, f32]):
    return ts.rdft(ts.exp(x))


def sorted_lines(x: Tensor["M", "N", f32]):
    return ts.sort(ts.exp(x))


def put(x: Tensor["M", "N", f32], i: Tensor["M", ts.int64]):
    return ts.put(x * 2, i, ts.exp(x))


def again(x: Tensor["N", "N", f32]):
    def f(x):
        a = ts.exp(x)
        return ts.sin(a)

    return ts.grad(lambda x: ts.sum(ts.remat(f, ts.save.names("a"))(x) @ x))(x)


FOUND = [
    (product_reads, "exp", "contract", "product reads"),
    (number, "sum", "mul", "number"),
    (computed_places, "exp", "take", "computed places"),
    (parts, "mul", "concat", "parts"),
    (of_parts, "concat", "max", "parts"),
    (pieces, "pad", "exp", "pieces"),
    (dear, "erf", "add", "dear"),
    (looped, "mul", "while", "loop or branch"),
    (called, "launch", "exp", "called kernel"),
    (everything, "sum", "div", "sum of everything"),
    (rows, "contract", "max", "whole rows"),
    (axes, "div", "sum", "axes"),
    (order, "copy", "exp", "order"),
    (transposed, "div", "exp", "transposed"),
    (shape, "exp", "add", "shape"),
    (between, "exp", "div", "between"),
    (epilogue, "contract", "add", "epilogue"),
    (reduced, "contract", "mul", "reduced"),
    (later, "contract", "add", "later"),
    (other_results, "exp", "sum", "other results"),
    (size, "exp", "exp", "size"),
    (two_kernels, "contract", "add", "two kernels"),
    (random, "mul", "random_bits", "random"),
    (segments, "segment_sum", "exp", "segments"),
    (segments, "mul", "segment_sum", "segments"),
    (put, "exp", "put", "put"),
    (sorted_lines, "exp", "sort", "sorted lines"),
    (transformed, "exp", "dft", "transformed lines"),
    (transformed, "roots_of_unity", "mul", "table"),
    (again, "exp", "cos", "computed again"),
]


def scheduled(f: Any) -> Any:
    return levels.schedule(analyse(ts.function(f).definition(), None, {}), {}, "cpu")


@pytest.mark.parametrize(("f", "first", "second", "cause"), FOUND, ids=[f.__name__ for f, *_ in FOUND])
def test_causes(f: Any, first: str, second: str, cause: str) -> None:
    found = refusals(scheduled(f))
    (said,) = [r for r in found if (r.first, r.second, r.cause) == (first, second, cause)]
    starts = f.__code__.co_firstlineno
    assert starts < said.at.line <= starts + 4 and starts < said.to.line <= starts + 4
    assert str(said).startswith(
        f"{first} (line {said.at.line}) and {second} (line {said.to.line}) are in two kernels: "
    )
    assert str(said).endswith(CAUSES[cause])


def test_every_cause_has_a_test() -> None:
    assert {cause for *_, cause in FOUND} == CAUSES.keys() - {"scheduler"}


class Alone(FusionGrouping):
    def join(self, g: FusionGroup, op: Any) -> bool:
        return False


def test_a_scheduler_of_ones_own_is_named() -> None:
    def two(x: Tensor["N", f32]):
        return ts.exp(ts.exp(x))

    func = levels.graph(analyse(ts.function(two).definition(), None, {}), {})
    assert [r.cause for r in refusals(graph_to_schedule(func, "cpu", Alone))] == ["scheduler"]
    assert refusals(graph_to_schedule(func, "cpu")) == []


def test_reasons_are_data_and_shown() -> None:
    schedule = scheduled(rows)
    (said,) = refusals(schedule)
    assert isinstance(said, Refusal) and said.to_json()["why"] == CAUSES["whole rows"]
    assert refusals(parse_op(print_op(schedule))) == [said]
    text = readable(schedule).text
    assert f"  # {said}\n" in text and "apart=" not in text


def test_explain_tells_them() -> None:
    explained = ts.compile(ts.function(rows), target="reference", dims={"M": 4, "K": 4, "N": 4}).explain()
    (said,) = explained.apart
    assert (said["first"], said["second"], said["cause"]) == ("contract", "max", "whole rows")
    assert f"  apart     {said['text']}\n" in str(explained) and "whole rows" in explained._repr_html_()
    assert twice.compile("reference", dims={"M": 4, "N": 4}).explain().apart == []
