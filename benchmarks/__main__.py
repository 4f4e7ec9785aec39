"""python -m benchmarks [NAME ...] runs the named measurements, one after the other.

Names: cpu, training, examples, breadth, predictions, hints, operators, frontend, editor, edits, growth, memory,
runtime, views, nvrtc, gpu, which are also those that run without a name; mutations, which takes half an hour; and
peaks, a row of training. Options go to the one named:
python -m benchmarks cpu --quick
"""

from __future__ import annotations

import subprocess
import sys

MEASUREMENTS = (
    "cpu", "training", "examples", "breadth", "predictions", "hints", "operators", "frontend", "editor", "edits",
    "growth", "memory", "runtime", "views", "nvrtc", "gpu",
)  # fmt: skip
BY_NAME = ("mutations", "peaks")
"""what takes too long to be run unasked, or is a part of another"""


def main(arguments: list[str]) -> int:
    """Each measurement runs in a process of its own, so that none inherits another's memory, threads or caches."""
    cut = next((i for i, a in enumerate(arguments) if a.startswith("-")), len(arguments))
    names, options = arguments[:cut] or list(MEASUREMENTS), arguments[cut:]
    options = options[1:] if options[:1] == ["--"] else options
    unknown = [n for n in names if n not in (*MEASUREMENTS, *BY_NAME)]
    if unknown:
        print(f"There is no measurement {unknown[0]!r}; known: {', '.join([*MEASUREMENTS, *BY_NAME])}", file=sys.stderr)
        return 2
    if options and len(names) > 1:
        print(f"Name the one measurement that is to have {' '.join(options)}", file=sys.stderr)
        return 2
    status = 0
    for name in names:
        print(f"\n# {name}", flush=True)
        run = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
        status = status or run.returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
