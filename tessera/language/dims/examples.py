"""Small sizes that satisfy the facts and make two dims differ: counterexamples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import inf, lcm

from tessera.language.dims.algebra import Dim, DimError, Expr, evaluate, is_symbol, opaque, substitute, symbol, symbols
from tessera.language.dims.facts import NO_FACTS, Facts
from tessera.language.dims.solving import solve_linear

MOST = 4096
"""how many sizes are tried"""
LIKED = 64
"""how many are tried for an example that people like better"""


def counterexample(a: Dim, b: Dim, facts: Facts = NO_FACTS) -> dict[str, int] | None:
    """Small sizes that satisfy the facts and for which the two dims differ, e.g. {"B": 2, "S": 3}; None if none is
    found. The names are those of the dims; sizes are positive, and distinct where they can be, and the dims are at
    least 2 where that is soon found: a size of 1 could be one that stretches."""
    if a == b:
        return None
    names = symbols(a) | symbols(b)
    first = None
    for i, env in enumerate(islice(_models(names, facts), MOST)):
        if first is not None and i >= LIKED:
            break
        try:
            x, y = evaluate(a, env), evaluate(b, env)
        except DimError:
            continue
        if x != y:
            first = first or env
            if (isinstance(a, int) or x > 1) and (isinstance(b, int) or y > 1):
                first = env
                break
    return {n: first[n] for n in sorted(names)} if first is not None else None


def divisibility(a: Dim, b: Dim) -> str | None:
    """A condition such as "R % 2 == 0" under which two dims that differ by their roundings are equal; None if none is
    found."""
    by = {args[1] for d in (a, b) for op, args in _roundings(d) if op in ("//", "%") and isinstance(args[1], int)}
    for name, n in product(sorted(symbols(a) | symbols(b)), sorted(by)):
        whole = {name: n * symbol(name)}
        if n > 1 and substitute(a, whole) == substitute(b, whole):
            return f"{name} % {n} == 0"
    return None


def _roundings(d: object) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Each `//`, `%`, min and max in a dim, with what it is of."""
    for atom in (atom for monomial, _ in d.terms for atom in monomial) if isinstance(d, Expr) else ():
        if atom.op != "sym":
            yield atom.op, atom.args
            for arg in atom.args:
                yield from _roundings(arg)


def _models(names: frozenset[str], facts: Facts) -> Iterator[dict[str, int]]:
    """Positive sizes of `names`, and of what the facts tie to them, that satisfy the facts."""
    names, facts = facts.about(names)
    divisible = [(substitute(x, facts.equal), substitute(y, facts.equal)) for x, y in facts.divisible]
    zero = [substitute(z, facts.equal) for z in facts.zero]
    orders = [substitute(x - y, facts.equal) for x, y in facts.at_most]
    free = _ordered(sorted(n for n in names if n not in facts.equal), divisible)
    count = max(2, min(12, int(MOST ** (1 / max(1, len(free))))))
    common = lcm(*(abs(y) for _, y in divisible if isinstance(y, int) and y))

    def assign(i: int, env: dict[str, int]) -> Iterator[dict[str, int]]:
        if i == len(free):
            yield env
            return
        name = free[i]
        for size in _candidates(name, i + 2, count, common, env, divisible, zero, orders):
            yield from assign(i + 1, {**env, name: size})

    for env in assign(0, {}):
        try:
            env |= {n: evaluate(d, env) for n, d in facts.equal.items()}
            if min(env.values(), default=1) >= 1 and facts.hold(env):
                yield env
        except DimError:
            continue


def _interval(name: str, env: dict[str, int], orders: list[Dim]) -> tuple[int, float]:
    """What the orders leave for `name` when the sizes in `env` are chosen."""
    low, high = 1, inf
    for e in orders:
        rest = substitute(e, env)
        if opaque(rest) or symbols(rest) != frozenset((name,)):
            continue
        constant, first, second = (evaluate(rest, {name: n}) for n in (0, 1, 2))
        slope = first - constant
        if second - first != slope:
            continue  # not linear: it is asked when all sizes are chosen
        if slope > 0:
            high = min(high, -constant // slope)
        else:
            low = max(low, -(constant // slope))
    return low, high


def _ordered(names: list[str], divisible: list[tuple[Dim, Dim]]) -> list[str]:
    """Divisors come first: a size that they divide is then chosen among their multiples."""
    out: list[str] = []
    while rest := [n for n in names if n not in out]:
        ready = [
            n for n in rest
            if not any(is_symbol(x) and str(x) == n and (symbols(y) - {n}) & set(rest) for x, y in divisible)
        ]  # fmt: skip
        out.append((ready or rest)[0])
    return out


def _candidates(
    name: str, start: int, count: int, common: int, env: dict[str, int],
    divisible: list[tuple[Dim, Dim]], zero: list[Dim], orders: list[Dim],
) -> list[int]:  # fmt: skip
    """Sizes to try for `name` when those in `env` are chosen: what an equation leaves, multiples, small numbers."""
    step = 1
    try:
        low, high = _interval(name, env, orders)
        for z in zero:
            rest = substitute(z, env)
            if symbols(rest) == frozenset((name,)) and (found := solve_linear(rest, 0)) is not None:
                return [found]
        for x, y in divisible:
            if is_symbol(x) and str(x) == name and isinstance(size := substitute(y, env), int) and size > 0:
                step = lcm(step, size)
    except DimError:
        return []
    if step > 1:
        first = -(-low // step)
        return [step * k for k in range(first, first + count) if step * k <= high]
    start = start if start >= low else start - 2 + low
    near = [start, start + 1, start + 2, low, common, *range(low, low + count + 1), 2 * common]
    return list(dict.fromkeys(n for n in near if low <= n <= high))[:count]
