"""Faults of whole processes: killed writers, threads that meet, little memory, files that may not grow, Ctrl-C.

Each process is a fork of one that has imported everything and called nothing, so that thousands are made in minutes.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera.files import write_record
from tessera.runtime.autotune.store import TuningStore
from tessera.runtime.code.cache import DiskCache
from tests.fuzz.places import (
    BITS,
    KEYS,
    PROGRAMS,
    TRIALS,
    check_cache,
    check_programs,
    check_records,
    check_store,
    fill,
    scaled,
)

ROOT = Path(__file__).parents[2]
HANGS = 120
"""seconds after which a process of its own counts as hanging"""


FORKS = multiprocessing.get_context("forkserver")


def prepare_forks() -> None:
    multiprocessing.set_forkserver_preload([__name__, "tests.unit.runtime.first_calls"])


def _child(folder: Path, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    os.environ["TESSERA_CACHE_DIR"] = str(folder)
    report = os.open(folder.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(report, 1), os.dup2(report, 2)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    work(*arguments)


def started(folder: Path, work: Callable[..., object], *arguments: Any) -> Any:
    """`work` in a process of its own, whose caches are in `folder`."""
    process = FORKS.Process(target=_child, args=(folder, work, arguments))
    process.start()
    return process


def finished(folder: Path, work: Callable[..., object], *arguments: Any) -> None:
    process = started(folder, work, *arguments)
    process.join(HANGS)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("it hangs")
    report = folder.with_suffix(".txt")
    assert process.exitcode == 0, f"{process.exitcode}: {report.read_text(errors='replace')[-3000:]}"


def write_on(folder: Path, ready: Any) -> None:
    """Writes to every cache for ever."""
    cache, store, n = DiskCache(folder), TuningStore(folder / "tuning.sqlite"), 0
    ready.send(None)
    while True:
        fill(cache)
        for key, trials, bits in zip(KEYS, TRIALS, BITS, strict=True):
            store.add(key, trials, bits)
        for k in range(3):
            write_record(folder / f"record{k}.json", f"record {k}", {"n": k, "values": [1.5, None, "text"] * 9})
        if n % 5 == 4:
            cache.clear(), store.clear()
        n += 1


def killed(rng: random.Random, left: Path, room: Path) -> str:
    """Writers are killed at any moment, while others go on writing."""
    folder = room / "killed"
    folder.mkdir()
    writers: list[Any] = []
    try:
        for _ in "ab":
            mine, theirs = FORKS.Pipe(duplex=False)
            writers.append(started(folder, write_on, folder, theirs))
            theirs.close()
            assert mine.poll(HANGS), "it does not start"
            mine.recv()
        for writer in writers:
            time.sleep(rng.random() * 0.1)
            assert writer.exitcode is None, folder.with_suffix(".txt").read_text(errors="replace")
            writer.kill()
            writer.join()
        for check in (check_cache, check_store, check_records):
            check(folder)
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
        shutil.rmtree(folder, ignore_errors=True)
    return "killed writers"


def meet(first: int) -> None:
    from tests.unit.runtime import first_calls

    sys.exit(first_calls.main(first))


def met(rng: random.Random, left: Path, room: Path) -> str:
    """Eight threads at the first calls of a process."""
    folder = room / f"met{rng.randrange(10**9)}"
    try:
        finished(folder, meet, rng.randrange(8))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_suffix(".txt").unlink(missing_ok=True)
    return "threads that meet"


def limited(room: int) -> None:
    """Programs and arrays of many sizes with `room` MiB more than the process has."""
    import resource

    run_programs()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), resource.RLIM_INFINITY))
    calls: list[Callable[[Any], Any]] = [scaled, lambda x: ts.sqrt(ts.tensor(x)), lambda x: x + 1.5]
    for size in (1 << 12, 1 << 20, 1 << 24, 1 << 26):
        for one in calls:
            try:
                one(np.zeros(size, np.float32))
            except ts.TesseraError as error:
                assert error.code in ("TS505", "TS603"), error  # no room for arrays, or for compiling
            except MemoryError:
                pass  # NumPy's own arrays
    run_programs()


def run_programs() -> None:
    for program, x, want in PROGRAMS:
        np.testing.assert_array_equal(program(x), want)


def little(rng: random.Random, left: Path, room: Path) -> str:
    """A process that may have little more memory than it has."""
    finished(room / "little", limited, rng.randrange(8, 900))
    return "little memory"


def cut_short(size: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    run_programs()


def short(rng: random.Random, left: Path, room: Path) -> str:
    """Files may not grow beyond a few bytes: writes fail in the middle."""
    folder = room / "short"
    try:
        finished(folder, cut_short, rng.choice((0, 1, 100, 4096, 5000, 20_000)))
        check_cache(folder)
        check_programs(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "files that may not grow"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_CACHE_DIR": str(folder)}


def interrupted(rng: random.Random, left: Path, room: Path) -> str:
    """Ctrl-C at any moment of a kernel that would run for hours."""
    program = ROOT / "tests" / "unit" / "runtime" / "interrupted.py"
    name, how = rng.choice(["counted", "many", "unending", "repeated"]), rng.choice(["plain", "heard"])
    command = [sys.executable, str(program), name, rng.choice("12"), how]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(room / "interrupted"), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        time.sleep(rng.random() * 0.3)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert (*said, process.returncode) == ("KeyboardInterrupt\ngoes on\n", "", 0), (command, said)
    return "interrupts"
