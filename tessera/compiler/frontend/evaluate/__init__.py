"""The abstract interpreter: `machine` walks a function's tree; each of the others says what some of its nodes mean."""

from __future__ import annotations

from tessera.compiler.frontend.evaluate import (
    builtins,
    calls,
    control,
    expressions,
    operators,
    statements,
    transforms,
    undecided,
)

__all__ = ["builtins", "calls", "control", "expressions", "operators", "statements", "transforms", "undecided"]
