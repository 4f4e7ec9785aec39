"""How a transform's length is cut into short ones."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

LARGEST = 16
"""elements of the longest transform that a pass computes in registers"""
SHORT = 64
"""elements of the longest lines that have one pass where they lie one behind the other in memory, whatever it spills:
of several, the first ones would gather elements of lines"""
PRIMES = (2, 3, 5, 7, 11, 13)
PASS = 12
"""what a pass costs by reading and writing memory, in operations on an element"""


def is_smooth(n: int) -> bool:
    """Whether passes compute a transform of `n` elements: it has small prime factors only."""
    for p in PRIMES:
        while n % p == 0:
            n //= p
    return n == 1


def power_of_two(least: int) -> int:
    """The power of two that is not below `least`."""
    return 1 << (least - 1).bit_length()


@lru_cache(maxsize=1024)
def radices(n: int) -> tuple[int, ...]:
    """The lengths of the passes whose product is `n`, the longest first, so that all together cost least.

    Of equal ones those with the longest first pass: it leaves that many neighbours to the lanes of the next one. The
    others are as even as can be.
    """
    first = [r for r in range(LARGEST, 1, -1) if n % r == 0]
    found = min(((_step(r, _cheapest(n // r))) for r in first), key=lambda c: (c[0], -max(c[2])))
    return tuple(sorted(found[2], reverse=True))


Cost: TypeAlias = "tuple[float, int, tuple[int, ...]]"
"""operations on an element, how uneven the passes are, and their lengths"""


def _step(r: int, rest: Cost) -> Cost:
    return rest[0] + PASS + operations(r), rest[1] + r * r, (r, *rest[2])


@lru_cache(maxsize=4096)
def _cheapest(n: int) -> Cost:
    if n == 1:
        return 0.0, 0, ()
    return min(_step(r, _cheapest(n // r)) for r in range(2, LARGEST + 1) if n % r == 0)


def prime_factors(n: int) -> list[int]:
    """In ascending order."""
    found: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n] if n > 1 else found


def operations(r: int) -> float:
    """Roughly, operations on an element of a transform of `r` elements in registers."""
    return sum(2.0 * p if p > 2 else 2.0 for p in prime_factors(r)) + 4
