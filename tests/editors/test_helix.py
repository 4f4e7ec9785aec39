"""The configuration for Helix in docs/editors.md, in a real Helix: what stands on its screen after real keys."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browsers import PATIENCE
from tests.editors.conftest import Terminal, editor
from tests.editors.documented import DIALECT, MISTAKE, PROGRAM, beside_other_tools, snippet


@pytest.fixture(autouse=True)
def configuration(environment: dict[str, str]) -> None:
    place = Path(environment["XDG_CONFIG_HOME"], "helix")
    place.mkdir()
    (place / "languages.toml").write_text(snippet("### Helix", "toml"))
    (place / "config.toml").write_text(snippet("### Helix", "toml", 1))


def at_ease(helix: Terminal, line: int, right: int = 0) -> None:
    """Goes to a place, and waits until hints are there: Helix asks for them when a key has been pressed."""
    helix.see(MISTAKE[:30])
    helix.keys(f"{line}ggk" + "j" * (line > 1) + "l" * right)
    helix.see(f"1 sel  {line}:{right + 1}", "y: [R, C] f32 = größe * 2")


def see_of_ruff(helix: Terminal, finding: str) -> None:
    """Waits for a finding of ruff, and starts ruff again where Helix has ended it.

    Helix 25.07 at times sends `textDocument/didOpen` before `initialized`, upon which ruff ends with "expected
    initialized notification". Our own server takes that order (tests/lsp/test_bad_input.py).
    """
    for _ in range(10):
        if helix.becomes(lambda: any(finding in line for line in helix.lines()), PATIENCE / 10):
            return
        helix.keys(":lsp-restart ruff\r")
    helix.see(finding)


@pytest.mark.parametrize(("name", "text"), [("program.py", PROGRAM), ("program.tess", DIALECT)])
def test_hints_findings_and_hovers(
    name: str, text: str, folder: Path, environment: dict[str, str], terminal: Callable[..., Terminal]
) -> None:
    (folder / name).write_text(text)
    helix = terminal(editor("hx"), name)
    at_ease(helix, 8, 11)
    helix.see("8      return y @ w", f"└─{MISTAKE}", "note: for example C=2, D=3: 2 is not 3")
    helix.shot(f"helix-{name}")
    helix.keys(" k")
    helix.see("• R: axis 0 of größe (line 6)", "• C: axis 1 of größe and axis 1 of w (line 6)")
    helix.shot(f"helix-hover-{name}")


def test_a_fix_is_applied(folder: Path, terminal: Callable[..., Terminal]) -> None:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    helix = terminal(editor("hx"), path.name)
    at_ease(helix, 8, 11)
    helix.keys(" a")
    helix.see("Use the transpose of the right operand (.T)")
    helix.shot("helix-actions")
    helix.keys("\r")
    helix.see("return y @ w.T")
    helix.unsee(MISTAKE[:30])
    helix.keys(":w\r")
    helix.see("written")
    assert path.read_text("utf-8") == PROGRAM.replace("@ w", "@ w.T")


def test_a_dim_is_renamed(folder: Path, terminal: Callable[..., Terminal]) -> None:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    helix = terminal(editor("hx"), path.name)
    at_ease(helix, 6, 27)  # on `R`
    helix.keys(" r")
    helix.see("rename-to:R")
    helix.keys("\x7fRows\r")
    helix.see('project(größe: Tensor["Rows", "C"], w: Tensor["D", "C"]) -> Tensor["Rows", "D"]')
    helix.see("[Rows, C] @ [D, C]")
    helix.keys("j")
    helix.see("y: [Rows, C] f32 = größe * 2")


def test_beside_ruff_with_the_documented_settings(folder: Path, terminal: Callable[..., Terminal]) -> None:
    """Helix asks both servers; outside that folder ruff takes D for a name, and within it sees what else there is."""
    for name in ("models", "elsewhere"):
        (folder / name).mkdir()
        (folder / name / "program.py").write_text(PROGRAM + "\n\nimport os\n")
    (folder / "pyproject.toml").write_text(beside_other_tools())
    helix = terminal(editor("hx"), "elsewhere/program.py")
    at_ease(helix, 8)
    see_of_ruff(helix, "Undefined name `D`")
    helix.keys(":open models/program.py\r")
    helix.see("models/program.py")
    at_ease(helix, 8)
    helix.unsee("Undefined name `D`")
    helix.see("`os` imported but unused")
    helix.keys(" D")  # the findings of all open files
    helix.see("e/program.py [R, C]", "m/program.py [R, C]")

    def ours() -> list[list[str]]:
        return sorted(line.split()[2:4] for line in helix.lines() if " m/program.py " in line)

    helix.until(lambda: ours() == [["Ruff", "F401"], ["tessera", "TS203"]], "what both say of the file")
    helix.shot("helix-beside-ruff")


@pytest.mark.parametrize("language", ["python", "tess"])
def test_health_finds_the_server(language: str, environment: dict[str, str]) -> None:
    words = [editor("hx"), "--health", language]
    report = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"✓ tessera: {environment['HOME']}/bin/tessera-lsp" in re.sub(r"\x1b\[[\d;]*m", "", report)
