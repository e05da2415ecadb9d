"""A server of queues under any sequence of requests, commits, time and clients that leave.

Each receive has a visibility timeout of its own, by which its record in the journal is known.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.broker.machine.servers import Bench

from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.frames import decode_request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    CreateQueue,
    DeleteQueue,
    Peek,
    Peeked,
    PurgeQueue,
    Receipt,
    Receive,
    Received,
    Refused,
    Release,
    Send,
    SendEntry,
    VisibilityChange,
)

CONFIGS = {
    "dead": QueueConfig(visibility_ms=50),
    "plain": QueueConfig(visibility_ms=50, dead_letters="dead", receives_max=2),
    "ordered": QueueConfig(order="in-order", visibility_ms=50),
}
QUEUES = st.sampled_from(sorted(CONFIGS))
CLIENTS = st.sampled_from(["ann", "bob", "cid"])


class Asked:
    """A request, and what is known of it."""

    def __init__(self, client: str, request: Request, now_ms: int) -> None:
        self.client = client
        self.request = request
        self.position: int | None = None
        """Of its record."""
        self.deadline_ms: int | None = None
        """Until when it waits for a message, if it does."""
        if isinstance(request, Receive) and request.wait_ms:
            self.deadline_ms = now_ms + request.wait_ms


class Server(RuleBasedStateMachine):
    acknowledge_early = False

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(acknowledge_early=self.acknowledge_early)
        self.asked: dict[int, Asked] = {}
        self.by_visibility: dict[int, int] = {}
        self.heard: set[int] = set()
        self.sent_at: dict[bytes, int] = {}
        """Positions of sends by the bodies of their messages."""
        self.receipts: list[tuple[str, Receipt]] = []
        self.bodies = 0
        self.shadow = BrokerState()
        """A machine that is told what the journal says, record by record."""
        self.seen_records = 0

    @initialize()
    def create(self) -> None:
        for queue, config in CONFIGS.items():
            self.bench.create(queue, config)
        self.shadow = BrokerState(self.bench.replayed())
        self.seen_records = len(self.bench.records)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(queue=QUEUES, count=st.integers(1, 3), delay_ms=st.sampled_from([None, None, 30]), client=CLIENTS)
    def send(self, queue: str, count: int, delay_ms: int | None, client: str) -> None:
        entries = []
        for _ in range(count):
            self.bodies += 1
            body = b"%d" % self.bodies
            if queue == "ordered":
                entries.append(SendEntry(body, group=f"g{self.bodies % 2}", deduplication=body.decode()))
            else:
                entries.append(SendEntry(body, delay_ms=delay_ms))
        self._ask(client, Send(queue, entries))

    @rule(queue=QUEUES, count=st.integers(1, 3), wait_ms=st.sampled_from([0, 10, 60, 200]), client=CLIENTS)
    def receive(self, queue: str, count: int, wait_ms: int, client: str) -> None:
        visibility_ms = 40 + len(self.by_visibility)
        self.by_visibility[visibility_ms] = self.bench.numbers + 1
        self._ask(client, Receive(queue, count, visibility_ms, wait_ms))

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), client=CLIENTS)
    def acknowledge(self, data: st.DataObject, client: str) -> None:
        queue, receipt = data.draw(st.sampled_from(self.receipts))
        self._ask(client, Acknowledge(queue, [receipt]))

    @precondition(lambda self: self.receipts)
    @rule(data=st.data(), visibility_ms=st.sampled_from([0, 20]), client=CLIENTS)
    def change_visibility(self, data: st.DataObject, visibility_ms: int, client: str) -> None:
        queue, receipt = data.draw(st.sampled_from(self.receipts))
        self._ask(client, ChangeVisibility(queue, [VisibilityChange(receipt, visibility_ms)]))

    @rule(queue=QUEUES, client=CLIENTS)
    def peek(self, queue: str, client: str) -> None:
        self._ask(client, Peek(queue, 100))

    @rule(queue=QUEUES, client=CLIENTS)
    def purge(self, queue: str, client: str) -> None:
        self._ask(client, PurgeQueue(queue))

    @rule(queue=QUEUES, client=CLIENTS)
    def delete_and_create_again(self, queue: str, client: str) -> None:
        waiting = [number for number in self._waiting() if self._queue(number) == queue]
        self._ask(client, DeleteQueue(queue))
        for number in waiting:
            self.asked[number].deadline_ms = None
        self._ask(client, CreateQueue(queue, CONFIGS[queue]))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.bench.commit(data.draw(st.integers(self.bench.durable, len(self.bench.records))))
        self._look()

    @rule(passed_ms=st.sampled_from([0, 1, 5, 20, 60]))
    def pass_time(self, passed_ms: int) -> None:
        self.bench.tick(self.bench.now_ms + passed_ms)
        self._look()

    @rule()
    def wake_up_when_asked_to(self) -> None:
        wakeup_ms = self.bench.server.wakeup_ms()
        if wakeup_ms is not None:
            self.bench.tick(wakeup_ms)
            self._look()

    @rule(passed_ms=st.integers(0, 30))
    def time_passes_unnoticed(self, passed_ms: int) -> None:
        """The timer is late, and a request comes first."""
        self.bench.now_ms += passed_ms

    @rule(client=CLIENTS)
    def leave(self, client: str) -> None:
        self.bench.server.gone(client)
        for number in self._waiting():
            if self.asked[number].client == client:
                self.asked[number].deadline_ms = None
        assert self.bench.server.waiting(client) == 0

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, client: str, request: Request) -> None:
        asked = Asked(client, request, max(self.bench.now_ms, self.bench.server.queues.now_ms))
        number = self.bench.numbers + 1
        self.asked[number] = asked
        self.bench.ask(request, client)
        self._look()
        if isinstance(request, Send) and asked.position is not None:
            self.sent_at.update({entry.body: asked.position for entry in request.entries})

    def _queue(self, number: int) -> str:
        request = self.asked[number].request
        assert isinstance(request, Receive)
        return request.queue

    def _waiting(self) -> list[int]:
        """Receives that are there, wait, and were not served; in the order in which they came."""
        return [
            number
            for number, asked in self.asked.items()
            if asked.deadline_ms is not None and asked.position is None and number not in self.heard
        ]

    def _look(self) -> None:
        """At the new records and the new answers."""
        for position in range(self.seen_records + 1, len(self.bench.records) + 1):
            record = self.bench.records[position - 1]
            now_ms = int.from_bytes(record[:TIME_BYTES], "big")
            self._check_record(position, decode_request(record[TIME_BYTES:]), now_ms)
        self.seen_records = len(self.bench.records)
        for (client, number), answer in self.bench.heard.items():
            asked = self.asked.get(number)
            if asked is not None and number not in self.heard:
                assert asked.client == client
                self._check_answer(number, asked, answer)
                self.heard.add(number)

    def _check_record(self, position: int, command: Request, now_ms: int) -> None:
        answer = self.shadow.handle(command, now_ms)
        if isinstance(command, Release):  # of what was leased to one who left
            return
        if not isinstance(command, Receive):
            latest = self.asked[self.bench.numbers]
            assert latest.request == command
            latest.position = position
            return
        assert isinstance(answer, Received)
        assert command.visibility_ms is not None
        number = self.by_visibility[command.visibility_ms]
        assert number == self.bench.numbers or number in self._waiting(), "leased to one who is gone, or had its answer"
        earlier = [other for other in self._waiting() if self._queue(other) == command.queue and other < number]
        assert earlier == [], "others came first"
        if answer.deliveries:  # otherwise it has only moved dead letters, and goes on waiting
            self.asked[number].position = position

    def _check_answer(self, number: int, asked: Asked, answer: object) -> None:
        request = asked.request
        if isinstance(answer, Received):
            for delivery in answer.deliveries:
                assert self.sent_at[delivery.body] <= self.bench.durable, "delivered before it was durable"
                self.receipts.append((self._queue(number), delivery.receipt))
            if not answer.deliveries and asked.deadline_ms is not None:
                assert self.bench.server.queues.now_ms >= asked.deadline_ms, "it could have waited longer"
        elif isinstance(answer, Peeked):
            assert all(self.sent_at[message.body] <= self.bench.durable for message in answer.messages)
        elif isinstance(request, Acknowledge) and self.acknowledge_early:
            pass
        elif asked.position is not None:
            assert asked.position <= self.bench.durable, "answered before it was durable"

    @invariant()
    def nobody_waits_for_what_is_there_or_beyond_the_time(self) -> None:
        queues = self.bench.server.queues
        for number in self._waiting():
            assert not queues.visible(self._queue(number), queues.now_ms)
            deadline_ms = self.asked[number].deadline_ms
            wakeup_ms = self.bench.server.wakeup_ms()
            assert deadline_ms is not None
            assert wakeup_ms is not None
            assert wakeup_ms <= deadline_ms
        assert self.bench.server.waiting_total == len(self._waiting())

    @invariant()
    def whoever_waits_for_the_disk_is_known(self) -> None:
        if self.bench.durable == len(self.bench.records):
            assert not self.bench.server.is_commit_awaited

    def teardown(self) -> None:
        self.bench.commit()
        self.bench.tick(self.bench.now_ms + 1000)
        self._look()
        receives = {number for number, asked in self.asked.items() if isinstance(asked.request, Receive)}
        assert set(self.asked) - receives <= self.heard, "all but those of clients that left are answered in the end"
        self.shadow.queues.advance(self.bench.server.queues.now_ms)
        assert list(self.shadow.snapshot()) == list(self.bench.server.broker.snapshot())
        for answer in self.bench.heard.values():
            assert not isinstance(answer, Refused) or answer.code in {"StaleReceipt", "NotInFlight", "UnknownQueue"}


class EarlyServer(Server):
    acknowledge_early = True


TestServer = Server.TestCase
TestEarlyServer = EarlyServer.TestCase
TestServer.settings = settings(max_examples=60, stateful_step_count=40)
TestEarlyServer.settings = settings(max_examples=20, stateful_step_count=40)
