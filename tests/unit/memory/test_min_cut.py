"""The cheapest cut, against all cuts of small graphs."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.graph.min_cut import INFINITE, Network

NODES = 6
EDGES = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.sampled_from([0, 1, 2, 5, 9, INFINITE])),
    max_size=16,
)


def cost(edges, behind) -> int:
    return sum(room for a, b, room in edges if a not in behind and b in behind and a != b)


@given(EDGES)
def test_no_cut_is_cheaper_and_none_as_cheap_has_fewer_nodes_behind_it(edges) -> None:
    network = Network()
    for _ in range(NODES - 2):
        network.node()
    for edge in edges:
        network.edge(*edge)
    flow, behind = network.cut()
    assert 0 not in behind or flow >= INFINITE
    sides = [{1, *(i + 2 for i, b in enumerate(bits) if b)} for bits in product((0, 1), repeat=NODES - 2)]
    best = min(cost(edges, side) for side in sides)
    assert flow == best
    if flow < INFINITE:
        assert cost(edges, behind) == best
        assert len(behind) == min(len(side) for side in sides if cost(edges, side) == best)


def test_a_long_chain_is_cut_at_its_cheapest_edge() -> None:
    network = Network()
    nodes = [0, *(network.node() for _ in range(3000)), 1]
    for i, (a, b) in enumerate(pairwise(nodes)):
        network.edge(a, b, 7 if i == 1234 else 9 + i % 3)
    flow, behind = network.cut()
    assert flow == 7 and behind == set(nodes[1235:])
