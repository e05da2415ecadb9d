"""Routes matches to queues: subscriptions may share a queue, which gets each publication once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.interface import Matches
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.core.kernels.kernels import frozen, kernel

NOWHERE = -1
PAGE_BITS = 10
"""A page holds the routes of 1024 subscriptions."""
PAIRS_MAX = 20_000
"""Notifications enqueued at once: some 50 ms of work before other requests get their turn."""

_IN_PAGE = (1 << PAGE_BITS) - 1

Routes32 = NDArray[np.int32]
Counts = NDArray[np.int64]


class FanOutBatch(NamedTuple):
    """The fan-out of publications `start` to `stop` of a batch, in the layout of `FanOut`; places begin at 0."""

    start: int
    stop: int
    queues: bytes
    ends: bytes
    places: bytes
    wanted: NDArray[np.bool_]
    """Which of these publications go to any queue."""

    @classmethod
    def nothing(cls, publications: int) -> FanOutBatch:
        """No queue gets any of them."""
        return cls(0, publications, b"", b"", b"", np.zeros(publications, np.bool_))

    def only(self, number: int) -> FanOutBatch:
        """The fan-out of a single publication, counted from the start of this batch."""
        places = np.frombuffer(self.places, INTEGERS)
        mine = np.flatnonzero(places == number)
        queue = np.searchsorted(np.frombuffer(self.ends, INTEGERS), mine, side="right")
        queues = np.frombuffer(self.queues, INTEGERS)[queue].tobytes()
        ends = np.arange(1, len(mine) + 1).astype(INTEGERS).tobytes()
        return FanOutBatch(number, number + 1, queues, ends, bytes(4 * len(mine)), self.wanted[number : number + 1])

    def fitting(self, size_bytes: int, queues: Queues) -> tuple[FanOutBatch, int]:
        """The fan-out of a single publication without queues that do not allow its size, and how many these are.

        It was accepted, and can no longer be refused. Links and queues that were deleted stay.
        """
        serials = np.frombuffer(self.queues, INTEGERS).tolist()
        kept = [serial for serial in serials if _takes(queues, serial, size_bytes)]
        batch = self._replace(
            queues=np.array(kept, INTEGERS).tobytes(),
            ends=np.arange(1, len(kept) + 1).astype(INTEGERS).tobytes(),
            places=bytes(INTEGERS.itemsize * len(kept)),
        )
        return batch, len(serials) - len(kept)


def _takes(queues: Queues, serial: int, size_bytes: int) -> bool:
    return all(queues.config(name).message_bytes_max >= size_bytes for name in queues.names_of([serial]))


class QueueRoutes:
    """The queue of each subscription. Queues are numbered densely here to keep arrays small.

    Subscription numbers are unique over the whole server, so a namespace may have few but large ones. Memory is
    allocated only for the pages of numbers in use.
    """

    def __init__(self) -> None:
        self._page_of: Routes32 = np.full(1, NOWHERE, np.int32)
        """By the upper bits of a subscription's number."""
        self._pages: NDArray[np.int32] = np.full((1, 1 << PAGE_BITS), NOWHERE, np.int32)
        """Routes of subscriptions, by the lower bits."""
        self._used: list[int] = []
        """Number of subscriptions on each page."""
        self._free_pages: list[int] = []
        self._serials: NDArray[np.uint32] = np.zeros(64, INTEGERS)
        """Serials of queues, by route."""
        self._routes: dict[int, int] = {}
        """Routes by serial."""
        self._users: list[int] = []
        """Number of subscriptions on each route."""
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._routes)

    def add(self, subscription: int, serial: int) -> None:
        route = self._routes.get(serial)
        if route is None:
            route = self._new_route(serial)
        self._users[route] += 1
        page = self._page_for(subscription >> PAGE_BITS)
        self._pages[page, subscription & _IN_PAGE] = route
        self._used[page] += 1

    def remove(self, subscription: int) -> None:
        page = int(self._page_of[subscription >> PAGE_BITS])
        route = int(self._pages[page, subscription & _IN_PAGE])
        self._pages[page, subscription & _IN_PAGE] = NOWHERE
        self._used[page] -= 1
        if not self._used[page]:
            self._page_of[subscription >> PAGE_BITS] = NOWHERE
            self._free_pages.append(page)
        self._users[route] -= 1
        if not self._users[route]:
            del self._routes[int(self._serials[route])]
            self._free.append(route)

    def fan_out(self, matches: Matches, pairs_max: int = PAIRS_MAX) -> Iterator[FanOutBatch]:
        """Yield the fan-out in batches of at most `pairs_max` notifications, or of one publication.

        >>> routes = QueueRoutes()
        >>> for subscription, queue in ((1, 70), (2, 70), (3, 80)):
        ...     routes.add(subscription, queue)
        >>> matches = Matches(np.array([0, 2, 4]), np.array([1, 2, 2, 3], np.uint32))
        >>> [batch] = routes.fan_out(matches)
        >>> [np.frombuffer(data, INTEGERS).tolist() for data in batch[2:5]]
        [[70, 80], [2, 3], [0, 1, 1]]
        """
        publications, start, routes = len(matches.offsets) - 1, 0, len(self._users)
        found = frozen(matches.offsets), frozen(matches.ids)
        seen = np.full(routes, NOWHERE, np.int64)
        pairs = np.empty(min(len(matches.ids), pairs_max + routes), np.int32)
        while start < publications:
            counts = np.zeros(routes, np.int64)
            pair_ends = np.empty(publications - start, np.int64)
            known = len(self._routes)
            stop = _count(*found, self._page_of, self._pages, start, pairs_max, known, counts, seen, pairs, pair_ends)
            used = np.flatnonzero(counts)
            ends = np.cumsum(counts[used])
            places = np.empty(ends[-1] if len(ends) else 0, INTEGERS)
            wanted = np.empty(stop - start, np.bool_)
            cursor = np.zeros(routes, np.int64)
            cursor[used] = ends - counts[used]
            _fill(pairs, pair_ends, cursor, places, wanted)
            serials = self._serials[used].tobytes()
            yield FanOutBatch(start, stop, serials, ends.astype(INTEGERS).tobytes(), places.tobytes(), wanted)
            start = stop

    def _page_for(self, upper: int) -> int:
        if upper >= len(self._page_of):
            self._page_of = _grown(self._page_of, upper + 1)
        page = int(self._page_of[upper])
        if page == NOWHERE:
            page = self._free_pages.pop() if self._free_pages else self._new_page()
            self._page_of[upper] = page
        return page

    def _new_page(self) -> int:
        self._used.append(0)
        if len(self._used) > len(self._pages):
            self._pages = _grown(self._pages, len(self._used))
        return len(self._used) - 1

    def _new_route(self, serial: int) -> int:
        if self._free:
            route = self._free.pop()
        else:
            route = len(self._users)
            self._users.append(0)
            if route >= len(self._serials):
                self._serials = np.concatenate([self._serials, np.zeros_like(self._serials)])
        self._serials[route] = serial
        self._routes[serial] = route
        return route


def _grown(array: NDArray[np.int32], rows: int) -> NDArray[np.int32]:
    """With room for so many rows, and half as many again."""
    grown = np.full((rows + rows // 2, *array.shape[1:]), NOWHERE, np.int32)
    grown[: len(array)] = array
    return grown


@kernel
def _count(
    offsets: Counts,
    ids: NDArray[np.uint32],
    page_of: Routes32,
    pages: NDArray[np.int32],
    start: int,
    pairs_max: int,
    routes: int,
    counts: Counts,
    seen: Counts,
    pairs: Routes32,
    pair_ends: Counts,
) -> int:
    """Count the messages of each route until there are enough; return the first publication left for later.

    The routes of the first publication are in `pairs` up to `pair_ends[0]`, followed by those of the next, and so on. A
    publication that goes to all `routes` is not examined further: thousands of subscriptions may share a few queues.
    """
    found = 0
    for publication in range(start, len(offsets) - 1):
        full = found + routes
        for position in range(offsets[publication], offsets[publication + 1]):
            number = ids[position]
            page = page_of[number >> PAGE_BITS] if number >> PAGE_BITS < len(page_of) else NOWHERE
            route = pages[page, number & _IN_PAGE] if page >= 0 else NOWHERE
            if route >= 0 and seen[route] != publication:
                seen[route] = publication
                counts[route] += 1
                pairs[found] = route
                found += 1
                if found == full:
                    break
        pair_ends[publication - start] = found
        if found >= pairs_max:
            return publication + 1
    return len(offsets) - 1


@kernel
def _fill(
    pairs: Routes32, pair_ends: Counts, cursor: Counts, places: NDArray[np.uint32], wanted: NDArray[np.bool_]
) -> None:
    """Fill in the publications of each route, ascending."""
    first = 0
    for place in range(len(wanted)):
        for pair in range(first, pair_ends[place]):
            route = pairs[pair]
            places[cursor[route]] = place
            cursor[route] += 1
        wanted[place] = pair_ends[place] > first
        first = pair_ends[place]
