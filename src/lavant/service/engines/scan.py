"""The scan engine: every publication is compared with every filter, without kernels.

A server starts with it, so that it serves at once; the local engine replaces it as soon as its kernels are loaded, or
compiled if they must be. It takes few subscriptions and plain filters only: what it does not take waits for the local
engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lavant.broker.filters import Filter
from lavant.broker.matching.plain.encoder import decode_filters
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.protocol.subscriptions import EncryptedFilter
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.service.engines.interface import ChangeBatch, EngineBatch, Retired

SUBSCRIPTIONS_MAX = 1000
"""A publication is compared with so many in about 2 ms."""
PUBLICATIONS_AT_ONCE = 20
"""Publications of one part of the result, so that a part has as few notifications as one of the local engine."""


class CompiledKernels:
    """The kernels of the local engine, which may still be compiled."""

    def __init__(self) -> None:
        self.on_awaited: Callable[[bool], None] = lambda is_awaited: None
        """Called when something begins to wait for them, and when it goes on."""
        self._compiled: asyncio.Future[None] | None = None

    def expect(self, compiled: asyncio.Future[None]) -> None:
        """They are missing until this is done."""
        self._compiled = compiled

    @property
    def are_missing(self) -> bool:
        """Whether nobody has waited for them yet."""
        return self._compiled is not None

    @property
    def have_come(self) -> bool:
        """Whether they, or the reason why they cannot be had, are there since."""
        return self._compiled is not None and self._compiled.done() and not self._compiled.cancelled()

    async def wait(self) -> None:
        if self._compiled is None:
            return
        if not self._compiled.done():
            self.on_awaited(True)
            await self._compiled
            self.on_awaited(False)
        self._compiled.result()
        self._compiled = None

    async def cancel(self) -> None:
        """The server stops: what waits for them is cancelled."""
        if self._compiled is not None:
            self._compiled.cancel()
            await asyncio.wait([self._compiled])


class ScanEngine:
    """Filters and queues of subscriptions by namespace and number."""

    waits = False
    scopes_max: int | None = None

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[int, tuple[Filter, int]]] = {}

    @staticmethod
    def takes(filters: Iterable[str | EncryptedFilter], known: int) -> bool:
        """Whether it can match these besides so many others."""
        listed = list(filters)
        return known + len(listed) <= SUBSCRIPTIONS_MAX and all(isinstance(each, str) for each in listed)

    def change(self, batches: Sequence[ChangeBatch]) -> None:
        for batch in batches:
            own = self._namespaces.setdefault(batch.scope.namespace, {})
            if batch.serials is None:
                for number in batch.numbers:
                    del own[number]
            else:
                assert isinstance(batch.filters, FilterTable)
                filters = decode_filters(batch.filters)
                own.update(zip(batch.numbers, zip(filters, batch.serials, strict=True), strict=True))
            if not own:
                del self._namespaces[batch.scope.namespace]

    def retire(self) -> list[Retired]:
        """It has no log."""
        return []

    def check_room(self, namespace: str) -> None:
        """Nothing waits here: the ingest queue has its own bound."""

    def publish(self, batch: EngineBatch) -> list[FanOutBatch]:
        own = self._namespaces.get(batch.namespace)
        if own is None or batch.scheme != PLAIN:
            return [FanOutBatch.nothing(len(batch.publications))]
        return [
            _fan_out(own.values(), batch.publications[start : start + PUBLICATIONS_AT_ONCE], start)
            for start in range(0, len(batch.publications), PUBLICATIONS_AT_ONCE)
        ]

    def close(self) -> None:
        """It holds nothing but memory."""


def _fan_out(
    subscriptions: Iterable[tuple[Filter, int]], publications: Sequence[ParsedPublication], start: int
) -> FanOutBatch:
    places: dict[int, list[int]] = {}
    wanted = np.zeros(len(publications), np.bool_)
    for place, publication in enumerate(publications):
        content = publication.content
        assert isinstance(content, dict)
        serials = dict.fromkeys(serial for filter, serial in subscriptions if filter.matches(content))
        wanted[place] = bool(serials)
        for serial in serials:
            places.setdefault(serial, []).append(place)
    ends = np.cumsum([len(each) for each in places.values()])
    return FanOutBatch(
        start,
        start + len(publications),
        np.array(list(places), INTEGERS).tobytes(),
        ends.astype(INTEGERS).tobytes(),
        np.array([place for each in places.values() for place in each], INTEGERS).tobytes(),
        wanted,
    )
