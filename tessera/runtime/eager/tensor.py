"""`tessera.Tensor`: an eager array whose operators are the ones that functions are made of.

Memory is NumPy's on the host and CuPy's on a CUDA device, shared with both, and with everything else by DLPack.
Operators and methods come from the operator definitions: what `@ts.function` understands, a Tensor does.
"""

from __future__ import annotations

import html as markup
from collections.abc import Callable, Hashable
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn

import tessera.compiler.graph  # noqa: F401  (its import registers the operators)
from tessera.compiler.graph.operator import FUNCTIONS, METHODS, PROPERTIES, REGISTRY, Operator
from tessera.compiler.machines import ANY_GPU, HOST
from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError, TesseraError
from tessera.language import dtypes
from tessera.language.absent import no_attribute
from tessera.language.annotations import tensor_spec
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.scalars import BY_SYMBOL
from tessera.runtime.arrays import libraries
from tessera.runtime.arrays.adapter import Adapter, ArrayView, dtype_of, unusable
from tessera.runtime.arrays.libraries import CUPY, NUMPY, ThroughCupy, adapter_of, cupy, register
from tessera.runtime.callsite import call_span
from tessera.runtime.eager.operators import apply
from tessera.runtime.eager.protocols import Protocols, is_operand
from tessera.tracebacks import leave, outward

if TYPE_CHECKING:
    from tessera.language.annotations import TensorAnn

_dtype_of = lru_cache(maxsize=64)(dtype_of)
"""an array's dtype is asked for many times in a call"""


class ElementCount(int):
    """A number that says what PyTorch's `x.size(0)` is here."""

    @outward
    def __call__(self, axis: int | None = None) -> NoReturn:
        shown = "x.shape" if axis is None else f"x.shape[{axis}]"
        message = (
            f"x.size is the number of elements; write {shown} for PyTorch's x.size({'' if axis is None else axis})"
        )
        raise LaunchError(Diagnostic("TS105", message, call_span()))


class Tensor(Protocols):
    """An array of `shape` and `dtype` on a device. `Tensor["B", "S", f32]` is the annotation of such an argument.

    `Tensor(data)` shares the memory of an array and copies what is not one (lists, numbers); floats among Python
    numbers become f32. Slices and `.T` are views, everything else makes new tensors.
    """

    __slots__ = ("__weakref__", "_data", "_tape")
    __tessera_builtin__ = "tessera.Tensor"

    @outward
    def __init__(self, data: Any, dtype: Any = None, device: str | None = None, requires_grad: bool = False) -> None:
        self._data = _storage(data, dtype)
        if device is not None:
            self._data = self.to(device)._data
        if requires_grad:
            self.requires_grad_()

    @outward
    def __class_getitem__(cls, item: object) -> TensorAnn:
        return tensor_spec(item)

    if not TYPE_CHECKING:  # an attribute that is not there is an error in editors, too

        @outward
        def __getattr__(self, name: str) -> Any:
            if name in functions.METHODS:
                return MethodType(getattr(functions, name), self)
            raise no_attribute("tensor", self, name, f"write ts.{name}(x, ...)" if name in FUNCTIONS else "")

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *functions.METHODS})

        def _set_data(self, values: Any) -> None:
            raise AttributeError(
                "a Tensor's data cannot be assigned; write x[...] = values, under ts.no_grad() if x learns"
            )

        data = property(None, outward(_set_data))

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> DType:
        return _dtype_of(self._data.dtype)

    @property
    def device(self) -> str:
        """ "cpu", or "cuda:0"."""
        return HOST if isinstance(self._data, np.ndarray) else f"{ANY_GPU}:{self._data.device.id}"

    @property
    def ndim(self) -> int:
        return self._data.ndim

    rank = ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return ElementCount(self._data.size)

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    @property
    def T(self) -> Tensor:
        """All axes reversed; a view."""
        return wrapped(self._data.T)

    # Gradients (recorded.py has what tensors do that require them)

    @property
    def requires_grad(self) -> bool:
        """Whether calls with it are recorded, so that `backward()` finds its `.grad`. It may be set, of floats."""
        return False

    @requires_grad.setter
    @outward
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    @outward
    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Sets `requires_grad`; the tensor itself. Raises LaunchError TS351 where it holds no floats."""
        if wanted:
            deferred("runtime.eager.recorded").require(self)
        return self

    @property
    def grad(self) -> Tensor | None:
        """What `backward()` has added up; None before. It may be set, to None or a gradient."""
        return None

    @grad.setter
    @outward
    def grad(self, value: Any) -> None:
        if value is not None:
            raise LaunchError(Diagnostic("TS356", "this tensor requires no gradient; set requires_grad first"))

    @outward
    def backward(self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Adds to `.grad` of each tensor that requires it the derivative of this one by it.

        `gradient` has this tensor's shape and dtype and is what derivatives are multiplied by; a single real number
        needs none. What was recorded is freed, unless `retain_graph`. Raises LaunchError TS352, TS356, TS357, and
        CompileError TS353, TS355 at the line of the call that has no derivative.
        """
        message = "nothing was recorded for backward(): no tensor that this one was computed from requires a gradient"
        how = "model.requires_grad_() or an optimizer of model.parameters() makes those of a model require it"
        message = f"{message}, or it was computed under ts.no_grad(); {how}"
        raise LaunchError(Diagnostic("TS356", message, call_span()))

    # Taking it elsewhere

    def numpy(self) -> Any:
        """A NumPy array: the same memory on the host, a copy from a device."""
        return self._on_host()

    def _on_host(self) -> Any:
        return self._data if isinstance(self._data, np.ndarray) else self._data.get()

    @outward
    def to(self, where: Any) -> Tensor:
        """On another device ("cpu", "cuda", "cuda:1"), or of another dtype. The same tensor where nothing changes.
        Raises LaunchError TS501 where `where` is neither."""
        if (dtype := dtypes.of(where)) is not None:
            return self.astype(dtype)
        if not isinstance(where, str):
            raise unusable(f"{where!r} is neither a dtype nor the name of a device: cpu, cuda, cuda:1")
        device = where.replace("gpu", ANY_GPU)
        kind, _, index = device.partition(":")
        if kind == HOST:
            return self if isinstance(self._data, np.ndarray) else wrapped(self._data.get())
        if kind != ANY_GPU:
            raise unusable(f"there is no device {where!r}; devices are called cpu, cuda, cuda:1")
        library = cupy()
        with library.cuda.Device(int(index or 0)):
            return wrapped(library.asarray(self._data))

    def cpu(self) -> Tensor:
        return self.to(HOST)

    def cuda(self, index: int = 0) -> Tensor:
        return self.to(f"{ANY_GPU}:{index}")

    @outward
    def astype(self, dtype: Any) -> Tensor:
        """Elements converted, as `cast` does. Raises LaunchError TS501 where `dtype` is none."""
        wanted = dtype_of(dtype, "the wanted result")
        return self if wanted == self.dtype else METHOD_FUNCTIONS["cast"](self, wanted)

    @outward
    def item(self) -> bool | int | float | complex:
        """The only element as a Python number. Raises LaunchError TS501, a ValueError, when there are more."""
        return self._only("a number")

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        array = self._on_host()
        return (array.astype(np.float32) if self.dtype.is_low_precision else array).tolist()

    def copy(self) -> Tensor:
        return self.__copy__()

    def contiguous(self) -> Tensor:
        """Itself where its elements lie in C order without gaps, else a copy."""
        return self if self._data.flags.c_contiguous else self.copy()

    def __repr__(self) -> str:

        return text(self)

    def _repr_html_(self) -> str:

        return html(self)


def wrapped(storage: Any) -> Tensor:
    """A Tensor over an array of NumPy or CuPy."""
    tensor = object.__new__(Tensor)
    tensor._data = (
        storage if hasattr(type(storage), "__array_interface__") and type(storage) is np.ndarray else _array(storage)
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
        storage = libraries.storage_of(data) if adapter.view(data).device != HOST else adapter.numpy(data)
    else:
        storage = _from_python(data, wanted)
    dtype_of(storage.dtype)  # refuses text, objects, dates
    return storage if wanted is None else storage.astype(wanted.numpy, copy=False)


def _from_python(data: Any, wanted: DType | None) -> Any:
    if isinstance(data, (list, tuple)) and any(isinstance(v, Tensor) and v.requires_grad for v in data):
        deferred("runtime.eager.recorded").demand_off("a tensor that is made of others", "ts.stack(tensors) is")
    try:
        plain = np.asarray(
            [v._data if isinstance(v, Tensor) else v for v in data] if isinstance(data, (list, tuple)) else data
        )
    except (TypeError, ValueError) as error:
        raise unusable(f"no array can be made of it: {error}") from None
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
    held = "_data"
    wrapper = Tensor

    @staticmethod
    def inner(array: Tensor) -> Adapter:
        return NUMPY if type(array._data) is np.ndarray else adapter_of(array._data)  # type: ignore[return-value]

    def key(self, array: Tensor) -> Hashable:
        return type(array._data), self.inner(array).key(array._data)

    def view(self, array: Tensor) -> ArrayView:
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
        return array._on_host()

    def wrap(self, array: Any) -> Tensor:
        return wrapped(array)


TENSOR = TensorAdapter()
register(lambda kind: TENSOR if issubclass(kind, Tensor) else None)
functions = deferred("functions")
METHOD_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _method(name: str, operator: Operator) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        try:
            return apply(operator, (self, *args), kwargs)
        except TesseraError as error:
            leave(error)
            raise

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"{operator.signature}\n\n{operator.doc}"
    return method


def _binary(name: str, operator: Operator, reflected: bool = False) -> Callable[..., Any]:
    """`t + x` and, `reflected`, `x + t`. What no operator takes may know itself what to do: NotImplemented."""

    def method(self: Tensor, other: Any) -> Any:
        try:
            return apply(operator, (other, self) if reflected else (self, other), {})
        except TesseraError as error:
            if not is_operand(other):
                return NotImplemented
            leave(error)
            raise

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
        setattr(Tensor, f"__{dunder}__", _binary(f"__{dunder}__", operator))
        if dunder not in ("eq", "ne", "lt", "le", "gt", "ge"):
            setattr(Tensor, f"__r{dunder}__", _binary(f"__r{dunder}__", operator, reflected=True))
    Tensor.__abs__ = _method("__abs__", REGISTRY["abs"])  # type: ignore[attr-defined]
    Tensor.__matmul__ = _binary("__matmul__", REGISTRY["matmul"])  # type: ignore[attr-defined]
    Tensor.__rmatmul__ = _binary("__rmatmul__", REGISTRY["matmul"], reflected=True)  # type: ignore[attr-defined]


_install()


# How a Tensor shows itself: text in a terminal, a small table in a notebook.

_EDGE = 4  # rows and columns shown at each end of a large axis
_STATISTICS_LIMIT = 1 << 24  # elements; looking at more would make a cell wait


def _heading(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"[{shape}] {tensor.dtype} on {tensor.device}"


def _values(tensor: Tensor) -> Any:
    """As a NumPy array that NumPy can print: small floats as f32."""
    array = tensor._on_host()
    return array.astype(np.float32) if tensor.dtype.is_low_precision else array


def text(tensor: Tensor) -> str:
    """`Tensor([1. 2. 3.], [3] f32 on cpu)`, large ones shortened."""
    body = np.array2string(_values(tensor), prefix="Tensor(", threshold=200, edgeitems=3, separator=", ")
    gap = "\n       " if "\n" in body else " "
    return f"Tensor({body},{gap}{_heading(tensor)})"


def html(tensor: Tensor) -> str:
    """Shape, dtype, device, statistics and the values at the edges as an HTML table."""
    array = _values(tensor)
    parts = [f"<b>Tensor</b> <code>{markup.escape(_heading(tensor))}</code>"]
    if 0 < array.size <= _STATISTICS_LIMIT and array.dtype.kind in "fiu":
        parts.append(_statistics(array))
    if array.size:
        parts.append(_table(array if array.ndim >= 2 else array.reshape(1, -1)))
    return f'<div class="tessera-tensor">{"".join(parts)}</div>'


def _statistics(array: Any) -> str:
    finite = np.isfinite(array)
    bad = array.size - int(np.count_nonzero(finite))
    seen = array[finite]
    figures = (
        [f"min {seen.min():.4g}, mean {seen.mean(dtype=np.float64):.4g}, max {seen.max():.4g}"] if seen.size else []
    )
    figures += [f"<b>{bad} not finite</b>"] if bad else []
    return f"<div>{'; '.join(figures)}</div>"


def _table(array: Any) -> str:
    while array.ndim > 2:
        array = array[0]
    rows, columns = _edges(array.shape[0]), _edges(array.shape[1])
    body = "".join(
        "<tr>" + "".join(f"<td>{'…' if None in (r, c) else _cell(array[r, c])}</td>" for c in columns) + "</tr>"
        for r in rows
    )
    return f"<table>{body}</table>"


def _edges(size: int) -> list[int | None]:
    if size <= 2 * _EDGE + 1:
        return list(range(size))
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _cell(value: Any) -> str:
    return markup.escape(f"{value:.4g}" if value.dtype.kind in "fc" else str(value))
