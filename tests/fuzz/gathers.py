"""Random subscripts with index tiles, against NumPy's: `x[rows, 2, rows + 1, 0:3]`.

`python -m tests.fuzz gathers --count 1000 --seed 1 --emulate 20`: index tiles are lanes, computed, or read from arrays,
along one or two axes of the result, and several may lie along the same one. What is read is stored and summed; places
that differ are stored to as well.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.fuzz.seeded import command, held

NUMBERS = ("int32", "int64")


class Gathers:
    """One kernel: its text, its arguments, and what they are afterwards."""

    def __init__(self, seed: int) -> None:
        r, values = random.Random(seed), np.random.default_rng(seed)
        self.lengths = [r.randint(1, 5) for _ in range(r.choice((1, 2, 2)))]
        self.shape = [r.randint(5, 9) for _ in range(r.choice((1, 2, 3, 3, 4, 4)))]
        self.x = values.integers(-9, 10, self.shape).astype(np.float32)
        self.given: list[Any] = [self.x]
        self.parameters = [f"x: Tensor[{', '.join(map(str, self.shape))}, ts.f32]"]
        self.lines = [f"t{n} = ts.tile.arange({length})" for n, length in enumerate(self.lengths)]
        self.blocks = r.random() < 0.3
        """whether all are lanes, which make a block where no two lie along one axis"""
        first = 0 if self.blocks else r.randrange(len(self.shape))
        last = len(self.shape) - 1 if self.blocks else r.randrange(first, len(self.shape))
        items = [self._item(r, values, a, first <= a <= last) for a in range(len(self.shape))]
        if not any(isinstance(i, np.ndarray) for _, i in items):
            items[first] = self._tile(r, values, first)
        self.subscript = ", ".join(text for text, _ in items)
        self.index = [i for _, i in items]
        self.want = self._read()
        self.stored = self._stored()
        self.text = self._text()

    def _item(self, r: random.Random, values: Any, axis: int, inside: bool) -> tuple[str, Any]:
        """Slices stand outside of what lies from the first index tile to the last one."""
        kind = r.choice(("tile", "tile", "tile", "number") if inside else ("slice", "number"))
        if kind == "tile" or self.blocks:
            return self._tile(r, values, axis)
        if kind == "number":
            at = r.randrange(self.shape[axis])
            return str(at), at
        low = r.randrange(self.shape[axis])
        high = r.randint(low + 1, self.shape[axis])
        return f"{low}:{high}", slice(low, high)

    def _tile(self, r: random.Random, values: Any, axis: int) -> tuple[str, Any]:
        size, rank = self.shape[axis], len(self.lengths)
        n = r.randrange(rank)
        own = np.arange(self.lengths[n])
        kind = "lanes" if self.blocks else r.choice(("lanes", "computed", "read", "both"))
        if kind == "both" and rank == 2:
            found = values.integers(0, size, self.lengths)
            return self._argument(r, found) + "[:, :]", found
        if kind == "lanes":
            by = r.randint(0, size - len(own))
            text, found = f"({by} + t{n})" if by else f"t{n}", own + by
        elif kind == "read":
            found = values.integers(0, size, self.lengths[n])
            text = self._argument(r, found) + f"[t{n}]"
        else:
            by = r.randint(1, 7)
            text, found = f"(t{n} * {by} % {size})", own * by % size
        if rank == 1:
            return text, found
        return (f"{text}[:, None]", found[:, None]) if n == 0 else (f"{text}[None, :]", found[None, :])

    def _argument(self, r: random.Random, values: Any) -> str:
        name, dtype = f"ids{len(self.given)}", r.choice(NUMBERS)
        self.given.append(values.astype(dtype))
        self.parameters.append(f"{name}: Tensor[{', '.join(map(str, values.shape))}, ts.{dtype}]")
        return name

    def _read(self) -> Any:
        """By the other indices where numbers have taken their axes: a number moves nothing to the front."""
        self.numbers = tuple(i if isinstance(i, int) else slice(None) for i in self.index)
        self.others = tuple(i for i in self.index if not isinstance(i, int))
        return self.x[self.numbers][self.others]

    def _stored(self) -> Any:
        """What a tensor of zeros holds after the store; None where two elements go to one place."""
        count, out = np.zeros(self.shape, np.int64), np.zeros(self.shape, np.float32)
        np.add.at(count[self.numbers], self.others, 1)
        out[self.numbers][self.others] = self.want * 2
        return out if count.max() == 1 else None

    def _text(self) -> str:
        sizes = ", ".join(map(str, self.want.shape))
        parameters = [*self.parameters, f"y: Tensor[{sizes}, ts.f32]", "total: Tensor[1, ts.f32]"]
        whole = ", ".join(":" for _ in self.want.shape)
        lines = [*self.lines, f"t = x[{self.subscript}]", f"y[{whole}] = t", "total[0] = ts.tile.sum(t)"]
        if self.stored is not None:
            parameters.append(self.parameters[0].replace("x:", "z:", 1))
            lines.append(f"z[{self.subscript}] = t * 2")
        body = "\n".join(f"    {line}" for line in lines)
        return f"import tessera as ts\nfrom tessera import Tensor\n\n\ndef f({', '.join(parameters)}):\n{body}\n"


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """The codes by which the program is refused. Raises AssertionError where a target is wrong."""
    p = Gathers(seed)
    wanted = [p.want, np.array([p.want.sum()], np.float32), *([] if p.stored is None else [p.stored])]
    return held(p.text, f"gathers{seed}.py", p.given, [np.zeros_like(w) for w in wanted], wanted, targets)


def main(arguments: list[str]) -> int:
    return command("gathers", __doc__, check, arguments)
