"""The queue of a link: batches that are sent leave nothing out, whatever their bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.federation.frames import LinkPublications
from lavant.broker.federation.link_queue import LinkQueue


def batch_of(first: int, sizes: list[int]) -> LinkPublications:
    count = len(sizes)
    numbers = np.arange(first, first + count, dtype="<u8").tobytes()
    bodies = [bytes(size) for size in sizes]
    return LinkPublications(first, "", bodies, [], [""], bytes(2 * count), numbers, bytes(count), entered_ms=1)


@given(
    batches=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), min_size=1, max_size=8),
    confirmed=st.integers(0, 60),
    until=st.integers(1, 60),
    count_max=st.integers(1, 20),
    bytes_max=st.integers(1, 300),
)
def test_what_is_sent_has_no_gaps(
    batches: list[list[int]], confirmed: int, until: int, count_max: int, bytes_max: int
) -> None:
    queue = LinkQueue()
    for sizes in batches:
        queue.add(batch_of(queue.number + 1, sizes))
    sent = min(confirmed, queue.number)
    until = min(max(until, sent), queue.number)
    queue.acknowledge(sent)
    while sent < until:
        parts = list(queue.after(sent, until, count_max, bytes_max))
        assert parts
        assert sum(len(part.bodies) for part in parts) <= count_max
        for part in parts:
            assert part.first == sent + 1
            assert part.origin_numbers == np.arange(part.first, part.last + 1, dtype="<u8").tobytes()
            sent = part.last
    assert sent == until
