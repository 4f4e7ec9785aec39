"""Many programs on the CPU target, each as a user writes it, against NumPy, PyTorch, JAX and Numba in the same run.

python -m benchmarks breadth [-- --threads N --only NAME --quick --compile --json --record]

Every result, the peers' too, is checked against f64 before anything is timed; samples of all take turns. `ratio` is the
best peer's median over ours: above 1 we are faster. `--quick`: an eighth of the sizes, a quarter of the time.
`--compile` adds torch.compile, seconds a row. `--record` keeps the figures in benchmarks/results/breadth.json: for a
machine that does nothing else; where it does, they are rough, and said to be.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from benchmarks import cpu, record
from benchmarks.harness import parser_of


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    cpu.load(options.threads)
    from benchmarks.breadth.suite import MAKERS  # slow: it imports the peers, which read how many threads they have

    rows: list[dict[str, Any]] = []
    for name, make in MAKERS.items():
        if options.only.takes(name):
            work = make(8 if options.quick else 1).work(name, compiled=options.compile)
            rows.append(cpu.measure(work, options.quick, options.threads, budget=2.0))
            if not options.json:
                cpu.show(rows[-1])
    options.only.demand()
    figures = {"threads": options.threads, "quick": options.quick, **summary(rows), "rows": rows}
    if options.json:
        json.dump(figures, sys.stdout, indent=1)
    elif rows:
        print(f"\n{figures['said']}")
    if options.record:
        record.save("breadth", figures)
    return 0


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean of the ratios, the rows behind, and how many samples had the processors for themselves."""
    if not rows:
        return {}
    mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
    clean, samples = (sum(int(r["clean"].split("/")[i]) for r in rows) for i in (0, 1))
    slow = sorted((r for r in rows if r["ratio"] < 0.8), key=lambda r: r["ratio"])
    behind = [f"{r['name']} {r['ratio']:.2f} ({r['best_peer']})" for r in slow]
    quiet = clean >= 0.9 * samples
    said = f"{len(rows)} rows, geometric mean {mean:.2f}; {len(slow)} under 0.8: {', '.join(behind) or 'none'}"
    if not quiet:
        said += f"\nRough: {samples - clean} of {samples} samples waited for a processor."
    return {"geometric_mean": mean, "behind": behind, "quiet": quiet, "said": said}


if __name__ == "__main__":
    sys.exit(main())
