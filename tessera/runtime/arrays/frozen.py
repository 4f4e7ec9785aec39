"""`ts.frozen`: arrays that never change, such as the weights of a model that is only used.

A frozen array owns a copy of its elements that nobody else can write to. So what code derives from it alone is the same
at each call: products pack it once, in the layout that their code reads, and it keeps what was packed. Its number is
part of the key of a launch: a launch belongs to the arrays whose packed forms it reads.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any

from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime.arrays import host_memory
from tessera.runtime.arrays.adapter import Adapter, ArrayView, dtype_of
from tessera.runtime.arrays.libraries import NUMPY, adapter_of, dlpack, own_library, register
from tessera.tracebacks import outward

_numbers = itertools.count(1)


class Frozen:
    """An array whose elements never change. `ts.frozen(array)` makes one."""

    __slots__ = ("__weakref__", "_data", "_lock", "_number", "_packed")

    def __init__(self, data: Any) -> None:
        data.flags.writeable = False
        self._data, self._number = data, next(_numbers)
        self._packed: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> DType:
        return dtype_of(self._data.dtype)

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    @property
    def packed_bytes(self) -> int:
        """The memory of its packed forms, beside `nbytes`."""
        return sum(memory.nbytes for memory in list(self._packed.values()))

    def numpy(self) -> Any:
        """Its elements as a NumPy array that cannot be written to."""
        return self._data.view()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy or (dtype is not None and np.dtype(dtype) != self._data.dtype):
            return self._data.astype(self._data.dtype if dtype is None else dtype)
        return self._data.view()

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        """A copy: PyTorch writes to memory that is marked as read-only."""
        if copy is False:
            raise BufferError("a frozen array is exported as a copy")
        return dlpack(self._data.copy(), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def __copy__(self) -> Frozen:
        return self  # nothing can tell the two apart

    def __deepcopy__(self, memo: Any) -> Frozen:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return frozen, (self._data,)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"frozen({self._data!r})"

    def packed(self, layout: str, size: int, write: Callable[[int], None]) -> int:
        """The address of its packed form of this layout, `size` bytes that `write(address)` fills at first use."""
        with self._lock:
            if layout not in self._packed:
                memory = host_memory.empty((size + 64,), np.dtype(np.uint8), size + 64, "packed weights")
                write(_aligned(memory))
                self._packed[layout] = memory
            return _aligned(self._packed[layout])


def _aligned(memory: Any) -> int:
    return -(-NUMPY.pointer(memory) // 64) * 64


class FrozenAdapter(Adapter):
    name = "frozen"
    held = "_data"
    constant = True
    immutable = "frozen arrays never change"

    def key(self, array: Frozen) -> Hashable:
        return array._number  # pyright: ignore[reportPrivateUsage]

    def view(self, array: Frozen) -> ArrayView:
        return NUMPY.view(array._data)  # pyright: ignore[reportPrivateUsage]

    def pointer(self, array: Frozen) -> int:
        return NUMPY.pointer(array._data)  # pyright: ignore[reportPrivateUsage]

    def contiguous(self, array: Frozen) -> Frozen:
        return array  # always is

    def empty(self, shape: tuple[int, ...], dtype: DType, device: str) -> tuple[Any, int]:
        return own_library().empty(shape, dtype, device)

    def finish(self, array: Any) -> Any:
        return own_library().finish(array)

    def numpy(self, array: Frozen) -> Any:
        return array.numpy()

    def wrap(self, array: Any) -> Any:
        return own_library().wrap(array)


FROZEN = FrozenAdapter()
register(lambda kind: FROZEN if issubclass(kind, Frozen) else None)


@outward
def frozen(tree: Any) -> Any:
    """A copy of an array that never changes, or a copy of a model, list, tuple or dict with such copies in it.

    Compiled code packs a frozen right operand of a product once, not at each call: `model = ts.frozen(model)` for a
    model that is only used. To change a weight, freeze the new one. Takes arrays on the host of any library, and leaves
    what is no array as it is. State that a model changes itself must not be frozen: a store to it is an error (TS503).

    Raises LaunchError TS504 for arrays on a GPU.
    """
    if adapter_of(tree) is None:
        return deferred("nn.tree").tree_map(_frozen, tree)
    return _frozen(tree)


def _frozen(array: Any) -> Frozen:
    if isinstance(array, Frozen):
        return array
    adapter = adapter_of(array)
    assert adapter is not None
    view = adapter.view(array)
    if view.device != "cpu":
        message = f"the array lives on {view.device}; frozen arrays live on the host, where products pack them"
        raise LaunchError(Diagnostic("TS504", message))
    own = host_memory.empty(view.shape, view.dtype.numpy, adapter.numpy(array).nbytes, "a frozen array")
    own[...] = adapter.numpy(array)
    return Frozen(own)
