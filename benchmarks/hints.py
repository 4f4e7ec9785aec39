"""Hints that are tried, on small programs whose best change is known: what they predict against what comes of it.

python -m benchmarks hints [-- --only NAME --quick --json --save]

Each program has one thing wrong with it, or nothing: tiles that are too small or too narrow, calls that could be one
function or one batch, products and arrays that could be narrower, arguments that are copied or read across their rows.
It is profiled, and every hint that an edit can carry out is tried. A hint holds where the predicted range and
the measured interval meet, which is what silences a rule in the end. `found` counts the programs whose known change was
among the hints and made them faster by as much as an edit can tell; `idle` those with nothing wrong for which a hint
was faster all the same. Hints about lanes without a processor, and trials, suffer from other programs: run it alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.harness import parser_of
from tessera import knobs
from tessera.profiler.machine import machine_for
from tessera.profiler.rules.data import FASTER, rates_of_products

GOAL = 0.9
"""of the hints that were tried are to hold"""

PRODUCT = """
@ts.kernel(BM={m}, BN={n})
def {name}(a: Tensor["M", "K"], b: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]
"""
COLUMNS = """
@ts.kernel(BN={n})
def {name}(x: Tensor["M", "N"]) -> Tensor["N"]:
    c = ts.tile.context()
    return x[:, tile_n : tile_n + c.BN].sum(axis=0)
"""
ROWS = """
@ts.kernel
def {name}(x: Tensor["M", "N"]) -> Tensor["M"]:
    return x[tile_m : tile_m + {m}, :].max(axis=1)
"""
TURNED = """
@ts.kernel(BM={m}, BN={n})
def {name}(x: Tensor["M", "N"]) -> Tensor["N", "M"]:
    c = ts.tile.context()
    return x[tile_m : tile_m + c.BM, tile_n : tile_n + c.BN].T
"""
EACH = """
@ts.kernel(BLOCK={n})
def {name}(x: Tensor["n"], y: Tensor["n"]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = 2 * y[i] + x[i]
"""
CURVED = """
@ts.kernel(BM={m})
def {name}(x: Tensor["M", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return ts.tile.exp(x[tile_m : tile_m + c.BM, :]) * 0.5
"""
PAIR = """
@ts.function
def {name}_first(x: Tensor[{dims}]):
    return {first}


@ts.function
def {name}_second(y: Tensor[{dims}]):
    return {second}


def {name}(x):
    y = {name}_first(x)
    return {name}_second(y)
"""
MULTIPLIED = """
@ts.function
def {name}(a: Tensor["M", "K"], b: Tensor["K", "N"]):
    return {said}
"""
SUMMED = """
@ts.function
def {name}(a: Tensor["M", "N"], b: Tensor["M", "N"]):
    return ts.sum(a * b + 1.0, axis=-1)
"""
LOOPED = """
@ts.function
def {name}_step(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    return ts.relu(x + y * 0.5)


def {name}(x, y):
    for _ in range(4):
        out = {name}_step(x, {given})
    return out
"""
CALLED = """
@ts.function
def {name}_step(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    return ts.relu(x + y * 0.5)


def {name}(x, y):
    return {name}_step(x, {given})
"""
ACROSS = """
@ts.function
def {name}(x: Tensor["M", "N"], y: Tensor[{dims}]):
    return x + {said} * 2.0
"""
WEIGHED = """
@ts.function
def {name}_step(x: Tensor["M", "K"], w: Tensor["K", "N"]):
    return ts.tanh(x @ w * 0.02)


def {name}(xs, w):
    out = []
    for x in xs:
        y = {name}_step(x, w)
        out.append(y)
    return out
"""
STEP = """
@ts.function
def {name}_step(x: Tensor["K"], w: Tensor["K", "N"]):
    return ts.tanh(x @ w)


def {name}(xs, w):
    {body}
"""
BODIES = {
    "list": "return [{name}_step(x, w) for x in xs]",
    "append": "out = []\n    for x in xs:\n        out.append({name}_step(x, w))\n    return out",
    "number": "out = [None] * len(xs)\n    for i in range(len(xs)):\n        out[i] = {name}_step(xs[i], w)\n"
    "    return out",
    "recurrent": "x = xs[0]\n    for _ in range(60):\n        x = {name}_step(x, w)\n    return x",
}


@dataclass(frozen=True, slots=True)
class HintProgram:
    """One program: its text, its arguments, and the hints one of which is its best change; none where it has none."""

    name: str
    text: str
    arguments: Callable[[], tuple[Any, ...]]
    best: tuple[str, ...]


def programs() -> Iterator[HintProgram]:
    """About eighty."""
    tiles = ("small tiles", "narrow tiles")
    narrower = _narrower()
    yield from _of_data(narrower)
    yield from _of_loops(narrower)
    for m, n, best in (
        (2, 2, tiles),
        (4, 4, tiles),
        (4, 16, tiles),
        (16, 4, tiles),
        (8, 8, tiles),
        (64, 64, ()),
        (32, 128, ()),
    ):
        for size in (192, 320):
            text = PRODUCT.format(name=f"product_{m}_{n}_{size}", m=m, n=n)
            yield HintProgram(f"product_{m}_{n}_{size}", text, _arrays((size, size), (size, size)), best or narrower)
    for n, best in ((1, tiles), (2, tiles), (4, tiles), (64, ())):
        for rows in (512, 1500):
            name = f"columns_{n}_{rows}"
            yield HintProgram(name, COLUMNS.format(name=name, n=n), _arrays((rows, 1024)), best)
    for m, best in ((1, tiles), (2, tiles), (64, ())):
        for columns in (64, 300):
            name = f"rows_{m}_{columns}"
            yield HintProgram(name, ROWS.format(name=name, m=m), _arrays((4096, columns)), best)
    for m, n, best in ((1, 1, tiles), (2, 2, tiles), (4, 64, tiles), (32, 32, ())):
        name = f"turned_{m}_{n}"
        yield HintProgram(name, TURNED.format(name=name, m=m, n=n), _arrays((600, 800)), best)
    for n, best in ((4, tiles), (16, tiles), (1024, ())):
        for size in (100_000, 500_000):
            name = f"each_{n}_{size}"
            yield HintProgram(name, EACH.format(name=name, n=n), _arrays((size,), (size,)), best)
    for m, best in ((1, tiles), (16, ())):
        name = f"curved_{m}"
        yield HintProgram(name, CURVED.format(name=name, m=m), _arrays((4000, 64)), best)
    together = ("memory-bound neighbours", "launch overhead")
    for kind, first, second in (
        ("scaled", "x * 2.0 + 1.0", "ts.tanh(y)"),
        ("normed", "x - ts.mean(x, axis=-1, keepdims=True)", "ts.relu(y) * 3.0"),
    ):
        for rows, columns in ((16, 64), (256, 256), (1000, 1000), (3000, 1000)):
            name = f"{kind}_{rows}"
            text = PAIR.format(name=name, dims='"M", "N"', first=first, second=second)
            yield HintProgram(name, text, _arrays((rows, columns)), together)


def _narrower() -> tuple[str, ...]:
    """The change of a product that is right otherwise, where this processor multiplies bf16 faster."""
    rates = rates_of_products(machine_for("cpu:0"))
    return ("narrower products",) if rates is not None and rates[1] > FASTER * rates[0] else ()


def _of_data(narrower: tuple[str, ...]) -> Iterator[HintProgram]:
    for m, k, n, said, best in (
        (256, 256, 256, "a @ b", narrower),
        (700, 400, 300, "ts.tanh(a @ b * 0.02)", narrower),
        (96, 1024, 256, "a @ b + 1.0", narrower),
        (1000, 1000, 2, "a @ b", ()),
        (256, 256, 256, "ts.exp(a @ b)", ()),  # large results, which differ by more than they may
    ):
        name = f"multiplied_{m}_{n}{'_exp' if 'exp' in said else ''}"
        yield HintProgram(name, MULTIPLIED.format(name=name, said=said), _arrays((m, k), (k, n)), best)
    whole = max(machine_for("cpu:0").last_cache_bytes, 1 << 24)
    for part, best in ((1.5, ("narrower arrays",)), (3.0, ("narrower arrays",)), (0.02, ())):
        rows, name = int(part * whole) // (4096 * 4), f"summed_{part:g}".replace(".", "_")
        yield HintProgram(name, SUMMED.format(name=name), _arrays((rows, 4096), (rows, 4096)), best)
    for n in (150, 400, 1000):
        for kind, text in (("looped", LOOPED), ("called", CALLED)):
            for name, given, best in (
                (f"{kind}_{n}", "y.T", ("copied arguments",)),
                (f"{kind}_straight_{n}", "y", ()),
            ):
                yield HintProgram(name, text.format(name=name, given=given), _arrays((n, n), (n, n)), best)
        for name, dims, said, shape, best in (
            (f"across_{n}", '"N", "M"', "y.T", (2 * n, n), ("transposed reads",)),
            (f"along_{n}", '"M", "N"', "y", (n, 2 * n), ()),
        ):
            yield HintProgram(name, ACROSS.format(name=name, dims=dims, said=said), _arrays((n, 2 * n), shape), best)


def _of_loops(narrower: tuple[str, ...]) -> Iterator[HintProgram]:
    for rows, wide, best in ((8, 2048, ("packed weights",)), (48, 1024, ("packed weights",)), (512, 512, narrower)):
        name = f"weighed_{rows}"
        yield HintProgram(name, WEIGHED.format(name=name), _arrays((6, rows, wide), (wide, wide)), best)
    for kind, body in BODIES.items():
        for wide in (16, 64):
            name = f"each_{kind}_{wide}"
            text = STEP.format(name=name, body=body.format(name=name))
            best = () if kind == "recurrent" else ("calls in a loop",)
            yield HintProgram(name, text, _arrays((100, wide), (wide, wide)), best)


def _arrays(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        random = np.random.default_rng(0)
        return tuple(random.standard_normal(shape, np.float32) for shape in shapes)

    return make


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    chosen = [p for p in programs() if options.only.takes(p.name)]
    options.only.demand()
    with tempfile.TemporaryDirectory() as folder:
        for known in knobs.cache_dir().glob("processor-*.json"):
            shutil.copy(known, folder)
        os.environ["TESSERA_CACHE_DIR"] = folder  # outcomes of a benchmark do not judge the rules of its user
        module = _module(Path(folder) / "hint_programs.py", chosen)
        for program in chosen:
            rows.append(_row(program, getattr(module, program.name), 0.05 if options.quick else 0.4))
            if not options.json:
                _show(rows[-1])
    figures = {"quick": options.quick, **summary(rows), "rows": rows}
    if options.save:
        from benchmarks.record import save  # slow: it asks git

        print(save("hints", figures), file=sys.stderr)
    if options.json:
        json.dump(figures, sys.stdout, indent=1)
    elif rows:
        print(f"\n{figures['said']}")
    return 0


def _module(file: Path, chosen: list[HintProgram]) -> ModuleType:
    head = "import numpy as np\nimport tessera as ts\nfrom tessera import Tensor\n\n"
    file.write_text(head + "\n".join(program.text for program in chosen), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("hint_programs", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hint_programs"] = module
    spec.loader.exec_module(module)
    return module


def _row(program: HintProgram, function: Any, budget: float) -> dict[str, Any]:
    import tessera as ts

    given = program.arguments()

    def call() -> object:
        return function(*given)

    with ts.profiler():  # compiles, for the profiler too
        call()
    prof = ts.profiler()
    prof.repeat(call, 8)
    tried: list[dict[str, Any]] = []
    for hint in prof.hints(silent=True):
        if hint.trial is None or hint.trial.change == "by hand":
            continue
        outcome = hint.try_it(budget)
        saved = None if outcome.warm is None else asdict(outcome.warm.saved)
        about = {"rule": hint.kind, "predicted": hint.local, "measured": saved, "verdict": outcome.verdict}
        tried.append(about | {"holds": outcome.covered, "results": outcome.results, "reason": outcome.reason})
    return {"name": program.name, "best": program.best, "tried": tried}


def _show(row: dict[str, Any]) -> None:
    print(f"{row['name']:20s} best: {', '.join(row['best']) or 'as it is'}", flush=True)
    for one in row["tried"]:
        low, high = one["predicted"]
        saved = one["measured"]
        measured = f"{saved['low']:7.1%} to {saved['high']:7.1%}" if saved else one["reason"] or one["results"]
        said = "" if one["holds"] is None else "  holds" if one["holds"] else "  OUTSIDE"
        print(f"    {one['rule']:24s} {low:6.1%} to {high:6.1%}   {measured}   {one['verdict']}{said}", flush=True)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many hints were tried, how many of them hold; of the programs, for how many the known change was found."""
    tried = [(row, one) for row in rows for one in row["tried"] if one["holds"] is not None]
    holds = sum(one["holds"] for _, one in tried)
    wrong = [row for row in rows if row["best"]]
    found = [row for row in wrong if any(o["rule"] in row["best"] and o["verdict"] == "faster" for o in row["tried"])]
    idle = [row for row in rows if not row["best"] and any(o["verdict"] == "faster" for o in row["tried"])]
    said = f"{len(rows)} programs, {len(tried)} hints tried: {holds} inside the predicted range"
    said += f" ({holds / len(tried):.0%}, {GOAL:.0%} is the goal)" if tried else ""
    said += f"; of {len(wrong)} programs with something wrong, the change was found for {len(found)}"
    said += f"; of {len(rows) - len(wrong)} others, {len(idle)} became faster"
    rules: dict[str, list[int]] = {}
    for _, one in tried:
        entry = rules.setdefault(one["rule"], [0, 0])
        entry[0] += 1
        entry[1] += one["holds"]
    return {"programs": len(rows), "tried": len(tried), "holds": holds, "found": len(found), "wrong": len(wrong),
            "idle": len(idle), "rules": rules, "said": said}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
