"""The abstract interpreter: `machine` walks a function's tree; each other module evaluates some kinds of nodes."""

from __future__ import annotations

from tessera.compiler.frontend.evaluate import (
    calls,
    control,
    expressions,
    operators,
    statements,
    transforms,
    undecided,
)
from tessera.compiler.frontend.evaluate.python import builtins, drawn_arrays, modules

__all__ = [
    "builtins", "calls", "control", "drawn_arrays", "expressions", "modules", "operators", "statements", "transforms",
    "undecided",
]  # fmt: skip
