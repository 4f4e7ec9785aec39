"""`@ts.function` and `@ts.kernel`: what turns a Python function into a Tessera program.

The objects made here hold the Python function and what was said about it, nothing compiled. They reach the compiler
in one place, `_call`, when they are called.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from tessera.errors import NOWHERE, CompileError, Diagnostic, Span, TesseraError, source_line
from tessera.language import policies
from tessera.language.policies import Policy

if TYPE_CHECKING:
    from tessera.compiler.frontend.definition import Definition

P = ParamSpec("P")
R = TypeVar("R")


class Program(Generic[P, R]):
    """A Python function that Tessera compiles when it is called. `options` are the decorators' keywords."""

    kind: ClassVar[Literal["function", "kernel"]] = "function"

    def __init__(self, python: Callable[P, R], options: Mapping[str, Any] | None = None) -> None:
        _demand_plain_function(python, self.kind)
        functools.update_wrapper(self, python)
        self.options: dict[str, Any] = dict(options or {})
        self._definition: Definition | None = None

    @property
    def name(self) -> str:
        return self.__wrapped__.__name__

    @property
    def __wrapped__(self) -> Any:
        return self.__dict__["__wrapped__"]

    @__wrapped__.setter
    def __wrapped__(self, python: Any) -> None:
        self.__dict__["__wrapped__"] = python

    def definition(self) -> Definition:
        """The text and tree of the function. Raises CompileError TS109 where its source is not to be had."""
        found = self._definition
        if found is None:
            live_definition = _deferred("compiler.frontend.definition").live_definition
            self._definition = found = cast("Definition", live_definition(self.__wrapped__, self.kind, self.options))
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return _call(self, args, kwargs)
        except TesseraError as e:
            raise e.with_traceback(None) from None  # the diagnostic points into the program; our own frames say nothing

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, cast(Any, instance))

    def with_options(self, **options: Any) -> Any:
        """The same function under further options."""
        return type(self)(self.__wrapped__, {**self.options, **options})

    def compile(self, target: str = "auto", dims: Mapping[str, int] | None = None) -> Any:
        """Compiles ahead of the first call; see `tessera.compile`."""
        return _compiled(self, target, dims)

    def ir(self, level: str = "graph", target: str = "auto", dims: Mapping[str, int] | None = None) -> str:
        """The IR at `level`: graph, schedule, tile or target."""
        return _compiled(self, target, dims).ir(level)

    def explain(self, target: str = "auto", dims: Mapping[str, int] | None = None) -> Any:
        """What runs, where, with which kernels, and where the code came from; `print` it."""
        return _compiled(self, target, dims).explain()

    def __repr__(self) -> str:
        return f"<tessera {self.kind} {self.__wrapped__.__qualname__}{inspect.signature(self.__wrapped__)}>"


def _deferred(module: str) -> Any:
    """The one way from the language to the compiler and the runtime, which stand above it: taken at first use."""
    return importlib.import_module(f"tessera.{module}")


def _call(fn: Program[Any, Any], args: tuple[object, ...], kwargs: Mapping[str, Any]) -> Any:
    """Stands for `runtime.dispatch.call` until the first call, which puts that in its place."""
    global _call
    _call = _deferred("runtime.dispatch").call
    return _call(fn, args, kwargs)


def _compiled(fn: Program[Any, Any], target: str, dims: Mapping[str, int] | None) -> Any:
    return _deferred("runtime.compiled").compile(fn, target=target, dims=dims)


class Function(Program[P, R]):
    """Made by `@ts.function`: whole-tensor modelling, compiled through Graph IR."""


class Kernel(Program[P, R]):
    """Made by `@ts.kernel`: a tile program. `config` holds the schedule's parameters (BLOCK_M, num_warps ...)."""

    kind = "kernel"

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.options.get("config", {}))

    def with_config(self, **config: Any) -> Kernel[P, R]:
        """The kernel under other schedule parameters: `flash.with_config(BLOCK_M=128)`. Results keep their bits."""
        return self.with_options(config={**self.config, **config})


def _demand_plain_function(python: Any, kind: str) -> None:
    name = getattr(python, "__name__", repr(python))
    if isinstance(python, Program):
        _refuse(python, "TS102", f"{name} is a Tessera {python.kind} already; decorate it once.")
    if inspect.iscoroutinefunction(python) or inspect.isgeneratorfunction(python) or inspect.isasyncgenfunction(python):
        _refuse(python, "TS102", f"{name} is async or a generator; a {kind} is a plain function.")
    if not inspect.isfunction(python):
        _refuse(python, "TS109", f"{name} is not a Python function, so it has no text to compile.")


def _refuse(python: Any, code: str, message: str) -> NoReturn:
    """Points to the definition where it has lines that can be shown."""
    where = getattr(inspect.unwrap(python), "__code__", None)
    line = source_line(where.co_filename, where.co_firstlineno) if where is not None else None
    span = NOWHERE
    if where is not None and line is not None:
        indent = len(line) - len(line.lstrip())
        span = Span(where.co_filename, where.co_firstlineno, indent + 1, where.co_firstlineno, len(line) + 1)
    raise CompileError(Diagnostic(code, message, span, function=getattr(python, "__name__", "")))


@overload
def function(python: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(*, numerics: Policy | str | None = None) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(python: Callable[..., Any] | None = None, /, *, numerics: Policy | str | None = None) -> Any:
    """Compiles a function over whole tensors: shapes are checked from its text, operators fused into kernels.

    `numerics` is a policy for everything in it, e.g. `"@accum(f64)"`. Works bare and with keywords.
    """
    options = {"numerics": policies.parse(numerics) if isinstance(numerics, str) else numerics} if numerics else {}
    return Function(python, options) if python is not None else lambda f: Function(f, options)  # pyright: ignore


shape_checked = jit = function
"""The seeds' further spellings."""


class _KernelDecorator:
    """`@ts.kernel`, and `@ts.kernel.autotune(...)`."""

    @overload
    def __call__(self, python: Callable[P, R], /) -> Kernel[P, R]: ...
    @overload
    def __call__(self, /, **config: int | None) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...
    def __call__(self, python: Callable[..., Any] | None = None, /, **config: Any) -> Any:
        """Compiles a tile program. Keywords (`num_warps`, `num_stages`, block sizes) are its schedule's parameters."""
        options = {"config": {k: v for k, v in config.items() if v is not None}} if config else {}
        return Kernel(python, options) if python is not None else lambda f: Kernel(f, options)  # pyright: ignore

    def autotune(
        self,
        space: Mapping[str, list[Any]] | None = None,
        metric: str = "throughput",
        timeout_ms: float | None = None,
        cache: str | None = None,
    ) -> Callable[[Callable[P, R]], Kernel[P, R]]:
        """A kernel with a space of schedule parameters. It runs under the first value of each until it is tuned."""
        given = dict(space or {})
        for name, values in given.items():
            if not isinstance(cast(object, values), (list, tuple)) or not values:
                raise CompileError(Diagnostic("TS105", f"autotune needs a list of values for {name}, not {values!r}"))
        first = {name: values[0] for name, values in given.items()}
        tuning = {"space": given, "metric": metric, "timeout_ms": timeout_ms, "cache": cache}
        return lambda f: Kernel(f, {"config": first, "autotune": tuning})


kernel = _KernelDecorator()


class _Autotune:
    """`@ts.autotune.space(configs=[...])`: the same choice for functions and kernels, as a list of configurations."""

    def space(self, configs: list[Mapping[str, Any]]) -> Callable[[Callable[P, R]], Program[P, R]]:
        """Runs under the first configuration until it is tuned. Stands above or without `@ts.kernel`/`@ts.function`."""
        if not configs:
            raise CompileError(Diagnostic("TS105", "autotune.space needs at least one configuration"))
        options = {"config": dict(configs[0]), "autotune": {"configs": [dict(c) for c in configs]}}

        def decorate(f: Any) -> Program[Any, Any]:
            return f.with_options(**options) if isinstance(f, Program) else Function(f, options)

        return decorate


autotune = _Autotune()


def numerics(fast: bool | None = None, policy: Policy | str | None = None) -> Callable[[Any], Any]:
    """Numerics for a whole function: `fast=True` allows reductions in whatever order is quickest.

    Stands above `@ts.function`. Everything else stays deterministic; panels label what ran fast.
    """
    found = policies.parse(policy) if isinstance(policy, str) else policy or Policy()
    if fast is not None:
        found = found.merge(policies.PolicyPart("fast", fast))

    def decorate(f: Any) -> Any:
        return f.with_options(numerics=found) if isinstance(f, Program) else Function(f, {"numerics": found})

    return decorate


def static_range(*bounds: int) -> range:
    """`range` that is unrolled at compile time inside functions and kernels; plain `range` anywhere else."""
    return range(*bounds)
