"""`ts.accumulate_gradients`: the mean of several gradients, for batches that do not fit into memory at once."""

from __future__ import annotations

from typing import Any

from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.optimizers import accumulate
from tessera.tracebacks import outward


@fitted
class accumulate_gradients:
    """The mean of `steps` gradients::

        with ts.accumulate_gradients(steps=4) as total:
            for part in parts:
                loss, gradient = step(model, part)
                total.add(gradient)
        model, state = opt.update(model, total.gradient, state)

    Gradients are values, so each is added explicitly. Raises LaunchError TS105 if more or fewer are added: their mean
    would belong to another batch.
    """

    def __init__(self, steps: int) -> None:
        self.steps, self.count = steps, 0
        self.gradient: Any = None
        """the sum of what was added, each divided by `steps`"""

    def add(self, gradient: Any) -> None:
        if self.count == self.steps:
            raise LaunchError(Diagnostic("TS105", f"accumulate_gradients: {self.steps} gradients are there already"))
        self.gradient = accumulate(self.gradient, gradient, 1 / self.steps)
        self.count += 1

    def __enter__(self) -> accumulate_gradients:
        self.count, self.gradient = 0, None
        return self

    @outward
    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None and self.count != self.steps:
            message = f"accumulate_gradients: {self.count} of {self.steps} gradients were added"
            more = "with ts.accumulate_gradients(steps=...) as total: total.add(gradient) for each part"
            raise LaunchError(Diagnostic("TS105", f"{message}; {more}"))
