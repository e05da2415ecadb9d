"""Whatever happens to a machine's clock, a server's time never goes back, and never runs ahead of what has passed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.machine.start_time import (
    CORRECTION_MS_MAX,
    DOWN_MS_MAX,
    Mark,
    Reading,
    decode_mark,
    encode_mark,
    start_time,
)

DAY_MS = 86_400_000
DURATIONS = st.one_of(st.integers(0, 1000), st.integers(0, 30 * DAY_MS))
JUMPS = st.one_of(st.just(0), st.integers(-2000, 2000), st.integers(-30 * DAY_MS, 30 * DAY_MS))
RUNS = st.lists(st.tuples(DURATIONS, JUMPS, DURATIONS, JUMPS, st.booleans(), st.booleans()), min_size=1, max_size=8)


@given(RUNS)
def test_time_goes_on_and_no_faster_than_it_passes(runs: list[tuple[int, int, int, int, bool, bool]]) -> None:
    """A run: how long, a jump then, how long stopped, a jump then, whether the machine boots, whether the mark goes."""
    wall_ms, uptime_ms, boots, passed_ms = 100 * DAY_MS, 0, 0, 0
    time_ms = first_ms = start_time(0, None, Reading(wall_ms=wall_ms)).time_ms
    allowed_ms = 0
    for ran_ms, jump_ms, stopped_ms, other_jump_ms, is_booted, is_lost in runs:
        time_ms += ran_ms
        uptime_ms += ran_ms
        wall_ms += ran_ms + jump_ms
        mark = Mark(time_ms=time_ms, reading=Reading(wall_ms=wall_ms, boot=f"{boots}", uptime_ms=uptime_ms))
        wall_ms += stopped_ms + other_jump_ms
        uptime_ms = 0 if is_booted else uptime_ms + stopped_ms
        boots += is_booted
        now = Reading(wall_ms=wall_ms, boot=f"{boots}", uptime_ms=uptime_ms)
        found = start_time(time_ms, None if is_lost else decode_mark(encode_mark(mark)), now)
        assert found.time_ms >= time_ms
        if not (is_booted or is_lost):
            assert abs(found.time_ms - (time_ms + stopped_ms)) <= CORRECTION_MS_MAX
        allowed_ms += CORRECTION_MS_MAX + (DOWN_MS_MAX if is_booted or is_lost else 0)
        passed_ms += ran_ms + stopped_ms
        time_ms = found.time_ms
        assert time_ms - first_ms <= passed_ms + allowed_ms
