"""Strides that views give to lowering, and the windows of joins: held against what NumPy's arrays say."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.graph.operator import REGISTRY
from tessera.compiler.graph.operators.shaping import contiguous
from tessera.language import dims

B, S, D, H = map(dims.symbol, "BSDH")


def at(memory: np.ndarray, found: Any) -> np.ndarray:
    """The array that shape, strides and offset mean."""
    shape, strides, offset = found
    size = memory.itemsize
    return np.lib.stride_tricks.as_strided(
        memory[offset:] if memory.size else memory, shape, [s * size for s in strides]
    )


def strided(name: str, shape_: Any, strides: Any, offset: Any = 0, **attrs: Any) -> Any:
    view = REGISTRY[name].strided
    assert view is not None
    return view(shape_, strides, offset, **attrs)


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(sizes, st.data())
def test_chains_of_views_address_what_numpy_sees(shape: tuple[int, ...], data: st.DataObject) -> None:
    memory = np.arange(int(np.prod(shape)))
    x, state = memory.reshape(shape), (shape, contiguous(shape), 0)
    for _ in range(data.draw(st.integers(1, 4))):
        name = data.draw(st.sampled_from(["transpose", "flip", "slice", "broadcast_to", "reshape"]))
        attrs: dict[str, Any] = {}
        if name == "transpose":
            attrs = {"perm": tuple(data.draw(st.permutations(range(x.ndim))))}
        elif name == "flip":
            attrs = {"axis": tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1)))))}
        elif name == "slice":
            starts = tuple(data.draw(st.integers(0, n - 1)) for n in x.shape)
            stops = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(starts, x.shape, strict=True))
            attrs = {"start": starts, "stop": stops, "step": tuple(data.draw(st.integers(1, 3)) for _ in starts)}
        elif name == "broadcast_to":
            attrs = {"shape": (2, *(3 if n == 1 else n for n in x.shape))}
        else:
            attrs = {
                "shape": data.draw(
                    st.sampled_from([(x.size,), (1, x.size), (*x.shape, 1), (x.shape[0], x.size // x.shape[0])])
                )
            }
        x = REGISTRY[name].reference(x, **attrs)
        found = strided(name, *state, **attrs)
        if found is None:  # only a reshape may need a copy, and only where NumPy does
            assert name == "reshape"
            memory = np.ascontiguousarray(x).ravel()
            found = (x.shape, contiguous(x.shape), 0)
        state = found
        np.testing.assert_array_equal(at(memory, state), x)
        assert state[0] == x.shape


def test_symbolic_reshapes_split_and_merge_without_a_copy() -> None:
    shape = (B, S, H * D)
    split = strided("reshape", shape, contiguous(shape), shape=(B, S, H, D))
    assert split == ((B, S, H, D), contiguous((B, S, H, D)), 0)
    heads = strided("transpose", *split, perm=(0, 2, 1, 3))
    assert heads[0] == (B, H, S, D) and heads[1] == (S * H * D, D, H * D, 1)
    assert strided("reshape", *heads, shape=(B, H, S, 1, D)) is not None
    assert strided("reshape", *heads, shape=(B, H * S, D)) is None
    flat = strided("reshape", (B, S), (S, 1), shape=(B * S,))
    assert flat == ((B * S,), (1,), 0)
    opaque = strided("reshape", (B, D), (D, 1), shape=(B, H, D // H))
    assert opaque is not None and opaque[1] == (D, D // H, 1)


def test_windows_of_joins() -> None:
    concat, pad = REGISTRY["concat"].windows, REGISTRY["pad"].windows
    assert concat is not None and pad is not None
    assert concat([(B, S), (B, D), (B, 2)], axis=1) == [(0, 0), (0, S), (0, D + S)]
    assert pad([(B, S)], pad_width=((1, 2), (D, 0)), mode="constant", value=0) == [(1, D)]
