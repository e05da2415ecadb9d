"""Marked publications: each broker remembers when one crossed its links, and not for ever."""

from __future__ import annotations

from itertools import count

import msgspec

from lavant.broker.federation.frames import LinkPublications
from lavant.service.federation.tracing import EVENTS_MAX, MARKED_MAX, MarkedPublications


def batch(first: int, *ids: str) -> LinkPublications:
    bodies = [b'{"price":1,"@id":"%s"}' % id.encode() for id in ids]
    return LinkPublications(first, "", bodies, [], ["b1"], b"", b"", b"", 0)


def whats(marked: MarkedPublications, id: str) -> list[tuple[str, str]]:
    return [(each.neighbour, each.what) for each in marked.events(b'{"@id":"%s"}' % id.encode())]


def marked_publications() -> MarkedPublications:
    times = count()
    return MarkedPublications(lambda: next(times))


def test_a_marked_publication_is_followed_over_each_link() -> None:
    marked = marked_publications()
    marked.received("B1", batch(7, "lavant-trace-a", "other"))
    marked.sent("B3", batch(11, "other", "lavant-trace-a"))
    marked.confirmed("B3", 11)
    assert whats(marked, "lavant-trace-a") == [("B1", "received"), ("B3", "sent")]
    marked.confirmed("B1", 99)
    marked.confirmed("B3", 12)
    marked.confirmed("B3", 13)
    assert whats(marked, "lavant-trace-a") == [("B1", "received"), ("B3", "sent"), ("B3", "confirmed")]
    assert whats(marked, "other") == []


def test_what_is_remembered_is_bounded() -> None:
    marked = marked_publications()
    for number in range(MARKED_MAX + 5):
        marked.sent("B2", batch(number, f"lavant-trace-{number}"))
    assert whats(marked, "lavant-trace-4") == []
    assert whats(marked, "lavant-trace-5") == [("B2", "sent")]
    for _ in range(2 * EVENTS_MAX):
        marked.received("B2", batch(1, "lavant-trace-5"))
    assert len(whats(marked, "lavant-trace-5")) == EVENTS_MAX


def test_a_body_that_is_no_publication_is_not_remembered() -> None:
    """A neighbour may send anything; what cannot be read is refused when it is matched."""
    marked = marked_publications()
    for body in (b'{"lavant-trace-', b'{"@id":1,"x":"lavant-trace-"}'):
        marked.received("B1", msgspec.structs.replace(batch(7, "x"), bodies=[body]))
        assert marked.events(body) == []
