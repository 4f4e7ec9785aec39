"""`python -m tests.fuzz NAME ...`: long runs of the fuzzers. Each module's `main(arguments)` gives the exit status."""

from __future__ import annotations

import importlib
import sys

from tests.fuzz import levels as levels  # targets that every fuzzer may be given

FUZZERS = {
    "arguments": "tests.fuzz.arguments",
    "backwards": "tests.fuzz.backwards",
    "blocks": "tests.fuzz.blocks",
    "certificates": "tests.fuzz.certificates",
    "faults": "tests.fuzz.faults",
    "frontend": "tests.fuzz.frontend",
    "functions": "tests.fuzz.functions",
    "fusion": "tests.fuzz.fusion",
    "gathers": "tests.fuzz.gathers",
    "gradients": "tests.fuzz.gradients",
    "indices": "tests.fuzz.indices",
    "lanes": "tests.fuzz.lanes",
    "mapped": "tests.fuzz.mapped",
    "mutants": "tests.fuzz.mutants",
    "peers": "tests.fuzz.peers",
    "products": "tests.fuzz.products",
    "rows": "tests.fuzz.rows",
    "stores": "tests.fuzz.stores",
    "tiles": "tests.fuzz.tiles",
    "transforms": "tests.fuzz.transforms",
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in FUZZERS:
        print(f"usage: python -m tests.fuzz {{{','.join(FUZZERS)}}} [--help]", file=sys.stderr)
        return 2
    return int(importlib.import_module(FUZZERS[arguments[0]]).main(arguments[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
