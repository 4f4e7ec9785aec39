"""Compilers that work outside of Python, several at a time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tessera import knobs

T = TypeVar("T")


def shared_out(sizes: Sequence[int], many: int) -> list[list[int]]:
    """The positions of `sizes`, shared out among `many` so that the sums are about equal, the largest sum first."""
    shares: list[list[int]] = [[] for _ in range(many)]
    sums = [0] * many
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        smallest = sums.index(min(sums))
        shares[smallest].append(i)
        sums[smallest] += sizes[i]
    return [shares[i] for i in sorted(range(many), key=lambda i: -sums[i])]


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of the calls, in their order, by at most as many threads as programs have (`TESSERA_NUM_THREADS`).

    The calling thread is one of them. If calls raise, the others that have begun are waited for, and the error of the
    first in order is raised.
    """
    if len(calls) == 1:
        return [calls[0]()]
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    numbers = itertools.count()

    def work() -> None:
        while not errors and (i := next(numbers)) < len(calls):
            try:
                results[i] = calls[i]()
            except BaseException as error:
                errors[i] = error

    helpers: list[threading.Thread] = []
    try:
        for _ in range(min(len(calls), knobs.num_threads()) - 1):
            helper = threading.Thread(target=work, name="tessera-compiler", daemon=True)
            helper.start()
            helpers.append(helper)
    except RuntimeError:  # there may be no further thread
        pass
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[min(errors)]
    return [results[i] for i in range(len(calls))]
