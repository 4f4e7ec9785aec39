"""Files as text: nothing runs, edits reach only what depends on them, and places stay right."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tessera.compiler.frontend import moving, result
from tessera.compiler.frontend.incremental import FileAnalysis, analyse_file
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.printer import print_op
from tessera.errors import CompileError
from tessera.language.lazy import LazyModule
from tessera.language.policies import Policy

TEXT = '''"""Ünïcode before code: ✓"""
import math

import tessera as ts
from tessera import Tensor

EPS, WIDTH = 1e-5, 8
SCALE = 1 / math.sqrt(WIDTH)


class Settings:
    heads = 4
    wide = True


def helper(x, k=SCALE):
    return x * k


@ts.function
def first(x: Tensor["B", "D"]):
    é = "ü"; y = helper(x)
    return y.sum(-1)


@ts.function
def second(x: Tensor["B", "D"]):
    m = x.mean(-1)
    return x - m


@ts.function
def third(x: Tensor["B", WIDTH]):
    z = first(x) * Settings.heads
    return z if Settings.wide else x
'''


def read(text: str, file: FileAnalysis | None = None) -> FileAnalysis:
    file = file or FileAnalysis("model.py")
    file.update(text)
    return file


def state(file: FileAnalysis) -> object:
    """All that editors see."""
    return [
        (a.name, a.definition.line, sorted((str(e.span), str(e), e.text) for e in a.expressions), a.diagnostics, a.dims)
        for a in file.analyses
    ]


def by_name(file: FileAnalysis) -> dict[str, Analysis]:
    return {a.name: a for a in file.analyses}


def test_types_of_a_file() -> None:
    found = by_name(read(TEXT))
    assert [e.text for e in found["first"].expressions if e.name == "y"] == ["[B, D] f32"]
    assert [e.text for e in found["third"].expressions if e.name == "z"] == ["[B] f32"]
    assert [d.code for d in found["second"].diagnostics] == ["TS202"]


def test_columns_count_characters() -> None:
    (y,) = [e for e in by_name(read(TEXT))["first"].expressions if e.name == "y" and e.kind == "assign"]
    line = TEXT.split("\n")[y.span.line - 1]
    assert line[y.span.col - 1 : y.span.end_col - 1] == "y"


def test_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "evil.py"
    path.write_text(
        f"""
import evil_module_that_does_not_exist
import tessera as ts
open({str(marker)!r}, "w").write("x")
SIDE = open({str(marker)!r}, "w").write("y")
def payload(x, k=open({str(marker)!r}, "w")):
    open({str(marker)!r}, "w")
    return x
@ts.function
def f(x: ts.Tensor["D"]):
    __import__("os").system("touch {marker}")
    eval("open({str(marker)!r}, 'w')")
    return payload(x * SIDE, evil_module_that_does_not_exist.f())
"""
    )
    analyse_file(path)
    assert not marker.exists() and "evil_module_that_does_not_exist" not in sys.modules


def test_an_edit_in_one_body_analyses_that_body_and_its_callers() -> None:
    file = read(TEXT)
    before = by_name(file)
    file.update(TEXT.replace("x - m", "x + m"))
    after = by_name(file)
    assert before["first"].op is after["first"].op and before["third"].op is after["third"].op
    file.update(TEXT.replace("return x * k", "return x + k"))
    again = by_name(file)
    assert again["first"].op is not after["first"].op and again["third"].op is not after["third"].op


CHAIN = """import tessera as ts
from tessera import Tensor
from functools import lru_cache

BASE = 2
TWICE = BASE * 2
LEFT = RIGHT if BASE > 9 else 1
RIGHT = LEFT + BASE


class Sizes:
    wide = TWICE


def plain(n, more=TWICE):
    return n + BASE


THROUGH = plain(3)


@ts.function
def constant(x: Tensor["B"]):
    return x * TWICE


@ts.function
def member(x: Tensor["B"]):
    return x * Sizes.wide


@ts.function
def called(x: Tensor["B"]):
    return x * THROUGH


@ts.function
def calls(x: Tensor["B"]):
    return x * plain(1)


@ts.function
def circle(x: Tensor["B"]):
    return x * RIGHT


@ts.function
def nothing(x: Tensor["B"]):
    return x * 2
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BASE = 2", "BASE = 3"), ("BASE = 2", "BASE = 2.5"), ("BASE = 2", ""), ("BASE * 2", "BASE * 4"),
        ("n + BASE", "n + 1"), ("more=TWICE", "more=1"), ("wide = TWICE", "wide = 7"),
        ("class Sizes:", "@lru_cache\nclass Sizes:"), ("BASE = 2", "from layers import *"),
        ("BASE = 2", "from layers import BASE"), ("THROUGH = plain(3)", "THROUGH = plain(3)\nBASE = 5"),
    ],
)  # fmt: skip
def test_what_a_name_is_computed_from_changes_who_reads_it(old: str, new: str) -> None:
    file = read(CHAIN)
    for text in (CHAIN.replace(old, new, 1), CHAIN, CHAIN.replace(old, new, 1)):
        fresh = read(text)
        assert state(read(text, file)) == state(fresh)
        assert [print_op(a.op) for a in file.analyses if a.op] == [print_op(a.op) for a in fresh.analyses if a.op]


def test_an_edit_in_one_body_reads_no_other_functions_names(monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen = read(CHAIN), list[object]()

    def counted(value: object) -> str:
        seen.append(value)
        return fingerprint(value)

    monkeypatch.setattr(result, "fingerprint", counted)
    read(CHAIN.replace("x * 2\n", "x * 22\n"), file)
    assert not seen
    read(CHAIN.replace("BASE * 2", "BASE * 4"), file)
    assert len(seen) > 3


def test_what_has_the_names_of_an_array_or_a_function_and_is_none() -> None:
    """A module that is imported late has functions `shape` and `dtype`; the class of functions has a `__code__`."""
    assert fingerprint(LazyModule("numpy")).startswith("LazyModule")
    assert fingerprint(FunctionType) == "type function"


class Slotted:
    __slots__ = ("__own", "plain")

    def __init__(self, plain: int, own: int) -> None:
        self.plain, self.__own = plain, own


def test_objects_count_by_what_they_hold_without_a_dict_too() -> None:
    """Slots, attributes in C, and none that are caches."""
    values = [
        Slotted(1, 1), Slotted(1, 2), Slotted(2, 1), Fraction(1, 2), Fraction(1, 4), Decimal("0.5"), Decimal("0.25"),
        Policy(), Policy(rounding="stochastic"), Policy(saturate=True), Path("a"), Path("b"), re.compile("a"),
        re.compile("b"),
    ]  # fmt: skip
    assert len({fingerprint(v) for v in values}) == len(values)
    path, before = values[10], fingerprint(values[10])
    assert hash(path) is not None and str(path) and fingerprint(path) == before
    assert fingerprint(Slotted(1, 1)) == fingerprint(values[0])


def test_the_decorators_keywords_may_be_names_of_the_module() -> None:
    text = """import tessera as ts
WARPS = 4
@ts.kernel(num_warps=WARPS)
def k(x: ts.Tensor["M", ts.f32], y: ts.Tensor["M", ts.f32]):
    i = ts.tile.linear_id()
    if i < M:
        y[i] = x[i]
"""
    files = FileAnalysis("warps.py")
    for warps in (4, 8):
        (analysis,) = files.update(text.replace("WARPS = 4", f"WARPS = {warps}"))
        assert analysis.op is not None and analysis.op.attrs["num_warps"] == warps


def test_a_coordinate_that_the_module_comes_to_define() -> None:
    text = """import tessera as ts

@ts.kernel
def double(x: ts.Tensor["M", "N"], y: ts.Tensor["M", "N"]):
    y[tile_m, :] = x[tile_m, :] * 2
"""
    file = read(text)
    for now in (text.replace("\n@", "tile_m = 3\n@"), text, text.replace("\n@", "tile_m = 4\n@")):
        (found,), (expected,) = read(now, file).analyses, read(now).analyses
        assert found.op is not None and expected.op is not None
        assert print_op(found.op) == print_op(expected.op)
    assert "tile_m" in dict(read(text).analyses[0].dependencies)


def test_expressions_move_when_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    file, made = read(CHAIN), list[object]()

    def counted(*args: Any) -> result.ExprInfo:
        made.append(args)
        return result.ExprInfo(*args)

    monkeypatch.setattr(moving, "ExprInfo", counted)
    for n in (1, 2, 3):
        read("\n" * n + CHAIN, file)
    assert not made
    assert state(file) == state(read("\n\n\n" + CHAIN)) and len(made) > len(file.analyses)
    seen = len(made)
    assert file.analyses[0].type_at(27, 12) is not None and len(made) == seen


POINTS = """import tessera as ts
from tessera import Tensor

Points = Tensor["T", "N"]


def longer(x):
    return ts.exp(x) * 2


@ts.function
def moved(x: Points, y: Tensor["T"]):
    z = longer(x)
    return z + y[:, None]
"""


def test_a_name_in_an_annotation_that_the_module_comes_to_define() -> None:
    file = read(POINTS.replace('Points = Tensor["T", "N"]\n', ""))
    assert state(read(POINTS, file)) == state(read(POINTS))


@pytest.mark.parametrize(
    "place", ["import tessera as ts\n", "from tessera import Tensor\n", 'Points = Tensor["T", "N"]\n', "@ts.function\n"]
)
def test_each_place_of_an_analysis_moves_with_its_own_text(place: str) -> None:
    """Of annotations that have a name, and of functions that are called, which stand apart."""

    def places(file: FileAnalysis) -> object:
        (found,) = file.analyses
        assert found.op is not None
        inside = [(i.analysis.name, sorted(str(e.span) for e in i.analysis.expressions)) for i in file.inside]
        return state(file), [str(op.span) for op in found.op.walk()], inside

    file = read(POINTS)
    for line in ("\n", "\n\n", ""):
        now = POINTS.replace(place, line + place)
        (before,) = file.analyses
        (found,) = read(now, file).analyses
        assert found.op is before.op  # it is not analysed anew
        assert places(file) == places(read(now))


@pytest.mark.parametrize("seed", range(40))
def test_edited_files_are_analysed_as_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    file, text = read(TEXT), TEXT
    for _ in range(6):
        lines = text.split("\n")
        i = rng.randrange(3, len(lines))
        edit = rng.choice(["insert", "delete", "double", "change", "join", "comment"])
        if edit == "insert":
            lines.insert(
                i, rng.choice(["", "# note", "    ", "    w = x", "N = 3", "@ts.function", "else:", '"""', "x = ("])
            )
        elif edit == "delete":
            del lines[i]
        elif edit == "double":
            lines.insert(i, lines[i])
        elif edit == "change":
            lines[i] = lines[i].replace("x", rng.choice(["x", "y", "x.T", "(x", "x]"]), 1)
        elif edit == "join":
            lines[i - 1 : i + 1] = [lines[i - 1] + "; " + lines[i].strip()]
        else:
            lines[i] = "#" + lines[i]
        text = "\n".join(lines) if rng.random() < 0.8 else TEXT
        file.update(text)
        fresh = read(text)
        assert [d.message for d in file.problems] == [d.message for d in fresh.problems]
        if not fresh.problems:
            assert state(file) == state(fresh)


def test_analyses_stay_while_the_file_does_not_parse() -> None:
    file = read(TEXT)
    file.update(TEXT + "\ndef broken(:\n")
    assert [d.code for d in file.problems] == ["TS101"] and len(file.analyses) == 3
    assert file.problems[0].span.line == TEXT.count("\n") + 2


def test_bad_files(tmp_path: Path) -> None:
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(CompileError) as e:
        analyse_file(binary)
    assert e.value.code == "TS101"
    with pytest.raises(CompileError):
        analyse_file("x.py", "def f(:\n")
    with pytest.raises(OSError):
        analyse_file(tmp_path / "absent.py")
    bom = tmp_path / "bom.py"
    bom.write_bytes(
        b"\xef\xbb\xbfimport tessera as ts\r\n@ts.function\r\ndef f(x: ts.Tensor['D']):\r\n    return x.sun()\r\n"
    )
    (a,) = analyse_file(bom)
    assert [(d.code, d.span.line, d.span.col) for d in a.diagnostics] == [("TS104", 4, 12)]


def test_type_parameters_and_dialect() -> None:
    (a,) = analyse_file(
        "d.tess",
        """import tessera as ts
from tessera import Tensor, Const, bf16, accum, f32
@ts.function
def block[B, S, D, H](x: Tensor[B, S, D, dtype=bf16, @accum(f32)], heads: Const[H]) -> Tensor[B, S, D]:
    assert D % H == 0
    return x.reshape(B, S, H, D // H).reshape(B, S, H * (D // H))
""",
    )
    assert a.ok and a.op is not None
    assert [e.text for e in a.expressions if e.kind == "return"] == ["[B, S, D] bf16 @accum(f32)"]


def test_methods_nested_functions_and_aliases() -> None:
    found = by_name(
        read("""
import tessera
from tessera import function as compiled, Tensor as T

class Model:
    @compiled
    def forward(self, x: T["B", "D"]):
        y = x.sum(-1)
        return self.head(y)

def factory(width):
    @tessera.jit
    def inner(x: T["B", "D"]):
        z = x * width
        return x @ x
    return inner

if True:
    @tessera.function
    def guarded(x: T["B", "D"]):
        return x.summ()
""")
    )
    assert [e.text for e in found["forward"].expressions if e.name == "y"] == ["[B] f32"]
    assert [d.code for d in found["inner"].diagnostics] == ["TS203"]
    assert [d.code for d in found["guarded"].diagnostics] == ["TS104"]


def test_reading_files_loads_no_heavy_library() -> None:
    program = (
        "import sys\nfrom tessera.compiler.frontend.incremental import FileAnalysis\n"
        f"f = FileAnalysis('m.py'); f.update({TEXT!r})\n"
        "assert len(f.analyses) == 3 and f.diagnostics\n"
        "heavy = {'numpy', 'llvmlite', 'ml_dtypes', 'plotly', 'torch', 'tessera.runtime', 'tessera.compiler.targets'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


DEF = """import tessera as ts
from tessera import Tensor

@ts.{layer}
{text}
"""


@pytest.mark.parametrize(
    ("layer", "text", "code"),
    [
        ("function", 'def p(x: Tensor["B"]):\n    pass', "TS102"),
        ("function", 'def p(x: Tensor["B"]) -> Tensor["B"]:\n    """What it will do."""', "TS102"),
        ("function", 'def p(x: Tensor["B"]):\n    y = x + 1', "TS102"),
        ("kernel", 'def p(x: Tensor["B"]):\n    pass', "TS406"),
    ],
)
def test_a_body_that_gives_nothing(layer: str, text: str, code: str) -> None:
    (analysis,) = analyse_file("bodies.py", DEF.format(layer=layer, text=text))
    (found,) = analysis.diagnostics
    assert found.code == code and "returns nothing" in found.message and not analysis.undecided


@pytest.mark.parametrize("body", [" ...", '\n    """What it will do."""\n    ...'])
def test_a_declaration_is_no_mistake_and_cannot_be_compiled(body: str) -> None:
    (analysis,) = analyse_file("declared.py", DEF.format(layer="function", text=f'def d(x: Tensor["B"]):{body}'))
    (said,) = analysis.undecided
    assert analysis.ok and analysis.op is None
    assert said.code == "TS102" and "only declared" in said.message


@pytest.mark.parametrize("head", ["async def f", "async   def  f", "def f", "    async def de"])
def test_findings_about_a_function_underline_its_name(head: str) -> None:
    indent = head[: len(head) - len(head.lstrip())]
    wrapped = "class C:\n" if indent else ""
    text = f"import tessera as ts\n{wrapped}{indent}@ts.function\n{head}(x):\n{indent}    return None\n"
    (analysis,) = analyse_file("named.py", text)
    span = analysis.definition.span
    name = head.split()[-1]
    assert text.split("\n")[span.line - 1][span.col - 1 : span.end_col - 1] == name
    assert span.col == len(head) - len(name) + 1
    assert all(d.span == span for d in analysis.diagnostics if d.message.startswith(f"{name} is async"))


def test_an_item_that_is_stored_binds_no_name() -> None:
    text = DEF.format(layer="kernel", text='def k(x: Tensor["N", ts.f32]):\n    x[tile_n : tile_n + 4] = 1.0\n')
    file = read(text)
    assert not file.diagnostics
    file.update(text + "table = {}\ntable[tile_n] = 3\n")
    assert not file.diagnostics and not read(file.text).diagnostics
