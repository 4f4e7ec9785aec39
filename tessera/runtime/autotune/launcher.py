"""Calls of tuned functions and kernels: each signature runs under the configuration that is best for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tessera import knobs
from tessera.runtime.arguments import Bound
from tessera.runtime.autotune.search import Search
from tessera.runtime.autotune.trials import Tuning
from tessera.runtime.dispatch import Launcher, launcher_of
from tessera.runtime.sites import Ready
from tessera.runtime.watch import Watch, reads, setting


class TunedLauncher(Launcher):
    """Settles the configuration when a signature is new; a repeated call costs what any call costs.

    TESSERA_AUTOTUNE says when configurations are timed: 1 at a signature's first call, "cached" never, 0 never, and
    what the store knows is left aside as well.
    """

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.variants: dict[str, Any] = {}
        self.tuning: Tuning | None = None
        self.state = object()
        """another one makes prepared launches ask again"""

    def prepare(self, args: tuple[Any, ...], complete: bool) -> Ready:
        if complete:
            values: Mapping[str, Any] = dict(zip(self.parameters.python.parameters, args, strict=True))
        else:
            values = self.parameters.positions(args, {})
        mode = setting(knobs.autotune)
        config = self.settled(self.bind(values))
        launcher = launcher_of(self.variant(config))
        ready = launcher.prepare(args, complete)
        self.last = launcher.last
        guard, seen, state = ready.guard, mode(), self.state
        return Ready(ready.run, lambda: guard() and mode() is seen and self.state is state, ready.prepared)

    def settled(self, bound: Bound) -> dict[str, Any]:
        """The configuration for a call."""
        mode = knobs.autotune()
        if mode == "0":
            return self.fn.config
        self.tuning = self.search(bound).run(measure=mode == "1" and not knobs.debug())
        return self.tuning.config

    def search(self, bound: Bound) -> Search:
        statics = {leaf.name: leaf.value for leaf in bound.leaves if leaf.kind == "static"}
        return Search(self.fn, bound, self.target(bound), Watch(reads(self.fn, statics)))

    def variant(self, config: Mapping[str, Any]) -> Any:
        """The program under one configuration."""
        text = json.dumps(config, sort_keys=True)
        with self.lock:
            if text not in self.variants:
                self.variants[text] = self.fn.with_config(**config)
            return self.variants[text]

    def tune(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], measure: bool = True) -> Tuning:
        """The tuning for arguments; prepared launches go by it from now on."""
        with self.lock:
            bound = self.bind(self.parameters.positions(args, kwargs))
            self.tuning = self.search(bound).run(measure)
            self.state = object()
            return self.tuning
