"""What a slice has sent and nobody has acknowledged: kept to be sent again, and bounded.

It is part of the slice's state: it moves with it, and a host that keeps its state over crashes keeps it too. So what a
slice has processed reaches every downstream slice some time, however often hosts and links fail in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from lavant.broker.slices.inbox import WINDOW
from lavant.core.ids import SliceId

RESEND_MS = 200
RESEND_MS_MAX = 3_000
BURST = 32
"""Items that are sent again at once; those behind them have probably arrived."""


class Item(NamedTuple):
    to: SliceId
    sequence: int
    content: bytes


class _Link(msgspec.Struct):
    items: deque[Item]
    resend_ms: int = 0
    """When the first is sent again; times are not saved, so at once after a move."""
    wait_ms: int = RESEND_MS


class Outlet:
    """The outgoing links of one slice."""

    def __init__(self) -> None:
        self._links: dict[SliceId, _Link] = {}

    def keep(self, item: Item, now_ms: int) -> None:
        """Until it is acknowledged."""
        link = self._links.setdefault(item.to, _Link(deque()))
        assert len(link.items) < WINDOW, "who sends asks for room before"
        if not link.items:
            link.resend_ms, link.wait_ms = now_ms + RESEND_MS, RESEND_MS
        link.items.append(item)

    def acknowledge(self, to: SliceId, sequence: int, now_ms: int) -> None:
        """Forget everything up to this number."""
        link = self._links.get(to)
        if link is None or not link.items or link.items[0].sequence > sequence:
            return
        while link.items and link.items[0].sequence <= sequence:
            link.items.popleft()
        link.resend_ms, link.wait_ms = now_ms + RESEND_MS, RESEND_MS

    @property
    def room(self) -> int:
        """How many more fit on every link."""
        return WINDOW - max((len(link.items) for link in self._links.values()), default=0)

    def resend(self, now_ms: int) -> Iterator[Item]:
        """The oldest of each link that has waited long enough, ever more rarely."""
        for link in self._links.values():
            if link.items and link.resend_ms <= now_ms:
                link.resend_ms = now_ms + link.wait_ms
                link.wait_ms = min(2 * link.wait_ms, RESEND_MS_MAX)
                yield from list(link.items)[:BURST]

    def restart(self) -> None:
        """Send everything again at once, whatever the clock shows now."""
        for link in self._links.values():
            link.resend_ms, link.wait_ms = 0, RESEND_MS

    def wakeup_ms(self) -> int | None:
        return min((link.resend_ms for link in self._links.values() if link.items), default=None)

    def save(self) -> list[Item]:
        """In a fixed order, so that the same state has the same bytes."""
        return [item for to in sorted(self._links) for item in self._links[to].items]

    @classmethod
    def load(cls, items: list[Item]) -> Outlet:
        outlet = cls()
        for item in items:
            outlet._links.setdefault(item.to, _Link(deque())).items.append(item)
        return outlet
