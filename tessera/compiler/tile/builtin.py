"""The base class of the functions of `ts.tile`: one class defines everything about a function.

    class ExpandDims(TileBuiltin):
        '''A new axis of size 1 at `axis`.'''                   # documentation, hover, stubs, reference page

        also = ("unsqueeze",)                                   # its other names
        shapes = "[...] -> [..., 1, ...]"
        dtypes = "any -> the same"
        cost = "Nothing: no element moves."
        example = '''...'''                                     # a program and what it prints

        def build(self, k, x, axis): ...                        # signature and meaning, in Tile IR

The parameters of `build` behind the kernel layer `k` are the signature that users see. Names of classes become names of
functions; those of the package are members of `ts.tile`. A function that needs an op of its own is a `TilePrimitive`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from tessera.compiler import extensions
from tessera.errors import CompileError, Diagnostic
from tessera.language.dtypes import DType

HOME = "tessera."
"""Builtins of modules below it are members of `ts.tile`."""
ALIASES = {"dim": "axis", "keepdims": "keepdim"}
"""Other libraries' spellings, accepted wherever ours is a parameter."""


class TileBuiltin:
    """Base of all functions of kernels; subclasses are registered, under the class name in snake case by default.

    `shapes` and `dtypes` say what it takes and gives, `cost` what it needs, in words for people. `example` is a program
    in which `>>>` precedes a call and its output follows below, as in Python's doctest.
    """

    name: str = ""
    also: tuple[str, ...] = ()
    shapes: str = ""
    dtypes: str = ""
    cost: str = ""
    example: str = ""
    hidden: ClassVar[bool] = False
    """whether only the compiler writes it"""
    definition: ClassVar[Any]
    """the one object of the class"""

    def __init_subclass__(cls, abstract: bool = False, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if abstract:
            return
        if "name" not in cls.__dict__:
            cls.name = "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")
        cls.definition = cls()
        register(cls.definition)

    def build(self, k: Any, *args: Any, **kwargs: Any) -> Any:
        """Emits the Tile IR that it means through the kernel layer (a KernelState), and gives the value. Raises
        KernelFault where a rule is broken."""
        raise TypeError(f"ts.tile.{self.name} has no meaning")

    @classmethod
    def function(cls, name: str = "") -> Callable[..., Any]:
        """The function that programs call, as plain Python sees it: with its name, signature and documentation. Outside
        of kernels a call raises CompileError TS401."""
        return as_function(cls.definition, name or cls.definition.name)

    # what is derived
    @property
    def path(self) -> str:
        """Where it is a member: `tessera.tile`, or the module that defines it."""
        module = type(self).__module__
        return "tessera.tile" if module.startswith(HOME) else f"tessera.tile.{module}"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def doc(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "")

    @property
    def family(self) -> str:
        """The module that defines it."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is known of it beside its documentation, under headings."""
        found = (("Shapes", self.shapes), ("Dtypes", self.dtypes), ("Cost", self.cost))
        return [(heading, text) for heading, text in found if text]

    @property
    def text(self) -> str:
        """The documentation with the facts below it, as Markdown: what editors and the reference page show."""
        lines = "\n".join(f"- *{heading}:* {text}" for heading, text in self.facts)
        return f"{self.doc}\n\n{lines}" if lines else self.doc

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters of a call, by name."""
        return dict(list(inspect.signature(self.build).parameters.items())[1:])

    @cached_property
    def _call(self) -> inspect.Signature:
        return inspect.Signature(list(self.parameters.values()))

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The parameters as people write them: `x`, `axis=-1`, `*axes`."""
        star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        return tuple(
            f"{star.get(p.kind, '')}{p.name}" + ("" if p.default is p.empty else f"={_default_text(p.default)}")
            for p in self.parameters.values()
        )

    @property
    def signature(self) -> str:
        """`mma(a, b, accumulator=None)`."""
        return f"{self.name}({', '.join(self.written)})"

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """The arguments of a call, by parameter. Raises TypeError where they do not fit."""
        given = kwargs
        for other in [n for n in kwargs if n in ALIASES and n not in self.parameters]:
            if (own := ALIASES[other]) in self.parameters and own not in given:
                given = {**{n: v for n, v in given.items() if n != other}, own: given[other]}
        return self._call.bind(*args, **given)


BUILTINS: dict[str, TileBuiltin] = {}
"""The functions of `ts.tile` by name, their other names too, and those of other packages by module and name."""


def register(builtin: TileBuiltin) -> None:
    """Adds a builtin under all its names. Raises ValueError where a function of `ts.tile` has one; of another package a
    second one replaces the first, and is part of cache keys."""
    prefix = builtin.path.removeprefix("tessera.tile").removeprefix(".")
    for name in builtin.names:
        key = f"{prefix}.{name}" if prefix else name
        if key in BUILTINS and not prefix:
            raise ValueError(f"{key} is taken by {type(BUILTINS[key]).__name__}")
        BUILTINS[key] = builtin
        if prefix:
            extensions.BUILTINS[key] = extensions.content(type(builtin))
            extensions.changed()


def public() -> dict[str, TileBuiltin]:
    """The members of `ts.tile` that people may write, by name."""
    return {n: b for n, b in BUILTINS.items() if not b.hidden and "." not in n}


def as_function(builtin: TileBuiltin, name: str) -> Callable[..., Any]:
    """A builtin as plain Python sees it, under one of its names."""
    path = f"{builtin.path}.{name}"

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        shown = path.replace("tessera.tile.", "" if builtin.path != "tessera.tile" else "ts.tile.", 1)
        message = f"{shown} has a meaning inside a @ts.kernel only; it was called from plain Python."
        raise CompileError(Diagnostic("TS401", message))

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__, refuse.__module__ = builtin.text, builtin.path
    vars(refuse)["__signature__"] = inspect.Signature(list(builtin.parameters.values()))
    vars(refuse)["__tessera_builtin__"] = path
    return refuse


def _default_text(default: object) -> str:
    return default.name if isinstance(default, DType) else repr(default)
