"""Checkpoints beside other tools, in shards, several of them, and written while training goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import checkpoint
from tessera.checkpoint import folder as folders
from tests.conftest import require

ARRAYS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b.scale": np.arange(5).astype(ml_dtypes.bfloat16),
    "empty": np.zeros((0, 2), np.float32),
    "flags": np.array([True, False]),
    "small": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    "step": np.array(7, np.int32),
    "z": np.array([1 + 2j], np.complex64),
}


def test_files_of_other_libraries_are_read_by_name(tmp_path):
    library = require("safetensors.torch")
    torch = require("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).to(torch.bfloat16)
    first, second = ({n: a for n, a in theirs.state_dict().items() if n[0] == i} for i in "01")
    library.save_file(first, tmp_path / "model-00001-of-00002.safetensors")
    library.save_file(second, tmp_path / "model-00002-of-00002.safetensors")
    assert not checkpoint.exists(tmp_path)
    assert checkpoint.load(tmp_path / "model-00002-of-00002.safetensors").keys() == {"1.weight", "1.bias"}
    model = ts.nn.Sequential(ts.nn.Linear(4, 4, key=0), ts.nn.Linear(4, 2, key=1)).to(ts.bf16)
    model.load_state_dict(checkpoint.load(tmp_path), layout="torch")
    assert np.array_equal(model[0].weight.to(ts.f32), theirs[0].weight.T.float().detach())
    with pytest.raises(ts.LaunchError, match=r"TS363(.|\n)*of another library and has no part model"):
        checkpoint.load(tmp_path, model=model)


def test_the_safetensors_library_reads_each_file(tmp_path):
    library = require("safetensors.torch")
    torch = require("torch")
    checkpoint.save(tmp_path, model=ARRAYS, shard=40)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(a.nbytes for a in ARRAYS.values())
    assert len(set(index["weight_map"].values())) > 1 and index["weight_map"].keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        found = library.load_file(tmp_path / index["weight_map"][name])[name]
        assert tuple(found.shape) == array.shape
        assert found.contiguous().view(torch.uint8).numpy().tobytes() == array.tobytes() if array.ndim else True
    assert library.load_file(tmp_path / index["weight_map"]["step"])["step"].item() == 7


def test_what_the_safetensors_library_writes_is_read():
    library = require("safetensors.numpy")
    arrays = {n: a for n, a in ARRAYS.items() if n not in ("small", "z")}
    found = checkpoint.safetensors.read(library.save(arrays, metadata={"by": "another"}))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("shard", [1, 40, 48, 10**6])
def test_shards_give_the_same_arrays(tmp_path, shard):
    checkpoint.save(tmp_path, model=ARRAYS, shard=shard)
    files = list(tmp_path.glob("model-*.safetensors"))
    assert all(f"-of-{len(files):05}-" in f.name for f in files)
    found = checkpoint.load(tmp_path, model=ARRAYS)["model"]
    assert all(found[n].tobytes() == a.tobytes() for n, a in ARRAYS.items())


def test_files_of_others_stay(tmp_path):
    for name in ("model.safetensors", "notes.txt", "other.safetensors.index.json"):
        (tmp_path / name).write_text("mine")
    checkpoint.save(tmp_path, model={"w": ARRAYS["a.weight"]}, average={"w": ARRAYS["a.weight"]})
    checkpoint.save(tmp_path, model={"w": ARRAYS["a.weight"] + 1})
    left = {p.name.split("-")[0] for p in tmp_path.iterdir()}
    assert left == {"manifest.json", "model", "model.safetensors", "model.safetensors.index.json", "notes.txt",
                    "other.safetensors.index.json"}  # fmt: skip


def steps(place: Path) -> set[str]:
    return {p.name for p in place.glob("step-*")}


def test_the_last_ones_are_kept(tmp_path):
    for step in (10, 20, 30, 40):
        checkpoint.save(tmp_path, keep=2, w={"w": np.full(3, step)}, step=step)
    assert steps(tmp_path) == {"step-30", "step-40"}
    assert checkpoint.load(tmp_path)["step"] == 40 and checkpoint.load(tmp_path / "step-30")["step"] == 30
    checkpoint.save(
        tmp_path, keep=2, w={"w": np.full(3, 5)}, step=5
    )  # from an earlier one: it is the last all the same
    assert checkpoint.load(tmp_path)["step"] == 5 and steps(tmp_path) == {"step-40", "step-5"}
    checkpoint.save(tmp_path, w={"w": np.full(3, 50)}, step=50)
    assert checkpoint.load(tmp_path)["step"] == 50 and not steps(tmp_path)
    checkpoint.save(tmp_path, keep=3, w={"w": np.full(3, 60)}, step=60)
    assert checkpoint.load(tmp_path)["step"] == 60 and (tmp_path / "manifest.json").exists()
    checkpoint.save(tmp_path, keep=3, w={"w": np.full(3, 70)}, step=70)
    checkpoint.save(tmp_path, keep=3, w={"w": np.full(3, 80)}, step=80)
    assert steps(tmp_path) == {"step-60", "step-70", "step-80"} and not (tmp_path / "manifest.json").exists()


@pytest.fixture
def held(monkeypatch):
    """Writing begins when this is set."""
    go, write = threading.Event(), folders.write

    def later(*args):
        assert go.wait(200)
        write(*args)

    monkeypatch.setattr(folders, "write", later)
    yield go
    go.set()
    checkpoint.writer.wait()


def test_what_changes_while_it_is_written_is_not_seen(tmp_path, held):
    array, notes = np.zeros(1000, np.float32), [1]
    saving = checkpoint.save_async(tmp_path, w={"w": array}, notes=notes)
    assert not saving.done and not (tmp_path / "manifest.json").exists()
    array += 1
    notes.append(2)
    held.set()
    saving.wait()
    saved = checkpoint.load(tmp_path)
    assert saving.done and not saved["w"]["w"].numpy().any() and saved["notes"] == [1]


def test_loading_waits_for_what_is_being_written(tmp_path, held):
    checkpoint.save_async(tmp_path, w={"w": np.ones(3)}, step=1)
    threading.Timer(0.05, held.set).start()
    assert checkpoint.load(tmp_path)["step"] == 1 and checkpoint.exists(tmp_path)


@pytest.mark.parametrize("heard_by", [
    lambda place, saving: saving.wait(),
    lambda place, saving: checkpoint.wait(),
    lambda place, saving: checkpoint.save_async(place / "next", w={"w": np.ones(2)}),
    lambda place, saving: checkpoint.load(place),
])  # fmt: skip
def test_an_error_of_the_thread_is_raised_once(tmp_path, heard_by):
    (tmp_path / "file").write_text("")
    saving = checkpoint.save_async(tmp_path / "file", w={"w": np.ones(2)})
    with pytest.raises(ts.LaunchError, match=r"(?s)TS365.*keeps its earlier checkpoint"):
        heard_by(tmp_path, saving)
    checkpoint.wait()
    checkpoint.save(tmp_path / "good", w={"w": np.ones(2)})


def test_an_error_that_nobody_waits_for_is_told_at_the_end(tmp_path):
    (tmp_path / "file").write_text("")
    program = f"import numpy as np, tessera as ts\nts.checkpoint.save_async({str(tmp_path / 'file')!r}, w=[np.ones(2)])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert "TS365" in ran.stderr and "Traceback" not in ran.stderr


def test_a_process_waits_for_what_it_writes(tmp_path):
    program = (
        f"import numpy as np, tessera as ts\nts.checkpoint.save_async({str(tmp_path)!r}, w=[np.ones(10**6)], step=3)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=200).returncode == 0
    assert checkpoint.load(tmp_path)["step"] == 3


KILLED = """
import sys, numpy as np, tessera as ts
for i in range(1, 10**6):
    ts.checkpoint.save_async(sys.argv[1], keep=int(sys.argv[2]), shard=1 << 18, step=i,
                             model={str(j): np.full(1 << 16, i, np.float32) for j in range(8)})
    if i == 2:
        print("go", flush=True)
"""


@pytest.mark.parametrize("keep, after", [(1, 0.0), (1, 0.03), (2, 0.0), (2, 0.013)])
def test_a_process_that_is_killed_leaves_a_whole_one(tmp_path, keep, after):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(keep)], stdout=subprocess.PIPE)
    assert process.stdout.readline()
    time.sleep(after)  # to be at another place of its work
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    saved = checkpoint.load(tmp_path)
    assert saved["step"] >= 1 and all((a.numpy() == saved["step"]).all() for a in saved["model"].values())
    checkpoint.save(tmp_path, w={"w": np.ones(1)})
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1 and not list(tmp_path.rglob(".*"))


def test_what_does_not_fit_is_said_where_it_need_not_fit(tmp_path):
    checkpoint.save(tmp_path, model={"a": np.ones(3, np.float32), "b": np.ones(2, np.float32), "c": np.ones(1)})
    like = {"a": np.zeros(3, np.float32), "b": np.zeros(4, np.float32), "d": np.zeros(1)}
    with pytest.warns(UserWarning) as told:
        found = checkpoint.load(tmp_path, strict=False, model=like)["model"]
    assert [str(w.message) for w in told] == [
        "of model, b, d stay as they were", "of model, c are in the checkpoint alone"
    ]  # fmt: skip
    assert found["a"].all() and not found["b"].any() and found["d"] is like["d"]


def counting(place, until=10, **options):
    @ts.checkpoint(place, **{"every": 4, **options})
    def loop(w, step=0):
        for i in range(step, until):
            w = w + i
            yield {"w": w, "step": i + 1}

    return loop


def test_a_loop_that_yields_its_state_goes_on_where_it_was(tmp_path):
    last = counting(tmp_path / "whole")(np.zeros(2))
    assert last["step"] == 10 and last["w"].tolist() == [45, 45]
    counting(tmp_path / "parts", until=6)(np.zeros(2))
    assert checkpoint.load(tmp_path / "parts")["step"] == 6
    again = counting(tmp_path / "parts")(np.zeros(2))
    assert again["w"].tolist() == [45, 45]
    assert counting(tmp_path / "parts")(np.zeros(2))["step"] == 10  # nothing is left to do


def test_a_loop_that_fails_leaves_its_last_whole_step(tmp_path):
    @ts.checkpoint(tmp_path, every=100)
    def loop(w, step=0):
        for i in range(step, 10):
            if i == 5:
                raise KeyboardInterrupt
            yield {"w": w + i, "step": i + 1}

    with pytest.raises(KeyboardInterrupt):
        loop(np.zeros(2))
    assert checkpoint.load(tmp_path)["step"] == 5


def test_a_loop_that_keeps_its_state_to_itself_is_refused(tmp_path):
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*loop does not pass on its state.*write yield dict"):

        @ts.checkpoint(every=10)
        def loop(model):
            pass

    for wrong in ({"every": 0}, {"every": True}, {"every": 1.5}):
        with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*every is a whole number of at least 1"):
            ts.checkpoint(tmp_path, **wrong)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*keep is a whole number"):
        checkpoint.save(tmp_path, keep=0, step=1)


def test_the_seeds_form_writes_to_the_usual_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ts.checkpoint.save_async(model={"w": np.ones(2)}, optimizer={"m": np.ones(2)}, step=100)
    assert ts.checkpoint.load()["step"] == 100 and (tmp_path / "checkpoint/manifest.json").exists()
