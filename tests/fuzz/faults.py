"""Faults: damaged files, killed writers, full disks, little memory, threads that meet, Ctrl-C. Whatever happens, what a
program computes is right, nothing hangs or crashes, and the caches are of use again behind it.

    python -m tests.fuzz faults --count 10000 --seed 1 [--only damage]

Most faults are damage to what a process left on disk, in this process; one in eight is a process of its own, or two.
The same seed makes the same faults (but for the moments at which processes are killed).
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tessera as ts
from tessera.compiler import predict
from tessera.files import read_record, write_record
from tessera.runtime.autotune.store import Key, TuningStore
from tessera.runtime.autotune.trials import Trial
from tessera.runtime.code import build
from tessera.runtime.code.cache import DiskCache

ROOT = Path(__file__).parents[2]
HANGS = 120
"""seconds after which a process of its own counts as hanging"""


@ts.function
def scaled(x: ts.Tensor["n", ts.f32]):
    return x * 2 + 1


@ts.function
def bent(x: ts.Tensor["n", ts.f32]):
    return x * x - 3


@ts.function
def summed(x: ts.Tensor["m", "n", ts.f32]):
    return ts.sum(x, axis=1)


X = np.arange(24, dtype=np.float32)
PROGRAMS: list[tuple[Any, Any, Any]] = [
    (scaled, X, X * 2 + 1),
    (bent, X, X * X - 3),
    (summed, X.reshape(4, 6), X.reshape(4, 6).sum(axis=1)),
]
KEYS = [Key("kernel", "cpu", "a processor", ("x [4] f32",), (("program", f"kernel#{i}"),)) for i in range(3)]
TRIALS = [{f'{{"BLOCK": {n}}}': Trial({"BLOCK": n}, "timed", (n * 1e-3, 2e-3), "", n, 20)} for n in (16, 32, 64)]
BITS = [{(text, text): n != 1} for n, text in enumerate(next(iter(t)) for t in TRIALS)]


# What is on disk before anything happens to it


def entries(n: int) -> dict[str, bytes]:
    return {"code.o": f"code {n} ".encode() * 50, "artifact.json": f'{{"n": {n}}}'.encode()}


def fill(cache: DiskCache) -> None:
    for n in range(6):
        cache.put(f"key{n}", entries(n), f"program {n}")
        cache.link(f"front{n}", f"key{n}", f'{{"plan": {n}}}')


def check_cache(folder: Path) -> None:
    """Everything is what was written, or absent; then all can be written and is there."""
    cache = DiskCache(folder)
    try:
        for n in range(6):
            found = cache.lookup(f"front{n}")
            assert found in (None, (f"key{n}", f'{{"plan": {n}}}')), found
            assert cache.get(f"key{n}") in (None, entries(n))
        cache.stats(), cache.entries()
        fill(cache)
        cache.verify()  # what nobody asked for is found, and an index that is damaged somewhere is begun anew
        fill(cache)
        assert cache.problem is None, cache.problem
        for n in range(6):
            assert cache.lookup(f"front{n}") == (f"key{n}", f'{{"plan": {n}}}')
            assert cache.get(f"key{n}") == entries(n)
        assert cache.verify() == []
    finally:
        cache.close()


def check_store(folder: Path) -> None:
    store = TuningStore(folder / "tuning.sqlite")
    try:
        for key, trials, bits in zip(KEYS, TRIALS, BITS, strict=True):
            assert store.trials(key) in ({}, trials), store.trials(key)
            assert store.bits(key) in ({}, bits)
            store.add(key, trials, bits)
        if "newer" in (store.problem or ""):  # a number of its header was damaged so that it says so
            return
        for key, trials, bits in zip(KEYS, TRIALS, BITS, strict=True):
            assert store.trials(key) == trials and store.bits(key) == bits
        assert store.problem is None, store.problem
    finally:
        store.close()


def check_records(folder: Path) -> None:
    for n in range(3):
        path, value = folder / f"record{n}.json", {"n": n, "values": [1.5, None, "text"] * 9}
        assert read_record(path, f"record {n}") in (None, value)
        if path.is_dir() and not path.is_symlink():
            continue  # what somebody has put there is not removed for a record
        assert write_record(path, f"record {n}", value)
        assert read_record(path, f"record {n}") == value
    took = {"f": predict.Measured(5, 1, "cpu", 1.0, "text", {"n": 3})}
    with mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(folder)}):
        assert predict.last("file.py") in ({}, took)
        predict.record("file.py", took)


def check_programs(folder: Path) -> None:
    """Real functions over a real cache: compiled code that was damaged never runs."""
    with mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(folder)}):
        build.forget()
        for program, x, want in PROGRAMS:
            np.testing.assert_array_equal(ts.compile(program, arguments=(x,))(x), want)


PLACES: dict[str, Callable[[Path], None]] = {
    "cache": check_cache,
    "store": check_store,
    "records": check_records,
    "programs": check_programs,
}


def prepare(folder: Path) -> None:
    """Each place as a process leaves it, to be copied for every fault."""
    for name, check in PLACES.items():
        (folder / name).mkdir()
        check(folder / name)
        check(folder / name)


# What happens to it


def files_of(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def flip(path: Path, other: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 3, 40))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def overwrite(path: Path, other: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) + 1)
    data[start : start + rng.choice((1, 16, 512, 4096))] = rng.randbytes(rng.choice((0, 1, 16, 512, 4096)))
    path.write_bytes(data)


def truncate(path: Path, other: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size + 1))


def empty(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def extend(path: Path, other: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.choice((1, 100, 5000))))


def zero(path: Path, other: Path, rng: random.Random) -> None:
    """What a file system leaves of a block that was not written when power failed."""
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) // 512 + 1) * 512
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    path.write_bytes(data)


def swap(path: Path, other: Path, rng: random.Random) -> None:
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def remove(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()


def replace(make: Callable[[Path, Path], object]) -> Callable[[Path, Path, random.Random], None]:
    def act(path: Path, other: Path, rng: random.Random) -> None:
        path.unlink()
        make(path, other)

    return act


def text_swapped(path: Path, other: Path, rng: random.Random) -> None:
    """A value of one row of an SQLite file in the place of another's, as a bit or a person may have it."""
    bases = [p for p in (path, other) if p.suffix == ".sqlite"]
    if not bases:
        return flip(path, other, rng)
    db = sqlite3.connect(bases[0], isolation_level=None)
    try:
        tables = [t for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if not tables:  # it has been emptied before
            return flip(path, other, rng)
        table = rng.choice(tables)
        column = rng.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
        value = rng.choice(["NULL", "x'ff00'", "-1", "1e300", "''", f"(SELECT {column} FROM {table} LIMIT 1)"])
        db.create_function("chosen", 0, lambda: rng.random() < 0.5)
        db.execute(f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE chosen()")
    except sqlite3.Error:
        pass  # the schema does not let it
    finally:
        db.close()
    return None


DAMAGES: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "flip": flip, "overwrite": overwrite, "truncate": truncate, "empty": empty, "extend": extend, "zero": zero,
    "swap": swap, "remove": remove, "row": text_swapped,
    "folder": replace(lambda path, other: path.mkdir()),
    "pipe": replace(lambda path, other: os.mkfifo(path)),
    "zeros": replace(lambda path, other: path.symlink_to("/dev/zero")),
    "loop": replace(lambda path, other: path.symlink_to(path)),
    "link": replace(lambda path, other: path.symlink_to(other)),
    "hard link": replace(lambda path, other: path.hardlink_to(other) if path != other else path.touch()),
}  # fmt: skip


def damage(rng: random.Random, left: Path, room: Path) -> str:
    """One to three files of one place are damaged; then the place is used."""
    place = rng.choices(list(PLACES), (50, 25, 15, 10))[0]
    folder = room / place
    shutil.copytree(left / place, folder)
    done: list[str] = [place]
    try:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            found = files_of(folder)
            if not found:
                break
            path, other = rng.choice(found), rng.choice(found)
            kind = rng.choice(list(DAMAGES))
            done.append(f"{kind} {path.relative_to(folder)} ({other.relative_to(folder)})")
            DAMAGES[kind](path, other, rng)
        PLACES[place](folder)
    except BaseException as error:
        error.add_note(", ".join(done))
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return place


def full(rng: random.Random, left: Path, room: Path) -> str:
    """The disk is full at some call of the system: nothing is raised, and what is read is right."""
    folder = room / "full"
    shutil.copytree(left / "cache", folder)
    name = rng.choice(["fsync", "replace", "open", "mkdir"])
    real, calls, after = getattr(os, name), 0, rng.randrange(6)

    def refuse(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after and (name != "open" or arguments[1] & os.O_CREAT):
            raise OSError(28, "No space left on device")
        return real(*arguments, **named)

    try:
        cache = DiskCache(folder)
        with mock.patch.object(os, name, refuse):
            for n in range(6):
                cache.put(f"key{n + 3}", entries(n + 3))
                assert cache.get(f"key{n}") in (None, entries(n))
        cache.close()
        if rng.random() < 0.5:  # and the index itself
            cache = DiskCache(folder)
            cache._db().execute("PRAGMA max_page_count = 1")
            for n in range(40):
                cache.put(f"more{n}", entries(n))
                assert cache.get(f"more{n}") in (None, entries(n))
            cache.close()
        check_cache(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return f"full disk ({name})"


# Processes of their own: forks of one that has imported everything and called nothing, so thousands are made in minutes

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
    for size in (1 << 12, 1 << 20, 1 << 24, 1 << 26):
        for one in (scaled, lambda x: ts.sqrt(ts.tensor(x)), lambda x: x + 1.5):
            try:
                one(np.zeros(size, np.float32))
            except ts.TesseraError as error:
                assert error.code == "TS505", error
            except MemoryError:
                pass  # NumPy's own arrays
    run_programs()


def run_programs() -> None:
    for program, x, want in PROGRAMS:
        np.testing.assert_array_equal(program(x), want)


def little(rng: random.Random, left: Path, room: Path) -> str:
    """A process that may have little more memory than it has. LLVM ends the process where it gets none for compiling,
    so there is some for that."""
    finished(room / "little", limited, rng.randrange(80, 900))
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


Fault = Callable[[random.Random, Path, Path], str]
FAULTS: dict[str, tuple[Fault, float]] = {
    "damage": (damage, 800), "full": (full, 80), "killed": (killed, 80), "short": (short, 15), "little": (little, 10),
    "met": (met, 10), "interrupted": (interrupted, 5),
}  # fmt: skip
"""by name, with how many of a thousand they are"""


def run(count: int, seed: int, only: str = "", say: Callable[[str], None] = print, first: int = 0) -> int:
    """Makes `count` faults, from number `first` of the seed on; returns how many did harm."""
    harm, seen = 0, Counter[str]()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a real disk would be waited for at every write
    with tempfile.TemporaryDirectory(prefix="tessera-faults-", dir=memory) as where, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TS606 and TS608 are right here
        left, room = Path(where, "left"), Path(where, "room")
        left.mkdir(), room.mkdir()
        prepare_forks()
        prepare(left)
        for number in range(first, first + count):
            rng = random.Random(f"{seed} {number}")
            name = only or rng.choices(list(FAULTS), [weight for _, weight in FAULTS.values()])[0]
            try:
                seen[FAULTS[name][0](rng, left, room)] += 1
            except Exception:
                harm += 1
                again = f"python -m tests.fuzz faults --only {name} --seed {seed} --first {number} --count 1"
                say(f"{again}\ndoes harm:\n{traceback.format_exc()}")
            if (number + 1 - first) % 1000 == 0:
                say(f"{number + 1 - first} faults, {harm} did harm")
    say(f"{count} faults, {harm} did harm: {', '.join(f'{n} {what}' for what, n in sorted(seen.items()))}")
    return harm


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz faults")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first fault, for one of a run")
    parser.add_argument("--only", choices=sorted(FAULTS), default="")
    options = parser.parse_args(arguments)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(run(options.count, options.seed, options.only, lambda text: print(text, flush=True), options.first) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
