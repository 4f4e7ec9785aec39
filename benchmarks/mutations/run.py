"""All texts, or a sample of them, in one process or several."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import islice, takewhile
from pathlib import Path

from benchmarks.mutations.score import Model, Score, run_mutations
from benchmarks.mutations.texts import NAMES, TYPINGS, mutations, right, typings

PORTION = 200
Job = tuple[str, tuple[int, ...], tuple[str, str] | None]
"""a text, the numbers of mutations of it; or a function to be typed, and how"""


def run(sample: int | None = None, seed: int = 0, jobs: int = 1, minutes: float = math.inf, log: str = "") -> Score:
    """Tries all mutations of all texts and types all functions; or so many mutations, chosen by the seed, and one
    function in each way. The order is the seed's, so that what is done in so many minutes is a sample as well.
    `log`: a file that says how far it has come, and the faults so far."""
    pending = list(_jobs(sample, random.Random(seed)))
    random.Random(seed).shuffle(pending)
    score, end = Score(_number(), seed), time.monotonic() + 60 * minutes
    in_time = takewhile(lambda _: time.monotonic() < end, pending)
    with _prepared():
        for done, found in enumerate(_tried(in_time, jobs), 1):
            score.add(found)
            if log:
                Path(log).write_text(f"{done} of {len(pending)} portions\n{score.report()}\n", encoding="utf-8")
    return score


@contextmanager
def _prepared() -> Iterator[None]:
    """What all texts are compared with, made once: other processes take it over, and no garbage is looked for in it."""
    for name in NAMES:
        _model(name)
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


def _tried(pending: Iterator[Job], jobs: int) -> Iterator[Score]:
    if jobs == 1:
        yield from map(_try, pending)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_try, job) for job in islice(pending, 2 * jobs)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            waiting |= {pool.submit(_try, job) for job in islice(pending, len(done))}
            yield from (f.result() for f in done)


def _number() -> int:
    """How many texts there are: a mistake makes one, and a function one for each of its characters, in each way."""
    typed = (len(t.of(right(name).text)) for name in NAMES for t in typings(name))
    return sum(len(mutations(name)) for name in NAMES) + len(TYPINGS) * sum(typed)


def _jobs(sample: int | None, rng: random.Random) -> Iterator[Job]:
    numbers = {name: range(len(mutations(name))) for name in NAMES}
    total = sum(map(len, numbers.values()))
    for name, all_of_them in numbers.items():
        share = len(all_of_them) if sample is None else min(len(all_of_them), sample * len(all_of_them) // total)
        chosen = sorted(rng.sample(all_of_them, share))
        for i in range(0, len(chosen), PORTION):
            yield name, tuple(chosen[i : i + PORTION]), None
    functions = [(name, t.name) for name in NAMES for t in typings(name)]
    for kind in TYPINGS:
        for name, function in functions if sample is None else [rng.choice(functions)]:
            yield name, (), (function, kind)


@cache
def _model(name: str) -> Model:
    return Model(name)


def _try(job: Job) -> Score:
    name, numbers, typed = job
    model = _model(name)
    if typed is None:
        found = mutations(name)
        return run_mutations(model, (found[i] for i in numbers))
    score = Score()
    model.try_typing(next(t for t in typings(name) if t.name == typed[0]), typed[1], score)
    return score
