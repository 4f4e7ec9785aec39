"""What to change and what it would bring: measured value, ideal, cause, change, and a range for the saving.

Each rule is a function from the recording to hints, listed in `RULES`. A range starts at what is sure and ends at what
is possible; a saving that may be nothing starts at 0. Rules say only what the recording shows, and advise only what the
author of the program can change: tile sizes are chosen in a `@ts.kernel`, and what runs in one call is in one function
already. A difference that is no larger than launches of the kernel differ among themselves is not spoken of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tessera.profiler.kernel_stats import KernelStats, kernel_stats
from tessera.profiler.recording import Recording
from tessera.profiler.rules.calls import compilation, fusable_neighbours, launch_overhead, outside_kernels
from tessera.profiler.rules.data import (
    copied_arguments,
    narrower_arrays,
    narrower_products,
    packed_weights,
    transposed_reads,
)
from tessera.profiler.rules.hint import VERSION, Hint
from tessera.profiler.rules.tiles import load_balance, low_occupancy, more_stages, narrow_tiles, small_tiles
from tessera.profiler.trial import ledger

# A hint that could save less than this part of the region is not worth the reader's time.
WORTH_SAYING = 0.01

ALIKE = 1.5
"""times as large, from which on the larger of two savings comes first: equal runs differ by less"""

Rule = Callable[[Recording, list[KernelStats]], Iterator[Hint]]
WITHIN_CALLS: tuple[Rule, ...] = (
    load_balance, small_tiles, narrow_tiles, low_occupancy, more_stages, narrower_products, narrower_arrays,
    packed_weights, copied_arguments, transposed_reads, compilation,
)  # fmt: skip
RULES: tuple[Rule, ...] = (*WITHIN_CALLS, fusable_neighbours, launch_overhead, outside_kernels)
"""The others look at what lies between calls, which is not known where only some are recorded."""


def hints(recording: Recording, silent: bool = False) -> list[Hint]:
    """All advice that the recording supports, largest possible saving first. With `silent`, also of rules whose ranges
    have held too few of what was measured (`ledger.Standing`)."""
    stats = kernel_stats(recording)
    rules = RULES if recording.calls_made is None else WITHIN_CALLS
    by_line = [sorted(rule(recording, stats), key=lambda hint: (hint.file, hint.line, hint.title)) for rule in rules]
    found = [hint for of_rule in by_line for hint in of_rule]
    worth = [hint for hint in found if hint.whole_run[1] >= WORTH_SAYING]
    if worth and not silent:
        wrong = {standing.rule for standing in ledger.standings(VERSION) if standing.silent}
        worth = [hint for hint in worth if hint.kind not in wrong]
    return list(_in_order(worth))


def _in_order(found: list[Hint]) -> Iterator[Hint]:
    """Largest possible saving first. Of those that are about as large, which equal runs would exchange, the one
    that was found first: by the order of the rules, and by the lines of the program."""
    left = list(found)
    while left:
        least = max(hint.saving[1] for hint in left) / ALIKE
        first = next(hint for hint in left if hint.saving[1] >= least)
        left.remove(first)
        yield first
