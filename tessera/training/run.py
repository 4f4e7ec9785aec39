"""`ts.train`: steps over batches, with progress and checkpoints. Its state is always that of a complete step."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tessera import checkpoint as checkpoints
from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.language.drawing import spread
from tessera.nn import tree
from tessera.optimizers import Optimizer, OptimizerState
from tessera.optimizers import accumulate as accumulated
from tessera.runtime.eager.recorded import no_grad
from tessera.runtime.events import witnessed
from tessera.training.data import Ended, Feed, Position, digest
from tessera.training.findings import at_loss, fault, unreached
from tessera.training.history import History, demand_numbers, number
from tessera.training.interrupts import Interrupts
from tessera.training.monitor import Monitor
from tessera.training.step import LossCall

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class _State(Generic[Model]):
    """The state that a step changes. It is replaced as a whole, so an interrupt finds the state before or after a
    step."""

    model: Model
    optimizer: OptimizerState
    step: int = 0
    position: Position = field(default_factory=Position)
    batch: Any = None
    """the last one, which tells whether a resumed run meets the same data"""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of a run."""

    optimizer: Optimizer
    loss: Callable[..., Any]
    checkpoint: Path | None
    every: int
    keep: int
    accumulate: int
    seed: int
    live: bool
    steps: int | None
    """None: as many as the passes over the data have"""
    validation: Feed | None
    validate: int


class TrainingRun(Generic[Model]):
    """A run of `ts.train`: `model` and `optimizer` after `step` steps, and the logged values.

    `stopped` is why it ended early: "" (it did not), "interrupted" or "the data have ended".
    """

    def __init__(self, model: Model, state: OptimizerState, feed: Feed, settings: RunSettings) -> None:
        self._state = _State(model, state)
        self._feed, self._settings = feed, settings
        self._call = LossCall.of(settings.loss)
        self._step: Any = None
        """the program of the last step"""
        self._looks = True
        """whether the next step looks for parameters without use"""
        self.history = History()
        self.stopped = ""

    @property
    def model(self) -> Model:
        return self._state.model

    @property
    def optimizer(self) -> OptimizerState:
        """The optimizer's state; `run.optimizer.report` is the report of the last step."""
        return self._state.optimizer

    @property
    def step(self) -> int:
        """The number of completed steps, including those of a resumed run."""
        return self._state.step

    def __repr__(self) -> str:
        why = f", {self.stopped}" if self.stopped else ""
        return f"<run at step {self.step}{why}: {self.history!r}>"

    @fitted
    def resume(self, steps: int | None = None) -> TrainingRun[Model]:
        """Continues up to step `steps`, counted from the beginning of the run; without, to the end that `ts.train` was
        given. Raises like `ts.train`."""
        if steps is None:
            steps = self._settings.steps
        self.stopped = ""
        self.history.cut(self.step)
        shown = Monitor(self.history, steps, self._settings.live, begin=self.step)
        ended = False
        with Interrupts() as interrupts, shown as monitor, no_grad(), witnessed(None):  # it looks for NaN itself
            try:
                while (steps is None or self.step < steps) and not interrupts.asked:
                    state, logged = self._advance()
                    self.history.add(state.step, logged)
                    self._state = state
                    if state.step % self._settings.validate == 0 or state.step == steps:
                        self._validate(interrupts)
                    monitor.show(state.step)
                    if state.step % self._settings.every == 0 and state.step != steps:
                        self._save(wait=False)
            except KeyboardInterrupt:
                self.stopped = "interrupted"
            except Ended:
                ended = True
                if self.step % self._settings.validate:
                    self._validate(interrupts)
                self.stopped = "" if steps is None else "the data have ended"
            finally:
                if interrupts.asked and not ended and (steps is None or self.step < steps):
                    self.stopped = "interrupted"
                self.history.cut(self.step)
                self._save(wait=True)
            if self.stopped:
                where = f"{self.stopped}: model and optimizer are those of step {self.step}, the last whole one"
                more = f"; run.resume({steps or ''}) goes on" if self.stopped == "interrupted" else ""
                monitor.said = where + more
        return self

    def _advance(self) -> tuple[_State[Model], dict[str, Any]]:
        """The state after the next step, and its logged values."""
        settings, before = self._settings, self._state
        model, position, gradient = before.model, before.position, None
        parts = settings.accumulate
        calls: list[tuple[Any, ...]] = []
        logged: dict[str, float] = {}
        for part in range(parts):
            batch, position = self._feed.take(position)
            key = spread((settings.seed << 32) + before.step * parts + part)
            self._step, call = self._call.of_step(model, batch, before.optimizer.scale, key)
            try:
                value, more, averages, found = self._step(*call)
            except CompileError as error:
                raise at_loss(error, settings.loss) from None
            calls.append(call)
            gradient = found if parts == 1 else accumulated(gradient, found, 1 / parts)
            metrics: dict[str, Any] = {}
            for extra in more:
                if isinstance(extra, dict):
                    metrics |= extra
                else:
                    model = self._with_state(model, extra)
            model = tree.replaced(model, averages) if averages else model
            demand_numbers(metrics)
            for name, metric in (metrics | {"loss": value}).items():
                logged[name] = logged.get(name, 0.0) + number(metric) / parts
        changed, optimizer = settings.optimizer.update(model, gradient, before.optimizer)
        norm = number(optimizer.norm)
        overflows = settings.optimizer.loss_scale == "dynamic" and number(before.optimizer.scale) > 1
        if not np.isfinite(logged["loss"]) or not (np.isfinite(norm) or overflows):
            error = fault(self._call.name, self._step, calls, before.step + 1, logged["loss"], optimizer)
            error.run = self  # type: ignore[attr-defined]
            raise error
        if self._looks:
            self._looks = False
            unreached(self._call.name, settings.loss, self._step, calls[0], optimizer)
        return _State(changed, optimizer, before.step + 1, position, batch), logged | {"grad_norm": norm}

    def _validate(self, interrupts: Interrupts) -> None:
        """Logs the means of what the loss gives over the batches of validation, if there are any."""
        found: list[dict[str, float]] = []
        for batch in self._settings.validation.data if self._settings.validation is not None else ():
            if interrupts.asked:
                return
            try:
                values = self._call.evaluated(self.model, batch, spread(self._settings.seed << 32))
            except CompileError as error:
                raise at_loss(error, self._settings.loss) from None
            found.append({name: number(value) for name, value in values.items()})
        if found:
            means = {f"validation {name}": sum(v[name] for v in found) / len(found) for name in found[0]}
            self.history.add(self.step, means)

    def _with_state(self, model: Model, given: Any) -> Model:
        """The model with the buffers (such as averages of BatchNorm) of the model that the loss has returned."""
        if type(given) is not type(model):
            message = f"{self._call.name} returns a loss, and with it dicts of numbers that are logged, or the model"
            raise LaunchError(Diagnostic("TS105", f"train: {message}; not {type(given).__name__}"))
        return tree.replaced(model, {leaf.path: leaf.array for leaf in tree.leaves(given) if not leaf.trained})

    def _save(self, wait: bool) -> None:
        settings, state = self._settings, self._state
        if settings.checkpoint is None:
            return
        if state.step != self._saved:
            position = state.position
            data = {"epoch": position.epoch, "batch": position.batch, "digest": digest(state.batch)}
            generator = {} if position.state is None else {"data_generator": [np.asarray(position.state)]}
            checkpoints.save_async(
                settings.checkpoint, keep=settings.keep, model=state.model, optimizer=state.optimizer,
                step=state.step, data=data, history=self.history.arrays(), **generator,
            )  # fmt: skip
            self._saved = state.step
        if wait:
            checkpoints.wait()

    _saved = 0
    """the step of the last checkpoint; before the first step there is nothing to keep"""

    def restore(self, folder: Path) -> None:
        """Takes the state of a checkpoint. Raises LaunchError TS361, TS363."""
        now = self._state
        saved = checkpoints.load(folder, model=now.model, optimizer=now.optimizer)
        missing = [name for name in ("step", "data", "history") if name not in saved]
        if missing:
            message = f"{folder} is not a checkpoint of ts.train: it has no {', '.join(missing)}; name another folder"
            raise LaunchError(Diagnostic("TS363", message))
        data = saved["data"]
        generator = saved.get("data_generator")
        position = Position(data["epoch"], data["batch"], None if generator is None else generator["0"])
        self.history = History.of_arrays(saved["history"])
        self._state = replace(
            now, model=saved["model"], optimizer=saved["optimizer"], step=saved["step"], position=position
        )
        self._saved = self.step
        self._feed.demand(position, data["digest"])


@fitted
def train(
    model: Model,
    optimizer: Optimizer,
    loss: Callable[..., Any],
    data: Any,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 1000,
    keep: int = 1,
    accumulate: int = 1,
    seed: int = 0,
    live: bool = True,
    validation: Any = None,
    validate: int | None = None,
) -> TrainingRun[Model]:
    """Trains a model: each step takes a batch, computes the gradient of the loss, and updates the model. Returns a run
    with the trained `model`, the `optimizer`'s state, and the `history` of logged values.

    `loss(model, *batch)` returns a number, or a tuple of that number with dicts of numbers to log, or with the model
    with updated buffers. A batch that is a tuple is passed item by item, a dict by name; a loss with one parameter
    besides the model gets the whole batch. A parameter `key: ts.int64` of the loss gets a new number at each step, for
    `ts.dropout`; `nn.Dropout` needs none.
    `data`: an iterable of batches, which starts over at its end, an iterator, or a function of the batch's number.
    `steps` or `epochs` (passes over the data) set the length; the default is one pass. `accumulate` batches make one
    step.
    `checkpoint`: a folder. The state is saved there every `every` steps and at the end; the last `keep` are kept. A
    call that finds a checkpoint continues from it, with the same bits as a run without interruption.
    `live` shows progress, and in a notebook the curves of all logged values.
    `validation`: batches in an iterable that ends. Every `validate` steps (by default after each pass over the data, or
    ten times) and at the end, the means of what the loss gives for them are logged, as "validation loss" and so on.
    `ts.is_training()` is False there, so `nn.Dropout` does not drop.

    An interrupt (Ctrl-C) ends the run after its last complete step and sets `run.stopped`; `run.resume(steps)`
    continues it. Raises DebugCheckError TS371 if the loss or a gradient is not finite, at the forward line that
    produced the first such value, with the run as `error.run`; LaunchError TS372 for data other than batches, TS361 and
    TS363 for a checkpoint of another model.
    """
    _demand_optimizer(optimizer, loss)
    if any(c.__module__.partition(".")[0] == "torch" for c in type(model).__mro__):
        message = "train: model is PyTorch's; ts.nn has modules and layers under the same names"
        raise LaunchError(Diagnostic("TS105", message))
    if not 0 <= seed < 2**31:
        raise LaunchError(Diagnostic("TS105", f"train: seed is a whole number from 0 to 2**31 - 1, not {seed!r}"))
    feed = Feed(data)
    folder = None if checkpoint is None else Path(checkpoint)
    steps = _steps(feed, steps, epochs, accumulate)
    checked = None if validation is None else _validation(validation)
    if validate is None:
        whole = 0 if feed.length is None or steps is None else feed.length // accumulate
        validate = whole if 0 < whole <= (steps or 0) else max((steps or 1000) // 10, 1)
    settings = RunSettings(optimizer, loss, folder, every, keep, accumulate, seed, live, steps, checked, validate)
    run = TrainingRun(model, optimizer.init(model), feed, settings)
    if folder is not None and checkpoints.exists(folder):
        run.restore(folder)
        whole = steps is not None and run.step >= steps
        of = "" if steps is None else f" of {steps}"
        print(f"{folder} is at step {run.step}{'' if whole else f'{of}: the run goes on there'}")
        if whole:
            return run
    return run.resume()


def _demand_optimizer(optimizer: Any, loss: Any) -> None:
    """Raises LaunchError TS105 for what is no optimizer, or for a loss in its place."""
    if isinstance(optimizer, Optimizer):
        if not callable(loss):
            raise LaunchError(Diagnostic("TS105", f"train: loss is a function of the model and a batch, not {loss!r}"))
        return
    kind = optimizer if isinstance(optimizer, str) else type(optimizer).__name__
    what = f"the class {optimizer.__name__} itself" if isinstance(optimizer, type) else repr(kind)
    if hasattr(optimizer, "zero_grad"):
        what = "one that holds parameters: leave model.parameters() out, as train has its own"
    message = f"train: optimizer is one of ts.optimizers, such as AdamW(1e-3); not {what}"
    if isinstance(loss, Optimizer):
        from tessera.compiler.frontend.called.trainings import SWAPPED  # slow: the front end

        message = SWAPPED
    raise LaunchError(Diagnostic("TS105", message))


def _validation(data: Any) -> Feed:
    """The batches of validation. Raises LaunchError TS105 for those that do not end, or do not start over."""
    feed = Feed(data)
    if feed.by_number or feed.once:
        what = (
            "a function of the batch's number, which has no end" if feed.by_number else "an iterator, which is one pass"
        )
        message = f"train: validation is a list of batches, or another iterable that ends and starts over, not {what}"
        raise LaunchError(Diagnostic("TS105", f"{message}: [batch(i) for i in range(20)]"))
    return feed


def _steps(feed: Feed, steps: int | None, epochs: int | None, accumulate: int) -> int | None:
    """The number of steps; None where only the end of a pass tells, after which the feed ends."""
    if steps is not None and epochs is not None:
        raise LaunchError(Diagnostic("TS105", "train: steps or epochs say how long, not both"))
    if steps is not None:
        return steps
    if feed.by_number:
        message = "train: a function of the batch's number gives batches without end: say steps="
        raise LaunchError(Diagnostic("TS105", message))
    if feed.once and (epochs or 1) > 1:
        message = "train: an iterator is one pass and cannot start over: give what makes it, such as the function"
        raise LaunchError(Diagnostic("TS105", f"{message}, or say steps="))
    if feed.length is None:
        feed.passes = epochs or 1
        return None
    found = feed.length * (epochs or 1) // accumulate
    if not found:
        raise LaunchError(Diagnostic("TS372", "the data contain no batch"))
    return found
