"""The assert on sizes with which a GPU moves the memory of a function or kernel in whole vectors.

A kernel says the same while it is typed (TS417), where a GPU is the target; what a function becomes is found out when
somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.compiler.frontend.fixes import at_top
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.levels import NoIR
from tessera.compiler.machines import ANY_GPU, architecture_of, predicted_machine
from tessera.compiler.predict import program
from tessera.compiler.tile.offsets import bounds_of
from tessera.compiler.tile.vectors import Narrow, assertion, narrow, narrow_operands
from tessera.editor.functions import Known
from tessera.editor.kinds import ASSERT as KIND
from tessera.editor.open_file import OpenFile, Preferences
from tessera.editor.refactor import Offer, Selection, header_end, spread, tried
from tessera.errors import TesseraError


def offers(document: OpenFile, known: Known, selection: Selection, settings: Preferences) -> Iterator[Offer]:
    """Within the lines of `def`."""
    end = header_end(known)
    if end is None or not known.first_line <= selection.start[0] <= end.line:
        return
    target = settings.target if architecture_of(settings.target) else predicted_machine(ANY_GPU)
    before, sizes = _narrow(known.analysis, target), dict[str, int]()
    for access in before:
        for name in access.sizes if set(access.sizes) <= known.analysis.dims.keys() else ():
            sizes[name] = max(access.elements, sizes.get(name, 0))
    edit = at_top(known.analysis.definition, assertion(sizes)) if sizes else None
    after = tried(known, (edit,)) if edit is not None else None
    if edit is None or after is None:
        return
    title = f"Insert {assertion(sizes)}: a GPU then moves whole vectors"
    wrong = after.errors or spread(document, known, (edit,), known.analysis.name)
    if wrong:
        where = f"in {wrong[0].function}: " if wrong[0].function != known.analysis.name else ""
        yield Offer(title, KIND, disabled=where + wrong[0].message.partition("\n")[0])
    elif len(_narrow(after.analysis, target)) < len(before):
        yield Offer(title, KIND, (edit,))


def _narrow(analysis: Analysis, target: str) -> list[Narrow]:
    """Of what is launched, whatever its sizes are."""
    try:
        made = program(analysis, {}, target)
    except (NoIR, TesseraError):
        return []
    kernels = {launch.kernel: bounds_of(made, launch.kernel) for launch in made.launches}
    accesses = ((op, bounds) for kernel, bounds in kernels.items() for op in kernel.walk())
    return [n for op, bounds in accesses if (n := narrow(op, bounds) or narrow_operands(op, bounds)) is not None]
