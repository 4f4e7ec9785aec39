"""A training step as one program, made from the user's loss: its value, its other results, and the gradient."""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.errors import Diagnostic, LaunchError
from tessera.language import dtypes
from tessera.language.decorators import Function
from tessera.language.drawing import DRAWS
from tessera.nn import tree
from tessera.runtime.eager.operators import OperatorFunction
from tessera.training.gradient import gradient_of


@functools.lru_cache(8)
def step_of(loss: Callable[..., Any], keyed: bool) -> Any:
    """`step(model, given, named, scale, key)` is `gradient_of` the loss, which gets the key too if it is `keyed`. It is
    cached, so running a cell again does not recompile it."""

    @ts.compile(mode="training")
    def step(model, given, named, scale, key_: ts.int64):
        return gradient_of(loss, model, given, {**named, "key": key_} if keyed else named, scale)

    step.options[DRAWS] = "key_"
    return step


@functools.lru_cache(8)
def evaluation_of(loss: Callable[..., Any], keyed: bool) -> Any:
    """`evaluation(model, given, named, key)` is the loss and its dicts of numbers, as of a model that is used."""

    @ts.compile(mode="inference")
    def evaluation(model, given, named, key_: ts.int64):
        result = loss(model, *given, **({**named, "key": key_} if keyed else named))
        value, more = (result[0], result[1:]) if isinstance(result, tuple) else (result, ())
        return value, [extra for extra in more if isinstance(extra, dict)]

    return evaluation


OPENED = "<step of"
"""with which the files of such steps begin"""


@functools.lru_cache(8)
def open_step_of(loss: Function, given: tuple[str, ...]) -> Any:
    """`step(model, *given, scale, key)` for a loss with `open_dims`: its parameters are those of the loss that are
    given, with their annotations, which name the dims whose sizes stay open."""
    others = [p for p in definition_signature(loss.definition()).parameters if p.name in given]
    names = {f"annotation_{p.name}": p.annotation for p in others if p.annotated}
    declared = [f"{p.name}: annotation_{p.name}" if p.annotated else p.name for p in others]
    passed = ", ".join(f"{p.name!r}: {p.name}" for p in others)
    text = f"def step({', '.join(['model_', *declared, 'scale_', 'key_: int64_'])}):\n"
    text += f"    return gradient_of(loss_, model_, (), {{{passed}}}, scale_)\n"
    file = f"{OPENED} {loss.name}, {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {**names, "gradient_of": gradient_of, "loss_": loss, "int64_": ts.int64}
    scope["__name__"] = __name__
    exec(compile(text, file, "exec"), scope)
    scope[
        "step"
    ].__qualname__ = f"step of {getattr(loss, '__qualname__', loss.name)}"  # `ts.why_recompiled` knows it by
    step = ts.compile(mode="training")(ts.function(open_dims=loss.options["open_dims"])(scope["step"]))
    step.options[DRAWS] = "key_"
    return step


@dataclass(frozen=True, slots=True)
class LossCall:
    """How a batch is passed to a loss: tuples item by item, dicts by name; whole where the loss takes one parameter."""

    name: str
    wants_key: bool
    parameters: tuple[str, ...] | None
    """those behind the model; None where there may be any"""
    loss: Callable[..., Any]
    signature: inspect.Signature
    open: bool
    """whether it has `open_dims`"""

    @classmethod
    def of(cls, loss: Any) -> LossCall:
        """Raises LaunchError TS105 for what is not a function of a model."""
        if not callable(loss):
            raise LaunchError(Diagnostic("TS105", f"train: loss is a function of model and batch, not {loss!r}"))
        name = getattr(loss, "__name__", None) or getattr(loss, "name", type(loss).__name__)
        if isinstance(loss, OperatorFunction):
            message = (
                f"train: loss is a function of model and batch, such as lambda model, x, y: ts.{name}(model(x), y)"
            )
            raise LaunchError(Diagnostic("TS105", f"{message}; not ts.{name} itself"))
        signature = inspect.signature(loss)
        all_ = list(signature.parameters.values())
        if not all_:
            raise LaunchError(
                Diagnostic("TS105", f"train: {name} takes nothing; a loss is a function of model and batch")
            )
        variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in all_)
        names = tuple(p.name for p in all_[1:] if p.name != "key")
        wants_key, open_ = any(p.name == "key" for p in all_), getattr(loss, "options", {}).get("open_dims")
        if open_ and variadic:
            message = f"train: {name} has open_dims, and takes any number of arguments; name each of them"
            raise LaunchError(Diagnostic("TS105", message))
        return cls(name, wants_key, None if variadic else names, loss, signature, bool(open_))

    def of_step(self, model: Any, batch: Any, scale: Any, key: int) -> tuple[Any, tuple[Any, ...]]:
        """The step, and its arguments. Raises LaunchError TS372, TS105 for a batch that the loss does not take."""
        given, named = self.arguments(batch)
        keyed = {"key": key} if self.wants_key else {}
        others: dict[str, Any] = {}
        if self.open or (self.parameters is not None and len(given) + len(named) != len(self.parameters)):
            others = self.bound(batch, model, *given, **named, **keyed)
        if not self.open:
            return step_of(self.loss, self.wants_key), (model, given, named, scale, key)
        return open_step_of(self.loss, tuple(others)), (model, *others.values(), scale, key)  # type: ignore[arg-type]

    def evaluated(self, model: Any, batch: Any, key: int) -> dict[str, Any]:
        """The loss of a batch, and the numbers that it logs, without a gradient. Raises like `of_step`."""
        given, named = self.arguments(batch)
        self.bound(batch, model, *given, **named, **({"key": key} if self.wants_key else {}))
        value, more = evaluation_of(self.loss, self.wants_key)(model, given, named, key)
        return {"loss": value} | {name: metric for extra in more for name, metric in extra.items()}

    def bound(self, batch: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments behind the model by name. Raises LaunchError TS105 where the loss does not take them."""
        try:
            return dict([*self.signature.bind(*args, **kwargs).arguments.items()][1:])
        except TypeError as error:
            hint = "" if isinstance(batch, (tuple, list, Mapping)) else "; a batch of several arrays is a tuple: (x, y)"
            raise LaunchError(Diagnostic("TS105", f"train: a batch does not fit {self.name}: {error}{hint}")) from None

    def arguments(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments after the model, by position and by name. Raises LaunchError TS372 for a value that is not an
        array."""
        alone = self.parameters is not None and len(self.parameters) == 1
        if isinstance(batch, Mapping):
            if alone and self.parameters[0] not in batch:  # type: ignore[index]
                return (self.arrays(batch, "batch"),), {}
            unknown = [] if self.parameters is None else [n for n in batch if n not in self.parameters]
            if unknown:
                message = f"a batch has {', '.join(map(repr, unknown))}, which {self.name} does not take"
                takes = ", ".join(self.parameters or ())
                more = f"it takes {takes}; take them out, or take the batch whole: def {self.name}(model, batch)"
                raise LaunchError(Diagnostic("TS372", f"{message}: {more}"))
            return (), {n: self.arrays(v, n) for n, v in batch.items()}
        needed = [n for n in self.parameters or () if self.signature.parameters[n].default is inspect.Parameter.empty]
        whole = _numbers(batch) if len(needed) < 2 else False
        if isinstance(batch, (list, tuple)) and not whole and not (alone and len(batch) != 1):
            return tuple(self.arrays(v, f"item {i}") for i, v in enumerate(batch)), {}
        return (self.arrays(batch, "batch"),), {}

    def arrays(self, value: Any, name: str) -> Any:
        """A part of a batch with its numbers as arrays: floats of Python are f32, as in PyTorch. NumPy's scalars are
        numbers too: each would be a constant of a step of its own."""
        of = "a batch" if name == "batch" else f"{name} of a batch"
        if tree.is_array(value) and not isinstance(value, (np.number, np.bool_)):
            if dtypes.of(value.dtype) is None:
                message = f"{of} has elements of {value.dtype}: {self.name} takes arrays of numbers"
                raise LaunchError(Diagnostic("TS372", message))
            return value
        if isinstance(value, Mapping):
            return {n: self.arrays(v, f"{name}.{n}") for n, v in value.items()}
        if isinstance(value, (list, tuple)) and not _numbers(value):
            return tuple(self.arrays(v, f"{name}.{i}") for i, v in enumerate(value))
        try:
            array = np.asarray(value)
        except ValueError:
            message = f"{of} has rows of different lengths: pad them to one"
            raise LaunchError(Diagnostic("TS372", message)) from None
        if array.dtype.kind not in "biufc":
            kind = f"text, {value!r:.40}" if isinstance(value, str) else f"of type {type(value).__name__}"
            message = f"{of} is {kind}: {self.name} takes arrays and numbers"
            raise LaunchError(Diagnostic("TS372", message))
        return array.astype(np.float32) if array.dtype == np.float64 else array


def _numbers(value: Any) -> bool:
    """Whether nested lists contain only numbers, and so are one array."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_numbers(v) for v in value)
    return isinstance(value, (bool, int, float, complex, np.number))
