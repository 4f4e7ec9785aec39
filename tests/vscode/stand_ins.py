"""Extensions that answer as Python's and Python Environments' do: the same names, the same part of their interfaces."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

PYTHON = "/opt/chosen-in-python/bin/python"
ENVIRONMENTS = "/opt/chosen-in-environments/bin/python"
_CODE = {
    "python": f"""exports.activate = () => ({{ environments: {{
        getActiveEnvironmentPath: (resource) => ({{ id: "1", path: {PYTHON!r} }}),
        resolveEnvironment: async (found) => ({{ executable: {{ uri: require("vscode").Uri.file(found.path) }} }}),
        onDidChangeActiveEnvironmentPath: () => ({{ dispose() {{}} }}),
    }} }});""",
    "vscode-python-envs": f"""exports.activate = () => ({{
        getEnvironment: async (scope) => ({{ execInfo: {{ run: {{ executable: {ENVIRONMENTS!r} }} }} }}),
        onDidChangeEnvironment: () => ({{ dispose() {{}} }}),
    }});""",
}


def stand_ins(folder: Path) -> list[Path]:
    return [_pack(folder, name, code) for name, code in _CODE.items()]


def _pack(folder: Path, name: str, code: str) -> Path:
    manifest = {"name": name, "publisher": "ms-python", "version": "2026.1.0", "engines": {"vscode": "^1.96.0"}}
    manifest |= {"main": "./main.js", "capabilities": {"untrustedWorkspaces": {"supported": True}}}
    path = folder / f"{name}.vsix"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("extension/package.json", json.dumps(manifest))
        archive.writestr("extension/main.js", code)
    return path
