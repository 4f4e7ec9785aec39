"""Stretches of a row that repeat: the same keys again and again at one distance."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from tessera.immutable import immutable


class Unequal(Exception):
    """What repeats does not do so in all respects."""


_SEEN = 16
"""keys that must be equal in a row before a repetition is looked at in long rows"""


@immutable
class Stretch:
    """`count` windows of `period` items each, one behind the other, from number `start` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count

    def later(self, keys: Sequence[int], more: int) -> Stretch:
        """The windows that begin so many items later."""
        start = self.start + more
        return Stretch(start, self.period, (_equal(keys, start, self.period) + self.period) // self.period)


def numbered(keys: Iterable[Hashable]) -> list[int]:
    """Equal keys as equal numbers, which are quick to compare."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


class Numbering:
    """Equal objects as equal numbers. An object that has been asked for is found by its identity: it must stay."""

    def __init__(self) -> None:
        self._by_value: dict[Hashable, int] = {}
        self._by_identity: dict[int, int] = {}

    def __call__(self, value: Hashable) -> int:
        found = self._by_identity.get(id(value))
        if found is None:
            found = self._by_identity[id(value)] = self._by_value.setdefault(value, len(self._by_value))
        return found


def long_stretches(keys: Sequence[int], least: int) -> Iterator[Stretch]:
    """The stretches of at least `least` windows in a long row, from left to right; none of a few items in all."""
    following: list[int] = [0] * len(keys)
    seen: dict[tuple[int, ...], int] = {}
    for i in range(len(keys) - _SEEN, -1, -1):
        row = tuple(keys[i : i + _SEEN])
        following[i] = seen.get(row, 0)
        seen[row] = i
    i, known, end = 0, 0, 0  # up to `end` keys are those that stand `known` further on
    while i < len(keys):
        period = max(following[i] - i, 0)
        if period != known or i > end:
            known, end = period, i + (_equal(keys, i, period) if period else 0)
        count = (end - i + period) // period if period else 0
        if count >= least:
            yield Stretch(i, period, count)
        i += period * count if count >= least else 1


def _equal(keys: Sequence[int], start: int, period: int, stop: int | None = None) -> int:
    """How many keys in a row, from `start` on, are those that stand `period` further on (before `stop`)."""
    i, last = start, (len(keys) if stop is None else stop) - period
    while i < last and keys[i] == keys[i + period]:
        i += 1
    return i - start


def stretches(keys: Sequence[int], fits: Callable[[Stretch], bool]) -> list[Stretch]:
    """The stretches of a short row, in order; each is the longest of what is left, of those that `fits` accepts. What
    stands beside layers may look like one of them: up to two windows are left out."""
    found: list[Stretch] = []
    _longest(keys, 0, len(keys), fits, found)
    return sorted(found, key=lambda s: s.start)


def _longest(keys: Sequence[int], first: int, stop: int, fits: Callable[[Stretch], bool], found: list[Stretch]) -> None:
    """Adds the stretches of keys[first:stop]."""
    candidates: list[tuple[int, int, int]] = []
    for period in range(1, (stop - first) // 2 + 1):
        i = first
        while i + 2 * period <= stop:
            if keys[i] != keys[i + period]:
                i += 1
                continue
            equal = _equal(keys, i, period, stop)
            if equal >= period:
                candidates.append((equal + period, -period, i))
            i += equal + 1
    for length, negative, start in sorted(candidates, reverse=True):
        period = -negative
        most = length // period
        for count in range(most, max(most - 2, 2) - 1, -1):
            for more in range(length - count * period + 1):
                stretch = Stretch(start + more, period, count)
                if fits(stretch):
                    found.append(stretch)
                    _longest(keys, first, stretch.start, fits, found)
                    _longest(keys, stretch.stop, stop, fits, found)
                    return
