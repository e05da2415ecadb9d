"""A bucket lets through what it says, and not more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lavant.service.auth.rate_limits import TokenBucket


def test_what_is_not_there_has_to_be_waited_for() -> None:
    bucket = TokenBucket(10)
    assert bucket.take(7, 100.0) == 0
    assert bucket.take(5, 100.0) == 0.2
    assert bucket.take(3, 100.0) == 0
    assert bucket.take(10, 101.0) == 0


@given(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 10)), max_size=40),
)
def test_in_the_long_run_nobody_gets_more_than_the_rate(rate_per_s: float, asked: list[tuple[int, float]]) -> None:
    bucket, now_s, done, largest = TokenBucket(rate_per_s), 0.0, 0, 0
    for count, later_s in asked:
        now_s += later_s
        wait_s = bucket.take(count, now_s)
        if wait_s == 0:
            done, largest = done + count, max(largest, count)
        else:
            # Whoever waits as long as it is told gets it.
            now_s += wait_s + 0.001
            assert bucket.take(count, now_s) == 0
            done, largest = done + count, max(largest, count)
    assert done <= rate_per_s * now_s + max(1.0, rate_per_s) + largest + 1e-6
