"""What fuzzers of kernels share: a text as a function, its arrays between guards, a command that runs seeds."""

from __future__ import annotations

import argparse
import collections
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.errors import CompileError, register_source
from tests.fuzz.guard import Guarded
from tests.kernel_runner import run

EMULATOR = "emulator:sm_80"
INTERNAL = {"TS900", "TS603"}


def kernel(text: str, name: str) -> Callable[..., Any]:
    """The function `f` of a program's text."""
    register_source(name, text)
    names: dict[str, Any] = {"__name__": "fuzzed"}
    exec(compile(text, name, "exec"), names)
    return names["f"]


def held(text: str, name: str, given: Sequence[Any], outs: Sequence[Any], wanted: Sequence[Any],
         targets: tuple[str, ...], **config: Any) -> list[str]:  # fmt: skip
    """Runs a kernel of the arguments `given` and `outs`, and holds what it stores or returns against `wanted`.

    Gives the codes of the errors by which it is refused. Raises AssertionError where a target is wrong, or fails.
    """
    f, codes = kernel(text, name), list[str]()
    for n, target in enumerate(targets):
        arrays = [Guarded(a, bool(n % 2)).array if isinstance(a, np.ndarray) else a for a in given]
        found = [Guarded(a, bool(n % 2)).array for a in outs]
        case = f"{name} on {target}, {config}\n{text}"
        try:
            result = run(f, *arrays, *found, target=target, debug=False, **config)
        except CompileError as e:
            codes = [d.code for d in e.diagnostics if d.severity == "error"]
            assert n == 0 and not INTERNAL & set(codes), f"{case}\n{e}"
            return codes
        except Exception as e:
            raise AssertionError(f"{case}\n{type(e).__name__}: {e}") from e
        results = result if isinstance(result, tuple) else (result,)
        for got, want in zip([*found, *results], wanted, strict=True):
            assert np.array_equal(got, want, equal_nan=got.dtype.kind == "f"), f"{case}\n{got}\nnot {want}"
    return codes


def command(name: str, text: str | None, check: Callable[[int, tuple[str, ...]], list[str]], given: list[str]) -> int:
    """`python -m tests.fuzz NAME`: checks seeds one after the other, and counts what is refused and what is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz {name}", description=text)
    parser.add_argument("--count", type=int, default=1000, help="programs")
    parser.add_argument("--seed", type=int, default=1, help="of the first program; the others follow")
    parser.add_argument("--emulate", type=int, default=0, help="every how many programs run in the emulator; 0: none")
    parser.add_argument("--targets", default="cpu,reference")
    options = parser.parse_args(given)
    refused: collections.Counter[str] = collections.Counter()
    faults = emulated = 0
    for seed in range(options.seed, options.seed + options.count):
        also = bool(options.emulate and seed % options.emulate == 0 and shutil.which("g++"))
        emulated += also
        try:
            refused.update(check(seed, (*options.targets.split(","), *((EMULATOR,) if also else ()))))
        except AssertionError as e:
            faults += 1
            print(f"seed {seed}: {e}\n", flush=True)
    print(f"{options.count} programs tried, {emulated} emulated, {faults} faults, refused: {dict(refused)}")
    return 1 if faults else 0
