"""Tessera's own names, as programs write them: `ts.softmax`, `ts.tile.mma`, `ts.f32`, `ts.static_range`.

One table for both scopes. Tile names are the kernel layer's business: every member of `tessera.tile` is a Builtin.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import operator
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from tessera.compiler.frontend.names.numbers import NumpyMember, numpy_function
from tessera.compiler.frontend.names.values import MISSING, UNKNOWN, Builtin, FileModule, Namespace, OperatorRef
from tessera.language import dtypes, policies, saving

PYTHON_BUILTINS = frozenset(
    ("abs", "all", "any", "bool", "callable", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset",
     "getattr", "hasattr", "int", "isinstance", "iter", "len", "list", "map", "max", "min", "object", "pow", "print",
     "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "super", "tuple", "type", "zip")
)  # fmt: skip
"""The builtins of Python that functions may call. They run at compile time; some also mean something over tensors."""

FUNCTION_DECORATORS = frozenset(
    ("function", "shape_checked", "jit", "autodiff", "differentiable", "effect", "compile", "custom_vjp", "custom_jvp")
)
KERNEL_DECORATORS = frozenset({"kernel"})
FURTHER_DECORATORS = frozenset({"accumulate", "autotune", "distributed", "numerics", "remat"})
"""stand above the others, or make a function of a plain one"""
_DECORATORS = FUNCTION_DECORATORS | KERNEL_DECORATORS | FURTHER_DECORATORS
OUTSIDE = frozenset({"mesh"})
"""calls that decorators are given, and that stand outside of functions"""
ANNOTATIONS = frozenset({"Tensor", "Tile", "Const", "Int", "Float", "Bool"})
LOOPS = frozenset({"range", "static_range", "cdiv"})
MODES = frozenset({"is_training"})
CONTEXTS = frozenset({"no_grad"})
"""what a `with` enters"""
CREATION = frozenset({"asarray", "array"})
RECORDS = frozenset({"replace", "tree_leaves", "tree_map"})
TRANSFORMS = frozenset(
    (
        "grad",
        "value_and_grad",
        "jacfwd",
        "jacrev",
        "jacobian",
        "hessian",
        "jvp",
        "hvp",
        "vjp",
        "linearize",
        "scan",
        "remat",
        "vmap",
    )
)
"""functions of functions, inside of programs and outside"""
STATES = frozenset({"StatefulObject", "StatefulTensor", "KVCache"})
"""objects that functions change"""
OF_TREES = frozenset({"tree_ravel"})
"""functions of trees that are written as programs are"""
HELPERS = {
    "tessera.nn.tree": frozenset(
        {
            *("arrays", "parameters", "noted", "replaced", "renewed", "copied", "moved", "recorded", "same_array"),
            *("types", "changed"),
        }
    ),
    "tessera.optimizers.repeated": frozenset({"again", "remember"}),
    "tessera.optimizers.swapped": frozenset({"swapped"}),
    "tessera.language.drawing": frozenset({"implied_key", "held_averages", "averages", "move", "moved_averages"}),
}
"""functions of the package's own modules that functions may call, and that mean something else there"""
SPACES = frozenset({"fft", "linalg"})
"""modules of the package with functions under NumPy's names: operators, or programs made of them"""
NAMESPACES = SPACES | {"op", "tensor", "tile", "kernels", "nn", "optimizers"}
"""modules of the package whose members functions and kernels may use"""


class _Library(Protocol):
    def lookup(self, path: str, name: str) -> Any: ...

    def names(self) -> Iterable[str]: ...


LIBRARIES: dict[str, _Library] = {}
"""packages whose texts are read, as users' files are; they register themselves"""
FUNCTIONS = "tessera.functions"
"""the one whose functions are the package's own: `ts.median`"""
_POLICIES: dict[str, Any] = {
    name: getattr(policies, name)
    for name in (
        *("accum", "compute", "loss_scale", "device"),
        *("stochastic_round", "saturate", "deterministic", "NumericalPolicy"),
    )
}
_POLICIES["Policy"], _POLICIES["save"] = policies.Policy, saving.save
_PYTHONS: dict[tuple[str, str], Any] = {
    ("functools", "partial"): Builtin("functools.partial"),
    ("functools", "reduce"): functools.reduce,
    **{(m.__name__, n): getattr(m, n) for m in (itertools, operator) for n in dir(m) if not n.startswith("_")},
    ("dataclasses", "replace"): Builtin("tessera.replace"),
}
"""members of Python's modules that functions may call"""
_OPERATOR_SPACES = ("tessera", "tessera.op", "tessera.tensor", "tessera.nn")
_NUMPY_MODULES = frozenset({"numpy.fft", "numpy.linalg", "numpy.random"})
"""those whose functions take or give arrays"""
_CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e, "newaxis": None}


def is_own_module(name: str) -> bool:
    """Modules whose members this table knows: Tessera's, and `math`."""
    return name in ("tessera", "math") or name.startswith("tessera.")


def is_known(module: str) -> bool:
    """Modules that mean the same in every workspace: Tessera's, NumPy, and those of the standard library."""
    head = module.partition(".")[0]
    return head in ("tessera", "numpy") or head in sys.stdlib_module_names


def member(path: str, name: str) -> Any:
    """`path.name`; MISSING where the module is known not to have it, UNKNOWN for a member of a foreign module."""
    if path == "math":
        return getattr(math, name, MISSING)
    if path in ("numpy", "np"):
        return _numpy(name)
    if path in _NUMPY_MODULES:
        return NumpyMember(name, path)
    if (path, name) in _PYTHONS:
        return _PYTHONS[path, name]
    if not is_own_module(path):
        return UNKNOWN
    if path == "tessera.tile":
        return Builtin(f"tessera.tile.{name}")
    dtype = dtypes.named(name) if name not in ("float", "int", "long") else None
    if dtype is not None:
        return dtype
    if (found := functions_of(path).get(name)) is not None:
        return OperatorRef(found.name)
    if path == "tessera" and (known := _language(name)) is not MISSING:
        return known
    if name in HELPERS.get(path, ()):
        return Builtin(f"{path}.{name}")
    path = "tessera.nn" if path == "tessera" and name in STATES | OF_TREES else path
    home = FUNCTIONS if path == "tessera" and name in made() else path
    library = LIBRARIES.get(".".join(home.split(".")[:2]))
    if library is not None and (found := library.lookup(home, name)) is not MISSING:
        return found
    inner = f"{path.removeprefix('tessera').removeprefix('.')}.{name}".removeprefix(".")
    return Namespace(f"tessera.{inner}") if inner in NAMESPACES else MISSING


def member_of(module: Namespace, name: str) -> Any:
    """The same of a module of either kind."""
    return module.scope.member(name) if isinstance(module, FileModule) else member(module.path, name)


def functions_of(path: str) -> Mapping[str, Any]:
    """The operators that are members of a module, by name."""
    if path in _OPERATOR_SPACES:
        return operators()
    space = path.removeprefix("tessera.")
    return own_operators().get(space, {}) if space in SPACES else {}


def _language(name: str) -> Any:
    if (
        name in _DECORATORS
        or name in OUTSIDE
        or name in ANNOTATIONS
        or name in LOOPS | MODES | CONTEXTS | CREATION | RECORDS | TRANSFORMS
    ):
        return Builtin(f"tessera.{name}")
    return _POLICIES.get(name, _CONSTANTS.get(name, MISSING))


def _numpy(name: str) -> Any:
    """What can be said of NumPy's members without importing it: constants, dtypes, functions of numbers."""
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    if f"numpy.{name}" in _NUMPY_MODULES:
        return Namespace(f"numpy.{name}")
    return dtypes.named(name) or numpy_function(name) or NumpyMember(name)


@lru_cache(maxsize=1)
def operators() -> dict[str, Any]:
    """Public operator functions by name (the families are loaded at first use)."""
    from tessera.compiler.graph.operator import FUNCTIONS  # slow: 70 ms of a server's start, all operators

    return FUNCTIONS


def own_operators() -> Mapping[str, Mapping[str, Any]]:
    """Operators that are functions of one of `SPACES`, by its name and theirs."""
    from tessera.compiler.graph.operator import MEMBERS  # slow: as above

    return MEMBERS


def made() -> Mapping[str, str]:
    """Functions that are made of operators, and the module of each. They are programs, which the compiler knows by name
    only."""
    return importlib.import_module(FUNCTIONS).HOME


def made_methods() -> Collection[str]:
    """Those among them that are methods of tensors too."""
    return importlib.import_module(FUNCTIONS).METHODS


def of_space(space: str) -> Collection[str]:
    """The functions of one of `SPACES`; of any other module none."""
    if space not in SPACES:
        return ()
    return {*own_operators().get(space, ()), *importlib.import_module(f"tessera.{space}").HOME}


def members(path: str) -> Iterable[str]:
    """Every name that `member(path, ...)` knows, for "did you mean" and completion."""
    if path == "math":
        return dir(math)
    if not is_own_module(path):
        return ()
    out = list(functions_of(path))
    if path == "tessera":
        out += made()
    elif path in LIBRARIES:
        out += LIBRARIES[path].names()
    if path == "tessera":
        out += [
            *dtypes.BY_NAME,
            *_DECORATORS,
            *STATES,
            *OF_TREES,
            *OUTSIDE,
            *ANNOTATIONS,
            *LOOPS,
            *MODES,
            *CONTEXTS,
            *CREATION,
            *RECORDS,
            *TRANSFORMS,
            *_POLICIES,
        ]
        out += [n for n in NAMESPACES if "." not in n]
    return out
