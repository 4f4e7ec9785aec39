"""Extensions that answer as Python's, Python Environments' and Jupyter's do: the same names, the same part of their
interfaces. Jupyter's runs no code: its kernel holds one array and answers nothing but Tessera's questions; cells with a
misspelt name get an output with a fix and a hint."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tessera_jupyter.session.cards import Card, Figure, ProfileCard
from tessera_jupyter.session.report import SessionReport

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

_JUPYTER = """
const vscode = require("vscode");
const FORM = "application/vnd.tessera.session+json";
let ran = 0;
let made = {};
let called = [];
function told() {
    const elements = { first: "[0, 1, 2, ...]", least: "0", most: "95", mean: "47.5" };
    const arrays = { W: { shape: [4, 24], dtype: "f32", elements, ...made.place } };
    return { arrays, cells: made.cells ?? {}, called };
}
const ACTIONS = "application/vnd.tessera.actions+json";
async function* answer(code) {
    if (code.includes("m.show_functions()")) {
        const told = JSON.stringify({ functions: FUNCTIONS, whole: true });
        yield { items: [{ mime: FORM, data: new TextEncoder().encode(told) }] };
        return;
    }
    if (code.includes("try --hint 0a1b.1")) {
        const data = new TextEncoder().encode("larger tiles: 1.3x, predicted 1.1x to 2x");
        yield { items: [{ mime: "text/plain", data }] };
        return;
    }
    if (!ran || !code.includes("tessera_jupyter.session.message")) throw new Error("Not this code: " + code);
    yield { items: [{ mime: "text/plain", data: new TextEncoder().encode("{") }] };
    yield { items: [{ mime: FORM, data: new TextEncoder().encode(JSON.stringify(told())) }] };
}
exports.activate = () => {
    const controller = vscode.notebooks.createNotebookController("stand-in", "jupyter-notebook", "Stand-in");
    controller.executeHandler = async (cells) => {
        for (const cell of cells) {
            const execution = controller.createNotebookCellExecution(cell);
            execution.start(Date.now());
            execution.executionOrder = ran += 1;
            const text = cell.document.getText();
            const [, lines, name] = /^%%tessera\\n([^]*def (\\w+)[^]*)$/.exec(text) ?? [];
            if (name) called = [{ name, text: lines, sizes: { B: 32 } }];
            if (text.includes("W = ")) made = { place: { cell: ran }, cells: { [ran]: text } };
            if (text.includes("sofmax")) {
                const start = text.indexOf("sofmax");
                const edits = [{ start, end: start + 6, text: "softmax" }];
                const fixes = [null, { title: "did you mean softmax?", cell: text, edits }];
                const hints = [null, "0a1b.1"], changes = ["give each call more work", "use larger tiles"];
                const item = vscode.NotebookCellOutputItem.json({ fixes, hints, changes }, ACTIONS);
                const html = vscode.NotebookCellOutputItem.text("<p>TS104</p>", "text/html");
                await execution.replaceOutput([new vscode.NotebookCellOutput([html, item])]);
            }
            execution.end(true, Date.now());
        }
    };
    const kernel = { status: "idle", language: "python", executeCode: answer };
    return { kernels: { getKernel: async () => (ran ? kernel : undefined) } };
};"""


def stand_ins(folder: Path) -> list[Path]:
    functions = f"const FUNCTIONS = {json.dumps(SessionReport([card()])._repr_html_())};"
    return [
        *(_pack(folder, name, code) for name, code in _CODE.items()),
        _pack(folder, "jupyter", functions + _JUPYTER, "ms-toolsai"),
    ]


def card() -> Card:
    """That of a function which was profiled once."""
    figures: list[Figure] = [
        {"label": "assumed sizes", "value": "B=1024", "source": "", "reason": ""},
        {"label": "predicted time", "value": "5.01 to 6.16 µs", "source": "modelled", "reason": ""},
        {"label": "bound by", "value": "memory", "source": "modelled", "reason": ""},
        {"label": "memory", "value": "", "source": "", "reason": "it depends on sizes"},
    ]
    profile: ProfileCard = {
        "call": "layer(x)", "cell": None, "when": 0.0, "earlier": False, "time": "7.2 µs", "source": "measured",
        "figures": [], "kernels": [],
    }  # fmt: skip
    return {
        "name": "layer", "kind": "function", "cell": None, "file": "", "text": "", "brief": "", "figures": figures,
        "profile": profile, "edits": [],
    }  # fmt: skip


def _pack(folder: Path, name: str, code: str, publisher: str = "ms-python") -> Path:
    manifest: dict[str, object] = {"name": name, "publisher": publisher, "version": "2026.1.0"}
    manifest |= {"engines": {"vscode": "^1.96.0"}, "activationEvents": ["onNotebook:jupyter-notebook"]}
    manifest |= {"main": "./main.js", "capabilities": {"untrustedWorkspaces": {"supported": True}}}
    path = folder / f"{name}.vsix"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("extension/package.json", json.dumps(manifest))
        archive.writestr("extension/main.js", code)
    return path
