"""Texts that do not parse: what can be read is, one finding for each place, and the same from scratch as by edits."""

from __future__ import annotations

import ast
import random

import pytest

from tessera.compiler.frontend.incremental import FileAnalysis

TEXT = '''"""Ünïcode before code: ✓"""
import tessera as ts
from tessera import Tensor

HEADS = 4


class Settings:
    heads = 4
    wide = True


def scaled(q, k):
    """Scores of
attention."""
    return q @ k.mT * 0.5


@ts.function
def attend(
    x: Tensor["B", "S", "D"],
    w: Tensor["D", "D"],
) -> Tensor["B", "S", "S"]:
    é = "ü"; q = x @ w
    k = ts.gelu(
        x @ w
    )
    for i in range(2):
        if i:
            k = k * 2
        else:
            k = k + 1
    scores = scaled(q, k)
    return scores


@ts.function
def mean(x: Tensor["B", "D"]):
    m = x.mean(-1)
    s = x.sum(0)
    return m, s
'''


def read(text: str, *before: str) -> FileAnalysis:
    file = FileAnalysis("model.py")
    for t in (*before, text):
        file.update(t)
    return file


def hints(file: FileAnalysis) -> dict[tuple[str, str], str]:
    """The last type of each name, by function."""
    return {(a.name, e.name): e.text for a in file.analyses for e in a.expressions if e.kind in ("assign", "param")}


WHOLE = hints(read(TEXT))


@pytest.mark.parametrize(
    ("old", "new", "line", "lost"),
    [
        ("q = x @ w\n", "q = x @\n", 24, {"q"}),
        ("        x @ w\n    )\n", "        x @ w\n", 25, {"k"}),
        ("import tessera as ts", "import tessera a ts", 2, set()),
        ("import Tensor", "import Tensor,,", 3, set()),
        ("HEADS = 4", "HEADS = (4", 5, set()),
        ("class Settings:", "class Settings", 8, set()),
        ("def scaled(q, k):", "def scaled(q, k:", 13, set()),
        ("    return q @ k", "    return q @ (k", 16, set()),
        ("@ts.function\ndef attend", "@ts.\ndef attend", 19, set()),
        ('"S", "D"],', '"S", "D",', 23, {"x", "w"}),
        ("for i in range(2):", "for i in range(2:", 28, set()),
        ("        if i:", "        if i", 29, set()),
        ("        else:", "        els:", 31, set()),
        ("        else:", "        )else:", 31, set()),
        ("        else:", '        "else:', 31, set()),
        ("    m = x.mean(-1)", "      m = x.mean(-1)", 39, set()),
        ("    s = x.sum(0)", "s = x.sum(0)", 40, set()),
        ("    return m, s\n", "return m, s\n    HEADS\n", 41, set()),
        ("    s = x.sum(0)", '    s = """x.sum(0)', 40, {"s"}),
        ("    s = x.sum(0)", "    s = x.sum(0\n    t = 1", 40, {"s"}),
    ],
)
def test_one_broken_place(old: str, new: str, line: int, lost: set[str]) -> None:
    """One finding, where it is; everything stays known but what the broken statement itself assigned."""
    assert TEXT.count(old) == 1
    file = read(TEXT.replace(old, new), TEXT)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", line)], [str(d) for d in file.diagnostics]
    now = hints(file)
    assert now.items() <= WHOLE.items() | {(("mean", "t"), "1")}
    assert {name for _, name in WHOLE.keys() - now.keys()} <= lost
    file.update(TEXT)
    assert not file.diagnostics and hints(file) == WHOLE


@pytest.mark.parametrize(
    "above", ["    k = ts.gelu(", "    for i in", "    return scores", "HEADS = 4", "    s = x.sum(0)"]
)
@pytest.mark.parametrize(
    "typed",
    ["ts.softmax(", "y =", "y = ts.", "def f(", "def f", 'y = f"{', 'y = f"{ts.', "@", "@ts.", "return", "return (",
     "raise ts.", "for j in", "for j in x:", "while ", "if", "if y:", "else:", "try:", "with ", "match y:",
     'y: Tensor["B', "if (y := ", "y = lambda a:", "y = [a for a in", "y = {", "import ", "from tessera import (",
     "class C:", "      y = 1", "\t\t\ty = (", "\ty = (", "(", "]", "?"],
)  # fmt: skip
def test_a_line_that_is_being_typed(above: str, typed: str) -> None:
    """Nothing that stands around it changes, whatever a new line begins with."""
    rows = TEXT.split("\n")
    at = next(i for i, row in enumerate(rows) if row.startswith(above))
    indent = rows[at][: len(rows[at]) - len(rows[at].lstrip())]
    file = read("\n".join([*rows[:at], indent + typed, *rows[at:]]), TEXT)
    if file.problems:  # else: a `return`, which means what it says
        assert [d.span.line for d in file.problems] == [at + 1], [str(d) for d in file.problems]
        assert {d.span.line for d in file.diagnostics} == {at + 1}, [str(d) for d in file.diagnostics]
        assert hints(file).items() >= WHOLE.items()
    else:
        assert typed == "return"


def test_a_broken_guard_still_guards() -> None:
    """What stands below `if x is None: raise ...` is not read with None while the `raise` is being typed."""
    text = """import tessera as ts
from tessera import Tensor


@ts.function
def f(x: Tensor["N"], y: Tensor["N"] | None):
    if y is None:
        raise ValueError("y")
    return x + y
"""
    file = read(text.replace('ValueError("y")', "ValueError("), text)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", 8)], [str(d) for d in file.diagnostics]


HEADS = """import tessera as ts
from tessera import Tensor


@ts.function
def gated(
    x: Tensor["B", "D"], up: Tensor["D", "F"], down: Tensor["F", "D"]
) -> Tensor["B", "D"]:
    hidden = x @ up
    for i in range(2):
        if i:
            twice = hidden * 2
            hidden = twice
        other = hidden + 1
    return other @ down


@ts.function
def mean(x: Tensor["B", "D"]):
    m = x.mean(-1)
    return m
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "lost"),
    [
        ('x: Tensor["B", "D"], up', 'x: Tensor)["B", "D"], up', 8, {"x", "up", "down"}),
        ('x: Tensor["B", "D"], up', 'x: Tensor["B", "D", up', 8, {"x", "up", "down"}),
        ('x: Tensor["B", "D"], up: Tensor["D", "F"], down: Tensor["F", "D"]', 'x: Tensor["B', 7, {"x", "up", "down"}),
        ("def gated(\n", "def gated\n", 8, {"x", "up", "down"}),
        (') -> Tensor["B", "D"]:', ') -> Tensor["B", "D"]:}', 8, {"x", "up", "down"}),
        (') -> Tensor["B", "D"]:', ') -> Tensor["B", "D"]', 8, {"x", "up", "down"}),
        (') -> Tensor["B", "D"]:', ' -> Tensor["B", "D"]:', 6, {"x", "up", "down"}),
        (') -> Tensor["B", "D"]:', '[) -> Tensor["B", "D"]:', 8, {"x", "up", "down"}),
        (') -> Tensor["B", "D"]:', '") -> Tensor["B", "D"]:', 8, {"x", "up", "down"}),
        ("@ts.function\ndef gated", ")@ts.function\ndef gated", 5, set()),
        ("@ts.function\ndef mean", "'@ts.function\ndef mean", 18, set()),
        ("@ts.function\ndef mean", "(@ts.function\ndef mean", 18, set()),
        ("def mean", "[def mean", 19, {"x"}),
        ("def mean", "'def mean", 19, {"x"}),
        ("    for i", "    }for i", 10, set()),
        ("    for i", "for i", 10, set()),
        ("        if i:", "if i:", 11, set()),
        ("        if i:", "    if i:", 11, set()),
        ("        other", "other", 14, set()),
        ("        other", "            else:\n            hidden = x @ up\n        other", 14, set()),
        ("            twice", "twice", 12, set()),
        ("        if i:\n            twice", "        if i:\n    twice", 12, set()),
        ("    return other @ down", "     return other @ down", 15, set()),
        ("    return other @ down", "     other @ down", 15, set()),
    ],
)
def test_heads_with_a_mistake(old: str, new: str, line: int, lost: set[str]) -> None:
    """A suite stays with its head whatever is wrong with its parameters, what stands before it, or its indent."""
    assert HEADS.count(old) == 1
    file, before = read(HEADS.replace(old, new), HEADS), hints(read(HEADS))
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", line)], [str(d) for d in file.diagnostics]
    now = hints(file)
    assert now.items() <= before.items() and {name for _, name in before.keys() - now.keys()} <= lost


def test_a_first_statement_indented_too_far() -> None:
    """Nor does what it opens have a suite then: the statements below tell how far a suite is indented."""
    text = """import tessera as ts
from tessera import Tensor


@ts.function
def f(x: Tensor["B", "D"]):
    if D % 8:
        raise ValueError("D")
    m = x.mean(-1)
    return m * 2
"""
    file = read(text.replace("    if D", "        if D"), text)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", 8)], [str(d) for d in file.diagnostics]
    assert hints(file) == hints(read(text))


@pytest.mark.parametrize("typed", ["try:", "with ", "match y:\n            case", "y = (x +\n            1", "while "])
def test_what_is_typed_before_a_clause(typed: str) -> None:
    """An `else` stays that of its `if`."""
    file = read(TEXT.replace("        else:", f"        {typed}\n        else:"), TEXT)
    assert {d.span.line for d in file.diagnostics} <= {31, 32}, [str(d) for d in file.diagnostics]
    assert hints(file) == WHOLE


def test_an_else_within_a_loop_is_a_mistake_of_its_own() -> None:
    file = read(TEXT.replace("    for i in range(2):\n", "    for i in range(2):\n        else:\n"), TEXT)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", 29)] and hints(file) == WHOLE


def test_a_guard_without_what_it_does_still_guards() -> None:
    """What a size is known to divide stays known while the `raise` is being written."""
    file = read(TILES.replace('        raise ValueError("heads")', "        "), TILES)
    assert hints(file) == hints(read(TILES)) and {d.code for d in file.diagnostics} == {"TS101"}


def test_what_stands_before_a_line_indented_too_far() -> None:
    """It is the line without a suite that is astray, and not the one between it and the class above."""
    text = "class C:\n    a = 1\n\n\nN = C()\n\n\n    def f(x):\n    return x\n"
    file = read(text)
    assert [d.span.line for d in file.problems] == [8] and "N" in file.scope.bound


TILES = """import tessera as ts
from tessera import Tensor


@ts.kernel
def attend(q: Tensor["S", "D", ts.f16], k: Tensor["S", "D", ts.f16], v: Tensor["S", "D", ts.f16]):
    for start in ts.tile.range(0, S, 64):
        total = ts.tile.zeros((64,), ts.f32)
        acc = ts.tile.zeros((64, D), ts.f32)
        for at in ts.tile.range(0, S, 64):
            p = ts.tile.exp(ts.tile.mma(q[start : start + 64], k[at : at + 64].T))
            shrink = ts.tile.exp(ts.tile.row_sum(p))
            total = total * shrink + ts.tile.row_sum(p)
            acc = acc * shrink + ts.tile.mma(ts.tile.cast(p, ts.f16), v[at : at + 64])
        return acc / total


@ts.kernel
def gemm(a: Tensor["M", "K", ts.f16], b: Tensor["K", "N", ts.f16], c: Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(a[tile_m : tile_m + 64, k : k + 32], b[k : k + 32, tile_n : tile_n + 64])
    half = acc * 0.5
    c[tile_m : tile_m + 64, tile_n : tile_n + 64] = half


@ts.function
def repeated(x: Tensor["H", "D"], y: Tensor["K", "D"]):
    if H % K:
        raise ValueError("heads")
    times = H // K
    y = ts.repeat(y, times, axis=0)
    return x + y
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("shrink = ts.tile.exp(", "shrink = ts.tile.exp((", 12),
        ("total = total * shrink", "total = total * (shrink", 13),
        ("total = total * shrink", "total (= total * shrink", 13),
        ("acc = ts.tile.zeros((64, D), ts.f32)\n    ", "acc = ts.tile.zeros((64, D), ts.f32)", 9),
        ("acc = ts.tile.zeros((64, 64), ts.f32)\n", "acc = ts.tile.zeros((64, 64), ts.f32)", 20),
        ("ts.tile.mma(a[tile_m", "ts.tile.mma(a[{tile_m", 22),
        ("    half = ", "half = ", 23),
        ("            total = total", "        total = total", 13),
        ("    y = ts.repeat", "        y = ts.repeat", 32),
        ("        raise ValueError", "    raise ValueError", 30),
    ],
)
def test_nothing_is_said_but_of_the_broken_place(old: str, new: str, line: int) -> None:
    """What a loop makes of a tile is not known where a part of it is not, nor what a lost head stands behind."""
    assert TILES.count(old) == 1 and not read(TILES).diagnostics
    file = read(TILES.replace(old, new), TILES)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", line)], [str(d) for d in file.diagnostics]


def test_what_was_never_right_is_unknown() -> None:
    """Nothing is guessed about a statement that has not been seen whole, nor about what depends on it."""
    file = read(TEXT.replace("q = x @ w\n", "q = x @\n"))
    assert WHOLE.items() - hints(file).items() == {(("attend", "q"), WHOLE["attend", "q"])} | {
        (("attend", "scores"), WHOLE["attend", "scores"])
    }
    added = read(TEXT.replace("    s = x.sum(0)", "    m = m.\n    s = x.sum(0)").replace("m, s", "m + 1, s"), TEXT)
    assert ("mean", "s") in hints(added)
    assert not [e for a in added.analyses for e in a.expressions if a.name == "mean" and e.kind == "return"]


def test_several_places_each_have_their_finding() -> None:
    broken = (
        TEXT.replace("q = x @ w\n", "q = x @\n").replace("m = x.mean(-1)", "m = x.mean(-1").replace("= 4\n\n", "=\n\n")
    )
    file = read(broken, TEXT)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", 5), ("TS101", 24), ("TS101", 39)]
    assert [(d.code, d.span.line) for d in read(broken).diagnostics] == [("TS101", 5), ("TS101", 24), ("TS101", 39)]


def test_words_of_a_docstring_without_its_quotes() -> None:
    """Also where its second line stands at the margin, and so cuts the function in two."""
    file = read(TEXT.replace('    """Scores of', "    Scores of"), TEXT)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", 14), ("TS101", 15)]
    assert hints(file)["mean", "s"] == WHOLE["mean", "s"]


def test_findings_elsewhere_in_a_broken_function_stay() -> None:
    wrong = TEXT.replace("s = x.sum(0)", "s = x @ x")
    file = read(wrong.replace("m = x.mean(-1)", "m = x.mean("), wrong)
    assert [d.code for d in file.diagnostics] == ["TS101", "TS203"]


LINES = ["", "# note", "    ", "    w = x", "N = 3", "@ts.function", "else:", '"""', "x = (", "    )", "'''", "x = \\",
         "  y = x", "if x:", "    for i in range(3):", "\tz = x"]  # fmt: skip


def edited(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    i = rng.randrange(3, len(lines))
    match rng.randrange(8):
        case 0:
            lines.insert(i, rng.choice(LINES))
        case 1:
            del lines[i]
        case 2:
            lines.insert(i, lines[i])
        case 3:
            lines[i] = lines[i].replace("x", rng.choice(["y", "x.T", "(x", "x]"]), 1)
        case 4:
            lines[i - 1 : i + 1] = [lines[i - 1] + "; " + lines[i].strip()]
        case 5:
            lines[i] = lines[i][: rng.randrange(len(lines[i]) + 1)]
        case 6:
            lines[i] = rng.choice([" ", "    ", ""]) + lines[i].lstrip()
        case _:
            lines[i] = "#" + lines[i]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(40))
def test_findings_depend_on_the_text_alone(seed: int) -> None:
    """Edits upon edits: the same findings as from scratch, and none of TS101 exactly where Python's parser has none."""
    rng = random.Random(seed)
    file, text = read(TEXT), TEXT
    for _ in range(8):
        text = edited(rng, text) if rng.random() < 0.85 else TEXT
        file.update(text)
        fresh = read(text)
        assert [(d.span, d.message) for d in file.problems] == [(d.span, d.message) for d in fresh.problems], text
        assert not any(d.code == "TS900" for d in file.diagnostics), text
        try:
            ast.parse(text)
        except SyntaxError:
            assert file.problems, text
        else:
            assert not file.problems, text
            assert file.diagnostics == fresh.diagnostics and hints(file) == hints(fresh), text


@pytest.mark.parametrize(
    "text",
    ["(" * 3000, "if 1:\n" + "".join("    " * i + "if 1:\n" for i in range(1, 1000)), "\0", "@", "@\n@\n@",
     "def f(:\n\t  x\n  \ty\n", "class", "else:\n  else:\n", '"""', "'" * 7, "\f\f  x = (\n", "    x = (\n  y\n",
     "\\", "x = \\\n", "é = (é\n", "async def f(\n  x\n", "try:\n  x = (\nfinally\n  y\nexcept\n  z",
     "match x:\n  case (:\n    pass\n", "for\n  x", "x:\n y:\n  z(:"],
)  # fmt: skip
def test_any_text_is_read(text: str) -> None:
    file = read("import tessera as ts\n" + text)
    assert file.problems, text
    assert all(d.code == "TS101" and d.span.line > 1 for d in file.problems)
    file.update("import tessera as ts\nx = 1\n" + text)
    assert file.problems


def test_type_parameters_move_with_their_function() -> None:
    text = "import tessera as ts\n\n\n@ts.function\ndef f[B, D](x: ts.Tensor[B, D]):\n    return x.sum(0)\n"
    file = read("\n\n" + text, text)
    (analysis,) = file.analyses
    assert [p.lineno for p in analysis.definition.tree.type_params] == [7, 7]
    assert {s.line for s in analysis.dims.values()} == {7}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('y: Tensor["N"]) -> Tensor["N"]:', 'y: Tensor["N"'),
        ("scale(x:", "scale"),
        ('["N"]:', '["N"]:('),
        ('["N"]:', '["N"]'),
    ],
)
def test_parameters_below_each_other(old: str, new: str) -> None:
    """Lines indented further than the suite belong to a head that does not say where it ends."""
    text = """import tessera as ts
from tessera import Tensor


@ts.function
def scale(x: Tensor["N"],
          y: Tensor["N"]) -> Tensor["N"]:
    s = x + y
    return s
"""
    assert text.count(old) == 1
    file = read(text.replace(old, new), text)
    assert len(file.problems) == 1 and len(file.diagnostics) == 1, [str(d) for d in file.diagnostics]
    assert hints(file)["scale", "s"] == "[N] f32"


KERNEL = """import tessera as ts


@ts.kernel
def gemm(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    left = ts.tile.alloc_shared((64, 32), ts.f32)
    right = ts.tile.alloc_shared((32, 64), ts.f32)
    acc = ts.tile.zeros((64, 64))
    for k in ts.tile.range_k(0, K, 32):
        ts.tile.cp_async(left, A[tile_m:tile_m+64, k:k+32])
        ts.tile.cp_async(right, B[k:k+32, tile_n:tile_n+64])
        ts.tile.barrier()
        acc += ts.tile.mma(left, right)
    return acc


@ts.kernel
def add(A: ts.Tensor["M", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    C[tile_m:tile_m+64, tile_n:tile_n+64] += A[tile_m:tile_m+64, tile_n:tile_n+64]
    last = 1
"""


@pytest.mark.parametrize("line", range(6, 13))
@pytest.mark.parametrize("stray", "([)'")
def test_a_kernel_with_a_broken_line(line: int, stray: str) -> None:
    """What the line may have read is not said to be unread, and where the result goes is not called unknown."""
    lines = KERNEL.split("\n")
    at = lines[line - 1].index("ts.tile")
    lines[line - 1] = lines[line - 1][:at] + stray + lines[line - 1][at:]
    file = read("\n".join(lines), KERNEL)
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS101", line)], [str(d) for d in file.diagnostics]
    assert hints(file).items() <= hints(read(KERNEL)).items()


def test_elements_have_no_hint_in_a_broken_kernel_either() -> None:
    file = read(KERNEL.replace("last = 1", "last = (1"), KERNEL)
    assert {name for a, name in hints(file) if a == "add"} == {"A", "C"}


def test_a_reading_that_is_given_up_leaves_the_old_tree_alone() -> None:
    """A key pressed and taken back before the first text has been read: nothing has moved."""
    broken = HEADS.replace("def gated(", "def gated((").replace("hidden = x @ up", "hidden = x @")
    file = read(broken, HEADS)
    before = hints(file), [(e.span, e.text) for a in file.analyses for e in a.expressions], file.problems
    longer = broken.replace("import Tensor\n", "import Tensor\n\n\n").replace("def gated", "\ndef gated")
    for pauses in range(1, 12):
        steps = file.steps(longer)
        for _ in range(pauses):
            next(steps, None)
        steps.close()
        file.update(broken)
        assert before == (hints(file), [(e.span, e.text) for a in file.analyses for e in a.expressions], file.problems)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('bias: Tensor["F"]', 'bias: Tensor["F"'),
        ('bias: Tensor["F"]', 'bias: Tensor["F"]\n    more:'),
        ("Feed:\n", "Feed\n"),
    ],
)
def test_a_class_with_a_broken_field(old: str, new: str) -> None:
    """Its fields count as they were; those of a class never seen whole are unknown, and not missing."""
    text = """from dataclasses import dataclass
import tessera as ts
from tessera import Tensor


@dataclass
class Feed:
    up: Tensor["D", "F"]
    bias: Tensor["F"]


@ts.function
def f(x: Tensor["B", "D"], feed: Feed):
    y = x @ feed.up + feed.bias
    return y
"""
    broken = text.replace(old, new, 1)
    file = read(broken, text)
    assert [d.code for d in file.diagnostics] == ["TS101"], [str(d) for d in file.diagnostics]
    assert hints(file)["f", "y"] == "[B, F] f32"
    assert [d.code for d in read(broken).diagnostics] == ["TS101"]


def test_byte_order_marks_where_none_belong() -> None:
    """Edits of a text of which only Python's parser knows what is wrong come to an end, and say what is said afresh."""
    marked = "\ufeff" + TEXT + "\ufeff"
    file = read(" " + marked, marked, TEXT + "\ufeff")
    assert file.problems and file.problems == read(" " + marked).problems
    assert read(TEXT + "\ufeff", TEXT).problems == read(TEXT + "\ufeff").problems != []
    file.update(TEXT)
    assert not file.problems and hints(file) == WHOLE


ABOVE = "import tessera as ts\nfrom tessera import Tensor\n\n\n"
SUMS = '@ts.function\ndef f(x: Tensor["B", "D"]):\n    y = x.sum(0)\n    return y\n'


@pytest.mark.parametrize(
    ("above", "decorators", "line"),
    [
        (ABOVE, "    ", 5),
        (ABOVE + "def g(x):\n    return x\n\n\n", "    ", 9),
        (ABOVE + SUMS.replace("f(", "g(") + "\n\n", "        @ts.numerics(fast=False)\n    ", 11),
        (ABOVE, "@ts.numerics(fast=False)\n    ", 6),
    ],
)
def test_a_decorator_indented_too_far(above: str, decorators: str, line: int) -> None:
    """It belongs to the function right below it, whether or not that could be read before."""
    for file in (read(above + decorators + SUMS), read(above + decorators + SUMS, above + SUMS)):
        said = "this line is not indented like the lines around it"
        assert [(d.span.line, d.message) for d in file.diagnostics] == [(line, said)]
        assert hints(file)["f", "y"].startswith("[D] f32")


def test_a_half_typed_decorator_at_the_end_of_a_class_is_the_class_s() -> None:
    file = read(ABOVE + "class A:\n    a = 1\n\n    @ts.kernel\n\n\n" + SUMS)
    assert [d.code for d in file.diagnostics] == ["TS101"]
    assert hints(file)["f", "y"] == "[D] f32"


@pytest.mark.parametrize("typed", ["case", "case 1:", "case 1:\n            z = 1\n        case [a, *", "case A(x"])
def test_a_half_typed_match_is_one_place(typed: str) -> None:
    broken = ABOVE + SUMS.replace("    return", f"    match y:\n        {typed}\n    return")
    for file in (read(broken), read(broken, ABOVE + SUMS)):
        assert len(file.diagnostics) == 1 and file.diagnostics[0].code == "TS101", file.diagnostics
        assert hints(file)["f", "y"] == "[D] f32"


@pytest.mark.parametrize("word", ["if x:", "def f():", "class A:"])
def test_deeper_than_python_reads(word: str) -> None:
    """One finding where the last level is that Python takes; what stands above and below is known as ever."""
    nested = "".join("  " * i + word + "\n" for i in range(1000)) + "  " * 1000 + "y = (\n"
    file = read(ABOVE + nested + SUMS, ABOVE + SUMS)
    assert [(d.span.line, d.message) for d in file.diagnostics] == [(105, "too many levels of indentation")]
    assert hints(file)["f", "y"] == "[D] f32"
    less = "".join("  " * i + word + "\n" for i in range(50)) + "  " * 50 + "y = (\n"
    assert [d.span.line for d in read(ABOVE + less + SUMS).diagnostics] == [55]


def test_a_kernel_that_is_no_longer_one() -> None:
    """Its text below the decorator is the same, and yet those who call it are to be looked at again."""
    caller = '\n\n@ts.function\ndef g(x: Tensor["N"]):\n    y = twice(x)\n    return y\n'
    kernel = '@ts.kernel\ndef twice(x: Tensor["N"]) -> Tensor["N"]:\n    return ts.tile.load(x) * 2\n'
    text = ABOVE + kernel + caller
    file = read(text.replace("@ts.kernel", "ts.kernel"), text)
    fresh = read(text.replace("@ts.kernel", "ts.kernel"))
    assert file.diagnostics == fresh.diagnostics != read(text).diagnostics == []
    assert hints(file) == hints(fresh)
