"""The files of the disk cache: each holds one blob, and is named by its SHA-256, which is checked when it is read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from pathlib import Path

from tessera.files import read_plain


class Blobs:
    """The blobs in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha: str) -> Path:
        """Where a blob lies, if it is there."""
        return self.folder / sha[:2] / sha

    def read(self, sha: str, size: int) -> bytes | None:
        """A blob of `size` bytes; None where its file is absent, cannot be read, or holds something else."""
        try:
            data = read_plain(self.path(sha), size)
        except OSError:  # a sector that cannot be read, a file of another user
            return None
        return data if data is not None and hashlib.sha256(data).hexdigest() == sha else None

    def write(self, data: bytes) -> Path:
        """The data under a name of its own. Nothing waits for the disk: what a power failure tears proves nothing."""
        make_folder(self.folder)
        path = self.folder / f"new-{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def place(self, temporary: Path, sha: str) -> None:
        """Gives what `write` wrote its name."""
        path = self.path(sha)
        make_folder(path.parent)
        if path.is_dir():
            remove(path)
        os.replace(temporary, path)


def is_older(path: Path, moment: float) -> bool:
    """Whether it is not a folder and was last written before `moment`."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        return not stat.S_ISDIR(about.st_mode) and about.st_mtime < moment
    return False


def make_folder(path: Path) -> None:
    """Makes the folder; whatever else has its name is removed."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if path.is_symlink() or not path.is_dir():
            remove(path)
            path.mkdir(exist_ok=True, mode=0o700)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
