"""Timings on disk: one SQLite file, shared by all processes of a user.

Every write is a transaction: a process that is killed loses only what it had not stored. Timings cost time, so nothing
here deletes them: a file that cannot be read is moved aside under a name that says so, and a new one is begun. Each
row has a hash over its content; a row whose hash does not fit is ignored and written again. Before a process first
writes to a file, SQLite checks all of it, because a file that is damaged in one place should get no
new rows in another.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
import time
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tessera
from tessera import knobs
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.machines import HOST
from tessera.compiler.targets.base import Target
from tessera.files import is_plain
from tessera.immutable import immutable
from tessera.runtime.arrays import devices
from tessera.runtime.autotune.trials import Trial
from tessera.runtime.call.arguments import Bound
from tessera.runtime.code.cache import digest
from tessera.runtime.code.keys import compiler_state
from tessera.runtime.code.reads import Read, is_function, python_function
from tessera.runtime.code.sqlite import demand, index_files, is_moved
from tessera.runtime.code.watch import Watch
from tessera.runtime.locks import Locked

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

APPLICATION = 0x54534D54
"""SQLite's application_id of these files: "TSMT" """
VERSION = 2
"""SQLite's user_version; a file of a newer one is left alone, an older one is moved aside"""
_SCHEMA = (
    "CREATE TABLE signatures (key TEXT PRIMARY KEY, name TEXT, target TEXT, device TEXT, fields TEXT, created REAL)",
    "CREATE TABLE trials (key TEXT, config TEXT, status TEXT, samples TEXT, detail TEXT, flops INTEGER, bytes INTEGER,"
    " recorded REAL, proof TEXT, PRIMARY KEY (key, config)) WITHOUT ROWID",
    "CREATE TABLE bits (key TEXT, config TEXT, reference TEXT, same INTEGER, proof TEXT,"
    " PRIMARY KEY (key, config, reference))"
    " WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
T = TypeVar("T")


class TuningWarning(UserWarning):
    """TS608: the file of timings cannot be used as it is."""


class _Foreign(Exception):
    """A file that is not a store of timings."""


class TuningStore(Locked):
    """The timings in `path`. No method raises because of the disk: what cannot be kept is known to this process alone.

    Safe for threads, processes, and across `fork`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self.problem: str | None = None
        """why the file is not used, if it is not"""
        self._examined = False

    # What tuning asks

    def trials(self, key: Key) -> dict[str, Trial]:
        """What is known under a key, by the text of the configuration."""
        columns = "config, status, samples, detail, flops, bytes, proof"
        rows = self._do(lambda db: db.execute(f"SELECT {columns} FROM trials WHERE key = ?", (key.digest,)).fetchall())
        whole = [row for *row, proof in rows if proof == _proof(key, *row)]
        return {row[0]: trial for row in whole if (trial := _trial(*row)) is not None}

    def bits(self, key: Key) -> dict[tuple[str, str], bool]:
        """Whether two configurations, (one, reference), give the same bits, where that has been looked at."""
        query = "SELECT config, reference, same, proof FROM bits WHERE key = ?"
        rows = self._do(lambda db: db.execute(query, (key.digest,)).fetchall())
        return {(row[0], row[1]): bool(row[2]) for *row, proof in rows if proof == _proof(key, *row)}

    def machines(self, name: str, target: str) -> list[str]:
        """The devices that a program of this name has been tuned on for a target, the latest first."""
        query = "SELECT device FROM signatures WHERE name = ? AND target = ? GROUP BY device ORDER BY MAX(created) DESC"
        return [row[0] for row in self._do(lambda db: db.execute(query, (name, target)).fetchall())]

    def state(self, name: str, target: str) -> str:
        """Another text whenever a program of this name has other timings for a target."""
        query = ("SELECT COUNT(*), MAX(recorded) FROM trials JOIN signatures USING (key) "
                 "WHERE name = ? AND target = ?")  # fmt: skip
        count, latest = self._do(lambda db: db.execute(query, (name, target)).fetchone())
        return f"{count} timings" + (f", the latest at {latest}" if count else "")

    def add(self, key: Key, trials: Mapping[str, Trial], bits: Mapping[tuple[str, str], bool] | None = None) -> None:
        """Stores what is new, all or nothing. What another process stored meanwhile stays: the first one counts."""
        if not trials and not bits:
            return
        now = time.time()
        fields = json.dumps(key.fields)
        found = [(text, t.status, json.dumps(t.samples), t.detail, t.flops, t.bytes) for text, t in trials.items()]
        rows = [(key.digest, *row, now, _proof(key, *row)) for row in found]
        compared = [(*pair, int(same)) for pair, same in (bits or {}).items()]
        pairs = [(key.digest, *row, _proof(key, *row)) for row in compared]

        def write(db: sqlite3.Connection) -> None:
            about = (key.digest, key.name, key.target, key.device, fields, now)
            with _transaction(db):
                self._examine(db)
                db.execute("INSERT OR IGNORE INTO signatures VALUES (?, ?, ?, ?, ?, ?)", about)
                for table, columns, new in (("trials", "config", rows), ("bits", "config, reference", pairs)):
                    _insert(db, table, columns, new)

        self._do(write)

    @contextlib.contextmanager
    def measuring(self, waiting: Callable[[], None]) -> Generator[None]:
        """Held while configurations are timed: processes that timed at once would only time each other.

        `waiting()` is called where another process has it. The system releases it when a process dies.
        """
        with self.lock, _file_lock(self.path.with_name(f"{self.path.name}.measuring"), waiting):
            yield

    # What `tessera cache` asks

    def stats(self) -> dict[str, Any]:
        """path, signatures, trials, bytes, problem."""
        count = "SELECT (SELECT COUNT(*) FROM signatures), (SELECT COUNT(*) FROM trials)"
        exists = self.path.exists() or self._connection is not None
        signatures, trials = self._do(lambda db: db.execute(count).fetchone()) if exists else (0, 0)
        size = sum(f.stat().st_size for f in index_files(self.path) if f.exists())
        return {"path": str(self.path), "signatures": signatures, "trials": trials, "bytes": size,
                "problem": self.problem}  # fmt: skip

    def clear(self) -> int:
        """Forgets all timings; returns how many there were."""

        def remove(db: sqlite3.Connection) -> int:
            with _transaction(db):
                count = db.execute("DELETE FROM trials").rowcount
                db.execute("DELETE FROM bits")
                db.execute("DELETE FROM signatures")
            return count

        return self._do(remove) if self.path.exists() or self._connection is not None else 0

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self.lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._examined = None, False

    # The file

    def _examine(self, db: sqlite3.Connection) -> None:
        """Before the first row is written by this connection. Raises sqlite3.DatabaseError where the file is damaged
        anywhere: SQLite would find it later, and what is written now would go aside with the rest."""
        if not self._examined:
            demand(db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
            self._examined = True

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Runs an action. A damaged file is moved aside and the action repeated on a new one; where there is no disk to
        write to, it runs in memory."""
        with self.lock:
            for _ in range(3):
                try:
                    if self._connection is None:
                        self._connection = self._open()
                    return action(self._connection)
                except sqlite3.OperationalError as error:
                    if is_moved(error):
                        self.close()
                    elif getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR:  # a table or column is missing
                        self._replace(str(error))
                    else:  # read-only, full, locked for long ...
                        self._in_memory(f"{error}; set TESSERA_CACHE_DIR to a folder that can be written")
                except (sqlite3.DatabaseError, TypeError, ValueError) as error:
                    self._replace(str(error))
            self._in_memory("it is damaged again and again")
            assert self._connection is not None
            return action(self._connection)

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _file_lock(self.path.with_name(f"{self.path.name}.opening")):
                try:
                    return self._connect()
                except (_Foreign, sqlite3.DatabaseError) as error:
                    if isinstance(error, sqlite3.OperationalError):
                        raise
                    self._move_aside(str(error))
                    return self._connect()
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from None

    def _connect(self) -> sqlite3.Connection:
        if any(os.path.lexists(file) and not is_plain(file) for file in index_files(self.path)):
            raise _Foreign("it is not a plain file")
        db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
        db.text_factory = _text
        try:
            application, version = (db.execute(f"PRAGMA {name}").fetchone()[0]
                                    for name in ("application_id", "user_version"))  # fmt: skip
            tables = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            if tables and application != APPLICATION:
                raise _Foreign("it is an SQLite file of another program")
            if tables and version > VERSION:
                raise sqlite3.OperationalError("a newer Tessera wrote it; update this one, or name another file")
            if tables and version < VERSION:
                raise _Foreign("an older Tessera wrote it")
            # No WAL: its shared-memory file ends the process when it is cut off while mapped. A file may say of itself
            # that it has one.
            db.execute("PRAGMA journal_mode = DELETE")
            if not tables:
                with _transaction(db):
                    # Where the system has no locks of files, another process may have made them meanwhile.
                    for statement in () if db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] else _SCHEMA:
                        db.execute(statement)
            return db
        except BaseException:
            db.close()
            raise

    def _replace(self, why: str) -> None:
        """A file that turned out to be damaged while it was in use."""
        self.close()
        with contextlib.suppress(OSError), _file_lock(self.path.with_name(f"{self.path.name}.opening")):
            self._move_aside(why)

    def _move_aside(self, why: str) -> None:
        aside = next(p for n in itertools.count(1) if not (p := Path(f"{self.path}.damaged-{n}")).exists())
        for file in index_files(self.path):
            with contextlib.suppress(FileNotFoundError):
                os.replace(file, f"{aside}{file.name.removeprefix(self.path.name)}")
        text = f"TS608: {self.path} holds no timings that can be read ({why}). It was moved to {aside.name}"
        warnings.warn(f"{text}, and a new file is begun: tuned programs are timed again", TuningWarning, stacklevel=2)

    def _in_memory(self, why: str) -> None:
        self.close()
        self.problem = why
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for statement in _SCHEMA:
            self._connection.execute(statement)
        text = f"TS608: timings cannot be kept in {self.path}: {why}"
        warnings.warn(f"{text}. They are forgotten when this process ends", TuningWarning, stacklevel=2)

    def after_fork(self) -> None:
        """In the child: closing the parent's connection, even by forgetting it, would drop the parent's file locks."""
        super().after_fork()
        _abandoned.append(self._connection)
        self._connection, self._examined = None, False


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:  # Ctrl-C too: the file must not stay locked
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _file_lock(path: Path, waiting: Callable[[], None] = lambda: None) -> Generator[None]:
    """Holds a lock between processes; no lock where the folder cannot be written or the system has none."""
    try:  # a pipe that stands there is not waited for
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        file = open(os.open(path, flags, 0o600), "rb") if fcntl is not None and _free(path) else None  # noqa: SIM115
    except OSError:
        file = None
    if file is None or fcntl is None:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _free(path: Path) -> bool:
    """Whether a lock file is, or may be made, there."""
    return not os.path.lexists(path) or is_plain(path)  # in this order: another one may make it meanwhile


def _text(data: bytes) -> str:
    """Text as it stands in the file; damaged text does not prove itself."""
    return data.decode("utf-8", "replace")


def _proof(key: Key, *row: Any) -> str:
    """What ties the columns of a row to its key."""
    return digest(key.digest, *map(repr, row))


def _insert(db: sqlite3.Connection, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Stores rows; those that are there stay, unless they no longer prove themselves. Raises sqlite3.DatabaseError
    where the file does not give what was written."""
    names = ["key", *columns.split(", ")]
    where = " AND ".join(f"{name} = ?" for name in names)
    for row in rows:
        place = row[: len(names)]
        for again in (False, True):
            known = db.execute(f"SELECT * FROM {table} WHERE {where}", place).fetchone()
            if known is not None:
                told = known[1:-2] if table == "trials" else known[1:-1]  # all but the key, the time and the proof
                if known[-1] == digest(known[0], *map(repr, told)):
                    break
            demand(not again)
            db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _trial(config: str, status: Any, samples: str, detail: str, flops: int | None, bytes: int | None) -> Trial | None:
    """A row; None if its content cannot be parsed."""
    try:
        values = json.loads(samples)
        assert isinstance(values, list) and all(isinstance(v, float) and v > 0 for v in values)  # type: ignore[misc]
        return Trial(json.loads(config), status, tuple(values), detail, flops, bytes)  # type: ignore[arg-type]
    except (ValueError, AssertionError, TypeError):
        return None


_opened: dict[str, TuningStore] = {}
_abandoned: list[object] = []


def store_at(path: str | None = None) -> TuningStore:
    """The store in a file; by default the one in TESSERA_CACHE_DIR."""
    where = str(Path(path).expanduser() if path else knobs.cache_dir() / "tuning.sqlite")
    return _opened.get(where) or _opened.setdefault(where, TuningStore(where))


# What a timing is valid for: the program, the machine, the signature, and the version of the compiler.
#
# Shapes are part of it as they are, not in classes of similar ones: code is compiled for exact shapes, and
# whether a configuration keeps the bits of the first one depends on them (one block that covers a loop, or
# two). Where a function stands in its file is not part of it, so that editing the file above it loses no timing.


@immutable
class Key:
    """`fields` as people read them; they are kept beside the timings."""

    name: str
    target: str
    device: str
    arguments: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        return digest(*(part for pair in self.fields for part in pair))


def key_of(fn: Any, bound: Bound, target: Target, watch: Watch, device: str | None = None) -> Key:
    """The key of a call's timings; `device` where they are of another machine than this one."""
    device = device or device_text(target, bound.device)
    arguments = arguments_of(bound)
    options = {k: v for k, v in fn.options.items() if k not in ("config", "autotune")}
    fields = [
        ("program", f"{fn.kind} {content(python_function(fn))}"),
        ("options", fingerprint(options)),
        ("target", target.name),
        ("compiler", f"tessera {tessera.__version__} {compiler_state()} {target.fingerprint}"),
        ("device", device),
        *(("argument", text) for text in arguments),
        *(("reads", f"{read.path}: {_read(read)}") for read in watch.reads),
    ]
    return Key(fn.name, target.name, device, arguments, tuple(fields))


def arguments_of(bound: Bound) -> tuple[str, ...]:
    """`x [300] f32` ..."""
    return tuple(_argument(name.removeprefix("argument "), value) for name, value in bound.fields.items())


def device_text(target: Target, device: str) -> str:
    """The machine as far as timings depend on it: model, features and threads of a CPU; a GPU's model and size."""
    if devices.home(target) == HOST:
        cpu = devices.devices()[0]
        threads = devices.get_num_threads()
        return f"{cpu.description}, {threads} thread{'s' * (threads != 1)} ({' '.join(cpu.features)})"
    index = int(device.partition(":")[2] or 0)
    found = devices.cuda_devices()[index]
    return f"{found.description}, {found.units} multiprocessors"


def content(function: types.FunctionType) -> str:
    """A hash of what a function does: its code, constants, defaults and annotations, but not where it stands."""
    notes = sorted((k, str(v)) for k, v in function.__annotations__.items())
    parts = repr((*_code(function.__code__), fingerprint(function.__defaults__), fingerprint(function.__kwdefaults__)))
    return f"{function.__name__}#{digest(parts, repr(notes))[:16]}"


def _code(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
    yield code.co_names
    yield code.co_varnames
    for i, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield tuple(_code(constant))
        elif i or not isinstance(constant, str):  # the first one is the docstring
            yield repr(constant)


def _read(read: Read) -> str:
    if isinstance(read.value, types.CodeType):
        return digest(repr(tuple(_code(read.value))))[:16]
    if is_function(read.value):
        options = getattr(read.value, "options", None)
        return f"{content(python_function(read.value))} {fingerprint(options) if options else ''}"
    return read.content()


def _argument(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name} [{', '.join(map(str, value['shape']))}] {value['dtype']}"  # type: ignore[index]
    return f"{name} {value}"
