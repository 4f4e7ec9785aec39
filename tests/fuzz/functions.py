"""Random functions on every target against NumPy (see `programs` and `oracle`), and with 1 and 2 threads, bit by bit.

    python -m tests.fuzz functions --count 100000 --seed 1 --workers 2

Work runs in child processes, so that a crash of one is a fault like others. Each fault is printed as a file that runs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import itertools
import json
import linecache
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tests.fuzz.levels import NARROWER
from tests.fuzz.programs import HELD, Program, program
from tests.fuzz.values import Unfit, Wanted

EMULATOR = "emulator:sm_80"
BATCH = 400
LONGEST = 240
"""seconds that a program and making it smaller may take"""
_files = itertools.count()


@dataclass(frozen=True)
class Fault:
    """What went wrong with a program on a target. `kind`: wrong, threads, internal, refused, crash, hang."""

    kind: str
    target: str
    said: str


def function(p: Program) -> Callable[..., Any]:
    """The program as a function of Tessera."""
    file = f"<fuzz {next(_files)}>"
    linecache.cache[file] = (len(p.text), None, p.text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"ts": ts}
    exec(compile(p.text, file, "exec"), names)
    return ts.function(names["f"])


def flat(found: Any) -> list[Any]:
    return [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,))]


def difference(found: Sequence[Any], wanted: Sequence[Wanted]) -> str:
    """What tells a result from what is wanted; empty where it is right."""
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape:
            return f"result {n} has the shape {a.shape}, not {b.shape}"
        if a.dtype != np.dtype(b.kind.held):
            return f"result {n} has the dtype {a.dtype}, not {np.dtype(b.kind.held)}"
        a = a.astype(b.kind.wide)
        with np.errstate(all="ignore"):
            near = (a == b.value) | (abs(a - b.value) <= 2 * b.error) if b.kind.letter in "fc" else a == b.value
            right = near | (np.isnan(a) & np.isnan(b.value)) if b.kind.letter in "fc" else near
            if b.kind.letter == "c":  # which parts of a product too large are NaN depends on the order of its factors
                right |= ~np.isfinite(a) & ~np.isfinite(b.value)
        if not np.all(right):
            where = tuple(int(i[0]) for i in np.nonzero(~np.atleast_1d(right)))
            place = where if a.shape else ()
            return f"result {n} at {place} is {a[place]}, not {b.value[place]} (to within {b.error:.3g})"
    return ""


def faults(p: Program, targets: Sequence[str]) -> Iterator[Fault]:
    """Runs the program on each target and compares. Raises Unfit where the oracle has no answer."""
    wanted = p.wanted()
    f = function(p)
    for target in targets:
        with knobs.target.override(target):
            try:
                results = [flat(f(*p.values()))]
                if target in ("cpu", *NARROWER):
                    with threads(2):
                        results.append(flat(f(*p.values())))
            except ts.TesseraError as e:
                code = e.diagnostics[0].code if getattr(e, "diagnostics", None) else str(e)
                yield Fault("internal" if "TS900" in str(e) else "refused", target, f"{code}: {e}")
                continue
            except Exception as e:
                yield Fault("internal", target, f"{type(e).__name__}: {e}")
                continue
        if said := difference(results[0], wanted):
            yield Fault("wrong", target, said)
        elif len(results) > 1 and any(a.tobytes() != b.tobytes() for a, b in zip(*results, strict=True)):
            yield Fault("threads", target, "1 and 2 threads give different bits")


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = ts.get_num_threads()
    ts.set_num_threads(count)
    try:
        yield
    finally:
        ts.set_num_threads(before)


def targets_of(seed: int, emulate: int) -> list[str]:
    """The targets that the program of a seed runs on: the emulator's compiler takes its time."""
    some = ["cpu", "reference"] if seed % 2 == 0 else ["cpu", *NARROWER[seed // 2 % 2 :][:1]]
    return [*some, EMULATOR] if emulate and seed % emulate == 0 and shutil.which("g++") else some


# Smaller programs


def smaller(p: Program) -> Iterator[Program]:
    """Programs with a bit less."""
    for n in range(len(p.returns)):
        if len(p.returns) > 1:
            yield replace(p, returns=p.returns[:n] + p.returns[n + 1 :])
    for n in reversed(range(len(p.blocks))):
        yield replace(p, blocks=p.blocks[:n] + p.blocks[n + 1 :])
        lines = p.blocks[n].splitlines(keepends=True)
        for i in range(len(lines) if len(lines) > 1 else 0):
            yield replace(p, blocks=(*p.blocks[:n], "".join(lines[:i] + lines[i + 1 :]), *p.blocks[n + 1 :]))
    used = " ".join([*p.blocks, *p.returns])
    for n, (name, _, annotation) in enumerate(p.arguments):
        if not any(name == word for word in words(used)):
            yield replace(p, arguments=p.arguments[:n] + p.arguments[n + 1 :])
        elif annotation and annotation != "int":
            yield replace(p, arguments=(*p.arguments[:n], (name, p.arguments[n][1], ""), *p.arguments[n + 1 :]))


def words(text: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def minimal(p: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that still fails, from which nothing can be taken."""
    shrunk = True
    while shrunk:
        shrunk = False
        for q in smaller(p):
            try:
                if fails(q):
                    p, shrunk = q, True
                    break
            except Exception:  # it is not a program any more, or has no result that can be predicted
                continue
    return p


def same_fault(fault: Fault) -> Callable[[Program], bool]:
    def fails(q: Program) -> bool:
        return any(f.kind == fault.kind and said_of(f) == said_of(fault) for f in faults(q, [fault.target]))

    return fails


def said_of(fault: Fault) -> str:
    """What faults of one cause have in common."""
    if fault.kind in ("refused", "internal"):
        return fault.said.split(":")[0]
    return "shape or dtype" if "has the" in fault.said else ""


def reproducer(p: Program, fault: Fault) -> str:
    """A file that shows the fault, and what the oracle wants."""
    shown = [f"{np.array2string(w.value, threshold=40)}, {HELD[w.kind.name]}" for w in p.wanted()]
    return script(p, fault) + "".join(f"# wanted: {line}\n" for s in shown for line in s.splitlines())


def script(p: Program, fault: Fault) -> str:
    """A file that runs the program on the target of the fault."""
    lines = [f"# seed {p.seed}: {fault.kind} on {fault.target}: {fault.said.strip().splitlines()[0]}"]
    lines += ["import ml_dtypes", "import numpy as np", "", "import tessera as ts", "", "", "@ts.function"]
    given = ", ".join(text for _, text, _ in p.arguments)
    lines += [*p.text.splitlines(), "", "", f"# TESSERA_TARGET={fault.target}", f"print(f({given}))"]
    return "\n".join(lines) + "\n"


# Runs


def run(seeds: Sequence[int], emulate: int, report: Callable[[dict[str, Any]], None]) -> None:
    """Tries the programs of these seeds and reports each start and each fault."""
    counts: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        report({"seed": seed})
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        p = program(seed)
        try:
            found = list(faults(p, targets_of(seed, emulate)))
        except Unfit:  # a way through it that was not gone when it was made
            counts["unfit"] += 1
            continue
        counts["tried"] += 1
        for fault in found:
            if fault.kind == "refused" and any(a[2].startswith("ts.") for a in p.arguments):
                counts["refused for open sizes"] += 1
                continue
            least = minimal(p, same_fault(fault))
            now = next((f for f in faults(least, [fault.target]) if f.kind == fault.kind), fault)
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            report({"fault": fault.kind, "seed": seed, "text": reproducer(least, now)})
            counts[fault.kind] += 1
    report({"counts": dict(counts)})


def child(arguments: argparse.Namespace) -> int:
    for handle in (sys.stdout,):
        handle.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    ts.set_num_threads(1)
    with np.errstate(all="ignore"):
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        run(seeds, arguments.emulate, lambda note: print(json.dumps(note)))
    return 0


@dataclass
class Worker:
    """A child process and what it said last."""

    first: int
    count: int
    process: subprocess.Popen[str]
    last: int = -1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz functions", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the others follow")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--emulate", type=int, default=50, help="every how many programs run in the emulator; 0: none")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    return child(given) if given.child else parent(given)


def parent(given: argparse.Namespace) -> int:
    """Shares the seeds out in batches; a child that dies is a fault of the program it was at, and the rest goes on."""
    todo = [(s, min(BATCH, given.seed + given.count - s)) for s in range(given.seed, given.seed + given.count, BATCH)]
    todo.reverse()
    total: collections.Counter[str] = collections.Counter()
    started, workers = time.monotonic(), list[Worker]()
    while todo or workers:
        while todo and len(workers) < given.workers:
            workers.append(start(*todo.pop(), given.emulate))
        worker = workers.pop(0)
        status = listen(worker, total)
        if status:
            total["crash"] += 1
            print(f"# seed {worker.last}: the process ended with {status}\n{program(worker.last).text}", flush=True)
            if (left := worker.first + worker.count - worker.last - 1) > 0:
                todo.append((worker.last + 1, left))
        seconds = time.monotonic() - started
        print(
            f"# {sum(total[n] for n in ('tried', 'crash'))} programs, {seconds:.0f} s: {dict(total)}", file=sys.stderr
        )
    wrong = sum(n for kind, n in total.items() if kind in ("wrong", "threads", "internal", "refused", "crash"))
    print(f"{total['tried']} programs tried, {wrong} faults: {dict(total)}")
    return 1 if wrong else 0


def start(first: int, count: int, emulate: int) -> Worker:
    options = ["--child", "--seed", str(first), "--count", str(count), "--emulate", str(emulate)]
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "functions", *options]
    return Worker(first, count, subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


def listen(worker: Worker, total: collections.Counter[str]) -> int:
    """Reads what a child reports until it ends."""
    assert worker.process.stdout is not None
    for line in worker.process.stdout:
        note = json.loads(line)
        if "counts" in note:
            total.update(note["counts"])
        elif "text" in note:
            print(note["text"], flush=True)
        else:
            worker.last = note["seed"]
    return worker.process.wait()
