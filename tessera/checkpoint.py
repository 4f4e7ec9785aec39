"""`ts.checkpoint`: training state on the disk, whole or not at all.

    ts.checkpoint.save("run/last", model=model, optimizer=state, step=100)
    saved = ts.checkpoint.load("run/last", model=model, optimizer=state)
    model, state, step = saved["model"], saved["optimizer"], saved["step"]

A checkpoint is a folder: a file of arrays in the safetensors format for each tree, and `manifest.json`, which names
them, their sizes and SHA-256 sums, and holds all that is no array. The manifest takes the place of an earlier one in
one step, when all else is on the disk: it is the mark that a checkpoint is whole. Whenever a process is ended, the
folder holds the earlier checkpoint or the new one. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import tree
from tessera.nn.module import check_state

VERSION = 1
MANIFEST = "manifest.json"
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
"""NumPy's names of dtypes, and those of the format"""


def save(folder: str | os.PathLike[str], **parts: Any) -> None:
    """Writes trees of arrays (modules, optimizers' states), and values that JSON holds, under the names of `parts`.

    Raises LaunchError TS364 for a dtype that the format does not have, and for a value that is neither.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, Any] = {"version": VERSION, "arrays": {}, "values": {}}
    for name, part in parts.items():
        arrays = _arrays(name, part)
        if arrays:
            data = to_safetensors(arrays)
            digest = hashlib.sha256(data).hexdigest()
            file = f"{name}-{digest[:16]}.safetensors"
            _write(place / file, data)
            manifest["arrays"][name] = {"file": file, "bytes": len(data), "sha256": digest}
        else:
            manifest["values"][name] = part
    try:
        text = json.dumps(manifest, indent=1)
    except (TypeError, ValueError) as e:
        raise LaunchError(Diagnostic("TS364", f"what is saved is a tree of arrays or a JSON value: {e}")) from None
    _write(place / MANIFEST, text.encode())
    kept = {entry["file"] for entry in manifest["arrays"].values()}
    for left in place.glob("*.safetensors"):
        if left.name not in kept:
            left.unlink()


def load(folder: str | os.PathLike[str], **like: Any) -> dict[str, Any]:
    """All parts of a checkpoint by name. A part for which `like` gives a tree comes back as such a tree; another as a
    dict of its arrays by path.

    Raises LaunchError TS363 where there is no whole checkpoint, or a file is not what was written; TS361 where a tree
    has other names, shapes or dtypes than the one in `like`.
    """
    place = Path(folder)
    manifest = _manifest(place)
    missing = [name for name in like if name not in manifest["arrays"]]
    if missing:
        raise LaunchError(Diagnostic("TS363", f"{place} holds no arrays of {', '.join(missing)}"))
    found: dict[str, Any] = dict(manifest["values"])
    for name, entry in manifest["arrays"].items():
        arrays = of_safetensors(_read(place, entry))
        if name not in like:
            found[name] = {path: ts.asarray(array) for path, array in arrays.items()}
            continue
        wanted = _arrays(name, like[name])
        check_state(wanted, arrays, name)
        taken = {p: ts.asarray(a) if isinstance(wanted[p], ts.Tensor) else a for p, a in arrays.items()}
        found[name] = tree.replaced(like[name], taken)
    return found


def _arrays(name: str, part: Any) -> dict[str, Any]:
    """The arrays of a part by path."""
    arrays: dict[str, Any] = {}
    for leaf in tree.leaves(part):
        if leaf.path in arrays:
            raise LaunchError(
                Diagnostic("TS364", f"{name} has two arrays at {leaf.path!r}: a name in a dict holds a dot")
            )
        arrays[leaf.path] = leaf.array
    return arrays


# The safetensors format: the length of a header (8 bytes, little endian), the header (JSON), the bytes of the arrays


def to_safetensors(arrays: dict[str, Any]) -> bytes:
    """Arrays by name as the bytes of a file; in C order, little endian."""
    header: dict[str, Any] = {}
    chunks: list[bytes] = []
    start = 0
    for name, array in arrays.items():
        values = ts.asarray(array).numpy()
        if values.dtype.name not in _DTYPES:
            raise LaunchError(Diagnostic("TS364", f"{name} is of {values.dtype}, which the safetensors format has not"))
        data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        offsets = [start, start + len(data)]
        header[name] = {"dtype": _DTYPES[values.dtype.name], "shape": list(values.shape), "data_offsets": offsets}
        chunks.append(data)
        start += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at multiples of 8
    return b"".join([len(text).to_bytes(8, "little"), text, *chunks])


def of_safetensors(data: bytes) -> dict[str, Any]:
    """The arrays in the bytes of a file, by name. Raises LaunchError TS363 where they are no such file."""
    names = {there: name for name, there in _DTYPES.items()}
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
        raise LaunchError(Diagnostic("TS363", f"this is no safetensors file: {e}")) from None


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # slow: 10 ms, and only for the dtypes that NumPy has not

        return np.dtype(getattr(ml_dtypes, name))


# Files


def _write(path: Path, data: bytes) -> None:
    """Puts a file in its place in one step, when its bytes are on the disk."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    if hasattr(os, "O_DIRECTORY"):  # the name is on the disk when its folder is
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _manifest(place: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((place / MANIFEST).read_bytes())
        if manifest["version"] != VERSION:
            raise ValueError(f"version {manifest['version']} is not {VERSION}, which is known here")
        if not all(isinstance(e, dict) for e in (manifest["values"], manifest["arrays"], *manifest["arrays"].values())):
            raise ValueError("it is no list of files")
        return manifest
    except FileNotFoundError:
        raise LaunchError(Diagnostic("TS363", f"there is no whole checkpoint in {place}")) from None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise LaunchError(Diagnostic("TS363", f"{place / MANIFEST} cannot be read: {e}")) from None


def _read(place: Path, entry: dict[str, Any]) -> bytes:
    file = place / Path(str(entry.get("file"))).name
    try:
        data = file.read_bytes()
    except OSError as e:
        raise LaunchError(Diagnostic("TS363", f"{file} cannot be read: {e}")) from None
    if len(data) != entry.get("bytes") or hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise LaunchError(Diagnostic("TS363", f"{file} is damaged: its bytes are not those that were written"))
    return data
