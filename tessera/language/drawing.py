"""Layers that are not told what they do: draws without a key, dropout without one, norms that take averages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tessera.errors import Diagnostic, TrainingWarning
from tessera.tracebacks import OWN

WHY = (
    "without a key it draws other numbers at each call, and compiled code would keep the first ones; "
    "give a key: key=0 to a layer, key: ts.int64 as a parameter"
)
UNDROPPED = (
    "dropout without a key drops nothing, and a gradient is taken here; give it a key, drop(x, key), "
    "another one at each step: key: ts.int64 as a parameter. In the loss of ts.train it needs none"
)
IN_ROUNDS = (
    "dropout without a key drops nothing within a loop, a branch, ts.scan or ts.vmap: all rounds would drop the same "
    "elements; give each round a key, such as ts.random_bits(key, (n,))[i] with key: ts.int64 as a parameter"
)
AVERAGED = (
    "batch normalisation takes its running averages here, where a gradient is taken, and nothing updates them: "
    "y, norm = norm(x, training=True) takes those of the batch; norm(x, training=False) says that they are meant. "
    "In the loss of ts.train its model updates them, but not in a loop, a branch, ts.scan or ts.vmap"
)
_compiling: ContextVar[bool] = ContextVar("compiling", default=False)


@contextmanager
def refused() -> Generator[None]:
    """Around Python code that a program runs when it is compiled."""
    token = _compiling.set(True)
    try:
        yield
    finally:
        _compiling.reset(token)


def is_refused() -> bool:
    return _compiling.get()


def is_generator(value: object) -> bool:
    """Whether it is NumPy's or Python's generator of random numbers."""
    kind = type(value)
    return kind.__name__ in _GENERATORS and _is_of_random(kind)


def draws(callee: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call takes random numbers from a stream, or makes a generator that no seed decides."""
    if getattr(callee, "__name__", "") in ("default_rng", "RandomState", "Random") and _is_of_random(callee):
        return not args and not kwargs
    if is_generator(getattr(callee, "__self__", None)):
        return True
    of_torch = getattr(callee, "__qualname__", "").startswith("_VariableFunctions")
    return of_torch and callee.__name__ in (
        "rand",
        "randn",
        "randint",
        "randperm",
        "normal",
        "bernoulli",
        "multinomial",
    )


def _is_of_random(value: Any) -> bool:
    module = str(getattr(value, "__module__", ""))
    return module == "random" or module.startswith("numpy.random")


_GENERATORS = ("Generator", "RandomState", "Random")
DRAWS = "draws"
"""the option of a function that names its parameter with a key for what draws without one"""
_APART = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1


def spread(number: int) -> int:
    """A key for a number, far from those of its neighbours: key + 1 is that of no other step (G. Steele, D. Lea,
    C. Flood, "Fast splittable pseudorandom number generators", 2014)."""
    z = (number + 1) * _APART & _ALL
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _ALL
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _ALL
    return (z ^ z >> 31) >> 1


def apart(place: int) -> int:
    """What is added to a step's key for the n-th place that draws without one: as an int64, which wraps."""
    offset = place * _APART & _ALL
    return offset - (1 << 64) if offset >> 63 else offset


def implied_key(x: Any, p: float) -> Any:
    """The key of a dropout of x without one: None, so that it drops nothing. Warns TS374 at the user's line if the call
    is recorded for `backward()`. In functions the evaluator does so where a gradient is taken, and gives the step of
    `ts.train` a key for each place."""
    if p and getattr(x, "requires_grad", False):
        _warn(UNDROPPED)
    return None


def averages(x: Any, mean: Any, var: Any) -> tuple[Any, Any] | None:
    """The running averages of a batch normalisation of x that is not told whether it is trained, as the calls before
    it have left them, if it is to `move` them: in a step of `ts.train`, if they are of its model. Elsewhere None; where
    a gradient is taken, TS374 says that the layer does not learn, as of a dropout."""
    if getattr(x, "requires_grad", False):
        _warn(AVERAGED)
    return None


def held_averages(model: Any) -> dict[str, Any]:
    """The buffers of the model that a step trains, by path: layers move them until `moved_averages` asks."""
    raise NotImplementedError(_ONLY_COMPILED)


def move(held: Any, new: Any) -> None:
    """Says what a buffer of the model is after the step."""
    raise NotImplementedError(_ONLY_COMPILED)


def moved_averages(buffers: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `held_averages` that have moved, by path."""
    raise NotImplementedError(_ONLY_COMPILED)


def _warn(what: str) -> None:
    """TS374 at the user's line."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    text = Diagnostic("TS374", what).render()
    warnings.warn_explicit(text, TrainingWarning, frame.f_code.co_filename, frame.f_lineno, registry=_warned)


_ONLY_COMPILED = "steps of ts.train are compiled"
for _function in (implied_key, averages, held_averages, move, moved_averages):
    _function.__tessera_builtin__ = f"{__name__}.{_function.__name__}"  # type: ignore[attr-defined]
_warned: dict[Any, Any] = {}
