"""The dimension algebra by example: what people write, and what Tessera answers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.language import dims
from tessera.language.dims import DimError, Facts, Mismatch, compare, counterexample, evaluate, parse, solve, symbol

B, D, H, S = map(symbol, "BDHS")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("B", "B"), ("7", "7"), ("H*B", "B*H"), ("S+1", "S+1"), ("1+S-1", "S"), ("2*S - S", "S"), ("B*S//S", "B"),
        ("(4*S+3)//4", "S"), ("(4*S+6)//4", "S+1"), ("D//H", "D//H"), ("D/H", "D//H"), ("(B*H)%H", "0"),
        ("(3*S+5)%3", "2"),
        ("min(S, S+1)", "S"), ("max(S, 2+S)", "S+2"), ("min(S, 128)", "min(128, S)"), ("-(B//2)", "-(B//2)"),
        ("(-B)//2", "(-B)//2"), ("2*(D//H)", "2*(D//H)"), ("(S+1)*(S-1)", "S*S-1"), ("B - B", "0"),
    ],
)  # fmt: skip
def test_normal_form(text, shown):
    assert str(parse(text)) == shown


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("B*H", "H*B", "yes"), ("S", "S+1", "no"), ("B", "S", "no"), ("D//H", "D//H", "yes"), ("D//H", "S", "unknown"),
        ("H*(D//H)", "D", "unknown"), ("min(S, 4)", "4", "unknown"), ("3", "3", "yes"), ("3", "4", "no"),
        ("B", "1", "no"),
    ],
)  # fmt: skip
def test_equality_has_three_answers(a, b, answer):
    assert compare(parse(a), parse(b)) == answer


def test_a_mismatch_has_an_example():
    assert counterexample(B * S, B + S) == {"B": 2, "S": 3}
    assert counterexample(B, B) is None
    example = counterexample(B * H, 2 * B)
    assert example is not None
    assert evaluate(B * H, example) != evaluate(2 * B, example)


@pytest.mark.parametrize(
    ("a", "b", "condition"),
    [
        ("S//2", "S-S//2", "S % 2 == 0"), ("2*(S//2)", "S", "S % 2 == 0"), ("S%6", "0", "S % 6 == 0"),
        ("B*(S//4)", "B*S//4", "S % 4 == 0"), ("min(S//2, 8)", "min(S-S//2, 8)", "S % 2 == 0"),
        ("S//2", "S", None), ("S", "B", None), ("D//H", "D", None), ("4", "3", None),
    ],
)  # fmt: skip
def test_what_must_divide_for_two_dims_to_be_equal(a, b, condition):
    assert dims.divisibility(parse(a), parse(b)) == condition


def test_divisibility_is_a_fact():
    facts = Facts()
    assert compare(H * dims.floordiv(D, H), D, facts) == "unknown"
    facts.assume_divisible(D, H)
    assert compare(H * dims.floordiv(D, H), D, facts) == "yes"
    assert compare(B * S * D, B * S * H * dims.floordiv(D, H), facts) == "yes"
    assert compare(dims.mod(D, H), 0, facts) == "yes"
    assert facts.divides(H, D)
    assert not facts.divides(H, B)
    assert facts.divides(H, B * H)


def test_equalities_are_facts():
    facts = Facts()
    facts.assume_equal(B, S)
    facts.assume_equal(S, H)
    assert compare(B, H, facts) == "yes"
    facts.assume_equal(H, 4)
    assert compare(B * S, 16, facts) == "yes"
    assert compare(D, 4, facts) == "no"
    copy = facts.copy()
    copy.assume_equal(D, 4)
    assert compare(D, B, copy) == "yes"
    assert compare(D, B, facts) == "no"


def test_a_later_equality_does_not_replace_an_earlier_one():
    facts = Facts()
    facts.assume_equal(B, S)
    facts.assume_equal(B, H)
    assert compare(B, S, facts) == compare(S, H, facts) == "yes"


def test_equalities_of_products_are_kept():
    facts = Facts()
    facts.assume_equal(B * H, 2 * D)
    assert compare(B * H, 2 * D, facts) == "yes"
    assert compare(B * H + S, 2 * D + S, facts) == "yes"
    assert compare(B * H * S, 2 * D * S, facts) == compare(2 * B * H, 4 * D, facts) == "yes"
    assert compare(B * H, D, facts) == "no"  # D is not 2*D
    assert compare(S, 3, facts) == "no"


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("D", "3*D", "no"), ("D", "3*(D//4)", "no"), ("D", "S", "no"), ("S", "3*D", "no"), ("D//4", "S", "unknown"),
        ("D//2", "2*(D//4)", "yes"), ("D", "4*(D//4)", "yes"), ("D//8", "S", "unknown"), ("D//4", "0", "no"),
        ("D//8", "0", "unknown"), ("D+1", "4*S", "no"), ("2*(S//2)+1", "B+B", "no"), ("min(S, 4)", "5", "no"),
        ("max(S, 4)", "3", "no"), ("S%4", "4", "no"), ("S%4", "3", "unknown"), ("D", "6", "no"),
    ],
)  # fmt: skip
def test_a_fact_takes_no_mismatch_back(a, b, answer):
    """Facts narrow the sizes: with 4 | D, D is still not 3*D."""
    facts = Facts()
    facts.assume_divisible(D, 4)
    assert compare(parse(a), parse(b), facts) == answer


def test_an_example_satisfies_the_facts():
    facts = Facts()
    facts.assume_divisible(D, 128)
    facts.assume_divisible(D, H)
    facts.assume_equal(S, B + 1)
    assert counterexample(D, 3 * D, facts) == {"D": 128}
    assert counterexample(D * S, 3 * B * H, facts) == {"B": 2, "D": 384, "H": 3, "S": 3}
    assert counterexample(S, B + 1, facts) is None


def test_facts_that_are_no_proof_leave_it_open():
    facts = Facts()
    facts.assume_equal(B * H, 2 * D)
    facts.assume_equal(B * S, 2 * D)
    assert compare(B * H, B * S, facts) == "unknown"  # it follows, but by two steps
    facts.assume_equal(S, 5 * H)
    assert compare(B, H, facts) == "unknown"  # no sizes satisfy all three


@pytest.mark.parametrize(
    ("equations", "sizes", "bad"),
    [
        ([("x0", B, 3), ("x1", S, 4)], {"B": 3, "S": 4}, []),
        ([("q", B * H, 64), ("h", H, 8)], {"B": 8, "H": 8}, []),
        ([("q", B * H, 65), ("h", H, 8)], {"H": 8}, [("q", None)]),
        ([("x", S, 4), ("y", S + 1, 5)], {"S": 4}, []),
        ([("x", S, 4), ("y", S + 1, 4)], {"S": 4}, [("y", 5)]),
        ([("x", S, 4), ("y", S, 5)], {"S": 4}, [("y", 4)]),
        ([("x", 2 * S + 1, 9)], {"S": 4}, []),
        ([("x", 2 * S + 1, 8)], {}, [("x", None)]),
        ([("x", S + 5, 3)], {}, [("x", None)]),
        ([("x", B * H, 12)], {}, [("x", None)]),
        ([("a", B + S, 7), ("b", B * S, 12), ("c", S, 4)], {"S": 4, "B": 3}, []),
        ([("h", H, 0), ("d", dims.floordiv(D, H), 3)], {"H": 0}, [("d", None)]),
        ([("x", 7, 7)], {}, []),
        ([("x", 7, 8)], {}, [("x", 7)]),
    ],
)
def test_sizes_are_solved_from_arguments(equations, sizes, bad):
    found, mismatches = solve(equations)
    assert found == sizes
    assert [(m.where, m.expected) for m in mismatches] == bad
    assert all(isinstance(m, Mismatch) and m.actual == {w: a for w, _, a in equations}[m.where] for m in mismatches)


def test_divisions_by_zero():
    for f in (dims.floordiv, dims.mod):
        with pytest.raises(DimError, match="by zero"):
            f(S, 0)
    with pytest.raises(DimError, match="by zero"):
        evaluate(dims.floordiv(D, H), {"D": 4, "H": 0})


def test_what_is_missing_is_named():
    with pytest.raises(DimError, match="needs the size of H, S"):
        evaluate(B * H + S, {"B": 2})


def test_products_and_ceilings():
    assert dims.prod((B, 2, S)) == 2 * B * S
    assert dims.prod(()) == 1
    assert dims.ceildiv(9, 4) == 3
    assert evaluate(dims.ceildiv(S, 128), {"S": 129}) == 2
    assert dims.is_symbol(B)
    assert not any(map(dims.is_symbol, (3, B * 2, B + 1, B * S, dims.floordiv(B, 2))))


def test_a_dim_from_another_process_is_the_same_key():
    """Its hash is remembered, and names hash differently from process to process."""
    make = "import pickle, sys; from tessera.language import dims as d; sys.stdout.buffer.write("
    code = make + "pickle.dumps(d.parse('B*(D//H) + 1')))"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        made = pickle.loads(done.stdout)  # noqa: S301 (written just above)
        assert made == parse("B*(D//H) + 1") and made in {parse("B*(D//H) + 1")}


@pytest.mark.parametrize(
    "text, shown",
    [
        ("(B*C*H*W)//(3*B)", "(C*H*W)//3"),
        ("(B*D*S)//(B*H*S)", "D//H"),
        ("(6*B*C)//(4*B*H)", "(3*C)//(2*H)"),
        ("(B*B*C)//(B*B*D)", "C//D"),
        ("(B*C)%(B*H)", "(C%H)*B"),
        ("(6*S)%4", "2*(S%2)"),
        ("(B+C)//B", "(B+C)//B"),
        ("-N+S", "S-N"),
        ("-N", "-N"),
    ],
)
def test_quotients_are_in_lowest_terms(text, shown):
    d = parse(text)
    assert parse(str(d)) == d == parse(shown)
    assert str(d) == str(parse(shown))


@given(st.lists(st.integers(1, 12), min_size=4, max_size=4), st.integers(1, 6), st.integers(1, 6))
def test_cancelling_changes_no_value(sizes, m, n):
    env = dict(zip("BCDH", sizes, strict=True))
    B, C, D, H = map(symbol, "BCDH")
    for a, b in ((m * B * C * D, n * B * H), (m * B * C + m * B, n * B * B), (m * C, n), (m * B * D, n * B * D * C)):
        x, y = evaluate(a, env), evaluate(b, env)
        assert evaluate(a // b, env) == x // y
        assert evaluate(a % b, env) == x % y


def test_facts_say_dims_in_fewer_names():
    facts = Facts()
    facts.assume_divisible(parse("D"), parse("H"))
    facts.assume_divisible(parse("S"), 4)
    folded = {
        "H*(D//H)": "D",
        "B*S*H*(D//H)": "B*S*D",
        "4*(S//4)": "S",
        "8*(S//4)*B": "2*S*B",
        "D//H": "D//H",
        "2*(S//4)": "2*(S//4)",
        "(S+3)//4": "S//4",
        "B*((S+1)//2)": "2*B*(S//4)",
    }
    assert {text: str(facts.folded(parse(text))) for text in folded} == {t: str(parse(f)) for t, f in folded.items()}
    assert compare(parse("B*(D//H)*H"), parse("B*D*H"), facts) == "no"
    assert compare(parse("B*(D//H)*H"), parse("B*D"), facts) == "yes"


def test_orders_are_facts():
    facts = Facts()
    facts.assume_at_most(S, 4096)
    facts.assume_at_most(128, S)
    facts.assume_at_most(B, S)
    assert dims.bounds(S, facts) == (128, 4096)
    assert dims.bounds(S - B, facts) == (0, 4095)
    assert dims.at_most(B, S, facts) and dims.at_most(2 * B, S + B, facts) and not dims.at_most(S, B, facts)
    assert compare(S, 5000, facts) == compare(S, 100, facts) == "no"
    assert compare(S, B, facts) == compare(S, D, facts) == "no"
    example = counterexample(S, D, facts)
    assert example is not None and 128 <= example["S"] <= 4096
    facts.assume_at_most(S, B)
    assert compare(S, B, facts) == "yes"


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("S//2", "S", "no"), ("S-(S//2)", "S", "unknown"), ("S-(S//2)", "S+1", "no"), ("S//2+1", "S+1", "no"),
        ("(S+1)//2", "S//2", "unknown"), ("(S+3)//2", "S//2", "no"), ("2*(S//2)", "S", "unknown"),
        ("S//4", "S//2", "unknown"), ("2*(S//4)", "S", "no"), ("(S-1)//2", "S", "no"), ("B*(S//2)", "B*S", "no"),
        ("8*B*(S//8)+8*B", "B*S", "no"), ("B*(S//2)", "B*D", "unknown"), ("B*B*(S//2)", "3*B*B*S", "no"),
    ],
)  # fmt: skip
def test_a_quotient_is_near_what_is_divided(a, b, answer):
    """No positive S makes S//2 equal S, and S - S//2 is S for S = 1."""
    assert compare(parse(a), parse(b)) == answer


def test_an_example_avoids_sizes_of_1():
    assert counterexample(parse("S//2"), S) == {"S": 4}
    assert counterexample(parse("N-2"), parse("N")) == {"N": 4}
    assert counterexample(D, 1) == {"D": 2}
