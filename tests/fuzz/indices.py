"""Random kernels of index arithmetic on every target, between pages that nothing may touch, against plain Python.

    python -m tests.fuzz indices --count 100000 --seed 1 --targets cpu,baseline

Programs run in a child process, so that one which ends it is a fault like others. Each fault is printed as a file that
runs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.errors import CompileError, DebugCheckError, TesseraError
from tests.fuzz import index_oracle
from tests.fuzz.functions import threads
from tests.fuzz.guard import Guarded
from tests.fuzz.index_programs import HEADER, Program, program
from tests.kernel_runner import check

EMULATOR = "emulator:sm_80"
FAULTS = ("wrong", "internal", "outside", "crash")
_numbers = itertools.count()
_folder = tempfile.TemporaryDirectory()


def wanted(p: Program) -> list[np.ndarray]:
    arrays = p.arrays()
    names: dict[str, Any] = {"ts": index_oracle, "keep": index_oracle.keep}
    exec(compile(p.plain, f"<oracle {p.seed}>", "exec"), names)
    with np.errstate(all="ignore"):
        names["k"](*map(index_oracle.Memory, arrays), **p.sizes)
    return arrays


def kernel(p: Program) -> Any:
    path = Path(_folder.name) / f"fuzzed{next(_numbers)}.py"
    path.write_text(f"{HEADER}\n\n{p.text}\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k


def analysed(p: Program) -> Analysis:
    """Of open sizes, or of those that the arguments have. Raises CompileError."""
    arrays = p.arrays()[: 4 if p.declared else 5]
    found = check(kernel(p), *([] if p.symbolic else arrays), **p.config)
    if found.op is None:
        raise CompileError(list(found.diagnostics) or list(found.undecided))
    verify(found.op)
    return found


def _equal(found: np.ndarray, want: np.ndarray) -> bool:
    """-inf times 0, of a maximum over nothing, is NaN in both."""
    return np.array_equal(found, want, equal_nan=found.dtype.kind == "f")


def faults(p: Program, targets: list[str]) -> Iterator[tuple[str, str, str]]:
    """(kind, target, what is said); kind "refused" is none of the program's faults."""
    try:
        analysis, want = analysed(p), wanted(p)
    except CompileError as e:
        yield "internal" if "TS900" in str(e) else "refused", "", str(e)
        return
    for target in targets:
        try:
            chosen = base.get(target)
            made = lower(analysis.unit(), chosen, lambda _, op: verify(op)).program
            executable = chosen.load(generate(made, chosen))
        except TesseraError as e:
            codes = {d.code for d in getattr(e, "diagnostics", ())}
            yield "internal" if codes & {"TS900", "TS603"} or not codes else "refused", target, str(e)
            continue
        for at_end, count in ((True, 1), (False, 2 if isinstance(chosen, CpuTarget) else 1)):
            memory = [Guarded(a, at_end) for a in p.arrays()]
            try:
                with threads(count):
                    executable.run([m.address for m in memory], [], [p.sizes[d] for d in made.free])
            except DebugCheckError as e:
                yield "outside", target, str(e)
                break
            wrong = [n for n, m, w in zip("abgyo", memory, want, strict=True) if not _equal(m.array, w)]
            if wrong:
                bad = "\n".join(
                    f"{n}: {m.array}\nnot {w}" for n, m, w in zip("abgyo", memory, want, strict=True) if n in wrong
                )
                yield "wrong", f"{target} with {count} threads", bad
                break


def _plain_machine(isa: VectorISA) -> Any:
    llvm = jit.binding()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=isa.cpu, features=isa.features, opt=0, reloc="pic", codemodel="small")


@contextlib.contextmanager
def quickly(quick: bool) -> Generator[None]:
    """LLVM spends no time on making the code of the CPU fast. What it is made from is the same."""
    with mock.patch.object(jit, "_machine", _plain_machine) if quick else contextlib.nullcontext():
        yield


def targets_of(seed: int, emulate: int, every: str = "cpu") -> list[str]:
    some = every.split(",") + (["reference"] if seed % 4 == 0 else [])
    return [*some, EMULATOR] if emulate and seed % emulate == 0 and shutil.which("g++") else some


def reproducer(p: Program) -> str:
    """The program as a file that runs."""
    return (
        f"{HEADER}from tests.fuzz.index_programs import program\nfrom tests.fuzz.indices import EMULATOR, faults\n\n"
        f"# sizes {p.sizes}, {p.config}{', sizes open' if p.symbolic else ''}\n{p.text}\n\n"
        f'print(*faults(program({p.seed}), ["cpu", "reference", EMULATOR]), sep="\\n")\n'
    )


def child(given: argparse.Namespace) -> int:
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(given.seed, given.seed + given.count):
        print(json.dumps({"seed": seed}), flush=True)
        p = program(seed)
        targets = targets_of(seed, given.emulate, given.targets)
        with quickly(bool(given.quick and seed % 8)):
            found = list(faults(p, targets))
        counts.update(["tried", *targets, *dict.fromkeys(kind for kind, _, _ in found)])
        for kind, target, said in found:
            if kind in FAULTS or given.refused:
                text = f"# {kind} on {target}, seed {seed}: {said}"
                print(json.dumps({"text": text.replace("\n", "\n# ") + "\n" + reproducer(p)}), flush=True)
    print(json.dumps({"counts": counts}), flush=True)
    return 0


def parent(given: argparse.Namespace) -> int:
    """Runs the seeds; a child that dies is a fault of the program it was at, and the rest goes on."""
    total: collections.Counter[str] = collections.Counter()
    first, end, started = given.seed, given.seed + given.count, time.monotonic()
    while first < end:
        count = min(500, end - first)
        options = ["--child", "--seed", str(first), "--count", str(count), "--emulate", str(given.emulate)]
        options += ["--targets", given.targets]
        options += ["--refused"] if given.refused else []
        options += ["--quick"] if given.quick else []
        command = [sys.executable, "-m", "tests.fuzz", "indices", *options]
        last = first
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                note = json.loads(line)
                total.update(note.get("counts", {}))
                if "text" in note:
                    print(note["text"], flush=True)
                last = note.get("seed", last)
        if process.returncode:
            total["crash"] += 1
            print(
                f"# crash, seed {last}: the process ended with {process.returncode}\n{reproducer(program(last))}",
                flush=True,
            )
            first = last + 1
        else:
            first += count
        print(f"# up to {first}, {time.monotonic() - started:.0f} s: {dict(total)}", file=sys.stderr, flush=True)
    wrong = sum(total[kind] for kind in FAULTS)
    print(f"{total['tried']} programs tried, {wrong} faults: {dict(total)}")
    return 1 if wrong else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz indices", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="programs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the others follow")
    parser.add_argument("--emulate", type=int, default=20, help="every how many programs run in the emulator; 0: none")
    parser.add_argument("--targets", default="cpu", help="of each program; every fourth runs on the reference as well")
    parser.add_argument("--refused", action="store_true", help="show programs that are refused, too")
    parser.add_argument("--quick", action="store_true", help="seven of eight without LLVM's optimisation")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    return child(given) if given.child else parent(given)
