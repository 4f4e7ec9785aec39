"""The disk cache: compiled artefacts by content, shared by all processes of a user.

An entry is a few named blobs under one key. The index is an SQLite file; a blob is a file named by its SHA-256, written
to a temporary name, synced and renamed, and checked when read: a crash at any moment leaves an entry whole or absent.
Each row of the index proves what it says by a hash over it, its key included; what does not prove itself is a miss, and
goes. Nothing is ever unpickled: blobs are JSON text and machine code.

Two kinds of keys lead to an entry. The *content* key hashes the lowered program, the target's fingerprint, Tessera's
version and the policy. The *front* key hashes what is known before any compiling (source text, argument types,
everything that is read from outside) and leads to the content key, so that a hit needs no front end.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tessera import knobs
from tessera.files import distrusted, is_plain
from tessera.immutable import immutable
from tessera.runtime.code.blobs import Blobs, is_older, remove
from tessera.runtime.code.sqlite import SCHEMA, as_text, demand, index_files, is_busy, is_damaged, is_moved, is_new
from tessera.runtime.locks import Locked
from tessera.signals import raised_by_handler

FORMAT = 2
"""Version of the layout on disk; another one lives in a folder of its own."""
_WAIT = 10.0
"""seconds that an access waits for other processes to let go of the index"""
_PAUSE = 60.0
"""seconds for which nothing is written after such a wait was in vain"""
_DAY = 86_400.0
_TOUCH_AFTER = 600.0  # seconds: a hit rewrites the time of use at most this often, so that hits only read


class CacheWarning(UserWarning):
    """TS606: the disk cache cannot be used; compilation goes on without it."""


@immutable
class Stats:
    """`bytes` and `limit` in bytes; hits and misses count this process."""

    directory: str
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int
    problem: str | None
    """why the cache is out of use, if it is"""

    def __str__(self) -> str:
        state = (
            f"out of use: {self.problem}" if self.problem else f"{self.entries} entries, {self.bytes / 2**20:.1f} MiB"
        )
        return f"{self.directory}: {state} (limit {self.limit / 2**20:.0f} MiB); {self.hits} hits, {self.misses} misses"


def digest(*parts: str | bytes) -> str:
    """A key: the SHA-256 of the parts, each preceded by its length so that no two lists of parts collide."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


Method = TypeVar("Method", bound=Callable[..., Any])


def _on_disk(doing: str, default: Any) -> Callable[[Method], Method]:
    """A method that gives `default` where the disk fails: the cache is a convenience, never a reason to stop."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: DiskCache, *args: Any, **kwargs: Any) -> Any:
            if self.problem is not None and (doing == "write" or self._connection is None):
                return default
            if doing == "write" and time.monotonic() < self._busy_until:
                return default
            with self.lock:
                for again in (2, 1, 0):
                    try:
                        return method(self, *args, **kwargs)
                    except (sqlite3.Error, OSError, TypeError, ValueError, OverflowError) as error:
                        if raised_by_handler(error):
                            raise
                        if again and is_moved(error):
                            self.close()
                        elif is_busy(error):
                            self._busy_until = time.monotonic() + _PAUSE
                            return default
                        elif not (again and is_damaged(error) and self._begin_afresh()):
                            self._fail(doing, error)
                            return default

        return call  # type: ignore[return-value]

    return wrap


class DiskCache(Locked):
    """A cache in `directory` of at most `limit` bytes; the entries used longest ago go first.

    No method raises because of the disk: what cannot be read is a miss, what cannot be written is not kept, and the
    first failure is reported once as `CacheWarning` (TS606). While others hold the index for long, nothing is
    kept. Safe for threads, processes, and across `fork`.
    """

    waits_to_fork = True  # SQLite's own locks, which a thread holds with ours, would stay held in the child

    def __init__(self, directory: str | os.PathLike[str], limit: int = 2 << 30) -> None:
        super().__init__()
        self.directory = Path(directory) / f"v{FORMAT}"
        self._blobs = Blobs(self.directory / "blobs")
        self.limit = limit
        self.hits = self.misses = 0
        self.problem: str | None = None
        self._connection: sqlite3.Connection | None = None
        self._writable = True
        self._distrusted = self._swept = False
        self._busy_until = 0.0

    # What the runtime asks

    @_on_disk("read", None)
    def get(self, key: str) -> dict[str, bytes] | None:
        """The blobs of an entry, checked against their checksums; None when it is absent or damaged."""
        blobs = self._whole(key)
        if blobs is not None:
            self._touch(key)
            self.hits += 1
            return blobs
        if self._writable and self._db().execute("SELECT 1 FROM blobs WHERE key = ? LIMIT 1", (key,)).fetchone():
            self._discard([key])
        self.misses += 1
        return None

    def _whole(self, key: str) -> dict[str, bytes] | None:
        """The blobs of an entry, None where it is absent or a file is damaged. An index that does not prove what it
        says raises sqlite3.DatabaseError."""
        rows = self._rows(key)
        blobs = {name: data for name, sha, size in rows if (data := self._blobs.read(sha, size)) is not None}
        return blobs if rows and len(blobs) == len(rows) else None

    def _rows(self, key: str) -> list[tuple[str, str, int]]:
        """(name, SHA-256, size) of an entry's blobs; read by one statement, for other processes write meanwhile."""
        query = ("SELECT name, sha, blobs.size, proof, entries.size FROM blobs JOIN entries USING (key) WHERE key = ? "
                 "ORDER BY name")  # fmt: skip
        found = self._db().execute(query, (key,)).fetchall()
        rows = [row[:3] for row in found]
        demand(not found or {row[3:] for row in found} == {(_proof(key, rows), sum(row[2] for row in rows))})
        return rows

    @_on_disk("write", None)
    def put(self, key: str, blobs: Mapping[str, bytes], label: str = "") -> None:
        """Stores an entry, replacing one of the same key. `label` is for people (`tessera cache`)."""
        db = self._db()
        waiting = {name: (hashlib.sha256(data).hexdigest(), self._blobs.write(data)) for name, data in blobs.items()}
        now, size = time.time(), sum(map(len, blobs.values()))
        with self._transaction(db, [temporary for _, temporary in waiting.values()]):
            for sha, temporary in waiting.values():
                self._blobs.place(temporary, sha)
            db.execute("DELETE FROM blobs WHERE key = ?", (key,))
            rows = sorted((name, sha, len(blobs[name])) for name, (sha, _) in waiting.items())
            about = (key, label, now, now, size, _proof(key, rows))
            db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", about)
            db.executemany("INSERT INTO blobs VALUES (?, ?, ?, ?)", [(key, *row) for row in rows])
            demand(self._rows(key) == rows)
        self._evict()

    @_on_disk("read", None)
    def lookup(self, front: str) -> tuple[str, str] | None:
        """(content key, note) behind a front key; None where there is none that proves to be its own."""
        db = self._db()
        row = db.execute("SELECT key, note, proof FROM fronts WHERE front = ?", (front,)).fetchone()
        demand(row is None or row[2] == digest(front, row[0], row[1]))
        return row and row[:2]

    @_on_disk("write", None)
    def link(self, front: str, key: str, note: str = "") -> None:
        """Records that a front key leads to `key`; `note` is text that comes along."""
        row = (front, key, note, digest(front, key, note))
        db = self._db()
        with self._transaction(db):
            db.execute("INSERT OR REPLACE INTO fronts VALUES (?, ?, ?, ?)", row)
            demand(db.execute("SELECT * FROM fronts WHERE front = ?", (front,)).fetchone() == row)

    # What `tessera cache` asks

    def stats(self) -> Stats:
        """How full it is, and how it did in this process."""
        entries, size = self._fill()
        return Stats(str(self.directory), entries, size, self.limit, self.hits, self.misses, self.problem)

    @_on_disk("read", (0, 0))
    def _fill(self) -> tuple[int, int]:
        return self._db().execute("SELECT COUNT(*), COALESCE(SUM(size), 0) FROM entries").fetchone()

    @_on_disk("read", [])
    def entries(self) -> list[tuple[str, str, int, float]]:
        """(key, label, bytes, time of last use) of every entry, the latest first."""
        return self._db().execute("SELECT key, label, size, used FROM entries ORDER BY used DESC").fetchall()

    @_on_disk("write", 0)
    def _clear(self) -> int:
        entries, _ = self._fill()
        self._discard(self._keys())
        self._db().execute("DELETE FROM fronts")  # of no entry, too
        self._sweep()
        return entries

    def clear(self) -> int:
        """Removes everything; returns the number of entries removed. A cache that was out of use is tried again."""
        self.close()
        self.problem = None
        return self._clear()

    @_on_disk("write", [])
    def verify(self) -> list[str]:
        """Reads every entry; discards damaged ones and leftovers of crashed writers. Returns the discarded keys."""
        demand(self._db().execute("PRAGMA integrity_check").fetchone() == ("ok",))
        bad = sorted(key for key in self._keys() if self._whole(key) is None)
        self._discard(bad)
        self._sweep()
        return bad

    def close(self) -> None:
        """Closes the index; the next use opens it again."""
        with self.lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    # The index

    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def after_fork(self) -> None:
        """In the child: closing the parent's connection, even by forgetting it, would drop the parent's file locks."""
        super().after_fork()
        _abandoned.append(self._connection)
        self._connection = None

    def _open(self) -> sqlite3.Connection:
        path = self.directory / "index.sqlite"
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (why := distrusted(self.directory)) is not None:  # it holds machine code, which will be run
                self._distrusted = True
                raise OSError(why)
            return self._open_index(path)
        except (OSError, sqlite3.OperationalError) as error:
            if is_busy(error) or self._distrusted or raised_by_handler(error) or not is_plain(path):
                raise
            self._fail("write", error)  # a cache that was filled by another user or baked into an image still serves
            self._writable = False
            db = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)
            db.text_factory = as_text
            return db

    def _open_index(self, path: Path) -> sqlite3.Connection:
        for file in index_files(path):
            if os.path.lexists(file) and (os.path.islink(file) or not is_plain(file)):
                remove(file)
        for last in (False, False, False, True):
            db = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
            db.text_factory = as_text
            try:
                db.execute("PRAGMA synchronous = OFF")  # what a power failure damages does not prove itself
                db.executescript(f"BEGIN IMMEDIATE; {SCHEMA}; COMMIT;" if is_new(db) else "")
                return db
            except sqlite3.DatabaseError as error:
                db.close()
                if last or not (is_busy(error) or is_damaged(error)):
                    raise
                if is_busy(error):  # several processes create the index at once
                    time.sleep(0.05)
                    continue
                for leftover in index_files(path):  # damaged; it is only a cache, so start afresh
                    remove(leftover)
        raise AssertionError("unreachable")

    def _begin_afresh(self) -> bool:
        """Puts an empty index in place of one that turned out to be damaged; False where it cannot be written."""
        self.close()
        if self.problem is not None or not self._writable:
            return False
        try:
            for file in index_files(self.directory / "index.sqlite"):
                remove(file)
        except OSError:
            return False
        return True

    def _fail(self, doing: str, error: Exception) -> None:
        if self.problem is None:
            self.problem = f"cannot {doing} {self.directory}: {error}"
            text = f"TS606: the disk cache is not used: {self.problem}. Compiled kernels are kept in memory only; "
            warnings.warn(text + "set TESSERA_CACHE_DIR to a folder that can be written", CacheWarning, stacklevel=4)

    @contextlib.contextmanager
    def _transaction(self, db: sqlite3.Connection, temporary: Sequence[Path] = ()) -> Iterator[None]:
        """Commits, or on any exception (Ctrl-C too: the index must not stay locked) undoes and removes `temporary`."""
        try:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            for path in temporary:
                path.unlink(missing_ok=True)
            raise

    def _touch(self, key: str) -> None:
        now = time.time()
        used = self._db().execute("SELECT used FROM entries WHERE key = ?", (key,)).fetchone()
        if self._writable and used and not now - _TOUCH_AFTER <= used[0] <= now + _TOUCH_AFTER:
            self._db().execute("UPDATE entries SET used = ? WHERE key = ?", (now, key))

    def _discard(self, keys: Sequence[str]) -> None:
        db = self._db()
        with self._transaction(db):
            for key in keys:
                shas = [sha for (sha,) in db.execute("SELECT DISTINCT sha FROM blobs WHERE key = ?", (key,))]
                for table in ("blobs", "entries", "fronts"):
                    db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
                for sha in shas:
                    if not db.execute("SELECT 1 FROM blobs WHERE sha = ? LIMIT 1", (sha,)).fetchone():
                        with contextlib.suppress(OSError):  # what cannot go is a file that no entry names
                            remove(self._blobs.path(sha))
            # What stays has a name that is not in the index: damaged text, or none.
            demand(not set(keys).intersection(self._keys()))

    def _keys(self) -> list[str]:
        return [key for (key,) in self._db().execute("SELECT key FROM entries UNION SELECT key FROM blobs")]

    def _evict(self) -> None:
        db = self._db()
        if not self._swept:
            self._swept = True
            self._sweep_today()
        (size,) = db.execute("SELECT COALESCE(SUM(size), 0) FROM entries").fetchone()
        if size <= self.limit:
            return
        doomed: list[str] = []
        for key, entry_size in db.execute("SELECT key, size FROM entries ORDER BY used, created").fetchall():
            if size <= self.limit * 0.9:  # some room, so that not every put evicts
                break
            doomed.append(key)
            size -= entry_size
        self._discard(doomed)

    # Leftovers

    def _sweep_today(self) -> None:
        """Sweeps where no process has within a day: where there are thousands of entries, it takes some 0.3 s."""
        mark, now = self.directory / "swept", time.time()
        with contextlib.suppress(FileNotFoundError):
            if abs(now - mark.lstat().st_mtime) < _DAY:
                return
        mark.touch(mode=0o600)
        self._sweep()

    def _sweep(self) -> None:
        """Removes files that no entry names and that no writer can be busy with: they are older than a minute.

        What killed writers leave takes room that `limit` does not count."""
        old = time.time() - 60
        files = (Path(folder, name) for folder, _, names in os.walk(self._blobs.folder) for name in names)
        found = [path for path in self._unnamed(files) if is_older(path, old)]
        if found:
            with self._transaction(self._db()):  # nothing is placed meanwhile
                for path in self._unnamed(found):
                    if is_older(path, old):
                        with contextlib.suppress(OSError):
                            path.unlink()

    def _unnamed(self, found: Iterable[Path]) -> list[Path]:
        known = {sha for (sha,) in self._db().execute("SELECT DISTINCT sha FROM blobs")}
        return [path for path in found if path.name not in known]


def _proof(key: str, rows: Sequence[tuple[str, str, int]]) -> str:
    """What ties the blobs of an entry to its key: (name, SHA-256, size) of each, by name."""
    return digest(key, *(str(part) for row in rows for part in row))


_opened: dict[tuple[str, int], DiskCache] = {}
_abandoned: list[object] = []


def default() -> DiskCache | None:
    """The cache in TESSERA_CACHE_DIR (by default the user's cache folder); None where TESSERA_CACHE_SIZE is 0."""
    limit = knobs.cache_limit()
    if limit <= 0:
        return None
    directory = str(knobs.cache_dir())
    found = _opened.get((directory, limit))
    return found or _opened.setdefault((directory, limit), DiskCache(directory, limit))  # of two threads, one is first
