"""Facts that remember what they have rewritten: the same sizes are compared again and again in one file."""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache

from tessera.immutable import mutable
from tessera.language.dims import Dim, Facts


@lru_cache(maxsize=64)
def _normal_forms(divisible: tuple[tuple[Dim, Dim], ...], equal: tuple[tuple[str, Dim], ...]) -> dict[Dim, Dim]:
    """The normal forms that have been worked out under these facts: one dict for all who assume the same."""
    return {}


@mutable
class RememberingFacts(Facts):
    """`Facts` with normal forms kept as long as nothing new is assumed."""

    _normal: dict[Dim, Dim] | None = field(default=None, compare=False, repr=False)

    def assume_divisible(self, a: Dim, b: Dim) -> None:
        self._normal = None
        Facts.assume_divisible(self, a, b)

    def assume_equal(self, a: Dim, b: Dim) -> None:
        self._normal = None
        Facts.assume_equal(self, a, b)

    def copy(self) -> RememberingFacts:
        return RememberingFacts(list(self.divisible), dict(self.equal), list(self.zero), list(self.at_most))

    def normal(self, d: Dim) -> Dim:
        if isinstance(d, int) or not (self.divisible or self.equal):
            return d
        if self._normal is None:
            self._normal = _normal_forms(tuple(self.divisible), tuple(self.equal.items()))
        found = self._normal.get(d)
        if found is None:
            found = self._normal[d] = Facts.normal(self, d)
        return found
