"""Stateful objects: values that a program keeps from one call to the next.

Inside of a function, an effect gives the state a new value, in program order. After the call, the caller's object holds
the last value, in the same memory, so other views of that memory change too.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, Self

import tessera as ts
from tessera import Const, Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.nn.module import Module


class StatefulObject(Module):
    """Base of objects that `@ts.effect` methods change. A subclass automatically is a dataclass.

    Its arrays keep their shapes, dtypes and memory. They are not parameters and have no gradient.
    """

    __tessera_state__ = True

    def check(self) -> None:
        """Called after each call that changes the object. Raises the errors of its effects."""

    def copy(self) -> Self:
        """A copy with its own arrays."""
        return ts.nn.tree.copied(self)


class StatefulTensor(StatefulObject):
    """State whose tensors have one shape: a subclass declares its dims in `shape`, and its `dtype`.

    `KVCache(B=2, H=8, S_max=1024, D_h=64)` sets each field to zeros of that shape; a subclass with other fields defines
    `__init__`. Sizes may be positional, in the order of `shape`; `dtype=` overrides the declared one. Raises
    LaunchError TS105 for a missing or unknown size.
    """

    shape: ClassVar[tuple[str, ...]] = ()
    dtype: ClassVar[Any] = ts.f32

    def __init_subclass__(cls, **options: Any) -> None:
        annotations = vars(cls).get("__annotations__", {})
        for name in annotations.keys() & {"shape", "dtype"}:  # of the class, however they are annotated
            annotations[name] = ClassVar[Any]
        own = "__init__" in vars(cls)
        super().__init_subclass__(**options)
        if not own:
            inherited = next(c.__init__ for c in cls.__mro__[1:] if "__init__" in vars(c))
            cls.__init__ = inherited  # type: ignore[method-assign]

    def __init__(self, *sizes: int, dtype: Any | None = None, **named: int) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, self.zeros(sizes, named, dtype))
        if not dataclasses.fields(self):
            self.zeros(sizes, named, dtype)

    @classmethod
    def zeros(cls, sizes: tuple[Any, ...], named: dict[str, int], dtype: Any) -> Tensor:
        """A tensor of the declared shape."""
        given = dict(zip(cls.shape, sizes, strict=False))
        wrong = [n for n in named if n not in cls.shape or n in given]
        missing = [n for n in cls.shape if n not in given and n not in named]
        if wrong or missing or len(sizes) > len(cls.shape):
            message = f"{cls.__name__} takes a size for each of {', '.join(cls.shape)}, and a dtype"
            raise LaunchError(Diagnostic("TS105", message))
        given |= named
        return ts.zeros(tuple(given[n] for n in cls.shape), dtype or cls.dtype)


class KVCache(StatefulTensor):
    """The keys and values of the tokens so far: two tensors [B, H, S_max, D_h], and the number of tokens.

    The length is data, so it never recompiles. `overflow` applies to a token that finds the cache full: with "refuse"
    it is an error (TS382) and the cache does not change; with "wrap" it replaces the oldest, so the cache holds the
    last S_max tokens (a circular buffer, for windows).
    """

    shape = ("B", "H", "S_max", "D_h")
    dtype = ts.bf16
    keys: Tensor["B", "H", "S_max", "D_h"]
    values: Tensor["B", "H", "S_max", "D_h"]
    length: Tensor[ts.int64]
    refused: Tensor[ts.int64]
    overflow: str

    def __init__(
        self, *sizes: int, dtype: Any | None = None, overflow: Literal["refuse", "wrap"] = "refuse", **named: int
    ) -> None:
        self.keys = self.zeros(sizes, named, dtype)
        self.values = self.zeros(sizes, named, dtype)
        self.length, self.refused = ts.zeros((), ts.int64), ts.zeros((), ts.int64)
        self.overflow = overflow

    @ts.effect("append")
    def append(self, k: Tensor["B", "H", "T", "D_h"], v: Tensor["B", "H", "T", "D_h"]):
        """Appends the keys and values of T tokens. Writes only their memory."""
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
        """Prefetches the keys and values at the positions from `start` to `end`; returns the largest key and the
        largest value there.

        It reads them once, from memory into the processor's caches, and changes nothing. Inside of a function, where
        kernels prefetch anyway, it costs nothing unless its result is used.
        """
        return ts.max(self.keys[:, :, start:end]), ts.max(self.values[:, :, start:end])

    @ts.effect("update")
    def reset(self):
        """Removes all tokens."""
        self.length = self.length * 0

    def positions(self):
        """The token number at each position, [S_max]; -1 for none."""
        place, room = ts.arange(self.keys.shape[2]), self.keys.shape[2]
        last = self.length - 1
        return last - (last - place) % room if self.overflow == "wrap" else ts.where(place <= last, place, -1)

    def check(self) -> None:
        if int(self.refused):
            refuse(self, f'it holds {self.keys.shape[2]} positions; make it larger, reset() it, or overflow="wrap"')


def refuse(cache: Any, why: str) -> None:
    """Raises LaunchError TS382 if tokens were `refused`, and drops them: the cache is as before."""
    count = int(cache.refused)
    if count:
        cache.refused = ts.zeros((), ts.int64)
        message = f"{count} further token{'s' * (count != 1)} did not fit into a {type(cache).__name__}: {why}"
        raise LaunchError(Diagnostic("TS382", message))
