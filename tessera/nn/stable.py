"""Other names of operators: `ts.softmax` and the like are always stable, because they subtract the largest element
before `exp`, so nothing overflows. And of optimizers: each is fused into one program for all parameters.
"""

from __future__ import annotations

import importlib

import tessera as ts

_optimizers = importlib.import_module("tessera.optimizers")  # stands above `nn`, which it is written with
FusedAdamW = _optimizers.AdamW
FusedSGD = _optimizers.SGD

softmax_safe = ts.softmax
log_softmax_safe = ts.log_softmax
logsumexp_safe = ts.logsumexp
cross_entropy_safe = ts.cross_entropy
layernorm_safe = ts.layer_norm
rmsnorm_safe = ts.rms_norm
attention_safe = ts.attention
