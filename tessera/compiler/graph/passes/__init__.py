"""The passes over Graph IR, in order: the first part of the pipeline's list, which editors run as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.compiler.graph.passes.canonicalize import canonicalize
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.graph.passes.eliminate_common import eliminate_common
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.graph.passes.for_to_while import for_to_while
from tessera.compiler.ir.core import Op

GRAPH_PASSES: tuple[Callable[[Op], Any], ...] = (
    canonicalize,  # first on what the user wrote: it folds what the decompositions would only multiply
    for_to_while,  # before decomposition, which then also reaches into the loops it makes
    decompose,  # softmax, layer_norm ... become the structural kinds that lowering knows
    canonicalize,  # decompositions leave reshapes of reshapes and casts to the same dtype
    eliminate_common,  # after canonical forms, so that equal things look equal: one max(x) serves two softmaxes
    eliminate_dead,  # last: the others leave unused ops behind
)
