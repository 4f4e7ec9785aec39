"""The event channel: cheap when nobody listens, true to what was published when somebody does."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.runtime import events
from tessera.runtime.events import UNASSIGNED, LaunchEvent, TileBatch, TileEvent

LAUNCH = LaunchEvent(1, "saxpy", "cpu", "cpu:0", (4, 2), 10, 20)


def test_a_listener_gets_every_event_until_it_is_removed() -> None:
    seen: list[events.Event] = []
    token = events.subscribe(seen.append)
    events.publish(LAUNCH)
    events.unsubscribe(token)
    events.publish(LAUNCH)
    events.unsubscribe(token)
    assert seen == [LAUNCH]


def test_active_and_tiles_wanted_follow_the_listeners() -> None:
    assert not events.active()
    plain = events.subscribe(lambda _: None, tiles=False)
    assert events.active() and not events.tiles_wanted()
    detailed = events.subscribe(lambda _: None)
    assert events.tiles_wanted()
    events.unsubscribe(detailed)
    assert events.active() and not events.tiles_wanted()
    events.unsubscribe(plain)
    assert not events.active()


def test_a_listener_that_fails_is_removed_and_the_others_still_hear() -> None:
    seen: list[events.Event] = []

    def fail(_: events.Event) -> None:
        raise ZeroDivisionError("broken listener")

    events.subscribe(fail)
    token = events.subscribe(seen.append)
    with pytest.warns(RuntimeWarning, match="broken listener"):
        events.publish(LAUNCH)
    events.publish(LAUNCH)
    events.unsubscribe(token)
    assert len(seen) == 2
    assert not events.active()


def test_events_of_all_threads_arrive() -> None:
    seen: list[events.Event] = []
    token = events.subscribe(seen.append)
    threads = [threading.Thread(target=lambda: [events.publish(LAUNCH) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events.unsubscribe(token)
    assert len(seen) == 800


def test_launch_ids_are_unique() -> None:
    assert len({events.new_launch() for _ in range(100)}) == 100


def test_the_grid_gives_the_number_of_tiles() -> None:
    assert LAUNCH.tiles == 8
    assert LaunchEvent(1, "scalar", "cpu", "cpu:0", (), 0, 0).tiles == 1


def test_scalars_are_repeated_and_missing_columns_take_their_default() -> None:
    batch = TileBatch.from_columns(("tile",), launch=3, tile=np.arange(4), start=[1, 2, 3, 4], duration=5)
    assert len(batch) == 4
    assert list(batch)[2] == TileEvent(3, 2, 0, UNASSIGNED, "tile", 3, 5, 0)


def test_a_batch_may_be_empty() -> None:
    assert list(TileBatch.from_columns((), tile=[])) == []
    assert list(TileBatch.from_events([])) == []


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="unknown tile columns: worker"):
        TileBatch.from_columns(("tile",), worker=3)
    with pytest.raises(TypeError, match="must have dtype"):
        TileBatch(np.zeros(3), ("tile",))


def test_a_record_is_48_bytes_as_native_code_writes_it() -> None:
    assert TileBatch.dtype().itemsize == 48


@given(
    st.lists(
        st.builds(
            TileEvent,
            launch=st.integers(0, 2**62),
            tile=st.integers(0, 2**62),
            resource=st.integers(0, 2**31 - 1),
            slot=st.integers(-1, 2**15 - 1),
            phase=st.text(max_size=5),
            start=st.integers(0, 2**62),
            duration=st.integers(0, 2**62),
            line=st.integers(0, 2**31 - 1),
            rank=st.integers(0, 2**15 - 1),
            device=st.integers(0, 2**15 - 1),
        )
    )
)
def test_columns_give_back_the_same_events(tiles: list[TileEvent]) -> None:
    assert list(TileBatch.from_events(tiles)) == tiles


def test_the_channel_needs_no_numpy() -> None:
    """Publishing must not make `import tessera` heavy."""
    code = "import sys, tessera.runtime.events; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_waits_reach_those_who_asked_for_them_and_nobody_after_they_left() -> None:
    heard: list[events.WaitEvent] = []
    others: list[events.Event] = []
    token, other = events.subscribe_waits(heard.append), events.subscribe(others.append)
    try:
        assert events.waits_heard()
        with pytest.raises(KeyError), events.waiting("Compiling f for cpu") as step:
            with events.paused(), events.waiting("inner"):
                pass
            step("half of it", 0.5)
            raise KeyError
    finally:
        events.unsubscribe(token)
        events.unsubscribe(other)
    with events.waiting("unheard"):
        pass
    said = [(event.title, event.state, event.doing, event.part) for event in heard]
    assert said == [
        ("Compiling f for cpu", "begin", "", None), ("inner", "begin", "", None), ("inner", "end", "", None),
        ("Compiling f for cpu", "step", "half of it", 0.5), ("Compiling f for cpu", "end", "", None),
    ]  # fmt: skip
    assert len({event.task for event in heard}) == 2 and others == [] and not events.waits_heard()


def test_launches_pay_nothing_for_who_shows_waits() -> None:
    token = events.subscribe_waits(lambda event: None)
    assert not events.active() and not events.tiles_wanted()
    events.unsubscribe(token)


def test_a_pause_is_of_one_thread() -> None:
    heard: list[events.Event] = []
    token = events.subscribe(heard.append)
    event = events.MemoryEvent(0, "cpu:0", 1, 1, "x")
    with events.paused():
        assert not events.active()
        events.publish(event)
        other = threading.Thread(target=lambda: events.active() and events.publish(event))
        other.start()
        other.join()
    events.unsubscribe(token)
    assert heard == [event]
