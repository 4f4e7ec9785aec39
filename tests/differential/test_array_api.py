"""`tessera.array_api` against array-api-strict, the standard over NumPy: names, parameters, results."""

from __future__ import annotations

import inspect
import math
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tessera as ts
from tessera.errors import LaunchError
from tessera.runtime.eager.tensor import Tensor

xp = ts.array_api
strict.set_array_api_strict_flags(api_version="2024.12")
NEWER = {"broadcast_shapes", "isin", "eig", "eigvals"}
"""functions of the standard behind 2024.12"""
OTHERS = {"Device", "ArrayAPIStrictFlags"} | {n for n in dir(strict) if n.endswith("array_api_strict_flags")}
"""names that array-api-strict has of its own"""
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REAL, NUMERIC = (*INTEGERS, *FLOATS), (*INTEGERS, *FLOATS, *COMPLEX)
EVERY = ("bool", *NUMERIC)
EXAMPLES = 5
"""of each function; a longer run draws more"""


# Names and parameters


def functions(space: Any) -> list[str]:
    return [n for n in space.__all__ if inspect.isfunction(getattr(space, n)) and n not in NEWER | OTHERS]


SPACES = {"": (xp, strict), "linalg": (xp.linalg, strict.linalg), "fft": (xp.fft, strict.fft)}
NAMES = [(space, name) for space, (_, theirs) in SPACES.items() for name in functions(theirs)]


def test_every_name_is_there():
    missing = [n for n in strict.__all__ if not hasattr(xp, n) and n not in NEWER | OTHERS]
    assert missing == ["__version__"]
    assert not [n for space, n in NAMES if not hasattr(SPACES[space][0], n)]
    assert xp.__array_api_version__ == "2024.12"
    assert ts.ones((2,)).__array_namespace__() is xp
    assert ts.ones((2,)).__array_namespace__(api_version="2022.12") is xp
    with pytest.raises(LaunchError, match=r"follows .*2024\.12, not 1999"):
        ts.ones((2,)).__array_namespace__(api_version="1999.12")
    with pytest.raises(AttributeError, match="did you mean 'cumulative_sum'"):
        xp.cumulative_summ


@pytest.mark.parametrize("space, name", NAMES)
def test_parameters_are_the_standards(space: str, name: str) -> None:
    ours, theirs = (inspect.signature(getattr(s, name)) for s in SPACES[space])
    mine = list(ours.parameters.values())
    for i, p in enumerate(theirs.parameters.values()):
        if p.kind is p.VAR_POSITIONAL:
            assert mine[i].kind is p.kind
        elif p.kind is p.POSITIONAL_ONLY:
            assert mine[i].kind in (p.kind, p.POSITIONAL_OR_KEYWORD)
        elif p.kind is p.POSITIONAL_OR_KEYWORD:
            assert (mine[i].name, mine[i].kind) == (p.name, p.kind)
        else:
            assert ours.parameters[p.name].kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        if p.kind is not p.VAR_POSITIONAL:
            has = ours.parameters[p.name] if p.name in ours.parameters else mine[i]
            assert (has.default is has.empty) == (p.default is p.empty) or name in ("linspace", "squeeze")


# Results


def elements(dtype: str, special: bool) -> st.SearchStrategy[Any]:
    kind = np.dtype(dtype).kind
    if kind in "iu":
        return st.integers(max(-9, np.iinfo(dtype).min), 9)
    if kind == "b":
        return st.booleans()
    part = st.floats(-8, 8, width=16)
    if kind == "c":
        return st.builds(complex, part, part)
    odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-30, -1e30]
    return part | st.sampled_from(odd) if special else part


def arrays(dtype: str, shape: Any = None, special: bool = True) -> st.SearchStrategy[Any]:
    shape = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4) if shape is None else shape
    return hnp.arrays(np.dtype(dtype), shape, elements=elements(dtype, special))


def of(space: Any, value: Any) -> Any:
    """NumPy's arrays, and its dtypes' names behind a colon, in a namespace."""
    if isinstance(value, np.ndarray):
        return space.asarray(value)
    if isinstance(value, str) and value.startswith(":"):
        return getattr(space, value[1:])
    if isinstance(value, list):
        return [of(space, v) for v in value]
    return value


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, Tensor):
        return value.numpy()
    return np.asarray(value._array) if hasattr(value, "_array") else value


def agree(name: str, *args: Any, space: str = "", loose: float = 1.0, **kwargs: Any) -> None:
    """The function gives what the standard's does: shape, dtype, values, and where NaN and infinities stand."""
    results = []
    for library in SPACES[space]:
        root = (xp, strict)[library is SPACES[space][1]]
        given_here = {k: of(root, v) for k, v in kwargs.items()}
        with np.errstate(all="ignore"):
            results.append(plain(getattr(library, name)(*(of(root, v) for v in args), **given_here)))
    ours, theirs = results
    if not isinstance(theirs, (list, np.ndarray)):
        assert ours == theirs
        return
    for a, b in zip(ours, theirs, strict=True) if isinstance(theirs, list) else [(ours, theirs)]:
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        wide = a.dtype in (np.float64, np.complex128)
        tolerance = loose * (1e-13 if wide else 3e-6) if a.dtype.kind in "fc" else 0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)


UNARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("abs", "negative", "positive", "sign", "square"), NUMERIC),
    **dict.fromkeys(("conj", "real"), NUMERIC),
    "imag": COMPLEX,
    **dict.fromkeys(("ceil", "floor", "trunc"), REAL),
    "round": NUMERIC,
    **dict.fromkeys(("isfinite", "isinf", "isnan"), NUMERIC),
    "signbit": FLOATS,
    **dict.fromkeys(("logical_not", "bitwise_invert"), ("bool",)),
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p",
         "log2", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"),
        (*FLOATS, *COMPLEX),
    ),
}  # fmt: skip
BRITTLE = {
    "tan",
    "tanh",
    "log1p",
    "exp",
    "expm1",
    "cosh",
    "sinh",
    "sin",
    "cos",
    "acos",
    "acosh",
    "asin",
    "log",
    "atanh",
}
"""functions of which NumPy's own complex results lose digits near their zeros and poles"""
ALONE = {"reciprocal": 0, "log": 0, "log2": 0, "log10": 0, "acosh": 0}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    @given(st.sampled_from(UNARY[name]).flatmap(arrays))
    def run(x: np.ndarray) -> None:
        if x.dtype.kind == "c":
            assume(not (np.isclose(np.abs(x), 1) | (np.abs(x) < 1e-2) | (np.abs(np.cos(x)) < 1e-2)).any())
            assume(name not in ("atan", "tan") or not (np.abs(x.real) < 1e-6).any())
            assume(not (np.abs(x.imag) < 1e-3).any())  # on a branch cut the sign of a zero decides
        agree(name, x, loose=100 if name in BRITTLE else 4)

    run()


BINARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "equal", "not_equal"), NUMERIC),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal", "maximum", "minimum"), REAL),
    **dict.fromkeys(("atan2", "copysign", "divide", "hypot", "logaddexp", "nextafter", "pow"), FLOATS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("bool",)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("bool", *INTEGERS)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
    **dict.fromkeys(("floor_divide", "remainder"), REAL),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(BINARY[name]))
        shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)).input_shapes
        x, y = (data.draw(arrays(dtype, s)) for s in shapes)
        if np.dtype(dtype).kind in "iu" and name in ("floor_divide", "remainder", "pow"):
            y = np.asarray(np.where(y == 0, 1, y), dtype)
        if "shift" in name:
            y = np.asarray(np.abs(y) % 7, dtype)
        agree(name, x, y, loose=4)

    run()


AXES = ("max", "min", "sum", "prod", "mean", "std", "var", "any", "all", "count_nonzero")


@pytest.mark.parametrize("name", AXES)
def test_reductions(name: str) -> None:
    allowed = {"max": REAL, "min": REAL, "sum": NUMERIC, "prod": NUMERIC, "mean": FLOATS, "std": FLOATS, "var": FLOATS}

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(allowed.get(name, EVERY)))
        shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
        x = data.draw(arrays(dtype, shape, special=name in ("max", "min", "any", "all")))
        axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1) | st.just(tuple(range(len(shape)))))
        agree(name, x, axis=axis, keepdims=data.draw(st.booleans()), loose=10)

    run()


X = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
Z = (X[0] + 1j * X[1]).astype(np.complex64)
I = np.array([3, 1, 2, 3, 1], np.int32)
NAN = np.array([np.nan, 1, np.nan, 1, -0.0], np.float32)
SPD = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float64)
CALLS: list[tuple[Any, ...]] = [
    ("arange", 5), ("arange", 2.0, 0.0, -0.25), ("arange", 1, 9, 3, {"dtype": ":uint8"}),
    ("linspace", 0.0, 1.0, 5, {"dtype": ":float64"}),
    ("linspace", 0.0, 1.0, 4, {"endpoint": False, "dtype": ":float64"}), ("eye", 3, 4, {"k": -1, "dtype": ":int8"}),
    ("zeros", (2, 3), {"dtype": ":int16"}), ("ones", 4, {"dtype": ":complex128"}), ("full", (2,), True),
    ("full_like", X, 7), ("zeros_like", Z), ("ones_like", I), ("empty", 0, {"dtype": ":bool"}),
    ("tril", X), ("triu", X, {"k": 1}), ("meshgrid", I, I[:2]), ("meshgrid", I, I[:2], {"indexing": "ij"}),
    ("astype", X, ":int64"), ("astype", I, ":complex64"), ("broadcast_to", I, (2, 5)), ("broadcast_arrays", X, X[0]),
    ("can_cast", ":int8", ":int16"), ("can_cast", ":float64", ":float32"), ("can_cast", ":uint8", ":int16"),
    ("isdtype", ":float32", "real floating"), ("isdtype", ":int8", ("bool", "unsigned integer")),
    ("isdtype", ":bool", "numeric"), ("isdtype", ":complex64", ":complex64"),
    ("concat", [X, X], {"axis": -1}), ("concat", [X, I.astype(np.float32)], {"axis": None}),
    ("stack", [I, I], {"axis": 1}),
    ("expand_dims", X, {"axis": 1}), ("flip", X), ("flip", X, {"axis": (0, -1)}), ("moveaxis", X, 0, -1),
    ("permute_dims", X, (2, 0, 1)), ("repeat", X, 2, {"axis": 1}), ("repeat", I, np.array([1, 0, 2, 0, 1])),
    ("reshape", X, (4, -1)), ("reshape", X, (24,), {"copy": True}), ("roll", X, 5),
    ("roll", X, (1, -1), {"axis": (0, 2)}),
    ("squeeze", X[:1], 0), ("tile", I, (2, 2)), ("unstack", X, {"axis": 1}), ("take", X, np.array([2, 0]), {"axis": 1}),
    ("take_along_axis", X, np.array([[[0]], [[2]]]), {"axis": 1}), ("where", X > 3, X, -X),
    ("argmax", X, {"axis": 1}), ("argmin", NAN), ("nonzero", X > 5), ("searchsorted", np.sort(I), I, {"side": "right"}),
    ("sort", X, {"axis": 0, "descending": True}), ("sort", NAN), ("argsort", I), ("argsort", I, {"descending": True}),
    ("unique_all", I), ("unique_values", NAN), ("unique_counts", I), ("unique_inverse", X),
    ("cumulative_sum", I), ("cumulative_sum", X, {"axis": 1, "include_initial": True, "dtype": ":float64"}),
    ("cumulative_prod", I, {"include_initial": True}), ("diff", I), ("diff", X, {"axis": 1, "n": 2}),
    ("diff", I, {"prepend": I[:1], "append": I[:2]}), ("clip", X, 2, 7.5), ("clip", I, {"max": 2}),
    ("sum", I, {"dtype": ":float32"}), ("prod", X, {"axis": 0, "dtype": ":float64"}), ("std", X, {"correction": 0.5}),
    ("matmul", X, X[0].T.copy()), ("matrix_transpose", X), ("tensordot", X, X, {"axes": ((0, 1), (0, 1))}),
    ("tensordot", X, I[:4].astype(np.float32), {"axes": 1}), ("vecdot", Z, Z), ("vecdot", X, X[0], {"axis": -2}),
]  # fmt: skip
LINALG: list[tuple[Any, ...]] = [
    ("cholesky", SPD), ("cholesky", SPD, {"upper": True}), ("cross", X[..., :3], X[..., 1:]), ("det", SPD),
    ("diagonal", X, {"offset": 1}), ("eigvalsh", SPD), ("inv", SPD), ("matrix_norm", X),
    ("matrix_norm", X, {"ord": "nuc"}),
    ("matrix_norm", X, {"ord": math.inf, "keepdims": True}), ("matrix_power", SPD, -2), ("matrix_rank", SPD),
    ("outer", I, I), ("pinv", X), ("slogdet", SPD), ("solve", SPD, SPD[0]), ("solve", SPD, SPD), ("svdvals", X),
    ("trace", X), ("trace", X, {"dtype": ":float64"}), ("vector_norm", X, {"axis": 1}), ("vector_norm", X, {"ord": 1}),
    ("matmul", X, X[0].T.copy()), ("vecdot", X, X), ("tensordot", X, X, {"axes": 0}), ("matrix_transpose", X),
]  # fmt: skip
FFT: list[tuple[Any, ...]] = [
    ("fft", Z), ("fft", Z, {"n": 3, "axis": 0, "norm": "ortho"}), ("ifft", Z), ("fftn", Z),
    ("ifftn", Z, {"s": (2, 2), "axes": (0, 1)}),
    ("rfft", X), ("irfft", Z), ("rfftn", X, {"norm": "forward"}), ("irfftn", Z), ("hfft", Z), ("ihfft", X),
    ("fftfreq", 5, {"d": 0.5, "dtype": ":float64"}), ("rfftfreq", 6, {"dtype": ":float64"}), ("fftshift", X),
    ("ifftshift", X, {"axes": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    "space, call", [("", c) for c in CALLS] + [("linalg", c) for c in LINALG] + [("fft", c) for c in FFT]
)
def test_calls(space: str, call: tuple[Any, ...]) -> None:
    name, *args = call
    kwargs = args.pop() if isinstance(args[-1], dict) else {}
    floats = name in ("arange", "full") and not kwargs  # the default dtype is a library's own choice
    agree(
        name,
        *args,
        space=space,
        loose=100 if space else 4,
        **({"dtype": ":float64"} if floats else {}),
        **kwargs,
    )


def test_every_function_is_called() -> None:
    """But for those whose results are not arrays to compare, or not one alone: they have tests of their own."""
    own = {"asarray", "empty_like", "finfo", "iinfo", "from_dlpack", "result_type", "eigh", "qr", "svd"}
    called = {*UNARY, *BINARY, *AXES, *(c[0] for c in (*CALLS, *LINALG, *FFT)), *own, "__array_namespace_info__"}
    assert {name for _, name in NAMES} - called == set()


def test_factors_multiply_to_what_was_factored():
    x = ts.tensor(SPD)
    values, vectors = xp.linalg.eigh(x)
    np.testing.assert_allclose((vectors * values @ vectors.T).numpy(), SPD, atol=1e-12)
    q, r = xp.linalg.qr(x)
    np.testing.assert_allclose((q @ r).numpy(), SPD, atol=1e-12)
    found = xp.linalg.svd(ts.tensor(X), full_matrices=False)
    np.testing.assert_allclose((found.U * found.S[:, None, :] @ found.Vh).numpy(), X, atol=1e-4)


def test_copies_are_made_when_they_are_asked_for():
    x = np.ones(3, np.float32)
    t = xp.asarray(x, copy=False)
    assert np.shares_memory(t.numpy(), x)
    assert not np.shares_memory(xp.asarray(x, copy=True).numpy(), x)
    assert not np.shares_memory(xp.asarray(t, copy=True).numpy(), x)
    for refused in ([1.0, 2.0], 3):
        with pytest.raises(LaunchError, match="would have to copy"):
            xp.asarray(refused, copy=False)
    with pytest.raises(LaunchError, match="would have to copy"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="would have to copy"):
        xp.reshape(ts.tensor(X).T, (24,), copy=False)
    assert np.shares_memory(xp.reshape(t, (3, 1), copy=False).numpy(), x)
    assert xp.astype(t, xp.float32, copy=False) is t
    assert xp.astype(t, xp.float32) is not t
    assert np.shares_memory(xp.from_dlpack(x).numpy(), x)
    assert not np.shares_memory(xp.from_dlpack(x, copy=True).numpy(), x)


def test_dtypes_and_their_limits():
    for name in FLOATS:
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
        assert ours.smallest_normal == theirs.smallest_normal
    for name in INTEGERS:
        ours, theirs = xp.iinfo(getattr(xp, name)), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)
    assert xp.finfo(xp.complex128).dtype == xp.float64
    assert xp.finfo(ts.bf16).bits == 16
    assert xp.result_type(xp.int8, xp.uint8) == xp.int16
    assert xp.result_type(xp.asarray([1], dtype=xp.int8), 3) == xp.int8
    assert xp.result_type(xp.float32, 1j) == xp.complex64
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == xp.float32
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    for wrong in (lambda: xp.finfo(xp.int8), lambda: xp.isdtype(xp.int8, "odd"), lambda: xp.result_type()):
        with pytest.raises(LaunchError, match="TS501"):
            wrong()


def test_what_lapack_refuses_is_said_with_a_code():
    for refused in (
        lambda: xp.linalg.inv(xp.zeros((2, 2))),
        lambda: xp.linalg.cholesky(xp.ones((2, 3))),
        lambda: xp.linalg.solve(xp.eye(2), xp.ones((3,))),
        lambda: xp.fft.fft(xp.ones((2,)), norm="odd"),
        lambda: xp.sort("a"),
        lambda: xp.nonzero(xp.asarray(1)),
    ):
        with pytest.raises(LaunchError, match="TS501"):
            refused()


@ts.function
def sorted_inside(x):
    return xp.sort(x)


@ts.function
def inverted_inside(x):
    return ts.array_api.linalg.inv(x)


@pytest.mark.parametrize("f", [sorted_inside, inverted_inside], ids=lambda f: f.name)
def test_host_functions_are_refused_inside_functions(f: Any) -> None:
    with pytest.raises(ts.CompileError) as caught:
        f(np.eye(3, dtype=np.float32))
    assert caught.value.code in ("TS103", "TS104", "TS105")


def test_operators_of_the_namespace_are_those_of_the_top_level():
    assert xp.sin is ts.sin
    assert xp.tensordot is xp.linalg.tensordot is ts.tensordot
    assert xp.bitwise_left_shift is ts.bitwise_left_shift
