"""`ts.checkpoint`: training state on disk, written atomically.

    ts.checkpoint.save("run", model=model, optimizer=state, step=100)
    saved = ts.checkpoint.load("run", model=model, optimizer=state)
    model, state, step = saved["model"], saved["optimizer"], saved["step"]

A checkpoint is a folder: safetensors files and an index for each tree of arrays, and `manifest.json`, which is written
last. If the process is killed at any moment, the folder holds the earlier checkpoint or the new one. It contains no
code. `save_async` writes in the background; `@ts.checkpoint(every=1000)` saves the state of a loop.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera.checkpoint import folder as folders
from tessera.checkpoint import safetensors
from tessera.checkpoint.saving import Saving, writer
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.fitting import is_whole, shown
from tessera.language.records import is_record
from tessera.nn import tree
from tessera.nn.module import Module, check_state
from tessera.runtime.eager.tensor import TENSOR
from tessera.tracebacks import decorator

__all__ = ["Saving", "exists", "load", "save", "save_async", "wait"]
FOLDER = "checkpoint"
SHARD = 4 * 10**9
"""bytes: file systems and tools that know no larger file are still there"""
Place = str | os.PathLike[str]


@fitted
def save(folder: Place = FOLDER, *, keep: int = 1, shard: int = SHARD, **parts: Any) -> None:
    """Writes trees of arrays (modules, optimizers' states), and values that JSON can represent, under the names of
    `parts`.

    `keep`: how many checkpoints to keep, each in its own folder `step-<step>` if more than one. A tree of more than
    `shard` bytes is split into several files.
    Raises LaunchError TS364 for a dtype that the format does not have and for other values, TS365 if the file system
    fails, for this checkpoint or an earlier one of `save_async`.
    """
    _start(folder, keep, shard, parts, copied=False).wait()


@fitted
def save_async(folder: Place = FOLDER, *, keep: int = 1, shard: int = SHARD, **parts: Any) -> Saving:
    """As `save`, but a background thread writes. Returns when all arrays are copied, so they may change afterwards.

    One checkpoint is written at a time: the next `save_async` first waits for the one before, and raises its error.
    `wait()` of the result, and `ts.checkpoint.wait()`, wait until it is written.
    """
    return _start(folder, keep, shard, parts, copied=True)


@fitted
def wait() -> None:
    """Waits until the checkpoint of `save_async` is written. Raises its error, if any."""
    writer.wait()


@fitted
def exists(folder: Place = FOLDER) -> bool:
    """Whether `folder` holds a complete checkpoint."""
    writer.wait()
    return folders.newest(Path(folder)) is not None


@fitted
def load(folder: Place = FOLDER, *, strict: bool = True, **like: Any) -> dict[str, Any]:
    """Returns all parts of the last checkpoint by name. A part with a tree in `like` is returned as such a tree; other
    parts are dicts of arrays by path, and a single array is that array.

    Raises LaunchError TS363 if there is no complete checkpoint or a file is damaged; TS361 if a tree
    has other names, shapes or dtypes than the one in `like`. `strict=False` loads the arrays that fit, leaves the
    others as they are in `like`, and warns of each. What requires a gradient in `like` does so in the result, and an
    optimizer that holds parameters of a model in `like` is returned holding those of the model that is returned.

    A safetensors file of other libraries, or a folder of them, is a dict of its arrays by name, for
    `model.load_state_dict(ts.checkpoint.load("model.safetensors"), layout="torch")`.
    """
    writer.wait()
    if (theirs := folders.of_others(Path(folder))) is not None:
        if like:
            message = f"{folder} is of another library and has no part {next(iter(like))}: without it, load gives its"
            message += " arrays by name, which model.load_state_dict(state, layout='torch') takes"
            raise LaunchError(Diagnostic("TS363", message))
        return {name: ts.asarray(array) for name, array in theirs.items()}
    values, trees = folders.read(Path(folder))
    missing = [name for name in like if name not in trees]
    if missing:
        raise LaunchError(Diagnostic("TS363", f"{folder} holds no arrays of {', '.join(missing)}"))
    found: dict[str, Any] = dict(values)
    for name, arrays in trees.items():
        if name not in like:
            plain = {path: ts.asarray(array) for path, array in arrays.items()}
            found[name] = plain.get("", plain)  # one array has no path
            continue
        wanted = _arrays(name, like[name])
        if not strict:
            arrays = _fitting(name, wanted, arrays)
        check_state(wanted, arrays, name)
        taken = {p: ts.asarray(a) if isinstance(wanted[p], ts.Tensor) else a for p, a in arrays.items()}
        found[name] = tree.renewed(like[name], taken)
        if isinstance(found[name], Module):
            tree.noted(found[name].named_parameters())
    return _bound(found, like)


def _bound(found: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """The same, where optimizers hold the tensors that were loaded in place of those of `like`."""
    loaded: dict[int, Any] = {}
    for name, part in like.items():
        now = {leaf.path: leaf.array for leaf in tree.leaves(found[name])}
        loaded |= {id(leaf.array): now[leaf.path] for leaf in tree.leaves(part)}
    return {name: part.holding(loaded) if hasattr(type(part), "holding") else part for name, part in found.items()}


def _start(folder: Place, keep: int, shard: int, parts: Mapping[str, Any], copied: bool) -> Saving:
    trees: dict[str, dict[str, np.ndarray]] = {}
    values: dict[str, Any] = {}
    step = parts.get("step", 0)
    if keep > 1 and not (is_whole(step) or (getattr(step, "shape", None) == () and ts.asarray(step).dtype.is_integer)):
        message = f"save: with keep={keep}, step is a whole number, that of the folder step-<step>, not {shown(step)}"
        raise LaunchError(Diagnostic("TS105", message))
    for name, part in parts.items():
        arrays = {} if isinstance(part, np.generic) else _arrays(name, part)
        if not arrays:
            values[name] = _as_json(name, part)
            continue
        arrays = {path: TENSOR.numpy(ts.asarray(array)) for path, array in arrays.items()}
        safetensors.demand(arrays)
        trees[name] = {path: np.array(a, order="C") for path, a in arrays.items()} if copied else arrays
    return writer.start(lambda: folders.write(Path(folder), trees, values, keep, shard))


def _as_json(name: str, part: Any) -> Any:
    """The value as it will be read: the caller may change a part of it later."""
    try:
        return json.loads(json.dumps(part.item() if isinstance(part, np.generic) else part))
    except (TypeError, ValueError) as e:
        own = type(part).__module__.startswith("tessera.")
        instead = f"; dataclasses.asdict({name}) can be" if is_record(part) and not own else ""
        message = f"{name}: only a tree of arrays or a JSON value can be saved: {e}{instead}"
        raise LaunchError(Diagnostic("TS364", message)) from None


def _arrays(name: str, part: Any) -> dict[str, Any]:
    """The arrays of a part by path."""
    arrays: dict[str, Any] = {}
    for leaf in tree.leaves(part):
        if leaf.path in arrays:
            raise LaunchError(
                Diagnostic("TS364", f"{name} has two arrays at {leaf.path!r}: a name in a dict holds a dot")
            )
        arrays[leaf.path] = leaf.array
    return arrays


def _fitting(name: str, wanted: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The arrays of a checkpoint that fit a tree; for the others, the tree's own arrays."""

    def fits(path: str) -> bool:
        there, here = arrays.get(path), ts.asarray(wanted[path])
        return there is not None and there.shape == tuple(here.shape) and there.dtype == here.dtype.numpy

    kept = [path for path in wanted if not fits(path)]
    unused = [path for path in arrays if path not in wanted]
    for what, paths in (("stay as they were", kept), ("are in the checkpoint alone", unused)):
        if paths:
            warnings.warn(f"of {name}, {', '.join(paths)} {what}", UserWarning, stacklevel=4)
    return {path: wanted[path] if path in kept else arrays[path] for path in wanted}


@fitted
def checkpoint(
    folder: Place = FOLDER, *, every: int | None = None, keep: int = 1, interval: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., dict[str, Any]]]:
    """Decorates a generator function that yields its state after each step, as a dict of arguments of `save`::

        @ts.checkpoint("run", every=1000)
        def training(model, optimizer, step=0):
            for i in range(step, 10_000):
                ...
                yield dict(model=model, optimizer=optimizer, step=i + 1)

        last = training(model, optimizer=opt.init(model))

    A call runs the loop and returns its last state. The state is saved every `every` steps (or `interval`),
    at the end and at an interrupt; a call that finds a checkpoint starts from its values instead of the arguments.
    Raises LaunchError TS105 for a function that yields nothing, because its state cannot be saved.
    """
    if (every is None) == (interval is None):
        raise LaunchError(Diagnostic("TS105", "checkpoint: say after how many steps, every=1000 or interval=1000"))
    every = interval if every is None else every
    assert every is not None

    def decorate(f: Callable[..., Iterator[dict[str, Any]]]) -> Callable[..., dict[str, Any]]:
        if not inspect.isgeneratorfunction(f):
            name = getattr(f, "__name__", repr(f))
            message = (
                f"{name} does not pass on its state: at the end of each step, write yield dict(model=..., step=...)"
            )
            more = "; or call ts.checkpoint.save_async(model=..., step=...) in its loop"
            raise LaunchError(Diagnostic("TS105", f"checkpoint: {message}{more}"))
        return functools.wraps(f)(functools.partial(_kept, f, folder, every, keep))

    return decorator("checkpoint", decorate)


def _kept(f: Callable[..., Any], folder: Place, every: int, keep: int, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Runs a loop that yields its states, and saves them."""
    given = inspect.signature(f).bind(*args, **kwargs)
    given.apply_defaults()
    state: dict[str, Any] = {}
    if exists(folder):
        saved = load(folder, **{n: v for n, v in given.arguments.items() if next(tree.leaves(v), None) is not None})
        state = {n: v for n, v in saved.items() if n in given.arguments}
        given.arguments.update(state)
    count, unsaved = 0, False
    try:
        for state in f(*given.args, **given.kwargs):
            count, unsaved = count + 1, True
            if count % every == 0:
                save_async(folder, keep=keep, **state)
                unsaved = False
    finally:
        if unsaved:
            save_async(folder, keep=keep, **state)
        wait()
    return state


class _Callable(types.ModuleType):
    """Makes the module callable: `@ts.checkpoint(every=1000)`."""

    __call__ = staticmethod(checkpoint)


sys.modules[__name__].__class__ = _Callable
