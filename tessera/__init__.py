"""Tessera: tile kernels and tensor functions, checked before they run and profiled after.

Names resolve at first use, so that `import tessera` costs a millisecond and loads neither NumPy nor a compiler.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

from tessera.began import BEGAN as _BEGAN  # the sooner, the better  # noqa: F401
from tessera.collector import collector_paused

__version__ = "0.1.0"

_HOME: dict[str, str] = {
    # writing programs
    **dict.fromkeys(("function", "shape_checked", "jit", "autodiff", "differentiable", "kernel", "numerics", "autotune",
                     "accumulate", "Function", "Kernel", "range", "static_range", "is_training", "effect",
                     "custom_vjp", "custom_jvp"),
                    "tessera.language.decorators"),
    "Schedule": "tessera.language.schedule",
    **dict.fromkeys(("mesh", "distributed"), "tessera.language.distribution"),
    **dict.fromkeys(("Tile", "Const", "Int", "Float", "Bool"), "tessera.language.annotations"),
    **dict.fromkeys(("accum", "compute", "loss_scale", "device", "stochastic_round", "saturate", "deterministic",
                     "NumericalPolicy", "Policy"), "tessera.language.policies"),
    **dict.fromkeys(("StatefulObject", "StatefulTensor", "KVCache"), "tessera.nn.state"),
    # gradients
    **dict.fromkeys(("grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian", "jvp", "hvp", "vjp",
                     "linearize", "scan", "remat", "vmap"), "tessera.language.transforms"),
    "no_grad": "tessera.runtime.eager.recorded",
    "save": "tessera.language.saving",
    "saved": "tessera.runtime.saved",
    "check_grad": "tessera.language.check_grad",
    "to_mixed_precision": "tessera.nn.mixed",
    **dict.fromkeys(("scaled", "ScaledTensor"), "tessera.nn.scaled"),
    "replace": "tessera.language.records",
    **dict.fromkeys(("tree_leaves", "tree_map"), "tessera.nn.tree"),
    "tree_ravel": "tessera.nn.vectors",
    "install_import_hook": "tessera.compiler.frontend.importing",
    # training
    **dict.fromkeys(("train", "TrainingRun"), "tessera.training.run"),
    "progress": "tessera.training.monitor",
    "accumulate_gradients": "tessera.training.accumulation",
    "meta_learning": "tessera.training.meta",
    "monitor_numerics": "tessera.training.alerts",
    "fault_tolerant": "tessera.training.restarts",
    "clip_grad_norm": "tessera.optimizers.gradients",
    # running them
    **dict.fromkeys(("compile", "Compiled"), "tessera.runtime.compiled"),
    "why_copied": "tessera.runtime.why_copied",
    "why_recompiled": "tessera.runtime.code.why_recompiled",
    **dict.fromkeys(("devices", "set_num_threads", "get_num_threads"), "tessera.runtime.arrays.devices"),
    "Tensor": "tessera.runtime.eager.tensor",
    **dict.fromkeys(("tensor", "array", "asarray", "from_dlpack", "empty", "rand", "randn", "random_key",
                     "manual_seed"), "tessera.runtime.eager.creation"),
    "op": "tessera.runtime.eager.operators",
    "frozen": "tessera.runtime.arrays.frozen",
    # looking at them
    **dict.fromkeys(("Profiler", "profile_memory", "analyze_performance", "benchmark"), "tessera.profiler"),
    # when they are wrong
    **dict.fromkeys(("TesseraError", "CompileError", "LaunchError", "TargetError", "DeviceError", "DebugCheckError",
                     "MissingDependency", "CompilationWarning",
                     "RecompilationWarning", "TrainingWarning", "Diagnostic"), "tessera.errors"),
}  # fmt: skip
_MODULES = {
    "array_api": "tessera.runtime.standard",
    "checkpoint": "tessera.checkpoint",
    "compiler": "tessera.compiler",
    "tile": "tessera.tile",
    "dist": "tessera.dist",
    "errors": "tessera.errors",
    "fft": "tessera.fft",
    "hardware": "tessera.hardware",
    "kernels": "tessera.kernels",
    "knobs": "tessera.knobs",
    "linalg": "tessera.linalg",
    "nn": "tessera.nn",
    "optimizers": "tessera.optimizers",
    "profiler": "tessera.profiler",
    "scheduler": "tessera.scheduler",
}
_DTYPES = (
    *("f64", "f32", "tf32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e8m0"),
    *("fp6_e2m3", "fp6_e3m2", "fp4_e2m1"),
    *(
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "bool",
        "bool_",
    ),
    *("fp64", "fp32", "fp16", "fp8", "float64", "float32", "float16", "bfloat16"),
)

_CONSTANTS = ("inf", "nan", "pi", "e", "newaxis")
"""NumPy's"""


def __getattr__(name: str) -> Any:
    try:
        with collector_paused(old=True):
            value = _find(name)
    except (AttributeError, ImportError) as error:  # of a name that is not there
        from tessera.tracebacks import leave, refuses  # slow: for a name that is not known

        if refuses(error):
            leave(error)
        raise
    globals()[name] = value  # the next access does not come here
    return value


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext tessera`: loads `tessera_jupyter`. Raises MissingDependency where that is not installed."""
    try:
        shell.extension_manager.load_extension("tessera_jupyter")
    except ModuleNotFoundError as e:
        if e.name != "tessera_jupyter":
            raise
        missing = importlib.import_module("tessera.errors").MissingDependency
        raise missing("tessera_jupyter", "jupyter", "%%tessera") from None


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext tessera`."""
    shell.extension_manager.unload_extension("tessera_jupyter")


def _tell_notebook() -> None:
    """In a notebook, the first `%%tessera` cell or `%tessera` line behind `import tessera` loads the extension."""
    shell = sys.modules["IPython"].get_ipython()
    if shell is not None and "tessera" not in shell.magics_manager.magics["cell"]:
        shell.magics_manager.register_lazy("tessera", "tessera")


def _find(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _CONSTANTS:
        return getattr(math, name, None)
    if name in _DTYPES:
        return importlib.import_module("tessera.language.dtypes").of(name)
    if not name.startswith("_"):
        found = importlib.import_module("tessera.runtime.eager.operators").function(name)
        if found is not None:
            return found
        functions = importlib.import_module("tessera.functions")
        if name in functions.HOME:
            return getattr(functions, name)
        try:
            return importlib.import_module(f"tessera.{name}")
        except ModuleNotFoundError as e:
            if e.name != f"tessera.{name}":
                raise
    if name.startswith("_"):  # asked by inspection, often
        raise AttributeError(f"module 'tessera' has no attribute {name!r}")
    from tessera.nearest import nearest  # slow: for a name that is not known

    absent = importlib.import_module("tessera.language.absent")
    close = nearest(name, __dir__())
    raise absent.no_name("tessera", name, absent.instead(name) or (f"did you mean {close!r}?" if close else ""))


def __dir__() -> list[str]:
    importlib.import_module("tessera.compiler.graph")  # fills the registry
    operators = importlib.import_module("tessera.compiler.graph.operator").FUNCTIONS
    functions = importlib.import_module("tessera.functions").HOME
    return sorted({*_HOME, *_MODULES, *_DTYPES, *_CONSTANTS, *operators, *functions, "__version__"})


if "IPython" in sys.modules:
    _tell_notebook()
