"""Whether two dims are equal: yes, no, or unknown until launch.

"yes" is a proof: the dims are equal for all sizes that the facts allow. "no" is either a proof that they are equal for
no such sizes, or, for dims that are told by their names (polynomials of symbols), an example: sizes that the facts
allow and for which they differ; a function that holds only for some sizes must say so in its annotations or in an
assert. "unknown" is left where quotients, remainders, minima, maxima or data-dependent sizes may yet agree, and where
neither proof nor example is found. Facts narrow what sizes there are: they can settle an "unknown", and turn "no" to
"yes", but do not take a "no" back while an example remains.
"""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import Literal, TypeAlias

from tessera.language.dims.algebra import Atom, Dim, Expr, floordiv, opaque, prod, symbols, terms_of
from tessera.language.dims.examples import counterexample
from tessera.language.dims.facts import NO_FACTS, Facts
from tessera.language.dims.ranges import bounds

Answer: TypeAlias = Literal["yes", "no", "unknown"]


def compare(a: Dim, b: Dim, facts: Facts = NO_FACTS) -> Answer:
    """Whether two dims are equal under the facts; symbols stand for positive sizes in a "no", for any in a "yes"."""
    if a == b:
        return "yes"
    d = facts.normal(a) - facts.normal(b)
    if isinstance(d, int):
        return "yes" if d == 0 else "no"
    if any(_multiple(d, facts.normal(zero)) for zero in facts.zero):
        return "yes"
    if facts.at_most and bounds(d, facts, least=0) == (0, 0):
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


def _named(d: Dim) -> bool:
    return not opaque(d) and not any(s.startswith("?") for s in symbols(d))


def _never_zero(d: Expr, facts: Facts) -> bool:
    """Whether no positive sizes make it 0: it is bounded away from 0, or is not a multiple of what its terms share."""
    reduced = _reduced(d)
    if isinstance(reduced, int):
        return reduced != 0
    d, terms = reduced, terms_of(reduced)
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


def _reduced(d: Expr) -> Dim:
    """Without the sizes that are a factor of every term, for they are not 0."""
    first, *others = (Counter(m) for m, _ in d.terms)
    for m in others:
        first &= m
    return floordiv(d, prod(Expr((((a,), 1),)) for a in first.elements() if a.op == "sym" and not _counts(a)))


def _counts(a: Atom) -> bool:
    """Whether it depends on data, as a loop's counter does, and may be 0."""
    return str(a.args[0]).startswith("?")
