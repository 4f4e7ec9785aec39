"""A bounded slice of the random index arithmetic; `python -m tests.fuzz indices --help` runs more of it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.fuzz.guard import PAGE, Guarded
from tests.fuzz.index_programs import program
from tests.fuzz.indices import FAULTS, faults, reproducer, targets_of
from tests.fuzz.levels import NARROWER

SLICES, PROGRAMS = 5, 20


@pytest.mark.parametrize("part", range(SLICES))
def test_random_index_arithmetic(part: int) -> None:
    refused, every = 0, ",".join(("cpu", *(NARROWER if part == 0 else ())))
    for seed in range(1 + part * PROGRAMS, 1 + (part + 1) * PROGRAMS):
        p = program(seed)
        found = list(faults(p, targets_of(seed, 10, every)))
        refused += any(kind == "refused" for kind, _, _ in found)
        serious = [f for f in found if f[0] in FAULTS]
        assert not serious, f"{serious[0]}\n{reproducer(p)}"
    assert refused <= 2, "nearly all programs are programs"


@pytest.mark.parametrize("at_end,offset", [(True, 17), (False, -1)])
def test_guards_are_guards(at_end: bool, offset: int) -> None:
    """One element further ends the process."""
    text = (
        "import ctypes, numpy as np\nfrom tests.fuzz.guard import Guarded\n"
        f"m = Guarded(np.zeros(17, np.float32), {at_end})\nprint(m.array.sum(), flush=True)\n"
        f"ctypes.c_float.from_address(m.address + 4 * {offset}).value\n"
    )
    out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert out.stdout == "0.0\n" and out.returncode < 0
    assert Guarded(np.zeros(17, np.float32), at_end).address % PAGE == (PAGE - 68 if at_end else 0)
