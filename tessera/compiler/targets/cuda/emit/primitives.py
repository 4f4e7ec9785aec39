"""Functions of kernels with an op of their own (`TilePrimitive`): operands in shared memory, a lambda an element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, contiguous_strides, handles
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_tile, shape_of, squeezed
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.primitive import PRIMITIVES, At, Code, Element, ElementWriter, Operand
from tessera.language import dtypes
from tessera.language.dtypes import DType

INDEX = {"iadd": "+", "isub": "-", "imul": "*"}
COMPARE = {"lt": "<", "le": "<=", "eq": "=="}


class ThreadElements(ElementWriter):
    """C++ expressions: indices are of type `ts::idx`."""

    def __init__(self) -> None:
        self.loops = 0

    def fold(self, n: int, start: Element, step: Callable[[At, Element], Element]) -> Element:
        self.loops += 1
        x, j = f"x{self.loops}", f"j{self.loops}"
        after = step(At(self, j), Element(x, start.dtype)).value
        each = f"for (ts::idx {j} = 0; {j} < {n}; ++{j}) {x} = {after};"
        return Element(f"[&] {{ {cxx.type_name(start.dtype)} {x} = {start.value}; {each} return {x}; }}()", start.dtype)

    def scalar(self, name: str, operands: Sequence[Element], dtype: DType, result: DType) -> Element:
        return Element(f"ts::scalar::{name}({', '.join(x.value for x in operands)})", result)

    def number(self, value: bool | int | float, dtype: DType) -> Element:
        return Element(cxx.literal(value, dtype), dtype)

    def cast(self, x: Element, dtype: DType) -> Element:
        return Element(f"ts::cast<{cxx.type_name(dtype)}>({x.value})", dtype)

    def index(self, name: str, a: Code, b: Code) -> Code:
        if isinstance(a, int) and isinstance(b, int):
            known = {"iadd": a + b, "isub": a - b, "imul": a * b, "imin": min(a, b), "imax": max(a, b)}
            return known[name] if name in known else a // b if name == "idiv" else a % b
        if name in INDEX:
            return f"({a} {INDEX[name]} {b})"
        return f"ts::{name}({a}, {b})"

    def compare(self, name: str, a: Code, b: Code) -> Element:
        return Element(f"({a} {COMPARE[name]} {b})", dtypes.bool_)

    def place(self, x: Element) -> At:
        return At(self, f"(ts::idx)({x.value})")

    def counted(self, at: At, dtype: DType) -> Element:
        return Element(f"ts::cast<{cxx.type_name(dtype)}>((ts::i64)({at.value}))", dtype)


@handles("primitive")
def _primitive(e: KernelEmitter, op: Op) -> None:
    definition, v = PRIMITIVES[op.name], op.result
    code = definition.code("cuda", op)
    c, result = ThreadElements(), cxx.type_name(dtype_of(v))
    e.headers.add("elements")
    e.source.write("ts::hw::sync();")
    used, operands = 0, list[Operand]()
    for x in op.operands:
        operands.append(_operand(e, x, used))
        used += -(-math.prod(operands[-1].shape) * dtype_of(x).itemsize // 16) * 16 if is_tile(x) else 0
    e.need_scratch(used)
    e.source.write("ts::hw::sync();")
    kept = squeezed(shape_of(v))
    names = {a: f"at.at[{n}]" for n, a in enumerate(kept)}
    at = [At(c, f"(ts::idx){names[a]}" if a in names else 0) for a in range(len(shape_of(v)))]
    element = code(c, at, *operands, **op.attrs)
    text = element.value if element.dtype == dtype_of(v) else f"ts::cast<{result}>({element.value})"
    if not is_tile(v):
        e.let(v, text, definition.name, result)
        return
    box = f"ts::Box<{', '.join(str(shape_of(v)[a]) for a in kept)}>"
    each = f"[&](const ts::Coordinates<{len(kept)}>& at) {{ return {text}; }}"
    e.let(v, f"ts::each_element<{result}, {e.layout(v)}, {box}>({each})", definition.name)


def _operand(e: KernelEmitter, x: Value, byte: int) -> Operand:
    """A tile in shared memory, in C order from `byte` on; a scalar as it is."""
    shape, dtype = tuple(int(n) for n in shape_of(x)), dtype_of(x)  # type: ignore[arg-type]
    if not is_tile(x):
        text = e.expr(x)
        return Operand(shape, dtype, lambda at: Element(text, dtype))
    name = e.fresh(f"{x.hint or 'x'}_shared")
    e.source.write(f"const {cxx.type_name(dtype)}* {name} = ts::spill({byte}, {e.tile(x)});")
    strides = contiguous_strides(shape)

    def read(at: Sequence[Code]) -> Element:
        steps = [f"{i} * {s}" for i, s, n in zip(at, strides, shape, strict=True) if n != 1]
        return Element(f"ts::hw::load_shared({name} + ({' + '.join(steps)}))", dtype)

    return Operand(shape, dtype, read)
