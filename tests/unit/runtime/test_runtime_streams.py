"""Which stream a launch goes to, and its order with what other libraries have enqueued, over fakes of both."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tessera.compiler.targets.cuda.call import device
from tessera.errors import DeviceError
from tessera.runtime.arrays.adapter import Adapter
from tessera.runtime.arrays.libraries import JAX, TORCH, CupyAdapter
from tessera.runtime.call.prepared import PreparedLaunch
from tessera.runtime.eager.tensor import TENSOR


class Library(Adapter):
    def __init__(self, stream: int) -> None:
        self.current_stream = stream

    def stream(self, device: str) -> int:
        return self.current_stream

    @contextmanager
    def current(self, device: str) -> Any:
        yield


def prepared(library: Adapter, *others: Adapter, log: list[Any], fail: bool = False) -> PreparedLaunch:
    p = object.__new__(PreparedLaunch)
    p.written, p.device, p.library, p.neighbours = (), "cuda:0", library, set(others)

    def launch(values: Any, stream: int) -> str:
        log.append(("launch", stream))
        if fail:
            raise DeviceError("no")
        return "result"

    p._launch = launch  # type: ignore[method-assign]
    return p


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    out: list[Any] = []
    monkeypatch.setattr(device, "wait_for", lambda stream, other: out.append((stream, "waits for", other)))
    return out


def test_a_launch_runs_on_the_stream_that_its_library_has_current(log: list[Any]) -> None:
    mine = Library(11)
    p = prepared(mine, log=log)
    assert p.run() == "result"
    mine.current_stream = 12
    p.run()
    assert log == [("launch", 11), ("launch", 12)]


def test_streams_of_other_libraries_are_waited_for_and_wait(log: list[Any]) -> None:
    mine, theirs = Library(1), Library(2)
    prepared(mine, theirs, Library(1), log=log).run()
    assert log == [(1, "waits for", 2), ("launch", 1), (2, "waits for", 1)]
    log.clear()
    theirs.current_stream = 1
    prepared(mine, theirs, log=log).run()
    assert log == [("launch", 1)], "one stream keeps its own order"


def test_the_other_library_waits_even_where_the_launch_fails(log: list[Any]) -> None:
    with pytest.raises(DeviceError):
        prepared(Library(1), Library(2), log=log, fail=True).run()
    assert log[-1] == (2, "waits for", 1)


def test_waiting_is_enqueued_and_its_event_freed() -> None:
    calls: list[tuple[Any, ...]] = []

    class Bindings:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: (
                calls.append((name, *arguments)) or (0, *([77] if name == "cuEventCreate" else []))
            )

    device.wait_for(5, 6, Bindings())
    assert calls == [
        ("cuEventCreate", 2),
        ("cuEventRecord", 77, 6),
        ("cuStreamWaitEvent", 5, 77, 0),
        ("cuEventDestroy", 77),
    ]


def test_libraries_are_asked_for_the_stream_that_is_current_now(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def current_stream(where: str) -> Any:
        asked.append(where)
        return SimpleNamespace(cuda_stream=21)

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_stream=current_stream)))
    assert TORCH.stream("cuda:1") == 21 and asked == ["cuda:1"]
    cupy = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=31))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert {a.stream("cuda:0") for a in (CupyAdapter(), JAX, TENSOR)} == {31}, (
        "what has no memory of its own uses CuPy's"
    )
