"""Type stubs of the public names, from the definitions of operators and of the functions of `ts.tile`:
`python scripts/make_stubs.py` writes `tessera/__init__.pyi`, `tessera/tile.pyi` and those of modules with operators of
their own, `--check` fails where one is out of date.

Type checkers and editors read there what `__getattr__` of these modules resolves at run time.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layer_stubs import layers_text

import tessera
from tessera.compiler.frontend.kernel.builtins import public
from tessera.compiler.graph.operator import (
    ALIASES,
    FUNCTIONS,
    MEMBERS,
    METHODS,
    PROPERTIES,
    Operator,
    OperatorParameter,
)
from tessera.compiler.tile.builtin import ALIASES as TILE_ALIASES
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.functions import HOME
from tessera.functions import METHODS as MADE_METHODS
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.scalars import BY_SYMBOL
from tessera.runtime.eager import creation as made
from tessera.runtime.eager.tensor import METHOD_FUNCTIONS, Tensor

ROOT = Path(__file__).parents[1] / "tessera"
TILE_HEAD = '''"""The functions of kernels, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def helper(function: Callable[..., T]) -> Callable[..., T]:
    """Marks a function as one that kernels call, for its readers. It stays what it is; a plain function serves as well.

    It is inlined where it is called. Its annotations are checked there: `Tile["m", f32]` binds m to the size of a tile.
    """
'''
SPACE_HEAD = '''"""The functions of `ts.{space}`, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

{made}

Array: TypeAlias = Any
"""a Tensor, a number, or an array of NumPy, CuPy, PyTorch or JAX"""
A = TypeVar("A")
"""results belong to the library of the first array"""
'''
HEAD = '''"""Public names of Tessera, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from builtins import bool as _bool
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

import tessera.checkpoint as _checkpoint
from tessera.language.dims import Expr as _Expr
from tessera.language.dtypes import DType as _DType
{imports}

Dim: TypeAlias = int | _Expr
Shape: TypeAlias = Dim | Sequence[Dim]
Axes: TypeAlias = int | tuple[int, ...] | None
Number: TypeAlias = bool | int | float | complex
DType: TypeAlias = _DType | str | type | Any
Array: TypeAlias = Any
"""a Tensor, a number, or an array of NumPy, CuPy, PyTorch or JAX"""
Fill: TypeAlias = Number | Dim | Array
A = TypeVar("A")
"""results belong to the library of the first array"""

__version__: str
inf: float
nan: float
pi: float
e: float
newaxis: None


class _Annotation(type):
    """What `Tensor` is where it annotates nothing: `ts.saved(step, Tensor[4, 64])`."""

    def __getitem__(cls, item: Any) -> Any: ...
    def __matmul__(cls, other: Any) -> Any: ...


_anything: Any
"""a name that is made of it is an object as well as a type, to every type checker"""


class _Checkpoints:
    """The module `tessera.checkpoint`, which can be called."""

    Saving = _checkpoint.Saving
    exists = staticmethod(_checkpoint.exists)
    load = staticmethod(_checkpoint.load)
    save = staticmethod(_checkpoint.save)
    save_async = staticmethod(_checkpoint.save_async)
    wait = staticmethod(_checkpoint.wait)

    def __call__(
        self, folder: Any = ..., *, every: int = ..., keep: int = ..., interval: int = ...
    ) -> Callable[[Any], Callable[..., Any]]:
        """Keeps the state of a loop that yields it."""

checkpoint: _Checkpoints
'''
CREATION = {name: getattr(made, name) for name in ("asarray", "empty", "from_dlpack", "rand", "randn", "tensor")}
"""what makes eager tensors; the stub says that they are the tensors that it describes"""
DUNDERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "&": "and",
    "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


ANNOTATIONS = ("Tile", "Const", "Int", "Float", "Bool")
"""what only annotates; of what it annotates, a type checker knows nothing"""
SUBSCRIPT = "    def __class_getitem__(cls, item: Any) -> type[Tensor]: ...  # type: ignore"
"""A subscript is the type itself. What stands in it are sizes, no types: most type checkers leave it alone then."""
ALSO = {
    "log": "def log(x: Mapping[str, Any], step: int | None = None) -> None:  # type: ignore\n"
    '    """Logs numbers by name: those of the run that goes on, or of a loop of one\'s own."""'
}
"""second meanings of operators' names"""


def default(value: object) -> str:
    """A default as an expression."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return value.name if isinstance(value, DType) else repr(value)


def leader(operator: Operator) -> int:
    """The number of the operand whose library the result belongs to; -1 where the result is a Tensor."""
    return next((i for i, p in enumerate(operator.parameters) if p.operand and p.name != "seed"), -1)


def annotation(p: OperatorParameter, kind: str) -> str:
    """The annotation users see; `kind` is that of one tensor."""
    if not p.operand:
        return p.annotation
    kind = f"Sequence[{kind}]" if p.variadic else kind
    return f"{kind} | None" if p.optional else kind


def parameters(operator: Operator, of_method: bool = False) -> list[str]:
    """The parameters as in a `def`; of a method without the first, which is self."""
    lead, last = -1 if of_method else leader(operator), len(operator.parameters) - 1
    out: list[str] = []
    for i, p in enumerate(operator.parameters):
        if of_method and i == 0:
            continue
        kind = "A" if i == lead else "Array"
        if i == last and i and p.spread and (p.variadic or p.required):
            out.append(f"*{p.name}: {kind if p.variadic else 'Any'}")  # may be spelled out
        else:
            text = f"{p.name}: {annotation(p, kind)}"
            out.append(text if p.required else f"{text} = {default(p.default)}")
    return with_aliases(out, ALIASES, {p.name: annotation(p, "Array") for p in operator.parameters})


def with_aliases(written: list[str], aliases: Mapping[str, str], annotations: Mapping[str, str]) -> list[str]:
    """Parameters with their names in other libraries, which are given by keyword."""
    others = [f"{alias}: {annotations[name]} = ..." for alias, name in aliases.items() if name in annotations]
    star = ["*"] if others and not any(p.startswith("*") for p in written) else []
    return written + star + others


def result(operator: Operator, of_method: bool = False) -> str:
    own = "Tensor" if of_method or leader(operator) < 0 else "A"
    return f"tuple[{own}, ...]" if operator.multiple else own


def docstring(doc: str, indent: str) -> str:
    lines = doc.splitlines()
    body = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{body.strip()}{end}"""'


def function(name: str, operator: Operator) -> str:
    head = f"def {name}({', '.join(parameters(operator))}) -> {result(operator)}:"
    text = f"{head}\n{docstring(operator.doc, '    ')}"
    return f"@overload\n{ALSO[name]}\n@overload\n{text}" if name in ALSO else text


def method(name: str, operator: Operator) -> str:
    rest = ", ".join(("self", *parameters(operator, of_method=True)))
    head = f"    def {name}({rest}) -> {result(operator, True)}:\n{docstring(operator.doc, '        ')}"
    last = operator.parameters[-1]
    if not (last.spread and not last.operand and not last.required):
        return head
    spread = f"    @overload\n    def {name}(self, *{last.name}: int) -> {result(operator, True)}: ..."
    return f"    @overload\n{head}\n{spread}"


def tensor_class() -> str:
    """Operators as methods of Tensor, beside those it defines itself."""
    lines = ["class Tensor(_Tensor, metaclass=_Annotation):"]
    lines += [f"    @property\n    def {name}(self) -> Tensor: ..." for name in PROPERTIES]
    derived = {n: o for n, o in METHODS.items() if vars(Tensor).get(n) is METHOD_FUNCTIONS.get(n)}
    lines += [method(name, operator) for name, operator in sorted(derived.items())]
    lines += own_methods()
    lines += [made_method(name) for name in sorted(MADE_METHODS)]
    for symbol, arity in BY_SYMBOL:
        if arity == 2 and symbol in COMPARISONS:
            lines.append(f"    def __{COMPARISONS[symbol]}__(self, other: Array) -> Tensor: ...  # type: ignore")
        elif arity == 2:
            lines += [f"    def __{r}{DUNDERS[symbol]}__(self, other: Array) -> Tensor: ..." for r in ("", "r")]
    lines += [f"    def __{name}__(self) -> Tensor: ..." for name in ("neg", "invert", "abs")]
    lines += [f"    def __{r}matmul__(self, other: Array) -> Tensor: ..." for r in ("", "r")]
    lines.append("    def __getitem__(self, index: Any) -> Tensor: ...")
    lines.append(SUBSCRIPT)
    return "\n".join(lines)


def own_methods() -> list[str]:
    """The methods that the class itself has and that give tensors: such as the stub describes."""
    lines = ["    grad: Tensor | None  # type: ignore"]
    for name, member in vars(Tensor).items():
        found = member.fget if isinstance(member, property) else member
        if inspect.isfunction(found) and found.__annotations__.get("return") == "Tensor" and not name.startswith("_"):
            head = f"    def {name}{signature(inspect.signature(found))}:"
            lines += ["    @property"] if isinstance(member, property) else []
            lines.append(f"{head}\n{docstring(inspect.getdoc(found) or '', '        ')}")
    return lines


def made_method(name: str) -> str:
    """A function that is made of operators, as a method."""
    function = getattr(importlib.import_module(f"tessera.functions.{HOME[name]}"), name)
    tensor, *others = inspect.signature(function).parameters.values()
    given = inspect.Signature([tensor.replace(name="self"), *others])
    return f"    def {name}{signature(given)} -> Tensor:\n{docstring(inspect.getdoc(function) or '', '        ')}"


def imports(home: Mapping[str, str], modules: Mapping[str, str]) -> str:
    """Names that live in modules of their own; a name that is an operator as well is that operator.

    `ts.profiler` and `ts.checkpoint` are modules that can be called, which no type checker believes: the one is a
    function here, the other an object.
    """
    lines = ["from tessera.runtime.eager.tensor import Tensor as _Tensor"]
    lines += ["from tessera.profiler import profiler as profiler"]
    lines += [
        f"from {module} import {name} as {name}"
        for name, module in home.items()
        if name not in {"Tensor", *FUNCTIONS, *CREATION, *ANNOTATIONS}
    ]
    for name, module in modules.items():
        if name in ("profiler", "checkpoint"):
            continue
        parent, _, own = module.rpartition(".")
        if own == name:
            lines.append(f"from {'.' if parent == 'tessera' else parent} import {name} as {name}")
        else:  # under another name, an import is not for others
            lines += [f"import {module} as _{own}", f"{name} = _{own}"]
    return "\n".join(sorted(lines))


def creation(name: str, maker: Any) -> str:
    """A function that makes an eager tensor; of `ts.tensor`, which has functions of its own, the class."""
    if inspect.isfunction(maker):
        return f"def {name}{signature(inspect.signature(maker))}:\n{docstring(inspect.getdoc(maker) or '', '    ')}"
    kind = type(maker)
    lines = [f"class _{kind.__name__}:", f"    def __call__{signature(inspect.signature(kind.__call__))}: ..."]
    lines += ["    def __getattr__(self, name: str) -> Any: ...", f"{name}: _{kind.__name__}"]
    return "\n".join(lines)


def signature(found: inspect.Signature) -> str:
    """As it is written."""
    return str(found).replace("'", "")


_BOOL = re.compile(r"(?<=[:>|=] )bool\b")
"""Python's own, where it annotates: the stub has a dtype of this name"""


def text() -> str:
    """The whole stub file."""
    names = vars(tessera)
    made = {name: f"tessera.functions.{module}" for name, module in HOME.items()}
    parts = [HEAD.format(imports=imports(names["_HOME"] | made, names["_MODULES"]))]
    known = {n: d for n in names["_DTYPES"] if (d := dtypes.of(n)) is not None}
    # A dtype is an object, and annotates numbers: `alpha: ts.f32 = 1.0`.
    parts.append("\n".join(f"{n} = _anything" for n in (*known, *ANNOTATIONS)))
    parts.append(tensor_class())
    parts += [creation(name, maker) for name, maker in CREATION.items()]
    parts += [function(name, operator) for name, operator in sorted(FUNCTIONS.items())]
    return _BOOL.sub("_bool", "\n\n".join(parts)) + "\n"


def tile_parameter(p: inspect.Parameter) -> str:
    star = "*" if p.kind is p.VAR_POSITIONAL else ""
    kind = p.annotation if p.annotation in ("int", "bool", "str", "float") else "Any"
    given = f" = {default(p.default) if not isinstance(p.default, DType) else repr(p.default.name)}"
    return f"{star}{p.name}: {kind}{given if p.default is not p.empty else ''}"


def tile_function(name: str, builtin: TileBuiltin) -> str:
    written = [tile_parameter(p) for p in builtin.parameters.values()]
    parameters = ", ".join(with_aliases(written, TILE_ALIASES, dict.fromkeys(builtin.parameters, "Any")))
    return f"def {name}({parameters}) -> Any:\n{docstring(builtin.text, '    ')}"


def tile_text() -> str:
    """The stub file of `ts.tile`."""
    return "\n\n".join([TILE_HEAD, *(tile_function(n, b) for n, b in sorted(public().items()))]) + "\n"


def space_text(space: str) -> str:
    """The stub file of a module with operators of its own, such as `ts.linalg`."""
    home = importlib.import_module(f"tessera.{space}").HOME
    made = (f"from tessera.{space}.{module} import {name} as {name}" for name, module in sorted(home.items()))
    parts = [function(name, operator) for name, operator in sorted(MEMBERS[space].items())]
    return "\n\n".join([SPACE_HEAD.format(space=space, made="\n".join(made)), *parts]) + "\n"


def main(arguments: list[str]) -> int:
    old = False
    spaces = [(f"{space}/__init__.pyi", space_text(space)) for space in MEMBERS]
    spaces.append(("nn/__init__.pyi", layers_text(FUNCTIONS)))
    for name, content in (("__init__.pyi", text()), ("tile.pyi", tile_text()), *spaces):
        file = ROOT / name
        if "--check" not in arguments:
            file.write_text(content, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != content:
            print(f"{file} is out of date; write it with: python scripts/make_stubs.py", file=sys.stderr)
            old = True
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
