"""The panel's contents: shapes beside their lines, IR linked with the source, resources with their reasons."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from tessera_jupyter.findings import changed_lines
from tessera_jupyter.instructions import instruction_mix
from tessera_jupyter.machine_lines import machine_lines
from tessera_jupyter.markup import ir, python
from tessera_jupyter.panel import OutputPanel
from tessera_jupyter.subject import subject

from tessera.compiler.frontend.analyse import analyse
from tessera.errors import Edit, Span, register_source, source_line
from tessera.profiler.views.tiles import view
from tests.conftest import require

CELL = """%%tessera
@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    return (x - mean) * 2
"""
KERNEL = """%%tessera{}
@ts.kernel
def saxpy(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32], alpha: ts.f32) -> Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y
"""


class Tree(HTMLParser):
    """Elements with their classes, attributes and text; fails on markup that is not balanced."""

    VOID = ("br", "img", "rect", "line", "circle")

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict, list[str]]] = []
        self.stack: list[list[str]] = []
        self.feed(markup)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        texts: list[str] = []
        self.elements.append((tag, dict(attrs), texts))
        if tag == "br":
            return
        self.open.append(tag)
        self.stack.append(texts)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.stack.pop()

    def handle_data(self, data):
        for texts in self.stack:
            texts.append(data)

    def by_class(self, name: str) -> list[tuple[dict, str]]:
        return [(a, "".join(t)) for _, a, t in self.elements if name in (a.get("class") or "").split()]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")


def rows_of(html: str) -> dict[str, str]:
    """Line number -> what the Shapes tab says of it."""
    shapes = re.search(r'<pre class="ts-typed".*?</pre>', html, re.S)[0]
    rows = [text.split("│") for _, text in Tree(shapes).by_class("ts-row")]
    return {row[0].split()[0]: row[1].strip() for row in rows}


def test_shapes_stand_beside_their_lines(nb):
    assert rows_of(nb.run(CELL).html) == {
        "2": "",
        "3": "x [B, D] f32",
        "4": "mean [B, 1] f32",
        "5": "→ [B, D] f32",
    }


def test_given_sizes_are_shown(nb):
    assert rows_of(nb.run(CELL.replace("%%tessera", "%%tessera --dims D=8")).html)["4"] == "mean [B, 1] f32"
    assert rows_of(nb.run(CELL.replace("%%tessera", "%%tessera --dims D=8")).html)["3"] == "x [B, 8] f32"


def test_the_markup_is_balanced_and_loads_nothing(nb):
    html = nb.run(CELL.replace("%%tessera", '%%tessera --profile "norm(np.ones((4, 8), np.float32))"')).html
    tree = Tree(html)
    for _, attributes, _ in tree.elements:
        for name, value in attributes.items():
            if name == "src" and value.startswith("data:"):
                continue
            assert name not in ("src", "href") and not name.startswith("on"), (name, value)
    assert not re.search(r"url\(|@import|https?://(?!www.w3.org/2000/svg)", html)


def test_every_level_is_linked_with_the_line_it_comes_from(nb):
    tree = Tree(nb.run(CELL).html)
    levels = {a["data-level"]: text for a, text in tree.by_class("ts-level")}
    assert list(levels) == ["graph", "schedule", "tile", "target"]
    linked = [(a["data-l"].split(), text) for a, text in tree.by_class("ts-l")]
    means = [text for lines, text in linked if lines == ["4"]]
    assert means[0].strip().startswith("4     mean")
    assert any("= sum(" in text for text in means)
    assert any("= reduce(" in text for text in means)
    results = [text for lines, text in linked if lines == ["5"]]
    assert any("= sub(" in text for text in results)
    assert not any("= sum(" in text for text in results)


def test_a_kernel_starts_as_tile_ir(nb):
    tree = Tree(nb.run(KERNEL.format("")).html)
    levels = {a["data-level"]: text for a, text in tree.by_class("ts-level")}
    assert "starts as Tile IR" in levels["graph"]
    assert "func saxpy(" in levels["tile"]


def test_the_code_for_a_gpu_is_linked_down_to_its_instructions(nb):
    require("cuda.bindings")
    nb.run(KERNEL.format(""))
    tree = Tree(nb.run("%tessera ir saxpy --target sm_80").html)
    linked = [text for a, text in tree.by_class("ts-l") if a["data-l"] == "6"]
    assert any("ts::store" in text for text in linked)
    assert any(re.search(r"\bSTG\b", text) for text in linked)
    kernel = next(text for a, text in tree.by_class("ts-kernel"))
    assert re.search(r"registers per thread\d+", re.sub(r"\s+(?=\d)", "", kernel)), kernel
    assert "occupancy" in kernel


FAT = """%%tessera --target sm_80 --dims M=512,N=512,K=512
@ts.kernel
def fat(A: Tensor["M", "K", ts.f16], B: Tensor["K", "N", ts.f16]) -> Tensor["M", "N", ts.f32]:
    a = ts.tile.load(A, shape=(256, 32))
    b = ts.tile.load(B, shape=(32, 256))
    acc = ts.tile.zeros((256, 256), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += ts.tile.mma(ts.tile.load_partition(a, k), ts.tile.load_partition(b, k))
    return acc
"""


def test_the_card_of_a_gpus_kernel_tells_spilled_values_and_sectors(nb):
    require("cuda.bindings")
    nb.run(FAT)
    kernel = next(
        text
        for _, text in Tree(nb.run("%tessera ir fat --target sm_80 --dims M=512,N=512,K=512").html).by_class(
            "ts-kernel"
        )
    )
    kernel = re.sub(r"\s+", " ", kernel)
    assert re.search(r"Spilled values of fat ?static.*acc: 256 x 256 f32, 1024 B a thread, line \d+ ?\d{3}", kernel), (
        kernel
    )
    assert re.search(r"Global memory of fat ?static.*copy ?A f16 ?16 ?16 ?2,048", kernel), kernel


SASS = """
	.section	.text.gemm_kernel,"ax",@progbits
gemm_kernel:
.text.gemm_kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDGSTS.E.BYPASS.128 [R5], desc[UR8][R2.64] ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
.L_x_1:
        /*0030*/                   LDSM.16.M88.4 R8, [R4] ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0050*/                   FFMA R7, R8, R9, R7 ;
        /*0060*/                   MUFU.EX2 R7, R7 ;
        /*0070*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0080*/                   STG.E desc[UR8][R2.64], R7 ;
        /*0090*/                   NOP;
.text.other_kernel:
other_kernel:
        /*0000*/                   EXIT ;
"""


def test_instructions_of_a_gpu_are_counted_by_what_they_use():
    kinds = ("async copy", "shared memory", "tensor core", "float", "special function", "synchronisation")
    want = dict.fromkeys((*kinds, "global memory"), 1) | {"integer, control": 2}
    assert instruction_mix(SASS, {"gemm"}) == {"gemm": want}


def test_instructions_of_what_a_kernel_calls_are_counted_once():
    calling = """
gemm:
	movq	(%rdi), %rax
	callq	micro@PLT
	callq	micro@PLT
	callq	memset@PLT
	retq
micro:
.LBB1_0:
	vfmadd231ps	(%rsi), %zmm0, %zmm1
	jne	.LBB1_0
	retq
other:
	vfmadd231ps	(%rsi), %zmm0, %zmm1
"""
    assert instruction_mix(calling, {"gemm"}) == {"gemm": {"jump": 6, "scalar move": 1, "vector fma": 1}}


def test_the_mix_of_a_product_on_a_cpu_has_its_multiplications(nb):
    cell = """%%tessera --target cpu
@ts.function
def product(a: Tensor[256, 256, ts.f32], b: Tensor[256, 256, ts.f32]):
    return a @ b
"""
    kernel = next(text for _, text in Tree(nb.run(cell).html).by_class("ts-kernel"))
    assert re.search(r"instruction mix.*vector fma \d\d", kernel), kernel


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_kernels_of_an_unrolled_loop_that_are_alike_are_told_once(nb, target):
    cell = f"""%%tessera --target {target}
@ts.function
def steps(a: Tensor[64, 64, ts.f32], w: Tensor[64, 64, ts.f32]):
    for _ in range(20):
        a = ts.softmax(a @ w)
    return a
"""
    tree = Tree(nb.run(cell).html)
    kernel = next(text for _, text in tree.by_class("ts-kernel"))
    assert "40 kernels" in kernel
    assert kernel.count("and 19 alike") == 2 and len(tree.by_class("ts-tiles")) <= 2
    assert kernel.count("are in two kernels") <= 4, "each reason once"


def test_what_an_unrolled_loop_makes_of_one_line_is_one_row_of_the_profile(nb, monkeypatch):
    cell = """%%tessera --profile "steps(np.ones((8, 8), np.float32))"
@ts.function
def steps(a: Tensor["N", "N", ts.f32]):
    for _ in range(20):
        a = ts.softmax(a @ a)
    return a
"""
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    html = nb.run(cell).html
    tables = (t.partition("</table>")[0] for t in html.split('class="ts-rows ts-many"')[1:])
    rows = (re.findall(r"<tr><th>(.*?)</th>", table, re.S) for table in tables)
    kernels = next(others for first, *others in rows if first == "kernel")
    assert len(kernels) == 2 and all("<b>× 20</b>" in row and row.count("<li>") == 20 for row in kernels)
    assert 'data-h="bound by"' in html, "the names of figures, for panels without room for columns"


def test_words_of_pictures_stay_apart_where_pictures_are_taken_out(nb):
    """As in a notebook that is not trusted: of SVG its words are left."""
    html = nb.run(CELL.replace("%%tessera", '%%tessera --profile "norm(np.ones((24, 8), np.float32))"')).html
    words = "\n".join(said for _, said in Tree(html).by_class("ts-for-wide")).splitlines()
    assert {"0", "0 B"} <= {*words}


def test_calls_that_allocated_are_the_users_alone(nb):
    """The magic that ran them is none of the user's lines, though it lies in a checkout and not among libraries."""
    html = nb.run(CELL.replace("%%tessera", '%%tessera --profile "norm(np.ones((64, 64), np.float32))"')).html
    assert "the calls that allocated it" in html and "magics.py" not in html


def test_the_kernel_tab_has_the_sizes_of_the_run(nb):
    cell = """%%tessera --profile "doubled(np.ones((24, 8), np.float32))"
@ts.function
def doubled(x: Tensor["N", "M", ts.f32]):
    return x * 2
"""
    assert nb.run("import numpy as np").error is None
    tree = Tree(nb.run(cell).html)
    ((_, kernel),) = tree.by_class("ts-kernel")
    assert "x [24, 8] f32 -> [24, 8] f32" in kernel and "least traffic B1,536" in kernel
    ((_, shapes),) = tree.by_class("ts-shapes")
    assert "x [N, M] f32" in shapes, "what holds for all sizes"


def test_types_of_a_long_line_stand_below_it(nb):
    cell = """%%tessera
@ts.function
def added(first: Tensor["B", "H", "S", "D", ts.f32], second: Tensor["B", "H", "S", "D", ts.f32]):
    return first + second
"""
    rows = [text for _, text in Tree(nb.run(cell).html).by_class("ts-row")]
    line, below = next(row for row in rows if "def added" in row).rstrip("\n").split("\n")
    assert line.endswith("):") and below.strip().startswith("│ first [B, H, S, D] f32")


def test_a_default_of_a_constant_is_told_as_what_may_be_given_otherwise(nb):
    cell = """%%tessera
@ts.function
def grown(x: Tensor["B", ts.f32], n: ts.Const[int] = 4, scale: float = 2.0):
    return ts.broadcast_to(x, (n, x.shape[0])) * scale
"""
    rows = [text for _, text in Tree(nb.run(cell).html).by_class("ts-row")]
    assert any("x [B] f32" in row and "n 4 unless given" in row for row in rows), rows


def test_the_instruction_mix_of_a_gemm_for_a_gpu(nb):
    require("cuda.bindings")
    gemm = """%%tessera --target sm_80
@ts.kernel
def gemm(A: Tensor["M", "K", ts.bf16], B: Tensor["K", "N", ts.bf16]) -> Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((64, 64))
    acc += ts.tile.mma(A[tile_m : tile_m + 64, tile_k : tile_k + 32], B[tile_k : tile_k + 32, tile_n : tile_n + 64])
    return acc
"""
    ran = nb.run(gemm)
    assert ran.text.startswith("kernel gemm: A [M, K] bf16, B [K, N] bf16 -> [M, N] f32")  # not a program's part of it
    kernel = next(text for _, text in Tree(ran.html).by_class("ts-kernel"))
    assert re.search(r"instruction mix.*tensor core \d+", kernel), kernel
    # where its tiles lie, and what was decided
    ((_, table),) = Tree(ran.html).by_class("ts-tiles")
    assert re.search(r"acc\d+64 x 64 f32registers32 registers per threadtensor-core fragment over \d x \d warps", table)
    assert re.search(
        r"A_ahead\d+64 x 32 bf16shared memory8192 B per block16-byte pieces swapped by xor .*2 stages", table
    )
    ((_, notes),) = Tree(ran.html).by_class("ts-notes")
    assert (
        "A_ahead, B_ahead: copied 1 step ahead, in 2 stages" in notes and "A is not moved 8 elements at a time" in notes
    )


def test_a_card_is_shown_before_its_machine_code_is_read(nb, monkeypatch, tmp_path):
    """And says what is missing; the line that holds the most registers is the one with the large tile."""
    require("cuda.bindings")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    fat = """@ts.kernel
def fat(A: Tensor["M", "K", ts.bf16], B: Tensor["K", "N", ts.bf16]) -> Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((64, 64))
    acc += ts.tile.mma(A[tile_m : tile_m + 64, tile_k : tile_k + 32], B[tile_k : tile_k + 32, tile_n : tile_n + 64])
    return acc
"""
    nb.run("%%tessera\n" + fat)
    program = nb["fat"]
    found = subject("fat", program, analyse(program.definition(), None, {}), "sm_80", {"M": 1024, "K": 256, "N": 256})
    shown = OutputPanel((found,))
    assert found.compiled is not None, found.why
    assert not shown.is_whole
    early = Tree(replace(shown, waiting=True).html()).by_class("ts-kernel")[0][1]
    assert "still being read" in early and "global memory" not in early and re.search(r"occupancy\s*\d+%", early)
    assert found.compiled.artifact.assembly is None, "nothing was waited for"
    (rows,) = machine_lines(found.compiled).values()
    assert shown.is_whole and "still being read" not in shown.html()
    most = max(rows, key=lambda row: row.live or 0)
    assert (source_line(most.file, most.line) or "").strip().startswith("acc +="), rows
    assert (most.live or 0) > 32 and all(row.line for row in rows)
    found.compiled.artifact.assembly = None
    assert shown.is_whole, "the disk has it"


def test_what_is_not_known_says_why(nb):
    html = nb.run(KERNEL.format("")).html
    assert 'title="the reference target interprets Tile IR">-</abbr>' in html


def test_the_code_for_a_cpu_is_linked_with_its_kernels(nb, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    nb.run(KERNEL.format(""))
    tree = Tree(nb.run("%tessera ir saxpy").html)
    assert any("fmul <" in text and a["data-l"] == "6" for a, text in tree.by_class("ts-l"))
    (head,) = [a for a, text in tree.by_class("ts-l") if text.strip() == "saxpy:"]
    assert "6" in head["data-l"].split()
    kernel = next(text for _, text in tree.by_class("ts-kernel"))
    assert "static" in kernel and re.search(r"vector width bits\d+", kernel)
    assert re.search(r"instruction mix.*vector (move )?\d", kernel)


def test_a_function_whose_arguments_are_open_is_shown_all_the_same(nb):
    ran = nb.run("%%tessera\n@ts.function\ndef f(x):\n    return x + 1\n")
    assert ran.error is None
    assert "compiled at its first call" in ran.html
    assert nb.run("f(np.zeros(2, np.float32))").result.tolist() == [1.0, 1.0]


def test_a_target_that_fails_is_told_in_the_panel(nb, monkeypatch):
    from tessera_jupyter import subject

    from tessera.errors import Diagnostic, TargetError

    def refuse(*_args, **_options):
        raise TargetError(Diagnostic("TS602", "no such thing here"))

    monkeypatch.setattr(subject.tessera, "compile", refuse)
    ran = nb.run(CELL)
    assert ran.error is None
    assert "no such thing here" in ran.html
    assert rows_of(ran.html)["4"] == "mean [B, 1] f32"


def test_tabs_can_be_chosen(nb):
    tree = Tree(nb.run(CELL.replace("%%tessera", "%%tessera --show kernel,shapes")).html)
    assert [a["class"] for a, _ in tree.by_class("ts-tab")] == ["ts-tab ts-kernel", "ts-tab ts-shapes"]
    assert [("data-first" in a) for a, _ in tree.by_class("ts-tab")] == [True, False]


def test_long_ir_is_cut_and_says_so(nb, monkeypatch):
    from tessera_jupyter import subject

    monkeypatch.setattr(subject, "BRIEF", 500)
    html = nb.run(CELL).html
    assert re.search(r"\.\.\. \d+ more lines: %tessera ir norm", html)
    assert "more lines" not in nb.run("%tessera ir norm").html


def test_a_panel_stays_small(nb):
    html = nb.run(CELL).html
    assert len(html) < 40_000


def recorded(tiles, lanes=2):
    """A recording of one launch with these (lane, start, duration) in ns."""
    from tessera.profiler.recording import Recording
    from tessera.runtime.events import LaunchEvent, TileBatch

    recording = Recording()
    recording.add(LaunchEvent(1, "k", "cpu", "cpu:0", (len(tiles),), 0, 1000, 1, 1))
    resource, start, duration = zip(*tiles, strict=True)
    columns = {"tile": range(len(tiles)), "resource": resource, "slot": 0, "start": start, "duration": duration}
    recording.add(TileBatch.from_columns(("tile",), launch=1, **{k: np.asarray(v) for k, v in columns.items()}))
    return recording


def test_every_tile_is_in_a_bar():
    chart = view(recorded([(0, 0, 400), (0, 500, 500), (1, 0, 1000)]))
    assert chart.count("<rect") == 1 + 3  # one is the legend's
    assert "Tiles over time: 3 on 2 lanes in 1.00 µs" in chart
    assert "tile 2: k, 1.00 µs from 0 ns" in chart


def test_tiles_too_short_to_be_told_apart_share_a_bar():
    chart = view(recorded([(0, 10 * i, 9) for i in range(5000)] + [(1, 0, 30_000)]))
    assert "5,001 on 2 lanes" in chart
    assert "5000 tiles: k" in chart
    assert chart.count("<rect") == 1 + 2


def test_fixes_are_shown_as_the_lines_they_give():
    register_source("edited.py", "def f():\n    a = g(1,\n          2)\n    return a\n")
    insert = Edit(Span("edited.py", 4, 13, 4, 13), ".T")
    assert changed_lines([insert]) == [("return a", "return a.T")]
    two = [Edit(Span("edited.py", 4, 5, 4, 11), "yield"), Edit(Span("edited.py", 4, 12, 4, 13), "b")]
    assert changed_lines(two) == [("return a", "yield b")]
    across = Edit(Span("edited.py", 2, 9, 3, 13), "h()")
    assert changed_lines([across]) == [("a = g(1,\n      2)", "a = h()")]
    whole = Edit(Span("edited.py", 4, 1, 4, 1), "    b = a\n    if b:\n        a = 1\n")
    assert changed_lines([whole]) == [("", "b = a\nif b:\n    a = 1")]


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        ("x = 'a < b'  # note", 'x = <i class="ts-string">&#x27;a &lt; b&#x27;</i>  <i class="ts-comment"># note</i>'),
        ("@ts.kernel", '<i class="ts-decorator">@ts.kernel</i>'),
        ("return a @ b", '<i class="ts-keyword">return</i> a @ b'),
    ],
)
def test_source_is_coloured(line, marked):
    assert python(line) == marked


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        (
            '  y = sum(x, axis=[1], note="# <") : [B, 1] bf16   # m.py:9',
            '  y = <i class="ts-op">sum</i>(x, axis=[<i class="ts-number">1</i>], note=<i class="ts-string">&quot;# '
            '&lt;&quot;</i>) : [B, <i class="ts-number">1</i>] <i class="ts-dtype">bf16</i>   '
            '<i class="ts-comment"># m.py:9</i>',
        ),
        ("} else {", '} <i class="ts-keyword">else</i> {'),
        ("t1 = if(c) : [] f32 {", 't1 = <i class="ts-keyword">if</i>(c) : [] <i class="ts-dtype">f32</i> {'),
        ("func a_0_if() {", '<i class="ts-keyword">func</i> <i class="ts-op">a_0_if</i>() {'),
    ],
)
def test_ir_is_coloured(line, marked):
    assert ir(line) == marked


def test_the_card_of_a_cpu_kernel_tells_registers_spills_and_lines(nb, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    nb.run(
        '%%tessera\n@ts.function\ndef waits(x: Tensor["M", "N"]):\n    early = ts.gelu(x)\n'
        "    late = ts.sin(x) * early\n    return ts.softmax(early + late, axis=-1)\n"
    )
    card = " ".join(text for _, text in Tree(nb.run("%tessera ir waits --dims M=64,N=512").html).by_class("ts-kernel"))
    assert re.search(r"vector registers\s*\d+ of \d+", card)
    assert re.search(r"Instructions of waits:4 ts\.gelu\(x\) by line\s*static", card), "by what a person wrote"
    assert re.search(r"Spilled values of waits:4 ts\.gelu\(x\)\s*static", card) and "early" in card
    assert "of run by line" not in card
    assert "late = ts.sin(x) * early" in card, "instructions by line"
