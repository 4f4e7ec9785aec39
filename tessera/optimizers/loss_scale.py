"""The factor of the loss that keeps gradients of narrow dtypes above their smallest number.

A dynamic one is halved after an overflow and doubled after `GROWTH` steps without one, as in mixed precision training
by P. Micikevicius et al. (2018).
"""

from __future__ import annotations

import math
from typing import Any

import tessera as ts
from tessera.errors import Diagnostic, LaunchError

FIRST = 65536.0
GROWTH = 2000
"""steps without overflow after which a dynamic scale is doubled"""


def checked_scale(scale: Any, of_policy: Any) -> Any:
    """The scale that an optimizer was given, as its argument or by its policy. Raises LaunchError TS105 if they differ,
    or it is none."""
    if of_policy is not None and scale not in (1.0, of_policy):
        message = f"loss_scale is {scale} and {of_policy} in numerics: leave one of them out"
        raise LaunchError(Diagnostic("TS105", message))
    scale = scale if of_policy is None else of_policy
    if isinstance(scale, str) and scale != "dynamic":
        raise LaunchError(Diagnostic("TS105", f"loss_scale is a number or 'dynamic', not {scale!r}"))
    if not isinstance(scale, str) and not 0 < scale < math.inf:
        raise LaunchError(Diagnostic("TS105", f"loss_scale is more than 0, not {scale!r}: gradients are divided by it"))
    return scale


def first_scale(scale: float | str) -> float:
    """The scale of the first step."""
    return FIRST if isinstance(scale, str) else float(scale)


def next_scale(scale, good, fine):
    """The dynamic scale, and the count of steps without overflow, after a step that was `fine` or overflowed.

    `good` counts that step already; the functions of an optimizer call this inside their programs.
    """
    grown = good >= GROWTH
    scale = ts.where(fine, ts.where(grown, scale * 2.0, scale), ts.maximum(scale * 0.5, 1.0))
    return scale, ts.where(grown, 0, good)
