"""The index of the disk cache as an SQLite file: its tables, the files around it, and what its errors mean."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries
    (key TEXT PRIMARY KEY, label TEXT, created REAL, used REAL, size INTEGER, proof TEXT);
CREATE TABLE IF NOT EXISTS blobs (key TEXT, name TEXT, sha TEXT, size INTEGER, PRIMARY KEY (key, name));
CREATE TABLE IF NOT EXISTS fronts (front TEXT PRIMARY KEY, key TEXT, note TEXT, proof TEXT);
CREATE INDEX IF NOT EXISTS blobs_by_sha ON blobs (sha);
CREATE INDEX IF NOT EXISTS fronts_by_key ON fronts (key);
"""


def is_new(db: sqlite3.Connection) -> bool:
    """Whether an index has nothing in it yet. Raises sqlite3.DatabaseError where it has other tables than SCHEMA."""
    tables = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript(SCHEMA)
        wanted, found = model.execute(tables).fetchall(), db.execute(tables).fetchall()
    if found and found != wanted:
        raise sqlite3.DatabaseError("it has other tables")
    return not found


def index_files(index: Path) -> list[Path]:
    """An SQLite file and what may lie beside it, in the order in which they go: a journal that stayed longer would be
    played into the next file."""
    return [index.with_name(index.name + suffix) for suffix in ("-journal", "-wal", "-shm", "")]


def as_text(data: bytes) -> str:
    """Text as it stands in the index; damaged text does not prove itself."""
    return data.decode("utf-8", "replace")


def demand(holds: bool) -> None:
    """A file that gives other things than were written is damaged, also where SQLite does not see it. Raises
    sqlite3.DatabaseError."""
    if not holds:
        raise sqlite3.DatabaseError("it does not give what was written")


def is_damaged(error: Exception) -> bool:
    """Whether an error means that the index is not what was written, rather than that the disk fails."""
    if isinstance(error, sqlite3.OperationalError):  # a table or column is missing
        return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR
    return not isinstance(error, OSError)


def is_busy(error: Exception) -> bool:
    """Whether another process held the index for all the time that was waited."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_moved(error: Exception) -> bool:
    """Whether another process has put a new file in the place of the one that is open; it is to be opened again."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED
