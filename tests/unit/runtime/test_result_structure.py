"""Results that are dicts and nested tuples: values, the order of names, the disk cache, types and IR."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.function.results import structure_of
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.structure import assembled, expression, in_a_row, of_json, to_json

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@ts.function
def losses(x: Tensor["B", "D"]) -> dict[str, Tensor]:
    y = x * 2
    return {"y": y, "loss": y.sum(), "again": y}


@ts.function
def nested(x: Tensor["B", "D"]):
    return x.sum(), {"b": (x, [x + 1, 3.0]), "a": {"z": x * 2}}


@ts.function
def calls(x: Tensor["B", "D"]):
    found = losses(x)
    found["last"] = found["y"] - x
    return {**found, "x": x}


@ts.function
def chooses(x: Tensor["B", "D"]):
    if x.sum() > 0:
        return {"a": x, "b": x + 1}
    return {"b": x, "a": x - 1}


def same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = tuple(found.values()), tuple(wanted.values())
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            same(f, w)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_values_and_the_order_of_names(target):
    run = ts.compile(losses, target=target, arguments=(X,))
    for _ in range(3):  # the first launch, and the prepared ones
        same(run(X), {"y": X * 2, "loss": np.asarray(30, "f4"), "again": X * 2})
    run = ts.compile(nested, target=target, arguments=(X,))
    wanted = (np.asarray(15, "f4"), {"b": (X, (X + 1, np.asarray(3, "f4"))), "a": {"z": X * 2}})
    for _ in range(3):
        same(run(X), wanted)
        same(nested(X), wanted)


def test_an_inlined_call_gives_the_dict():
    two = X * 2
    wanted = {"y": two, "loss": np.asarray(30, "f4"), "again": two, "last": X, "x": X}
    same(calls(X), wanted)


def test_a_branch_that_is_chosen_by_elements():
    same(chooses(X), {"a": X, "b": X + 1})
    same(chooses(-X), {"a": -X - 1, "b": -X})


def test_on_several_devices():
    @ts.distributed(ts.mesh(2), over="B")
    @ts.function
    def parts(x: Tensor["B", "D"]):
        return {"sum": x.sum(0), "y": (x * 2, x)}

    x = np.ones((4, 3), np.float32)
    same(parts(x), {"sum": np.full(3, 4, "f4"), "y": (x * 2, x)})


def test_a_second_process_takes_it_from_the_cache(tmp_path):
    (tmp_path / "program.py").write_text(
        "import numpy as np\nimport tessera as ts\nfrom tessera import Tensor\n"
        "@ts.function\ndef f(x: Tensor['B']):\n    return {'z': x + 1, 'a': (x, x * 2)}\n"
        "r = f(np.ones(3, np.float32))\n"
        "print(list(r), r['z'].tolist(), [a.tolist() for a in r['a']])\n"
    )
    env = {**os.environ, "TESSERA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run(
            [sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1] == "['z', 'a'] [2.0, 2.0, 2.0] [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]\n"


def test_the_type_is_shown_as_a_record():
    found = analyse(live_definition(losses.__wrapped__))
    shown = [e.text for e in found.expressions if e.kind == "return"]
    assert shown == ["{y: [B, D] f32, loss: [] f32, again: [B, D] f32}"]
    assert len(found.op.region.block.terminator.operands) == 3


@pytest.mark.parametrize("value", [1, (), {}, (1, 2), ((1,), 2), {"b": 1, "a": (2, {"c": 3})}, [1, {"it's \"": 2}]])
def test_taken_apart_and_put_together_again(value):
    structure = structure_of(value)
    assert of_json(json.loads(json.dumps(to_json(structure, str))), str) == structure
    row = in_a_row(value)
    tuples = tuple(value) if isinstance(value, list) else value
    assert assembled(structure, row) == tuples == eval(expression(structure, list(map(str, row)), {}))
