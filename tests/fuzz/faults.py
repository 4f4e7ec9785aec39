"""Faults: damaged files, killed writers, full disks, little memory, threads that meet, Ctrl-C. Whatever happens, what a
program computes is right, nothing hangs or crashes, and the caches are of use again behind it.

    python -m tests.fuzz faults --count 10000 --seed 1 [--only damage]

Most faults are damage to what a process left on disk, in this process; one in eight is a process of its own, or two.
The same seed makes the same faults (but for the moments at which processes are killed).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tessera.runtime.code.cache import DiskCache
from tests.fuzz.places import PLACES, check_cache, entries, prepare
from tests.fuzz.processes import interrupted, killed, little, met, prepare_forks, short

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
    name = rng.choice(["replace", "open", "mkdir"])
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
