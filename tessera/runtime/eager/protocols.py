"""What a Tensor says to Python, to NumPy and to code written for the Array API.

NumPy's ufuncs of a Tensor are Tessera's operators where there is one of that name and arity, so that `array + t` and
`t + array` are the same; every other function of NumPy (of CuPy, on a CUDA device) runs there, on the same memory.
Results are Tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Self

from tessera.compiler.graph.operator import FUNCTIONS, REGISTRY
from tessera.deferred import deferred
from tessera.errors import CompilationWarning, Diagnostic, LaunchError
from tessera.language import dtypes
from tessera.language.absent import rows_given, rows_named
from tessera.language.lazy import np
from tessera.runtime.arrays import libraries
from tessera.runtime.arrays.libraries import adapter_of, own_library
from tessera.runtime.arrays.versions import changed, watched
from tessera.runtime.callsite import call_span, callee_unpacked, names_unpacked
from tessera.runtime.eager.operators import apply
from tessera.tracebacks import outward


class TensorIndexError(LaunchError, IndexError):
    """A subscript that does not fit the Tensor; an IndexError as well, as Python's protocols want."""


class Protocols:
    """The part of `Tensor` that other code asks for by agreed names."""

    __slots__ = ()
    __hash__ = object.__hash__  # == is elementwise; identity is what dictionaries need
    _data: Any

    # Python's numbers

    def __bool__(self) -> bool:
        return bool(self._only("a condition"))

    def __int__(self) -> int:
        return _converted(int, self._only("an int"))

    def __float__(self) -> float:
        return _converted(float, self._only("a float"))

    def __complex__(self) -> complex:
        return complex(self._only("a complex"))

    @outward
    def __index__(self) -> int:
        if self._data.ndim or self._data.dtype.kind not in "iu":
            raise TypeError("only a tensor of one integer can be an index")
        return int(self._data.item())

    def _only(self, what: str) -> Any:
        """The only element, as a Python number. Raises LaunchError TS501 where there are several, or none."""
        if self._data.size != 1:
            count = f"{self._data.size} elements"
            how = ".all()" if what == "a condition" else ".sum()"
            message = f"a tensor of {count} is ambiguous as {what}; reduce it first, for example with {how}"
            raise LaunchError(Diagnostic("TS501", message, call_span()))
        value = self._data.item()
        return value if isinstance(value, (bool, int, float, complex)) else float(value)

    def __round__(self, ndigits: int | None = None) -> Self:
        """Each element rounded, halves to even; to `ndigits` decimals as NumPy does. Integers stay what they are."""
        if not ndigits:
            return _applied("round", self)
        return _tensor(np.round(storages(self), ndigits))

    def __floor__(self) -> Self:
        return _applied("floor", self)

    def __ceil__(self) -> Self:
        return _applied("ceil", self)

    def __trunc__(self) -> Self:
        return _applied("trunc", self)

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return _applied("floordiv", self, other), _applied("mod", self, other)

    def __rdivmod__(self, other: Any) -> tuple[Self, Self]:
        return _applied("floordiv", other, self), _applied("mod", other, self)

    def __pos__(self) -> Self:
        return self

    def __format__(self, spec: str) -> str:
        """A single element as a number, `f"{loss:.3f}"`; of several, each one."""
        if not spec:
            return str(self)
        array = self._data if isinstance(self._data, np.ndarray) else self._data.get()
        if array.dtype.kind not in "biufc":
            array = array.astype(np.float32)
        if array.size == 1 and array.ndim == 0:
            return format(array.item(), spec)
        return np.array2string(array, formatter={"all": lambda v: format(v.item(), spec)}, separator=", ")

    # Python's containers and copies

    @outward
    def __len__(self) -> int:
        if not self._data.ndim:
            raise TypeError("len() of a tensor without axes")
        return len(self._data)

    @outward
    def __iter__(self) -> Iterator[Self]:
        count, names = len(self), names_unpacked()
        if names is not None and names != count:
            message = rows_given(
                str(names), count, self._data.ndim, f"{list(self._data.shape)} {dtypes.of(self._data.dtype)}"
            )
            raise LaunchError(Diagnostic("TS105", message))
        if names == 2 and self._data.ndim > 2 and (said := rows_named(type(callee_unpacked()))):
            at = call_span()
            text = Diagnostic("TS102", said, at, "warning").render()
            warnings.warn_explicit(text, CompilationWarning, at.file, at.line)
        return (self[i] for i in range(count))

    def __contains__(self, value: object) -> bool:
        return bool((self._data == (value._data if isinstance(value, Protocols) else value)).any())

    def __getitem__(self, index: Any) -> Self:
        """NumPy's indexing: slices and integers give views, arrays of integers or bools copies.

        Raises LaunchError TS207, an IndexError as well, where the index does not fit.
        """
        try:
            return _tensor(self._data[_index(index)])
        except _UNFIT as error:
            raise _misfit(error) from None

    def __setitem__(self, index: Any, value: Any) -> None:
        if watched:
            changed(self._data)
        try:
            self._data[_index(index)] = storages(value) if isinstance(value, Protocols) else value
        except _UNFIT as error:
            raise _misfit(error) from None

    def __copy__(self) -> Self:
        return _tensor(adapter_of(self._data).contiguous(self._data))  # type: ignore[union-attr]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    # Exchange with other libraries

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self._data if isinstance(self._data, np.ndarray) else self._data.get()
        return np.array(array, dtype=dtype, copy=copy)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return libraries.dlpack(self._data, **{k: v for k, v in given.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(not is_operand(v) for v in inputs):
            return NotImplemented
        operator = FUNCTIONS.get(ufunc.__name__)
        if method == "__call__" and not options and operator is not None:
            arity = sum(p.operand for p in operator.parameters)
            if arity == len(inputs) == len(operator.parameters) == ufunc.nin:
                return apply(operator, inputs, {})
        out = options.get("out")
        if out is not None:
            options["out"] = _to_store(out)
        result = getattr(ufunc, method)(*map(storages, inputs), **{k: storages(v) for k, v in options.items()})
        return results(result) if out is None else out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = kwargs.get("out")
        if out is not None:
            _to_store(out)
        result = function(*storages(args), **storages(kwargs))
        return results(result) if out is None else out

    # The Array API

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`tessera.array_api`. Raises LaunchError TS501 for versions of the standard that it does not follow."""
        standard = deferred("runtime.standard")
        if api_version not in (None, *standard.VERSIONS):
            followed = ", ".join(standard.VERSIONS)
            raise LaunchError(Diagnostic("TS501", f"tessera.array_api follows {followed}, not {api_version}"))
        return standard

    def to_device(self, device: Any, /, *, stream: Any = None) -> Self:
        """On another device; see `to`. `stream` is the CUDA stream that the copy is ordered on: only None, the current
        one."""
        if stream is not None:
            raise LaunchError(Diagnostic("TS501", "to_device copies on the current stream; pass stream=None"))
        return self.to(device)  # type: ignore[attr-defined]


def _converted(kind: type, value: Any) -> Any:
    if isinstance(value, complex):
        raise LaunchError(
            Diagnostic("TS501", f"{value} cannot be converted to {kind.__name__}; use abs()", call_span())
        )
    return kind(value)


def _applied(name: str, *operands: Any) -> Any:
    return apply(REGISTRY[name], operands, {})


_UNFIT = (IndexError, TypeError, ValueError, OverflowError, RuntimeError)
"""what libraries raise where an index or a stored value does not fit: PyTorch's tensors that require a gradient too"""


def _misfit(error: Exception) -> TensorIndexError:
    return TensorIndexError(Diagnostic("TS207", str(error) or type(error).__name__, call_span()))


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    if not isinstance(index, Protocols):
        return index
    if index._data.dtype == np.uint64:  # NumPy takes the upper half for negative numbers, which count from the end
        return index._data.clip(None, np.iinfo(np.int64).max)
    return index._data


def _tensor(storage: Any) -> Any:
    """A Tensor over an array of NumPy or CuPy."""
    return own_library().wrap(storage)


def is_operand(value: Any) -> bool:
    """Whether an operator takes it at all: an array, a number or a list of them."""
    return isinstance(value, (bool, int, float, complex, list, tuple, np.generic)) or adapter_of(value) is not None


def storages(value: Any) -> Any:
    """NumPy's (or CuPy's) arrays in the place of Tensors."""
    if isinstance(value, Protocols):
        if value.requires_grad:  # type: ignore[attr-defined]
            deferred("runtime.eager.recorded").demand_off()
        return value._data
    if isinstance(value, (list, tuple)) and any(isinstance(v, (Protocols, list, tuple)) for v in value):
        return type(value)(map(storages, value)) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {k: storages(v) for k, v in value.items()}
    return value


def _to_store(out: Any) -> Any:
    """The arrays that NumPy is to put a result into."""
    arrays = storages(out)
    for array in arrays if isinstance(arrays, tuple) else (arrays,):
        changed(array)
    return arrays


def results(value: Any) -> Any:
    """Tensors in the place of arrays, as far as there is a dtype for their elements; named tuples keep their names."""
    if isinstance(value, (list, tuple)):
        items = list(map(results, value))
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, np.generic) or hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__"):
        return _tensor(value) if dtypes.of(value.dtype) is not None else value
    return value


def _guarded(name: str) -> None:
    """Errors of the methods above carry none of our frames."""
    setattr(Protocols, name, outward(getattr(Protocols, name)))


for _name in (
    "__bool__", "__int__", "__float__", "__complex__", "__round__", "__floor__", "__ceil__", "__trunc__", "__divmod__",
    "__rdivmod__", "__getitem__", "__setitem__", "__array_ufunc__", "__array_function__", "__array_namespace__",
    "to_device", "__dlpack__",
):  # fmt: skip
    _guarded(_name)
