"""Objects that functions change: what a program remembers from one call to the next.

Inside of a function an effect gives the state another value, in the order of the program; when the call is over, the
caller's object holds the last one, in the memory that it had. What else looks at that memory sees the change, as with
any array that is changed in place.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import tessera as ts
from tessera import Const, Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.nn.module import Module


class StatefulObject(Module):
    """Base of objects whose `@ts.effect` methods change what they hold. A subclass is a dataclass by itself.

    Its arrays keep their shapes, dtypes and memory. They are not parameters: nothing differentiates by them.
    """

    __tessera_state__ = True

    def check(self) -> None:
        """Called after each call that was given the object and changes it. Raises what an effect could not do."""

    def copy(self) -> Self:
        """The same with arrays of its own."""
        with ts.no_grad():
            arrays = {name: ts.asarray(a).copy() for name, a in self.state_dict().items()}
        return ts.nn.tree.renewed(self, arrays)


class StatefulTensor(StatefulObject):
    """State whose tensors have one declared shape: a subclass says its dims' names in `shape`, and its `dtype`.

    `KVCache(B=2, H=8, S_max=1024, D_h=64)` gives each field that is annotated as a `Tensor` zeros of that shape. Sizes
    are also taken in the order of `shape`; `dtype=` takes the place of the declared one. Raises TypeError where a size
    is missing or none of them.
    """

    shape: ClassVar[tuple[str, ...]] = ()
    dtype: ClassVar[Any] = ts.f32

    @classmethod
    def zeros(cls, sizes: tuple[Any, ...], named: dict[str, int], dtype: Any) -> Tensor:
        """A tensor of the declared shape."""
        given = dict(zip(cls.shape, sizes, strict=False))
        wrong = [n for n in named if n not in cls.shape or n in given]
        missing = [n for n in cls.shape if n not in given and n not in named]
        if wrong or missing or len(sizes) > len(cls.shape):
            raise TypeError(f"{cls.__name__} takes a size for each of {', '.join(cls.shape)}, and a dtype")
        given |= named
        return ts.zeros(tuple(given[n] for n in cls.shape), dtype or cls.dtype)


class KVCache(StatefulTensor):
    """The keys and values of the tokens so far: two tensors [B, H, S_max, D_h], and how many tokens there have been.

    The length is data: no token needs new code. `overflow` says what becomes of a token that finds the cache full: by
    "refuse" it is an error (TS382) and the cache stays as it was; by "wrap" it takes the place of the oldest, so that
    the cache holds the last S_max tokens (a circular buffer, for windows).
    """

    shape = ("B", "H", "S_max", "D_h")
    dtype = ts.bf16
    keys: Tensor["B", "H", "S_max", "D_h"]
    values: Tensor["B", "H", "S_max", "D_h"]
    length: Tensor[ts.int64]
    refused: Tensor[ts.int64]
    overflow: str

    def __init__(self, *sizes: int, dtype: Any = None, overflow: str = "refuse", **named: int) -> None:
        if overflow not in ("refuse", "wrap"):
            raise ValueError(f"overflow is 'refuse' or 'wrap', not {overflow!r}")
        self.keys = self.zeros(sizes, named, dtype)
        self.values = self.zeros(sizes, named, dtype)
        self.length, self.refused = ts.zeros((), ts.int64), ts.zeros((), ts.int64)
        self.overflow = overflow

    @ts.effect("append")
    def append(self, k: Tensor["B", "H", "T", "D_h"], v: Tensor["B", "H", "T", "D_h"]):
        """Puts the keys and values of T further tokens behind those that are there. Their memory alone is written."""
        room, count = self.keys.shape[2], k.shape[2]
        at = self.length + ts.arange(count)
        if self.overflow == "wrap":
            at = at % room
        else:
            fits = self.length + count <= room
            at = ts.where(fits, at, room)  # outside, where nothing is put
            count = ts.where(fits, count, 0)
            self.refused = self.refused + ts.where(fits, 0, k.shape[2])
        self.keys = ts.put(self.keys, at, k.to(self.keys.dtype), axis=2)
        self.values = ts.put(self.values, at, v.to(self.values.dtype), axis=2)
        self.length = self.length + count

    @ts.effect("prefetch")
    def prefetch_window(self, start: Const[int], end: Const[int]):
        """Brings the keys and values at the places from `start` to `end` near, before somebody reads them; gives the
        largest key and the largest value there.

        It reads them once, from memory into the caches of the processor, and changes nothing. Inside of a function,
        where kernels load ahead what they read, it costs nothing unless its result is used.
        """
        return ts.max(self.keys[:, :, start:end]), ts.max(self.values[:, :, start:end])

    @ts.effect("update")
    def reset(self):
        """Forgets all tokens."""
        self.length = self.length * 0

    def positions(self):
        """The number of the token that each place holds, [S_max]; -1 where there is none."""
        place, room = ts.arange(self.keys.shape[2]), self.keys.shape[2]
        last = self.length - 1
        return last - (last - place) % room if self.overflow == "wrap" else ts.where(place <= last, place, -1)

    def check(self) -> None:
        refuse(self, f'it holds {self.keys.shape[2]} positions; make it larger, reset() it, or overflow="wrap"')


def refuse(cache: Any, why: str) -> None:
    """Raises LaunchError TS382 where tokens were `refused`, and forgets them: the cache is as it was before them."""
    count = int(cache.refused)
    if count:
        cache.refused = ts.zeros((), ts.int64)
        said = f"{count} further token{'s' * (count != 1)} did not fit into a {type(cache).__name__}: {why}"
        raise LaunchError(Diagnostic("TS382", said))
