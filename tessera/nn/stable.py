"""Operators under the names of programs that ask for stable ones.

`ts.softmax` and its like are stable always: they subtract the largest element before they take powers, so that none
overflows.
"""

from __future__ import annotations

import tessera as ts

softmax_safe = ts.softmax
log_softmax_safe = ts.log_softmax
logsumexp_safe = ts.logsumexp
cross_entropy_safe = ts.cross_entropy
layernorm_safe = ts.layer_norm
rmsnorm_safe = ts.rms_norm
attention_safe = ts.attention
