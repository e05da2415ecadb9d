"""The window of a consumer that is connected: messages of a queue that it has, and has not acknowledged.

    queue ──lease──► in the window ──┬──► acknowledged
                                     ├──► given back, by the client or because its connection ended: visible at once
                                     └──► its lease ran out: out of the window, and visible to others

When the window is full, nothing more is leased. So a client that never acknowledges holds a bounded number of messages,
and each only for as long as the queue's visibility timeout says.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable

from lavant.broker.protocol.queue_config import WAIT_MS_MAX
from lavant.broker.protocol.queues import Delivery, Receipt, Receive, Received, Refused
from lavant.core.errors import TooManyInFlight
from lavant.service.auth.keys import Principal
from lavant.service.delivery.consumer import acknowledge, give_back, release
from lavant.service.http.errors import error_of
from lavant.service.runtime.broker_runtime import BrokerRuntime

RECEIVE_COUNT_MAX = 100
"""At once: the answer is in memory twice."""
CROWDED_S = 1.0
"""How long to wait if others have as many messages of the queue in flight as may be."""


class PrefetchWindow:
    """Of one stream on one queue."""

    def __init__(
        self, service: BrokerRuntime, queue: str, principal: Principal, *, size: int, visibility_ms: int
    ) -> None:
        self.queue = queue
        self.unacknowledged: OrderedDict[int, Receipt] = OrderedDict()
        """By number, in the order in which they were leased."""
        self._unsent: dict[int, None] = {}
        """Those of them that the client has not been sent."""
        self._service = service
        self._principal = principal
        self._size = size
        self._visibility_ms = visibility_ms
        self._expire_s: OrderedDict[int, float] = OrderedDict()
        self._changed = asyncio.Event()

    async def lease(self) -> list[Delivery]:
        """The next messages, when there are some and the window has room. Raises if the queue is gone.

        If this is cancelled, whatever it would have returned goes back to the queue. Empty if nothing came for a
        while, so that the caller can look around. Of each that was written to the client, `sent` is to be told.
        """
        room = await self._room()
        request = Receive(self.queue, min(room, RECEIVE_COUNT_MAX), self._visibility_ms, WAIT_MS_MAX)
        leased_s = time.monotonic()
        answer = await self._service.execute(request, self._principal)
        if isinstance(answer, Refused):
            if answer.code != TooManyInFlight.__name__:
                raise error_of(answer)
            await asyncio.sleep(CROWDED_S)
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
        """They are on their way to the client: if they come back, they count as received."""
        for number in numbers:
            self._unsent.pop(number, None)

    async def acknowledge(self, numbers: Iterable[int]) -> dict[int, Refused]:
        """Those that were refused, by number. One that is not in the window was acknowledged, or its lease ran out."""
        chosen, refused = self._take(numbers)
        for place, refusal in (await acknowledge(self._service, self.queue, list(chosen.values()))).items():
            refused[list(chosen)[place]] = refusal
        return refused

    async def give_back(self, numbers: Iterable[int]) -> dict[int, Refused]:
        """They can be received again at once."""
        chosen, refused = self._take(numbers)
        await give_back(self._service, self.queue, list(chosen.values()))
        return refused

    async def close(self) -> None:
        """Give everything back; what was in the window can be asked for still."""
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
        """Forget leases that ran out; all are as long, so the oldest are the first."""
        now_s = time.monotonic()
        while self._expire_s and next(iter(self._expire_s.values())) <= now_s:
            number, _ = self._expire_s.popitem(last=False)
            del self.unacknowledged[number]
            self._unsent.pop(number, None)
