"""Facts that remember: what one has worked out serves all who assume the same, and nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera.language.dims import Facts, symbol
from tessera.language.dims.remembering import RememberingFacts

B, D, H, S = map(symbol, "BDHS")
ASSUMED: list[Callable[[Facts], None]] = [
    lambda f: None,
    lambda f: f.assume_divisible(D, H),
    lambda f: f.assume_equal(S, 2 * B),
    lambda f: (f.assume_divisible(D, H), f.assume_equal(D, 4 * S), None)[-1],
    lambda f: f.assume_divisible(S, B),
]
SIZES = [B, B * D, B * S * (D // H) * H, D % H, S + 1, S * D - B]


@pytest.mark.parametrize("rounds", [1, 2])
def test_normal_forms_are_those_of_plain_facts(rounds: int) -> None:
    for _ in range(rounds):  # in turn, so that each meets what the others have left
        for assume in ASSUMED:
            remembering, plain = RememberingFacts(), Facts()
            assume(remembering)
            assume(plain)
            assert [remembering.normal(d) for d in SIZES] == [plain.normal(d) for d in SIZES]


def test_what_is_assumed_later_counts() -> None:
    facts = RememberingFacts()
    facts.assume_divisible(D, H)
    branch = facts.copy()
    assert facts.normal(S) == S
    branch.assume_equal(S, 2 * B)
    assert branch.normal(S) == 2 * B and facts.normal(S) == S
    facts.assume_equal(S, 3 * B)
    assert facts.normal(S) == 3 * B and branch.normal(S) == 2 * B
