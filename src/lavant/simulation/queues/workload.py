"""The clients of the queue scenario: they send, receive, work and acknowledge, with everything that can go wrong.

    received ──► acknowledged at once, or after some work, in time or too late
             ──► extended, then acknowledged
             ──► given back
             ──► forgotten: received again by another client, or a dead letter in the end

During the calm they only receive and acknowledge, until nothing is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    CancelMove,
    ChangeVisibility,
    CreateQueue,
    Delivery,
    DescribeQueue,
    ListMoves,
    MoveStarted,
    Peek,
    PurgeQueue,
    QueueCreated,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    StartMove,
    VisibilityChange,
)

DRAIN = "drain"
UNDER_WAY_MAX = 3
WISHES_MAX = 20
GROUPS = ("a", "b", "c")

CONFIGS = {
    "dead": QueueConfig(visibility_ms=1_000),
    "plain": QueueConfig(visibility_ms=1_000, dead_letters="dead", receives_max=2),
    "swept": QueueConfig(visibility_ms=1_500, delay_ms=100),
    "simple": QueueConfig(visibility_ms=800),
    "dead-groups": QueueConfig(order="in-order", visibility_ms=1_000),
    "groups": QueueConfig(order="in-order", visibility_ms=1_000, dead_letters="dead-groups", receives_max=2),
    "line": QueueConfig(order="in-order", visibility_ms=800),
}
"""A dead-letter queue comes before its sources. `swept` is the one that is purged."""
SENT_TO = ("plain", "swept", "simple", "simple", "groups", "line", "line")
DEAD = ("dead", "dead-groups")


class QueueWorkload:
    """One start of one client; implements `ClientWork`."""

    def __init__(self, name: str, random: Random) -> None:
        self._name = name
        self._random = random
        self._missing = list(CONFIGS)
        """Queues to create before it begins."""
        self._is_creating = False
        self._is_draining = False
        self._drained = 0
        self._bodies = 0
        self._names: list[tuple[str, str, str]] = []
        """Queue, group and name of recently sent messages."""
        self._wishes: list[Request] = []
        self._later: list[tuple[int, int, Request]] = []
        self._count = 0
        self._task = 0

    # ── as the client sees it
    # ─────────────────────────────────────────────────────────────────────────────────────────

    def wishes(self, under_way: int, now_ms: int) -> Iterator[Request]:
        if self._missing:
            if not self._is_creating:
                self._is_creating = True
                yield CreateQueue(self._missing[0], CONFIGS[self._missing[0]])
            return
        while self._later and self._later[0][0] <= now_ms:
            self._wish(heappop(self._later)[2])
        if self._is_draining and not self._wishes and not under_way:
            self._wish(self._next_drained())
        while self._wishes and under_way < UNDER_WAY_MAX:
            under_way += 1
            yield self._wishes.pop(0)

    def wakeup_ms(self) -> int | None:
        return self._later[0][0] if self._later and not self._missing else None

    def asked(self, value: object, now_ms: int) -> None:
        if value == DRAIN:
            self._is_draining = True
        elif not self._missing:
            self._wish(self._something())

    def connected(self) -> None:
        """Consumers receive first."""
        if self._random.random() < 0.5:
            self._wishes.insert(0, self._receive_from(self._random.choice(SENT_TO)))

    def answered(self, request: Request, answer: Answer | None, now_ms: int) -> None:
        match request, answer:
            case CreateQueue(queue=queue), _:
                self._is_creating = False
                if isinstance(answer, QueueCreated) and queue in self._missing:
                    self._missing.remove(queue)
            case Receive(queue=queue), Received(deliveries=deliveries):
                self._receive(queue, deliveries, now_ms)
            case StartMove(), MoveStarted(task=task):
                self._task = task
            case Send() | Acknowledge(), None | Refused(code="StorageFull"):
                self._try_again(request, now_ms)
            case _:
                pass

    # ── what it wants ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _something(self) -> Request:
        random = self._random
        chance = random.random()
        if chance < 0.40:
            return self._send()
        if chance < 0.92:
            return self._receive_from(random.choice(SENT_TO if random.random() < 0.85 else DEAD))
        if chance < 0.95:
            return StartMove(random.choice(DEAD), rate_per_s=random.choice((None, 5)))
        if chance < 0.96:
            return CancelMove(self._task) if self._task else ListMoves(random.choice(DEAD))
        if chance < 0.97:
            return PurgeQueue("swept")
        queue = random.choice(list(CONFIGS))
        return Peek(queue, 5) if random.random() < 0.5 else DescribeQueue(queue)

    def _send(self) -> Send:
        random = self._random
        queue = random.choice(SENT_TO)
        return Send(queue, [self._entry(queue) for _ in range(random.choice((1, 1, 1, 2, 4)))])

    def _entry(self, queue: str) -> SendEntry:
        random = self._random
        if CONFIGS[queue].order != "in-order":
            delay_ms = random.randrange(2_000) if random.random() < 0.15 else None
            return SendEntry(self._body(), self._attributes(), delay_ms)
        used = [known for known in self._names if known[0] == queue]
        if used and random.random() < 0.15:
            _, group, name = random.choice(used)
        else:
            group, name = random.choice(GROUPS), self._body().decode()
            self._names = [*self._names[-20:], (queue, group, name)]
        return SendEntry(self._body(), self._attributes(), None, group, name)

    def _body(self) -> bytes:
        """Unique."""
        self._bodies += 1
        return f"{self._name}/{self._bodies}".encode()

    def _attributes(self) -> bytes:
        """Sometimes so long that a record takes several sectors."""
        return bytes([self._bodies % 251]) * (self._random.randrange(1_500) if self._random.random() < 0.2 else 3)

    def _receive_from(self, queue: str) -> Receive:
        random = self._random
        visibility_ms = random.choice((None, None, 0, 300, 1_500, 3_000))
        wait_ms = random.choice((0, 0, 200, 1_500))
        return Receive(queue, random.choice((1, 2, 3, 5)), visibility_ms, wait_ms)

    def _receive(self, queue: str, deliveries: list[Delivery], now_ms: int) -> None:
        receipts = [delivery.receipt for delivery in deliveries]
        if not receipts:
            return
        chance = self._random.random()
        if self._is_draining or chance < 0.45:
            self._wish(Acknowledge(queue, receipts))
        else:
            for receipt in receipts:
                self._treat(queue, receipt, now_ms)

    def _treat(self, queue: str, receipt: Receipt, now_ms: int) -> None:
        random = self._random
        chance = random.random()
        done = Acknowledge(queue, [receipt])
        if chance < 0.5:
            self._do_later(now_ms + random.choice((5, 50, 300, 1_200, 2_500)), done)
        elif chance < 0.65:
            visibility_ms = random.choice((300, 2_000, 4_000))
            self._do_later(
                now_ms + random.choice((1, 100)), ChangeVisibility(queue, [VisibilityChange(receipt, visibility_ms)])
            )
            self._do_later(now_ms + random.choice((500, 1_500, 3_000)), done)
        elif chance < 0.75:
            self._wish(ChangeVisibility(queue, [VisibilityChange(receipt, 0)]))

    def _try_again(self, request: Request, now_ms: int) -> None:
        """A send is repeated as another message with the same name; an acknowledgement unchanged."""
        if self._random.random() < 0.5:
            return
        if isinstance(request, Send):
            request = Send(
                request.queue,
                [
                    SendEntry(self._body(), self._attributes(), entry.delay_ms, entry.group, entry.deduplication)
                    for entry in request.entries
                ],
            )
        self._do_later(now_ms + self._random.randrange(1, 500), request)

    def _next_drained(self) -> Receive:
        queues = list(CONFIGS)
        self._drained += 1
        return Receive(queues[self._drained % len(queues)], 10, 1_500, 100)

    def _do_later(self, time_ms: int, request: Request) -> None:
        self._count += 1
        heappush(self._later, (time_ms, self._count, request))

    def _wish(self, request: Request) -> None:
        if len(self._wishes) < WISHES_MAX:
            self._wishes.append(request)
