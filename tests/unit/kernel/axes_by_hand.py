"""The rule of docs/kernels.md, applied by hand to tricky kernels: for every index the axis, and what moves it."""
# fmt: off

from __future__ import annotations

from dataclasses import dataclass

HEAD = "import tessera as ts\nfrom tessera import Tensor, f32, int32\n\n\n@ts.kernel\n"


@dataclass(frozen=True)
class Kernel:
    """`says`: the indices of the subscripts in the text, in reading order; None where the rule refuses."""

    text: str
    says: tuple[str, ...]


def kernel(text: str, *says: str) -> Kernel:
    return Kernel(HEAD + "def f" + text.strip("\n") + "\n", says)


BY_HAND: dict[str, Kernel] = {
    "as many indices as axes": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    p = ts.tile.program_id(0)
    y[p, tile_n:tile_n + 8] = x[p, tile_n:tile_n + 8]
""", "0 M by p", "1 N by tile_n", "0 M by p", "1 N by tile_n"),
    "a range over the second dim": kernel("""
(q: Tensor["B*H", "S", "D", f32], o: Tensor["B*H", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        o[i:i + 16] = q[i:i + 16]
""", "1 S by i", "1 S by i"),
    "displaced by another loop": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        acc = ts.tile.zeros((16, D))
        for a in ts.tile.range_k(0, 3):
            acc += q[i + a:i + a + 16]
        o[i:i + 16] = acc
""", "1 S by a, i", "1 S by i"),
    "a range that ends before the dim": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S - 1, 16):
        o[i:i + 16] = q[i:i + 16]
""", "1 S by i", "1 S by i"),
    "a range over blocks": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    for t in ts.tile.range(0, ts.tile.cdiv(S, 16)):
        o[t * 16:t * 16 + 16] = q[t * 16:t * 16 + 16]
""", "1 S by t", "1 S by t"),
    "a range that ends at another counter": kernel("""
(k: Tensor["B", "S", "D", f32], o: Tensor["B", "S", f32]):
    for i in ts.tile.range(0, S, 16):
        total = ts.tile.zeros((16,))
        for j in ts.tile.range(0, i + 16, 16):
            total += ts.tile.row_sum(k[j:j + 16])
        o[i:i + 16] = total
""", "1 S by j", "1 S by i"),
    "an implicit coordinate over the last dim": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    y[tile_n:tile_n + 8] = x[tile_n:tile_n + 8]
""", "1 N by tile_n", "1 N by tile_n"),
    "a number beside what names its dim": kernel("""
(x: Tensor["B", "H", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        y[i:i + 16] = x[0, i:i + 16]
""", "1 S by i", "1 H", "2 S by i"),
    "a computed index beside what names its dim": kernel("""
(x: Tensor["B", "P", "S", "D", f32], table: Tensor["B", int32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        y[i:i + 16] = x[table[ts.tile.each()], i:i + 16]
""", "1 S by i", "1 P by computed", "0 B by one program each", "2 S by i"),
    "lanes lie along the last axis": kernel("""
(x: Tensor["B", "n", f32], y: Tensor["B", "n", f32]):
    i = ts.tile.linear_id()
    y[i] = x[i]
""", "1 n by i", "1 n by i"),
    "lanes before a slice": kernel("""
(x: Tensor["B", "n", "D", f32], y: Tensor["B", "n", "D", f32]):
    i = ts.tile.linear_id()
    y[i, :] = x[i, :]
""", "1 n by i", "2 D", "1 n by i", "2 D"),
    "the same dim twice": kernel("""
(x: Tensor["B", "S", "S", f32], y: Tensor["B", "S", "S", f32]):
    for i in ts.tile.range(0, S, 8):
        y[i:i + 8] = x[i:i + 8]
""", "1 S by i", "1 S by i"),
    "any rank, one index for each named dim": kernel("""
(x: Tensor["...", "N", f32], y: Tensor["...", "N", f32]):
    p = ts.tile.program_id(0)
    y[p * 8:p * 8 + 8] = x[p * 8:p * 8 + 8]
""", "1 N by p", "1 N by p"),
    "any rank, fewer indices than named dims": kernel("""
(x: Tensor["...", "S", "D", f32], y: Tensor["...", "S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        y[i:i + 8] = x[i:i + 8]
""", "1 S by i", "1 S by i"),
    "a product of dims": kernel("""
(x: Tensor["B*S", "D", f32], y: Tensor["B*S", "D", f32]):
    for b in ts.tile.range(0, B):
        for i in ts.tile.range(0, S, 8):
            y[b * S + i:b * S + i + 8] = x[b * S + i:b * S + i + 8]
""", "0 B*S by b, i", "0 B*S by b, i"),
    "a slice up to a dim": kernel("""
(k: Tensor["H", "S", "D", f32], o: Tensor["H", "S", f32]):
    o[0:S] = ts.tile.row_sum(k[0:S])
""", "1 S", "1 S"),
    "each, and what it leaves": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    p = ts.tile.program_id(0)
    y[ts.tile.each(), p * 8:p * 8 + 8, :] = x[ts.tile.each(), p * 8:p * 8 + 8, :]
""", "0 B by one program each", "1 S by p", "2 D", "0 B by one program each", "1 S by p", "2 D"),
    "a dim that part of another mentions": kernel("""
(x: Tensor["D//2", "D", f32], y: Tensor["D//2", "D", f32]):
    for i in ts.tile.range(0, D, 8):
        y[0:4, i:i + 8] = x[0:4, i:i + 8]
""", "0 D//2", "1 D by i", "0 D//2", "1 D by i"),
    "a literal dim": kernel("""
(x: Tensor["n", 3, f32]) -> Tensor["n", 3, f32]:
    return x[tile_n:tile_n + 8, :] * 2
""", "0 n by tile_n", "1 3"),
    "the second index says where the first stands": kernel("""
(x: Tensor["A", "B", "S", "D", f32], y: Tensor["A", "S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        y[i:i + 8] = x[5, i:i + 8]
""", "1 S by i", "1 B", "2 S by i"),
    "the dim of the walk stands twice, behind another": kernel("""
(x: Tensor["N", "S", "S", f32], y: Tensor["N", "S", f32]):
    for i in ts.tile.range(0, S, 8):
        y[i:i + 8] = x[i:i + 8, 3]
""", "1 S by i", "1 S by i", "2 S"),
    "any rank, as many indices as names, walked by each other's counters": kernel("""
(x: Tensor["...", "S", "D", f32], y: Tensor["...", "D", "S", f32]):
    for i in ts.tile.range(0, S, 8):
        for j in ts.tile.range(0, D, 8):
            y[j:j + 8, i:i + 8] = x[j:j + 8, i:i + 8]
""", "1 D by j", "2 S by i", "1 S by j", "2 D by i"),
    "any rank, the last of two names": kernel("""
(x: Tensor["...", "S", "D", f32], y: Tensor["...", "S", "D", f32]):
    for j in ts.tile.range(0, D, 8):
        y[j:j + 8] = x[j:j + 8]
""", "2 D by j", "2 D by j"),
    "a written ... makes them as many as the axes": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        y[..., i:i + 8] = x[..., i:i + 8]
""", "2 D by i", "2 D by i"),
    "a colon beside what names its dim": kernel("""
(x: Tensor["B", "H", "S", "D", f32], y: Tensor["B", "H", "S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        y[:, i:i + 8] = x[:, i:i + 8]
""", "1 H", "2 S by i", "1 H", "2 S by i"),
    "a range from another counter to its end and more": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        for j in ts.tile.range_k(i, i + 16, 4):
            y[j:j + 4] = x[j:j + 4]
""", "1 S by j", "1 S by j"),
    "a range from what names to a number": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        acc = ts.tile.zeros((D,))
        for j in ts.tile.range_k(i, 99, 4):
            acc += ts.tile.col_sum(x[i + j:i + j + 4])
        y[i] = acc
""", "1 S by i, j", "1 S by i"),
    "a name for what is computed from a counter": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for t in ts.tile.range(0, S // 16):
        at = t * 16 + 3
        y[at:at + 16] = x[at:at + 16]
""", "1 S by t", "1 S by t"),
    "the smaller of two": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        at = min(i, S - 16)
        y[i:i + 16] = x[at:at + 16]
""", "1 S by i", "1 S by i"),
    "lanes behind a number": kernel("""
(x: Tensor["B", "H", "n", f32], y: Tensor["B", "n", f32]):
    i = ts.tile.linear_id()
    y[i] = x[2, i]
""", "1 n by i", "1 H", "2 n by i"),
    "lanes that a condition holds against another dim": kernel("""
(x: Tensor["S", "n", f32], y: Tensor["S", "n", f32]):
    i = ts.tile.linear_id()
    if i < S:
        y[i] = x[i]
""", "1 n by i", "1 n by i"),
    "lanes, and a coordinate that names": kernel("""
(x: Tensor["B", "S", "n", f32], y: Tensor["B", "S", "n", f32]):
    i = ts.tile.linear_id()
    for s in ts.tile.range(0, S):
        y[s, i] = x[s, i]
""", "1 S by s", "2 n by i", "1 S by s", "2 n by i"),
    "an index tile before what names its dim": kernel("""
(x: Tensor["A", "V", "D", f32], at: Tensor["n", int32], y: Tensor["A", "n", "D", f32]):
    rows = at[0:n]
    for j in ts.tile.range(0, D, 8):
        y[0:n, j:j + 8] = x[rows, j:j + 8]
""", "0 n", "1 n", "2 D by j", "1 V by computed", "2 D by j"),
    "each counts as an index": kernel("""
(x: Tensor["B", "H", "S", "D", f32], y: Tensor["B", "H", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        y[ts.tile.each(), i:i + 16] = x[ts.tile.each(), i:i + 16]
""", "1 H by one program each", "2 S by i", "1 H by one program each", "2 S by i"),
    "a program's number before an implicit coordinate": kernel("""
(x: Tensor["A", "S", "D", f32], y: Tensor["A", "S", "D", f32]):
    p = ts.tile.program_id(0)
    y[p, tile_d:tile_d + 8] = x[p, tile_d:tile_d + 8]
""", "1 S by p", "2 D by tile_d", "1 S by p", "2 D by tile_d"),
    "one dim of a product": kernel("""
(x: Tensor["S", "3*D", f32], y: Tensor["S", "D", f32]):
    for j in ts.tile.range(0, D, 8):
        y[j:j + 8] = x[j:j + 8] + x[D + j:D + j + 8]
""", "1 D by j", "1 3*D by j", "1 3*D by j"),
    "a range up to a product of dims": kernel("""
(x: Tensor["B*H", "S", "D", f32], y: Tensor["B*H", "S", "D", f32]):
    for b in ts.tile.range(0, B * H, 4):
        y[b:b + 4] = x[b:b + 4]
""", "0 B*H by b", "0 B*H by b"),
    "rows of a batch in a product": kernel("""
(x: Tensor["B", "M", "K", f32], w: Tensor["K", "N", f32], y: Tensor["B", "M", "N", f32]):
    y[tile_m:tile_m + 16, tile_n:tile_n + 16] = x[tile_m:tile_m + 16] @ w[:, tile_n:tile_n + 16]
""", "1 M by tile_m", "2 N by tile_n", "1 M by tile_m", "0 K", "1 N by tile_n"),
    "a number of programs to stride by": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    ts.tile.grid(3)
    p = ts.tile.program_id(0)
    for t in ts.tile.range(p, ts.tile.cdiv(S, 8), ts.tile.num_programs()):
        y[t * 8:t * 8 + 8] = x[t * 8:t * 8 + 8]
""", "1 S by t", "1 S by t"),
    # refused
    "a program's number": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    p = ts.tile.program_id(0)
    o[p * 16:p * 16 + 16, :, :] = q[p * 16:p * 16 + 16]
"""),
    "a counter up to a number": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    for c in ts.tile.range(0, 64, 8):
        y[c:c + 8, :] = x[c:c + 8]
"""),
    "a number alone": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["N", f32]):
    y[tile_n:tile_n + 8] = x[0]
"""),
    "two dims in one index": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    for i in ts.tile.range(0, M, 8):
        for j in ts.tile.range(0, N, 8):
            y[i:i + 8, j:j + 8] = x[i + j:i + j + 8]
"""),
    "neighbours of which one is elsewhere": kernel("""
(x: Tensor["B", "S", "H", "D", f32], y: Tensor["S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        for j in ts.tile.range(0, D, 8):
            y[i:i + 8, j:j + 8] = x[i:i + 8, j:j + 8]
"""),
    "a gather alone": kernel("""
(table: Tensor["V", "D", f32], index: Tensor["n", int32], y: Tensor["n", "D", f32]):
    i = ts.tile.linear_id()
    y[i, :] = table[index[i]]
"""),
    "two dims in the end of a range": kernel("""
(x: Tensor["S", "D", f32], y: Tensor["S", "D", f32]):
    for i in ts.tile.range(0, S + D, 8):
        y[i:i + 8, :] = x[i:i + 8]
"""),
    "what is read from an array": kernel("""
(x: Tensor["S", "D", f32], at: Tensor["S", int32], y: Tensor["S", "D", f32]):
    for i in ts.tile.range(0, S):
        y[i, :] = x[at[i]]
"""),
    "neighbours that would stand behind the last axis": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    y[:, tile_s:tile_s + 8, tile_d:tile_d + 8] = x[tile_d:tile_d + 8, tile_s:tile_s + 8].T
"""),
    "a colon that would stand before the first axis": kernel("""
(x: Tensor["S", "S", "D", f32], y: Tensor["S", "S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        y[:, i:i + 8, :] = x[:, i:i + 8]
"""),
    "a slice of numbers": kernel("""
(x: Tensor["B", "S", f32], y: Tensor["B", "S", f32]):
    y[:, 0:8] = x[:, 0:8]
    y[0:8, :] = x[0:8]
"""),
    "a counter that is unrolled": kernel("""
(x: Tensor["A", "B", "n", f32], y: Tensor["A", "B", "n", f32]):
    for a in ts.tile.static_range(4):
        y[a, :, tile_n:tile_n + 8] = x[a]
"""),
}  # fmt: skip
