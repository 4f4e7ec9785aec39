"""Batches from any iterable, at a position that can be returned to."""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import tree
from tessera.runtime.callsite import call_span


class DataWarning(UserWarning):
    """TS372: batches of a run that is resumed are not those that it would have had, or are single samples."""


class Ended(Exception):
    """There is no further batch."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next batch is: the pass over the data and the batch in it, both counted from 0.

    `state` is that of the data's generator of random numbers when the pass began (PyTorch's DataLoader), None without.
    """

    epoch: int = 0
    batch: int = 0
    state: Any = None


def _needed(data: Any) -> list[str] | None:
    """The parameters that a call of a function must give; None of what is no function, or does not tell."""
    if not callable(data) or hasattr(data, "__iter__"):
        return None
    try:
        parameters = inspect.signature(data).parameters.values()
    except (TypeError, ValueError):
        return None
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _takes_nothing(data: Any) -> bool:
    """Whether it is a function without parameters, `lambda: iter(loader)`, which gives the batches of a pass."""
    return _needed(data) == [] and not inspect.signature(data).parameters


def _gives_samples(data: Any) -> bool:
    """Whether it is one of PyTorch's data sets that a loader makes batches of."""
    names = [c.__name__ for c in type(data).__mro__ if c.__module__ == "torch.utils.data.dataset"]
    return "Dataset" in names and "IterableDataset" not in names


class Feed:
    """Batches of an iterable, passes over it one after another; or of a function of the batch's number.

    `take(position)` gives the same batch until another position is asked for, so that a step that was interrupted is
    done again with its own data.
    """

    def __init__(self, data: Any) -> None:
        if isinstance(data, (str, bytes, Mapping)) or tree.is_array(data):
            kind = "one array" if tree.is_array(data) else f"a {type(data).__name__}"
            message = "data=[(x, y)] is one batch, data=lambda i: (x[32 * i : 32 * i + 32], ...) cuts them"
            raise LaunchError(Diagnostic("TS372", f"data are batches, one after another, and not {kind}: {message}"))
        if _gives_samples(data):
            kind, loader = type(data).__name__, "torch.utils.data.DataLoader(data, batch_size=32)"
            message = f"data: a {kind} gives samples, and each is taken for a batch; {loader} makes batches of them"
            at = call_span()
            warnings.warn_explicit(f"TS372: {message}", DataWarning, at.file, at.line)
        passes, needed = inspect.isgeneratorfunction(data), _needed(data) or []
        if len(needed) > (0 if passes else 1):
            called = "each pass calls it without arguments" if passes else "it is called with the number of a batch"
            message = f"data: {called}, and it needs {', '.join(needed)}; lambda: makes a function that gives them"
            raise LaunchError(Diagnostic("TS372", message))
        self.data = _Passes(data) if passes or _takes_nothing(data) else data
        self.by_number = not hasattr(self.data, "__iter__") and callable(data)
        if not self.by_number and not hasattr(self.data, "__iter__") and not hasattr(self.data, "__getitem__"):
            message = "an iterable of batches, or a function that gives the batch of a number"
            raise LaunchError(Diagnostic("TS372", f"data are {message}; not {type(data).__name__}"))
        try:
            self.once = not self.by_number and iter(self.data) is self.data
        except TypeError:  # its class has __getitem__ for other things
            raise LaunchError(Diagnostic("TS372", f"data are batches, not {type(data).__name__}")) from None
        """whether the data are an iterator, which cannot begin again"""
        self.passes: int | None = None
        """the passes after which there are no more batches; None: any number"""
        self._iterator: Iterator[Any] | None = None
        self._next = Position()
        self._held: tuple[Position, Any, Position] | None = None
        """the batch that was taken last, where it was and what follows it"""

    @property
    def length(self) -> int | None:
        """The batches of a pass, where that is known."""
        try:
            return len(self.data)
        except TypeError:
            return None

    def take(self, position: Position) -> tuple[Any, Position]:
        """The batch at a position, and the position after it. Raises Ended where there are no more."""
        if self._held is not None and same(self._held[0], position):
            return self._held[1], self._held[2]
        if self.by_number:
            return self.data(position.batch), replace(position, batch=position.batch + 1)
        if self._iterator is None or not same(self._next, position):
            self._seek(position)
        at = self._next
        iterator, self._iterator = self._iterator, None  # one that is interrupted may be at its end then
        try:
            batch = next(iterator)  # type: ignore[arg-type]
        except StopIteration:
            if self.once:
                raise Ended from None
            if at.batch == 0:
                raise LaunchError(Diagnostic("TS372", "the data contain no batch")) from None
            if self.passes is not None and at.epoch + 1 >= self.passes:
                raise Ended from None
            self._begin(at.epoch + 1)
            return self.take(self._next)
        self._iterator = iterator
        self._next = replace(at, batch=at.batch + 1)
        self._held = at, batch, self._next
        return batch, self._next

    def demand(self, position: Position, wanted: str) -> None:
        """Goes to the position of a checkpoint. Warns TS372 where the batch before it is another than it was."""
        if self.by_number or position.batch == 0:
            return
        try:
            found, _ = self.take(replace(position, batch=position.batch - 1))
        except Ended:
            found = None
        if found is None or digest(found) != wanted:
            message = f"the run is resumed, but batch {position.batch} of pass {position.epoch + 1} is not what it was"
            why = "shuffled by a seed of their own, or an iterator that has moved on"
            more = "Bits stay the same with a list, a function of the batch's number, or a loader with a generator"
            warnings.warn(f"TS372: {message}: the data are {why}. {more}", DataWarning, stacklevel=5)

    def _seek(self, position: Position) -> None:
        """Goes to a position by passing over what lies before it."""
        if self.once and self._held is not None:  # it was interrupted within the iterator, which that may have ended
            position = replace(position, batch=max(position.batch - self._held[2].batch, 0))
        self._begin(position.epoch, position.state)
        assert self._iterator is not None
        for _ in range(position.batch):
            if next(self._iterator, Ended) is Ended:
                break
        self._next = replace(self._next, batch=position.batch)

    def _begin(self, epoch: int, state: Any = None) -> None:
        """Begins a pass, with the random numbers that it had where they are known."""
        generator = getattr(self.data, "generator", None)
        if not hasattr(generator, "get_state"):
            generator = None
        if generator is not None and state is not None:
            generator.set_state(_like(generator.get_state(), state))
        elif generator is not None:
            state = np.asarray(generator.get_state()).copy()
        for owner in (self.data, getattr(self.data, "sampler", None)):
            if callable(getattr(owner, "set_epoch", None)):
                owner.set_epoch(epoch)
        self._next = Position(epoch, 0, state)
        self._iterator = iter(self.data)


class _Passes:
    """The passes of a function without parameters, such as a generator function: each is a call."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())


def same(a: Position, b: Position) -> bool:
    return (a.epoch, a.batch) == (b.epoch, b.batch)


def _like(now: Any, state: Any) -> Any:
    """A generator's state in the library that it came from."""
    values = ts.asarray(state).numpy()
    if type(now).__module__.partition(".")[0] == "torch":
        import torch  # optional: the loader's own library

        return torch.from_numpy(values.copy())
    return values


def digest(batch: Any) -> str:
    """SHA-256 over the arrays and values of a batch."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if tree.is_array(value):
            array = ts.asarray(value).numpy()
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        elif isinstance(value, Mapping):
            for name, held in value.items():
                found.update(str(name).encode())
                add(held)
        elif isinstance(value, (list, tuple)):
            for held in value:
                add(held)
        else:
            found.update(repr(value).encode())

    add(batch)
    return found.hexdigest()
