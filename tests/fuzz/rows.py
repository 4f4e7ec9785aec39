"""Random kernels over rows: functions of one's own, elements moved within rows, random numbers, loops that lanes leave.

`python -m tests.fuzz rows --count 1000 --seed 1 --emulate 20`: every statement works on the rows of a block, so that
NumPy says the same of the whole tensor at once. Results are declared, of several ranks, with any leading axes; one is
combined over all programs; grids are grouped and persistent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from tests.fuzz.seeded import command, held

HEAD = """import tessera as ts
from tessera import Tensor, Tile


@ts.tile.helper
def spread(t: Tile["m", "n", ts.f32], by: ts.f32) -> Tile["m", "n", ts.f32]:
    return ts.tile.maximum(ts.tile.minimum((t - ts.tile.row_max(t)[:, None]) * by, 9), -9)


def bounded(t: Tile["m", "n"], least: ts.f32 = -9) -> Tile["m", "n"]:
    if t < least:
        return least + 0 * t
    return ts.tile.minimum(t, 9)


"""
PAIR = "lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1])"
LAST = "lambda a, b: (ts.tile.where(b[0] >= a[0], b[0], a[0]), ts.tile.where(b[0] >= a[0], b[1], a[1]))"
SCANS: dict[str, Callable[[Any], Any]] = {
    "lambda a, b: b": lambda x: x,
    "lambda a, b: a": lambda x: np.broadcast_to(x[..., :1], x.shape),
    "lambda a, b: a + b": lambda x: np.cumsum(x, -1),
    "lambda a, b: b if b > a else a": lambda x: np.maximum.accumulate(x, -1),
}
FOLDS = {name: (lambda x, f=f: f(x)[..., -1]) for name, f in SCANS.items()}
Step = tuple[list[str], Callable[[Any], Any]]
"""lines, and what NumPy does to the rows"""


def recurrence(x: Any) -> Any:
    """h[n] = a[n] * h[n - 1] + x[n] where a is 1 or -1."""
    out, a = x.copy(), np.where(x > 0, 1, -1)
    for n in range(1, x.shape[-1]):
        out[..., n] += a[..., n] * out[..., n - 1]
    return out


def scattered(x: Any, index: Any, add: bool) -> Any:
    out = x.copy()
    for place in np.ndindex(x.shape):
        at = (*place[:-1], int(index[place]))
        out[at] = (out[at] if add else 0) + x[place]
    return out


def left(x: Any) -> Any:
    """`while (t > 0) & (n < 3): t = t - 2`, for each element."""
    for _ in range(3):
        x = np.where(x > 0, x - 2, x)
    return x


class Rows:
    """One kernel: its text, its sizes and what it gives."""

    def __init__(self, seed: int) -> None:
        self.seed, r = seed, random.Random(seed)
        self.r = r
        self.lead = r.choice(((), (2,), (2, 3)))
        self.m, self.n, self.block = r.randint(1, 20), r.choice((1, 2, 3, 5, 8, 13, 16, 20)), r.choice((1, 2, 4, 8, 16))
        self.config = {"num_warps": r.choice((1, 2, 4))}
        self.steps = [self._step() for _ in range(r.randint(1, 4))]
        self.fold, self.folded = self._fold()
        self.across = r.choice(("sum", "max", "min", ""))
        self.text = self._text()

    def _step(self) -> Step:
        r, n = self.r, self.n
        by, seed = r.choice((1, 2, -1)), r.randint(0, 99)
        index = f"ts.tile.cast(t * t, ts.int32) % {n}"
        combine = r.choice(list(SCANS))
        turned = r.choice((False, True))
        reverse, turn = (", reverse=True", lambda x: x[..., ::-1]) if turned else ("", lambda x: x)
        where = lambda x: (x * x).astype(np.int64) % n  # noqa: E731
        choices: tuple[Step, ...] = (
            ([f"t = t * {by} + v[0:N]"], lambda x: x * by + self.v),
            ([f"t = spread(t, {by})"], lambda x: np.clip((x - x.max(-1, keepdims=True)) * by, -9, 9)),
            ([f"t = ts.tile.associative_scan(t, {combine}, axis=1{reverse})"], lambda x: turn(SCANS[combine](turn(x)))),
            (
                ["a = ts.tile.where(t > 0, 1.0, -1.0)", f"_, t = ts.tile.associative_scan((a, t), {PAIR}, axis=1)"],
                recurrence,
            ),
            ([f"t = ts.tile.gather(t, {index}, axis=1)"], lambda x: np.take_along_axis(x, where(x), -1)),
            ([f"t = ts.tile.scatter(t, {index}, t, axis=1)"], lambda x: scattered(x, where(x), False)),
            ([f"t = ts.tile.scatter_add(t, {index}, t, axis=1)"], lambda x: scattered(x, where(x), True)),
            (["t = t[:, ::-1]"], lambda x: x[..., ::-1]),
            (["t = ts.tile.sort(t, axis=1)"], lambda x: np.sort(x, -1)),
            ([f"t = t + ts.tile.where(ts.tile.uniform({seed}, number) < 0.5, 1, 0)"], lambda x: x + self._drawn(seed)),
            (
                ["count = t * 0", "while (t > 0) & (count < 3):", "    t = t - 2", "    count = count + 1"],
                left,
            ),
        )  # fmt: skip
        lines, f = r.choice(choices)
        low = r.choice((-9, -5))
        return [*lines, f"t = bounded(t, {low})"], lambda x: np.clip(f(x), low, 9)

    def _drawn(self, seed: int) -> Any:
        return (np.asarray(ts.uniform(seed, (self.m, self.n))) < 0.5).astype(np.float64)

    def _fold(self) -> tuple[list[str], Callable[[Any], Any]]:
        """A number for each row."""
        kind = self.r.randrange(3)
        if kind == 0:
            name = self.r.choice(("sum", "max", "min"))
            return [f"fold = ts.tile.row_{name}(t)"], lambda x: getattr(np, name)(x, -1)
        if kind == 1:
            name = self.r.choice(list(FOLDS))
            return [f"fold = ts.tile.reduce(t, {name}, axis=1)"], FOLDS[name]
        lines = ["places = ts.tile.cast(ts.tile.arange(N), ts.f32)[None, :]"]
        lines.append(f"_, fold = ts.tile.reduce((t, places + t * 0), {LAST}, axis=1)")
        return lines, lambda x: x.shape[-1] - 1 - np.argmax(x[..., ::-1], -1)

    def _text(self) -> str:
        r, b = self.r, self.block
        rows, whole = 'Tensor["...", "M", ts.f32]', 'Tensor["...", "M", "N", ts.f32]'
        total = 'Tensor["...", "N", ts.f32]'
        results = [whole, rows, *([total] if self.across else [])]
        options = [f"grouped={r.choice((1, 2, 8))}"] if len(self.lead) > 1 or (self.lead and not self.across) else []
        options += ["persistent=True"] if r.random() < 0.5 else []
        lines = [f'def f(x: {whole}, v: Tensor["N", ts.f32]) -> tuple[{", ".join(results)}]:']
        lines += [f"    ts.tile.grid({', '.join(options)})"] if options else []
        lines += [f"    {n}: {t}" for n, t in zip(("all_of_it", "row", "total"), results, strict=False)]
        lines += [f"    for i in ts.tile.range(0, M, {b}):"]
        body = [f"t = x[i : i + {b}]"]
        if any("number" in line for s, _ in self.steps for line in s):
            body.append(f"number = (i + ts.tile.arange({b}))[:, None] * N + ts.tile.arange(N)[None, :]")
        body += [line for s, _ in self.steps for line in s]
        body += [*self.fold, f"all_of_it[i : i + {b}] = t", f"row[i : i + {b}] = fold"]
        if self.across:
            body.append(f'total[0:N] = ts.tile.reduce_across(ts.tile.col_{self.across}(t), "{self.across}")')
        lines += [f"        {line}" for line in body]
        lines.append(f"    return all_of_it, row{', total' if self.across else ''}")
        return HEAD + "\n".join(lines) + "\n"

    def arrays(self) -> tuple[list[Any], list[Any]]:
        """Arguments, and what the kernel returns."""
        values = np.random.default_rng(self.seed)
        x = values.integers(-6, 7, (*self.lead, self.m, self.n)).astype(np.float64)
        self.v = values.integers(-3, 4, self.n).astype(np.float64)
        t = x
        for _, f in self.steps:
            t = f(t)
        wanted = [t, self.folded(t), *([getattr(np, self.across)(t, -2)] if self.across else [])]
        return [x.astype(np.float32), self.v.astype(np.float32)], [w.astype(np.float32) for w in wanted]


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """The codes by which the program is refused. Raises AssertionError where a target is wrong."""
    p = Rows(seed)
    given, wanted = p.arrays()
    return held(p.text, f"rows{seed}.py", given, [], wanted, targets, **p.config)


def main(arguments: list[str]) -> int:
    return command("rows", __doc__, check, arguments)
