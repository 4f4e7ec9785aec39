"""A model with its optimizer, changed in place: loss, gradient and update as one program."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera.nn.state import StatefulObject
from tessera.optimizers.base import Optimizer
from tessera.optimizers.memory import OptimizerState, StepReport


class TrainingState(StatefulObject):
    """A model and its optimizer state, in their own memory.

        @ts.function
        def step(state: ts.optimizers.TrainingState, x, y):
            loss, gradient = ts.value_and_grad(lambda model: ts.mse(model(x), y))(state.model)
            state.step(gradient)
            return loss

    is one program for the whole step. After it, the arrays of `state.model` hold the new parameters, with the same bits
    as `optimizer.update`. The original model does not change. Raises LaunchError TS362 like `optimizer.init`.
    """

    model: Any
    memory: OptimizerState
    optimizer: Optimizer

    def __init__(self, model: Any, optimizer: Optimizer) -> None:
        self.memory = optimizer.init(model)
        self.model = ts.nn.tree.copied(model)
        self.optimizer = optimizer

    def step(self, gradient=None, lr=None):
        """Makes one step. `gradient` has the model's structure; the default is the `.grad` of the parameters. `lr`
        replaces the optimizer's for this step."""
        self._step(self.model.gradient() if gradient is None else gradient, lr)

    def zero_grad(self):
        """Removes the gradients of all parameters before the next `backward()`."""
        self.model.zero_grad()

    @ts.effect("update")
    def _step(self, gradient, lr):
        self.model, self.memory = self.optimizer.update(self.model, gradient, self.memory, lr)

    @property
    def scale(self):
        """The loss scale: multiply the loss by it."""
        return self.memory.scale

    @property
    def report(self) -> StepReport:
        """The report of the last step. Waits for its result."""
        return self.memory.report
