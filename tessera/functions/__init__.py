"""Functions that are made of operators, written as a user of Tessera would write them: to be read and copied.

They are called as `ts.median`, in functions and outside. What compiles to one kernel, or has derivatives of its own, is
an operator (`tessera/compiler/graph/operators`). Modules load at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from tessera.deferred import deferred

HOME = {
    **dict.fromkeys(("meshgrid", "vstack", "hstack", "dstack", "column_stack", "kron", "cross", "inner"), "arranging"),
    **dict.fromkeys(("diag", "diagonal", "trace", "rot90", "fliplr", "flipud", "narrow", "index_select"), "arranging"),
    **dict.fromkeys(("unflatten", "vdot"), "arranging"),
    **dict.fromkeys(("isclose", "allclose", "nan_to_num", "fmod", "frac", "fmax", "fmin", "heaviside"), "elementwise"),
    **dict.fromkeys(("logit", "sinc", "deg2rad", "rad2deg", "has_nan"), "elementwise"),
    **dict.fromkeys(("lgamma", "digamma"), "gamma"),
    **dict.fromkeys(("mish", "selu", "celu", "hardtanh", "hardsigmoid", "hardswish", "relu6"), "activations"),
    **dict.fromkeys(("logsigmoid", "softsign", "glu", "prelu"), "activations"),
    **dict.fromkeys(("nansum", "nanmean", "nanmax", "nanmin", "median", "quantile", "average", "ptp"), "statistics"),
    **dict.fromkeys(("cov", "corrcoef", "bincount", "histogram", "trapezoid"), "statistics"),
    **dict.fromkeys(("searchsorted", "digitize", "bucketize", "isin", "interp"), "searching"),
    **dict.fromkeys(("normalize", "cosine_similarity", "cdist"), "distances"),
    **dict.fromkeys(("interpolate", "pixel_shuffle"), "images"),
    **dict.fromkeys(("split_key",), "keys"),
    **dict.fromkeys(("gumbel", "exponential", "laplace", "categorical", "permutation"), "draws"),
}
"""the module of each name"""


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'tessera.functions' has no attribute {name!r}")
    value = deferred("runtime.eager.made").made(
        getattr(importlib.import_module(f"tessera.functions.{HOME[name]}"), name)
    )
    globals()[name] = value
    return value
