"""Versions of a notebook's functions: what an edit changed, and that both versions are what they were."""

from __future__ import annotations

import pytest
from tessera_jupyter import history
from tessera_jupyter.history import Change, changed

from tessera.profiler.trial.paired import PairedTimes

CELL = """%%tessera
FACTOR = 2


@ts.function
def inner(x: Tensor["n"]) -> Tensor["n"]:
    return x * FACTOR


@ts.function
def f(x: Tensor["n"]) -> Tensor["n"]:
    return inner(x) + 1
"""
CALL = "kept(f(x))"
OUTSIDE = "x = np.ones(3, np.float32)\nseen = []\ndef kept(y):\n    seen.append(float(y[0]))"
SAME_TIMES = PairedTimes((2.0,) * 12, (1.0,) * 12)


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")


@pytest.fixture
def compared(nb, monkeypatch):
    """What each side of each comparison computed; every edit makes the function twice as fast."""
    found = []

    def paired(before, after, budget, least):
        del nb["seen"][:]
        before(1), after(1)
        found.append(list(dict.fromkeys(nb["seen"])))
        return SAME_TIMES

    monkeypatch.setattr(history, "paired", paired)
    assert nb.run(OUTSIDE).error is None
    return found


def edit_and_profile(nb, *edits):
    for text in (CELL, *edits):
        assert nb.run(text).error is None
        assert nb.run(f"%tessera profile {CALL}").error is None


@pytest.mark.parametrize(
    ("edited", "line", "computed"),
    [
        (CELL.replace("+ 1", "+ 5"), "line 12", [3.0, 7.0]),
        (CELL.replace("FACTOR = 2", "FACTOR = 4"), "line 2", [3.0, 5.0]),
        (CELL.replace("x * FACTOR", "x * FACTOR * 3"), "line 7", [3.0, 7.0]),
    ],
)
def test_each_side_is_the_whole_cell_as_it_was(nb, compared, edited, line, computed):
    """With the constants and helpers of the cell, whichever of them was edited."""
    edit_and_profile(nb, edited)
    ran = nb.run("%tessera history f")
    assert compared == [computed]
    assert line in ran.text and "2.00x" in ran.text and "faster" in ran.text
    nb.run("%tessera history f")
    assert len(compared) == 1, "what was measured is kept"
    assert nb.run(f"{CALL}; seen[-1]").result == computed[1], "the names mean what they meant"


def test_arrays_are_those_of_now(nb, compared):
    edit_and_profile(nb)
    nb.run("x = np.full(3, 10, np.float32)")
    nb.run(CELL.replace("+ 1", "+ 5"))
    nb.run(f"%tessera profile {CALL}")
    nb.run("%tessera history f")
    assert compared == [[21.0, 25.0]]


def test_a_comment_is_no_edit(nb, compared):
    edit_and_profile(nb, CELL, CELL.replace("\n@ts", "\n# why\n\n@ts"))
    assert "one version so far" in nb.run("%tessera history f").text
    assert compared == []


def test_lines_that_go_are_an_edit(nb, compared):
    edit_and_profile(nb, CELL + "    # end\nOTHER = 1\n", CELL)
    assert "lines that went away" in nb.run("%tessera history f").text


def test_a_version_that_does_not_run_any_more_says_why(nb, compared):
    for text, shape in ((CELL, "3"), (CELL.replace('"n"', '"n", 2'), "(3, 2)")):
        nb.run(f"x = np.ones({shape}, np.float32)")
        nb.run(text)
        assert nb.run("%tessera profile f(x)").error is None
    ran = nb.run("%tessera history f")
    assert "not compared" in ran.text and "does not run on what the notebook holds now" in ran.text
    assert nb.run("f(x).shape").result == (3, 2), "the names mean what they meant"


def test_calls_that_are_made_once_are_not_compared(nb, compared):
    for text in (CELL, CELL.replace("+ 1", "+ 5")):
        nb.run(text)
        nb.run(f"%tessera profile {CALL} --once")
    assert "--once" in nb.run("%tessera history f").text
    assert compared == []


def test_the_newest_versions_are_kept(nb, compared):
    edit_and_profile(nb, *(CELL.replace("+ 1", f"+ {n}") for n in range(2, history.MOST + 4)))
    assert len(nb.run("%tessera history f").text.splitlines()) == history.MOST


def test_functions_of_plain_cells_have_a_history(nb, compared):
    plain = CELL.removeprefix("%%tessera\n")
    for text in (plain, plain.replace("+ 1", "+ 5")):
        nb.run(text)
        nb.run(f"%tessera profile {CALL}")
    assert "line 11" in nb.run("%tessera history f").text
    assert compared == [[3.0, 7.0]]


def test_what_has_no_history_says_so(nb):
    nb.run(CELL)
    assert "%tessera profile f(...)" in nb.run("%tessera history f").stderr
    assert "is not a function" in nb.run("x = 1\n%tessera history x").stderr


def test_two_real_versions_are_measured(nb):
    nb.run(OUTSIDE)
    edit_and_profile(nb, CELL.replace("+ 1", "+ 5"))
    nb.run("%tessera history f")
    magics = nb.shell.magics_manager.registry["TesseraMagics"]
    change = magics.session.versions.edits("f").versions[-1].change
    assert change.times is not None and len(change.times.before) >= 6


def test_a_watched_cell_profiles_at_every_run(nb, compared):
    cell = CELL.replace("%%tessera", "%%tessera --watch")
    assert "watched: profile a call once (%tessera profile inner(...))" in nb.run(cell).text
    assert compared == []
    nb.run(f"%tessera profile {CALL}")
    assert f"the next edit is compared with this run of {CALL}" in nb.run(cell).text
    ran = nb.run(cell.replace("+ 1", "+ 5"))
    assert compared == [[3.0, 7.0]]
    assert "since you changed line 12: 2.00x, 95 % interval 2.00 to 2.00: faster" in ran.text
    assert "<b>Since you changed line 12: 2.00x" in ran.html
    assert "line 12: 2.00x" in nb.run(cell.replace("+ 1", "+ 5")).text, "it still holds"
    assert len(compared) == 1


def test_a_watched_cell_with_a_call_needs_no_other(nb, compared):
    cell = CELL.replace("%%tessera", f'%%tessera --watch --profile "{CALL}"')
    assert "the next edit is compared" in nb.run(cell).text
    assert "since you changed lines 2, 12: 2.00x" in nb.run(cell.replace("+ 1", "+ 5").replace("= 2", "= 4")).text


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([0.5] * 12, "faster"),
        ([2.0] * 12, "slower"),
        ([1.0, 1.001] * 6, "no difference"),
        ([0.8, 1.2] * 6, "unclear"),
        ([1.0, 1.1, 1.2] * 4, "unclear"),
        ([0.5] * 5, "unclear"),
    ],
)
def test_a_verdict_needs_the_whole_interval(after, verdict):
    change = Change((12,), PairedTimes((1.0,) * len(after), tuple(after)))
    assert change.verdict == verdict
    assert f": {verdict} " in str(change)


def test_the_lines_that_changed():
    old = ("a = 1", "", "b = 2", "# note", "c = 3")
    assert changed(old, ("# other", "a = 1", "b = 2", "", "c = 3")) is None
    assert changed(old, ("a = 1", "b = 5", "c = 3", "d = 4")) == [2, 4]
    assert changed(old, ("a = 1", "c = 3")) == []
