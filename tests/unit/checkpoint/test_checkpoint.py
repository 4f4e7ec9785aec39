"""Training state on the disk: bit-equal, strict, whole whatever happens."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, checkpoint, nn
from tessera.checkpoint import safetensors
from tessera.optimizers import AdamW, Cosine

X = np.random.default_rng(2).standard_normal((16, 4)).astype(np.float32)


@ts.function
def step(model, x: Tensor["B", "D"], key: ts.int64):
    return ts.value_and_grad(lambda model: ts.mse(ts.dropout(model(x), key, 0.1), x))(model)


OPT = AdamW(Cosine(0.05, 20, warmup=3), clip=1.0)


def trained(model, state, start, stop):
    for i in range(start, stop):
        _, gradient = step(model, X, i)
        model, state = OPT.update(model, gradient, state)
    return model, state


def bits(part):
    return {leaf.path: ts.asarray(leaf.array).numpy().tobytes() for leaf in nn.tree.leaves(part)}


def fresh(key=0):
    model = nn.MLP(4, 8, key=key)
    return model, OPT.init(model)


def test_resuming_gives_the_same_bits(tmp_path):
    whole, state = trained(*fresh(), 0, 12)
    model, half = trained(*fresh(), 0, 5)
    checkpoint.save(tmp_path / "run", model=model, optimizer=half, step=5)
    other, empty = fresh(key=9)
    saved = checkpoint.load(tmp_path / "run", model=other, optimizer=empty)
    assert bits(saved["model"]) == bits(model) and bits(saved["optimizer"]) == bits(half) and saved["step"] == 5
    assert type(saved["model"]) is nn.MLP and isinstance(saved["model"].up.weight, ts.Tensor)
    resumed, after = trained(saved["model"], saved["optimizer"], saved["step"], 12)
    assert bits(resumed) == bits(whole) and bits(after) == bits(state)


def test_every_dtype_and_shape(tmp_path):
    kinds = [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint16, np.bool_, np.complex64]
    kinds += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
    arrays = {np.dtype(k).name: np.arange(6).reshape(2, 3).astype(k) for k in kinds}
    arrays |= {"scalar": np.float32(3).reshape(()), "empty": np.zeros((0, 4), np.float32), "turned": X.T}
    checkpoint.save(tmp_path, all=arrays, note={"a": [1, None, "x"]})
    saved = checkpoint.load(tmp_path)
    assert saved["note"] == {"a": [1, None, "x"]}
    for name, array in arrays.items():
        found = saved["all"][name].numpy()
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes(), name


def test_the_file_is_laid_out_as_the_format_says():
    arrays = {"a": np.array([1, 2], np.int32), "b": np.array([[1.5]], np.float16)}
    data = b"".join(map(bytes, safetensors.written(arrays)))
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0 and json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "I32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F16", "shape": [1, 1], "data_offsets": [8, 10]},
    }
    assert data[8 + length :] == bytes.fromhex("0100000002000000003e")
    with_metadata = json.dumps({"__metadata__": {"x": "y"}, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
    found = safetensors.read(len(with_metadata).to_bytes(8, "little") + with_metadata.encode() + b"\x07")
    assert list(found) == ["a"] and found["a"].tolist() == [7]


@pytest.mark.parametrize("at", ["the first file", "the second file", "the manifest"])
def test_a_process_that_ends_leaves_the_earlier_one(tmp_path, monkeypatch, at):
    checkpoint.save(tmp_path, model={"w": X}, optimizer={"m": X}, step=1)
    seen, replace = [], os.replace

    def ends(source, target):
        seen.append(target.name)
        shards = [name for name in seen if name.endswith(".safetensors")]
        now = {
            "the first file": len(shards) == 1,
            "the second file": len(shards) == 2,
            "the manifest": "manifest" in seen[-1],
        }
        if now[at]:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("pathlib.Path.replace", lambda self, target: ends(self, target))
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, model={"w": X + 1}, optimizer={"m": X + 2}, step=2)
    saved = checkpoint.load(tmp_path)
    assert saved["step"] == 1 and np.array_equal(saved["model"]["w"].numpy(), X)
    assert np.array_equal(saved["optimizer"]["m"].numpy(), X)
    monkeypatch.undo()
    checkpoint.save(tmp_path, model={"w": X + 1}, step=2)
    assert checkpoint.load(tmp_path)["step"] == 2 and len(list(tmp_path.glob("*.safetensors"))) == 1


def test_what_is_damaged_is_said(tmp_path):
    with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*no complete checkpoint"):
        checkpoint.load(tmp_path)
    checkpoint.save(tmp_path, model={"w": X}, step=1)
    file, manifest = next(tmp_path.glob("model-*")), tmp_path / "manifest.json"
    good = file.read_bytes()
    for bad in (good[:-1], good[:-1] + bytes([good[-1] ^ 1]), b""):
        file.write_bytes(bad)
        with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*is damaged"):
            checkpoint.load(tmp_path)
    for bad in (b"\xff" * 8, good[:20], (3).to_bytes(8, "little") + b"[1]", good[: len(good) - 8]):
        with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*not a safetensors file"):
            safetensors.read(bad)
    file.unlink()
    with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*cannot be read"):
        checkpoint.load(tmp_path)
    for bad in (
        "{",
        "[]",
        '{"version": 1, "arrays": {}}',
        "{}",
        '{"version": 2, "number": 1, "values": {}, "arrays": {"a": [1]}}',
    ):
        manifest.write_text(bad)
        with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*cannot be read"):
            checkpoint.load(tmp_path)


def test_restoring_is_strict(tmp_path):
    model, state = fresh()
    checkpoint.save(tmp_path, model=model, optimizer=state)
    wider = nn.MLP(4, 9, key=0)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS361.*up.weight is \[4, 8\] f32, and in model \[4, 9\] f32"):
        checkpoint.load(tmp_path, model=wider)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS361.*down.bias is not in model"):
        checkpoint.load(tmp_path, model=model.replace(down=nn.Linear(8, 4, key=0, bias=False)))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS363.*no arrays of average"):
        checkpoint.load(tmp_path, average=model)


def test_what_cannot_be_saved_is_said(tmp_path):
    with pytest.raises(ts.LaunchError, match=r"(?s)TS364.*JSON"):
        checkpoint.save(tmp_path, act=ts.relu)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS364.*complex128"):
        checkpoint.save(tmp_path, z=np.zeros(2, np.complex128))
    with pytest.raises(ts.LaunchError, match=r"(?s)TS364.*two arrays at 'a.b'"):
        checkpoint.save(tmp_path, x={"a.b": X, "a": {"b": X}})
    assert not re.search("manifest", str(list(tmp_path.iterdir())))


def test_numbers_of_numpy_and_single_arrays_come_back_as_they_are(tmp_path):
    ts.checkpoint.save(tmp_path / "a", step=np.int64(3), best=np.float32(1.5), mean=np.arange(3.0), total=ts.ones(()))
    found = ts.checkpoint.load(tmp_path / "a")
    assert (found["step"], found["best"]) == (3, 1.5) and found["mean"].tolist() == [0, 1, 2]
    assert found["total"].shape == () and float(found["total"]) == 1
    for i in range(4):
        ts.checkpoint.save(tmp_path / "b", keep=2, step=ts.full((), 10 * i, ts.int64), w=np.ones(2))
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["step-20", "step-30"]
    assert int(ts.checkpoint.load(tmp_path / "b")["step"]) == 30


def test_what_is_no_json_value_is_named(tmp_path):
    @dataclass
    class Config:
        width: int = 4

    with pytest.raises(ts.TesseraError, match=r"TS364(.|\n)*config: only a tree.*dataclasses.asdict\(config\) can be"):
        ts.checkpoint.save(tmp_path, w=np.ones(2), config=Config())


@pytest.mark.parametrize("groups", [False, True])
def test_an_optimizer_that_holds_parameters_goes_on_with_those_that_are_loaded(tmp_path, groups: bool) -> None:
    def made(key: int):
        model = nn.MLP(3, 4, 2, key=key)
        parameters = [{"params": model.up}, {"params": model.down, "lr": 0.3}] if groups else model.parameters()
        return model, ts.optimizers.AdamW(parameters, lr=0.1)

    def step(model, optimizer) -> float:
        loss = ts.square(model(np.ones((4, 3), np.float32))).mean()
        optimizer.step(loss)
        return float(loss)

    model, optimizer = made(0)
    for _ in range(3):
        step(model, optimizer)
    ts.checkpoint.save(tmp_path, model=model, optimizer=optimizer)
    other, fresh = made(1)
    before = other.up.weight.numpy().copy()
    saved = ts.checkpoint.load(tmp_path, model=other, optimizer=fresh)
    assert saved["model"].up.weight.requires_grad
    losses = [[step(m, o) for _ in range(3)] for m, o in ((model, optimizer), (saved["model"], saved["optimizer"]))]
    assert losses[0] == losses[1]
    np.testing.assert_array_equal(other.up.weight.numpy(), before)
