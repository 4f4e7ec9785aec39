"""TS410: tiles become as large as tensor cores take them, and nothing else that has the same number."""

from __future__ import annotations

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis

KERNEL = """import tessera as ts
from tessera import Tensor, bf16, f32
BM, KEPT = 12, 12
ROWS = 12


@ts.kernel
def product(a: Tensor["M", "K", bf16], b: Tensor["K", "N", bf16], c: Tensor["M", "N", f32]):
    acc = ts.tile.zeros(({rows}, 20)) * 12
    for k in ts.tile.range_k(0, K, 16):
        acc += ts.tile.mma(a[tile_m:tile_m + {rows}, k:k + 16], b[k:k + 16, tile_n:tile_n + 20])
    c[tile_m:tile_m + {rows}, tile_n:tile_n + 20] = acc + 20
"""


def mended(text: str) -> str:
    file = FileAnalysis("k.py")
    file.update(text)
    (found,) = file.diagnostics
    assert found.code == "TS410"
    return apply(text, found.fixes[0]) if found.fixes else text


def test_sizes_written_as_numbers() -> None:
    text = KERNEL.format(rows=12)
    assert mended(text) == KERNEL.format(rows=16).replace("20))", "24))").replace("tile_n + 20", "tile_n + 24")


def test_sizes_that_are_constants_of_the_module() -> None:
    text = KERNEL.format(rows="ROWS")
    wanted = text.replace("ROWS = 12", "ROWS = 16").replace("20))", "24))").replace("tile_n + 20", "tile_n + 24")
    assert mended(text) == wanted


def test_no_fix_where_a_size_is_written_in_no_such_way() -> None:
    text = KERNEL.format(rows="BM")
    assert mended(text) == text
