"""Kernels that stay right where the textbook formula overflows: at 1e38, at -inf, with nothing to attend to.

    from tessera.kernels import attention_safe, layernorm_safe, logsumexp_safe, rmsnorm_safe, softmax_safe

They are written as a user of Tessera would write them, to be read and copied. Four are `@ts.function`s: they reduce any
axis, and a function that calls them has them inlined and fused with what stands around. Attention is a `@ts.kernel`,
because its point is an order of work: the scores of a block of queries never reach memory.

All compute in f32 (f64 for f64), give back the dtype of their input, and take NaN to NaN. Modules load at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    **dict.fromkeys(("softmax_safe", "logsumexp_safe"), "rows"),
    **dict.fromkeys(("layernorm_safe", "rmsnorm_safe"), "norms"),
    **dict.fromkeys(("attention_safe",), "attention"),
}
__all__ = ["attention_safe", "layernorm_safe", "logsumexp_safe", "rmsnorm_safe", "softmax_safe"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tessera.kernels' has no attribute {name!r}; it has {', '.join(__all__)}")
    found = globals()[name] = getattr(importlib.import_module(f"tessera.kernels.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
