"""Facts that remember what they have rewritten: the same sizes are compared again and again within one function."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.language.dims import Dim, Facts


@dataclass(slots=True)
class RememberingFacts(Facts):
    """`Facts` with normal forms kept until something new is assumed."""

    _normal: dict[Dim, Dim] = field(default_factory=dict[Dim, Dim], compare=False, repr=False)

    def assume_divisible(self, a: Dim, b: Dim) -> None:
        self._normal.clear()
        Facts.assume_divisible(self, a, b)

    def assume_equal(self, a: Dim, b: Dim) -> None:
        self._normal.clear()
        Facts.assume_equal(self, a, b)

    def copy(self) -> RememberingFacts:
        return RememberingFacts(list(self.divisible), dict(self.equal), list(self.zero))

    def normal(self, d: Dim) -> Dim:
        if isinstance(d, int) or not (self.divisible or self.equal):
            return d
        found = self._normal.get(d)
        if found is None:
            found = self._normal[d] = Facts.normal(self, d)
        return found
