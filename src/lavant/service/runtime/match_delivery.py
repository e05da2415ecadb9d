"""What a process that matches has found, on its way into queues: each part with how far it goes, so only once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from lavant.broker.machine.effects import Effect, Reply
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.match_protocol import MatchResults
from lavant.broker.protocol.queues import Done, FanOut
from lavant.broker.protocol.subscriptions import Deliver
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.core.errors import LavantError, LimitExceeded
from lavant.service.runtime.clock import ServerClock

OnMatched: TypeAlias = Callable[[int, int, int, float | None], None]
InThread: TypeAlias = Callable[..., Awaitable[Any]]
_logger = logging.getLogger(__name__)


class DeliveryPart(NamedTuple):
    """What queues get of some publications."""

    piece: FanOutBatch
    bodies: list[bytes]
    """Of its publications; empty where nobody wants it."""
    delivered: int
    """The offset behind the last of them."""

    def single(self, number: int) -> DeliveryPart:
        """One of its publications."""
        behind = self.delivered - (len(self.bodies) - 1 - number)
        return DeliveryPart(self.piece.only(number), [self.bodies[number]], behind)


class MatchSource(Protocol):
    """Whoever knows the logs and where subscriptions go."""

    def parts(self, found: MatchResults, delivered: int) -> list[DeliveryPart]:
        """What is to be done from offset `delivered` on. In the engine's thread."""
        ...

    def moved(self, lane: str) -> None:
        """More of it is delivered, as the journal is going to say. In the loop."""
        ...


class MatchDelivery:
    """For one engine. `perform` carries out effects and opens a turn."""

    def __init__(
        self,
        server: BrokerMachine,
        source: MatchSource,
        clock: ServerClock,
        perform: Callable[[list[Effect]], None],
        on_matched: OnMatched,
    ) -> None:
        self.too_large = 0
        """Notifications that did not fit their queue, and were left out."""
        self._server = server
        self._lanes = server.broker.subscriptions.log_offsets
        self._source = source
        self._clock = clock
        self._perform = perform
        self._on_matched = on_matched

    async def carry_out(self, asked: RequestContext, found: MatchResults, in_thread: InThread) -> None:
        """Into queues. Refused where that cannot be now: what was done until then counts, the rest comes again."""
        try:
            parts = await in_thread(self._source.parts, found, self._lanes[found.lane].delivered)
            if parts:
                subscriptions, matches = len(self._server.broker.subscriptions), len(found.ids) // INTEGERS.itemsize
                self._on_matched(found.end - found.start, subscriptions, matches, None)
            for part in parts:
                self._deliver(found.lane, part, [(asked, Done())] if part is parts[-1] else [])
                self._source.moved(found.lane)
                await asyncio.sleep(0)  # others have their turn
            if not parts:
                self._perform([Reply(asked.client, asked.number, Done())])
        except LavantError as error:
            self._perform([Reply(asked.client, asked.number, refusal(error))])

    def _deliver(self, lane: str, part: DeliveryPart, answers: list[tuple[RequestContext, Answer]]) -> None:
        piece = part.piece
        spread = FanOut(part.bodies, piece.queues, piece.ends, piece.places)
        deliver = Deliver(spread, delivered={lane: part.delivered})
        try:
            self._perform(self._server.deliver(deliver, answers, self._clock.now_ms()))
        except LimitExceeded:  # a queue takes no messages as large as these
            if len(part.bodies) == 1:
                self._deliver(lane, self._fitting(part), answers)
            else:
                last = len(part.bodies) - 1
                for number in range(len(part.bodies)):
                    self._deliver(lane, part.single(number), answers if number == last else [])

    def _fitting(self, part: DeliveryPart) -> DeliveryPart:
        """Without the queues that could not take it: it was accepted, and nobody can be told any more."""
        [body], queues = part.bodies, self._server.queues
        serials = [
            serial
            for serial in np.frombuffer(part.piece.queues, INTEGERS).tolist()
            if _takes(queues, serial, len(body))
        ]
        left_out = len(part.piece.queues) // INTEGERS.itemsize - len(serials)
        self.too_large += left_out
        _logger.warning(
            "a publication of %d bytes is larger than %d of the queues it was for take; raise their message_bytes_max",
            len(body),
            left_out,
        )
        count = len(serials)
        piece = part.piece._replace(
            queues=np.array(serials, INTEGERS).tobytes(),
            ends=np.arange(1, count + 1).astype(INTEGERS).tobytes(),
            places=bytes(INTEGERS.itemsize * count),
        )
        return part._replace(piece=piece)


def _takes(queues: Queues, serial: int, size_bytes: int) -> bool:
    """One that was deleted does no harm."""
    return all(queues.config(name).message_bytes_max >= size_bytes for name in queues.names_of([serial]))
