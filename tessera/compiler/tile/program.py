"""What a whole function is once it is lowered: buffers, and launches of tile kernels in order.

A target compiles a Program as a whole; the runtime binds arguments to its buffers and runs it. Everything in it is
plain data, so that it can be printed, fingerprinted and stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tessera.compiler.ir.checks import Check
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import Shape
from tessera.errors import Span
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

Role = Literal["input", "output", "temp", "constant"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Contiguous memory (C order). `param` is the index of the parameter it comes from; `data` holds a constant's bytes.

    An output that is one of the parameters updated in place has role "input" and stands in `Program.outputs` as well.
    """

    id: int
    name: str
    shape: Shape
    dtype: DType
    role: Role
    param: int | None = None
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Window:
    """A launch argument: `buffer` seen from element `offset`, with the shape and strides of the kernel's view."""

    buffer: int
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A launch argument that is parameter number `param`, a scalar."""

    param: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of `kernel` (a `tile.func`); `args` match the kernel's block arguments."""

    kernel: Op
    args: tuple[Window | ScalarArg, ...]
    span: Span
    flops: Dim
    bytes: Dim
    label: str
    """for people: the operators it fuses, e.g. "matmul+bias+gelu" """


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the function. `shape` None: a Python scalar passed by value; `writes`: stored to by a kernel."""

    name: str
    shape: Shape | None
    dtype: DType
    writes: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """`free` names the dims that are arguments of the compiled code; all others have been substituted."""

    name: str
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[int, ...]
    """buffer ids, in the order of the returned values"""
    free: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    span: Span | None = None
    tuple_result: bool = False
