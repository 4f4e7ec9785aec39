"""Twenty things that a profiler must find, each by its number, and the tests that plant one and look for it.

A planted truth is a fault that a test puts into a program itself, so that it knows what the right answer is.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tessera.profiler.views import tiles as views
from tests.profiler.test_views import slow_one

TESTS = Path(__file__).parents[1]
TRUTHS = {
    1: (
        "try_it: a bad block size is mended with equal bits; a useless hint says that nothing is gained",
        "unit/profiler/test_try_it.py::test_a_bad_block_size_is_mended_with_equal_bits",
        "unit/profiler/test_try_it.py::test_a_useless_hint_says_no_gain",
    ),
    2: (
        "predictions are kept: a rule that covers less than 80 % of outcomes falls silent",
        "unit/profiler/test_trial_statistics.py::test_a_rule_that_is_often_wrong_is_silent_until_it_is_better",
        "unit/profiler/test_try_it.py::test_a_silent_rule_gives_no_hints_but_can_still_be_tried",
    ),
    3: (
        "live registers by line: the line of the fat tile is the peak",
        "jupyter/test_panel.py::test_a_card_is_shown_before_its_machine_code_is_read",
    ),
    4: (
        "from the source to machine instructions: at least 95 % have a line",
        "unit/cuda/test_cuda_nvrtc.py::test_machine_code_maps_to_generated_and_user_lines",
        "unit/cpu/test_cpu_spills.py::test_instructions_have_lines",
    ),
    5: (
        "spills: the value that waits is named, with its bytes",
        "unit/cuda/test_cuda_spills.py::test_a_tile_that_waits_for_a_loop_is_named_with_its_bytes",
        "unit/cpu/test_cpu_spills.py::test_a_value_that_waits_for_a_call_is_named_with_its_bytes",
    ),
    6: (
        "bytes by array (ideal, modelled, measured): the array that is read again is found",
        "unit/profiler/test_analyses.py::test_what_is_read_again_is_named",
    ),
    7: (
        "two versions, line by line: only the edited line is flagged; equal ones once in a hundred at most",
        "unit/profiler/test_compare_lines.py::test_only_the_edited_line_is_flagged",
        "unit/profiler/test_compare_lines.py::test_equal_programs_are_called_unequal_once_in_a_hundred_at_most",
    ),
    8: (
        "tiles over time: the slow one is in sight at every zoom",
        "profiler/test_planted_truths.py::test_one_slow_tile_of_a_million_has_a_block_of_its_own",
        "profiler/test_views.py::test_the_slowest_of_a_hundred_thousand_tiles_is_in_sight_at_every_zoom",
    ),
    9: (
        "configurations side by side: each failure with its reason",
        "unit/autotune/test_autotune.py::test_what_fails_is_recorded_and_the_rest_goes_on",
        "unit/autotune/test_autotune.py::test_the_report",
    ),
    10: (
        "why this configuration lost",
        "unit/autotune/test_autotune.py::test_the_report_says_why_a_configuration_lost",
    ),
    11: (
        "memory over time with stacks: the line that leaks",
        "unit/profiler/test_memory_holders.py::test_the_line_that_leaks_and_the_variable_that_holds_it",
        "unit/profiler/test_gpu_memory.py::test_blocks_of_cupy_have_lines_and_totals",
    ),
    12: (
        "out of memory: the largest holders",
        "unit/profiler/test_memory_holders.py::test_an_error_for_want_of_memory_names_who_holds_it",
    ),
    13: (
        "gaps of the host: the line that sleeps",
        "unit/profiler/test_host_lines.py::test_sleeping_between_calls_is_blamed_on_its_line",
    ),
    14: (
        "the critical path, with graphs",
        "unit/profiler/test_analyses.py::test_a_line_that_sleeps_is_on_the_path",
        "unit/profiler/test_graphs.py::test_the_critical_path_does_not_blame_the_host_for_pauses_in_a_graph",
    ),
    15: (
        "cost by line without running: ten pairs of variants are put in order",
        "unit/schedule/test_line_costs.py::test_the_cheaper_variant_is_known_without_running_either",
    ),
    16: (
        "banks and sectors: the tile that is not swizzled, the access that is not coalesced",
        "unit/cuda/test_cuda_banks.py::test_degrees_of_plain_accesses",
        "unit/cuda/test_cuda_banks.py::test_the_chosen_swizzle_is_free_of_conflicts_where_one_is",
        "emulator/test_sectors.py::test_planted_patterns",
    ),
    17: (
        "the TrackEvent export: totals in SQL are those of the profile",
        "profiler/test_track_event.py::test_totals_in_sql_are_those_of_the_profile",
    ),
    18: (
        "a file of Kineto's schema for TensorBoard and HTA",
        "unit/profiler/test_exports.py::test_hta_loads_it",
        "unit/profiler/test_exports.py::test_launches_are_kernels_on_streams_and_calls_operators",
        "unit/profiler/test_exports.py::test_each_rank_has_a_file_and_says_so_as_hta_looks_for_it",
    ),
    19: (
        "a gate for continuous integration: 5 % slower exits with 1",
        "unit/cli/test_benchmark.py::test_five_percent_more_work_fails",
    ),
    20: (
        "without privileges: times stay, counters are absent with a reason",
        "unit/profiler/test_counters.py::test_what_is_not_there_or_not_allowed_says_why",
    ),
}


@cache
def functions_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.mark.parametrize("number", range(1, 21))
def test_each_truth_has_its_tests(number: int) -> None:
    what, *named = TRUTHS[number]
    assert what and named
    for name in named:
        file, _, function = name.partition("::")
        assert function in functions_in(file), f"{number} ({what}): {name} is not there"


def test_one_slow_tile_of_a_million_has_a_block_of_its_own() -> None:
    """What a page draws: whatever part of the time is looked at, no other tile hides it."""
    count, at = 1_000_000, 610_007
    found = views.tiles_of(slow_one(count, at))
    assert found is not None and found.bars.tile[found.slowest[0]] == at
    for most in (200, 2_000, 20_000):
        blocks = views.blocks_of(found, most)
        (alone,) = np.flatnonzero(blocks.slowest == found.slowest[0])
        assert blocks.end[alone] - blocks.start[alone] == 9_000
        assert blocks.busy.sum() == found.bars.duration.sum() and len(blocks.start) < 2 * most + 500
