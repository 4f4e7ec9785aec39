"""Arguments as memory holds them: the same values under other strides, offsets and libraries give the same bits.

    python -m tests.fuzz arguments --count 1000 --seed 1 --targets cpu,reference

A program of `fusion` gets arrays without gaps, then the same values in odd places: turned, stepped through, backwards,
stretched by strides of 0, off their alignment, in fields of records, read-only, in other libraries. Kernels store
through such views, and what lies between their elements stays what it was; and they get one array twice.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera import knobs
from tests.fuzz import seeded
from tests.fuzz.functions import Fault, function, script, threads
from tests.fuzz.fusion import difference, equal, program, reason

FILL = 0xA5
REFUSED = ("TS204", "TS418", "TS419", "TS403")
"""kernels that are none: a row alone has no first axis"""


def between(r: random.Random, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values without gaps, perhaps off their alignment; and the memory, of bytes, in which they lie."""
    offset = r.choice([x.itemsize, 64, 1])
    memory = np.full(x.nbytes + 128, FILL, np.uint8)
    out = np.ndarray(x.shape, x.dtype, memory, offset)
    out[...] = x
    return out, memory


def view(r: random.Random, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values with any order of axes, gaps, directions and offset; and the memory, of bytes, in which they lie."""
    aligned, unit = r.random() < 0.6, x.itemsize
    strides, room = [0] * x.ndim, unit
    for axis in r.sample(range(x.ndim), x.ndim):
        strides[axis] = room + r.choice([0, 0, 0, 1, 3]) * unit + (0 if aligned else r.choice([0, 1, 4]))
        room = strides[axis] * max(x.shape[axis], 1)
    back = [r.random() < 0.3 and n > 1 for n in x.shape]
    start = sum((n - 1) * s for n, s, b in zip(x.shape, strides, back, strict=True) if b) if x.size else 0
    offset = r.choice([0, 64, unit]) if aligned else r.choice([0, 1, 3, unit, 17])
    memory = np.full(room + offset + 64, FILL, np.uint8)
    signed = [-s if b else s for s, b in zip(strides, back, strict=True)]
    if r.random() < 0.5:  # of an axis with one element, any stride does
        signed = [s if n != 1 else r.choice([s, 0, -s, 7, 1 << 40]) for n, s in zip(x.shape, signed, strict=True)]
    short = [s if n > 1 else 0 for n, s in zip(x.shape, signed, strict=True)]
    inner = np.ndarray(x.shape, x.dtype, memory, offset + start, short)
    inner[...] = x
    bits = inner.view(f"V{unit}")  # as_strided does not know small floats
    return np.lib.stride_tricks.as_strided(bits, x.shape, signed).view(x.dtype), memory


def strided(r: random.Random, x: np.ndarray) -> Any:
    return view(r, x)[0]


def recorded(r: random.Random, x: np.ndarray) -> Any:
    """In a field of records, whose size is no multiple of the element's."""
    unit = x.itemsize
    size = unit + r.choice([1, 3, 7])
    kind = {"names": ["a", "x"], "formats": ["u1", x.dtype], "offsets": [0, 1], "itemsize": size}
    out = np.zeros(x.shape, np.dtype(kind))  # type: ignore[call-overload]
    out["x"] = x
    return out["x"]


def locked(r: random.Random, x: np.ndarray) -> Any:
    out = strided(r, x)
    out.flags.writeable = False
    return out


def tensor(r: random.Random, x: np.ndarray) -> Any:
    return r.choice([ts.tensor, ts.asarray])(strided(r, x))


def torch_tensor(r: random.Random, x: np.ndarray) -> Any:
    import torch

    if x.dtype.isbuiltin != 1:  # bf16 and smaller floats
        return x
    y = torch.from_numpy(x.copy())
    steps = tuple(slice(None, None, r.choice([1, 2])) for _ in x.shape)
    z = torch.empty([2 * n for n in x.shape], dtype=y.dtype)[steps][tuple(map(slice, x.shape))]
    return z.copy_(y)


PLACES = (strided, strided, strided, recorded, locked, tensor, torch_tensor)


def plain(found: Any) -> list[np.ndarray]:
    return [np.asarray(ts.asarray(v)) for v in (found if isinstance(found, tuple) else (found,))]


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    r, refused = random.Random(seed), list[str]()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.RecompilationWarning)
        with knobs.target.override(targets[0]):
            p = program(seed)
        values = [np.array(v, order="C") for v in p.values()]
        for target in targets:
            with knobs.target.override(target):
                f = function(p)
                wanted = plain(f(*values))
                for _ in range(4):
                    placed(r, p, f, target, values, wanted)
                refused += stored(r, target)
                refused += shared(r, target)
    return refused


def placed(r: random.Random, p: Any, f: Any, target: str, values: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """A program of the same values elsewhere."""
    torch_has_them = not any(w.dtype.name.startswith(("float4", "float6")) for w in wanted)
    given = [r.choice(PLACES if torch_has_them else PLACES[:-1])(r, v) for v in values]
    told = "\n".join(f"# {type(g).__module__} {g.dtype} {getattr(g, 'strides', '')}" for g in given)
    try:
        with threads(r.choice([1, 2])):
            found = plain(f(*given))
    except Exception as e:
        raise AssertionError(f"{told}\n{script(p, Fault('internal', target, reason(e)))}") from e
    for name, a, b in zip(p.returns, found, wanted, strict=True):
        said = difference(a, b, equal)
        assert not said, f"{told}\n{script(p, Fault('places', target, f'{name} is {said}'))}"
    for g, v in zip(given, values, strict=True):
        assert np.asarray(ts.asarray(g)).tobytes() == v.tobytes(), f"{told}\n{script(p, Fault('changed', target, ''))}"


# Kernels that store


@ts.kernel
def scaled(x: ts.Tensor["M", "N"], y: ts.Tensor["M", "N"]):
    for i in ts.tile.range(0, M, 8):
        for j in ts.tile.range(0, N, 8):
            y[i : i + 8, j : j + 8] = x[i : i + 8, j : j + 8] + x[i : i + 8, j : j + 8]


@ts.kernel
def turned(x: ts.Tensor["M", "N"], y: ts.Tensor["N", "M"], z: ts.Tensor["M"]):
    for i in ts.tile.range(0, M, 8):
        t = x[i : i + 8, :]
        y[:, i : i + 8] = t.T
        z[i : i + 8] = ts.tile.max(t, axis=1)


@ts.kernel
def added(x: ts.Tensor["M", "N"], y: ts.Tensor["M", "N"]):
    i = ts.tile.linear_id()
    if i < M:
        for j in range(N):
            y[i, j] += x[i, j]


KERNELS = {
    scaled: (lambda s: (s, s), lambda x, y: (x, x + x)),
    turned: (lambda s: (s, s[::-1], s[:1]), lambda x, y, z: (x, x.T, x.max(1))),
    added: (lambda s: (s, s), lambda x, y: (x, y + x)),
}
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64, np.uint8)


def stored(r: random.Random, target: str) -> list[str]:
    """A kernel that stores through views; what is around their elements stays."""
    kernel = r.choice(list(KERNELS))
    shapes, meaning = KERNELS[kernel]
    dtype, shape = r.choice(DTYPES), (r.choice([1, 2, 7, 8, 9, 30]), r.choice([1, 3, 8, 17, 40]))
    g = np.random.default_rng(r.randrange(1000))
    values = [g.integers(0, 9, s).astype(dtype) for s in shapes(shape)]
    wanted = meaning(*values)
    views = [view(r, values[0]), *(between(r, v) for v in values[1:])]
    told = f"{kernel.name} of {np.dtype(dtype)} on {target}: {views[0][0].strides}"
    around = [_around(v, memory) for v, memory in views]
    try:
        kernel(*(v for v, _ in views))
    except Exception as e:
        if reason(e).startswith("TS503") and any(v.ctypes.data % v.itemsize for v, _ in views[1:]):
            return ["TS503"]
        raise AssertionError(f"{told}: {reason(e)}") from e
    for (v, memory), want, before in zip(views, wanted, around, strict=True):
        assert np.array_equal(v, want), f"{told}\n{v}\nnot {want}"
        assert np.array_equal(_around(v, memory), before), f"{told}: stores beside its elements"
    return []


# Kernels whose parameters share memory

FORMS = (  # what is loaded, and where it is stored
    ("for i in ts.tile.range(0, M, {b}):", "x[i : i + {b}, :]", "y[i : i + {b}, :]", "v[:]"),
    ("if True:", "x[tile_m : tile_m + {b}, tile_n : tile_n + {c}]",
     "y[tile_m : tile_m + {b}, tile_n : tile_n + {c}]", "v[tile_n : tile_n + {c}]"),
    ("if True:", "x[ts.tile.program_id(), :]", "y[ts.tile.program_id(), :]", "v[:]"),
    ("if True:", "x[tile_m : tile_m + {b}, :]", "y[tile_m : tile_m + {b}, :]", "v[:]"),
    ("for j in ts.tile.range(0, N, {c}):", "x[:, j : j + {c}]", "y[:, j : j + {c}]", "v[j : j + {c}]"),
)  # fmt: skip
STEPS = (
    "t + v0", "t * 2", "ts.tile.maximum(t, v0)", "t - ts.tile.sum(t, axis=-1, keepdim=True)", "ts.tile.abs(t) * v0",
    "t * ts.tile.max(t, axis=-1, keepdim=True)", "ts.tile.flip(t, axis=-1)", "ts.tile.cumsum(t, axis=-1)",
    "t - ts.tile.max(t)", "ts.tile.sort(t, axis=-1)", "ts.tile.where(t > 1, t, v0)", "t - ts.tile.sum(t, axis=0)",
    "t + ts.tile.flip(t, axis=-1)", "ts.tile.flip(t, axis=0)", "ts.tile.cumsum(t, axis=0) + t",
)  # fmt: skip


def shared(r: random.Random, target: str) -> list[str]:
    """A kernel that gets one array, or arrays that overlap, for what it reads and what it stores to: it is refused, or
    does what it does to arrays apart."""
    head, load, place, beside = r.choice(FORMS)
    sizes = {"b": r.choice([1, 2, 4, 8]), "c": r.choice([4, 8, 16])}
    body = [f"v0 = {beside}", f"t = {load}", *(f"t = {s}" for s in r.choices(STEPS, k=r.randint(1, 3)))]
    stores = [f"{place} = t", f"if t > 0:\n            {place} = t", f"{place} += t", f"{place} = t + {load}"]
    body.append(r.choices(stores, [6, 1, 1, 1])[0])
    lines = [head, *("    " + line for line in body)]
    parameters = 'x: Tensor["M", "N", ts.f32], v: Tensor["N", ts.f32], y: Tensor["M", "N", ts.f32]'
    text = f"import tessera as ts\nfrom tessera import Tensor\n\n\n@ts.kernel\ndef f({parameters}):\n"
    text += "".join(f"    {line}\n" for line in lines).format(**sizes)
    f = seeded.kernel(text, f"shared{r.randrange(10**9)}.py")
    m, n = r.choice([1, 3, 8, 17, 60]), r.choice([1, 5, 16, 33, 300, 5000])
    g = np.random.default_rng(r.randrange(1000))
    memory, v = g.integers(-4, 5, 2 * m * n).astype(np.float32), g.integers(-4, 5, n).astype(np.float32)
    apart = r.choice([0, 0, 0, n, 1, m * n - 1, m * n])
    x, y = memory[: m * n].reshape(m, n), memory[apart : apart + m * n].reshape(m, n)
    told = f"{m} by {n}, {apart} elements apart, on {target}\n{text}"
    try:
        wanted = y.copy()
        with threads(1):
            f(x.copy(), v, wanted)
        with threads(r.choice([1, 2])):
            f(x, v, y)
    except ts.TesseraError as e:
        code = reason(e)[:5]
        assert code in REFUSED or (code == "TS507" and apart < m * n), f"{told}{reason(e)}"
        return [code]
    assert apart in (0, m * n), f"{told}arrays that overlap are taken"
    assert np.array_equal(y, wanted, equal_nan=True), f"{told}{y}\nnot {wanted}"
    return []


def _around(v: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """The memory without the elements."""
    kept, value = memory.copy(), v.copy()
    v[...] = np.zeros((), v.dtype)
    kept, memory[...] = memory.copy(), kept
    assert np.array_equal(v, value)
    return kept


def main(arguments: list[str]) -> int:
    return seeded.command("arguments", __doc__, check, arguments)
