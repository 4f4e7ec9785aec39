"""`ts.optimizers`: update rules over all parameters of a model at once, schedules, averages.

    opt = ts.optimizers.AdamW(lr=1e-3)
    state = opt.init(model)
    loss, gradient = step(model, x, y)  # of ts.value_and_grad
    model, state = opt.update(model, gradient, state)
    state.report  # StepReport(applied=True, reason='', grad_norm=0.31, scale=1.0)

Optimizers are written in Tessera: one compiled program for the whole model. Modules load at first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tessera.language.absent import instead, no_name
from tessera.tracebacks import outward

_HOME = {
    **dict.fromkeys(("Optimizer",), "base"),
    **dict.fromkeys(("Group",), "groups"),
    **dict.fromkeys(("OptimizerState", "StepReport"), "memory"),
    **dict.fromkeys(("SGD", "Adam", "AdamW", "Adagrad", "LAMB", "Lion", "Muon", "RMSprop"), "rules"),
    **dict.fromkeys(("Adafactor", "SOAP", "Shampoo"), "preconditioned"),
    **dict.fromkeys(
        ("Constant", "Linear", "Cosine", "Exponential", "InverseSqrt", "Joined", "OneCycle", "Polynomial"), "schedules"
    ),
    **dict.fromkeys(("EMA", "ClipNorm", "ClipValue", "accumulate", "chain", "clip_grad_norm"), "gradients"),
    **dict.fromkeys(("TrainingState",), "state"),
    **dict.fromkeys(("BoundOptimizer",), "bound"),
}
__all__ = [
    "EMA", "LAMB", "SGD", "SOAP", "Adafactor", "Adagrad", "Adam", "AdamW", "BoundOptimizer", "ClipNorm", "ClipValue",
    "Constant", "Cosine", "Exponential", "Group", "InverseSqrt", "Joined", "Linear", "Lion", "Muon", "OneCycle",
    "Optimizer", "OptimizerState", "Polynomial", "RMSprop", "Shampoo", "StepReport", "TrainingState", "accumulate",
    "chain", "clip_grad_norm",
]  # fmt: skip


def _found(name: str) -> Any:
    if name not in _HOME:
        raise no_name("tessera.optimizers", name, instead(name, __name__) or f"it has {', '.join(__all__)}")
    found = globals()[name] = getattr(importlib.import_module(f"tessera.optimizers.{_HOME[name]}"), name)
    return found


__getattr__: Callable[[str], Any] = outward(_found)  # mypy passes over a __getattr__ that is decorated


def __dir__() -> list[str]:
    return __all__
