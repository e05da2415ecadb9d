"""Delivery by stream: a connected consumer is sent messages, within a prefetch window of unacknowledged ones.

    queue ──lease──► in the window ──┬──► acknowledged
                                     ├──► released, by the client or because its connection ended: visible at once
                                     └──► lease expired: out of the window, and visible to others

When the window is full, nothing more is leased. So a client that never acknowledges holds a bounded number of messages,
each for no longer than the visibility timeout. Front-ends (`lavant.service.http.streams`) write the messages.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lavant.broker.protocol.queue_config import WAIT_MS_MAX
from lavant.broker.protocol.queues import Delivery, Receipt, Receive, Received, Refused
from lavant.core.errors import SubscriptionMoved, TooManyInFlight, error_class
from lavant.service.auth.keys import Principal
from lavant.service.delivery.interface import DeliveryKind
from lavant.service.delivery.queue import acknowledge, give_back, release
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.runtime.broker_runtime import BrokerRuntime

SSE, WEBSOCKET = "sse", "websocket"
RECEIVE_COUNT_MAX = 100
"""In one receive: the answer is in memory twice."""
IN_FLIGHT_FULL_S = 1.0
"""How long to wait if the queue has as many messages in flight as it may."""


class StreamDelivery(DeliveryKind):
    """Serves streams that front-ends open."""

    name = "stream"
    ways = (SSE, WEBSOCKET)

    def __init__(self, service: BrokerRuntime, *, to_private: bool) -> None:
        super().__init__(service, to_private=to_private)
        self.open = Counter(dict.fromkeys(self.ways, 0))
        """Streams that are open, by way."""

    @contextmanager
    def counted(self, way: str) -> Iterator[None]:
        """Counts a stream while it is open."""
        self.open[way] += 1
        try:
            yield
        finally:
            self.open[way] -= 1

    def window(self, queue: str, principal: Principal, *, size: int, visibility_ms: int) -> PrefetchWindow:
        return PrefetchWindow(self._service, queue, principal, size=size, visibility_ms=visibility_ms)

    def families(self) -> Iterator[MetricFamily]:
        samples = [({"kind": way}, count) for way, count in self.open.items()]
        yield MetricFamily("lavant_streams", "gauge", "Streams that are open.", samples)


class PrefetchWindow:
    """The messages that one stream has leased from one queue."""

    def __init__(
        self, service: BrokerRuntime, queue: str, principal: Principal, *, size: int, visibility_ms: int
    ) -> None:
        self.queue = queue
        self.unacknowledged: OrderedDict[int, Receipt] = OrderedDict()
        """By number, in the order in which they were leased."""
        self._unsent: dict[int, None] = {}
        """Numbers of messages that were not written to the client yet."""
        self._service = service
        self._principal = principal
        self._size = size
        self._visibility_ms = visibility_ms
        self._expire_s: OrderedDict[int, float] = OrderedDict()
        self._changed = asyncio.Event()

    async def lease(self) -> list[Delivery]:
        """Leases messages when there are some and the window has room. Raises a `LavantError` if the queue is gone.

        Returns none if none came within a long poll. If this is cancelled, its messages return to the queue. Call
        `sent` for those that were written to the client.
        """
        room = await self._room()
        request = Receive(self.queue, min(room, RECEIVE_COUNT_MAX), self._visibility_ms, WAIT_MS_MAX)
        leased_s = time.monotonic()
        answer = await self._service.execute(request, self._principal)
        if isinstance(answer, Refused):
            if answer.code == SubscriptionMoved.__name__:
                raise SubscriptionMoved(answer.reason, answer.address)
            if answer.code != TooManyInFlight.__name__:
                raise error_class(answer.code)(answer.reason)
            await asyncio.sleep(IN_FLIGHT_FULL_S)
            return []
        assert isinstance(answer, Received)
        for delivery in answer.deliveries:
            number = delivery.receipt.number
            self._unsent[number] = None
            self.unacknowledged[number] = delivery.receipt
            self.unacknowledged.move_to_end(number)
            self._expire_s[number] = leased_s + self._visibility_ms / 1000
            self._expire_s.move_to_end(number)
        return answer.deliveries

    def sent(self, numbers: Iterable[int]) -> None:
        """Marks messages as written to the client: they count as received, even if they are not acknowledged."""
        for number in numbers:
            self._unsent.pop(number, None)

    async def acknowledge(self, numbers: Iterable[int]) -> dict[int, Refused]:
        """Acknowledges messages, and returns those that were refused, by number: they are not in the window."""
        chosen, refused = self._take(numbers)
        for place, refusal in (await acknowledge(self._service, self.queue, list(chosen.values()))).items():
            refused[list(chosen)[place]] = refusal
        return refused

    async def give_back(self, numbers: Iterable[int]) -> dict[int, Refused]:
        """Makes messages visible at once, and returns those that were refused."""
        chosen, refused = self._take(numbers)
        await give_back(self._service, self.queue, list(chosen.values()))
        return refused

    async def close(self) -> None:
        """Makes all messages visible. `unacknowledged` still lists them."""
        unsent = [receipt for number, receipt in self.unacknowledged.items() if number in self._unsent]
        sent = [receipt for number, receipt in self.unacknowledged.items() if number not in self._unsent]
        await release(self._service, self.queue, unsent)
        await give_back(self._service, self.queue, sent)

    def _take(self, numbers: Iterable[int]) -> tuple[dict[int, Receipt], dict[int, Refused]]:
        chosen: dict[int, Receipt] = {}
        refused: dict[int, Refused] = {}
        for number in numbers:
            receipt = self.unacknowledged.pop(number, None)
            self._unsent.pop(number, None)
            self._expire_s.pop(number, None)
            if receipt is None:
                refused[number] = Refused(
                    "NotInFlight",
                    f"message {number} is not with this stream: it was acknowledged or given back before, or its lease "
                    "ran out; set a longer visibility_ms",
                )
            else:
                chosen[number] = receipt
        self._changed.set()
        return chosen, refused

    async def _room(self) -> int:
        while True:
            self._expire()
            room = self._size - len(self.unacknowledged)
            if room > 0:
                return room
            self._changed.clear()
            first_s = next(iter(self._expire_s.values()))
            try:
                async with asyncio.timeout(max(0.01, first_s - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _expire(self) -> None:
        """Removes expired leases from the window. All leases are equally long, so the oldest expire first."""
        now_s = time.monotonic()
        while self._expire_s and next(iter(self._expire_s.values())) <= now_s:
            number, _ = self._expire_s.popitem(last=False)
            del self.unacknowledged[number]
            self._unsent.pop(number, None)
