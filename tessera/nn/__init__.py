"""`ts.nn`: modules, layers and losses, and the operators under the names of other libraries.

    class Classifier(ts.nn.Module):
        hidden: ts.nn.Linear
        out: ts.nn.Linear

        def __call__(self, x):
            return self.out(ts.relu(self.hidden(x)))

    model = Classifier(ts.nn.Linear(64, 32, key=0), ts.nn.Linear(32, 10, key=1))

Layers are written as a user of Tessera would write them, to be read and copied. `ts.nn.relu` is the same function as
`ts.relu`. Modules of layers load at first use.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import Any

from tessera.deferred import deferred
from tessera.language.absent import instead, no_name
from tessera.tracebacks import outward

_HOME = {
    **dict.fromkeys(("Module", "Parameter", "buffer"), "module"),
    **dict.fromkeys(("Linear", "FusedLinearGeLU", "FusedLinearSiLU", "Embedding", "Dropout", "MLP", "SwiGLU"), "dense"),
    **dict.fromkeys(("LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), "norms"),
    **dict.fromkeys(("MultiHeadAttention", "SlidingWindowAttention", "FlashAttention2"), "heads"),
    **dict.fromkeys(("RoPE", "ALiBi", "rope", "alibi"), "heads"),
    **dict.fromkeys(("TransformerBlock", "EncoderLayer", "DecoderLayer", "Stack", "Sequential"), "transformer"),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), "convolution"),
    **dict.fromkeys(("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"), "convolution"),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d"), "pooling"),
    **dict.fromkeys(("TopKRouter", "MixtureOfExperts", "SwitchTransformer"), "experts"),
    **dict.fromkeys(("LSTM", "GRU"), "recurrent"),
    **dict.fromkeys(("FlashDecoding", "PagedAttention", "PagedCache"), "decoding"),
    **dict.fromkeys(("tree_ravel",), "vectors"),
    **dict.fromkeys(("StatefulObject", "StatefulTensor", "KVCache"), "state"),
    **dict.fromkeys(("MixedPrecision",), "mixed"),
    **dict.fromkeys(("binary_cross_entropy", "huber", "triplet_margin", "ctc_loss"), "losses"),
    **dict.fromkeys(("cross_entropy_safe", "FusedAdamW", "FusedSGD"), "stable"),
}
_MODULES = ("init", "stable", "tree")


@outward
def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"tessera.nn.{_HOME[name]}"), name)
        if isinstance(value, FunctionType) and _HOME[name] in ("heads", "losses"):
            value = deferred("runtime.eager.made").made(value)
    elif name in _MODULES:
        value = importlib.import_module(f"tessera.nn.{name}")
    else:
        value = _operator(name)
    globals()[name] = value  # the next access does not come here
    return value


def _operator(name: str) -> Any:
    operators = importlib.import_module("tessera.runtime.eager.operators")
    found = operators.function(name) if not name.startswith("_") else None
    if found is None:
        raise no_name("tessera.nn", name, instead(name, "tessera.nn") or operators.hint(name).removeprefix("; "))
    return found


def __dir__() -> list[str]:
    importlib.import_module("tessera.compiler.graph")  # fills the registry
    return sorted({*_HOME, *_MODULES, *importlib.import_module("tessera.compiler.graph.operator").FUNCTIONS})
