"""LLVM IR with debug information: each instruction says where it stands, each vector is a variable.

LLVM then tells of every machine instruction which line of the IR it comes from, and of every register and place on the
stack which vector it holds. It promises to write the same instructions as without.
"""

from __future__ import annotations

import re
from typing import Any

_DEFINED = re.compile(r"define .*?@([\w.$]+)\(.*\{$")
_RESULT = re.compile(r"  %([\w.]+) = (\w+)")
_VECTOR = re.compile(r"<|float$|double$|half$|bfloat$")
_METADATA = re.compile(r"^!(\d+) = ", re.MULTILINE)
_TYPES = """\
!llvm.dbg.cu = !{{!{0}}}
!llvm.module.flags = !{{!{1}}}
!{0} = distinct !DICompileUnit(language: DW_LANG_C, file: !{2}, emissionKind: FullDebug, isOptimized: true)
!{1} = !{{i32 2, !"Debug Info Version", i32 3}}
!{2} = !DIFile(filename: "code.ll", directory: "")
!{3} = !DISubroutineType(types: !{{}})
!{4} = !DIBasicType(name: "value", size: 8, encoding: DW_ATE_unsigned)"""


def with_places(text: str, module: Any) -> str:
    """The text of an LLVM module, one instruction on a line, with its lines and vectors as debug information. `module`:
    the same, parsed."""
    types = {f.name: _vectors(f) for f in module.functions if not f.is_declaration}
    first = 1 + max((int(n) for n in _METADATA.findall(text)), default=-1)
    unit, flags, file, signature, value = range(first, first + 5)
    metadata = [_TYPES.format(unit, flags, file, signature, value)]
    number = value + 1

    def node(body: str) -> int:
        nonlocal number
        metadata.append(f"!{number} = {body}")
        number += 1
        return number - 1

    out: list[str] = []
    waiting: list[str] = []
    """of phis, which stand together at the start of a block"""
    scope, own = 0, dict[str, str]()
    for line, written in enumerate(text.splitlines(), 1):
        if defined := _DEFINED.match(written):
            own = types[defined[1]]
            scope = node(
                f'distinct !DISubprogram(name: "{defined[1]}", scope: !{file}, file: !{file}, line: {line}, '
                f"scopeLine: {line}, type: !{signature}, spFlags: DISPFlagDefinition | DISPFlagOptimized, "
                f"unit: !{unit})"
            )
            out.append(f"{written[:-1]}!dbg !{scope} {{")
            continue
        if not scope or not written.startswith("  "):
            scope = 0 if written == "}" else scope
            out.append(written)
            continue
        result = _RESULT.match(written)
        if waiting and not (result and result[2] == "phi"):
            out += waiting
            waiting = []
        here = node(f"!DILocation(line: {line}, column: 1, scope: !{scope})")
        out.append(f"{written}, !dbg !{here}")
        if result and result[1] in own:
            variable = node(
                f'!DILocalVariable(name: "{result[1]}", scope: !{scope}, file: !{file}, line: {line}, type: !{value})'
            )
            named = f"    #dbg_value({own[result[1]]} %{result[1]}, !{variable}, !DIExpression(), !{here})"
            (waiting if result[2] == "phi" else out).append(named)
    return "\n".join([*out, *metadata, ""])


def _vectors(function: Any) -> dict[str, str]:
    """Name -> type of the results that vector registers hold."""
    made = ((i.name, str(i.type)) for block in function.blocks for i in block.instructions if i.name)
    return {name: type for name, type in made if _VECTOR.match(type)}
