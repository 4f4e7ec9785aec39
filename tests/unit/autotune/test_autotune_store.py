"""The file of timings: what survives, what is moved aside, what is never lost."""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings

import pytest

from tessera.runtime.autotune import store as stores
from tessera.runtime.autotune.store import APPLICATION, Key, TuningStore, TuningWarning, store_at
from tessera.runtime.autotune.trials import Trial

KEY = Key("kernel", "cpu", "a processor", ("x [4] f32",), (("program", "kernel#1"),))
OTHER = Key("kernel", "cpu", "a processor", ("x [5] f32",), (("program", "kernel#2"),))
TIMED = Trial({"BLOCK": 64}, "timed", (1e-3, 2e-3), "", 10, 20)
TEXT = '{"BLOCK": 64}'


@pytest.fixture
def store(tmp_path):
    return TuningStore(tmp_path / "tuning.sqlite")


def test_what_is_stored_comes_back_in_another_object(store, tmp_path):
    failed = Trial({"BLOCK": 0}, "failed", (), "TS404: no")
    store.add(KEY, {TEXT: TIMED, '{"BLOCK": 0}': failed}, {(TEXT, TEXT): True})
    again = TuningStore(store.path)
    assert again.trials(KEY) == {TEXT: TIMED, '{"BLOCK": 0}': failed}
    assert again.bits(KEY) == {(TEXT, TEXT): True}
    assert again.trials(OTHER) == {} and again.bits(OTHER) == {}
    assert store.stats()["trials"] == 2 and store.stats()["signatures"] == 1 and store.stats()["bytes"] > 0


def test_the_first_one_counts(store):
    store.add(KEY, {TEXT: TIMED})
    store.add(KEY, {TEXT: Trial({"BLOCK": 64}, "timed", (5.0,))})
    assert store.trials(KEY) == {TEXT: TIMED}


def test_clearing(store):
    assert store.clear() == 0 and not store.path.exists()
    store.add(KEY, {TEXT: TIMED})
    assert store.clear() == 1
    assert store.trials(KEY) == {} and store.stats()["signatures"] == 0


def test_looking_at_nothing_makes_no_file(store):
    assert store.stats()["trials"] == 0
    assert not store.path.exists()


def write(path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.mark.parametrize("content", [b"no database, " * 100, b"SQLite format 3\x00" + b"\x01" * 5000])
def test_a_damaged_file_is_moved_aside_and_begun_anew(store, content):
    write(store.path, content)
    with pytest.warns(TuningWarning, match=r"TS608.*moved to tuning.sqlite.damaged-1.*timed again"):
        assert store.trials(KEY) == {}
    store.add(KEY, {TEXT: TIMED})
    assert TuningStore(store.path).trials(KEY) == {TEXT: TIMED}
    assert store.path.with_name("tuning.sqlite.damaged-1").read_bytes() == content


def test_a_file_damaged_while_it_is_in_use(store):
    for i in range(200):
        store.add(KEY, {f'{{"BLOCK": {i}}}': TIMED})
    store.close()
    content = bytearray(store.path.read_bytes())
    content[5000:] = b"\x55" * (len(content) - 5000)
    write(store.path, bytes(content))
    with pytest.warns(TuningWarning, match="TS608"):
        assert store.trials(KEY) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.add(KEY, {TEXT: TIMED})
        assert store.trials(KEY) == {TEXT: TIMED}


def test_nothing_new_is_entrusted_to_a_file_that_is_damaged_elsewhere(store):
    """What is stored of one key stays, whatever else is damaged: the file is looked through before the first row."""
    for i in range(100):
        store.add(KEY, {f'{{"BLOCK": {i}}}': TIMED}, {(f'{{"BLOCK": {i}}}', TEXT): True})
    store.close()
    db = sqlite3.connect(store.path)
    (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'bits'").fetchone()
    (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    content = bytearray(store.path.read_bytes())
    content[(page - 1) * size + 12 : page * size] = b"\x55" * (size - 12)
    write(store.path, bytes(content))
    with pytest.warns(TuningWarning, match=r"TS608.*tuning.sqlite.damaged-1") as caught:
        store.add(OTHER, {TEXT: TIMED})
        store.add(KEY, {TEXT: TIMED}, {(TEXT, TEXT): True})
    assert len(caught) == 1
    for known in (store, TuningStore(store.path)):
        assert known.trials(OTHER) == known.trials(KEY) == {TEXT: TIMED} and known.bits(KEY) == {(TEXT, TEXT): True}


def test_a_file_that_says_it_has_shared_memory_gets_none(store):
    """WAL's file of shared memory ends the process when it is cut off while mapped."""
    store.add(KEY, {TEXT: TIMED})
    store.close()
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    db.close()
    again = TuningStore(store.path)
    assert again.trials(KEY) == {TEXT: TIMED}
    again.add(OTHER, {TEXT: TIMED})
    assert sorted(p.name for p in store.path.parent.glob("*.sqlite*")) == ["tuning.sqlite", "tuning.sqlite.opening"]


@pytest.mark.filterwarnings("error")
def test_a_file_that_another_process_has_replaced_is_opened_again(store):
    store.add(KEY, {TEXT: TIMED})
    os.replace(store.path, store.path.with_name("aside"))
    other = TuningStore(store.path)
    other.add(OTHER, {TEXT: TIMED})
    store.add(KEY, {'{"BLOCK": 128}': TIMED})
    assert store.problem is None
    assert list(other.trials(KEY)) == ['{"BLOCK": 128}'] and store.trials(OTHER) == {TEXT: TIMED}


def test_a_file_of_another_program_is_kept_whole(store):
    db = sqlite3.connect(store.path)
    db.execute("CREATE TABLE bookmarks (address TEXT)")
    db.execute("INSERT INTO bookmarks VALUES ('here')")
    db.commit()
    db.close()
    with pytest.warns(TuningWarning, match="SQLite file of another program"):
        store.add(KEY, {TEXT: TIMED})
    assert store.trials(KEY) == {TEXT: TIMED}
    aside = sqlite3.connect(store.path.with_name("tuning.sqlite.damaged-1"))
    assert aside.execute("SELECT * FROM bookmarks").fetchall() == [("here",)]
    aside.close()


def test_a_newer_file_is_left_alone(store):
    store.add(KEY, {TEXT: TIMED})
    store.close()
    db = sqlite3.connect(store.path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    later = TuningStore(store.path)
    with pytest.warns(TuningWarning, match=r"TS608.*a newer Tessera wrote it.*forgotten when this process ends"):
        assert later.trials(KEY) == {}
    later.add(KEY, {TEXT: TIMED})
    assert later.trials(KEY) == {TEXT: TIMED} and "newer" in later.stats()["problem"]
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    assert db.execute("SELECT COUNT(*) FROM trials").fetchone() == (1,)
    db.close()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    store = TuningStore(tmp_path / "file" / "tuning.sqlite")
    with pytest.warns(TuningWarning, match=r"TS608.*TESSERA_CACHE_DIR") as caught:
        store.add(KEY, {TEXT: TIMED})
        assert store.trials(KEY) == {TEXT: TIMED}
    assert len(caught) == 1


@pytest.mark.parametrize("samples", ["[", '["a"]', "[0.0]", "{}", "[-1.0]"])
def test_a_row_that_somebody_has_changed_is_measured_again(store, samples):
    store.add(KEY, {TEXT: TIMED})
    db = sqlite3.connect(store.path)
    db.execute("UPDATE trials SET samples = ?", (samples,))
    db.commit()
    db.close()
    assert store.trials(KEY) == {}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trials SET config = '{\"BLOCK\": 128}'",
        "UPDATE trials SET status = 'pruned'",
        "UPDATE trials SET samples = '[1e-9]'",
        "UPDATE trials SET flops = 'many'",
        "UPDATE trials SET detail = x'ff'",
        "UPDATE trials SET key = 'another'",
        "UPDATE bits SET same = 0",
        "UPDATE bits SET reference = 'another'",
        "ALTER TABLE trials DROP COLUMN samples",
        "DROP TABLE bits",
    ],
)
@pytest.mark.filterwarnings("ignore:TS608")
def test_rows_that_say_other_things_are_not_believed_and_are_written_again(store, statement):
    store.add(KEY, {TEXT: TIMED}, {(TEXT, TEXT): True})
    store.close()
    db = sqlite3.connect(store.path)
    db.executescript(statement)
    db.close()
    assert store.trials(KEY) in ({}, {TEXT: TIMED})
    assert store.bits(KEY) in ({}, {(TEXT, TEXT): True})
    store.add(KEY, {TEXT: TIMED}, {(TEXT, TEXT): True})
    assert store.trials(KEY) == {TEXT: TIMED} and store.bits(KEY) == {(TEXT, TEXT): True}
    assert TuningStore(store.path).trials(KEY) == {TEXT: TIMED}


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm", ".opening", ".measuring"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "zeros"])
@pytest.mark.filterwarnings("ignore:TS608")
def test_what_is_no_plain_file_is_not_waited_for(store, suffix, kind):
    path = store.path.with_name(store.path.name + suffix)
    if kind == "zeros":
        path.symlink_to("/dev/zero")
    else:
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    store.add(KEY, {TEXT: TIMED})
    with store.measuring(lambda: pytest.fail("nobody else measures")):
        assert store.trials(KEY) == {TEXT: TIMED}
    assert store.problem is None
    assert TuningStore(store.path).trials(KEY) == {TEXT: TIMED}


def test_an_older_file_is_moved_aside(store):
    store.add(KEY, {TEXT: TIMED})
    store.close()
    db = sqlite3.connect(store.path)
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.warns(TuningWarning, match="an older Tessera wrote it"):
        assert TuningStore(store.path).trials(KEY) == {}


def test_writers_in_threads(store):
    def work(n: int) -> None:
        own = TuningStore(store.path)
        for i in range(20):
            own.add(KEY, {f'{{"BLOCK": {n * 100 + i}}}': TIMED})
        own.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(store.trials(KEY)) == 80


def test_a_lock_file_that_another_one_makes_meanwhile_is_locked(tmp_path, monkeypatch):
    """It was opened without a lock, and two made the tables."""
    looked = stores.is_plain

    def late(path):
        found = looked(path)
        path.touch()
        return found

    monkeypatch.setattr(stores, "is_plain", late)
    lock = tmp_path / "lock"
    with (
        stores._file_lock(lock),
        pytest.raises(TimeoutError),
        stores._file_lock(lock, lambda: raised(TimeoutError())),
    ):
        raise AssertionError("two have it")


def test_tables_that_another_one_makes_meanwhile_are_used(store, monkeypatch):
    """Where there are no locks of files."""
    monkeypatch.setattr(stores, "fcntl", None)
    transaction = stores._transaction

    def late(db):
        monkeypatch.setattr(stores, "_transaction", transaction)
        TuningStore(store.path).add(KEY, {TEXT: TIMED})
        return transaction(db)

    monkeypatch.setattr(stores, "_transaction", late)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        assert store.trials(KEY) == {TEXT: TIMED}


def raised(error):
    raise error


def test_only_one_measures_at_a_time(store):
    waited: list[str] = []
    other = TuningStore(store.path)
    inside, go = threading.Event(), threading.Event()

    def hold() -> None:
        with other.measuring(lambda: None):
            inside.set()
            go.wait(100)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(100)

    def waiting() -> None:
        waited.append("waiting")
        go.set()

    with store.measuring(waiting):
        holder.join(100)
        assert not holder.is_alive()
    assert waited == ["waiting"]


def test_where_the_file_is(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    assert store_at().path == tmp_path / "cache" / "tuning.sqlite"
    assert store_at() is store_at()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_at("~/.tessera/autotune.db").path == tmp_path / ".tessera" / "autotune.db"
