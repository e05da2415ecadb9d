"""When messages were sent and received, against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lavant.service.observability.telemetry.digest import UNKNOWN, ReceivedTimes, SentTimes


@given(batches=st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=20), most=st.integers(5, 8))
def test_the_latest_requests_say_when_their_messages_were_sent(batches: list[list[int]], most: int) -> None:
    sent, last, now = SentTimes(10, most), 10, 100
    times: dict[int, int] = {}
    requests: list[list[int]] = []
    for batch in batches:
        lasts, at = [], []
        for count in batch:
            now += 1
            numbers = list(range(last + 1, last + count + 1))
            times |= dict.fromkeys(numbers, now)
            requests += [numbers] if numbers else []
            last += count
            lasts.append(last)
            at.append(now)
        sent.add(np.array(lasts, np.int64), np.array(at, np.int64))
    sure = [number for numbers in requests[-(most - 1) :] for number in numbers]
    assert sent.of(np.array(sure, np.int64)).tolist() == [times[number] for number in sure]
    others = [number for number in range(1, last + 3) if number not in sure]
    assert all(
        time in (UNKNOWN, times.get(number))
        for number, time in zip(others, sent.of(np.array(others, np.int64)).tolist(), strict=True)
    )


STEP = st.tuples(st.booleans(), st.lists(st.integers(1, 40), max_size=6))


@given(steps=st.lists(STEP, max_size=20))
def test_what_was_received_is_known_once(steps: list[tuple[bool, list[int]]]) -> None:
    received, known = ReceivedTimes(64), dict[int, int]()
    for time, (is_received, numbers) in enumerate(steps, 1):
        column = np.array(numbers, np.int64)
        if is_received:
            received.put(column, np.full(len(numbers), time))
            known |= dict.fromkeys(numbers, time)
        else:
            assert received.pop(column).tolist() == [known.pop(number, UNKNOWN) for number in numbers]


def test_a_message_far_behind_takes_the_slot() -> None:
    received = ReceivedTimes(8)
    received.put(np.array([3, 11]), np.array([5, 6]))
    assert received.pop(np.array([3])).tolist() == [UNKNOWN]
    assert received.pop(np.array([11])).tolist() == [6]
