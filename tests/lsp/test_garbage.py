"""When the server looks for cyclic garbage: a moment after an analysis, in all of it while nobody types."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tessera_lsp import background


@pytest.fixture
def threshold():
    was = gc.get_threshold()
    yield
    gc.set_threshold(*was)


async def test_garbage_is_collected_behind_analyses(threshold, monkeypatch):
    found, done = list[int](), asyncio.Event()

    def collect(generation: int = 2) -> int:
        found.append(generation)
        if generation == 2:
            done.set()
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(background, "SOON", 0)
    monkeypatch.setattr(background, "PAUSE", 3600)
    collector = background.Garbage()
    for _ in range(3):
        collector.analysed()  # three of them before the server has a moment
    assert not found and gc.get_threshold() == (background.MANY, background.NEVER, background.NEVER)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(found) == 1 and found[0] < 2
    monkeypatch.setattr(background, "PAUSE", 0)
    collector.analysed()
    await done.wait()
    assert gc.get_freeze_count(), "what has been loaded stays"
