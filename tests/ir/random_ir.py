"""Random IR for property tests: all types and attributes, nested regions, several results, odd hints."""

from __future__ import annotations

from hypothesis import strategies as st

from tessera.compiler.ir.core import Block, Op, Region
from tessera.compiler.ir.types import INDEX, SharedType, TensorType, TileType, ViewType
from tessera.errors import Span
from tessera.language import dims, dtypes, policies

NAMES = ("B", "S", "D_h", "n", "_0")


def _combine(inner: st.SearchStrategy[dims.Dim]) -> st.SearchStrategy[dims.Dim]:
    positive = st.integers(1, 7)
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(dims.floordiv, inner, positive),
        st.builds(dims.mod, inner, positive),
        st.builds(dims.dim_min, inner, inner),
        st.builds(dims.dim_max, inner, inner),
        st.builds(lambda a, n: dims.floordiv(a, dims.symbol(n)), inner, st.sampled_from(NAMES)),
        st.builds(lambda a, n: dims.mod(a, dims.symbol(n)), inner, st.sampled_from(NAMES)),
    )


dim_exprs: st.SearchStrategy[dims.Dim] = st.recursive(
    st.integers(-3, 64) | st.sampled_from(NAMES).map(dims.symbol), _combine, max_leaves=5
)
shapes = st.lists(dim_exprs, max_size=3).map(tuple)
any_dtype = st.sampled_from(dtypes.ALL)
parts = st.sampled_from(
    [policies.accum("f32"), policies.accum("f64"), policies.loss_scale(128.0), policies.stochastic_round,
     policies.saturate, policies.deterministic, policies.device("gpu:0")]
)  # fmt: skip
numerics = st.none() | parts.map(lambda p: policies.Policy().merge(p))
types = st.one_of(
    st.builds(TensorType, shapes, any_dtype, numerics),
    st.builds(TileType, shapes, any_dtype),
    st.builds(ViewType, shapes, any_dtype, st.none() | shapes),
    st.builds(SharedType, shapes, any_dtype, st.sampled_from(["none", "xor"])),
    st.just(INDEX),
)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), text, any_dtype, dim_exprs,
    types, st.complex_numbers(allow_nan=False),
)  # fmt: skip
attributes = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
keys = st.sampled_from(["axis", "value", "fill", "sym_name", "perm", "index", "x1"])
hints = st.sampled_from(["", "", "x", "x", "x_1", "acc", "K0", "42", "a b", "é", "index", "loc"])
spans = st.builds(
    lambda file, line, col, rows, cols: Span(file, line, col, line + rows, col + cols),
    st.sampled_from(["model.py", "In[3]", 'a "b".py', "C:\\x.py"]), st.integers(1, 999), st.integers(1, 99),
    st.integers(0, 3), st.integers(0, 9),
)  # fmt: skip


@st.composite
def ops(draw: st.DrawFn, depth: int = 2, visible: tuple = ()) -> Op:
    """An op whose operands are among `visible` values, with regions that may use them too."""
    operands = draw(st.lists(st.sampled_from(visible), max_size=3)) if visible else []
    results = draw(st.lists(types, max_size=2))
    regions = []
    if depth:
        for _ in range(draw(st.integers(0, 2 if depth > 1 else 1))):
            args = draw(st.lists(types, max_size=2))
            block = Block(args, draw(st.lists(hints, min_size=len(args), max_size=len(args))))
            seen = (*visible, *block.args)
            for _ in range(draw(st.integers(1, 4))):
                inner = block.append(draw(ops(depth - 1, seen)))
                seen += tuple(inner.results)
            regions.append(Region([block]))
    return Op(
        draw(st.sampled_from(["test.a", "test.long_name", "graph.add", "tile.load"])), operands, results, draw(spans),
        draw(st.dictionaries(keys, attributes, max_size=3)), regions,
        draw(st.lists(hints, min_size=len(results), max_size=len(results))),
    )  # fmt: skip
