"""Files that another process, an older version or a failing disk may have left in any state."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

RECORD_BYTES = 1 << 26
"""the most that a record may take"""
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR)


def read_plain(path: str | os.PathLike[str], limit: int) -> bytes | None:
    """The content of a plain file; None where there is none, where something else stands there (a folder, a link, a
    pipe, a device), and where it holds more than `limit` bytes. Never waits. Raises OSError where the disk fails."""
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > limit:
            return None
        data = file.read(limit + 1)  # it may be growing
        return data if len(data) <= limit else None


def is_plain(path: str | os.PathLike[str]) -> bool:
    """Whether a plain file stands there, or a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def distrusted(folder: str | os.PathLike[str]) -> str | None:
    """Why what lies in a folder may come from somebody else: its owner or its mode; None where it does not."""
    if not hasattr(os, "geteuid"):
        return None
    about = os.stat(folder)
    if about.st_uid not in (os.geteuid(), 0):
        return f"{folder} belongs to another user (uid {about.st_uid})"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{folder} can be written by others (mode {stat.S_IMODE(about.st_mode):o}); chmod go-w it"
    return None


def write_record(path: Path, what: str, value: Any) -> bool:
    """Keeps a value that JSON can hold, as one whole file that says `what` it is; False where it cannot be written."""
    text = json.dumps({"what": what, "hash": _hash(what, value), "value": value}, indent=1)
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        return False
    return True


def read_record(path: Path, what: str) -> Any:
    """What `write_record` kept under these words; None where there is nothing, something else, or damage."""
    try:
        data = read_plain(path, RECORD_BYTES)
        record: Any = json.loads(data) if data is not None else {}
        whole = record["what"] == what and record["hash"] == _hash(what, record["value"])
        return record["value"] if whole else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _hash(what: str, value: Any) -> str:
    return hashlib.sha256(json.dumps([what, value], sort_keys=True).encode()).hexdigest()
