"""What compilers made of the tests' texts, kept on this machine from one run of the tests to the next.

Two fifths of the tests' processor time are three compilers' work (docs/decisions/0123-the-tests-time-by-cause.md), and
most texts are those of the run before. A text is found by the hash of all that its result depends on: compiler,
options, headers. What is kept has a hash of its own, and is made again where that does not fit. `--compile-anew` keeps
nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs

from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cuda import host_library, nvrtc, nvrtc_library
from tessera.files import read_plain

VARIABLE = "KEPT_COMPILATIONS"
"""names the folder to the processes that a run of the tests starts; where it is not set, nothing is kept"""
MOST_BYTES = 3 << 30
MOST_DAYS = 30
LARGEST = 1 << 28
"""of one text, in bytes"""

counts = {"found": 0, "compiled": 0}


def default_folder() -> Path:
    return Path(platformdirs.user_cache_dir("tessera-tests"))


def install(folder: Path) -> None:
    """Has this process look in `folder` before it starts a compiler, and keep there what it compiles."""
    os.environ[VARIABLE] = str(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    jit._object = _kept_objects(folder / "llvm", jit._object)
    nvrtc_library.NvrtcLibrary.compile = _kept_cubins(folder / "nvrtc", nvrtc_library.NvrtcLibrary.compile)
    host_library.find = _noting_use(host_library.find)


def emulator(folder: Path) -> Path:
    """Where the emulator keeps its libraries; it finds them by a hash of the same kind itself."""
    path = folder / "emulator"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _kept_objects(folder: Path, compile_text: Callable[..., bytes]) -> Callable[..., bytes]:
    # the file says with which options and passes LLVM is called
    by = _hash(metadata.version("llvmlite").encode(), Path(jit.__file__).read_bytes())

    @functools.wraps(compile_text)
    def kept(text: str, isa: Any, name: str) -> bytes:
        key = _hash(by.encode(), repr(isa).encode(), name.encode(), text.encode())
        return _take(folder, key, lambda: (compile_text(text, isa, name),))[0]

    return kept


def _kept_cubins(folder: Path, compile_text: Callable[..., Any]) -> Callable[..., Any]:
    versions = [f"{d.name} {d.version}" for d in metadata.distributions() if "nvrtc" in (d.name or "").lower()]
    by = _hash(*(v.encode() for v in sorted(versions)))

    def kept(self: Any, source: str, file: str, options: Sequence[str]) -> tuple[bytes, bytes, str]:
        headers = nvrtc.headers_fingerprint()
        given = [headers if o.startswith("--include-path=") else o for o in options]
        key = _hash(by.encode(), repr((self.version, file, given)).encode(), source.encode())

        def make() -> tuple[bytes, ...]:
            cubin, ptx, log = compile_text(self, source, file, options)
            return cubin, ptx, log.encode()

        cubin, ptx, log = _take(folder, key, make)
        return cubin, ptx, log.decode()

    return kept


def _noting_use(find: Callable[[Any], Path | None]) -> Callable[[Any], Path | None]:
    def noting(text: Any) -> Path | None:
        library = find(text)
        if library is not None:
            for folder in {host_library._folder() / text.key, library.parent}:
                _note_use(folder)
        return library

    return noting


def _note_use(path: Path) -> None:
    with contextlib.suppress(OSError):  # another run may be deleting it
        os.utime(path)


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _take(folder: Path, key: str, make: Callable[[], tuple[bytes, ...]]) -> tuple[bytes, ...]:
    path = folder / key[:2] / key[2:]
    found = _read(path)
    counts["compiled" if found is None else "found"] += 1
    if found is not None:
        _note_use(path)
        return found
    made = make()
    head = json.dumps({"sizes": [len(p) for p in made], "hash": _hash(*made)}).encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    part.write_bytes(head + b"".join(made))
    os.replace(part, path)
    return made


def _read(path: Path) -> tuple[bytes, ...] | None:
    data = read_plain(path, LARGEST)
    if data is None:
        return None
    try:
        head, _, rest = data.partition(b"\n")
        about = json.loads(head)
        parts: list[bytes] = []
        for size in about["sizes"]:
            parts.append(rest[:size])
            rest = rest[size:]
        return tuple(parts) if about["hash"] == _hash(*parts) else None
    except (ValueError, LookupError, TypeError):
        return None


def forget(folder: Path, bytes_at_most: int = MOST_BYTES, days: float = MOST_DAYS) -> None:
    """Deletes what no run has used for that long, and the oldest where there is more than that. Other runs may write
    and delete there at the same time."""
    entries: list[tuple[float, int, Path]] = []
    for path in (p for pattern in ("llvm/*/*", "nvrtc/*/*", "emulator/*") for p in folder.glob(pattern)):
        with contextlib.suppress(OSError):
            inside = [p.stat().st_size for p in path.iterdir()] if path.is_dir() else [path.stat().st_size]
            entries.append((path.stat().st_mtime, sum(inside), path))
    left, oldest = bytes_at_most, time.time() - days * 86400
    for used, size, path in sorted(entries, reverse=True):
        left -= size
        if left < 0 or used < oldest:
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
