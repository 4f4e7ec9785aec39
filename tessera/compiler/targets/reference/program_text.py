"""A Program as JSON text and back, with every op's source span: what the reference target's artefacts hold."""

from __future__ import annotations

import base64
import importlib
import json
from typing import Any

from tessera.compiler.ir.parser import parse_op
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.spec import SPECS
from tessera.compiler.tile.program import Branch, Buffer, BufferArg, Launch, Loop, Program, ScalarArg, Step
from tessera.compiler.unit import Param
from tessera.errors import Span
from tessera.language import dims, dtypes
from tessera.language.dims import Dim


def encode(program: Program) -> bytes:
    """Everything that running it needs; launch-time checks stay with the caller."""
    data = {
        "name": program.name,
        "params": [[p.name, _shape(p.shape), p.dtype.name, p.writes, p.optional] for p in program.params],
        "buffers": [
            [
                b.id,
                b.name,
                _shape(b.shape),
                b.dtype.name,
                b.role,
                b.param,
                base64.b64encode(b.data).decode() if b.data else None,
            ]
            for b in program.buffers
        ],
        "steps": [_step(s) for s in program.steps],
        "outputs": program.outputs,
        "free": program.free,
        "span": _span(program.span),
    }
    return json.dumps(data).encode()


def decode(text: bytes) -> Program:
    data: dict[str, Any] = json.loads(text)
    params = tuple(Param(n, _read_shape(s), dtypes.BY_NAME[d], w, o) for n, s, d, w, o in data["params"])
    buffers = tuple(
        Buffer(
            i, n, _read_shape(s) or (), dtypes.BY_NAME[d], role, param, base64.b64decode(content) if content else None
        )
        for i, n, s, d, role, param, content in data["buffers"]
    )
    steps = tuple(map(_read_step, data["steps"]))
    return Program(
        data["name"], params, buffers, steps, tuple(data["outputs"]), tuple(data["free"]), span=_read_span(data["span"])
    )


def _shape(shape: tuple[Dim, ...] | None) -> list[Any] | None:
    return None if shape is None else [_dim(d) for d in shape]


def _read_shape(shape: list[Any] | None) -> tuple[Dim, ...] | None:
    return None if shape is None else tuple(map(_read_dim, shape))


def _dim(d: Dim) -> int | str:
    return d if isinstance(d, int) else str(d)


def _read_dim(d: int | str) -> Dim:
    return d if isinstance(d, int) else dims.parse(d)


def _span(s: Span | None) -> list[Any] | None:
    return None if s is None else [s.file, s.line, s.col, s.end_line, s.end_col]


def _read_span(s: list[Any] | None) -> Span | None:
    return None if s is None else Span(*s)


def _step(step: Step) -> list[Any]:
    match step:
        case Launch():
            args = [
                ["buffer", a.buffer, _dim(a.offset)] if isinstance(a, BufferArg) else ["scalar", a.param, a.dtype.name]
                for a in step.args
            ]
            return [
                "launch",
                print_op(step.kernel, locations=True),
                args,
                _span(step.span),
                _dim(step.flops),
                _dim(step.bytes),
                step.label,
            ]
        case Branch():
            return ["branch", step.cond, [_step(s) for s in step.then], [_step(s) for s in step.orelse]]
        case Loop():
            return ["loop", step.cond, [_step(s) for s in step.head], [_step(s) for s in step.body], step.turns]


def _read_turns(data: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, data))


def _read_step(data: list[Any]) -> Step:
    kind, *rest = data
    if kind != "launch":
        cond, *parts = rest
        first, second = (tuple(map(_read_step, part)) for part in parts[:2])
        return Branch(cond, first, second) if kind == "branch" else Loop(cond, first, second, _read_turns(parts[2]))
    kernel, args, span, flops, bytes_, label = rest
    bound = tuple(
        BufferArg(a[1], _read_dim(a[2])) if a[0] == "buffer" else ScalarArg(a[1], dtypes.BY_NAME[a[2]]) for a in args
    )
    where = _read_span(span)
    assert where is not None
    found = parse_op(kernel)
    if any(op.name not in SPECS for op in found.walk()):
        importlib.import_module("tessera.compiler.frontend.kernel.builtins")  # those that bring ops of their own
    return Launch(found, bound, where, _read_dim(flops), _read_dim(bytes_), label)
