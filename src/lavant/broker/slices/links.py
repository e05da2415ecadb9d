"""Links between slices: the inbox of what arrives in any order, and the outlet of what is not yet acknowledged.

Unacknowledged items are bounded and kept to be sent again. They are part of the slice's state: they move with it, and a
host that keeps its state over crashes keeps them too. So everything a slice has processed eventually reaches every
downstream slice, however often hosts and links fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from lavant.core.ids import SliceId

WINDOW = 1024
"""Items that may be in flight on one link."""

T = TypeVar("T")


class Inbox(Generic[T]):
    """
    >>> inbox = Inbox()
    >>> [inbox.put("AP:0", number, f"item {number}") for number in (2, 1, 1)]
    [True, True, False]
    >>> inbox.take("AP:0"), inbox.take("AP:0"), inbox.take("AP:0")
    ((1, 'item 1'), (2, 'item 2'), None)
    >>> inbox.vector
    {'AP:0': 2}
    """

    def __init__(self, vector: Mapping[SliceId, int] | None = None) -> None:
        self.vector: dict[SliceId, int] = {} if vector is None else dict(vector)
        self._waiting: dict[SliceId, dict[int, T]] = {}

    def put(self, upstream: SliceId, sequence: int, item: T) -> bool:
        """Keep an item until it is taken; false if it is a repetition."""
        waiting = self._waiting.setdefault(upstream, {})
        if sequence <= self.vector.get(upstream, 0) or sequence in waiting:
            return False
        waiting[sequence] = item
        if len(waiting) > WINDOW:
            del waiting[min(waiting)]
        return True

    def take(self, upstream: SliceId) -> tuple[int, T] | None:
        """The next item of this upstream with its number, if it has arrived; from now on it is in the vector."""
        sequence = self.vector.get(upstream, 0) + 1
        waiting = self._waiting.get(upstream)
        if waiting is None or sequence not in waiting:
            return None
        self.vector[upstream] = sequence
        return sequence, waiting.pop(sequence)

    def upstreams(self) -> list[SliceId]:
        """Upstreams with waiting items, in a fixed order."""
        return sorted(upstream for upstream, waiting in self._waiting.items() if waiting)

    def advance(self, vector: Mapping[SliceId, int]) -> None:
        """Adopt this vector, and drop the items it contains: the state that came with it includes them."""
        self.vector = dict(vector)
        for upstream, waiting in self._waiting.items():
            seen = self.vector.get(upstream, 0)
            self._waiting[upstream] = {number: item for number, item in waiting.items() if number > seen}

    def items(self) -> Iterator[tuple[SliceId, int, T]]:
        """All waiting items with upstream and number, in a fixed order."""
        for upstream in sorted(self._waiting):
            for sequence, item in sorted(self._waiting[upstream].items()):
                yield upstream, sequence, item

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))


RESEND_MS = 200
RESEND_MS_MAX = 3_000
BURST = 32
"""Items that are resent at once; later ones have probably arrived."""


class Item(NamedTuple):
    to: SliceId
    sequence: int
    content: bytes


class _Link(msgspec.Struct):
    items: deque[Item]
    resend_ms: int = 0
    """When the first is resent; not saved, so at once after a move."""
    wait_ms: int = RESEND_MS


class Outlet:
    """The outgoing links of one slice."""

    def __init__(self) -> None:
        self._links: dict[SliceId, _Link] = {}

    def keep(self, item: Item, now_ms: int) -> None:
        """Keep an item until it is acknowledged."""
        link = self._links.setdefault(item.to, _Link(deque()))
        assert len(link.items) < WINDOW, "a sender checks for room before"
        if not link.items:
            link.resend_ms, link.wait_ms = now_ms + RESEND_MS, RESEND_MS
        link.items.append(item)

    def acknowledge(self, to: SliceId, sequence: int, now_ms: int) -> None:
        """Drop everything up to this number."""
        link = self._links.get(to)
        if link is None or not link.items or link.items[0].sequence > sequence:
            return
        while link.items and link.items[0].sequence <= sequence:
            link.items.popleft()
        link.resend_ms, link.wait_ms = now_ms + RESEND_MS, RESEND_MS

    @property
    def room(self) -> int:
        """How many more items fit on every link."""
        return WINDOW - max((len(link.items) for link in self._links.values()), default=0)

    def resend(self, now_ms: int) -> Iterator[Item]:
        """The oldest items of each link that is due, with back-off."""
        for link in self._links.values():
            if link.items and link.resend_ms <= now_ms:
                link.resend_ms = now_ms + link.wait_ms
                link.wait_ms = min(2 * link.wait_ms, RESEND_MS_MAX)
                yield from list(link.items)[:BURST]

    def restart(self) -> None:
        """Resend everything at once, whatever the clock shows now."""
        for link in self._links.values():
            link.resend_ms, link.wait_ms = 0, RESEND_MS

    def wakeup_ms(self) -> int | None:
        return min((link.resend_ms for link in self._links.values() if link.items), default=None)

    def save(self) -> list[Item]:
        """In a fixed order, so that equal states have equal bytes."""
        return [item for to in sorted(self._links) for item in self._links[to].items]

    @classmethod
    def load(cls, items: list[Item]) -> Outlet:
        outlet = cls()
        for item in items:
            outlet._links.setdefault(item.to, _Link(deque())).items.append(item)
        return outlet
