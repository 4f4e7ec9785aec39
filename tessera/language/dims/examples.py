"""Sizes as examples: small ones that satisfy what is known, for which two dims differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import lcm

from tessera.language.dims.algebra import Dim, DimError, evaluate, is_symbol, substitute, symbols
from tessera.language.dims.facts import NO_FACTS, Facts
from tessera.language.dims.solving import solve_linear

MOST = 4096
"""how many sizes are tried"""


def counterexample(a: Dim, b: Dim, facts: Facts = NO_FACTS) -> dict[str, int] | None:
    """Small sizes that satisfy the facts and for which the two dims differ, e.g. {"B": 2, "S": 3}; None if none is
    found. The names are those of the dims; sizes are positive, and distinct where they can be."""
    if a == b:
        return None
    names = symbols(a) | symbols(b)
    for env in islice(_models(names, facts), MOST):
        try:
            if evaluate(a, env) != evaluate(b, env):
                return {n: env[n] for n in sorted(names)}
        except DimError:
            continue
    return None


def _models(names: frozenset[str], facts: Facts) -> Iterator[dict[str, int]]:
    """Positive sizes of `names`, and of what the facts tie to them, that satisfy the facts."""
    names, facts = facts.about(names)
    divisible = [(substitute(x, facts.equal), substitute(y, facts.equal)) for x, y in facts.divisible]
    zero = [substitute(z, facts.equal) for z in facts.zero]
    free = _ordered(sorted(n for n in names if n not in facts.equal), divisible)
    count = max(2, min(12, int(MOST ** (1 / max(1, len(free))))))
    common = lcm(*(abs(y) for _, y in divisible if isinstance(y, int) and y))

    def assign(i: int, env: dict[str, int]) -> Iterator[dict[str, int]]:
        if i == len(free):
            yield env
            return
        name = free[i]
        for size in _candidates(name, i + 2, count, common, env, divisible, zero):
            yield from assign(i + 1, {**env, name: size})

    for env in assign(0, {}):
        try:
            env |= {n: evaluate(d, env) for n, d in facts.equal.items()}
            if min(env.values(), default=1) >= 1 and facts.hold(env):
                yield env
        except DimError:
            continue


def _ordered(names: list[str], divisible: list[tuple[Dim, Dim]]) -> list[str]:
    """Divisors before what they divide, so that this can be chosen among their multiples."""
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
    divisible: list[tuple[Dim, Dim]], zero: list[Dim],
) -> list[int]:  # fmt: skip
    """Sizes to try for `name` when those in `env` are chosen: what an equation leaves, multiples, small numbers."""
    step = 1
    try:
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
        return [step * k for k in range(1, count + 1)]
    near = [start, start + 1, start + 2, 1, common, *range(2, 2 + count), 2 * common]
    return list(dict.fromkeys(near))[:count]
