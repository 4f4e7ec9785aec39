"""Random products of tiles in kernels, of all dtypes down to fp4, with scales of blocks along K or without.

`python -m tests.fuzz products --count 1000 --seed 1 --emulate 20`: ragged sizes, batches, transposed and shared
operands, loops over K, accumulators. Elements and scales are such that all sums are exact, so that NumPy's f64 gives
every bit.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tessera.language import dtypes as dt
from tessera.language.dtypes import DType
from tests.fuzz.seeded import command, held

SMALL = (dt.fp8_e4m3, dt.fp8_e5m2, dt.fp6_e2m3, dt.fp6_e3m2, dt.fp4_e2m1)
FLOATS = (*SMALL, dt.bf16, dt.f16, dt.f32)
INTEGERS = (dt.int8, dt.uint8, dt.int32)
SCALES = {dt.fp8_e8m0: 32, dt.fp8_e4m3: 16}
HEAD = "import tessera as ts\nfrom tessera import Tensor\n\n\n"


class Operand:
    """One side of the product. `along`: the axis of K in the matrix that is multiplied."""

    def __init__(self, r: random.Random, name: str, dtype: DType, scale: DType | None, batched: bool) -> None:
        self.r, self.name, self.dtype, self.scale, self.batched = r, name, dtype, scale, batched
        self.rows = "M" if name == "A" else "N"
        self.turned, self.scale_turned = r.random() < 0.3, r.random() < 0.3
        self.shared = r.random() < 0.25

    @property
    def block(self) -> int:
        return SCALES[self.scale] if self.scale is not None else 1

    def _order(self, turned: bool, inner: str) -> list[str]:
        """Axes as they lie in memory; [M, K] and [K, N] where nothing is turned."""
        axes = [self.rows, inner] if (self.name == "A") != turned else [inner, self.rows]
        return (["B"] if self.batched else []) + axes

    def parameters(self) -> list[str]:
        names = [(self.name, self._order(self.turned, "K"), self.dtype)]
        if self.scale is not None:
            names.append((f"{self.name}S", self._order(self.scale_turned, f"S{self.block}"), self.scale))
        return [f"{n}: Tensor[{', '.join(repr(a) for a in axes)}, ts.{d}]" for n, axes, d in names]

    def load(self, name: str, turned: bool, inner: str, window: str, rows: str, batch: str) -> str:
        index = {"B": batch, self.rows: rows, inner: window}
        axes = [a for a in self._order(turned, inner) if index[a]]
        text = f"{name}[{', '.join(index[a] for a in axes)}]"
        if not turned:
            return text
        return f"ts.tile.transpose({text}, (0, 2, 1))" if len(axes) == 3 else f"{text}.T"

    def arrays(self, values: Any, n: dict[str, int]) -> tuple[list[Any], Any]:
        """The arguments, and the matrices that they stand for in f64."""
        lead = (n["B"],) if self.batched else ()
        low = 0 if self.dtype is dt.uint8 else -4
        x = values.integers(low, 5, (*lead, n[self.rows], n["K"])).astype(np.float32)
        given, wide = [self._laid(x.astype(self.dtype.numpy), self.turned)], x.astype(np.float64)
        if self.scale is not None:
            powers = [0.125, 0.5, 1, 2, 8] if self.scale is dt.fp8_e8m0 else [0.5, 1, 1.5, 2, 3, 1.25]
            s = values.choice(powers, (*lead, n[self.rows], -(-n["K"] // self.block))).astype(np.float32)
            given.append(self._laid(s.astype(self.scale.numpy), self.scale_turned))
            wide = wide * np.repeat(s, self.block, -1)[..., : n["K"]]
        return given, wide

    def _laid(self, x: Any, turned: bool) -> Any:
        return np.ascontiguousarray(x if (self.name == "A") != turned else np.swapaxes(x, -1, -2))


class Product:
    """One kernel: its text, its sizes and what it gives."""

    def __init__(self, seed: int) -> None:
        self.seed, self.r = seed, random.Random(seed)
        r = self.r
        integers = r.random() < 0.1
        kinds = INTEGERS if integers else FLOATS
        scaled = not integers and r.random() < 0.7
        self.batch = r.choice(("", "", "grid", "block", "left"))
        sides = [r.choice((*SMALL, dt.bf16) if scaled else kinds) for _ in "ab"]
        if not scaled and dt.promote(*sides) is None and r.random() < 0.9:
            sides[1] = sides[0]
        scales = [r.choice(list(SCALES)) if scaled and r.random() < 0.8 else None for _ in "ab"]
        if scaled and not any(scales):
            scales[r.randrange(2)] = dt.fp8_e8m0
        self.a = Operand(r, "A", sides[0], scales[0], bool(self.batch))
        self.b = Operand(r, "B", sides[1], scales[1], self.batch in ("grid", "block"))
        self.b.name = "W"
        self.accumulator = dt.int32 if integers else r.choice((dt.f32, dt.f32, dt.f64))
        unit = max(self.a.block, self.b.block)
        self.m, self.n, self.g = r.choice((1, 4, 8, 16, 32)), r.choice((1, 4, 8, 16, 32)), r.choice((1, 2, 4))
        self.width = r.choice((1, 2, 4)) * unit if unit > 1 else r.choice((1, 4, 8, 16, 32, 48))
        self.start = r.choice((0, 0, 3))
        self.sizes = {"M": r.randint(1, 40), "N": r.randint(1, 40), "K": r.choice((1, 7, 16, 31, 32, 33, 64, 80, 100)),
                      "B": r.randint(1, 5)}  # fmt: skip
        self.whole = self.sizes["K"] % unit == 0 and r.random() < 0.3
        self.config = {"num_warps": r.choice((1, 2, 4)), "num_stages": r.choice((1, 2, 3))}
        self.text = self._text()

    def _text(self) -> str:
        r, lines = self.r, list[str]()
        for s in (self.a, self.b):
            s.shared = s.shared and self.batch in ("", "grid") and not s.turned and not self.whole
        lead = '"B", ' if self.batch else ""
        parameters = [*self.a.parameters(), *self.b.parameters(), f'C: Tensor[{lead}"M", "N", ts.{self.accumulator}]']
        lines.append(f"def f({', '.join(parameters)}):")
        shape = f"({self.g}, {self.m}, {self.n})" if self.batch in ("block", "left") else f"({self.m}, {self.n})"
        for s, extents in ((self.a, (self.m, self.width)), (self.b, (self.width, self.n))):
            if s.shared:
                swizzle = r.choice(("", ', swizzle="xor"')) if extents[1] in (16, 32, 64) else ""
                lines.append(f"    s{s.name} = ts.tile.alloc_shared({extents}, ts.{s.dtype}{swizzle})")
        lines.append(f"    acc = ts.tile.full({shape}, {self.start}, ts.{self.accumulator})")
        depth = "    "
        if not self.whole:
            unit = max(self.a.block, self.b.block)
            if unit > 1 and r.random() < 0.5:
                lines += [f"    for j in ts.tile.range_k(0, S{unit}, {self.width // unit}):", f"        k = j * {unit}"]
            else:
                lines.append(f"    for k in ts.tile.range_k(0, K, {self.width}):")
            depth = "        "
        factors, scales = [], []
        for s in (self.a, self.b):
            text, scale = self._side(s)
            if s.shared:
                lines += [f"{depth}ts.tile.cp_async(s{s.name}, {text})"]
                text = f"s{s.name}"
            factors.append(text)
            if scale:
                scales.append(f", {s.name.lower().replace('w', 'b')}_scale={scale}")
        if self.a.shared or self.b.shared:
            lines.append(f"{depth}ts.tile.barrier()")
        lines += [depth + line for line in self._sum(", ".join(factors), "".join(scales))]
        at = f"tile_b : tile_b + {self.g}, " if self.batch in ("block", "left") else ""
        lines.append(f"    C[{at}tile_m : tile_m + {self.m}, tile_n : tile_n + {self.n}] = acc")
        return HEAD + "\n".join(lines) + "\n"

    def _side(self, s: Operand) -> tuple[str, str]:
        """The loads of an operand and of its scales."""
        size = self.m if s is self.a else self.n
        rows = f"tile_{s.rows.lower()} : tile_{s.rows.lower()} + {size}"
        batch = f"tile_b : tile_b + {self.g}" if self.batch in ("block", "left") and s.batched else ""
        window = ":" if self.whole else f"k : k + {self.width}"
        text = s.load(s.name, s.turned, "K", window, rows, batch)
        if s.scale is None:
            return text, ""
        part = ":" if self.whole else f"k // {s.block} : k // {s.block} + {self.width // s.block}"
        return text, s.load(f"{s.name}S", s.scale_turned, f"S{s.block}", part, rows, batch)

    def _sum(self, factors: str, scales: str) -> list[str]:
        dtype = f"ts.{self.accumulator}"
        return self.r.choice((
            [f"acc = ts.tile.mma({factors}, acc{scales})"],
            [f"acc += ts.tile.mma({factors}, {dtype}{scales})"],
            [f"p = ts.tile.mma({factors}, accumulator={dtype}{scales})", "acc = p + acc"],
        ))  # fmt: skip

    def arrays(self) -> tuple[list[Any], Any, Any]:
        """Arguments, the array that is stored to, and what it holds behind."""
        values = np.random.default_rng(self.seed)
        (left, a), (right, b) = (s.arrays(values, self.sizes) for s in (self.a, self.b))
        wanted = (self.start + a @ np.swapaxes(b, -1, -2)).astype(self.accumulator.numpy)
        return [*left, *right], np.full(wanted.shape, 99, self.accumulator.numpy), wanted


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """The codes by which the program is refused. Raises AssertionError where a target is wrong."""
    p = Product(seed)
    given, out, wanted = p.arrays()
    return held(p.text, f"products{seed}.py", given, [out], [wanted], targets, **p.config)


def main(arguments: list[str]) -> int:
    return command("products", __doc__, check, arguments)
