"""What is kept between runs of the tests is what the compiler would make of the same text, or it is made again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tessera.compiler.targets.cpu.llvm import isa, jit
from tests import kept

TEXT = "define i64 @answer() {{\n  ret i64 {}\n}}\n"


class Compiler:
    __name__ = "compiler"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str, machine: isa.VectorISA, name: str) -> bytes:
        self.calls += 1
        return f"{name}: {text}".encode()


def test_a_text_is_compiled_once(tmp_path: Path) -> None:
    compiler = Compiler()
    machine = isa.host()
    first = kept._kept_objects(tmp_path, compiler)(TEXT.format(1), machine, "one")
    again = kept._kept_objects(tmp_path, compiler)(TEXT.format(1), machine, "one")
    assert first == again == b"one: " + TEXT.format(1).encode()
    assert compiler.calls == 1


def test_whatever_the_result_depends_on_is_part_of_the_key(tmp_path: Path) -> None:
    compiler = Compiler()
    take = kept._kept_objects(tmp_path, compiler)
    machine = isa.host()
    other = isa.from_features({"avx2": True, "fma": True, "f16c": True})
    assert machine != other
    results = [
        take(TEXT.format(1), machine, "one"),
        take(TEXT.format(2), machine, "one"),
        take(TEXT.format(1), machine, "two"),
        take(TEXT.format(1), other, "one"),
    ]
    assert compiler.calls == 4
    assert results[0] == results[3] != results[1]


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"no json\nx", b'{"sizes": [1], "hash": ""}\nx'])
def test_what_is_damaged_is_compiled_again(tmp_path: Path, damage: bytes) -> None:
    compiler = Compiler()
    take = kept._kept_objects(tmp_path, compiler)
    want = take(TEXT.format(1), isa.host(), "one")
    (file,) = (p for p in tmp_path.rglob("*") if p.is_file())
    file.write_bytes(damage)
    assert take(TEXT.format(1), isa.host(), "one") == want
    file.write_bytes(file.read_bytes()[:-1])
    assert take(TEXT.format(1), isa.host(), "one") == want
    assert compiler.calls == 3


def test_what_is_kept_is_what_llvm_makes(tmp_path: Path) -> None:
    compile_text = getattr(jit._object, "__wrapped__", jit._object)
    take = kept._kept_objects(tmp_path, compile_text)
    assert take(TEXT.format(7), isa.host(), "seven") == take(TEXT.format(7), isa.host(), "seven")
    assert take(TEXT.format(7), isa.host(), "seven") == compile_text(TEXT.format(7), isa.host(), "seven")


def test_another_run_deletes_what_this_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading a file and noting its use, and while the oldest are looked for."""
    take = kept._kept_objects(tmp_path / "llvm", Compiler())
    want = take(TEXT.format(1), isa.host(), "one")
    (file,) = (p for p in tmp_path.rglob("*") if p.is_file())
    read = kept._read

    def read_and_lose(path: Path) -> tuple[bytes, ...] | None:
        found = read(path)
        path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(kept, "_read", read_and_lose)
    assert take(TEXT.format(1), isa.host(), "one") == want
    assert not file.exists()
    file.symlink_to(tmp_path / "gone")
    kept.forget(tmp_path)


def test_the_oldest_is_forgotten(tmp_path: Path) -> None:
    paths = [tmp_path / "llvm" / "ab" / str(i) for i in range(4)] + [tmp_path / "emulator" / "library"]
    for age, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "library":
            path.mkdir()
            (path / "code.so").write_bytes(b"x" * 100)
        else:
            path.write_bytes(b"x" * 100)
        used = time.time() - age * 86400
        os.utime(path, (used, used))
    kept.forget(tmp_path, bytes_at_most=1000, days=3.5)
    assert [p.exists() for p in paths] == [True, True, True, True, False]
    kept.forget(tmp_path, bytes_at_most=250, days=3.5)
    assert [p.exists() for p in paths] == [True, True, False, False, False]
