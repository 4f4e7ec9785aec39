"""The device library sums in the order of language/order.py."""

from __future__ import annotations

import re

from tessera.compiler.targets.cuda.layouts.layout import PARTIALS
from tessera.compiler.targets.cuda.nvrtc import INCLUDE
from tessera.language import order


def test_the_headers_repeat_the_numbers_of_the_order_of_sums() -> None:
    sums = (INCLUDE / "tessera/sums.cuh").read_text(encoding="utf-8")
    (chains,) = re.findall(r"chain_length = (\d+), group_length = (\d+), span = chain_length \* group_length;", sums)
    assert tuple(map(int, chains)) == (order.CHAIN, order.GROUP) and order.SPAN == order.CHAIN * order.GROUP
    reduce = (INCLUDE / "tessera/reduce.cuh").read_text(encoding="utf-8")
    (partials,) = re.findall(r"partials_of\(int axis\) \{ return axis == 1 \? (\d+) : (\d+); \}", reduce)
    assert tuple(map(int, partials)) == (PARTIALS[1], PARTIALS[0]) == (order.PARTIALS_ALONG, order.PARTIALS_ACROSS)
