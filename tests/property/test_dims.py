"""The dimension algebra against plain integers: the normal form, equality, facts and solving."""

from __future__ import annotations

import operator
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tessera.language import dims
from tessera.language.dims import DimError, Facts, compare, counterexample, evaluate, parse, solve, substitute, symbol

NAMES = ("B", "H", "S")
GRID = [dict(zip(NAMES, sizes, strict=True)) for sizes in product(range(6), repeat=len(NAMES))]
"""polynomials of degree up to 5 in each symbol that agree on it are equal"""

# An expression as a tree, so that it can be computed on plain integers, independently of the normal form.
leaves = st.integers(0, 9) | st.sampled_from(NAMES)
MEANING = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
           "min": min, "max": max}  # fmt: skip
BUILD = {**MEANING, "//": dims.floordiv, "%": dims.mod, "min": dims.dim_min, "max": dims.dim_max}


def trees(operations: str, size: int = 5) -> st.SearchStrategy:
    names = st.sampled_from(operations.split())
    return st.recursive(leaves, lambda inner: st.tuples(names, inner, inner), max_leaves=size)


anything = trees("+ - * // % min max")
polynomials = trees("+ - *", 4)


def value(tree, env) -> int:
    if isinstance(tree, tuple):
        return MEANING[tree[0]](value(tree[1], env), value(tree[2], env))
    return env[tree] if isinstance(tree, str) else tree


def build(tree) -> dims.Dim:
    """The tree's dim; an example is dropped where the tree divides by a constant 0."""
    if isinstance(tree, str):
        return symbol(tree)
    if isinstance(tree, int):
        return tree
    try:
        return BUILD[tree[0]](build(tree[1]), build(tree[2]))
    except DimError:
        assume(False)
        raise


def points(*given_trees):
    """The sizes of the grid at which none of the trees divides by zero, with the trees' values."""
    for env in GRID:
        try:
            yield env, [value(t, env) for t in given_trees]
        except ZeroDivisionError:
            continue


@given(anything)
def test_the_normal_form_means_the_same(tree):
    d = build(tree)
    for env, (want,) in points(tree):
        assert evaluate(d, env) == want
        half = {n: env[n] for n in ("B", "S")}
        assert evaluate(substitute(d, half), env) == want


@given(anything)
def test_text_is_read_back(tree):
    d = build(tree)
    assert parse(str(d)) == d
    assert hash(parse(str(d))) == hash(d)


@given(anything, anything, anything)
def test_laws(x, y, z):
    a, b, c = build(x), build(y), build(z)
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    assert a + 0 == a * 1 == a - 0
    assert a * 0 == 0
    assert dims.dim_min(a, b) == dims.dim_min(b, a)
    assert dims.dim_max(a, b) == dims.dim_max(b, a)
    assert dims.floordiv(a, 1) == a
    assert dims.mod(a, 1) == 0


@given(anything)
def test_a_dim_without_symbols_is_a_number(tree):
    d = build(tree)
    assert isinstance(d, int) == (not dims.symbols(d))
    assert dims.symbols(d) <= set(NAMES)


@given(polynomials, polynomials)
def test_equality_of_polynomials_is_decided(x, y):
    a, b = build(x), build(y)
    same = all(p == q for _, (p, q) in points(x, y))
    assert compare(a, b) == ("yes" if same else "no")
    example = counterexample(a, b)
    assert (example is not None) or same
    if example is not None:
        assert evaluate(a, example) != evaluate(b, example)


@given(anything, anything)
def test_equality_is_never_guessed(x, y):
    a, b = build(x), build(y)
    answer, sizes = compare(a, b), list(points(x, y))
    if answer == "yes":
        assert all(p == q for _, (p, q) in sizes)
    elif answer == "no" and len(sizes) == len(GRID):
        assert any(p != q for _, (p, q) in sizes)
    assert compare(b, a) == answer
    assert compare(a, a) == "yes"


facts_of_trees = st.lists(
    st.tuples(st.just("divisible"), st.sampled_from(NAMES) | trees("+ *", 2), leaves)
    | st.tuples(st.just("equal"), trees("+ * // min", 2), trees("+ *", 2))
    | st.tuples(st.just("at most"), trees("+ * //", 2), trees("+ *", 2)),
    min_size=1, max_size=3,
)  # fmt: skip


def assumed(known) -> tuple[Facts, list]:
    """The facts, and trees that are 0 where they hold."""
    facts, conditions = Facts(), []
    try:
        for kind, p, q in known:
            assume(kind != "divisible" or q != 0)
            getattr(facts, f"assume_{kind.replace(' ', '_')}")(build(p), build(q))
            difference = ("%" if kind == "divisible" else "-", p, q)
            conditions.append(("max", difference, 0) if kind == "at most" else difference)
    except DimError:  # a fact makes a divisor of another 0
        assume(False)
    return facts, conditions


def under(facts: Facts, x, y) -> str:
    try:
        return compare(build(x), build(y), facts)
    except DimError:  # the facts make a divisor 0, so that no sizes are left where x and y have values
        assume(False)
        raise


@settings(max_examples=300)
@given(facts_of_trees, anything, anything)
def test_facts_never_mislead(known, x, y):
    """ "yes" holds for all sizes; "no" comes with sizes that differ, or holds for no positive sizes."""
    facts, conditions = assumed(known)
    found = [(env, v[:2]) for env, v in points(x, y, *conditions) if not any(v[2:])]
    assume(found)
    answer = under(facts, x, y)
    assert under(facts.copy(), x, y) == answer
    assert under(facts, y, x) == answer
    if answer == "yes":
        assert all(p == q for _, (p, q) in found)
    elif answer == "no":
        example = counterexample(build(x), build(y), facts)
        if example is None:
            assert not any(p == q for env, (p, q) in found if all(env.values()))
        else:
            assert evaluate(build(x), example) != evaluate(build(y), example)


@settings(max_examples=300)
@given(facts_of_trees, anything, st.booleans())
def test_bounds_hold(known, x, positive):
    """Under the facts, no sizes lead outside of the bounds; what is proved to be at most something is."""
    facts, conditions = assumed(known)
    least = int(positive)
    found = [v[0] for env, v in points(x, *conditions) if not any(v[1:]) and min(env.values()) >= least]
    assume(found)
    try:
        low, high = dims.bounds(facts.normal(build(x)), facts, least)
    except DimError:
        assume(False)
        raise
    assert low is None or low <= min(found)
    assert high is None or high >= max(found)
    if not positive and dims.at_most(build(x), 4, facts):
        assert max(found) <= 4


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(facts_of_trees, polynomials, polynomials)
def test_a_fact_takes_no_mismatch_back(known, x, y):
    """Dims that are told apart by name still are, as long as some positive sizes satisfy the facts and differ."""
    assume(compare(build(x), build(y)) == "no")
    facts, conditions = assumed(known)
    sizes = [v[:2] for env, v in points(x, y, *conditions) if not any(v[2:]) and all(env.values())]
    assume(sizes)
    if any(p != q for p, q in sizes):
        assert under(facts, x, y) == "no"


@settings(max_examples=300)
@given(facts_of_trees)
def test_examples_satisfy_the_facts(known):
    facts, conditions = assumed(known)
    possible = [env for env, v in points(*conditions) if not any(v) and all(env.values())]
    assume(possible)
    everything = dims.prod(map(symbol, NAMES))
    example = counterexample(everything, 0, facts)
    assert example is not None
    assert all(size > 0 for size in example.values())
    assert not any(value(c, example) for c in conditions)


@given(
    st.lists(trees("+ * //", 3), min_size=1, max_size=5), st.fixed_dictionaries({n: st.integers(0, 9) for n in NAMES})
)
def test_solving_finds_what_was_there(shape, sizes):
    """Sizes that come from some assignment are never called a mismatch, unless a symbol cannot be determined."""
    equations = []
    for i, tree in enumerate(shape):
        try:
            equations.append((i, build(tree), value(tree, sizes)))
        except ZeroDivisionError:
            assume(False)
    found, bad = solve(equations)
    plain = {n for _, d, _ in equations for n in NAMES if d == symbol(n)}
    assert all(found[n] == sizes[n] for n in plain)
    for m in bad:
        assert m.expected is None
    for where, d, actual in equations:
        if where not in [m.where for m in bad]:
            assert evaluate(d, found) == actual


@given(st.lists(st.tuples(trees("+ * // %", 3), st.integers(0, 20)), min_size=1, max_size=5))
def test_solving_never_accepts_what_does_not_hold(given_sizes):
    equations = [(i, build(tree), size) for i, (tree, size) in enumerate(given_sizes)]
    found, bad = solve(equations)
    assert all(size >= 0 for size in found.values())
    rejected = {m.where for m in bad}
    for where, d, actual in equations:
        assert (where in rejected) == (not holds(d, found, actual))


def holds(d, env, actual) -> bool:
    try:
        return evaluate(d, env) == actual
    except DimError:
        return False


@pytest.mark.parametrize(
    "text", ["", "B+", "f(B)", "1.5", "B**2", "True", "'B'", "B if S else 1", "min(B)", "B; S", "B.x"]
)
def test_what_is_no_dim(text):
    with pytest.raises(DimError, match="is not a dim expression"):
        parse(text)
