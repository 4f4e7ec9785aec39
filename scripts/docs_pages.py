"""MkDocs hook: pages made from the sources, so that they cannot fall behind them.

errors.md is tessera.codes.CODES as a table per family, settings.md the table of tessera.knobs; decisions/index.md
lists the records beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tessera import knobs
from tessera.codes import CODES

FAMILIES = {
    "1": "Syntax and Python constructs",
    "2": "Shapes and annotations",
    "3": "Dtypes and numerics",
    "4": "Kernels and tiles",
    "5": "Launching",
    "6": "Targets and environment",
    "7": "Profiling",
    "8": "Distribution",
    "9": "Internal",
}


def on_files(files: Files, config: Any) -> Files:
    decisions = sorted((Path(config.docs_dir) / "decisions").glob("[0-9]*.md"))
    files.append(File.generated(config, "errors.md", content=errors_page()))
    files.append(File.generated(config, "settings.md", content=settings_page()))
    files.append(File.generated(config, "decisions/index.md", content=decisions_page(decisions)))
    return files


def errors_page() -> str:
    """Every code in Markdown, under its family's heading, with an anchor of its own (errors.html#ts201)."""
    lines = [
        "# Errors",
        "",
        "Every finding carries one of these codes, in the terminal, in a notebook, in an editor and in",
        "`tessera check --json`. Codes keep their meaning between versions. The last column says which modules of",
        "`tessera` find them.",
    ]
    for digit, family in FAMILIES.items():
        entries = {code: entry for code, entry in CODES.items() if code[2] == digit}
        if entries:
            lines += ["", f"## {family}", "", "| code | kind | rule | found in |", "|---|---|---|---|"]
            lines += [
                f'| <span id="{code.lower()}">{code}</span> | {entry.kind} | {entry.summary} | {entry.found_in} |'
                for code, entry in sorted(entries.items())
            ]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Every environment variable, its default and what it does."""
    lines = [
        "# Settings",
        "",
        "Environment variables, read whenever they are needed. A value that is not allowed is an error"
        " ([TS607](errors.md#ts607)) that says what is. There are no files of settings: a `tessera.toml` is not read,"
        " and `tessera check` says so ([TS613](errors.md#ts613)).",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{variable}` | {default} | {doc} |" for variable, default, doc in knobs.table()]
    return "\n".join(lines) + "\n"


def decisions_page(records: list[Path]) -> str:
    lines = ["# Decisions", "", "What a later reader might question, and why it is so. Half a page each."]
    for record in records:
        title = record.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines += ["", f"- [{title}]({record.name})"]
    return "\n".join(lines) + "\n"
