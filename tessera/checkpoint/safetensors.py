"""The safetensors format: the length of a header (8 bytes, little endian), the header (JSON), the bytes of the arrays.

A tree that is larger than a shard is cut into several files, and `<name>.safetensors.index.json` says which array
stands in which: the form that Hugging Face's libraries write and read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from tessera.errors import Diagnostic, LaunchError

DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
"""NumPy's names of dtypes, and those of the format"""
Arrays = Mapping[str, np.ndarray]


def demand(arrays: Arrays) -> None:
    """Raises LaunchError TS364 for a dtype that the format does not have."""
    for name, array in arrays.items():
        if array.dtype.name not in DTYPES:
            raise LaunchError(
                Diagnostic("TS364", f"{name} is of {array.dtype}, which the safetensors format does not have")
            )


def shards(arrays: Arrays, most: int) -> list[dict[str, np.ndarray]]:
    """The arrays in order, cut where more than `most` bytes would stand in one file. A larger array stands alone."""
    cut: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for name, array in arrays.items():
        if cut[-1] and size + array.nbytes > most:
            cut.append({})
            size = 0
        cut[-1][name] = array
        size += array.nbytes
    return cut


def written(arrays: Arrays) -> Iterator[Any]:
    """The bytes of a file of these arrays, piece by piece; in C order, little endian."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # without it, Hugging Face's loaders refuse a file
    start = 0
    for name, array in arrays.items():
        offsets = [start, start + array.nbytes]
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at multiples of 8
    yield len(text).to_bytes(8, "little")
    yield text
    for array in arrays.values():
        ordered = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        yield ordered.reshape(-1).view(np.uint8).data


def write(file: BinaryIO, arrays: Arrays) -> tuple[int, str]:
    """Writes them; the number of bytes and their SHA-256 sum."""
    digest, size = hashlib.sha256(), 0
    for piece in written(arrays):
        digest.update(piece)
        size += file.write(piece)
    return size, digest.hexdigest()


def read(data: bytes) -> dict[str, np.ndarray]:
    """The arrays in the bytes of a file, by name. Raises LaunchError TS363 where they are no such file."""
    names = {there: name for name, there in DTYPES.items()}
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        body, found = memoryview(data)[8 + length :], {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            dtype, shape = _dtype(names[entry["dtype"]]), tuple(entry["shape"])
            if not 0 <= start <= end <= len(body) or end - start != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"the bytes of {name} are not as many as its shape says")
            found[name] = np.frombuffer(body[start:end], dtype).reshape(shape).copy()
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise LaunchError(Diagnostic("TS363", f"this is not a safetensors file: {e}")) from None


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # slow: 10 ms, and only for the dtypes that NumPy has not

        return np.dtype(getattr(ml_dtypes, name))
