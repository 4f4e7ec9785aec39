"""What is right but unwise: findings about the values of a program whose shapes and dtypes are in order.

Each rule is one function that looks at one op and what it is computed from. It names the ops that it starts at and
gives a finding, or None; `RULES` lists them all. A rule speaks only where the ops show the mistake: a value of which
nothing is known, such as a parameter, is no mistake by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tessera.compiler.frontend.checks import cancellation, precision, softmax, zeros
from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.checks.values import name_of
from tessera.compiler.ir.core import Op
from tessera.errors import Diagnostic

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator

Rule = Callable[[Op, Look], "Finding | None"]

RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("div",), softmax.unshifted),
    (("cast",), precision.unscaled),
    (("for",), precision.narrow_sum),
    (("sub", "add"), cancellation.exponential_less_one),
    (("sub",), cancellation.one_less_cosine),
    (("sub",), cancellation.difference_of_means),
    (("log",), cancellation.logarithm_of_one_more),
    (("log",), cancellation.logarithm_of_activation),
    (("sqrt",), cancellation.root_of_squares),
    (("log", "log2", "log10"), zeros.logarithm),
    (("div", "rsqrt", "reciprocal"), zeros.divisor),
)
"""names of the ops that a rule starts at (without their dialect: it holds in both), and the rule"""

_BY_NAME: dict[str, list[Rule]] = {}
for _names, _rule in RULES:
    for _name in _names:
        _BY_NAME.setdefault(_name, []).append(_rule)


def check_values(ev: Evaluator, ops: Iterable[Op]) -> None:
    """Adds what the rules find to the evaluator's findings, with what may mend it."""
    look = Look(ev)
    for op in ops:
        for rule in _BY_NAME.get(name_of(op), ()):
            found = rule(op, look)
            if found is None:
                continue
            before = len(ev.findings.items)
            ev.findings.add(Diagnostic(found.code, found.message, found.span, found.severity, found.notes))
            if len(ev.findings.items) > before and found.candidates:
                ev.pending.append((before, found.candidates))
