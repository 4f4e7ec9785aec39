"""The figures of this processor, measured when somebody first asks what it can do."""

from __future__ import annotations

import time

from tessera import knobs
from tessera.compiler.figures import Figures, figures, keep
from tessera.errors import MissingDependency
from tessera.runtime.locks import Locked

AGAIN = 600
"""seconds after which a disturbed measurement is tried again"""
_measuring = Locked()


def measured_figures() -> Figures:
    """Those that are kept, measured now if there are none, or if other work disturbed the measurement and that is long
    ago. With TESSERA_FIGURES=usual, and without llvmlite, nothing is measured."""
    with _measuring.lock:
        known = figures()
        lasting = known.measured and not (known.disturbed and time.time() - known.when > AGAIN)
        if lasting or knobs.figures() == "usual":
            return known
        try:
            return measured_again()
        except MissingDependency:
            return known


def measured_again() -> Figures:
    """Measures them now, within about a second, and keeps the best of now and before. Raises MissingDependency without
    llvmlite."""
    from tessera.compiler.targets.cpu.measure import measure  # slow: LLVM, where the figures are known

    with _measuring.lock:  # measurements at the same time would measure each other
        return keep(measure())
