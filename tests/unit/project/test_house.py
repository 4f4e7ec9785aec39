"""The house has no circle of imports, and no crowded folders.

Import contracts hold the order of its layers. Here every import counts: those of a module, those inside of functions,
and those for type checkers.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = [ROOT / "tessera", ROOT / "lsp" / "tessera_lsp", ROOT / "jupyter_ext" / "tessera_jupyter"]
MOST_MODULES = 18
"""in a folder, besides `__init__.py`"""
ANY_NUMBER = "lsp/tessera_lsp/features"
"""here each feature of the protocol has a module"""


@cache
def tree(path: Path) -> ast.Module:
    """The text of a module, parsed once for all that is looked for in it."""
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """What `ast.walk` gives of a module: each statement before what it holds."""
    return list(ast.walk(tree(path)))


def modules() -> dict[str, Path]:
    """Every module of the packages, by its dotted name."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: Container[str]) -> Iterator[tuple[str, int]]:
    """The known modules that a module imports anywhere in its text, with the lines of the imports."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in nodes(path):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            full = [f"{base}.{alias.name}" for alias in node.names]
            targets = [each if each in known else base for each in full]
        yield from ((target, node.lineno) for target in targets if target in known and target != name)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other (Tarjan's strongly connected components), without single modules."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in number:
                visit(target)
            if target in stack:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[-len(group) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def test_no_circle_of_imports() -> None:
    known = modules()
    graph: dict[str, set[str]] = {name: set() for name in known}
    places: dict[tuple[str, str], str] = {}
    for name, path in known.items():
        for target, line in imports(name, path, known):
            graph[name].add(target)
            places[name, target] = f"{path.relative_to(ROOT)}:{line}"
    said: list[str] = []
    for group in circles(graph):
        said.append(f"a circle of {len(group)} modules:")
        said += [f"  {places[n, t]}: {n} imports {t}" for n in group for t in sorted(graph[n] & set(group))]
    assert not said, "\n".join(said)


def test_a_circle_is_found_whatever_kind_of_import_closes_it(tmp_path: Path) -> None:
    known = {name: tmp_path / f"{name}.py" for name in ("first", "second", "third", "alone")}
    known["first"].write_text("import second\n")
    known["second"].write_text("def f():\n    from third import x\n")
    known["third"].write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import first\n")
    known["alone"].write_text("from first import second\n")
    graph = {name: {target for target, _ in imports(name, path, known)} for name, path in known.items()}
    assert circles(graph) == [["first", "second", "third"]]


def test_folders_have_at_most_18_modules() -> None:
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in modules().values() if path.name != "__init__.py")
    del counts[ANY_NUMBER]
    too_many = {folder: n for folder, n in sorted(counts.items()) if n > MOST_MODULES}
    assert not too_many, f"more modules than {MOST_MODULES}: {too_many}"


def unexplained(text: str, parsed: ast.Module) -> list[int]:
    """The lines of imports inside of functions, and of `global`, that say no reason.

    An import stands at the top of its module, unless it is `# slow:` (what that saves, and whom) or `# optional:` (what
    brings the library). State of a module that functions set is kept in an object, unless a hot path gains by it.
    """
    lines, found = text.splitlines(), set[int]()
    if not re.search(r"^(?!import |from ).*\b(import|global)\b", text, re.MULTILINE):
        return []  # without a walk
    for function in ast.walk(parsed):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom, ast.Global)):
                    said = "".join(lines[node.lineno - 1 : node.end_lineno])
                    if "# slow: " not in said and ("# optional: " not in said or isinstance(node, ast.Global)):
                        found.add(node.lineno)
    return sorted(found)


def test_imports_inside_of_functions_and_globals_say_why() -> None:
    found = {
        str(path.relative_to(ROOT)): unexplained(path.read_text("utf-8"), tree(path)) for path in modules().values()
    }
    places = [f"{path}:{line}" for path, lines in sorted(found.items()) for line in lines]
    assert not places, f"say why with # slow: or # optional:, or move to the top: {places}"


def test_an_import_without_a_reason_is_found() -> None:
    text = """import a
def f():
    import b
    import c  # slow: 30 ms
    from d import e  # optional: the extra
    global g
    global h  # slow: one look-up
    global i  # optional: no
"""
    assert unexplained(text, ast.parse(text)) == [3, 6, 8]


# Layers, and what users make them of, have the field's standard names (`nn.Linear`, `nn.Module`); so have operators.
FOR_USERS = ("tessera/nn/", "tessera/optimizers/")
# An operator and the function of kernels with its name are one idea, on two levels.
ON_BOTH_LEVELS = ("tessera/compiler/graph/operators/", "tessera/compiler/frontend/kernel/builtins/")


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in modules().values():
        if str(path.relative_to(ROOT)).startswith(FOR_USERS):
            continue
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = {
        name: found
        for name, found in sorted(places.items())
        if len(found) > 1 and not (len(found) == 2 and all(any(p.startswith(r) for p in found) for r in ON_BOTH_LEVELS))
    }
    assert not twice, f"give one of them a name of its own: {twice}"


# Turns that a reader takes twice: "is no kernel" for "is not a kernel".
ARCHAIC = re.compile(
    r"(?<!here )\b(is no (?!longer\b|more\b|less\b|such\b)[a-z]+\b|whoever|for want of|whereof|thereof|lest)\b"
)


def shown(module: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The texts of a module that its users may see: strings that are not documentation."""
    documentation = set[int]()
    for node in module:
        if isinstance(node, ast.Expr):
            documentation.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_texts_that_users_see_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group()}"
        for path in modules().values()
        for line, text in shown(nodes(path))
        if (match := ARCHAIC.search(text))
    ]
    assert not found, "write 'is not a ...', and name who or what acts:\n" + "\n".join(found)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HEAVY = re.compile(rf"{ARCHAIC.pattern}|\b(one's own|not to be had|who asks|is said of|what is said)\b")


def heavy_turns(page: str) -> list[str]:
    """The turns in a page's prose that a reader takes twice; code is left out."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)
    return [match.group() for match in HEAVY.finditer(" ".join(prose.split()))]


def test_pages_are_plain() -> None:
    found = {path.name: turns for path in PAGES if (turns := heavy_turns(path.read_text("utf-8")))}
    assert not found, f"write short sentences with a subject that acts: {found}"


def test_a_heavy_turn_of_a_page_is_found() -> None:
    assert heavy_turns("A loop of one's\nown, `whoever` calls.\n```\nwhoever\n```\nIt is no kernel.") == [
        "one's own",
        "is no kernel",
    ]


def test_an_archaic_turn_is_found() -> None:
    parsed = ast.parse(
        '"""it is no house"""\nraise ValueError(f"{x} is no kernel here")\nprint("there is no longer a way")\n'
    )
    assert [line for line, text in shown(ast.walk(parsed)) if ARCHAIC.search(text)] == [2]
