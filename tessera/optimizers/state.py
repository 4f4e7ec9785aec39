"""A model with its optimizer, changed in place: loss, gradient and update as one program."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera.nn.state import StatefulObject
from tessera.optimizers.base import Optimizer, OptimizerState, StepReport


class TrainingState(StatefulObject):
    """A model and what its optimizer remembers, in memory of their own.

        @ts.function
        def step(state: ts.optimizers.TrainingState, x, y):
            loss, gradient = ts.value_and_grad(lambda model: ts.mse(model(x), y))(state.model)
            state.step(gradient)
            return loss

    is one program for the whole step; behind it `state.model` holds the new parameters, in the arrays that it had. Bits
    are those of `optimizer.update`. The model that it is made from stays as it is. Raises LaunchError TS362 as
    `optimizer.init` does.
    """

    model: Any
    memory: OptimizerState
    optimizer: Optimizer

    def __init__(self, model: Any, optimizer: Optimizer) -> None:
        with ts.no_grad():
            own = {name: ts.asarray(a).copy() for name, a in ts.nn.tree.arrays(model).items()}
        self.memory = optimizer.init(model)
        self.model = ts.nn.tree.renewed(model, own)
        self.optimizer = optimizer

    def step(self, gradient=None, lr=None):
        """One step. `gradient` is of the model's structure; left out, it is the `.grad` of the parameters. `lr` takes
        the place of the optimizer's for this step."""
        self._step(self.model.gradient() if gradient is None else gradient, lr)

    def zero_grad(self):
        """Has no parameter have a gradient, so that the next `backward()` begins anew."""
        self.model.zero_grad()

    @ts.effect("update")
    def _step(self, gradient, lr):
        self.model, self.memory = self.optimizer.update(self.model, gradient, self.memory, lr)

    @property
    def scale(self):
        """What the loss is to be multiplied by, where the optimizer scales it."""
        return self.memory.scale

    @property
    def report(self) -> StepReport:
        """Of the last step. Waits for its result."""
        return self.memory.report
