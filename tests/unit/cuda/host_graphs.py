"""CUDA graphs of a driver made of host memory: what is enqueued on a stream while it is captured becomes a node, and
launching the graph does it. What a capture forbids spoils it, as on a GPU."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

RELAXED = 2
calls = itertools.count(1)
"""of the driver, that enqueue something"""
UNSUPPORTED = 900
"""CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"""


class HostGraph:
    """A captured graph, or what was instantiated from one: its nodes, and the user objects that it keeps."""

    running = 0, 0
    """the graph whose nodes run now, and the call that launched it"""

    def __init__(self, number: int, nodes: list[Callable[[], None]], held: list[Any]) -> None:
        self.number, self.nodes, self.held = number, nodes, held
        for item in held:
            item.count += 1

    def instantiate(self) -> HostGraph:
        return HostGraph(self.number, list(self.nodes), list(self.held))

    def launch(self, stream: int = 0) -> None:
        HostGraph.running = self.number, next(calls)
        try:
            for node in self.nodes:
                node()
        finally:
            HostGraph.running = 0, 0

    def destroy(self) -> None:
        for item in self.held:
            release(item)
        self.held = []


def release(item: Any) -> None:
    """The driver calls the destructor on a thread of its own, by its address."""
    item.count -= 1
    if not item.count:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(item.destroy)(item.place)


class HostGraphs:
    """Captures of all streams of a process."""

    def __init__(self) -> None:
        self.open: dict[int, HostGraph] = {}
        """stream -> what is being captured from it"""
        self.mode = 0
        """of the only thread that counts here: 0 global, 2 relaxed"""
        self.spoilt: list[str] = []
        self.numbers = itertools.count(41)

    def begin(self, stream: int) -> None:
        assert stream not in self.open
        self.open[stream] = HostGraph(next(self.numbers), [], [])

    def end(self, stream: int) -> HostGraph:
        graph = self.open.pop(stream)
        assert not self.spoilt, f"the capture is spoilt by {self.spoilt}"
        return graph

    def unsafe(self, what: str) -> int:
        """The status of a call that no capture of this thread's may be disturbed by."""
        return self._spoil(what) if self.open and self.mode != RELAXED else 0

    def waits(self, what: str, stream: int | None) -> int:
        """The status of waiting for a stream; None: for all of them."""
        return self._spoil(what) if (self.open if stream is None else stream in self.open) else 0

    def _spoil(self, what: str) -> int:
        self.spoilt.append(what)
        return UNSUPPORTED


class GraphCalls:
    """The driver's functions for graphs."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=RELAXED)
    CUuserObject_flags = SimpleNamespace(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC=1)
    CUuserObjectRetain_flags = SimpleNamespace(CU_GRAPH_USER_OBJECT_MOVE=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUhostFn = int
    graphs: HostGraphs
    streams = itertools.count(1000)

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> Any:
        before, self.graphs.mode = self.graphs.mode, mode
        return 0, before

    def cuStreamGetCaptureInfo(self, stream: int) -> Any:
        graph = self.graphs.open.get(stream)
        return (0, 1, graph.number, graph, [], [], 0) if graph else (0, 0, 0, None, [], [], 0)

    def cuUserObjectCreate(self, place: int, destroy: int, count: int, flags: int) -> Any:
        assert flags == 1
        return 0, SimpleNamespace(place=place, destroy=destroy, count=count)

    def cuGraphRetainUserObject(self, graph: HostGraph, item: Any, count: int, flags: int) -> Any:
        assert (count, flags) == (1, 1), "the reference moves into the graph"
        graph.held.append(item)
        return (0,)

    def cuStreamCreate(self, flags: int) -> Any:
        assert flags == 1, "a blocking stream would wait for the one that is captured"
        return 0, next(self.streams)

    def cuCtxSynchronize(self) -> Any:
        return (self.graphs.waits("cuCtxSynchronize", None),)

    def cuStreamSynchronize(self, stream: int) -> Any:
        return (self.graphs.waits("cuStreamSynchronize", stream),)
