"""Other names of optimizers: every optimizer of `ts.optimizers` is fused into one program for all parameters."""

from __future__ import annotations

import importlib

_optimizers = importlib.import_module("tessera.optimizers")  # stands above `nn`, which it is written with
FusedAdamW = _optimizers.AdamW
FusedSGD = _optimizers.SGD
