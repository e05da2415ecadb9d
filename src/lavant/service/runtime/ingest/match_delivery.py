"""Delivers match results to queues exactly once: each part carries the log offset it covers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

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
from lavant.service.observability.logs import RepeatedFault
from lavant.service.runtime.clock import ServerClock

OnMatched: TypeAlias = Callable[[int, int, int, float | None], None]
InThread: TypeAlias = Callable[..., Awaitable[Any]]
_logger = logging.getLogger(__name__)


class DeliveryPart(NamedTuple):
    """The deliveries of some consecutive publications."""

    batch: FanOutBatch
    bodies: list[bytes]
    """Of its publications; empty for those without a match."""
    delivered: int
    """The log offset after the last of them."""

    def single(self, number: int) -> DeliveryPart:
        """The part of one publication."""
        delivered = self.delivered - (len(self.bodies) - 1 - number)
        return DeliveryPart(self.batch.only(number), [self.bodies[number]], delivered)


class MatchSource(Protocol):
    """Knows the logs, and the queues of subscriptions."""

    def parts(self, results: MatchResults, delivered: int) -> list[DeliveryPart]:
        """The deliveries from offset `delivered` on. Runs in the engine's thread."""
        ...

    def moved(self, log_name: str) -> None:
        """The delivered offset of a log advanced; the record of it is staged. Runs in the loop."""
        ...


class QueueSizes:
    """Leaves out queues that do not allow the size of a publication, which was accepted and can no longer be refused:
    by this server before it was matched, or by another broker."""

    def __init__(self, queues: Queues) -> None:
        self.too_large = 0
        """Notifications that were left out."""
        self._queues = queues
        self._fault = RepeatedFault()

    def fitting(self, batch: FanOutBatch, size_bytes: int) -> FanOutBatch | None:
        """The fan-out of a single publication without them; None if there is none."""
        fitting, left_out = batch.fitting(size_bytes, self._queues)
        if not left_out:
            return None
        self.too_large += left_out
        publications = self._fault.add()
        if publications is not None:
            text = (
                "a publication of %d bytes is too large for %d of its queues; raise their message_bytes_max; %d since "
            )
            _logger.warning(text + "the last line", size_bytes, left_out, publications)
        return fitting


class MatchDelivery:
    """For one engine. `perform` performs effects and opens a turn."""

    def __init__(
        self,
        server: BrokerMachine,
        source: MatchSource,
        clock: ServerClock,
        perform: Callable[[list[Effect]], None],
        on_matched: OnMatched,
    ) -> None:
        self._sizes = QueueSizes(server.queues)
        self._server = server
        self._log_offsets = server.broker.subscriptions.log_offsets
        self._source = source
        self._clock = clock
        self._perform = perform
        self._on_matched = on_matched

    @property
    def too_large(self) -> int:
        """Notifications dropped because they are larger than their queue allows."""
        return self._sizes.too_large

    async def deliver(self, context: RequestContext, results: MatchResults, in_thread: InThread) -> None:
        """Deliver results to queues. If a queue refuses, the parts before it count and the rest is sent again."""
        try:
            parts = await in_thread(self._source.parts, results, self._log_offsets[results.log_name].delivered)
            if parts:
                subscriptions, matches = len(self._server.broker.subscriptions), len(results.ids) // INTEGERS.itemsize
                self._on_matched(results.end - results.start, subscriptions, matches, None)
            for part in parts:
                self._deliver(results.log_name, part, [(context, Done())] if part is parts[-1] else [])
                self._source.moved(results.log_name)
                await asyncio.sleep(0)  # let other tasks run
            if not parts:
                self._perform([Reply(context.client, context.number, Done())])
        except LavantError as error:
            self._perform([Reply(context.client, context.number, refusal(error))])

    def _deliver(self, log_name: str, part: DeliveryPart, answers: list[tuple[RequestContext, Answer]]) -> None:
        batch = part.batch
        fan_out = FanOut(part.bodies, batch.queues, batch.ends, batch.places)
        deliver = Deliver(fan_out, delivered={log_name: part.delivered})
        try:
            self._perform(self._server.deliver(deliver, answers, self._clock.now_ms()))
        except LimitExceeded:  # a queue takes no messages as large as these
            if len(part.bodies) == 1:
                fitting = self._sizes.fitting(batch, len(part.bodies[0]))
                if fitting is None:
                    raise
                self._deliver(log_name, part._replace(batch=fitting), answers)
            else:
                last = len(part.bodies) - 1
                for number in range(len(part.bodies)):
                    self._deliver(log_name, part.single(number), answers if number == last else [])
