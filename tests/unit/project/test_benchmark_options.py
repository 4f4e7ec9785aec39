"""Which rows `--only` chooses, and to whom options go."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.harness import Only, parser_of


def test_only_takes_parts_of_names_in_any_capitals() -> None:
    only = parser_of("").parse_args(["--only", "NANOgpt"]).only
    assert [n for n in ("tiny MLP step", "nanoGPT step 4x128") if only.takes(n)] == ["nanoGPT step 4x128"]
    only.demand()


def test_without_only_all_are_taken() -> None:
    only = parser_of("").parse_args([]).only
    assert only.takes("tiny MLP step")
    only.demand()


def test_only_refuses_what_no_name_contains() -> None:
    only = Only("nanoGTP")
    assert not only.takes("nanoGPT step") and not only.takes("PINN")
    with pytest.raises(SystemExit, match=r"--only nanoGTP: no name contains this\. There are: nanoGPT step; PINN"):
        only.demand()


@pytest.mark.parametrize("arguments", [["cpu", "--", "--only", "x"], ["cpu", "--only", "x"]], ids=str)
def test_options_go_to_the_measurement(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def run(arguments: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        given.append(arguments[1:])
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert command.main(arguments) == 0
    assert given == [["-m", "benchmarks.cpu", "--only", "x"]]


def test_options_without_one_measurement_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "x"]) == 2 and command.main(["cpu", "training", "--quick"]) == 2
    assert "Name the one measurement that is to have --quick" in capsys.readouterr().err
