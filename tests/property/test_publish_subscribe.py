"""Publications against subscriptions that come and go, with crashes between steps, and a model that tries each filter.

The broker's own state, the local engine and the routes are the real ones; the journal is a list of commands.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lavant.broker.filters import parse
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.frames import decode_request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Acknowledge, CreateQueue, DeleteQueue, FanOut, Peek, Peeked, Receive, Received
from lavant.broker.protocol.subscriptions import Deliver, Subscribe, Subscribed, Unsubscribe, UpdateSubscription
from lavant.broker.subscriptions.parsing import ParsedPublication, accept
from lavant.broker.subscriptions.registry import Added
from lavant.core.errors import LavantError
from lavant.service.engines.filters import change_batches
from lavant.service.engines.interface import EngineBatch
from lavant.service.engines.local import LocalEngine

NAMES = st.sampled_from(["s1", "s2", "s3", "s4", "s5"])
QUEUES = st.sampled_from(["", "q1", "q2"])
NAMESPACES = st.sampled_from(["", "", "acme"])
FILTERS = st.sampled_from(
    [
        "a > 2",
        "a < 4",
        "a = 3",
        "b = 'x'",
        "b like 'x%'",
        "a > 1 and b = 'y'",
        "a = 0 or b = 'x'",
        "not a > 2",
        "c = true",
    ]
)
ROWS = st.fixed_dictionaries(
    {}, optional={"a": st.integers(0, 5), "b": st.sampled_from(["x", "xy", "y"]), "c": st.booleans()}
)


class PublishSubscribe(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = BrokerState()
        self.engine = LocalEngine(slices=2)
        self.journal: list[bytes] = []
        self.base: list[bytes] | None = None
        self.wanted: dict[tuple[str, str], tuple[str, str]] = {}
        """By namespace and name: the filter and the queue."""
        self.own: set[tuple[str, str]] = set()
        self.queues: dict[str, list[str]] = {}
        """Ids of publications."""
        self.published = 0

    @initialize()
    def start(self) -> None:
        self.do(CreateQueue("q1", QueueConfig()))
        self.queues["q1"] = []

    def teardown(self) -> None:
        self.engine.close()

    def do(self, request: Request) -> Answer:
        answer: Answer = self.broker.handle(request, 0)
        if self.broker.changed:
            self.journal.append(msgspec.msgpack.encode(request))
        changes = list(self.broker.subscriptions.changes)
        self.broker.subscriptions.changes.clear()
        self.engine.change(list(change_batches(changes, {})))
        return answer

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(namespace=NAMESPACES, name=NAMES, filter=FILTERS, queue=QUEUES)
    def subscribe(self, namespace: str, name: str, filter: str, queue: str) -> None:
        full = self._full(namespace, queue if queue else name)
        known = self.wanted.get((namespace, name))
        is_taken = full in self.queues and not queue
        try:
            self.do(Subscribe(filter, name, queue, namespace))
        except LavantError:
            assert is_taken if known is None else known != (filter, full if queue else known[1])
            return
        if known is None:
            assert not is_taken
            self.wanted[namespace, name] = filter, full
            if full not in self.queues:
                self.queues[full] = []
                self.own.add((namespace, name))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.wanted)))
        self.do(Unsubscribe(key[1], key[0]))
        _, queue = self.wanted.pop(key)
        if key in self.own and queue not in {other for _, other in self.wanted.values()}:
            del self.queues[queue]
        self.own.discard(key)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), filter=FILTERS)
    def update(self, data: st.DataObject, filter: str) -> None:
        """Later publications are matched with the new filter; the queue keeps what it has."""
        key = data.draw(st.sampled_from(sorted(self.wanted)))
        before = self.broker.subscriptions.find(*key)
        answer = self.do(UpdateSubscription(key[1], filter, key[0]))
        assert isinstance(answer, Subscribed)
        assert msgspec.structs.replace(answer.subscription, number=before.number, filter=before.filter) == before
        self.wanted[key] = filter, self.wanted[key][1]

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def delete_queue(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(sorted(self.queues)))
        self.do(DeleteQueue(queue))
        del self.queues[queue]
        gone = [key for key, (_, own) in self.wanted.items() if own == queue]
        for key in gone:
            del self.wanted[key]
            self.own.discard(key)

    @rule(namespace=NAMESPACES, rows=st.lists(ROWS, min_size=1, max_size=5))
    def publish(self, namespace: str, rows: list[dict[str, Any]]) -> None:
        ids = [str(self.published + number) for number in range(len(rows))]
        self.published += len(rows)
        accepted = accept([json.dumps(row).encode() for row in rows], ids, 0)
        publications = [each for each in accepted if isinstance(each, ParsedPublication)]
        assert len(publications) == len(rows)
        for piece in self.engine.publish(EngineBatch(namespace=namespace, scheme="plain", publications=publications)):
            bodies = [each.body for each in publications[piece.start : piece.stop]]
            self.do(Deliver(FanOut(bodies, piece.queues, piece.ends, piece.places)))
        for id, row in zip(ids, rows, strict=True):
            for queue in {
                queue
                for (own, _), (filter, queue) in self.wanted.items()
                if own == namespace and parse(filter).matches(row)
            }:
                self.queues[queue].append(id)

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data(), count=st.integers(1, 3))
    def consume(self, data: st.DataObject, count: int) -> None:
        queue = data.draw(st.sampled_from(sorted(queue for queue, ids in self.queues.items() if ids)))
        received = self.do(Receive(queue, count))
        assert isinstance(received, Received)
        got = [json.loads(each.body)["@id"] for each in received.deliveries]
        assert got == self.queues[queue][: len(got)]
        self.do(Acknowledge(queue, [each.receipt for each in received.deliveries]))
        del self.queues[queue][: len(got)]

    @rule()
    def fold(self) -> None:
        """The journal becomes a snapshot."""
        self.base, self.journal = list(self.broker.snapshot()), []

    @rule()
    def crash(self) -> None:
        """All that is left is the journal."""
        before = list(self.broker.snapshot())
        self.broker = BrokerState() if self.base is None else BrokerState.restore(self.base)
        for record in self.journal:
            self.broker.handle(decode_request(record), 0)
        assert list(self.broker.snapshot()) == before
        self.broker.subscriptions.changes.clear()
        self.engine.close()
        self.engine = LocalEngine(slices=2)
        serial = self.broker.queues.serial
        added = [Added(each, serial(each.queue)) for each in self.broker.subscriptions]
        self.engine.change(list(change_batches(added, {})))

    # ── what holds ────────────────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def queues_hold_what_was_wanted(self) -> None:
        for queue, ids in self.queues.items():
            peeked = self.broker.handle(Peek(queue, 1000), 0)
            assert isinstance(peeked, Peeked)
            assert [json.loads(each.body)["@id"] for each in peeked.messages] == ids
        assert len(self.broker.subscriptions) == len(self.wanted)

    @staticmethod
    def _full(namespace: str, queue: str) -> str:
        return f"{namespace}/{queue}" if namespace else queue


TestPublishSubscribe = PublishSubscribe.TestCase
TestPublishSubscribe.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
