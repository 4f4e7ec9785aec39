"""Parts of tiles on NumPy arrays and what of them exists: for each element, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

Known = tuple[Any, Any]
"""values, and which of them exist"""


def places(items: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[list[Any], list[bool]]:
    """For each axis the places that an index means, -1 where a computed one does not exist; and which axes go."""
    found: list[Any] = []
    drop: list[bool] = []
    for item, n in zip((*items, *[slice(None)] * (len(shape) - len(items))), shape, strict=True):
        drop.append(False)
        if isinstance(item, slice) and item.step is None and None not in (item.start, item.stop):
            found.append(np.arange(int(item.start), int(item.stop)))
        elif isinstance(item, slice):
            found.append(np.arange(*item.indices(n)))
        elif isinstance(item, tuple):
            values, exists = item
            found.append(np.where(exists, values, -1))
        else:
            found.append(np.array([int(item)]))
            drop[-1] = True
    return found, drop


def part(x: Known, items: tuple[Any, ...]) -> Known:
    values, exists = x
    found, drop = places(items, values.shape)
    inside = [(at >= 0) & (at < n) for at, n in zip(found, values.shape, strict=True)]
    there = np.ix_(*(np.where(i, at, 0) for i, at in zip(inside, found, strict=True)))
    all_inside = np.ones((), bool)
    for i in inside:
        all_inside = np.logical_and.outer(all_inside, i)
    gone = tuple(a for a, d in enumerate(drop) if d)
    out = np.where(all_inside, values[there], 0), exists[there] & all_inside
    return np.squeeze(out[0], gone), np.squeeze(out[1], gone)


def put(x: Known, items: tuple[Any, ...], new: Known) -> Known:
    values, exists = x[0].copy(), x[1].copy()
    found, drop = places(items, values.shape)
    shape = tuple(len(at) for at, d in zip(found, drop, strict=True) if not d)
    full = [len(at) for at in found]
    given, there = (np.broadcast_to(v, shape).reshape(full) for v in new)
    for at in np.ndindex(*full):
        place = tuple(int(p[i]) for p, i in zip(found, at, strict=True))
        if all(0 <= i < n for i, n in zip(place, values.shape, strict=True)):
            values[place], exists[place] = given[at], there[at]
    return values, exists


def added(x: Known, index: Known, new: Known) -> Known:
    """`scatter_add` of a vector."""
    values = np.where(x[1], x[0], 0)
    for place, known, value, there in zip(*index, *(np.broadcast_to(v, index[0].shape) for v in new), strict=True):
        if known and 0 <= place < len(values):
            values[place] += value if there else 0
    return values, x[1]


def positions(values: Any, exists: Any, descending: bool) -> Known:
    """Where the elements of a vector that exist are, in order."""
    at = np.nonzero(exists)[0]
    order = sorted(at, key=lambda i: -values[i] if descending else values[i])
    out = np.zeros(len(values), np.int64)
    out[: len(order)] = order
    return out, np.arange(len(values)) < len(order)
