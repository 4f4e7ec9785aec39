"""The configuration for Helix in docs/editors.md: well formed, and its command is a language server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pytest_lsp.client import make_test_lsp_client

from tests.vscode.documented import snippet

# https://docs.helix-editor.com/languages.html
SERVER = {"command", "args", "config", "timeout", "environment", "required-root-patterns"}
LANGUAGE = {
    *("name", "language-id", "scope", "injection-regex", "file-types", "shebangs", "roots", "auto-format"),
    *("diagnostic-severity", "comment-token", "comment-tokens", "block-comment-tokens", "indent", "language-servers"),
    *("grammar", "formatter", "soft-wrap", "text-width", "rulers", "path-completion", "workspace-lsp-roots"),
    *("persistent-diagnostic-sources", "auto-pairs", "debugger"),
}


def test_keys() -> None:
    documented = tomllib.loads(snippet("### Helix", "toml"))
    assert set(documented) == {"language-server", "language"}
    assert all(set(server) <= SERVER for server in documented["language-server"].values())
    for language in documented["language"]:
        assert set(language) <= LANGUAGE
        assert "tessera" in language["language-servers"]
    (tess,) = [language for language in documented["language"] if language["name"] == "tess"]
    assert tess["file-types"] == ["tess"]  # a language of one's own needs its scope and its grammar
    assert {"scope", "grammar", "indent"} <= set(tess)


@pytest.mark.asyncio
async def test_command(server_on_path: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server_on_path.items():
        monkeypatch.setenv(name, value)
    server = tomllib.loads(snippet("### Helix", "toml"))["language-server"]["tessera"]
    client = make_test_lsp_client()
    await client.start_io(server["command"], *server.get("args", ()))
    result = await client.initialize_session(lsp.InitializeParams(lsp.ClientCapabilities()))
    assert result.server_info is not None
    assert result.server_info.name == "tessera-lsp"
    await client.shutdown_session()


def test_helix_finds_it(server_on_path: dict[str, str], tmp_path: Path) -> None:
    helix = shutil.which("hx") or shutil.which("helix")
    if helix is None:
        pytest.skip("Helix is not installed")
    (tmp_path / "helix").mkdir()
    (tmp_path / "helix/languages.toml").write_text(snippet("### Helix", "toml"))
    env = {**os.environ, **server_on_path, "XDG_CONFIG_HOME": str(tmp_path)}
    report = subprocess.run([helix, "--health", "tess"], env=env, capture_output=True, text=True, check=False).stdout
    assert "tessera-lsp" in report
    assert "✘ tessera" not in report
