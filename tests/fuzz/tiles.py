"""Random expressions over tiles along named axes, against NumPy with explicit axes.

`python -m tests.fuzz tiles --count 1000 --seed 1 --emulate 20`: kernels over vectors and matrices along M, N and K,
each under several block sizes, equal and unequal. A kernel is right under all of them or refused (TS418) under all of
them; which, the model here says from the axes alone. Elements are small integers, so that every sum is exact.
"""

from __future__ import annotations

import argparse
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.errors import CompileError, register_source
from tests.kernel_runner import run

SIZES = {"m": 11, "n": 13, "k": 4, "b": 3}
BLOCKS = ((4, 4), (8, 4), (4, 8), (1, 4), (16, 16))
TENSORS = {"xm": "m", "xn": "n", "xk": "k", "amn": "mn", "anm": "nm", "amk": "mk", "ank": "nk"}
BATCHES = {"abmk": "bmk", "abkn": "bkn"}
"""read by products alone"""
LOADS = {"m": "i:i + BM", "n": "j:j + BN", "k": ":", "b": ":"}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "{} + {}": np.add, "{} - {}": np.subtract, "{} * {}": np.multiply,
    "ts.tile.maximum({}, {})": np.maximum, "ts.tile.minimum({}, {})": np.minimum,
}  # fmt: skip
COMBINES = {"sum": "lambda a, b: a + b", "max": "ts.tile.maximum", "min": "lambda a, b: b if b < a else a"}
"""reductions as functions of two elements"""


class Refused(Exception):
    """The rule refuses it."""


@dataclass(frozen=True)
class Tile:
    """An expression: its text, its axes in order, and what NumPy makes of it, given the loaded blocks."""

    text: str
    axes: str
    value: Callable[[dict[str, Any]], Any]
    ordered: bool = True


def spread(tile: Tile, blocks: dict[str, Any], axes: str) -> Any:
    """The value with its axes where `axes` has them, all others of length 1."""
    value = np.asarray(tile.value(blocks))
    order = sorted(range(len(tile.axes)), key=lambda i: axes.index(tile.axes[i]))
    return value.transpose(order).reshape([value.shape[tile.axes.index(a)] if a in tile.axes else 1 for a in axes])


def met(tiles: list[Tile]) -> tuple[str, bool]:
    """The axes of what tiles make, and whether their order is said. Raises Refused."""
    rank = max(len(t.axes) for t in tiles)
    if rank < 2:
        axes = "".join(dict.fromkeys(t.axes for t in tiles))
        if len(axes) > 2:
            raise Refused
        return axes, len(axes) < 2
    wide = [t for t in tiles if len(t.axes) == rank]
    lead = next((t for t in wide if t.ordered), wide[0])
    for t in tiles:
        same = set(t.axes) <= set(lead.axes)
        if not same or (len(t.axes) == rank and t.axes != lead.axes and t.ordered):
            raise Refused
    return lead.axes, lead.ordered


def applied(form: str, f: Callable[..., Any], tiles: list[Tile]) -> Tile:
    axes, ordered = met(tiles)

    def value(blocks: dict[str, Any]) -> Any:
        out = f(*(spread(t, blocks, axes) for t in tiles))
        return np.broadcast_to(out, np.broadcast_shapes(out.shape, *(spread(t, blocks, axes).shape for t in tiles)))

    return Tile(form.format(*(f"({t.text})" for t in tiles)), axes, value, ordered)


def leaf(r: random.Random) -> Tile:
    name = r.choice(list(TENSORS))
    index = ", ".join(LOADS[a] for a in TENSORS[name])
    return Tile(f"{name}[{index}]", TENSORS[name], lambda blocks: blocks[name])


def expression(r: random.Random, depth: int) -> Tile:
    """A random expression. Raises Refused where the rule does."""
    if depth == 0 or r.random() < 0.15:
        return leaf(r)
    kind = r.choice(("binary", "binary", "binary", "where", "reduce", "turned", "mma", "batch", "number", "none"))
    inner = functools.partial(expression, r, depth - 1)
    if kind == "binary":
        form = r.choice(list(FUNCTIONS))
        return applied(form, FUNCTIONS[form], [inner(), inner()])
    if kind == "where":
        condition = applied("{} > {}", np.greater, [inner(), inner()])
        return applied("ts.tile.where({}, {}, {})", np.where, [condition, inner(), inner()])
    if kind == "number":
        number = r.randint(-3, 3)
        tile = inner()
        return Tile(f"({tile.text}) + {number}", tile.axes, lambda b: tile.value(b) + number, tile.ordered)
    if kind == "mma":
        text = f"ts.tile.mma(amk[{LOADS['m']}, :], ank[{LOADS['n']}, :].T)"
        return Tile(text, "mn", lambda b: b["amk"] @ b["ank"].T)
    if kind == "batch":
        return batch(r)
    if kind == "none":
        vectors = [
            Tile(f"x{a}[{LOADS[a]}]", a, functools.partial(lambda b, a: b[f"x{a}"], a=a)) for a in r.sample("mnk", 2)
        ]
        p, q = vectors
        return Tile(
            f"{p.text}[:, None] - {q.text}[None, :]", p.axes + q.axes, lambda b: p.value(b)[:, None] - q.value(b)
        )
    tile = inner()
    if len(tile.axes) != 2:
        return tile
    if kind == "turned":
        return Tile(f"({tile.text}).T", tile.axes[::-1], lambda b: tile.value(b).T)
    axis = r.randrange(2)
    name, f = r.choice((("sum", np.sum), ("max", np.max), ("min", np.min)))
    own = f"ts.tile.reduce({{}}, {COMBINES[name]}, axis={axis})"
    form = r.choice((f"ts.tile.{name}({{}}, axis={axis})", f"ts.tile.{('col', 'row')[axis]}_{name}({{}})", own))
    return Tile(form.format(tile.text), tile.axes[1 - axis], lambda b: f(tile.value(b), axis=axis))


def batch(r: random.Random) -> Tile:
    """A product of batches, one of whose operands may be one matrix, and the batch reduced behind some arithmetic."""
    left, f = r.choice((
        (f"abmk[:, {LOADS['m']}, :]", lambda b: b["abmk"]),
        (f"amk[{LOADS['m']}, :]", lambda b: b["amk"]),
    ))  # fmt: skip
    product = f"ts.tile.mma({left}, abkn[:, :, {LOADS['n']}])"
    inner, g = r.choice((
        ("{}", lambda x: x),
        ("ts.tile.maximum({}, 0)", lambda x: np.maximum(x, 0)),
        ("({0} - ts.tile.max({0}, axis=-1, keepdim=True))", lambda x: x - x.max(-1, keepdims=True)),
    ))  # fmt: skip
    name, fold = r.choice((("sum", np.sum), ("max", np.max)))
    text = f"ts.tile.{name}({inner.format(product)}, axis=0)"
    return Tile(text, "mn", lambda b: fold(g(f(b) @ b["abkn"]), axis=0))


def stored(tile: Tile) -> Tile:
    """The expression without K, as a block of `out` [M, N] can take it. Raises Refused."""
    while "k" in tile.axes:
        axis, before = tile.axes.index("k"), tile
        value = functools.partial(lambda b, t, a: np.sum(t.value(b), axis=a), t=before, a=axis)
        tile = Tile(f"ts.tile.sum({before.text}, axis={axis})", before.axes.replace("k", ""), value)
    if tile.axes == "nm" and tile.ordered:
        raise Refused
    return tile


def program(text: str) -> str:
    parameters = ", ".join(f'{n}: Tensor["{", ".join(a.upper()).replace(", ", chr(34) + ", " + chr(34))}", f32]'
                           for n, a in {**TENSORS, **BATCHES, "out": "mn"}.items())  # fmt: skip
    return f"""import tessera as ts
from tessera import Tensor, f32


def f({parameters}):
    ts.tile.grid(persistent={len(text) % 2 == 0})
    BM, BN = ts.tile.context().BM, ts.tile.context().BN
    for i in ts.tile.range(0, M, BM):
        for j in ts.tile.range(0, N, BN):
            out[i:i + BM, j:j + BN] = {text}
"""


def kernel(text: str, name: str) -> Callable[..., Any]:
    register_source(name, text)
    names: dict[str, Any] = {"__name__": "fuzzed"}
    exec(compile(text, name, "exec"), names)
    return names["f"]


def wanted(tile: Tile, given: dict[str, Any], bm: int, bn: int) -> Any:
    """What NumPy stores, block by block; the last blocks are shorter."""
    out = np.full((SIZES["m"], SIZES["n"]), 99, np.float32)
    for i in range(0, SIZES["m"], bm):
        for j in range(0, SIZES["n"], bn):
            at = {"m": slice(i, i + bm), "n": slice(j, j + bn), "k": slice(None), "b": slice(None)}
            blocks = {n: given[n][tuple(at[a] for a in axes)] for n, axes in {**TENSORS, **BATCHES}.items()}
            out[at["m"], at["n"]] = spread(tile, blocks, "mn")
    return out


def random_kernel(seed: int) -> tuple[str, Tile | None]:
    """The text of a kernel, and its meaning; None where the rule refuses it."""
    r = random.Random(seed)
    while True:
        attempt = random.Random(r.random())
        try:
            tile = stored(expression(attempt, attempt.randint(1, 4)))
        except Refused:
            if r.random() < 0.25:
                return program(refused_text(r)), None
            continue
        return program(tile.text), tile


def refused_text(r: random.Random) -> str:
    """An expression that the rule refuses: parts that it takes, put together so that they do not meet."""
    while True:
        parts = []
        for _ in range(2):
            try:
                parts.append(expression(r, r.randint(1, 2)))
            except Refused:
                break
        if len(parts) == 2:
            form = r.choice(list(FUNCTIONS))
            try:
                applied(form, FUNCTIONS[form], parts)
            except Refused:
                return form.format(*(f"({p.text})" for p in parts))


def check(seed: int, targets: tuple[str, ...], blocks: tuple[tuple[int, int], ...] = BLOCKS) -> None:
    """Raises AssertionError where a kernel is wrong, refused by some blocks only, or fails in another way."""
    text, tile = random_kernel(seed)
    f = kernel(text, f"tiles_{seed}.py")
    values = np.random.default_rng(seed)
    tensors = {**TENSORS, **BATCHES}
    given = {n: values.integers(-2, 3, [SIZES[a] for a in axes]).astype(np.float32) for n, axes in tensors.items()}
    for target in targets:
        for bm, bn in blocks:
            if tile is None and 1 in (bm, bn):
                continue  # one element stretches, as in NumPy: what is refused for longer blocks may be right
            out = np.full((SIZES["m"], SIZES["n"]), 99, np.float32)
            case = f"seed {seed}, {target}, blocks of {bm} and {bn}\n{text}"
            try:
                run(f, *given.values(), out, target=target, debug=False, BM=bm, BN=bn)
            except CompileError as e:
                codes = [d.code for d in e.diagnostics if d.severity == "error"]
                assert tile is None and set(codes) == {"TS418"}, f"{case}\n{e}"
                continue
            assert tile is not None, f"{case}\nshould be refused"
            np.testing.assert_array_equal(out, wanted(tile, given, bm, bn), err_msg=case)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz tiles", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--emulate", type=int, default=0, help="run this many of them in the emulator as well")
    parser.add_argument("--targets", default="reference,cpu")
    options = parser.parse_args(arguments)
    failures = 0
    for n, seed in enumerate(range(options.seed, options.seed + options.count)):
        emulated = ("emulator:sm_80",) if n < options.emulate else ()
        try:
            check(seed, tuple(options.targets.split(",")))
            check(seed, emulated, BLOCKS[:2])
        except Exception as e:
            failures += 1
            print(f"seed {seed}: {type(e).__name__}: {e}\n", flush=True)
    print(f"{options.count} kernels, {failures} wrong")
    return int(failures > 0)
