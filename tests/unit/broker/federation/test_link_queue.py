"""The queue of a link: batches that are sent leave nothing out, whatever their bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lavant.broker.federation.frames import LinkPublications
from lavant.broker.federation.link_queue import LinkQueue, joined


def batch_of(first: int, sizes: list[int]) -> LinkPublications:
    count = len(sizes)
    numbers = np.arange(first, first + count, dtype="<u8").tobytes()
    bodies = [bytes(size) for size in sizes]
    return LinkPublications(first, "", bodies, [], [""], bytes(2 * count), numbers, bytes(count), entered_ms=1)


def rows_of(batch: LinkPublications) -> list[tuple[object, ...]]:
    """All that a batch says of each publication."""
    origin_of = np.frombuffer(batch.origin_of, "<u2").tolist()
    numbers = np.frombuffer(batch.origin_numbers, "<u8").tolist()
    points = batch.points if batch.points else [None] * len(batch.bodies)
    origins = [batch.origins[origin] for origin in origin_of]
    columns = (range(batch.first, batch.last + 1), batch.bodies, points, origins, numbers, batch.hops)
    return [(batch.namespace, *row) for row in zip(*columns, strict=True)]


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


def test_vectors_of_encrypted_publications_count_among_the_bytes_that_are_sent() -> None:
    queue = LinkQueue()
    queue.add(replace(batch_of(1, [10] * 8), points=[bytes(79)] * 8))
    assert [len(part.bodies) for part in queue.after(0, 8, 8, bytes_max=300)] == [3]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "a"]),
            st.booleans(),
            st.permutations(["", "o", "p"]),
            st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=4),
        ),
        max_size=8,
    )
)
def test_joined_batches_say_the_same_of_each_publication(
    contents: list[tuple[str, bool, list[str], list[tuple[int, int, int]]]],
) -> None:
    batches: list[LinkPublications] = []
    for namespace, is_encrypted, origins, rows in contents:
        first = batches[-1].last + 1 if batches else 1
        origin_of, numbers, hops = (list(column) for column in zip(*rows, strict=True))
        bodies = [b"%d" % (first + place) for place in range(len(rows))]
        columns = np.array(origin_of, "<u2").tobytes(), np.array(numbers, "<u8").tobytes(), bytes(hops)
        points = [body + b"p" for body in bodies] if is_encrypted else []
        batches.append(LinkPublications(first, namespace, bodies, points, origins, *columns, entered_ms=first))
    frames = list(joined(batches))
    assert [row for frame in frames for row in rows_of(frame)] == [row for batch in batches for row in rows_of(batch)]
    kinds = [(frame.namespace, bool(frame.points)) for frame in frames]
    assert all(one != other for one, other in pairwise(kinds)), "what can be in one frame is"
