"""A bounded slice of the fuzzer of mutants, and what it and readers have found."""

from __future__ import annotations

import pytest

from tests.fuzz.mutants import Mutator, corpus, failure


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("start", range(0, 160, 40))
def test_mutants(start):
    assert [found for seed in range(start, start + 40) if (found := failure(seed)) is not None] == []


def test_a_seed_is_a_program():
    assert Mutator(7).program() == Mutator(7).program() != Mutator(8).program()
    assert len(corpus()) > 80
