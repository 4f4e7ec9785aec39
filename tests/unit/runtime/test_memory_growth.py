"""New shapes do not make a process grow without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import gc
from benchmarks.memory import bound, grown

def held():
    gc.collect()
    code = sum("x" in line.split()[1] for line in open("/proc/self/maps", encoding="ascii"))
    return len(gc.get_objects()), code

bound(16)
grown(180, 1000)  # what is kept is full; tables of the compiler are, and malloc's pools have their size
before = held()
weight = grown(100, 2000)
print(*(now - then for now, then in zip(held(), before)), weight)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_stays_level_over_new_shapes(own_cache: Path) -> None:
    """A shape that is kept is hundreds of objects, code of its own, and some 60 KiB."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    objects, code, weight = map(int, done.stdout.split())
    assert objects < 100 * 10 and code < 10 and weight < 3000, done.stdout


def test_launches_in_use_are_not_released(own_cache: Path) -> None:
    """A call that makes room for others goes on itself; what is called again and again stays prepared."""
    code = """
import warnings
import numpy as np, tessera as ts
from benchmarks.memory import bound
from tessera.runtime.call import dispatch as sites
bound(4)
warnings.simplefilter("ignore", ts.RecompilationWarning)  # this program is about many sizes

@ts.function
def doubled(x: ts.Tensor["n", ts.f32]):
    return x * 2

usual = np.ones(7, np.float32)
doubled(usual)
(site,) = doubled.launcher.sites.values()
(ready,) = site.table.values()
for n in range(8, 40):
    assert (doubled(np.ones(n, np.float32)) == 2).all()
    assert (doubled(usual) == 2).all()
    assert any(kept is ready for kept in site.table.values()), n
    assert len(site.table) <= 4
print(len(site.table))
"""
    program = own_cache / "program.py"
    program.write_text(code)
    run = "import runpy, sys; runpy.run_path(sys.argv[1])"  # the benchmarks lie in the present folder
    done = subprocess.run([sys.executable, "-c", run, str(program)], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("4\n", "")
