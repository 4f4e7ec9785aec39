"""Between what numbers a dim lies, for all sizes that the facts allow.

Bounds are proofs, and need not be reached: each term is bounded on its own. Two things tie terms together: an order
that an assert states, `T <= S`, and a quotient by a number, which lies close to what is divided.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias, cast

from tessera.immutable import immutable
from tessera.language.dims.algebra import Atom, Dim, Expr, Monomial, substitute, terms_of
from tessera.language.dims.facts import NO_FACTS, Facts

Bounds: TypeAlias = tuple[int | None, int | None]
"""least and greatest value; None where there is none, or where it is not known"""
NOWHERE: Bounds = (None, None)
QUOTIENTS = 3
"""how many quotients of one dim are taken apart"""


def bounds(d: Dim, facts: Facts = NO_FACTS, least: int = 1) -> Bounds:
    """Between what numbers `d` (normal under the facts) lies for all sizes from `least` on; sizes that depend on data
    are from 0 on."""
    if isinstance(d, int):
        return d, d
    return _Ranges.under(facts, least).of(d, QUOTIENTS)


def at_most(a: Dim, b: Dim, facts: Facts = NO_FACTS) -> bool:
    """Whether a <= b is proved, for all sizes that the facts allow, 0 among them."""
    most = bounds(facts.normal(a) - facts.normal(b), facts, least=0)[1]
    return most is not None and most <= 0


@immutable
class _Ranges:
    """`exact`: divisions known to have no remainder. `orders`: what is known not to be positive."""

    exact: frozenset[tuple[Dim, Dim]]
    orders: tuple[Expr, ...]
    sizes: dict[str, Bounds]
    least: int

    @staticmethod
    def under(facts: Facts, least: int) -> _Ranges:
        exact = frozenset((substitute(a, facts.equal), substitute(b, facts.equal)) for a, b in facts.divisible)
        normal = (facts.normal(a) - facts.normal(b) for a, b in facts.at_most)
        orders = tuple(e for e in normal if isinstance(e, Expr))
        sizes: dict[str, Bounds] = {}
        for e in orders:
            terms = terms_of(e)
            constant = terms.pop((), 0)
            ((m, c), *more) = terms.items()
            if more or len(m) != 1 or m[0].op != "sym":
                continue
            name = str(m[0].args[0])
            low, high = sizes.get(name, NOWHERE)
            if c > 0:  # c * size + constant <= 0
                sizes[name] = low, _least((high, -constant // c))
            else:
                sizes[name] = _greatest((low, -(constant // c))), high
        return _Ranges(exact, orders, sizes, least)

    def of(self, d: Dim, quotients: int) -> Bounds:
        low, high = self.by_terms(d)
        for e in self.orders:  # e <= 0, so that d + e <= d <= d - e
            low = _greatest((low, self.by_terms(d + e)[0]))
            high = _least((high, self.by_terms(d - e)[1]))
        for m, c in terms_of(d).items() if quotients else ():
            if len(m) == 1 and m[0].op == "//" and isinstance(y := m[0].args[1], int) and y > 0:
                least, most = self._near(d, m, c, y, quotients - 1)
                low, high = _greatest((low, least)), _least((high, most))
        return low, high

    def _near(self, d: Dim, m: Monomial, c: int, y: int, quotients: int) -> Bounds:
        """By y * (x // y) = x - r, where 0 <= r < y."""
        x = cast("Dim", m[0].args[0])
        rest = d - Expr(((m, c),))
        low, high = self.of(c * x + y * rest, quotients)
        r = 0 if (x, y) in self.exact else (y - 1) * abs(c)
        low = None if low is None else low - (r if c > 0 else 0)
        high = None if high is None else high + (r if c < 0 else 0)
        return None if low is None else -(-low // y), None if high is None else high // y

    def by_terms(self, d: Dim) -> Bounds:
        low: int | None = 0
        high: int | None = 0
        for m, c in terms_of(d).items():
            least, most = self._monomial(m)
            if c < 0:
                least, most = most, least
            low = None if low is None or least is None else low + c * least
            high = None if high is None or most is None else high + c * most
        return low, high

    def _monomial(self, m: Monomial) -> Bounds:
        if len(m) == 1:
            return self._atom(m[0])
        found = [self._atom(a) for a in m]
        lows, highs = [low for low, _ in found], [high for _, high in found]
        if any(low is None or low < 0 for low in lows):
            return NOWHERE
        return prod(cast("list[int]", lows)), None if None in highs else prod(cast("list[int]", highs))

    def _atom(self, a: Atom) -> Bounds:
        if a.op == "sym":
            name = str(a.args[0])
            low, high = self.sizes.get(name, NOWHERE)
            return _greatest((low, 0 if name.startswith("?") else self.least)), high
        x, y = cast("tuple[Dim, Dim]", a.args)
        (low, high), (least, most) = self.by_terms(x), self.by_terms(y)
        if a.op == "min":
            return None if None in (low, least) else _least((low, least)), _least((high, most))
        if a.op == "max":
            return _greatest((low, least)), None if None in (high, most) else _greatest((high, most))
        if least is None or least < 1:  # it may divide by 0, or by a negative number
            return NOWHERE
        if a.op == "%":
            return 0, _least((most - 1 if most is not None else None, high if low is not None and low >= 0 else None))
        if low is not None:
            low = low // least if low < 0 else 0 if most is None else low // most
            if low == 0 and (x, y) in self.exact and (self.by_terms(x)[0] or 0) > 0:
                low = 1  # a positive multiple
        if high is not None:
            high = high // least if high >= 0 else -1 if most is None else high // most
        return low, high


def _least(found: tuple[int | None, ...]) -> int | None:
    return min((v for v in found if v is not None), default=None)


def _greatest(found: tuple[int | None, ...]) -> int | None:
    return max((v for v in found if v is not None), default=None)
