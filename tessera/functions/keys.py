"""Keys of random numbers. A key is a whole number; `ts.uniform`, `ts.normal` and `ts.dropout` draw by it."""

from __future__ import annotations

from typing import Any

import tessera as ts

_WORD = 0xFFFFFFFFFFFFFFFF
_POSITIVE = 0x7FFFFFFFFFFFFFFF


def split_key(key: Any, count: Any = 2) -> Any:
    """`count` keys derived from a key: SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, 2014) of key and number.

    A number gives a list of numbers. A tensor of integers, as a parameter of a function, gives a tensor of int64
    [count, ...] with the same values, which can be unpacked, mapped and scanned; `count` may be a size. Raises
    CompileError TS301 for what are no integers.
    """
    if isinstance(key, int) and isinstance(count, int):
        mixed = _mixed(key & _WORD)
        return [_mixed(mixed + number) & _POSITIVE for number in range(count)]
    several = _mixed_tensor(ts.cast(ts.bitwise_and(key, ts.full((), -1, ts.int64)), ts.uint64))
    numbers = ts.reshape(ts.cast(ts.arange(count), ts.uint64), (count,) + (1,) * several.ndim)
    return ts.cast(_mixed_tensor(several + numbers) & _POSITIVE, ts.int64)


def _mixed(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def _mixed_tensor(z: Any) -> Any:
    """`_mixed` of a tensor of uint64, whose arithmetic is modulo 2**64."""
    z = z + 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)
