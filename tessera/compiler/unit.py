"""The unit of compilation: source text, an eager call, or a part of a distributed function."""

from __future__ import annotations

from typing import Any

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import Shape
from tessera.compiler.structure import Structure
from tessera.errors import Diagnostic, Span
from tessera.immutable import immutable
from tessera.language.dims import Dim
from tessera.language.dtypes import DType


@immutable
class LaunchCheck:
    """`left == right`, said because of `why`: an equality that the compiler could neither prove nor refute. It is
    decided when sizes are known, at launch."""

    left: Dim
    right: Dim
    why: str


@immutable
class Param:
    """A parameter of the function. `shape` None: a Python scalar passed by value; `writes`: stored to by a kernel."""

    name: str
    shape: Shape | None
    dtype: DType
    writes: bool = False
    optional: bool = False
    constant: bool = False
    """the elements of an array never change: what is derived from them alone may be kept"""


@immutable
class Unit:
    """A `graph.func` or a `tile.func`, with what a launch of it must know.

    `params` stand in the order of the op's arguments; the last ones belong to `captures`, live arrays that are passed
    after the arguments of a call. Further arguments of a `tile.func` are results. `structure` says how the results are
    put together. Compiling never changes `op`.
    """

    op: Op
    params: tuple[Param, ...]
    checks: tuple[LaunchCheck, ...] = ()
    captures: tuple[Any, ...] = ()
    structure: Structure = None
    warnings: tuple[Diagnostic, ...] = ()
    """what a script is told of when it is compiled: results that nobody expects"""

    @property
    def name(self) -> str:
        return str(self.op.attrs["sym_name"])

    @property
    def span(self) -> Span:
        return self.op.span

    @property
    def is_kernel(self) -> bool:
        """Whether it is written in tiles, and has no graph and no schedule."""
        return self.op.name == "tile.func"
