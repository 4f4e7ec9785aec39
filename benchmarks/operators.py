"""One operator of each kind on the CPU target against NumPy, which it shall never be slower than.

python -m benchmarks operators [-- --only NAME --threads N --budget SECONDS --json]

Every result is compared with NumPy's before anything is timed; inputs are random. `ratio` is NumPy's median over ours:
above 1 we are faster. Rows are printed as they are measured, those below 1 once more at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.harness import compare, cores, only_of

Arrays = tuple[Any, ...]
SIDE = 1024
_random = np.random.default_rng(7)


def floats(*shape: int, dtype: str = "f4") -> Any:
    return _random.standard_normal(shape).astype(dtype)


def positive(*shape: int, dtype: str = "f4") -> Any:
    return (_random.random(shape) * 4 + 0.1).astype(dtype)


def integers(*shape: int, dtype: str = "i4") -> Any:
    return _random.integers(1, 1000, shape).astype(dtype)


def complexes(*shape: int) -> Any:
    return (floats(*shape) + 1j * floats(*shape)).astype("c8")


def unary(name: str, x: Any, theirs: Callable[..., Any] | None = None) -> tuple[Any, Any, Arrays]:
    return lambda x: getattr(ts, name)(x), theirs or getattr(np, {"atan": "arctan"}.get(name, name)), (x,)


def rows() -> dict[str, Callable[[], tuple[Any, Any, Arrays]]]:
    """name -> maker of (our function, NumPy's, arguments)."""
    n = SIDE
    table: dict[str, Callable[[], tuple[Any, Any, Arrays]]] = {}
    for name in ("exp", "tanh", "sin", "cos", "atan", "sinh", "floor", "abs", "sign", "square"):
        table[name] = lambda name=name: unary(name, floats(n, n))
    for name in ("log", "log1p", "sqrt", "log2", "reciprocal"):
        table[name] = lambda name=name: unary(name, positive(n, n))
    table |= {
        "exp f64": lambda: unary("exp", floats(n, n, dtype="f8")),
        "log f64": lambda: unary("log", positive(n, n, dtype="f8")),
        "x + y": lambda: (lambda x, y: x + y, np.add, (floats(n, n), floats(n, n))),
        "x + row": lambda: (lambda x, y: x + y, np.add, (floats(n, n), floats(n))),
        "x * column": lambda: (lambda x, y: x * y, np.multiply, (floats(n, n), floats(n, 1))),
        "x / y": lambda: (lambda x, y: x / y, np.divide, (floats(n, n), positive(n, n))),
        "x > y": lambda: (lambda x, y: x > y, np.greater, (floats(n, n), floats(n, n))),
        "maximum": lambda: (lambda x, y: ts.maximum(x, y), np.maximum, (floats(n, n), floats(n, n))),
        "where": lambda: (lambda c, x, y: ts.where(c, x, y), np.where, (floats(n, n) > 0, floats(n, n), floats(n, n))),
        "x**y": lambda: (lambda x, y: x**y, np.power, (positive(n, n), floats(n, n))),
        "x**2.5": lambda: (lambda x: x**2.5, lambda x: x ** np.float32(2.5), (positive(n, n),)),
        "x**y f64": lambda: (lambda x, y: x**y, np.power, (positive(n, n, dtype="f8"), floats(n, n, dtype="f8"))),
        "atan2": lambda: (lambda x, y: ts.atan2(x, y), np.arctan2, (floats(n, n), floats(n, n))),
        "i32 //": lambda: (lambda x, y: x // y, np.floor_divide, (integers(n, n), integers(n, n))),
        "i64 //": lambda: (
            lambda x, y: x // y,
            np.floor_divide,
            (integers(n, n, dtype="i8"), integers(n, n, dtype="i8")),
        ),
        "i32 %": lambda: (lambda x, y: x % y, np.remainder, (integers(n, n), integers(n, n))),
        "f32 %": lambda: (lambda x, y: x % y, np.remainder, (positive(n, n), positive(n, n))),
        "c64 *": lambda: (lambda x, y: x * y, np.multiply, (complexes(n, n), complexes(n, n))),
        "cast i32": lambda: (lambda x: x.cast(ts.int32), lambda x: x.astype("i4"), (positive(n, n),)),
        "cast f64": lambda: (lambda x: x.cast(ts.f64), lambda x: x.astype("f8"), (floats(n, n),)),
    }
    for name in ("sum", "max", "mean", "std", "prod", "argmax"):
        for axis in (None, 0, 1):
            table[f"{name} axis {axis}"] = lambda name=name, axis=axis: (
                lambda x: getattr(ts, name)(x, axis=axis), lambda x: getattr(np, name)(x, axis=axis), (floats(n, n),)
            )  # fmt: skip
    table |= {
        "sum middle": lambda: (lambda x: x.sum(axis=1), lambda x: x.sum(axis=1), (floats(n, 8, 256),)),
        "sum f64": lambda: (lambda x: x.sum(), np.sum, (floats(n, n, dtype="f8"),)),
        "sum i32": lambda: (lambda x: x.sum(axis=1), lambda x: x.sum(axis=1), (integers(n, n),)),
        "any": lambda: (lambda x: ts.any(x), np.any, (np.zeros((n, n), bool),)),
        "all axis 1": lambda: (lambda x: ts.all(x, axis=1), lambda x: np.all(x, axis=1), (np.ones((n, n), bool),)),
        "cumsum axis 0": lambda: (lambda x: ts.cumsum(x, axis=0), lambda x: np.cumsum(x, axis=0), (floats(n, n),)),
        "cumsum axis 1": lambda: (lambda x: ts.cumsum(x, axis=1), lambda x: np.cumsum(x, axis=1), (floats(n, n),)),
    }
    for m in (16, 64, 128, 256, 512):
        table[f"matmul {m}"] = lambda m=m: (lambda a, b: a @ b, np.matmul, (floats(m, m), floats(m, m)))
    table |= {
        "matmul f64 512": lambda: (lambda a, b: a @ b, np.matmul,
                                   (floats(512, 512, dtype="f8"), floats(512, 512, dtype="f8"))),
        "matmul i32 256": lambda: (lambda a, b: a @ b, np.matmul, (integers(256, 256), integers(256, 256))),
        "A @ B.T 512": lambda: (lambda a, b: a @ b.T, lambda a, b: a @ b.T, (floats(512, 512), floats(512, 512))),
        "matvec 2048": lambda: (lambda a, x: a @ x, np.matmul, (floats(2048, 2048), floats(2048))),
        "vecmat 2048": lambda: (lambda x, a: x @ a, np.matmul, (floats(2048), floats(2048, 2048))),
        "dot": lambda: (lambda x, y: x @ y, np.matmul, (floats(1 << 20), floats(1 << 20))),
        "outer": lambda: (lambda x, y: x[:, None] * y[None, :], np.multiply.outer, (floats(n), floats(n))),
        "batch 64 of 64": lambda: (lambda a, b: a @ b, np.matmul, (floats(64, 64, 64), floats(64, 64, 64))),
        "4 rows @ 2048": lambda: (lambda a, b: a @ b, np.matmul, (floats(4, 2048), floats(2048, 2048))),
        "transpose": lambda: (lambda x: x.T + 0.0, lambda x: np.ascontiguousarray(x.T), (floats(n, n),)),
        "heads": lambda: (
            lambda x: x.permute(0, 2, 1, 3) + 0.0,
            lambda x: np.add(x.transpose(0, 2, 1, 3), np.float32(0), order="C"), (floats(4, 256, 8, 64),),
        ),
        "concat": lambda: (lambda x, y: ts.concat([x, y], axis=1), lambda x, y: np.concatenate([x, y], 1),
                           (floats(n, n), floats(n, n))),
        "stack": lambda: (lambda x, y: ts.stack([x, y]), lambda x, y: np.stack([x, y]), (floats(n, n), floats(n, n))),
        "pad": lambda: (lambda x: ts.pad(x, ((1, 1), (1, 1))), lambda x: np.pad(x, 1), (floats(n, n),)),
        "flip": lambda: (lambda x: ts.flip(x, axis=1), lambda x: np.ascontiguousarray(np.flip(x, 1)), (floats(n, n),)),
        "roll": lambda: (lambda x: ts.roll(x, 3, axis=1), lambda x: np.roll(x, 3, 1), (floats(n, n),)),
        "tril": lambda: (lambda x: ts.tril(x), np.tril, (floats(n, n),)),
        "take": lambda: (lambda x, i: ts.take(x, i, axis=0), lambda x, i: np.take(x, i, 0),
                         (floats(n, 256), integers(4096) % n)),
        "one_hot": lambda: (lambda i: ts.one_hot(i, 1000), lambda i: np.eye(1000, dtype="f4")[i],
                            (integers(2048) % 1000,)),
        "x[::2]": lambda: (lambda x: x[:, ::2] + 0.0, lambda x: x[:, ::2] + np.float32(0), (floats(n, n),)),
    }  # fmt: skip
    return table


def measure(name: str, made: tuple[Any, Any, Arrays], budget: float, threads: int) -> dict[str, Any]:
    """One row. Raises AssertionError where the results disagree."""
    body, theirs, arrays = made
    ours = ts.function(body)
    want, got = theirs(*arrays), np.asarray(ours(*arrays))
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * max(1.0, float(np.max(np.abs(want)))), err_msg=name)
    timing = compare(
        {"ours": lambda: ours(*arrays), "numpy": lambda: theirs(*arrays)},
        budget=budget,
        threads=threads,
    )
    mine, peer = timing["ours"], timing["numpy"]
    return {"name": name, "ours_ms": mine.median * 1e3, "spread_ms": mine.spread * 1e3, "numpy_ms": peer.median * 1e3,
            "ratio": peer.median / mine.median}  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:16s} {row['ours_ms']:9.3f} ms ±{row['spread_ms']:.3f}   numpy {row['numpy_ms']:9.3f} ms"
        f"   ratio {row['ratio']:.2f}"
    )


def main() -> int:
    options = argparse.ArgumentParser()
    only_of(options)
    options.add_argument("--budget", type=float, default=0.5)
    options.add_argument("--threads", type=int, default=cores(), help="ours; NumPy's products follow OMP_NUM_THREADS")
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    ts.set_num_threads(args.threads)
    found: list[dict[str, Any]] = []
    for name, make in rows().items():
        if args.only.takes(name):
            found.append(measure(name, make(), args.budget, args.threads))
            if not args.json:
                print(shown(found[-1]), flush=True)
    args.only.demand()
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        slower = sorted((r for r in found if r["ratio"] < 1), key=lambda r: r["ratio"])
        print(f"\n{len(found) - len(slower)} of {len(found)} at least as fast as NumPy")
        for row in slower:
            print(shown(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
