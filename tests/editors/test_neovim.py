"""The configuration for Neovim in docs/editors.md, in a real Neovim: what it knows, and what stands on its screen."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import PATIENCE
from tests.conftest import require
from tests.editors.conftest import Terminal, editor
from tests.editors.documented import DIALECT, MISTAKE, PROGRAM, beside_other_tools, snippet

FLAT = """

@ts.function
def flat(x: Tensor["R", "C"]) -> Tensor["R*C"]:
    return x.reshape(R * C)
"""
OTHERS = """
vim.lsp.config("pyright", {
  cmd = { "pyright-langserver", "--stdio" }, filetypes = { "python" }, root_markers = { "pyproject.toml" },
})
vim.lsp.config("ruff", { cmd = { "ruff", "server" }, filetypes = { "python" }, root_markers = { "pyproject.toml" } })
vim.lsp.enable({ "pyright", "ruff" })
"""
HINTS = """
local space = vim.api.nvim_get_namespaces()["nvim.lsp.inlayhint"]
return vim.tbl_map(function(mark)
  local text = vim.tbl_map(function(part) return part[1] end, mark[4].virt_text)
  return { mark[2], mark[3], table.concat(text) }
end, vim.api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true }))
"""
FINDINGS = """
return vim.tbl_map(function(d)
  return { d.source:lower(), d.code, d.lnum, d.col, d.end_col }
end, vim.diagnostic.get(0))
"""
PULLED = """
local params, found = { textDocument = vim.lsp.util.make_text_document_params(0) }, {}
for id, answer in pairs(vim.lsp.buf_request_sync(0, "textDocument/diagnostic", params, 10000) or {}) do
  local codes = vim.tbl_map(function(d) return d.code end, (answer.result or {}).items or {})
  found[vim.lsp.get_client_by_id(id).name] = vim.fn.uniq(vim.fn.sort(codes))
end
return found
"""
"""codes by server, asked for anew"""


class Neovim:
    """One that has no screen of its own; a second one shows it in the terminal, where keys are pressed."""

    def __init__(self, start: Callable[..., Terminal], folder: Path, env: dict[str, str], file: str) -> None:
        self._program, self._env = editor("nvim"), env
        self._address, self._question = Path(env["HOME"], "nvim.sock"), Path(env["HOME"], "question.lua")
        words = [self._program, "--headless", "--listen", str(self._address), file]
        self._process = subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while not self._address.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.screen = start(self._program, "--server", str(self._address), "--remote-ui")

    def ask(self, lua: str) -> Any:
        """What a chunk of Lua returns."""
        self._question.write_text(lua, "utf-8")
        evaluate = f"luaeval('vim.json.encode(dofile(_A))', '{self._question}')"
        words = [self._program, "--server", str(self._address), "--remote-expr", evaluate]
        run = subprocess.run(words, env=self._env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    def until(self, lua: str, expected: Any) -> None:
        """Waits until a chunk of Lua returns what is expected."""
        found: list[Any] = []

        def holds() -> bool:
            found.append(self.ask(lua))
            return found[-1] == expected

        self.screen.until(holds, lambda: f"{expected}, but {found[-1]}")

    def go(self, line: int, column: int) -> None:
        self.ask(f"vim.api.nvim_win_set_cursor(0, {{ {line}, {column} }}) return 0")

    def text(self) -> str:
        return "\n".join(self.ask("return vim.api.nvim_buf_get_lines(0, 0, -1, false)")) + "\n"

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)


@pytest.fixture
def neovim(
    terminal: Callable[..., Terminal], folder: Path, environment: dict[str, str]
) -> Iterator[Callable[..., Neovim]]:
    """`neovim("program.py")` opens a file of the project's with the documented configuration, and `more` after it."""
    opened: list[Neovim] = []

    def start(file: str, more: str = "") -> Neovim:
        place = Path(environment["XDG_CONFIG_HOME"], "nvim/init.lua")
        place.parent.mkdir()
        place.write_text(snippet("### Neovim", "lua") + more)
        opened.append(Neovim(terminal, folder, environment, file))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.mark.parametrize(
    ("name", "text", "filetype"), [("program.py", PROGRAM, "python"), ("program.tess", DIALECT, "tess")]
)
def test_hints_findings_and_hovers(name: str, text: str, filetype: str, folder: Path, neovim: Any) -> None:
    (folder / name).write_text(text)
    editor = neovim(name)
    editor.until(FINDINGS, [["tessera", "TS203", 7, 11, 16]])
    editor.until(HINTS, [[6, 5, ": [R, C] f32"]])
    editor.screen.see("    y: [R, C] f32 = größe * 2", "E     return y @ w", "E:1")
    assert editor.ask("return vim.bo.filetype") == filetype
    (message,) = editor.ask("return vim.tbl_map(function(d) return d.message end, vim.diagnostic.get(0))")
    assert message.startswith(MISTAKE)
    editor.go(8, 11)
    editor.screen.keys("K")
    editor.screen.see("y: [R, C] f32", "- R: axis 0 of größe (line 6)", "- C: axis 1 of größe and axis 1 of w (line 6)")
    editor.screen.shot(f"neovim-{name}")


def test_a_fix_is_applied(folder: Path, neovim: Any) -> None:
    (folder / "program.py").write_text(PROGRAM)
    editor = neovim("program.py")
    editor.until(FINDINGS, [["tessera", "TS203", 7, 11, 16]])
    editor.go(8, 15)
    editor.screen.keys("gra")
    editor.screen.see("1: Use the transpose of the right operand (.T)")
    editor.screen.shot("neovim-actions")
    editor.screen.keys("1\r")
    editor.screen.see("return y @ w.T")
    editor.until(FINDINGS, [])
    assert editor.text() == PROGRAM.replace("@ w", "@ w.T")


def test_a_dim_is_renamed(folder: Path, neovim: Any) -> None:
    (folder / "program.py").write_text(PROGRAM)
    editor = neovim("program.py")
    editor.until(HINTS, [[6, 5, ": [R, C] f32"]])
    editor.go(6, len('def project(größe: Tensor["'.encode()))
    editor.screen.keys("grn")
    editor.screen.see("New Name: R")
    editor.screen.keys("\x15Rows\r")  # Ctrl-U empties the line
    editor.screen.see("y: [Rows, C] f32 = größe * 2")
    assert editor.text() == PROGRAM.replace('"R"', '"Rows"')


def test_beside_pyright_and_ruff_with_the_documented_settings(folder: Path, neovim: Any) -> None:
    """All three read both files; where the settings hold, only ours has something to say."""
    require("pyright")
    for name in ("models", "elsewhere"):
        (folder / name).mkdir()
        (folder / name / "program.py").write_text(PROGRAM + FLAT)
    (folder / "pyproject.toml").write_text(beside_other_tools())
    editor = neovim("elsewhere/program.py", OTHERS)
    editor.until(PULLED, {"pyright": ["reportUndefinedVariable"], "ruff": ["F821"], "tessera": ["TS203"]})
    editor.screen.see("elsewhere/program.py ")
    editor.screen.keys(":edit models/program.py\r")
    editor.until(FINDINGS, [["tessera", "TS203", 7, 11, 16]])
    editor.until(HINTS, [[6, 5, ": [R, C] f32"]])
    editor.until(PULLED, {"pyright": [], "ruff": [], "tessera": ["TS203"]})
    editor.screen.see("models/program.py ", "y: [R, C] f32 = größe * 2")
    editor.screen.shot("neovim-beside-others")
