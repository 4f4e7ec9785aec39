"""The programs of examples/ that train, at full size: each says what it reached, and fails where that is too little.

python -m benchmarks examples [-- --only NAME]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import only_of

EXAMPLES = Path(__file__).parents[1] / "examples"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    only_of(parser)
    options = parser.parse_args()
    status = 0
    for path in sorted(EXAMPLES.glob("*.py")):
        if options.only.takes(path.stem):
            start = time.perf_counter()
            run = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, text=True, check=False)
            said = (run.stdout.splitlines() or ["nothing said"])[-1]
            print(f"{path.stem:16s} {time.perf_counter() - start:6.0f} s  {said}", flush=True)
            status = status or run.returncode
    options.only.demand()
    return status


if __name__ == "__main__":
    sys.exit(main())
