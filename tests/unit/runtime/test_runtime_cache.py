"""The disk cache: content that survives, damage that does not matter, limits that hold, processes that share it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.runtime.code import cache as cache_module
from tessera.runtime.code.cache import CacheWarning, DiskCache, digest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path)


def blob_files(cache: DiskCache) -> list[Path]:
    return [p for p in (cache.directory / "blobs").rglob("*") if p.is_file()]


def test_an_entry_comes_back_in_another_object(cache, tmp_path):
    cache.put("key", {"code.o": b"\x00\x01", "header.json": b"{}"}, "saxpy")
    assert DiskCache(tmp_path).get("key") == {"code.o": b"\x00\x01", "header.json": b"{}"}
    assert [(key, label, size) for key, label, size, _ in DiskCache(tmp_path).entries()] == [("key", "saxpy", 4)]


def test_absent_is_none_and_counted(cache):
    assert cache.get("nothing") is None
    cache.put("key", {"a": b"1"})
    cache.get("key")
    assert (cache.stats().hits, cache.stats().misses, cache.stats().entries) == (1, 1, 1)


def test_replacing_an_entry(cache):
    cache.put("key", {"a": b"old", "b": b"gone"})
    cache.put("key", {"a": b"new"})
    assert cache.get("key") == {"a": b"new"}
    assert cache.stats().bytes == 3


def test_equal_blobs_are_stored_once_and_outlive_one_owner(cache):
    cache.put("one", {"a": b"same"})
    cache.put("two", {"a": b"same"})
    assert len(blob_files(cache)) == 1
    cache.put("one", {"a": b"other"})
    assert cache.get("two") == {"a": b"same"}


@pytest.mark.parametrize("damage", [b"", b"tampered", None])
def test_a_damaged_blob_is_a_miss_and_is_discarded(cache, damage):
    cache.put("key", {"code.o": b"good code", "header.json": b"{}"})
    (victim,) = [p for p in blob_files(cache) if p.read_bytes() == b"good code"]
    if damage is None:
        victim.unlink()
    else:
        victim.write_bytes(damage)
    assert cache.get("key") is None
    assert cache.stats().entries == 0
    cache.put("key", {"code.o": b"good code"})
    assert cache.get("key") == {"code.o": b"good code"}


def odd_places(tmp_path: Path) -> list[Callable[[Path], object]]:
    """What may stand where a file should: each puts it there."""
    full = tmp_path / "somewhere else"
    full.write_bytes(b"x" * 9)
    return [os.mkfifo, os.mkdir, lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to(p), lambda p: p.touch(),
            lambda p: p.symlink_to(full), lambda p: (p.mkdir(), (p / "inside").touch())]  # fmt: skip


@pytest.mark.parametrize("kind", range(7))
@pytest.mark.parametrize("place", ["blob", "folder", "blobs", "index.sqlite", "index.sqlite-journal"])
def test_what_is_no_plain_file_is_a_miss_and_makes_way(cache, tmp_path, kind, place):
    cache.put("key", {"code.o": b"good code"})
    cache.link("front", "key", "note")
    cache.close()
    (blob,) = blob_files(cache)
    places = {"blob": blob, "folder": blob.parent, "blobs": blob.parent.parent}
    victim = places.get(place, cache.directory / place)
    if victim.is_dir():
        shutil.rmtree(victim)
    victim.unlink(missing_ok=True)
    odd_places(tmp_path)[kind](victim)
    again = DiskCache(tmp_path)
    assert again.get("key") in (None, {"code.o": b"good code"})
    again.put("key", {"code.o": b"good code"})
    again.link("front", "key", "note")
    assert again.get("key") == {"code.o": b"good code"} and again.lookup("front") == ("key", "note")
    assert again.problem is None


def changed(cache: DiskCache, statement: str) -> None:
    cache.close()
    db = sqlite3.connect(cache.directory / "index.sqlite")
    db.executescript(statement)
    db.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fronts SET note = '{\"plan'",
        "UPDATE fronts SET note = x'ff00ff'",
        "UPDATE fronts SET key = CASE key WHEN 'a' THEN 'b' ELSE 'a' END",
        "UPDATE fronts SET front = front || '?'; UPDATE fronts SET front = iif(front = 'fa?', 'fb', 'fa')",
        "UPDATE blobs SET key = key || '?'; UPDATE blobs SET key = CASE key WHEN 'a?' THEN 'b' ELSE 'a' END",
        "UPDATE blobs SET sha = (SELECT sha FROM blobs WHERE key = 'a')",
        "UPDATE blobs SET name = 'other'",
        "UPDATE blobs SET size = 'many'",
        "UPDATE blobs SET size = -1",
        "UPDATE entries SET key = key || '?'; UPDATE entries SET key = CASE key WHEN 'a?' THEN 'b' ELSE 'a' END",
        "UPDATE entries SET used = 'long ago', size = 'much'",
        "UPDATE entries SET used = x'00', size = 1e300",
        "DELETE FROM entries",
        "DROP TABLE fronts",
        "DROP TABLE entries; CREATE TABLE entries (key TEXT)",
        "DROP INDEX blobs_by_sha",
    ],
)
def test_an_index_that_says_other_things_is_not_believed(cache, tmp_path, statement):
    def fill(c: DiskCache) -> None:
        for key in ("a", "b"):
            c.put(key, {"code.o": f"code of {key}".encode()})
            c.link(f"f{key}", key, f"note of {key}")

    fill(cache)
    changed(cache, statement)
    again = DiskCache(tmp_path)
    for key in ("a", "b"):
        assert again.lookup(f"f{key}") in (None, (key, f"note of {key}"))
        assert again.get(key) in (None, {"code.o": f"code of {key}".encode()})
    again.entries(), again.stats(), again.verify()
    fill(again)
    for key in ("a", "b"):
        assert again.lookup(f"f{key}") == (key, f"note of {key}")
        assert again.get(key) == {"code.o": f"code of {key}".encode()}
    assert again.problem is None and again.verify() == []


def test_what_killed_writers_left_goes_when_a_process_writes_a_day_later(tmp_path):
    first = DiskCache(tmp_path, limit=1000)
    first.put("key", {"a": b"1"})
    first.close()
    for name in ("new-1-abandoned", "ab/" + "ab" * 32):
        path = first.directory / "blobs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 5000)
        os.utime(path, (time.time() - 3600,) * 2)
    second = DiskCache(tmp_path, limit=1000)
    second.put("other", {"a": b"2"})
    assert len(blob_files(second)) == 4, "one look a day is enough"
    os.utime(first.directory / "swept", (time.time() - 90_000,) * 2)
    second = DiskCache(tmp_path, limit=1000)
    second.put("other", {"a": b"2"})
    assert sum(p.stat().st_size for p in blob_files(second)) == second.stats().bytes == 2


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner here")
@pytest.mark.parametrize("who", ["others may write", "another owner"])
def test_a_folder_of_others_is_not_believed(tmp_path, monkeypatch, who):
    first = DiskCache(tmp_path)
    first.put("key", {"a": b"1"})
    first.close()
    if who == "others may write":
        first.directory.chmod(0o777)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        os.chown(first.directory, 54321, -1) if os.getuid() == 0 else None
    second = DiskCache(tmp_path)
    with pytest.warns(CacheWarning, match=r"TS606.*(can be written by others|belongs to another user)") as caught:
        assert second.get("key") is None
        second.put("key", {"a": b"1"})
    assert len(caught) == 1


def test_verify_finds_damage_that_nobody_read(cache):
    cache.put("good", {"a": b"1"})
    cache.put("bad", {"a": b"2"})
    (victim,) = [p for p in blob_files(cache) if p.read_bytes() == b"2"]
    victim.write_bytes(b"3")
    assert cache.verify() == ["bad"]
    assert cache.get("good") == {"a": b"1"}
    assert cache.verify() == []


def test_verify_removes_what_a_killed_writer_left(cache):
    cache.put("key", {"a": b"1"})
    leftover = cache.directory / "blobs" / "new-abandoned"
    leftover.write_bytes(b"half")
    os.utime(leftover, (time.time() - 3600,) * 2)
    cache.verify()
    assert not leftover.exists()
    assert cache.get("key") == {"a": b"1"}


@pytest.mark.parametrize("value", ["NULL", "CAST(x'6bff' AS TEXT)", "x'ff'", "-1"])
@pytest.mark.parametrize("table", ["entries", "blobs"])
@pytest.mark.parametrize("clean", ["verify", "clear"])
def test_rows_that_no_key_finds_go_when_it_is_cleaned(cache, table, value, clean):
    for key in ("key", "other"):
        cache.put(key, {"a": key.encode()})
    changed(cache, f"UPDATE {table} SET key = {value} WHERE key = 'key'")
    getattr(cache, clean)()
    assert cache.verify() == [] and cache.problem is None
    assert [key for key, *_ in cache.entries()] in ([], ["other"])
    assert len(blob_files(cache)) >= cache.stats().entries
    cache.put("key", {"a": b"key"})
    assert cache.get("key") == {"a": b"key"}


@pytest.mark.parametrize("size", ["-1e300", "1e300", "''", "NULL"])
def test_a_size_that_is_not_the_blobs_is_noticed(cache, size):
    cache.put("key", {"a": b"12345"})
    changed(cache, f"UPDATE entries SET size = {size}")
    assert cache.get("key") is None
    cache.put("key", {"a": b"12345"})
    assert cache.get("key") == {"a": b"12345"} and cache.stats().bytes == 5


@pytest.mark.filterwarnings("error")
def test_an_index_that_another_process_has_replaced_is_opened_again(cache, tmp_path):
    cache.put("key", {"a": b"1"})
    os.unlink(cache.directory / "index.sqlite")
    other = DiskCache(tmp_path)
    other.put("other", {"a": b"2"})
    cache.put("key", {"a": b"1"})
    assert cache.problem is None and other.get("key") == {"a": b"1"} and cache.get("other") == {"a": b"2"}


def test_a_damaged_index_is_replaced(tmp_path):
    first = DiskCache(tmp_path)
    first.put("key", {"a": b"1"})
    first.close()
    (first.directory / "index.sqlite").write_bytes(b"this is no database at all, " * 64)
    for suffix in ("-wal", "-shm"):
        (first.directory / f"index.sqlite{suffix}").unlink(missing_ok=True)
    second = DiskCache(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert second.get("key") is None
        second.put("key", {"a": b"2"})
    assert second.get("key") == {"a": b"2"}


def test_the_oldest_go_when_it_is_full(tmp_path):
    cache = DiskCache(tmp_path, limit=1000)
    for i in range(8):
        cache.put(f"key{i}", {"a": bytes([i]) * 200})
    left = [key for key, *_ in cache.entries()]
    assert cache.stats().bytes <= 1000
    assert left == [f"key{i}" for i in range(7, 7 - len(left), -1)]
    assert sum(p.stat().st_size for p in blob_files(cache)) == cache.stats().bytes


def test_clear(cache):
    for i in range(3):
        cache.put(f"key{i}", {"a": bytes([i])})
    assert cache.clear() == 3
    assert cache.stats().entries == 0
    assert blob_files(cache) == []


def test_front_keys_lead_to_content_keys(cache, tmp_path):
    cache.put("content", {"a": b"2"})
    cache.link("front", "content", "plan")
    assert DiskCache(tmp_path).lookup("front") == ("content", "plan")
    assert cache.lookup("other") is None


def test_discarding_an_entry_takes_its_front_keys_along(tmp_path):
    cache = DiskCache(tmp_path, limit=10)
    cache.put("old", {"a": b"12345678"})
    cache.link("front", "old", "plan")
    cache.put("new", {"a": b"87654321"})
    assert cache.lookup("front") is None


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_digests_differ_where_the_parts_do(a, b):
    assert (digest(*a) == digest(*b)) == (a == b)


def test_a_folder_that_cannot_be_made_warns_once_and_never_raises(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    cache = DiskCache(tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning, match="TS606") as caught:
        assert cache.get("key") is None
        cache.put("key", {"a": b"1"})
        assert cache.lookup("front") is None
        assert cache.verify() == []
    assert len(caught) == 1
    assert cache.stats().problem


def test_a_full_disk_warns_once_and_reading_goes_on(cache, monkeypatch):
    cache.put("key", {"a": b"1"})

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left") as caught:
        cache.put("other", {"a": b"2"})
        cache.put("another", {"a": b"2"})
    assert len(caught) == 1
    assert cache.get("key") == {"a": b"1"}
    assert not [p for p in blob_files(cache) if p.name.startswith("new-")]


def test_an_index_that_others_hold_for_long_is_no_failure(cache, tmp_path, monkeypatch):
    """Nothing is kept while it is held, no call waits a second time, and later all is as before."""
    cache.put("old", {"a": b"1"})
    cache.close()
    monkeypatch.setattr(cache_module, "_WAIT", 0.05)
    holder = sqlite3.connect(cache.directory / "index.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put("new", {"a": b"2"})
        assert cache.get("old") is None and not [p for p in blob_files(cache) if "new" in p.name]
        monkeypatch.setattr(cache._blobs, "write", lambda data: pytest.fail("it tries to write again at once"))
        cache.put("newer", {"a": b"3"})
        monkeypatch.undo()
        holder.execute("ROLLBACK")
        cache._busy_until = 0.0
        cache.put("new", {"a": b"2"})
    assert (cache.get("old"), cache.get("new"), cache.problem) == ({"a": b"1"}, {"a": b"2"}, None)


def test_looking_for_leftovers_holds_nobody_up(cache, tmp_path, monkeypatch):
    """A process that writes for the first time reads thousands of files' ages without the index being locked."""
    cache.put("old", {"a": b"1"})
    ages = cache_module.is_older

    def aged(path, moment):
        DiskCache(tmp_path).link("front", "old")  # another process writes meanwhile
        return ages(path, moment)

    monkeypatch.setattr(cache_module, "_WAIT", 0.05)
    monkeypatch.setattr(cache_module, "is_older", aged)
    (cache.directory / "swept").unlink()
    (cache.directory / "blobs" / "new-1-abandoned").write_bytes(b"half")
    other = DiskCache(tmp_path)
    other.put("new", {"a": b"2"})
    assert other.lookup("front") is not None and other.problem is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_read_only_folder_still_serves(tmp_path):
    first = DiskCache(tmp_path)
    first.put("key", {"a": b"1"})
    first.close()
    folders = [first.directory, *[p for p in first.directory.rglob("*") if p.is_dir()]]
    for folder in folders:
        folder.chmod(0o500)
    (first.directory / "index.sqlite").chmod(0o400)
    try:
        second = DiskCache(tmp_path)
        with pytest.warns(CacheWarning):
            assert second.get("key") == {"a": b"1"}
            second.put("key2", {"a": b"1"})
    finally:
        for folder in folders:
            folder.chmod(0o700)


def test_a_read_only_index_still_serves(tmp_path, monkeypatch):
    """The same without relying on permissions, which do not bind the superuser."""
    first = DiskCache(tmp_path)
    first.put("key", {"a": b"1"})
    first.close()

    def refuse(self, path):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(DiskCache, "_open_index", refuse)
    second = DiskCache(tmp_path)
    with pytest.warns(CacheWarning):
        assert second.get("key") == {"a": b"1"}
        assert second.get("absent") is None
        second.put("key2", {"a": b"1"})


def test_processes_write_at_once(tmp_path):
    code = """
import sys
from tessera.runtime.code.cache import DiskCache
print(flush=True); sys.stdin.readline()
cache, start = DiskCache(sys.argv[1]), int(sys.argv[2])
for i in range(start, start + 20):
    cache.put(f"key{i % 30}", {"a": f"value {i % 30}".encode(), "b": b"shared"})
sys.exit(cache.problem)
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(start)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for start in (0, 10, 20, 30)
    ]  # fmt: skip
    for worker in workers:
        assert worker.stdout.readline() == b"\n"  # all are there before the first one writes
    for worker in workers:
        worker.stdin.write(b"\n")
        worker.stdin.flush()
    for worker in workers:
        _, said = worker.communicate(timeout=200)
        assert worker.returncode == 0, said
    cache = DiskCache(tmp_path)
    assert cache.verify() == []
    assert {key for key, *_ in cache.entries()} == {f"key{i}" for i in range(30)}
    assert cache.get("key7") == {"a": b"value 7", "b": b"shared"}


def test_threads_write_at_once(cache):
    def work(start: int) -> None:
        for i in range(10):
            cache.put(f"key{start}.{i}", {"a": f"{start}.{i}".encode()})
            assert cache.get(f"key{start}.{i}") == {"a": f"{start}.{i}".encode()}

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.problem is None
    assert cache.stats().entries == 40


def test_a_fork_waits_for_a_thread_that_uses_it(tmp_path):
    """SQLite has locks for all of a process: where a child finds them held, it never opens an index."""
    code = """
import os, sys, threading, time
from tessera.runtime.code.cache import DiskCache
cache, begun, ended = DiskCache(sys.argv[1]), threading.Event(), threading.Event()

def use():
    with cache.lock:
        begun.set()
        time.sleep(0.5)
        ended.set()

threading.Thread(target=use).start()
begun.wait()
child = os.fork()
if child == 0:
    cache.put("key", {"a": b"1"})
    os._exit(not ended.is_set() or cache.get("key") != {"a": b"1"})
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) or cache.get("key") != {"a": b"1"})
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_uses_it_too(tmp_path):
    """In a process of its own: forking one that has threads of other libraries' in it may hang."""
    code = """
import os, sys
from tessera.runtime.code.cache import DiskCache
cache = DiskCache(sys.argv[1])
cache.put("key", {"a": b"1"})
child = os.fork()
if child == 0:
    good = cache.get("key") == {"a": b"1"}
    cache.put("child", {"a": b"2"})
    os._exit(0 if good and cache.problem is None else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) or cache.get("child") != {"a": b"2"})
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_killed_writer_leaves_whole_entries(tmp_path):
    """SIGKILL at arbitrary moments: whatever is found afterwards is complete."""
    code = (
        "import sys; from tessera.runtime.code.cache import DiskCache\n"
        "c = DiskCache(sys.argv[1]); print('go', flush=True); i = 0\n"
        "while True: c.put(f'key{i}', {'a': f'{i}'.encode() * 1000, 'b': f'{i}'.encode()}); i += 1\n"
    )
    for wait in (0.02, 0.05, 0.11):
        writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
        assert writer.stdout.readline() == b"go\n"
        time.sleep(wait)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        cache = DiskCache(tmp_path)
        for key, *_ in cache.entries():
            if key == "after":
                continue
            number = key.removeprefix("key").encode()
            assert cache.get(key) == {"a": number * 1000, "b": number}
        cache.put("after", {"a": b"1"})
        assert cache.get("after") == {"a": b"1"}
        assert cache.problem is None
        cache.close()
