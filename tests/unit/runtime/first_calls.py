"""Eight threads that meet at the first calls, compiles, tunings, profiles and cache writes of a process."""

from __future__ import annotations

import gc
import sys
import threading
import traceback

import numpy as np

import tessera as ts
from tessera.profiler.machine import machine_for
from tessera.runtime import events

N = 8


@ts.function
def scaled(x: ts.Tensor["N", ts.f32]):
    return x * 2 + 1


@ts.function
def bent(x: ts.Tensor["N", ts.f32]):
    return ts.exp(x) - 1


@ts.function
def summed(x: ts.Tensor["M", "N", ts.f32]):
    return ts.sum(x, axis=0)


@ts.kernel.autotune(space={"BLOCK": [64, 128]}, timeout_ms=5)
def doubled(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    return x[ts.tile.linear_id()] * 2.0


x = np.linspace(-2, 2, 3000, dtype=np.float32)
square = np.ones((64, 64), np.float32)


def profiled() -> np.ndarray:
    heard: list[events.Event] = []
    token = events.subscribe(heard.append)
    try:
        return scaled(square.reshape(-1))
    finally:
        events.unsubscribe(token)


WORK = (
    lambda: np.array_equal(scaled(x), x * 2 + 1),
    lambda: np.allclose(bent(x), np.exp(x) - 1, atol=1e-6),
    lambda: np.array_equal(summed(square), square.sum(axis=0)),
    lambda: np.array_equal(doubled(x), x * 2),
    lambda: np.array_equal(profiled(), np.full(64 * 64, 3, np.float32)),
    lambda: np.array_equal(ts.sqrt(square), square) and np.array_equal(ts.abs(x), abs(x)),
    lambda: np.array_equal(square @ square, np.asarray(ts.matmul(square, square))),
    lambda: machine_for("cpu:0").reason == "",
)


def main(first: int) -> int:
    """Each thread begins with another one of the WORK, so that all are first once."""
    together, failed = threading.Barrier(N), list[str]()

    def run(number: int) -> None:
        together.wait()
        for k in range(4 * N):
            try:
                if not WORK[(number + first + k) % N]():
                    failed.append(f"work {(number + first + k) % N}: another result")
            except BaseException:
                failed.append(traceback.format_exc())
        gc.collect()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(N)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("\n".join(failed), file=sys.stderr)
    print(f"{N} threads")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
