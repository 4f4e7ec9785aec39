"""python -m benchmarks.mutations [--sample 1000] [--seed 0] [--jobs 2] [--minutes 40] [--log FILE] [--save]"""

from __future__ import annotations

import argparse
import math
import os
import sys

import benchmarks.mutations
from benchmarks.mutations.run import run
from benchmarks.record import save


def main() -> int:
    parser = argparse.ArgumentParser(
        description=benchmarks.mutations.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, help="try so many, spread over the texts (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per processor)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after about so many (default: all)")
    parser.add_argument("--log", default="", help="a file for what has been found so far")
    parser.add_argument("--save", action="store_true", help="keep the score in benchmarks/results/mutations.json")
    options = parser.parse_args()
    score = run(options.sample, options.seed, options.jobs, options.minutes, options.log)
    print(score.report())
    if options.save:
        print(f"kept in {save('mutations', score.summary())}")
    return 1 if score.faults else 0


if __name__ == "__main__":
    sys.exit(main())
