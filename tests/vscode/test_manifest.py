"""The extension's manifest and archive: small, complete, and in step with the compiler and the server."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from dataclasses import fields
from pathlib import Path

from tessera_lsp.settings import Settings

from tessera.compiler.targets.base import KNOWN

ROOT = Path(__file__).parents[2]
MANIFEST = json.loads((ROOT / "vscode/package.json").read_text("utf-8"))
SETTINGS = MANIFEST["contributes"]["configuration"]["properties"]


def test_extension_is_small_and_complete(vsix: Path) -> None:
    """The archive holds what the manifest names, and stays below the size that was promised."""
    with zipfile.ZipFile(vsix) as archive:
        names = {name.removeprefix("extension/") for name in archive.namelist()}
        manifest = json.loads(archive.read("extension/package.json"))
    contributes = manifest["contributes"]
    named = [manifest["main"], manifest["icon"], "dist/server.br"]
    named += [grammar["path"] for grammar in contributes["grammars"]]
    tess = next(language for language in contributes["languages"] if language["id"] == "tess")
    named += [tess["configuration"], *tess["icon"].values()]
    for step in (step for guide in contributes["walkthroughs"] for step in guide["steps"]):
        named += [step["media"].get("image") or step["media"].get("markdown")]
    assert {path.removeprefix("./") for path in named} <= names
    assert not any(name.startswith(("src/", "node_modules/")) for name in names)
    assert vsix.stat().st_size < 745_000  # decision 39


def test_targets_are_the_compilers() -> None:
    setting = SETTINGS["tessera.target"]
    assert set(setting["enum"]) == {"auto", *KNOWN}
    assert len(setting["enumDescriptions"]) == len(setting["enum"])


def test_settings_are_the_servers() -> None:
    """Each setting that the server reads can be set, with the server's default."""
    defaults = {key.removeprefix("tessera."): entry["default"] for key, entry in SETTINGS.items()}
    server = Settings()
    assert defaults["target"] == server.target
    assert defaults["dims"] == server.dims
    assert defaults["codeLens.enable"] == server.lenses
    hints = {f.name for f in fields(Settings)} - {"target", "dims", "lenses"}
    assert {key: defaults[f"inlayHints.{key}"] for key in hints} == {key: getattr(server, key) for key in hints}


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert MANIFEST["version"] == project["version"]


def test_lock_files_name_no_registry() -> None:
    for path in ("vscode/package-lock.json", "tests/vscode/package-lock.json"):
        assert '"resolved"' not in (ROOT / path).read_text("utf-8")


def test_readme_documents_settings_and_commands() -> None:
    readme = (ROOT / "vscode/README.md").read_text("utf-8")
    for key, entry in SETTINGS.items():
        default = json.dumps(entry["default"])
        assert f"| `{key}` | `{default}` | {entry['markdownDescription']} |" in readme
    for command in MANIFEST["contributes"]["commands"]:
        assert f"| {command['title']} |" in readme


def test_pages_show_pictures_that_exist() -> None:
    readme = (ROOT / "vscode/README.md").read_text("utf-8")
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", readme)
    assert len(shown) >= 4
    assert all((ROOT / "vscode" / path).is_file() for path in shown)
