"""What asserts and guards say about sizes, and dims rewritten by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from tessera.immutable import mutable
from tessera.language.dims.algebra import (
    OPERATIONS,
    Atom,
    Dim,
    Expr,
    atom,
    divide_exactly,
    evaluate,
    is_symbol,
    mod,
    opaque,
    prod,
    substitute,
    symbols,
    terms_of,
)


@mutable
class Facts:
    """What asserts and guards have established.

    `divisible` holds (D, H) for D % H == 0. `equal` holds rewritings of symbols, none of which occurs on a right side.
    `zero` holds what is 0 without determining a symbol: B*H - 2*D. `at_most` holds (T, S) for T <= S.
    """

    divisible: list[tuple[Dim, Dim]] = field(default_factory=list[tuple[Dim, Dim]])
    equal: dict[str, Dim] = field(default_factory=dict[str, Dim])
    zero: list[Expr] = field(default_factory=list[Expr])
    at_most: list[tuple[Dim, Dim]] = field(default_factory=list[tuple[Dim, Dim]])

    def assume_divisible(self, a: Dim, b: Dim) -> None:
        if (a, b) not in self.divisible and divide_exactly(a, b) is None:
            self.divisible.append((a, b))

    def assume_equal(self, a: Dim, b: Dim) -> None:
        a, b = substitute(a, self.equal), substitute(b, self.equal)
        if a == b:
            return
        for x, y in ((a, b), (b, a)):
            if is_symbol(x) and not symbols(x) & symbols(y):
                new = {str(x): y}
                self.equal.update({name: substitute(d, new) for name, d in self.equal.items()})
                self.equal.update(new)
                return
        if isinstance(difference := a - b, Expr):
            self.zero.append(difference)

    def assume_at_most(self, a: Dim, b: Dim) -> None:
        if isinstance(a - b, Expr) and (a, b) not in self.at_most:
            self.at_most.append((a, b))

    def learn(self, left: Dim, right: Dim) -> None:
        """`left == right`: a remainder that is 0 is a divisibility, a symbol is rewritten."""
        for a, b in ((left, right), (right, left)):
            if b == 0 and isinstance(a, Expr) and len(a.terms) == 1:
                (monomial, c), *_ = a.terms
                if c == 1 and len(monomial) == 1 and monomial[0].op == "%":
                    x, y = monomial[0].args
                    self.assume_divisible(x, y)  # type: ignore[arg-type]
                    return
        self.assume_equal(left, right)

    def copy(self) -> Facts:
        return Facts(list(self.divisible), dict(self.equal), list(self.zero), list(self.at_most))

    def concern(self, names: frozenset[str]) -> bool:
        """Whether anything is known of one of the names."""
        return any(not names.isdisjoint(s) for s in self._scopes())

    def about(self, names: frozenset[str]) -> tuple[frozenset[str], Facts]:
        """The names that are tied to `names`, these included, and all that is known of them."""
        scopes = self._scopes()
        while more := frozenset[str]().union(*(s for s in scopes if not names.isdisjoint(s))) - names:
            names |= more

        def tied(pairs: list[tuple[Dim, Dim]]) -> list[tuple[Dim, Dim]]:
            return [(a, b) for a, b in pairs if not names.isdisjoint(symbols(a) | symbols(b))]

        equal = {n: d for n, d in self.equal.items() if n in names}
        zero = [z for z in self.zero if not names.isdisjoint(symbols(z))]
        return names, Facts(tied(self.divisible), equal, zero, tied(self.at_most))

    def hold(self, env: Mapping[str, int]) -> bool:
        """Whether these sizes satisfy all of them. Raises DimError where a size is missing or a divisor is 0."""
        return (
            all(evaluate(mod(a, b), env) == 0 for a, b in self.divisible)
            and all(evaluate(d, env) == env[n] for n, d in self.equal.items())
            and all(evaluate(z, env) == 0 for z in self.zero)
            and all(evaluate(a, env) <= evaluate(b, env) for a, b in self.at_most)
        )

    def _scopes(self) -> list[frozenset[str]]:
        """The names that each of them ties together."""
        return [
            *(symbols(a) | symbols(b) for a, b in (*self.divisible, *self.at_most)),
            *(symbols(d) | {n} for n, d in self.equal.items()),
            *map(symbols, self.zero),
        ]

    def normal(self, d: Dim) -> Dim:
        """`d` rewritten by the facts: with D % H == 0, D becomes H * (D // H), so that H * (D // H) == D."""
        d = substitute(d, self.equal)
        for a, b in self.divisible:
            a, b = substitute(a, self.equal), substitute(b, self.equal)
            d = _replace_atom(d, Atom("%", (a, b)), 0)
            if is_symbol(a) and str(a) not in symbols(b):
                d = _expand(d, str(a), b * atom("//", a, b), keep=Atom("//", (a, b)))
        return d

    def folded(self, d: Dim) -> Dim:
        """`d` in the fewest names: with D % 2 == 0, 2 * (D // 2) becomes D, and (D + 1) // 2 becomes D // 2."""
        found = self._folded(d)
        if not opaque(found):
            return found
        return min(found, self._folded(self.normal(d)), key=lambda d: len(str(d)))

    def _folded(self, d: Dim) -> Dim:
        for a, b in self.divisible:
            divisor = terms_of(b)
            if len(divisor) == 1:
                (factors, number) = next(iter(divisor.items()))
                d = _folded(d, a, [Atom("//", (a, b)), *factors], number)
        return d

    def divides(self, b: Dim, a: Dim) -> bool:
        """Whether a % b == 0 is known."""
        return (a, b) in self.divisible or divide_exactly(self.normal(a), self.normal(b)) is not None


def _folded(d: Dim, whole: Dim, parts: list[Atom], number: int) -> Dim:
    """Each term that holds all of `parts` and a multiple of `number` becomes what is left of it times `whole`."""
    out: Dim = 0
    for m, c in terms_of(d).items():
        rest = list(m)
        for atom_ in parts:
            if atom_ in rest:
                rest.remove(atom_)
        found = len(rest) == len(m) - len(parts) and c % number == 0
        out = out + (prod((c // number, whole, *map(_alone, rest))) if found else prod((c, *map(_alone, m))))
    return out


def _replace_atom(d: Dim, old: Atom, new: Dim) -> Dim:
    return _rewritten(d, lambda a: new if a == old else _alone(a))


def _expand(d: Dim, name: str, value: Dim, keep: Atom) -> Dim:
    """Replaces the symbol everywhere but in the quotient `keep`, which mentions it and stays what it is."""

    def new(a: Atom) -> Dim:
        if a == Atom("sym", (name,)):
            return value
        if a.op in OPERATIONS and a != keep:
            x, y = (_expand(v, name, value, keep) for v in a.args)  # type: ignore[arg-type]
            return OPERATIONS[a.op](x, y)
        return _alone(a)

    return _rewritten(d, new)


def _rewritten(d: Dim, new: Callable[[Atom], Dim]) -> Dim:
    """`d` with each of its atoms replaced."""
    if isinstance(d, int):
        return d
    out: Dim = 0
    for m, c in d.terms:
        out = out + prod((c, *map(new, m)))
    return out


def _alone(a: Atom) -> Dim:
    return Expr((((a,), 1),))


NO_FACTS = Facts()
