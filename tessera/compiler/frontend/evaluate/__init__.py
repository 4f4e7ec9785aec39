"""The abstract interpreter: `machine` walks a function's tree; each other module evaluates some kinds of nodes."""

from __future__ import annotations

from tessera.compiler.frontend.evaluate import (
    builtins,
    calls,
    control,
    expressions,
    operators,
    python_modules,
    statements,
    transforms,
    undecided,
)

__all__ = [
    "builtins", "calls", "control", "expressions", "operators", "python_modules", "statements", "transforms",
    "undecided",
]  # fmt: skip
