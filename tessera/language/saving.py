"""Policies of `ts.remat`, which select the values that a backward pass finds in memory; sizes of memory.

A value of the forward pass that the backward pass reads is saved, or recomputed from saved values. Both give the same
bits: the same operators run in the same order, and random numbers are keyed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

from tessera.tracebacks import outward

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip

Memory: TypeAlias = "int | float | str"
"""bytes, or a number with a unit: `1.5GiB` is 1.5 * 2**30, `1.5GB` is 1.5e9"""


@dataclass(frozen=True, slots=True)
class Save:
    """The values of a function that are saved for its backward pass; all others are recomputed.

    `products`: results of `@`, `einsum` and convolutions. `names`: variables of these names.
    """

    kind: Literal["products", "names", "nothing", "everything"]
    of: tuple[str, ...] = ()

    def keeps(self, product: bool, names: frozenset[str]) -> bool:
        """Whether a value is saved that is a product, or that variables of these names hold."""
        match self.kind:
            case "products":
                return product
            case "names":
                return not names.isdisjoint(self.of)
            case "nothing":
                return False
            case "everything":
                return True

    def __repr__(self) -> str:
        return f"ts.save.{self.kind}" + (f"({', '.join(map(repr, self.of))})" if self.kind == "names" else "")


class save:
    """Policies of `ts.remat`."""

    @outward
    def __new__(cls, *args: object, **options: object) -> NoReturn:
        raise TypeError(
            "ts.save has policies of ts.remat, ts.save.products; ts.checkpoint.save(folder, model=model) writes arrays"
        )

    products = Save("products")
    nothing = Save("nothing")
    everything = Save("everything")

    @staticmethod
    def names(*names: str) -> Save:
        """Saves the values of variables of these names: `ts.save.names("attn")` for `attn = ts.softmax(scores)`."""
        return Save("names", names)


def bytes_of(memory: Memory) -> int:
    """A size of memory in bytes, rounded down. Raises ValueError with the accepted forms."""
    number, unit = memory, "b"
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([kmgt]?i?b)\s*", memory, re.IGNORECASE)
        number, unit = (float(found[1]), found[2].lower()) if found else (math.nan, "b")
    if unit in _UNITS and isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < 2**62:
        return int(number * _UNITS[unit])
    raise ValueError(
        f"memory is a positive number of bytes, or one with a unit, as '1.5GiB' and '800MB', not {memory!r}"
    )
