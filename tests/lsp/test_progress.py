"""What clients are told while they wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified
from tessera_lsp import progress

from tests.lsp.conftest import eventually


class Recorder:
    def __init__(self):
        self.told = []

    async def create_async(self, token):
        self.told.append("create")

    def begin(self, token, value):
        self.told.append(value.title)

    def end(self, token, value):
        self.told.append("end")


def watched(monkeypatch, shows=True):
    monkeypatch.setattr(progress, "LONG", 0.0)
    window = lsp.WindowClientCapabilities(work_done_progress=shows)
    server = SimpleNamespace(client_capabilities=lsp.ClientCapabilities(window=window), work_done_progress=Recorder())
    done = asyncio.Event()
    document = SimpleNamespace(closed=False, known=[], problems=[], file="/a/große.py", ready=done.wait)
    progress.tell_if_long(server, document)
    return server.work_done_progress, document, done


async def test_a_long_analysis_is_told(monkeypatch):
    recorder, _, done = watched(monkeypatch)
    await eventually(lambda: len(recorder.told), 2)
    assert recorder.told == ["create", "Tessera: analysing große.py"]
    done.set()
    await eventually(lambda: recorder.told[-1], "end")


async def test_a_newer_text_goes_on_and_closing_ends_it(monkeypatch):
    async def superseded():
        raise JsonRpcContentModified

    recorder, document, _ = watched(monkeypatch)
    document.ready = superseded
    await eventually(lambda: len(recorder.told), 2)
    document.closed = True
    await eventually(lambda: recorder.told[-1], "end")


@pytest.mark.parametrize("shows", [True, False])
async def test_nothing_is_told_of_what_is_quick_or_to_who_does_not_show_it(monkeypatch, shows):
    recorder, _, done = watched(monkeypatch, shows)
    if shows:
        done.set()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # nobody watches the document any longer
    assert recorder.told == []
