"""A server of queues on a bench: a journal that commits when it is told to, and clients that note what they hear."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import msgspec

from lavant.broker.machine.effects import TIME_BYTES, Effect, Mistake, Record
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import apply_again
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.frames import decode_request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Receipt, Receive, Received, Send, SendEntry
from lavant.broker.workflows.machine import Jobs

NEW_QUEUE = QueueConfig()

_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode


class Bench:
    """Performs effects: records go into a list, answers are kept by client and number."""

    def __init__(self, *, acknowledge_early: bool = False, waiting_max: int = 100, now_ms: int = 0) -> None:
        self.server = BrokerMachine(BrokerState(), acknowledge_early=acknowledge_early, waiting_max=waiting_max)
        self.now_ms = now_ms
        self.records: list[bytes] = []
        self.durable = 0
        self.heard: dict[tuple[Hashable, int], Answer] = {}
        self.mistakes: list[Mistake] = []
        self.numbers = 0
        self.perform(self.server.open(now_ms))

    def perform(self, effects: list[Effect]) -> list[tuple[Hashable, int]]:
        """Whom it answered."""
        answered: list[tuple[Hashable, int]] = []
        for effect in effects:
            if isinstance(effect, Record):
                self.records.append(effect.data)
                assert effect.position == len(self.records)
            elif isinstance(effect, Mistake):
                self.mistakes.append(effect)
            else:
                assert (effect.client, effect.number) not in self.heard, "nobody is answered twice"
                self.heard[effect.client, effect.number] = effect.answer
                answered.append((effect.client, effect.number))
        return answered

    def ask(self, request: Request, client: Hashable = "ann", *, is_raw: bool = True) -> int:
        """Ask, and return the request's number."""
        self.numbers += 1
        raw = _encode(request) if is_raw else None
        self.perform(self.server.request(client, self.numbers, request, raw, self.now_ms))
        return self.numbers

    def answer(self, number: int, client: Hashable = "ann") -> Answer | None:
        return self.heard.get((client, number))

    def commit(self, position: int | None = None) -> list[tuple[Hashable, int]]:
        """All records, or those up to a position, are durable now."""
        self.durable = len(self.records) if position is None else position
        return self.perform(self.server.committed(self.durable, self.now_ms))

    def tick(self, now_ms: int) -> list[tuple[Hashable, int]]:
        self.now_ms = now_ms
        return self.perform(self.server.tick(now_ms))

    def do(self, request: Request, kind: type[_T]) -> _T:
        """Ask, commit, and return the answer, which must be of a kind."""
        number = self.ask(request)
        self.commit()
        answer = self.answer(number)
        assert isinstance(answer, kind), answer
        return answer

    def create(self, queue: str = "q", config: QueueConfig = NEW_QUEUE) -> None:
        self.ask(CreateQueue(queue, config))
        self.commit()

    def send(self, *bodies: bytes, queue: str = "q", delay_ms: int | None = None) -> int:
        return self.ask(Send(queue, [SendEntry(body, delay_ms=delay_ms) for body in bodies]))

    def receive(self, client: Hashable = "ann", *, queue: str = "q", count: int = 1, wait_ms: int | None = None) -> int:
        return self.ask(Receive(queue, count, None, wait_ms), client)

    def bodies(self, number: int, client: Hashable = "ann") -> list[bytes] | None:
        """What a receive brought; None if it is not answered."""
        answer = self.answer(number, client)
        assert answer is None or isinstance(answer, Received), answer
        return None if answer is None else [delivery.body for delivery in answer.deliveries]

    def commands(self) -> list[Request]:
        """What the journal holds, without the times."""
        return [decode_request(record[TIME_BYTES:]) for record in self.records]

    def replayed(self) -> Jobs:
        """A hub that is told all that the journal holds, at the same time as the server's."""
        broker = BrokerState()
        for record in self.records:
            apply_again(broker, record)
        queues = broker.queues
        queues.advance(self.server.queues.now_ms)
        return queues


def bench_with_queue(*, acknowledge_early: bool = False, config: QueueConfig = NEW_QUEUE) -> Bench:
    """With a queue `q`."""
    bench = Bench(acknowledge_early=acknowledge_early)
    bench.create("q", config)
    return bench


def receipts(bench: Bench, number: int, client: Hashable = "ann") -> list[Receipt]:
    """Of what a receive brought."""
    answer = bench.answer(number, client)
    assert isinstance(answer, Received)
    return [delivery.receipt for delivery in answer.deliveries]
