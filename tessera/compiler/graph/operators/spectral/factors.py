"""How a transform's length is cut into short ones."""

from __future__ import annotations

from functools import lru_cache

LARGEST = 16
"""elements of the longest transform that a pass computes in registers"""
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
    """The lengths of the passes whose product is `n`, the longest first, so that all together cost least."""
    return tuple(sorted(_cheapest(n)[1], reverse=True))


@lru_cache(maxsize=4096)
def _cheapest(n: int) -> tuple[float, tuple[int, ...]]:
    if n == 1:
        return 0.0, ()
    best: tuple[float, tuple[int, ...]] | None = None
    for r in range(LARGEST, 1, -1):
        if n % r == 0 and is_smooth(n):
            cost, rest = _cheapest(n // r)
            cost += PASS + operations(r)
            if best is None or cost < best[0]:
                best = cost, (r, *rest)
    assert best is not None, n
    return best


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
