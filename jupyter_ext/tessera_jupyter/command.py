"""The words after `%tessera` and `%%tessera`: options, expressions, what is wrong with them, completion.

An expression is taken as it is written (`profile f(x, "a b") -o out.html`): words end at blanks outside quotes and
brackets only, so nothing needs to be quoted for a shell that is not there.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from IPython.core.error import UsageError

from tessera.compiler.machines import ANY_GPU, AUTO, MACHINES

TABS = ("shapes", "ir", "kernel", "profile", "hints")
LEVELS = ("graph", "schedule", "tile", "target", "assembly")
TARGETS = (AUTO, ANY_GPU, *MACHINES)
OPTIONS: Mapping[str, str] = {
    "--target": "what to compile for: " + ", ".join(TARGETS),
    "--dims": "sizes of named dims, as in --dims S=4096,D=1024",
    "--profile": 'an expression to run under the profiler, as in --profile "f(x)"',
    "--show": "the panel's tabs, as in --show shapes,ir (of " + ", ".join(TABS) + ")",
    "--level": "one level of the IR: " + ", ".join(LEVELS),
    "-o": "the file to write",
    "--generic": "IR as MLIR's generic text, which tools read",
    "--watch": "profile at every run and, in JupyterLab, after every edit; say what the edit changed",
    "--hint": "a hint of a panel, as its button names it",
    "--follow": "tell a page, which JupyterLab's side panel asks for, and again after each cell",
    "--once": "record the first run, compilation and all, instead of the second",
}
FLAGS = ("--once", "--generic", "--watch", "--follow")
CELL_OPTIONS = ("--target", "--dims", "--profile", "--show", "--once", "--watch")


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One `%tessera NAME`: what it takes (for its usage line) and which options."""

    takes: str
    doc: str
    options: tuple[str, ...] = ()


SUBCOMMANDS: Mapping[str, Subcommand] = {
    "profile": Subcommand("f(x)", "run it and show where the time went; -o writes a page", ("-o", "--once")),
    "ir": Subcommand(
        "f",
        "the IR of a function or kernel, linked with its source",
        ("--level", "--target", "--dims", "--generic"),
    ),
    "hints": Subcommand("f(x)", "run it and say what would make it faster; or f, for its last profile", ("--once",)),
    "try": Subcommand("f(x)", "make the first change that its hints advise, and time both by turns", ("--hint",)),
    "compare": Subcommand("f(x), g(x)", "run both by turns and compare them line by line"),
    "history": Subcommand("f", "what each edit of its cell did to its time, measured by turns"),
    "functions": Subcommand("", "functions and kernels of the session: predictions, profiles, edits", ("--follow",)),
    "why": Subcommand("f", "which part of the key changed when it was compiled again"),
    "trace": Subcommand("f(x)", "run it and write a Chrome trace", ("-o", "--once")),
    "memory": Subcommand("f(x)", "run it and show what it allocates, line by line", ("--once",)),
    "doctor": Subcommand("", "what this machine has, and what to install for the rest"),
}


@dataclass(frozen=True, slots=True)
class MagicRequest:
    """A parsed line. `expression` is Python ("" where none was given)."""

    expression: str = ""
    target: str = "auto"
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    profile: str = ""
    show: tuple[str, ...] = TABS
    level: str = ""
    output: str = ""
    watch: bool = False
    hint: str = ""
    follow: bool = False
    once: bool = False
    generic: bool = False


def cell_request(line: str) -> MagicRequest:
    """The options of a `%%tessera` line. Raises UsageError."""
    request = _request(words(line), CELL_OPTIONS, _cell_usage())
    if request.expression:
        hint = f"; to run something, write --profile {request.expression!r} or put it into the cell"
        raise UsageError(f"%%tessera takes options only, not {request.expression!r}{hint}\n{_cell_usage()}")
    return request


def line_request(line: str) -> tuple[str, MagicRequest]:
    """The sub-command of a `%tessera` line and its options. Raises UsageError."""
    name, _, rest = line.strip().partition(" ")
    if name not in SUBCOMMANDS:
        raise UsageError(f"%tessera has no {name!r}{_close(name, SUBCOMMANDS)}\n{usage()}")
    sub = SUBCOMMANDS[name]
    own = f"%tessera {name} {sub.takes}".rstrip() + _listed(sub.options)
    request = _request(words(rest), sub.options, f"usage: {own}")
    if bool(request.expression) != (bool(sub.takes) and not request.hint):
        missing = f"needs {sub.takes}" if sub.takes else f"takes nothing, not {request.expression!r}"
        raise UsageError(f"%tessera {name} {missing}\nusage: {own}")
    return name, request


def usage() -> str:
    """Every sub-command, one a line."""
    heads = [f"%tessera {name} {sub.takes}" for name, sub in SUBCOMMANDS.items()]
    width = max(map(len, heads))
    return "\n".join(f"  {head:<{width}}  {sub.doc}" for head, sub in zip(heads, SUBCOMMANDS.values(), strict=True))


def words(line: str) -> list[str]:
    """The line's words, split at blanks that stand outside quotes and brackets."""
    out: list[str] = [""]
    depth, quote, escaped = 0, "", False
    for c in line.strip():
        if quote:
            if c == quote and not escaped:
                quote = ""
            escaped = c == "\\" and not escaped
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(0, depth - 1)
        elif c.isspace() and depth == 0:
            out.append("")
            continue
        out[-1] += c
    return [w for w in out if w]


def sizes(text: str) -> dict[str, int]:
    """`S=4096,D=1024` as a mapping. Raises UsageError."""
    out: dict[str, int] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.isidentifier() or not value.replace("_", "").isdigit():
            raise UsageError(f"--dims {part!r} is not NAME=SIZE, as in --dims S=4096,D=1024")
        out[name] = int(value)
    return out


def _request(given: list[str], allowed: tuple[str, ...], usage_line: str) -> MagicRequest:
    found: dict[str, str] = {}
    rest: list[str] = []
    queue = iter(given)
    for word in queue:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in allowed:
            if name.startswith("--") or name in OPTIONS:
                raise UsageError(f"there is no option {name} here{_close(name, allowed)}\n{usage_line}")
            rest.append(word)
            continue
        if name in FLAGS:
            found[name] = name
            continue
        value = value if equals else next(queue, "")
        if not value or (value.startswith("--") and not equals):
            raise UsageError(f"{name} needs a value: {OPTIONS[name]}\n{usage_line}")
        found[name] = _unquoted(value)
    return MagicRequest(
        expression=" ".join(rest),
        target=found.get("--target", "auto"),
        dims=sizes(found.get("--dims", "")),
        profile=found.get("--profile", ""),
        show=_chosen("--show", found.get("--show", ",".join(TABS)).split(","), TABS),
        level="".join(_chosen("--level", [found["--level"]], LEVELS)) if "--level" in found else "",
        output=found.get("-o", ""),
        watch="--watch" in found,
        hint=found.get("--hint", ""),
        follow="--follow" in found,
        once="--once" in found,
        generic="--generic" in found,
    )


def _chosen(option: str, names: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name.strip() not in known:
            raise UsageError(f"{option} {name.strip()!r}{_close(name.strip(), known)}: it is one of {', '.join(known)}")
    return tuple(dict.fromkeys(n.strip() for n in names))


def _unquoted(word: str) -> str:
    """`"f(x)"` without its quotes; an expression that merely begins with a string stays as it is."""
    if word[0] not in "\"'":
        return word
    try:
        value = ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word
    return value if isinstance(value, str) else word


def _close(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _cell_usage() -> str:
    return "usage: %%tessera" + _listed(CELL_OPTIONS)


def _listed(options: tuple[str, ...]) -> str:
    return "".join(f" [{o}]" if o in FLAGS else f" [{o} ...]" for o in options)


def completions(line: str, names: Iterable[str]) -> list[str]:
    """What may follow `line`, the text up to the cursor. `names`: functions and kernels of the notebook."""
    cell = line.lstrip().startswith("%%")
    given = line.split()[1:] + ([""] if line[-1:].isspace() else [])
    if not given:
        return []
    *before, current = given
    previous = before[-1] if before else ""
    values = {"--target": TARGETS, "--level": LEVELS, "--show": TABS}
    if previous in values:
        head, comma, last = current.rpartition(",")
        return [head + comma + v for v in values[previous] if v.startswith(last)]
    if cell:
        choices: Iterable[str] = CELL_OPTIONS
    elif not before:
        choices = SUBCOMMANDS
    else:
        sub = SUBCOMMANDS.get(before[0])
        choices = [*(names if sub and sub.takes and not current.startswith("-") else ()), *(sub.options if sub else ())]
    return [c for c in choices if c.startswith(current)]
