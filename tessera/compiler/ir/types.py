"""The types of all four levels. A type is immutable, hashable and prints itself as MLIR text (`!tessera.…`)."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from tessera.immutable import immutable
from tessera.language.dims import Dim, text_of
from tessera.language.dtypes import DType
from tessera.language.policies import Policy

Shape: TypeAlias = tuple[Dim, ...]


def shape_text(shape: Shape) -> str:
    """`[B, 2*S, 4]`, as people write it."""
    return "[" + ", ".join(map(text_of, shape)) + "]"


@immutable
class TensorType:
    """A whole tensor of Graph and Schedule IR. Rank 0 is a scalar."""

    shape: Shape
    dtype: DType
    policy: Policy | None = None

    def __str__(self) -> str:
        policy = f', "{self.policy}"' if self.policy and not self.policy.empty else ""
        return f"!tessera.tensor<{shape_text(self.shape)}, {self.dtype}{policy}>"

    def pretty(self) -> str:
        """As people write it: `[B, S] f32`."""
        policy = "" if not self.policy else "".join(f" {p}" for p in self.policy.parts())
        return f"{shape_text(self.shape)} {self.dtype}{policy}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(shape, self.dtype, self.policy)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype, self.policy)


@immutable
class TileType:
    """A tile value of one block program (registers, wherever a target keeps them). Rank 0 is a scalar."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"!tessera.tile<{shape_text(self.shape)}, {self.dtype}>"

    def pretty(self) -> str:
        return f"{shape_text(self.shape)} {self.dtype}"

    @property
    def rank(self) -> int:
        return len(self.shape)


@immutable
class ViewType:
    """A strided window onto global memory. `strides` count elements; None means C-contiguous."""

    shape: Shape
    dtype: DType
    strides: Shape | None = None

    def __str__(self) -> str:
        strides = f", strides {shape_text(self.strides)}" if self.strides is not None else ""
        return f"!tessera.view<{shape_text(self.shape)}, {self.dtype}{strides}>"

    def pretty(self) -> str:
        strides = f" strides {shape_text(self.strides)}" if self.strides is not None else ""
        return f"{shape_text(self.shape)} {self.dtype}{strides}"

    @property
    def rank(self) -> int:
        return len(self.shape)


@immutable
class SharedType:
    """A tile in the block's shared memory, mutable, visible to the block's threads."""

    shape: Shape
    dtype: DType
    swizzle: str = "none"

    def __str__(self) -> str:
        return f'!tessera.shared<{shape_text(self.shape)}, {self.dtype}, "{self.swizzle}">'

    def pretty(self) -> str:
        return f"{shape_text(self.shape)} {self.dtype} shared"

    @property
    def rank(self) -> int:
        return len(self.shape)


@immutable
class IndexType:
    """A 64-bit integer used for offsets, loop counters and grid coordinates."""

    def __str__(self) -> str:
        return "index"

    pretty = __str__


INDEX = IndexType()
Type: TypeAlias = TensorType | TileType | ViewType | SharedType | IndexType


@lru_cache(maxsize=4096)
def type_text(type: Type) -> str:
    """MLIR's text of a type. The ops of a program have few types, and are printed for each key of the caches."""
    return str(type)
