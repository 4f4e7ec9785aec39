"""The entry of the front end: the analysis of one function or kernel."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.result import Analysis, ArgType


def analyse(
    definition: Definition, arguments: Mapping[str, ArgType] | None = None, dims: Mapping[str, int] | None = None
) -> Analysis:
    """Evaluates a function or kernel.

    `arguments` None: types come from the annotations, sizes are symbols. Otherwise it maps each parameter to its type.
    `dims` fixes named sizes. Never raises for a fault of the program: every finding is in `Analysis.diagnostics`.
    """
    from tessera.compiler.frontend.evaluation import run  # slow: 0.2 s before a language server's first answer

    return run(definition, arguments, dims or {})
