"""The programs of `python -m benchmarks hints`: they say what is wrong with them, and outcomes are counted rightly."""

from __future__ import annotations

from benchmarks.hints import programs, summary
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.workspace import Modules


def test_the_programs_are_valid_and_have_names_of_their_own() -> None:
    found = list(programs())
    assert len({p.name for p in found}) == len(found) >= 45
    assert sum(not p.best for p in found) >= 10, "a hint for those with nothing wrong is to be noticed"
    file = FileAnalysis("hint_programs.py", modules=Modules())
    file.update("import tessera as ts\nfrom tessera import Tensor\n" + "".join(p.text for p in found))
    assert not [d for d in file.diagnostics if d.severity == "error"] and not file.problems
    assert len(file.analyses) >= len(found)


def test_outcomes_are_counted() -> None:
    def tried(rule: str, verdict: str, holds: bool | None) -> dict[str, object]:
        return {"rule": rule, "verdict": verdict, "holds": holds}

    rows = [
        {"best": ("a", "b"), "tried": [tried("a", "faster", True), tried("c", "no gain", False)]},
        {"best": ("a",), "tried": [tried("c", "faster", True), tried("a", "not tried", None)]},
        {"best": (), "tried": [tried("c", "faster", False)]},
        {"best": (), "tried": []},
    ]
    found = summary(rows)
    assert [found[k] for k in ("tried", "holds", "wrong", "found", "idle")] == [4, 2, 2, 1, 1]
    assert found["rules"] == {"a": [1, 1], "c": [3, 1]} and "50%" in found["said"]
