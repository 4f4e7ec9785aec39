"""Warnings and notes about the values of programs without errors.

Each rule is one function that looks at one op and what it is computed from. It names the ops that it starts at and
gives a finding, or None; `RULES` lists them all. A rule speaks only where the ops show the mistake: a value of which
nothing is known, such as a parameter, is not a mistake by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tessera.compiler.frontend.checks import alignment, cancellation, launches, memory, precision, softmax, zeros
from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.checks.ranges import name_of
from tessera.compiler.frontend.evaluate.report import AnalysisRecord, Report
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import outside_kernels
from tessera.errors import Diagnostic, Span

Rule = Callable[[Op, Look], "Finding | None"]

RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("div", "mul"), softmax.unshifted),
    (("div",), softmax.by_hand),
    (("for",), softmax.unrescaled),
    (("mul",), softmax.rescaled_twice),
    (("cast",), precision.unscaled),
    (("for",), precision.narrow_sum),
    (("add", "sub"), precision.unrolled_sum),
    (("sub", "add"), cancellation.exponential_less_one),
    (("sub",), cancellation.one_less_cosine),
    (("sub",), cancellation.difference_of_means),
    (("log",), cancellation.logarithm_of_one_more),
    (("log",), cancellation.logarithm_of_activation),
    (("sqrt",), cancellation.root_of_squares),
    (("log", "log2", "log10"), zeros.logarithm),
    (("div", "rsqrt", "reciprocal"), zeros.divisor),
    (("load", "store", "copy_async"), memory.strided),
    (("gather", "scatter"), memory.strided_lanes),
    (("mma",), memory.off_tensor_cores),
    (("launch",), launches.unseen),
)
"""names of the ops that a rule starts at (without their dialect: it holds in both), and the rule"""
KERNEL_RULES: tuple[Callable[[list[Op], Look], Iterable[Finding]], ...] = (
    memory.shared_memory,
    memory.never_read,
    alignment.narrow_accesses,
)
"""rules about all ops of a kernel"""

_BY_NAME: dict[str, list[Rule]] = {}
for _names, _rule in RULES:
    for _name in _names:
        _BY_NAME.setdefault(_name, []).append(_rule)


def check_values(record: AnalysisRecord) -> None:
    """Adds what the rules find to the findings, with what may mend it."""
    derived = {inner for op in record.derived for inner in op.walk()}
    look, ops = Look(record), [op for op in outside_kernels(record.block, *record.tried) if op not in derived]
    for op in ops:
        for rule in _BY_NAME.get(name_of(op), ()):
            if (found := rule(op, look)) is not None:
                _add(record, found if op.span.file == look.file else found.seen_from(_used_at(op, look.file)))
    for whole in KERNEL_RULES if look.kernel else ():
        for found in whole(ops, look):
            _add(record, found)


def _used_at(op: Op, file: str) -> Span | None:
    """Where in this file the result of an op of an imported function is used."""
    queue, seen = [op], {id(op)}
    while queue:
        at = queue.pop(0)
        if at.span.file == file:
            return at.span
        for user in [u for r in at.results for u in r.users if id(u) not in seen]:
            seen.add(id(user))
            queue.append(user)
    return None


def _add(report: Report, found: Finding) -> None:
    before = len(report.findings.items)
    report.findings.add(Diagnostic(found.code, found.message, found.span, found.severity, found.notes))
    if len(report.findings.items) > before and found.candidates:
        report.pending.append((before, found.candidates))
