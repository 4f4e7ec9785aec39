"""Arguments as memory holds them: the same values under other strides, offsets and byte orders give the same bits.

    python -m tests.fuzz arguments --count 1000 --seed 1 --targets cpu,reference

A program of `fusion` gets arrays without gaps, then the same values in odd places: read-only, turned, stepped through,
backwards, stretched by strides of 0, off their alignment, in fields of records, in the other byte order, in one buffer
that they share. Kernels store through such views, and what lies between their elements stays what it was.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tests.fuzz import seeded
from tests.fuzz.fusion import equal, difference, program, reason
from tests.fuzz.functions import flat, function, script, Fault, threads
FILL = 0xA5

def raw(room: int) -> np.ndarray:
    return np.full(room, FILL, np.uint8)


def strided(r: random.Random, x: np.ndarray) -> np.ndarray:
    """Any order of axes, gaps, directions and offset."""
    order = r.sample(range(x.ndim), x.ndim)
    strides, room = [0] * x.ndim, x.itemsize
    aligned = r.random() < 0.6
    for axis in order:
        gap = r.choice([0, 0, 0, 1, 3]) * x.itemsize + (0 if aligned else r.choice([0, 1, 4]))
        strides[axis] = room + gap
        room = strides[axis] * max(x.shape[axis], 1)
    if r.random() < 0.5:
        strides = [s if d != 1 else r.choice([s, 0, -s, 7, 1 << 40]) for s, d in zip(strides, x.shape)]
    back = [r.random() < 0.3 and d > 1 for d in x.shape]
    start = sum((d - 1) * s for d, s, b in zip(x.shape, strides, back) if b and d)
    offset = r.choice([0, 64, x.itemsize]) if aligned else r.choice([0, 1, 3, x.itemsize, 17])
    if not x.size:
        start = 0
    memory = raw(room + offset + 64)
    return np.ndarray(x.shape, x.dtype, memory, offset + start, [-s if b else s for s, b in zip(strides, back)]) if False else \
        placed(memory, x, offset + start, [-s if b else s for s, b in zip(strides, back)])


def placed(memory: np.ndarray, x: np.ndarray, offset: int, strides: list[int]) -> np.ndarray:
    inner = [s if d != 1 else 0 for s, d in zip(strides, x.shape)]
    view = np.ndarray(x.shape, x.dtype, memory, offset, inner)
    view[...] = x
    return np.lib.stride_tricks.as_strided(view, x.shape, strides)


def recorded(r: random.Random, x: np.ndarray) -> np.ndarray:
    kind = np.dtype({"names": ["a", "x", "b"], "formats": ["u1", x.dtype, "u2"], "offsets": [0, 1, 1 + x.itemsize], "itemsize": x.itemsize + r.choice([3, 4, 7])})
    out = np.zeros(x.shape, kind)
    out["x"] = x
    return out["x"]


def locked(r: random.Random, x: np.ndarray) -> np.ndarray:
    out = strided(r, x) if r.random() < 0.5 else x.copy()
    out.flags.writeable = False
    return out


def turned_bytes(r: random.Random, x: np.ndarray) -> np.ndarray:
    return x.astype(x.dtype.newbyteorder(">")) if x.dtype.isbuiltin == 1 else x


def fortran(r: random.Random, x: np.ndarray) -> np.ndarray:
    return x.copy(order="F")


def held(r: random.Random, x: np.ndarray) -> Any:
    return ts.tensor(strided(r, x))


def as_tensor(r: random.Random, x: np.ndarray) -> Any:
    return ts.asarray(strided(r, x))

def as_torch(r: random.Random, x: np.ndarray) -> Any:
    import torch
    try:
        y = torch.from_numpy(x.copy())
    except TypeError:
        return x
    z = torch.empty([2*d for d in y.shape], dtype=y.dtype)[tuple(slice(None, None, 2) for _ in y.shape)]
    z.copy_(y)
    return z

PLACES = (strided, strided, strided, recorded, locked, fortran, turned_bytes, held, as_tensor, as_torch)


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    r = random.Random(seed)
    codes = []
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with knobs.target.override(targets[0]):
            p = program(seed)
        values = p.values()
        for target in targets:
            with knobs.target.override(target):
                f = function(p)
                want = flat(f(*[np.array(v, order="C") if isinstance(v, np.ndarray) else v for v in values]))
                for _ in range(4):
                    given = [r.choice(PLACES)(r, v) if isinstance(v, np.ndarray) else v for v in values]
                    before = [np.array(g) if not isinstance(g, ts.Tensor) and not hasattr(g,'is_contiguous') else None for g in given]
                    said = [(type(g).__name__, getattr(g, 'strides', None), getattr(g, 'dtype', None), getattr(getattr(g, 'flags', None), 'aligned', None)) for g in given]
                    with threads(r.choice([1, 2])):
                        try:
                            found = [np.asarray(ts.asarray(v)) for v in (lambda o: o if isinstance(o, tuple) else (o,))(f(*given))]
                        except ts.TesseraError as e:
                            code = reason(e)[:5]
                            if code != "TS501" or "foreign order" not in str(e):
                                raise AssertionError(f"{said}\n{script(p, Fault('internal', target, reason(e)))}")
                            codes.append(code)
                            continue
                        except Exception as e:
                            raise AssertionError(f"{said}\n{script(p, Fault('internal', target, reason(e)))}") from e
                    for name, a, b in zip(p.returns, found, want, strict=True):
                        if d := difference(a, b, equal):
                            raise AssertionError(f"{said}\n{script(p, Fault('places', target, f'{name} is {d}'))}")
                    for g, b in zip(given, before):
                        if b is not None and np.array(g).tobytes() != b.tobytes():
                            raise AssertionError("changed argument " + script(p, Fault('places', target, 'x')))
    return codes


def main(arguments: list[str]) -> int:
    return seeded.command("arguments", __doc__, check, arguments)
