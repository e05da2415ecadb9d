"""What a client that comes back has had."""

from __future__ import annotations

from collections import OrderedDict

from lavant.broker.protocol.queues import Receipt
from lavant.service.http.streams import sse_resume as lately
from lavant.service.http.streams.sse_resume import SseResume


class Stream:
    def __init__(self, *numbers: int) -> None:
        self.unacknowledged = OrderedDict((number, Receipt(number, 1)) for number in numbers)


def test_it_has_had_all_that_was_sent_before_on_the_same_stream() -> None:
    known = SseResume()
    known.opened("q", Stream(1, 2))
    known.opened("q", Stream(7, 3, 9))
    known.opened("p", Stream(4))
    assert known.had("q", 3) == [Receipt(7, 1), Receipt(3, 1)]
    assert known.had("q", 4) == []
    assert known.had("none", 4) == []


def test_a_stream_that_ended_is_remembered_for_a_while_only() -> None:
    now_s = 0.0
    known = SseResume(lambda: now_s)
    ended, another = Stream(1), Stream(2)
    known.opened("q", ended)
    known.ended("q", ended)
    now_s = lately.REMEMBERED_S
    assert known.had("q", 1) == [Receipt(1, 1)]
    now_s += 1
    known.opened("q", another)
    assert (known.had("q", 1), len(known)) == ([], 1)


def test_there_is_a_bound_on_what_is_remembered() -> None:
    known = SseResume(lambda: 0.0)
    for number in range(lately.STREAMS_MAX + 10):
        stream = Stream(number)
        known.opened(f"q{number}", stream)
        known.ended(f"q{number}", stream)
    assert len(known) == lately.STREAMS_MAX
