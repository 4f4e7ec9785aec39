"""`tessera.Tensor`: an eager array whose operators are the ones that functions are made of.

Memory is NumPy's on the host and CuPy's on a CUDA device, shared with both, and with everything else by DLPack.
Operators and methods come from the operator definitions: what `@ts.function` understands, a Tensor does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

import tessera.compiler.graph  # noqa: F401  (its import registers the operators)
from tessera.compiler.graph.operator import METHODS, PROPERTIES, REGISTRY, Operator
from tessera.language import dtypes
from tessera.language.annotations import tensor_spec
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.scalars import BY_SYMBOL
from tessera.runtime import foreign
from tessera.runtime.arrays import Adapter, View, dtype_of, unusable
from tessera.runtime.eager import apply
from tessera.runtime.libraries import CUPY, NUMPY, ThroughCupy, adapter_of, cupy, register

if TYPE_CHECKING:
    from tessera.language.annotations import TensorAnn


class Tensor:
    """An array of `shape` and `dtype` on a device. `Tensor["B", "S", f32]` is the annotation of such an argument.

    `Tensor(data)` shares the memory of an array and copies what is not one (lists, numbers); floats among Python
    numbers become f32. Slices and `.T` are views, everything else makes new tensors.
    """

    __slots__ = ("__weakref__", "_data")
    __tessera_builtin__ = "tessera.Tensor"
    __array_ufunc__ = None  # NumPy leaves array + Tensor to Tensor.__radd__
    __hash__ = object.__hash__  # == is elementwise; identity is what dictionaries need

    def __init__(self, data: Any, dtype: Any = None, device: str | None = None) -> None:
        self._data = _storage(data, dtype)
        if device is not None:
            self._data = self.to(device)._data

    def __class_getitem__(cls, item: object) -> TensorAnn:
        return tensor_spec(item)

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> DType:
        return dtype_of(self._data.dtype)

    @property
    def device(self) -> str:
        """ "cpu", or "cuda:0"."""
        return "cpu" if isinstance(self._data, np.ndarray) else f"cuda:{self._data.device.id}"

    @property
    def ndim(self) -> int:
        return self._data.ndim

    rank = ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    @property
    def T(self) -> Tensor:
        """All axes reversed; a view."""
        return _wrap(self._data.T)

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped; a view."""
        return _wrap(self._data.swapaxes(-1, -2))

    # Taking it elsewhere

    def numpy(self) -> Any:
        """A NumPy array: the same memory on the host, a copy from a device."""
        return self._data if isinstance(self._data, np.ndarray) else self._data.get()

    def to(self, where: Any) -> Tensor:
        """On another device ("cpu", "cuda", "cuda:1"), or of another dtype. The same tensor where nothing changes."""
        if (dtype := dtypes.of(where)) is not None:
            return self.astype(dtype)
        device = str(where).replace("gpu", "cuda")
        kind, _, index = device.partition(":")
        if kind == "cpu":
            return self if isinstance(self._data, np.ndarray) else _wrap(self._data.get())
        if kind != "cuda":
            raise unusable(f"there is no device {where!r}; devices are called cpu, cuda, cuda:1")
        library = cupy()
        with library.cuda.Device(int(index or 0)):
            return _wrap(library.asarray(self._data))

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def cuda(self, index: int = 0) -> Tensor:
        return self.to(f"cuda:{index}")

    def astype(self, dtype: Any) -> Tensor:
        """Elements converted, as `cast` does. Raises LaunchError TS501 where `dtype` is none."""
        wanted = dtype_of(dtype, "the wanted result")
        return self if wanted == self.dtype else METHOD_FUNCTIONS["cast"](self, wanted)

    def item(self) -> bool | int | float | complex:
        """The only element as a Python number. Raises ValueError when there are more."""
        value = self.numpy().item()
        return float(value) if self.dtype.is_float else value

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        array = self.numpy()
        return (array.astype(np.float32) if self.dtype.is_low_precision else array).tolist()

    def copy(self) -> Tensor:
        return _wrap(adapter_of(self._data).contiguous(self._data))  # type: ignore[union-attr]

    def contiguous(self) -> Tensor:
        """Itself where its elements lie in C order without gaps, else a copy."""
        return self if self._data.flags.c_contiguous else self.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return foreign.dlpack(self._data, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    # Python's protocols

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.item())  # type: ignore[arg-type]

    def __float__(self) -> float:
        return float(self.item())  # type: ignore[arg-type]

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.ndim or not self.dtype.is_integer:
            raise TypeError("only a tensor of one integer can be an index")
        return int(self.item())  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> Tensor:
        """NumPy's indexing: slices and integers give views, arrays of integers or bools copies."""
        return _wrap(self._data[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._data[_index(index)] = value._data if isinstance(value, Tensor) else value

    def __repr__(self) -> str:
        from tessera.runtime.tensor_display import text

        return text(self)

    def _repr_html_(self) -> str:
        from tessera.runtime.tensor_display import html

        return html(self)


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    return index._data if isinstance(index, Tensor) else index


def _wrap(storage: Any) -> Tensor:
    tensor = object.__new__(Tensor)
    tensor._data = (
        storage if hasattr(storage, "__array_interface__") and type(storage) is np.ndarray else _array(storage)
    )
    return tensor


def _array(storage: Any) -> Any:
    """NumPy and CuPy give scalars for single elements; a Tensor holds arrays."""
    return np.asarray(storage) if isinstance(storage, (np.generic, np.ndarray)) else storage


def _storage(data: Any, dtype: Any) -> Any:
    wanted = None if dtype is None else dtype_of(dtype, "the wanted tensor")
    if isinstance(data, Tensor):
        storage = data._data
    elif (adapter := adapter_of(data)) in (NUMPY, CUPY):
        storage = data
    elif adapter is not None:
        storage = foreign.storage_of(data) if adapter.view(data).device != "cpu" else adapter.numpy(data)
    else:
        storage = _from_python(data, wanted)
    dtype_of(storage.dtype)  # refuses text, objects, dates
    return storage if wanted is None else storage.astype(wanted.numpy, copy=False)


def _from_python(data: Any, wanted: DType | None) -> Any:
    plain = np.asarray(
        [v._data if isinstance(v, Tensor) else v for v in data] if isinstance(data, (list, tuple)) else data
    )
    if wanted is None and not isinstance(data, np.generic) and plain.dtype.kind in "fc" and not _holds_arrays(data):
        plain = plain.astype(np.float32 if plain.dtype.kind == "f" else np.complex64)
    return plain


def _holds_arrays(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(map(_holds_arrays, data))
    return hasattr(data, "dtype")


class TensorAdapter(ThroughCupy):
    """Tensors as arguments and results."""

    name = "tessera"

    @staticmethod
    def inner(array: Tensor) -> Adapter:
        return NUMPY if type(array._data) is np.ndarray else adapter_of(array._data)  # type: ignore[return-value]

    def key(self, array: Tensor) -> Hashable:
        return type(array._data), self.inner(array).key(array._data)

    def view(self, array: Tensor) -> View:
        return self.inner(array).view(array._data)

    def pointer(self, array: Tensor) -> int:
        return self.inner(array).pointer(array._data)

    def writable(self, array: Tensor) -> bool:
        return self.inner(array).writable(array._data)

    def contiguous(self, array: Tensor) -> Tensor:
        return array.contiguous()

    def finish(self, array: Any) -> Tensor:
        tensor = object.__new__(Tensor)
        tensor._data = array
        return tensor

    def numpy(self, array: Tensor) -> Any:
        return array.numpy()

    def wrap(self, array: Any) -> Tensor:
        return _wrap(array)


TENSOR = TensorAdapter()
register(lambda kind: TENSOR if issubclass(kind, Tensor) else None)
METHOD_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _method(name: str, operator: Operator) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return apply(operator, (self, *args), kwargs)

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"{operator.signature}\n\n{operator.doc}"
    return method


def _reflected(name: str, operator: Operator) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        return apply(operator, (other, self), {})

    method.__name__, method.__qualname__, method.__doc__ = name, f"Tensor.{name}", operator.doc
    return method


_DUNDERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "&": "and",
    "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt",
    ">=": "ge",
}  # fmt: skip


def _install() -> None:
    """Gives Tensor its operators and methods, from the definitions."""
    for name, operator in METHODS.items():
        METHOD_FUNCTIONS[name] = _method(name, operator)
        if name not in Tensor.__dict__:
            setattr(Tensor, name, METHOD_FUNCTIONS[name])
    for name, operator in PROPERTIES.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, property(_method(name, operator)))
    for (symbol, arity), name in BY_SYMBOL.items():
        operator = REGISTRY[name]
        if arity == 1:
            dunder = {"-": "__neg__", "~": "__invert__"}[symbol]
            setattr(Tensor, dunder, _method(dunder, operator))
            continue
        dunder = _DUNDERS[symbol]
        setattr(Tensor, f"__{dunder}__", _method(f"__{dunder}__", operator))
        if dunder not in ("eq", "ne", "lt", "le", "gt", "ge"):
            setattr(Tensor, f"__r{dunder}__", _reflected(f"__r{dunder}__", operator))
    for dunder, name in (("__matmul__", "matmul"), ("__abs__", "abs")):
        setattr(Tensor, dunder, _method(dunder, REGISTRY[name]))
    Tensor.__rmatmul__ = _reflected("__rmatmul__", REGISTRY["matmul"])  # type: ignore[attr-defined]
    Tensor.__pos__ = lambda self: self  # type: ignore[attr-defined]


_install()
