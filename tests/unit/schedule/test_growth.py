"""How the work of scheduling grows with a function: in proportion, whatever its shape. Calls are counted."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.collector import collector_paused
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.ir.core import Block, Op, clone
from tessera.compiler.ir.printer import Printer
from tessera.compiler.pipeline import passes
from tessera.compiler.schedule.dependencies import Dependencies
from tessera.compiler.schedule.graph_to_schedule import graph_to_schedule

ROOT = Path(__file__).parents[3]
HEAD = "import tessera as ts\n@ts.function\ndef f(x: ts.Tensor['S', 'D', 'f32'], w: ts.Tensor['D', 'D', 'f32']):\n    "


def chain(n: int) -> list[str]:
    return ["y = x", *(("y = ts.sin(y)", "y = y * 0.5", "y = y - x")[i % 3] for i in range(n)), "return y"]


def named(n: int) -> list[str]:
    """Every value has a name and is used once more, far below."""
    first = [f"v{i} = ts.sin(v{i - 1}) + x" for i in range(1, n // 2)]
    return ["v0 = x", *first, "s = x", *(f"s = s + v{i}" for i in range(n // 2)), "return s"]


def blocks(n: int) -> list[str]:
    """Nearly nothing fuses, and everything leads to everything below."""
    steps = [
        (f"a{i} = v{i - 1} @ w", f"b{i} = ts.sum(v{i - 1}, axis=-1, keepdims=True)", f"v{i} = a{i} + b{i} + v{i // 2}")
        for i in range(1, n // 3)
    ]
    return ["v0 = x", *(line for step in steps for line in step), f"return v{n // 3 - 1}"]


def graph(program: Callable[[int], list[str]], n: int) -> Op:
    file = FileAnalysis(f"{program.__name__}{n}.py")
    file.update(HEAD + "\n    ".join(program(n)) + "\n")
    op = file.analyses[0].op
    assert op is not None
    op = clone(op, {})
    for transform in passes("graph"):
        transform.run(op)
    return op


def counted(work: Callable[[], object]) -> int:
    """How many functions it calls, those of C as well; none that end what earlier tests have left."""
    calls = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.collect()
    with collector_paused():
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(before)
    return calls


def scheduled(program: Callable[[int], list[str]], n: int) -> int:
    op = graph(program, n)
    return counted(lambda: graph_to_schedule(op, "cpu"))


def scheduled_alone(program: Callable[[int], list[str]], n: int) -> int:
    """In a process of its own: behind other tests some 3 % more calls are counted."""
    text = f"from {__name__} import *; print(scheduled({program.__name__}, {n}))"
    run = subprocess.run([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return int(run.stdout)


@pytest.mark.parametrize("program", [chain, named, blocks])
def test_twice_the_lines_are_twice_the_work(program):
    few, many = scheduled_alone(program, 300), scheduled_alone(program, 600)
    assert many < 2.3 * few
    assert many < 700 * 600, "and what each line costs is not the size of the group that it comes into"


def test_names_are_found_without_a_search():
    """As many values of one hint as there are lines: the next number is known."""
    printer = Printer()

    class Counted(set[str]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            self.asked += 1
            return super().__contains__(name)

    printer._taken = taken = Counted()
    for op in graph(chain, 300).walk():
        for v in op.results:
            printer.name(v)
    assert len(taken) >= 300 and taken.asked <= 3 * len(taken)


def test_names_are_what_a_search_finds():
    hints = ["y", "y_1", "y", "", "1bad", "y_3", "y", "y", "y_1", "0"]
    block = Block([graph(chain, 3).region.block.args[0].type] * len(hints), hints)
    printer = Printer()
    assert [printer.name(v) for v in block.args] == [
        "%y", "%y_1", "%y_2", "%0", "%1", "%y_3", "%y_4", "%y_5", "%y_1_1", "%2"
    ]  # fmt: skip


def test_positions_in_a_block_are_those_of_its_list():
    block = graph(chain, 200).region.block
    for op in (*block.ops, *block.ops[::-1], block.ops[150], block.ops[3], block.ops[40]):
        assert block.index(op) == block.ops.index(op)
    gone = block.ops.pop(7)
    with pytest.raises(ValueError):
        block.index(gone)


def test_groups_depend_on_what_a_walk_finds():
    """Against a plain search, while needs are added and groups are merged."""
    import random

    chance = random.Random(7)
    for _ in range(200):
        known: Dependencies[int] = Dependencies()
        needs: dict[int, set[int]] = {g: set() for g in range(12)}

        def reaches(g: int, on: int, through: bool = False, needs: dict[int, set[int]] = needs) -> bool:
            seen, todo = set(), [k for k in needs[g] if not through or k != on]
            while todo:
                k = todo.pop()
                if k == on:
                    return True
                if k not in seen:
                    seen.add(k)
                    todo += needs[k]
            return False

        for _ in range(40):
            g, h = chance.sample(sorted(needs), 2)
            if chance.random() < 0.8 or len(needs) < 4:
                if not reaches(h, g):
                    known.add(g, h)
                    needs[g].add(h)
            elif not reaches(g, h, through=True) and not reaches(h, g, through=True):
                known.merge(g, h)
                needs[g] = (needs[g] | needs.pop(h)) - {g, h}
                for k, own in needs.items():
                    if h in own:
                        own.discard(h)
                        own.add(g)
                    assert k not in own
            for a in needs:
                for b in needs:
                    assert a == b or known.known(a, on=b) == reaches(a, b), (a, b)
