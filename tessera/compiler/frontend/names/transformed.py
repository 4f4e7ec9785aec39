"""A function under a transform, as a value of a program: `ts.grad(loss)`, not yet called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tessera.compiler.frontend.names.values import Described
from tessera.language.transforms import Transform


@dataclass(frozen=True, eq=False)
class TransformedRef(Described):
    """`function` is whatever the evaluator can call. Not `slots`: its fingerprint is that of what it holds."""

    transform: Transform
    function: Any

    @property
    def described(self) -> str:
        name = getattr(self.function, "name", None) or getattr(self.function, "__name__", "a function")
        return f"the function {self.transform.name}({name})"
