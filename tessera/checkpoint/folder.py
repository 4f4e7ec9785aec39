"""A checkpoint's folder: shards of arrays, an index for each tree, and the manifest, which is written last.

The manifest names the files with their sizes and SHA-256 sums and holds all that is not an array. It takes the place
of an earlier one in one step, when all else is on the disk: it is the mark that a checkpoint is whole. Files have their
sums in their names, so that no file of the earlier checkpoint is touched before that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tessera.checkpoint import safetensors
from tessera.errors import Diagnostic, LaunchError

VERSION = 2
MANIFEST = "manifest.json"
_INDEX = ".safetensors.index.json"
_PARTIAL = ".safetensors.partial"
_SHARD = re.compile(r".+-\d{5}-of-\d{5}-[0-9a-f]{16}\.safetensors")


def write(
    folder: Path, trees: Mapping[str, safetensors.Arrays], values: Mapping[str, Any], keep: int, most: int
) -> None:
    """Writes a checkpoint and removes those that are older than the last `keep`.

    With `keep` above 1 each lies in a folder of its own below this one, `step-<step>`. Raises LaunchError TS365 where
    the disk refuses.
    """
    try:
        before = _whole(folder)
        number = max((_manifest(p)["number"] for p in before), default=0) + 1
        place = folder
        if keep > 1:
            step = values.get("step", number)
            place = folder / f"step-{int(trees['step']['']) if 'step' in trees else step}"
        place.mkdir(parents=True, exist_ok=True)
        manifest: dict[str, Any] = {"version": VERSION, "number": number, "values": dict(values), "arrays": {}}
        for name, arrays in trees.items():
            manifest["arrays"][name] = _tree(place, name, arrays, most)
        trees_before = _manifest(place)["arrays"] if place in before else {}
        _replace(place, _text(MANIFEST, manifest))
        _clean(place, manifest["arrays"], trees_before)
        older = [p for p in before if p != place]
        for old in older[: max(len(older) - (keep - 1), 0)]:
            _remove(old)
        for ended in {p for p in folder.glob("step-*") if p.is_dir() and not (p / MANIFEST).exists()}:
            _empty(ended, manifest["arrays"])
    except OSError as e:
        raise LaunchError(Diagnostic("TS365", f"{folder} keeps its earlier checkpoint: {e}")) from None


def newest(folder: Path) -> Path | None:
    """The folder of the last whole checkpoint in `folder` or right below it; None where there is none."""
    return next(reversed(_whole(folder)), None)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The values and the arrays of the last checkpoint. Raises LaunchError TS363 where it is missing or damaged."""
    place = newest(folder)
    if place is None:
        raise LaunchError(Diagnostic("TS363", f"there is no complete checkpoint in {folder}"))
    manifest = _manifest(place)
    trees: dict[str, dict[str, np.ndarray]] = {}
    for name, entries in manifest["arrays"].items():
        trees[name] = {n: a for entry in entries for n, a in safetensors.read(_checked(place, entry)).items()}
    return manifest["values"], trees


def of_others(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a safetensors file, or of all such files of a folder, that no checkpoint of ours names; None where
    there is no such file."""
    files = [path] if path.is_file() else [] if newest(path) else sorted(path.glob("*.safetensors"))
    files = [file for file in files if file == path or not _SHARD.fullmatch(file.name)]
    return {n: a for file in files for n, a in safetensors.read(file.read_bytes()).items()} if files else None


def _tree(place: Path, name: str, arrays: safetensors.Arrays, most: int) -> list[dict[str, Any]]:
    """Writes the files of one tree and their index; what the manifest says of them."""
    cut = safetensors.shards(arrays, most)
    entries = [_shard(place, f"{name}-{i:05}-of-{len(cut):05}", shard) for i, shard in enumerate(cut, 1)]
    files = {n: entry["file"] for entry, shard in zip(entries, cut, strict=True) for n in shard}
    index = {"metadata": {"total_size": sum(a.nbytes for a in arrays.values())}, "weight_map": files}
    _replace(place, _text(f"{name}{_INDEX}", index))
    return entries


def _shard(place: Path, stem: str, arrays: safetensors.Arrays) -> dict[str, Any]:
    entry: dict[str, Any] = {}

    def content(file: BinaryIO) -> str:
        size, digest = safetensors.write(file, arrays)
        entry.update(file=f"{stem}-{digest[:16]}.safetensors", bytes=size, sha256=digest)
        return entry["file"]

    _replace(place, content)
    return entry


def _whole(folder: Path) -> list[Path]:
    """The folders with a manifest, the oldest first."""
    found = [p.parent for p in (folder / MANIFEST, *folder.glob(f"step-*/{MANIFEST}")) if p.is_file()]
    return sorted(found, key=lambda p: _manifest(p)["number"]) if len(found) > 1 else found


def _clean(place: Path, kept: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Removes shards that are not `kept`, those of a process that was ended too, and indexes of trees that were there
    `before`. Files of others stay."""
    files = {entry["file"] for entries in kept.values() for entry in entries}
    for path in place.iterdir():
        if path.name.endswith(_PARTIAL) or (_SHARD.fullmatch(path.name) and path.name not in files):
            path.unlink()
    for name in before.keys() - kept.keys():
        (place / f"{name}{_INDEX}").unlink(missing_ok=True)


def _remove(place: Path) -> None:
    """A checkpoint, beginning with its mark."""
    before = _manifest(place)["arrays"]
    (place / MANIFEST).unlink()
    _empty(place, before)


def _empty(place: Path, before: Mapping[str, Any]) -> None:
    """What is not a checkpoint any more, or did not become one."""
    _clean(place, {}, before)
    if place.name.startswith("step-") and not any(place.iterdir()):
        place.rmdir()


def _text(name: str, value: Any) -> Callable[[BinaryIO], str]:
    """The content of a file of this name that holds a JSON value."""

    def content(file: BinaryIO) -> str:
        file.write(json.dumps(value, indent=1).encode())
        return name

    return content


def _replace(place: Path, content: Callable[[BinaryIO], str]) -> None:
    """Puts a file in its place in one step, when its bytes are on the disk. `content` writes it and says its name."""
    partial = place / f".{os.getpid()}{_PARTIAL}"
    with partial.open("wb") as file:
        name = content(file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(place / name)
    if hasattr(os, "O_DIRECTORY"):  # the name is on the disk when its folder is
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _manifest(place: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((place / MANIFEST).read_bytes())
        if manifest["version"] != VERSION:
            raise ValueError(f"its version is {manifest['version']}; this Tessera reads version {VERSION}")
        listed = [entry for entries in manifest["arrays"].values() for entry in entries]
        if not isinstance(manifest["number"], int) or not all(
            isinstance(e, dict) for e in (manifest["values"], *listed)
        ):
            raise ValueError("it is not a list of files")
        return manifest
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise LaunchError(Diagnostic("TS363", f"{place / MANIFEST} cannot be read: {e}")) from None


def _checked(place: Path, entry: Mapping[str, Any]) -> bytes:
    """The bytes of a file, which are those that were written."""
    file = place / Path(str(entry.get("file"))).name
    try:
        data = file.read_bytes()
    except OSError as e:
        raise LaunchError(Diagnostic("TS363", f"{file} cannot be read: {e}")) from None
    if len(data) != entry.get("bytes") or hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise LaunchError(Diagnostic("TS363", f"{file} is damaged: its bytes are not those that were written"))
    return data
