"""What a process leaves on disk, and whether another one can use it: right or absent, and whole again afterwards."""

from __future__ import annotations

import os
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
