"""Predicted times of the programs of the breadth suite against measured ones.

python -m benchmarks predictions [-- --threads N --only NAME --quick --json]

The prediction is the one that editors and `explain()` show. It is a range, from full overlap of arithmetic and memory
traffic to none; `off` is how far its middle is from the median of the measured calls, as a part of that. The processor
is measured first, if its figures are not known. With `--threads 1` the processor's time is measured, which other
programs disturb less.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from benchmarks import cpu
from benchmarks.harness import compare, parser_of

GOAL = 0.25
"""of the measured time: how far half of the predictions may be off at most"""


def main() -> int:
    options = parser_of(__doc__).parse_args()
    cpu.load(options.threads)
    from benchmarks.breadth.suite import MAKERS  # slow: it imports the peers, which read how many threads they have

    rows: list[dict[str, Any]] = []
    for name, make in MAKERS.items():
        if options.only.takes(name):
            rows.append(_row(name, make(8 if options.quick else 1), options.threads, 0.15 if options.quick else 0.6))
            if not options.json:
                _show(rows[-1])
    options.only.demand()
    figures = {"threads": options.threads, "quick": options.quick, **summary(rows), "rows": rows}
    if options.json:
        json.dump(figures, sys.stdout, indent=1)
    elif rows:
        print(f"\n{figures['said']}")
    return 0


def _row(name: str, row: Any, threads: int, budget: float) -> dict[str, Any]:
    import tessera as ts
    from tessera.runtime.compiled import Compiled

    run = ts.function(row.ours)
    run(*row.arguments)
    compiled = Compiled.of_last_call(run)
    assert compiled is not None
    found = compiled.predicted()
    assert found.us is not None and found.most_us is not None, f"{name}: {found.text}"
    timing = compare({"tessera": lambda: run(*row.arguments)}, budget=budget, threads=threads)["tessera"]
    us, middle = timing.median * 1e6, (found.us + found.most_us) / 2
    return {
        "name": name, "least_us": found.us, "most_us": found.most_us, "measured_us": us, "off": middle / us - 1,
        "bound": found.bound, "launches": found.launches, "clean": f"{timing.clean}/{timing.samples}",
    }  # fmt: skip


def _show(row: dict[str, Any]) -> None:
    print(
        f"{row['name']:44s} {row['least_us']:9.1f} to {row['most_us']:9.1f} us   measured {row['measured_us']:9.1f} us"
        f"   {row['off']:+7.1%}   {row['bound']}",
        flush=True,
    )


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of how far predictions are off, and how many are within the goal."""
    if not rows:
        return {}
    off = sorted(abs(r["off"]) for r in rows)
    middle, within = statistics.median(off), sum(o <= GOAL for o in off)
    said = f"{len(rows)} predictions, half of them within {middle:.1%} of the measured time; {within} within {GOAL:.0%}"
    clean, samples = (sum(int(r["clean"].split("/")[i]) for r in rows) for i in (0, 1))
    if clean < 0.9 * samples:
        said += f"\nRough: {samples - clean} of {samples} samples waited for a processor."
    return {"median_off": middle, "within_goal": within, "said": said}


if __name__ == "__main__":
    sys.exit(main())
