"""Cards of the session: what they say of functions and kernels, and that nothing runs for them."""

from __future__ import annotations

import math

import pytest
from tessera_jupyter import history
from tessera_jupyter.session.sizes import named

from tessera.compiler.predict import predict
from tessera.profiler.trial.paired import PairedTimes
from tessera.runtime.compiled import Compiled

CELL = """%%tessera
SCALE = 2.0


@ts.function
def inner(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    return x * SCALE


@ts.function
def layer(x: Tensor["N", "D", ts.f32], w: Tensor["D", "D", ts.f32]) -> Tensor["N", "D", ts.f32]:
    return ts.softmax(x @ w) @ w


@ts.function
def loop(x: Tensor["n"]):
    while x.sum() > 2:
        x = x * 0.5
    return x
"""
CALL = "layer(np.ones((8, 16), np.float32), np.ones((16, 16), np.float32))"


def cards(nb):
    """By name, as a page gets them."""
    session = nb.shell.magics_manager.registry["TesseraMagics"].session
    return {card["name"]: card for card in session.cards(math.inf)[0]}


def figures(card):
    return {f["label"]: (f["value"], f["source"], f["reason"]) for f in card["figures"]}


@pytest.fixture
def session(nb):
    assert nb.run(CELL).error is None
    return nb


def test_a_card_before_the_first_call_says_what_it_assumes(session):
    found = cards(session)
    assert list(found) == ["inner", "layer", "loop"], "as they stand in the cell"
    known = figures(found["layer"])
    assert known["assumed sizes"] == ("N=D=1024", "", "")
    assert known["launches"][:2] == ("3", "static")
    assert known["predicted time"][1] == "modelled" and found["layer"]["brief"] == known["predicted time"][0]
    assert known["bound by"] == ("arithmetic", "modelled", ""), "products of 1024 x 1024"
    loops = figures(found["loop"])
    for label in ("predicted time", "bound by", "least traffic", "operations"):
        assert loops[label] == ("", "", "how often it loops depends on its data")
    assert found["layer"]["profile"] is None and found["layer"]["edits"] == []


def test_a_card_after_a_call_is_that_of_its_sizes(session):
    assert session.run(CALL).error is None
    card = cards(session)["layer"]
    known = figures(card)
    assert known["last sizes"] == ("N=8, D=16", "", "")
    made = Compiled.of_last_call(session["layer"])
    modelled = predict(made.analysis, {"N": 8, "D": 16}, made.target.name)
    assert card["brief"] == modelled.time
    launches = made.explain().kernels
    assert modelled.flops == sum(k["flops"] for k in launches)
    assert modelled.moved == sum(k["bytes"] for k in launches)
    assert known["bound by"][0] == "launches", "three launches of some thousand operations"
    assert card["text"].startswith("@ts.function\ndef layer(") and card["text"].endswith("@ w")


def test_nothing_of_the_notebook_runs_for_a_card(session):
    """Neither a function nor what the user's objects do when they are asked."""
    session.run("ran = []\nclass Odd:\n    def __getattr__(self, name):\n        ran.append(name)\nodd = Odd()")
    session.run("SCALE = 2.0\nouter = inner")
    assert [name for name, _ in named(session.shell.user_ns)] == ["inner", "layer", "loop"], "another name is no other"
    cards(session)
    assert session["ran"] == []
    assert Compiled.of_last_call(session["layer"]) is None


def test_a_card_follows_what_its_function_reads(session):
    session.run("%%tessera\nAXIS = 0\n\n\n@ts.function\ndef total(x: Tensor[64, 8]):\n    return x.sum(axis=AXIS)\n")
    before = figures(cards(session)["total"])["least traffic"]
    session.run("AXIS = 1")
    assert figures(cards(session)["total"])["least traffic"] != before


def test_the_last_profile_is_of_this_version_or_says_so(session):
    assert session.run(f"%tessera profile {CALL}").error is None
    profile = cards(session)["layer"]["profile"]
    assert profile["call"] == CALL and not profile["earlier"] and profile["source"] == "measured" and profile["time"]
    assert [k["title"].split(" ", 1)[0] for k in profile["kernels"]] == ["layer:12"] * 3
    session.run(CELL.replace("@ w\n", "@ w + x\n"))
    card = cards(session)["layer"]
    assert card["profile"]["earlier"] and card["profile"]["time"] == profile["time"]
    assert "has not been profiled" in session.run("%tessera hints layer").stderr


def test_edits_are_shown_and_only_compared_when_somebody_asks(session, monkeypatch):
    compared = []
    times = PairedTimes((2.0,) * 12, (1.0,) * 12)
    monkeypatch.setattr(history, "paired", lambda *given, **options: compared.append(1) or times)
    for text in (CELL, CELL.replace("ts.softmax(x @ w) @ w", "ts.softmax(x @ w) @ w * 2")):
        session.run(text)
        session.run(f"%tessera profile {CALL}")
    waiting = cards(session)["layer"]["edits"]
    assert waiting == [{"text": "You changed line 12: not compared yet", "verdict": "", "compared": False}]
    assert compared == []
    session.run("%tessera history layer")
    (edit,) = cards(session)["layer"]["edits"]
    assert edit["text"].startswith("Since you changed line 12: 2.00x, 95 % interval 2.00 to 2.00: faster")
    assert edit["verdict"] == "faster" and edit["compared"]


def test_methods_and_imported_functions_have_cards(session, tmp_path, monkeypatch):
    text = "import tessera as ts\n\n\n@ts.function\ndef double(x: ts.Tensor['n']):\n    return x * 2\n"
    (tmp_path / "elsewhere_of_cards.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    session.run("from elsewhere_of_cards import double")
    session.run("%%tessera\nclass Net:\n    @ts.function\n    def forward(x: Tensor['n']):\n        return x + 1\n")
    found = cards(session)
    assert found["Net.forward"]["file"] == "" and found["double"]["file"] == str(tmp_path / "elsewhere_of_cards.py")


def test_new_cards_wait_when_there_is_no_time_for_them(session):
    magics = session.shell.magics_manager.registry["TesseraMagics"]
    names = []
    for _ in range(3):
        found, whole = magics.session.cards(-math.inf)
        names.append(([card["name"] for card in found], whole))
    assert names == [(["inner"], False), (["inner", "layer"], False), (["inner", "layer", "loop"], True)]


def test_other_front_ends_have_a_table(session):
    session.run(f"%tessera profile {CALL}")
    ran = session.run("%tessera functions")
    assert ran.error is None
    assert "function layer  N=8, D=16" in ran.text and "layer" in ran.html
    assert "how often it loops depends on its data" in ran.html


def test_a_session_without_functions_says_so(nb):
    assert "No functions or kernels yet." in nb.run("%tessera functions").text


def test_a_card_has_the_newest_call_that_can_be_made_again(session):
    """`In` is what a kernel keeps of its cells: `run` of these tests keeps it too."""
    session.run("x, w = np.ones((4, 4), np.float32), np.eye(4, dtype=np.float32)\nlayer(w, x)")
    session.run("%time for i in range(2): layer(x, w.T)")
    session.run(
        "queue = [x]\nlayer(queue.pop(), w)\ndef later(u):\n    return layer(u, u)\n[layer(u, u) for u in (x,)]"
    )
    session.run("gone = x\nlayer(gone, w)\ndel gone")
    found = cards(session)
    assert found["layer"]["call"] == "layer(x, w.T)"
    assert found["loop"]["call"] == ""
    session.run("layer(np.ascontiguousarray(w.T), x.copy())\nlayer(np.random.rand(4, 4), w)")
    assert cards(session)["layer"]["call"] == "layer(np.ascontiguousarray(w.T), x.copy())"
