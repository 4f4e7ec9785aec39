"""Whether two dims are equal: yes, no, or unknown until launch.

"yes" is a proof: the dims are equal for all sizes that the facts allow. "no" is either a proof that they are equal for
no such sizes, or, for dims that are told by their names (polynomials of symbols), an example: sizes that the facts
allow and for which they differ; a function that holds only for some sizes must say so in its annotations or in an
assert. "unknown" is left where quotients, remainders, minima, maxima or data-dependent sizes may yet agree, and where
neither proof nor example is found. Facts narrow what sizes there are: they can settle an "unknown", and turn "no" to
"yes", but do not take a "no" back while an example remains.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Literal, TypeAlias, cast

from tessera.language.dims.algebra import Atom, Dim, Expr, opaque, substitute, symbols, terms_of
from tessera.language.dims.examples import counterexample
from tessera.language.dims.facts import NO_FACTS, Facts

Answer: TypeAlias = Literal["yes", "no", "unknown"]
Bounds: TypeAlias = tuple[int | None, int | None]
"""least and greatest value; None where there is none, or where it is not known"""
Pairs: TypeAlias = frozenset[tuple[Dim, Dim]]


def compare(a: Dim, b: Dim, facts: Facts = NO_FACTS) -> Answer:
    """Whether two dims are equal under the facts; symbols stand for positive sizes in a "no", for any in a "yes"."""
    if a == b:
        return "yes"
    d = facts.normal(a) - facts.normal(b)
    if isinstance(d, int):
        return "yes" if d == 0 else "no"
    if any(_multiple(d, facts.normal(zero)) for zero in facts.zero):
        return "yes"
    known = facts.folded(a) - facts.folded(b)
    if not (_named(known) or _named(d)):
        return "no" if _never_zero(d, facts) else "unknown"
    if _never_zero(d, facts) or not facts.concern(symbols(known)):
        return "no"
    return "no" if counterexample(a, b, facts) is not None else "unknown"


def equal(a: Dim, b: Dim, facts: Facts = NO_FACTS) -> bool:
    """Whether equality is proved."""
    return compare(a, b, facts) == "yes"


def bounds(d: Dim, facts: Facts = NO_FACTS) -> Bounds:
    """Between what numbers `d` (normal under the facts) lies for all positive sizes, and data-dependent sizes >= 0.

    Each term is bounded on its own, so the bounds need not be reached.
    """
    return _bounds(d, frozenset((substitute(a, facts.equal), substitute(b, facts.equal)) for a, b in facts.divisible))


def _bounds(d: Dim, exact: Pairs) -> Bounds:
    """`exact` holds the divisions known to have no remainder."""
    low: int | None = 0
    high: int | None = 0
    for m, c in terms_of(d).items():
        least, most = _monomial(m, exact)
        if c < 0:
            least, most = most, least
        low = None if low is None or least is None else low + c * least
        high = None if high is None or most is None else high + c * most
    return low, high


def _named(d: Dim) -> bool:
    return not opaque(d) and not any(s.startswith("?") for s in symbols(d))


def _never_zero(d: Expr, facts: Facts) -> bool:
    """Whether no positive sizes make it 0: it is bounded away from 0, or is no multiple of what its terms share."""
    terms = terms_of(d)
    constant = terms.pop((), 0)
    if constant % gcd(*terms.values()):
        return True
    low, high = bounds(d, facts)
    return (low is not None and low > 0) or (high is not None and high < 0)


def _multiple(d: Expr, zero: Dim) -> bool:
    """Whether `d` is a number or a monomial, or a quotient of numbers, times `zero`, and so 0 with it."""
    if isinstance(zero, int) or len(d.terms) != len(zero.terms):
        return False
    (m, c), (n, k) = d.terms[0], zero.terms[0]
    rest = list(m)
    for a in n:
        if a not in rest:
            return False
        rest.remove(a)
    return d * k == zero * Expr(((tuple(rest), c),)) if rest else d * k == zero * c


def _monomial(m: tuple[Atom, ...], exact: Pairs) -> Bounds:
    if len(m) == 1:
        return _atom(m[0], exact)
    found = [_atom(a, exact) for a in m]
    lows, highs = [low for low, _ in found], [high for _, high in found]
    if any(low is None or low < 0 for low in lows):
        return None, None
    return prod(cast("list[int]", lows)), None if None in highs else prod(cast("list[int]", highs))


def _atom(a: Atom, exact: Pairs) -> Bounds:
    if a.op == "sym":
        return (0 if str(a.args[0]).startswith("?") else 1), None
    x, y = cast("tuple[Dim, Dim]", a.args)
    (low, high), (least, most) = _bounds(x, exact), _bounds(y, exact)
    if a.op == "min":
        lows, highs = (low, least), [h for h in (high, most) if h is not None]
        return None if None in lows else min(cast("tuple[int, int]", lows)), min(highs, default=None)
    if a.op == "max":
        lows, highs = [v for v in (low, least) if v is not None], (high, most)
        return max(lows, default=None), None if None in highs else max(cast("tuple[int, int]", highs))
    if least is None or least < 1:  # it may divide by 0, or by a negative number
        return None, None
    if a.op == "%":
        highs = [h for h in (most - 1 if most is not None else None, high if low is not None and low >= 0 else None)
                 if h is not None]  # fmt: skip
        return 0, min(highs, default=None)
    if low is not None:
        low = low // least if low < 0 else 0 if most is None else low // most
        if low == 0 and (x, y) in exact and (_bounds(x, exact)[0] or 0) > 0:
            low = 1  # a positive multiple
    if high is not None:
        high = high // least if high >= 0 else -1 if most is None else high // most
    return low, high
