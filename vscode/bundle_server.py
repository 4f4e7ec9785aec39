"""Packs the language server and the pure Python libraries that it needs into one text: path, NUL, content, NUL ...

`python bundle_server.py` prints it; pack-server.mjs compresses it. The libraries are those of the interpreter that runs
this. What no module imports on any way from the server stays out, and so does what only readers of a program need;
names inside of functions, and private ones of modules, are short ones.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

try:
    import python_minifier
except ImportError:
    sys.exit("bundle_server.py needs python-minifier: pip install 'tessera[vscode]'")

OWN_LICENCE = "LICENSE.txt"
LICENSED = ("pygls", "lsprotocol", "cattrs", "attrs")
PACKAGES = ("tessera", "tessera_lsp", "pygls", "lsprotocol", "cattrs", "attrs", "attr")
OURS = ("tessera/", "tessera_lsp/")
# What the server stands below (see the import contracts in pyproject.toml), and what only clients need.
OMITTED = (
    *("tessera/cli/", "tessera/fitted.py", "tessera/runtime/", "tessera/profiler/", "tessera/compiler/targets/"),
    *("pygls/client.py", "pygls/lsp/client.py", "pygls/lsp/_base_client.py"),
    *("cattrs/preconf/", "cattrs/strategies/"),
)
# Read by name: features when they are first asked for, others as text.
TEXTS = ("tessera/kernels/", "tessera/nn/", "tessera/functions/", "tessera/training/gradient.py")
WHOLE = ("tessera/language/", *TEXTS, "tessera_lsp/features/")
# Text that hovers show stands in these, but for kernels that only operators run.
SHOWN = ("tessera/language/", *TEXTS)
DEFINED = ("tessera/compiler/graph/operators/", "tessera/compiler/frontend/kernel/builtins/")
DOCUMENTED = {ast.ClassDef: (*SHOWN, *DEFINED), ast.FunctionDef: SHOWN}
COMPUTED = "reference"  # an operator's results by NumPy: only constants go through it here
ON_PAGES = "example"  # what pages show of a function of `ts.tile`, and no hover does
INSPECTED = ("infer",)  # the annotations of an operator's parameters say what they are
MAIN = "from tessera_lsp.__main__ import main\n\nmain()\n"
# All that the libraries take from it on the Pythons that the server runs on.
TYPING_EXTENSIONS = """from typing import *
from typing import _TypedDictMeta
try:
    NoDefault
except NameError:
    NoDefault = object()
"""
# Modules that are imported for names that nothing uses: the converter is never given a TypedDict, nor its errors
# explained, passes behind Tile IR run where there are targets, layers are folded for code, and only calls are divided
# into halves; texts are kept by our own documents; lsprotocol's classes neither compare nor convert in attrs' own ways.
STAND_INS = {
    "attr/_cmp.py": "cmp_using = None\n",
    "attr/converters.py": "def default_if_none(*values, **options):\n    return None\n",
    "attr/filters.py": "",
    "cattrs/gen/typeddicts.py": "make_dict_structure_fn = make_dict_unstructure_fn = None\n",
    "cattrs/v.py": "transform_error = None\n",
    "pygls/workspace/text_document.py": "TextDocument = None\n",
    "tessera/compiler/autodiff/handed_on.py": "HandedOn = None\n",
    "tessera/compiler/layers/fold.py": "Folded = None\ndef fold(func):\n    return None\n",
    "tessera/compiler/layers/unfold.py": "unfold = None\n",
    "tessera/compiler/tile/passes/copies_as_loads.py": "copies_as_loads = copies_ahead = None\n",
    "tessera/compiler/tile/passes/debug.py": "check_indices = check_nan = show_elements = lambda kernel: None\n",
    "tessera/compiler/tile/passes/keep_inside.py": "keep_inside = needs_keeping = None\n",
    "tessera/compiler/tile/passes/keep_scales.py": "keep_scales = None\n",
    "tessera/compiler/tile/passes/pipeline_loads.py": "pipeline_loads = None\n",
    "tessera/compiler/tile/passes/reduce_one_axis.py": "reduce_one_axis = reduces_several_axes = None\n",
    "tessera/compiler/tile/passes/turn_products.py": "turn_products = turns_products = None\n",
}


def computing() -> set[tuple[str, str]]:
    """The modules and names of the classes whose operators compute constants, and of those that they inherit from."""
    from tessera.compiler.graph.operator import REGISTRY
    from tessera.compiler.graph.passes.canonicalize import EXACT

    operators = [type(o) for name, o in REGISTRY.items() if name in {*EXACT, "roots_of_unity"}]
    return {(c.__module__, c.__name__) for operator in operators for c in operator.__mro__}


def public_kernels() -> set[str]:
    """The modules of `tessera.kernels` that programs take kernels from."""
    from tessera import kernels

    return {getattr(kernels, name).__module__.rpartition(".")[2] for name in kernels.__all__}


def bundle() -> dict[str, str]:
    """The text of each file, by its path."""
    present = {path: file for package in PACKAGES for path, file in sources(package).items()}
    files = {"__main__.py": MAIN, "typing_extensions.py": TYPING_EXTENSIONS, **STAND_INS}
    computes = computing()
    wanted = taken_elsewhere({path: file for path, file in present.items() if path.startswith(OURS)})
    left = ["tessera_lsp/__main__.py", *(path for path in present if path.startswith(WHOLE))]
    while left:
        path = left.pop()
        if path in files or path not in present or path.startswith(OMITTED):
            continue
        text = present[path].read_text("utf-8")
        whole = ast.parse(text)
        tree = ast.fix_missing_locations(Smaller(path, set(imported(whole, path)), computes).visit(whole))
        if path.startswith(OURS) and not path.startswith(TEXTS) and not path.endswith("/__init__.py"):
            tree = Used(tree, wanted.get(path, set())).visit(tree)
        files[path] = ast.unparse(tree)
        left += [found for name in imported(tree, path) for found in places(name)]
    for name in LICENSED:
        licences = [f for f in distribution(name).files or () if f.name.startswith("LICENSE")]
        files |= {f"licenses/{name}.txt": licence(Path(str(f.locate())).read_text("utf-8")) for f in licences}
    # Our own first: all of it compresses better so.
    ordered = sorted(minified(referenced(files)).items(), key=lambda file: (not file[0].startswith("tessera"), file[0]))
    return dict(ordered)


def referenced(files: dict[str, str]) -> dict[str, str]:
    """Without functions of modules, and private tables, whose names stand nowhere else, and what only these name."""
    words = Counter(w for text in files.values() for w in re.findall(r"\w+", text))
    trees = {p: ast.parse(t) for p, t in files.items() if p.endswith(".py") and not p.startswith(SHOWN)}
    while alone := [(t, node) for t in trees.values() for node in t.body if words[_only_name(node)] == 1]:
        for tree, node in alone:
            tree.body.remove(node)
            words.subtract(re.findall(r"\w+", ast.unparse(node)))
    return files | {path: ast.unparse(tree) for path, tree in trees.items()}


def _only_name(node: ast.stmt) -> str:
    """The name by which a function or a private table is used; "" of what is used in other ways."""
    match node:
        case ast.FunctionDef(name=name, decorator_list=[]):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() | ast.List() as table) if (
            name[0] == "_" != name[1:2]
        ):
            return "" if any(isinstance(n, ast.Call) for n in ast.walk(table)) else name
        case _:
            return ""


def taken_elsewhere(present: dict[str, Path]) -> dict[str, set[str]]:
    """By path, the names that other files may take from a module: what they import from it, or any attribute of a file
    that imports the module itself."""
    found: dict[str, set[str]] = {}
    for path, file in present.items():
        tree = ast.parse(file.read_text("utf-8"))
        attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for name in set(imported(tree, path)):
            module, _, last = name.rpartition(".")
            found.setdefault(f"{module.replace('.', '/')}.py", set()).add(last)
            found.setdefault(f"{name.replace('.', '/')}.py", set()).update(attributes)
    return found


def licence(text: str) -> str:
    """A licence; of that which is the extension's own too, what is not in its text: whose the library is."""
    own = {line.strip() for line in (Path(__file__).parent / "LICENSE").read_text("utf-8").splitlines()}
    more = [line.strip() for line in text.splitlines() if line.strip() not in own]
    return text if len(more) > 3 else "\n".join([*more, "", f"Under the licence in the extension's {OWN_LICENCE}.", ""])


def minified(files: dict[str, str]) -> dict[str, str]:
    """The modules as short texts. What is local to functions has short names, parameters keep theirs; so have private
    names of our modules, unless other files or texts in quotes have them."""
    words = {path: set(re.findall(r"[A-Za-z_]\w*", text)) for path, text in files.items()}
    met = Counter(w for found in words.values() for w in found)
    out = dict(files)
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        renamed = not path.startswith(TEXTS)
        ours = renamed and path.startswith(OURS)
        strings = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)] if ours else []
        quoted = {w for s in strings if isinstance(s, str) for w in re.findall(r"\w+", s)}
        private = {w for w in words[path] - quoted if w[0] == "_" != w[1:2] and met[w] == 1}
        out[path] = python_minifier.minify(
            text,
            rename_locals=renamed,
            rename_globals=ours,
            preserve_globals=sorted(words[path] - private),
            remove_asserts=renamed,  # those of layers and kernels are facts that shapes are inferred by
            remove_annotations=False,  # what nothing reads is gone already
            hoist_literals=False,
            constant_folding=False,
            convert_posargs_to_args=False,
        )
    return out


def sources(package: str) -> dict[str, Path]:
    """The package's files by the path that they have in the bundle."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is missing: pip install tessera[lsp]"
    root = Path(spec.origin).parent
    return {f"{package}/{file.relative_to(root).as_posix()}": file for file in sorted(root.rglob("*.py"))}


def imported(tree: ast.AST, path: str) -> Iterator[str]:
    """The dotted names that import statements mention, wherever in the module they stand."""
    package = path.removesuffix("/__init__.py").removesuffix(".py").split("/")
    package = package if path.endswith("/__init__.py") else package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{name.name}" for name in node.names)


def places(name: str) -> Iterator[str]:
    """The files that are read when something of that name is imported: of it, and of the packages that it is in."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        module = "/".join(parts[:length])
        yield from (f"{module}.py", f"{module}/__init__.py")


class Used(ast.NodeTransformer):
    """Leaves out what a module imports and neither uses nor passes on: names of annotations that are gone."""

    def __init__(self, tree: ast.AST, wanted: set[str]) -> None:
        words = re.findall(r"\w+", ast.unparse(tree))
        self.wanted = wanted | {word for word, times in Counter(words).items() if times > 1}
        annotations = (n.annotation for n in ast.walk(tree) if isinstance(n, (ast.AnnAssign, ast.arg)))
        if any(a is not None and not isinstance(a, ast.Constant) for a in annotations):
            self.wanted.add("annotations")  # from __future__

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        node.names = [name for name in node.names if (name.asname or name.name) in self.wanted]
        return node if node.names else None


class Smaller(ast.NodeTransformer):
    """Leaves out docstrings, what is there for type checkers alone, and annotations that nothing reads."""

    def __init__(self, path: str, names: set[str], computes: set[tuple[str, str]]) -> None:
        self.computing = {name for module, name in computes if f"{module.replace('.', '/')}.py" == path}
        self.operators, self.builtins = map(path.startswith, DEFINED)
        self.casts = "typing.cast" in names
        of_operators = path.startswith("tessera/kernels/") and Path(path).stem not in public_kernels()
        self.documented = tuple(k for k, places in DOCUMENTED.items() if path.startswith(places) and not of_operators)
        self.text = path.startswith(TEXTS)
        self.fields = path.startswith("tessera/compiler/") and not path.startswith((*SHOWN, *DEFINED))
        self.in_function = False

    def generic_visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        shown = isinstance(node, self.documented) and not node.name.startswith("_")
        if isinstance(body, list):
            texts = [s for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
            kept = [s for s in body if s not in texts or (shown and s is body[0])]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def visit_If(self, node: ast.If) -> Any:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(s) for s in node.orelse]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if ast.unparse(node.func) == "CodeEntry":
            node.args[2:] = [ast.Constant("")]  # which modules find it: for tests and pages
        casts = self.casts and isinstance(node.func, ast.Name) and node.func.id == "cast" and len(node.args) == 2
        return node.args[1] if casts else node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        outer, self.in_function = self.in_function, False
        if self.operators and node.name not in self.computing:
            node.body = [s for s in node.body if not (isinstance(s, ast.FunctionDef) and s.name == COMPUTED)]
        if self.builtins:
            node.body = [
                s for s in node.body if not (isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == ON_PAGES)
            ]
        self.generic_visit(node)
        self.in_function = outer
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        if any(ast.unparse(d) in ("overload", "typing.overload") for d in node.decorator_list):
            return None
        outer, self.in_function = self.in_function, True
        if not (self.text or node.name in INSPECTED):
            node.returns = None
            for parameter in ast.walk(node.args):
                if isinstance(parameter, ast.arg):
                    parameter.annotation = None
        self.generic_visit(node)
        self.in_function = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        if self.fields and not self.in_function and "Var" not in ast.unparse(node.annotation):
            node.annotation = ast.Constant(0)  # a dataclass wants one, whatever it is, but for ClassVar and InitVar
        if not (not self.text and self.in_function and isinstance(node.target, ast.Name)):
            return node
        return ast.Assign([node.target], node.value) if node.value is not None else ast.Pass()


if __name__ == "__main__":
    gc.disable()  # trees are many objects; all together take 300 MB
    sys.stdout.buffer.write("\0".join(part for file in bundle().items() for part in file).encode())
