"""At the limit of memory: what takes more is refused and changes nothing, what takes less or nothing goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.property.memory_count import counted_anew

from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.jobs import CancelJob, CompleteTask, DefineJobs, ExtendTask, LeaseTasks, Result, SubmitJob
from lavant.broker.protocol.queue_config import DEDUPLICATION_MS, QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    CreateQueue,
    DeleteQueue,
    FanOut,
    PurgeQueue,
    Receive,
    Release,
    Send,
    SendEntry,
    TagQueue,
    VisibilityChange,
)
from lavant.broker.protocol.subscriptions import Advertise, Deliver, PublishOutcome, Subscribe, Unadvertise, Unsubscribe
from lavant.broker.queues.accounting.memory import HIDDEN, MESSAGE, SHARED_BODY
from lavant.broker.queues.accounting.quotas import UNLIMITED, QueueLimits
from lavant.broker.queues.timers import SWEEP_MS
from lavant.broker.subscriptions.idempotency import REMEMBERED_MS
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.limits import RESULTS_SHARE
from lavant.core.errors import StorageFull

NOTHING = FanOut([], b"", b"", b"")
CHAIN = 'topics = ["A"]\n[jobs.chain]\nstart = "a"\ntasks.a = { topic = "A", next = "b" }\ntasks.b = { topic = "A" }\n'
OTHER = read_workflows(CHAIN.replace("chain", "other").replace('"A"', '"B"'))


class Full:
    """A broker with something of each kind, whose memory is full."""

    def __init__(self) -> None:
        self.broker = BrokerState()
        self.records: list[bytes] = []
        self.now_ms = 1000
        for name in ("plain", "other"):
            self.ask(CreateQueue(name, QueueConfig()))
        self.ask(Send("plain", [SendEntry(b"x")] * 10))
        self.leased = self.ask(Receive("plain", count=3)).deliveries
        self.ask(Subscribe("a > 1", name="s", queue="plain"))
        self.ask(Advertise("a > 1", name="adv"))
        self.ask(DefineJobs(read_workflows(CHAIN)))
        for _ in range(3):
            self.ask(SubmitJob("chain", b"input"))
        self.tasks = self.ask(LeaseTasks("A", "ann", 2)).tasks
        self.broker.queues.limits = QueueLimits(memory_max=self.broker.queues.memory_held)

    def ask(self, request: Any) -> Any:
        answer = self.broker.handle(request, self.now_ms)
        if self.broker.changed:
            self.records.append(self.broker.queues.now_ms.to_bytes(TIME_BYTES, "big") + msgspec.msgpack.encode(request))
        assert self.broker.queues.memory_held == counted_anew(self.broker)
        return answer


def integers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda full: Send("plain", [SendEntry(b"")]),
        lambda full: CreateQueue("new", QueueConfig()),
        lambda full: TagQueue("plain", {"team": "blue"}),
        lambda full: Deliver(FanOut([b""], integers(1), integers(1), integers(0))),
        lambda full: Deliver(NOTHING, answered=[PublishOutcome("acme", "key", b"f", ["1"])]),
        lambda full: Subscribe("b > 1", name="t", queue="plain"),
        lambda full: Subscribe("b > 1"),
        lambda full: Advertise("b > 1"),
        lambda full: Advertise("a > 1 and b > 1", name="adv"),
        lambda full: SubmitJob("chain", b""),
        lambda full: DefineJobs(OTHER),
    ],
)
def test_what_takes_more_is_refused(request_of: Any) -> None:
    full = Full()
    before = b"".join(full.broker.snapshot())
    with pytest.raises(
        StorageFull, match=f"exceed the limit of {full.broker.queues.limits.memory_max}; try again when"
    ):
        full.ask(request_of(full))
    assert b"".join(full.broker.snapshot()) == before
    full.broker.queues.limits = UNLIMITED
    full.ask(request_of(full))
    assert full.broker.changed


@pytest.mark.parametrize(
    "request_of",
    [
        lambda full: Receive("plain", count=5),
        lambda full: Acknowledge("plain", [each.receipt for each in full.leased]),
        lambda full: ChangeVisibility("plain", [VisibilityChange(full.leased[0].receipt, 50_000)]),
        lambda full: Release("plain", [full.leased[0].receipt]),
        lambda full: PurgeQueue("plain"),
        lambda full: DeleteQueue("other"),
        lambda full: Unsubscribe("s"),
        lambda full: Unadvertise("adv"),
        lambda full: LeaseTasks("A", "bob"),
        lambda full: ExtendTask(*_attempt(full.tasks[0]), 5_000),
        lambda full: CompleteTask(*_attempt(full.tasks[0]), Result(b"some")),
        lambda full: CancelJob(full.tasks[0].job),
    ],
)
def test_what_makes_room_or_goes_on_is_done(request_of: Any) -> None:
    full = Full()
    full.ask(request_of(full))
    assert full.broker.changed


def test_results_are_taken_somewhat_beyond_the_limit_and_empty_ones_always() -> None:
    full = Full()
    queues = full.broker.queues
    large = Result(bytes(queues.limits.memory_max // RESULTS_SHARE))
    with pytest.raises(StorageFull):
        full.ask(CompleteTask(*_attempt(full.tasks[0]), large))
    full.ask(CompleteTask(*_attempt(full.tasks[0]), Result(large.body[:-2000])))
    with pytest.raises(StorageFull):
        full.ask(CompleteTask(*_attempt(full.tasks[1]), Result(bytes(2000))))
    full.ask(CompleteTask(*_attempt(full.tasks[1])))


def test_a_journal_is_replayed_and_a_snapshot_restored_whatever_the_limit() -> None:
    full = Full()
    tiny = QueueLimits(memory_max=1)
    for again in (replay(None, full.records, tiny), replay(list(full.broker.snapshot()), [], tiny)):
        assert again.queues.memory_held == full.broker.queues.memory_held
        with pytest.raises(StorageFull):
            again.handle(Send("plain", [SendEntry(b"x")]), full.now_ms)


def test_names_and_keys_whose_time_is_over_make_room_though_nobody_can_send() -> None:
    full = Full()
    full.broker.queues.limits = UNLIMITED
    full.ask(CreateQueue("fifo", QueueConfig("in-order")))
    before = full.broker.queues.memory_held
    full.ask(Send("fifo", [SendEntry(b"x", deduplication=f"name {number}") for number in range(100)]))
    full.ask(Deliver(NOTHING, answered=[PublishOutcome("acme", "key", b"f", ["1"])]))
    full.ask(PurgeQueue("other"))
    for delivery in full.ask(Receive("fifo", count=1000)).deliveries:
        full.ask(Acknowledge("fifo", [delivery.receipt]))
    held = full.broker.queues.memory_held
    server = BrokerMachine(full.broker)
    assert held > before
    end_ms = full.now_ms + max(DEDUPLICATION_MS, REMEMBERED_MS) + 2 * SWEEP_MS
    while (sweep_ms := full.broker.queues.sweeps.next_ms()) is not None:
        wakeup_ms = server.wakeup_ms()
        assert wakeup_ms is not None
        assert wakeup_ms <= sweep_ms <= end_ms
        full.broker.queues.advance(max(sweep_ms, full.broker.queues.now_ms + 1))
    assert len(full.broker.subscriptions.recent) == full.broker.queues.counters.names == 0
    assert full.broker.queues.memory_held == counted_anew(full.broker)


def test_a_body_in_many_queues_is_counted_once_until_the_last_has_gone() -> None:
    broker = BrokerState()
    for number in range(10):
        broker.handle(CreateQueue(f"q{number}", QueueConfig()), 0)
    empty = broker.queues.memory_held
    body = bytes(1000)
    broker.handle(Deliver(FanOut([body], integers(*range(1, 11)), integers(*range(1, 11)), integers(*[0] * 10))), 0)
    assert broker.queues.memory_held - empty == 10 * MESSAGE + 1000 + SHARED_BODY
    restored = BrokerState.restore(list(broker.snapshot()))
    assert restored.queues.memory_held == broker.queues.memory_held
    held = {id(message.body) for queue in restored.queues.all() for message in queue.messages.values()}
    assert len(held) == 1, "after a restart too it is held once"
    for number in range(9):
        broker.handle(PurgeQueue(f"q{number}"), 0)
    assert broker.queues.memory_held - empty == MESSAGE + 1000
    [delivery] = broker.handle(Receive("q9"), 0).deliveries
    assert broker.queues.memory_held - empty == MESSAGE + 1000 + HIDDEN
    broker.handle(Acknowledge("q9", [delivery.receipt]), 0)
    assert broker.queues.memory_held == empty


def _attempt(task: Any) -> tuple[int, str, int]:
    return task.job, task.task, task.attempt
