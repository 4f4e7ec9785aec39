"""Which groups of operators need which others, kept up to date while the groups grow."""

from __future__ import annotations

from typing import Generic, TypeVar

G = TypeVar("G")


class Dependencies(Generic[G]):
    """Which groups need which others, directly or not: answered in one step, however many groups are between them.

    Each group has a bit, or several where groups have been merged into it, and the bits of all that it needs.
    """

    def __init__(self) -> None:
        self.bits: dict[G, int] = {}
        self.above: dict[G, int] = {}
        self.users: dict[G, dict[G, None]] = {}
        self.used: dict[G, dict[G, None]] = {}
        self.count = 0

    def known(self, g: G, on: G) -> bool:
        """Whether `g` needs a result of `on`."""
        return bool(self.above.get(g, 0) & self._own(on))

    def add(self, g: G, source: G) -> None:
        """`g` needs a result of `source`; so does, from now on, what needs `g`."""
        self.users.setdefault(source, {})[g] = None
        self.used.setdefault(g, {})[source] = None
        self._spread(g, self._own(source) | self.above.get(source, 0))

    def merge(self, g: G, h: G) -> None:
        """`h` is a part of `g` from now on; none of the two needs the other through a third."""
        self.bits[g] = self._own(g) | self._own(h)
        for relation, back in ((self.users, self.used), (self.used, self.users)):
            others = relation.pop(h, {})
            for other in others:
                back[other].pop(h)
                back[other][g] = None
            relation.setdefault(g, {}).update(others)
        for relation in (self.users, self.used):
            relation[g].pop(g, None)
        above = (self.above.get(g, 0) | self.above.pop(h, 0)) & ~self.bits[g]
        self.above[g] = above
        for user in self.users[g]:
            self._spread(user, above)

    def _own(self, g: G) -> int:
        if g not in self.bits:
            self.bits[g] = 1 << self.count
            self.count += 1
        return self.bits[g]

    def _spread(self, g: G, bits: int) -> None:
        todo = [g]
        while todo:
            k = todo.pop()
            old = self.above.get(k, 0)
            if bits & ~old:
                self.above[k] = old | bits
                todo += self.users.get(k, ())
