"""`ts.tile`: the functions of kernels, documented for people and editors.

They have a meaning inside `@ts.kernel` only, where the compiler knows them by name; called anywhere else they say so
(TS401). Elementwise functions (`exp`, `tanh`, `maximum` ...) are those of `tessera.language.scalars`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tessera.errors import CompileError, Diagnostic
from tessera.language import dtypes
from tessera.language.scalars import TABLE

__tessera_namespace__ = "tessera.tile"
F = TypeVar("F", bound=Callable[..., Any])


def _outside(name: str) -> NoReturn:
    raise CompileError(
        Diagnostic("TS401", f"ts.tile.{name} has a meaning inside a @ts.kernel only; it was called from plain Python.")
    )


def _tile(f: F) -> F:
    name = f.__name__.rstrip("_")

    @functools.wraps(f)
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        _outside(name)

    refuse.__tessera_builtin__ = f"tessera.tile.{name}"  # type: ignore[attr-defined]
    return refuse  # type: ignore[return-value]


# where a program is


@_tile
def context() -> Any:
    """The bound dims (`ctx.S`) and the schedule's parameters (`ctx.BLOCK_M`, `ctx.num_warps` ...)."""


@_tile
def linear_id() -> Any:
    """The global element index over the launch, as a vector of BLOCK lanes. `if i < n:` is a mask."""


@_tile
def program_id(axis: int = 0) -> Any:
    """This program's number on grid axis `axis` (0, 1 or 2); the axis' length follows from what it indexes."""


@_tile
def num_programs(axis: int = 0) -> Any:
    """How many programs run along grid axis `axis`."""


@_tile
def each() -> Any:
    """An index: the one element of an axis that this program has. Leading dims that no index mentions have it by
    themselves: `x[ts.tile.each(), i : i + 16]` is `x[i : i + 16]` where `i` walks the second axis."""


# loops


@_tile
def range(*bounds: Any) -> Any:
    """range(stop), range(start, stop), range(start, stop, step). Outermost: a grid axis. Nested: serial, ascending."""


@_tile
def range_k(*bounds: Any) -> Any:
    """As `range`, but serial wherever it stands."""


@_tile
def static_range(*bounds: Any) -> Any:
    """A loop that is unrolled; its bounds are known at compile time."""


@_tile
def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up."""


# making tiles


@_tile
def zeros(shape: Any, dtype: Any = dtypes.f32) -> Any:
    """A tile of zeros; `shape` is known at compile time."""


@_tile
def ones(shape: Any, dtype: Any = dtypes.f32) -> Any:
    """A tile of ones."""


@_tile
def full(shape: Any, value: Any, dtype: Any = dtypes.f32) -> Any:
    """A tile that holds `value` everywhere."""


@_tile
def zeros_like(x: Any) -> Any:
    """Zeros of the shape and dtype of `x`."""


@_tile
def arange(start: Any, stop: Any = None) -> Any:
    """The integers start, start + 1, ... below `stop`; with one argument from 0. int64."""


# memory


@_tile
def alloc_shared(shape: Any, dtype: Any = dtypes.f32, swizzle: str = "none") -> Any:
    """A tile in shared memory, with nothing in it yet.

    `swizzle` is "none" or "xor". Whichever is said, the compiler swaps the 16-byte pieces of rows within 32, 64 or 128
    bytes where that keeps what the kernel does with the tile free of bank conflicts; the panel shows how it lies. What
    a kernel computes does not depend on it.
    """


@_tile
def cp_async(shared: Any, source: Any) -> None:
    """Starts copying a block of a tensor into a shared tile of its shape and dtype; there after the next barrier."""


copy_async = cp_async


@_tile
def barrier() -> None:
    """Waits for this program's async copies, then for all its threads."""


@_tile
def load(source: Any, shape: Any = None, mask: Any = None, other: Any = None, prefetch: int = 1) -> Any:
    """A block of a tensor as a tile. Elements masked out, or outside of the tensor, are `other`; without it they are
    padding: 0, and in no reduction.

    With `shape`, this program's own block of a parameter; axes that no output has stay open for `load_partition`, and
    `prefetch` says how many partitions are under way at once.
    """


@_tile
def load_partition(panel: Any, *at: Any) -> Any:
    """The partition of `load(tensor, shape=...)` that starts at element `at` of its open axis."""


@_tile
def store(target: Any, value: Any, mask: Any = None) -> None:
    """Writes a tile to a block of a tensor; to a whole parameter, at this program's coordinates."""


@_tile
def gather(source: Any, index: Any, *more: Any) -> Any:
    """Elements of a tensor at computed indices, one integer tile per axis."""


@_tile
def scatter(target: Any, index: Any, value: Any) -> None:
    """Writes elements at computed indices, which must be distinct."""


# arithmetic


@_tile
def mma(a: Any, b: Any, accumulator: Any = None) -> Any:
    """accumulator + a @ b for tiles [M, K] and [K, N], in shared memory or not.

    `accumulator` is a dtype (the sum starts at 0) or a tile; by default f32 for floats up to f32, else the operands'
    own. Operands of two float dtypes meet in the narrower one, as tensor cores want it. Up to 128 products are added
    one after the other, from the accumulator on; of longer tiles, such chains are added (docs/decisions/0008).
    """


dot = mma


@_tile
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""


@_tile
def cast(x: Any, dtype: Any) -> Any:
    """The elements converted to `dtype`, rounded to nearest even."""


@_tile
def causal_mask(scores: Any, q0: Any, k0: Any, value: float = float("-inf")) -> Any:
    """`scores` where query q0 + row is not before key k0 + column, else `value`."""


@_tile
def transpose(x: Any, *axes: Any) -> Any:
    """The axes in reverse order, or in the order given."""


permute = trans = transpose


@_tile
def reshape(x: Any, *shape: Any) -> Any:
    """The same elements in C order under another shape."""


view = reshape


@_tile
def expand_dims(x: Any, axis: int) -> Any:
    """A new axis of size 1 at `axis`."""


unsqueeze = expand_dims


@_tile
def print(*values: Any) -> None:
    """Shows tiles once per program, in the order of programs, with the texts before them as labels.

    On a GPU a launch keeps 64 MiB of them; what does not fit is counted.
    """


debug_print = print


@_tile
def debug_assert(condition: Any, message: str = "") -> None:
    """In debug mode every element of the condition must hold."""


device_assert = static_assert = debug_assert


@_tile
def sort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    """The elements along `axis` in ascending order, NaN last; `descending` the other way round, NaN first. Equal
    elements keep their order. Of bf16, f16 and smaller floats the result is f32, as of all arithmetic."""


@_tile
def argsort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    """Where the elements that `sort` puts in each place come from; int64."""


# reductions, scans and elementwise functions, which are tables


def _make(name: str, doc: str) -> Callable[..., Any]:
    def f(*args: Any, **kwargs: Any) -> Any: ...

    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return _tile(f)


_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean")
_SCANS = {"cumsum": "sum", "cumprod": "product", "cummax": "maximum", "cummin": "minimum"}
_ALIASES = {"fabs": "abs", "power": "pow", "negative": "neg"}
_DOCS: dict[str, str] = {
    **{n: f"{n}(x, axis=None, keepdim=False): the {n} along `axis`, or of all elements." for n in _REDUCTIONS},
    **{
        f"row_{n}": f"The {n} of each row of a tile of two axes: a vector that belongs to the rows."
        for n in _REDUCTIONS
    },
    **{f"col_{n}": f"The {n} of each column: a vector that belongs to the columns." for n in _REDUCTIONS},
    **{n: f"{n}(x, axis=-1): the running {what} along `axis`." for n, what in _SCANS.items()},
    **{n: f"{s.doc}, element by element." for n, s in TABLE.items()},
    **{n: f"{TABLE[of].doc}, element by element." for n, of in _ALIASES.items()},
}
_DOCS.pop("where")


def __getattr__(name: str) -> Any:
    if name not in _DOCS:
        raise AttributeError(f"ts.tile has no function {name!r}")
    found = globals()[name] = _make(name, _DOCS[name])
    return found


def names() -> list[str]:
    """Every function of `ts.tile`."""
    own = [n for n, v in globals().items() if hasattr(v, "__tessera_builtin__")]
    return sorted({*own, *_DOCS})


def __dir__() -> list[str]:
    return names()
