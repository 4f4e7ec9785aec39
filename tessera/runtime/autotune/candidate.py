"""One configuration made ready: compiled, given arguments of its own, run for its bits and for its time.

Everything runs through the launch that calls use. Parameters that the kernel stores to are copies, restored before each
measurement, so the caller's arrays stay as they are and every measurement sees the same data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any, cast

from tessera.compiler.targets.base import Target
from tessera.compiler.tile.program import Program
from tessera.language.dims import DimError, evaluate
from tessera.language.lazy import np
from tessera.runtime.arguments import Bound, Parameters
from tessera.runtime.arrays import Adapter
from tessera.runtime.dispatch import outside
from tessera.runtime.libraries import CUPY, TORCH, adapter_of
from tessera.runtime.prepared import Prepared, prepare
from tessera.runtime.requests import compile_call
from tessera.runtime.watch import Watch

_PERIOD = 65521
"""random numbers before they repeat; a prime, so that no row or block of a usual shape equals the next one"""


class Candidate:
    """A configuration of a program for one call. `shared` holds random inputs, made once for all of them.

    Raises what compiling raises, and what `screen` does.
    """

    def __init__(
        self, fn: Any, bound: Bound, target: Target, watch: Watch, screen: Callable[[Program], None] | None,
        shared: dict[int, Any],
    ) -> None:  # fmt: skip
        parameters = Parameters(fn.definition(), fn.__wrapped__)
        built = compile_call(fn, parameters, bound, target, watch, debug=False, screen=screen, recorded=False)
        getters = outside(built, watch)
        self.prepared: Prepared = prepare(built, parameters, bound, getters)
        self.prepared.poisoned = False
        self.code = (built.artifact.source, repr(built.artifact.resources))
        self.resources: Mapping[str, Any] = built.artifact.resources
        self._launch = self.prepared.ready()
        self._shared = shared
        names = [p.name for p in built.plan.params]
        self._given = [bound.values[n] if n in bound.values else getters[n]() for n in names]
        self._values = list(self._given)
        for i in self.prepared.written:
            self._values[i] = self._copy(i)

    def work(self) -> tuple[int | None, int | None]:
        """FLOPs and least bytes of one launch, where they are known."""
        plan, env = self.prepared.plan, self.prepared.env
        try:
            return (
                sum(evaluate(k.flops, env) for k in plan.launches),
                sum(evaluate(k.bytes, env) for k in plan.launches),
            )
        except DimError:
            return None, None

    # bits

    def bits(self, random: bool) -> str:
        """A hash of everything that a launch gives, with the call's data or with random floating-point numbers."""
        values = [self._random(i) for i in range(len(self._given))] if random else self._restored()
        self.prepared.poisoned = self.prepared.device == "cpu"  # elements that nobody writes are alike then
        try:
            results: Any = self.prepared.run(*values)
        finally:
            self.prepared.poisoned = False
        outputs = cast("tuple[Any, ...]", results) if isinstance(results, tuple) else (results,)
        h = hashlib.blake2b()
        for array in (*outputs, *(values[i] for i in self.prepared.written)):
            adapter = adapter_of(array)
            if adapter is not None:
                host = np.ascontiguousarray(adapter.numpy(array))
                h.update(repr((host.shape, str(host.dtype))).encode())
                h.update(host.reshape(-1).view(np.uint8).data)
        return h.hexdigest()

    def _random(self, i: int) -> Any:
        """The argument with other numbers of its dtype; what is not floating-point may be an index, and stays."""
        value, adapter = self._given[i], self.prepared.adapters[i]
        if adapter is None:
            return value
        view = adapter.view(value)
        written = i in self.prepared.written
        if not (view.dtype.is_float or view.dtype.is_complex):
            return self._copy(i) if written else value
        if not written and i in self._shared:
            return self._shared[i]
        numbers = np.random.Generator(np.random.Philox(i)).standard_normal(_PERIOD, np.float32)
        made = _like(adapter, value, np.resize(numbers.astype(view.dtype.numpy), view.shape))
        if not written:
            self._shared[i] = made
        return made

    # time

    def time(self, repeat: int) -> float:
        """Seconds per launch, over `repeat` launches in a row."""
        values, launch = self._restored(), self._launch
        library, device = self.prepared.library, self.prepared.device
        with nullcontext() if device == "cpu" else library.current(device):
            stop = _stopwatch() if device == "cpu" else library.stopwatch()
            for _ in range(repeat):
                launch(*values)
            return max(stop(), 1) / repeat * 1e-9

    def _restored(self) -> list[Any]:
        for i in self.prepared.written:
            target, source = self._values[i], self._given[i]
            adapter: Adapter = self.prepared.adapters[i]  # type: ignore[assignment]
            if self.prepared.device == "cpu":
                np.copyto(adapter.numpy(target), adapter.numpy(source))
            else:
                self._values[i] = self._copy(i)
        return self._values

    def _copy(self, i: int) -> Any:
        adapter: Adapter = self.prepared.adapters[i]  # type: ignore[assignment]
        return _like(adapter, self._given[i], np.array(adapter.numpy(self._given[i])))


def _stopwatch() -> Callable[[], int]:
    start = perf_counter_ns()
    return lambda: perf_counter_ns() - start


def _like(adapter: Adapter, value: Any, array: Any) -> Any:
    """A NumPy array as an argument of the same library on the same device."""
    if adapter is TORCH:
        return TORCH.wrap(array).to(value.device)
    if adapter.view(value).device != "cpu" and adapter is not CUPY:
        return adapter.wrap(CUPY.wrap(array))
    return adapter.wrap(array)
