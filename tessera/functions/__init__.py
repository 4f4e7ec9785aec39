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
    **dict.fromkeys(("unflatten", "vdot", "select", "block_diag", "diag_embed", "array_split"), "arranging"),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), "arranging"),
    **dict.fromkeys(("isclose", "allclose", "nan_to_num", "fmod", "frac", "fmax", "fmin", "heaviside"), "elementwise"),
    **dict.fromkeys(("logit", "sinc", "deg2rad", "rad2deg", "has_nan"), "elementwise"),
    **dict.fromkeys(("degrees", "radians", "angle", "cbrt", "isposinf", "isneginf"), "elementwise"),
    **dict.fromkeys(("lgamma", "digamma"), "gamma"),
    **dict.fromkeys(("erfc", "erfinv"), "gaussian"),
    **dict.fromkeys(("mish", "selu", "celu", "hardtanh", "hardsigmoid", "hardswish", "relu6"), "activations"),
    **dict.fromkeys(("logsigmoid", "softsign", "glu", "prelu"), "activations"),
    **dict.fromkeys(("softmin", "softshrink", "hardshrink", "tanhshrink", "threshold"), "activations"),
    **dict.fromkeys(("nansum", "nanmean", "nanmax", "nanmin", "median", "quantile", "average", "ptp"), "statistics"),
    **dict.fromkeys(("percentile", "nanmedian", "nanvar", "nanstd"), "statistics"),
    **dict.fromkeys(("cov", "corrcoef", "bincount", "histogram", "trapezoid"), "statistics"),
    **dict.fromkeys(("searchsorted", "digitize", "bucketize", "isin", "interp"), "searching"),
    **dict.fromkeys(("normalize", "cosine_similarity", "cdist"), "distances"),
    **dict.fromkeys(("interpolate", "pixel_shuffle", "pixel_unshuffle", "affine_grid", "grid_sample"), "images"),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), "images"),
    **dict.fromkeys(("convolve", "correlate", "gradient", "unwrap", "polyval"), "sequences"),
    **dict.fromkeys(("split_key",), "keys"),
    **dict.fromkeys(("gumbel", "exponential", "laplace", "categorical", "permutation", "gumbel_softmax"), "draws"),
}
"""the module of each name"""
METHODS = frozenset(
    (
        *("allclose", "angle", "bincount", "corrcoef", "cov", "cross", "deg2rad", "degrees", "diag", "diag_embed"),
        *("diagonal", "digamma", "erfc", "erfinv", "fliplr", "flipud", "fmax", "fmin", "fmod", "frac", "heaviside"),
        *("index_select", "inner", "isclose", "isin", "isneginf", "isposinf", "kron", "lgamma", "logit", "median"),
        *("nan_to_num", "nanmean", "nanmedian", "nansum", "narrow", "ptp", "quantile", "rad2deg", "radians", "rot90"),
        *("sinc", "trace", "unflatten", "vdot"),
    )
)
"""those that are methods of tensors too: `x.median()`, as in NumPy or PyTorch"""


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'tessera.functions' has no attribute {name!r}")
    value = deferred("runtime.eager.made").made(
        getattr(importlib.import_module(f"tessera.functions.{HOME[name]}"), name)
    )
    globals()[name] = value
    return value
