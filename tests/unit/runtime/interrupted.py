"""Kernels that would run for hours, interrupted from outside: what they leave, and that all goes on behind them."""

from __future__ import annotations

import signal
import sys

import numpy as np

import tessera as ts
from tessera.runtime import events


@ts.kernel
def counted(x: ts.Tensor["n", ts.f32], rounds: ts.int64) -> ts.Tensor["n", ts.f32]:
    s = x[ts.tile.linear_id()]
    for _ in ts.tile.range(0, rounds, 1):
        s = s * 0.5 + 1.0
    return s


@ts.kernel
def unending(x: ts.Tensor["n", ts.f32], least: ts.f32) -> ts.Tensor["n", ts.f32]:
    s = x[ts.tile.linear_id()]
    while ts.tile.any(s > least):
        s = s * 0.5 + 1.0
    return s


@ts.function
def repeated(x: ts.Tensor["n", ts.f32], least: ts.Tensor[ts.f32]):
    while ts.max(x) > least:
        x = x * 0.5 + 1.0
    return x


@ts.function
def exchanged(x: ts.Tensor["n", ts.f32], rounds: ts.Int):
    before = x
    for _ in ts.range(rounds):
        x, before = ts.roll(x, 1, axis=0) * 0.5 + before * 0.25, x
    return x


def many(x: np.ndarray, rounds: int) -> np.ndarray:
    """The same in many programs, which the workers share."""
    return counted(np.tile(x, 100_000), rounds)[: len(x)]


LONG = {
    "counted": (counted, 10**15, 3),
    "many": (many, 10**9, 3),
    "unending": (unending, -1.0, 5.0),
    "repeated": (repeated, np.float32(-1.0), np.float32(5.0)),
    "exchanged": (exchanged, 10**12, 3),
}


def main(name: str, threads: int, how: str) -> None:
    ts.set_num_threads(threads)
    run, long, short = LONG[name]
    x = np.linspace(0, 4, 64, dtype=np.float32)
    want = run(x, short)
    token = events.subscribe(lambda event: None, tiles=how == "profiled") if how in ("heard", "profiled") else 0
    asked = []
    if how == "handled":  # a handler that does not raise lets it go on; the third time it does
        run(x, short + 1)  # compiled for any number of rounds: below, the kernel is what is interrupted

        def handler(number: int, frame: object) -> None:
            asked.append(number)
            print("asked", flush=True)
            if len(asked) == 3:
                raise TimeoutError("enough")

        signal.signal(signal.SIGINT, handler)
    try:
        print("go", flush=True)
        run(x, long)
        print("came back", flush=True)
    except (KeyboardInterrupt, TimeoutError) as error:
        print(type(error).__name__, flush=True)
    events.unsubscribe(token)
    assert np.array_equal(run(x, short), want)
    assert np.array_equal(ts.sqrt(np.full(300_000, 4, np.float32)), np.full(300_000, 2, np.float32))
    print("goes on", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
