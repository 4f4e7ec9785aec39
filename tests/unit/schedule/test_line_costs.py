"""What each line should cost, without running it: sums, and ten pairs of variants that it puts in order."""

from __future__ import annotations

from typing import Any

import pytest

import tessera as ts
from tessera import Tensor, bf16, f32, f64
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.line_costs import LineCost, line_costs
from tessera.compiler.predict import of_program, predict, program
from tessera.language.dims import Dim

SIZES: dict[str, int] = {"M": 1024, "N": 512, "K": 256}
TARGETS = ("sm_90a", "cpu")


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_FIGURES", "usual")


def costs(function: Any, target: str, sizes: dict[str, Dim] | None = None) -> list[LineCost]:
    given = {**SIZES, **(sizes or {})}
    analysis = analyse(ts.function(function).definition(), dims=given)
    assert not [d for d in analysis.diagnostics if d.severity == "error"], analysis.diagnostics
    made = program(analysis, given, target, 1e9)
    found = line_costs(made, target, 2)
    whole = of_program(made, target, 2)
    assert whole.us is not None and whole.most_us is not None
    assert sum(c.us for c in found) == pytest.approx(whole.us)
    assert sum(c.most_us for c in found) == pytest.approx(whole.most_us)
    assert sum(c.launches for c in found) == whole.launches
    return found


def total(function: Any, target: str) -> float:
    return sum(c.middle for c in costs(function, target))


def associated_badly(x: Tensor["M", "N", f32], w: Tensor["N", "N", f32], v: Tensor["N", "1", f32]):
    return (x @ w) @ v


def associated_well(x: Tensor["M", "N", f32], w: Tensor["N", "N", f32], v: Tensor["N", "1", f32]):
    return x @ (w @ v)


def twice(x: Tensor["M", "N", f32], w: Tensor["N", "K", f32]):
    a = x @ w
    return (a + 1) @ a.mT


def once(x: Tensor["M", "N", f32], w: Tensor["N", "K", f32]):
    return x @ w


def wide(x: Tensor["M", "N", f64]):
    return x * x + 1


def narrow(x: Tensor["M", "N", f32]):
    return x * x + 1


def apart(x: Tensor["M", "N", f32]):
    return ts.sort(x * 2, axis=-1) + 1


def together(x: Tensor["M", "N", f32]):
    return x * 2 + 1


def columns(x: Tensor["M", "N", f32], w: Tensor["N", "K", f32]):
    return ts.sum(x, axis=0) @ w


def all_rows(x: Tensor["M", "N", f32], w: Tensor["N", "K", f32]):
    return ts.sum(x @ w, axis=0)


def concatenated(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32], w: Tensor["N", "N", f32]):
    return ts.concat([x, y], axis=0) @ w


def one_of_them(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32], w: Tensor["N", "N", f32]):
    return x @ w


def normalised_twice(x: Tensor["M", "N", f32]):
    return ts.softmax(ts.softmax(x, axis=0), axis=1)


def normalised(x: Tensor["M", "N", f32]):
    return ts.softmax(x, axis=1)


def scores_of_all(q: Tensor["M", "K", f32], k: Tensor["M", "K", f32]):
    return ts.softmax(q @ k.mT, axis=-1)


def scores_of_some(q: Tensor["M", "K", f32], k: Tensor["M", "K", f32]):
    return ts.softmax(q @ k[:64].mT, axis=-1)


def cubed(x: Tensor["N", "N", f32]):
    return x @ x @ x


def squared(x: Tensor["N", "N", f32]):
    return x @ x


def products_of_f32(x: Tensor["M", "N", f32], w: Tensor["N", "K", f32]):
    return x @ w


def products_of_bf16(x: Tensor["M", "N", bf16], w: Tensor["N", "K", bf16]):
    return x @ w


PAIRS = [
    (associated_badly, associated_well), (twice, once), (wide, narrow), (apart, together), (all_rows, columns),
    (concatenated, one_of_them), (normalised_twice, normalised), (scores_of_all, scores_of_some), (cubed, squared),
    (products_of_f32, products_of_bf16),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("slow", "quick"), PAIRS, ids=lambda f: f.__name__)
def test_the_cheaper_variant_is_known_without_running_either(slow: Any, quick: Any, target: str) -> None:
    assert total(slow, target) > 1.02 * total(quick, target)


@pytest.mark.parametrize("target", TARGETS)
def test_the_line_that_costs_most_comes_first(target: str) -> None:
    def step(x: Tensor["M", "N", f32], w: Tensor["N", "N", f32]):
        y = ts.tanh(x) * 2
        z = y @ w @ w @ w  # products
        return ts.softmax(z, axis=0)

    first, *rest = costs(step, target)
    start = step.__code__.co_firstlineno
    assert first.line == start + 2 and first.launches == 3 and first.flops >= 3 * 2 * 1024 * 512 * 512
    assert {c.line for c in rest} <= {start + 1, start + 3} and all(c.middle < first.middle for c in rest)


def test_explain_shows_the_lines_of_several() -> None:
    @ts.function
    def step(x: Tensor["M", "N", f32], w: Tensor["N", "N", f32]):
        y = ts.sort(x, axis=-1)
        return ts.softmax(y @ w, axis=0)

    compiled = ts.compile(step, dims={"M": 32, "N": 16}, target="cpu")
    said = [line for line in str(compiled.explain()).splitlines() if f"{__file__}:" in line and "%)" in line]
    assert len(said) == 2 and said[0].startswith("  lines ")
    assert [c["line"] for c in compiled.explain().to_json()["lines"]] == [c.line for c in compiled.line_costs()]
    assert ts.compile(step, target="cpu").line_costs() == [], "sizes that only a call tells"


@ts.kernel(BM=8, BN=8)
def small_blocks(a: Tensor["M", "K"], b: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]


@pytest.mark.parametrize("target", TARGETS)
def test_of_blocks_that_an_author_chose_the_model_says_the_least(target: str) -> None:
    """It does not know how badly blocks use a machine: a product in blocks of 8 x 8 may take twenty times as long."""

    def calls_it(x: Tensor["N", "N"]):
        return small_blocks(x, x) + 1

    def has_none(x: Tensor["N", "N"]):
        return x @ x + 1

    for function, least in ((small_blocks, True), (ts.function(calls_it), True), (ts.function(has_none), False)):
        found = predict(analyse(function.definition(), dims=SIZES), SIZES, target)
        assert found.at_least == least
        assert found.time.startswith("at least ") == least and (" to " in found.time) != least
        assert found.time in found.text
    made = program(analyse(ts.function(calls_it).definition(), dims=SIZES), SIZES, target)
    assert sorted(cost.at_least for cost in line_costs(made, target, 2)) in ([False, True], [True])
