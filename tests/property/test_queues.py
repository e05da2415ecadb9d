"""The machine of queues against a plain model, with restarts between any two steps.

Every answer is the model's. A restart replays the commands that changed something, at the times at which they did, or
restores a snapshot; the new machine is the same to the byte, and the run goes on with it. What a consumer relies on is
checked without the model: nobody shares a lease, nothing is lost, and order is held within groups.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.unit.broker.queues.model import Model

from lavant.broker.protocol import queues as c
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import DELAY_MS_MAX, VISIBILITY_MS_MAX, QueueConfig
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.ordering.sorted_numbers import CHUNK, SortedNumbers
from lavant.core.errors import LavantError

ORDERS = ["out-of-order", "in-order"]
WORK, DEAD, OTHERS = "work", "dead", ["other", "dead-too"]
NAMES = st.sampled_from([WORK] * 12 + [DEAD] * 5 + [*OTHERS, "nobody"])
STEPS_MS = st.sampled_from([1, 1, 30, 99, *[100] * 5, 999, 1000, 1000, 5000, 5000, 30_000, 60_000, 299_999, 300_000])
COUNTS = st.integers(1, 5)
VISIBILITIES_MS = st.sampled_from([None, None, 0, 1, 100, 1000, 30_000])

WEIGHTS = {
    "send": 12,
    "receive": 8,
    "receive_in_vain": 5,
    "work": 5,
    "acknowledge": 5,
    "change_visibility": 5,
    "release": 3,
    "create": 2,
    "configure": 3,
    "delete": 1,
    "purge": 1,
    "open": 1,
    "redrive": 3,
    "start_move": 2,
    "move": 3,
    "wait": 8,
    "set_back": 2,
    "look": 2,
    "replay": 2,
    "restore": 3,
}


def configs(order: str, dead_letters: str | None = None) -> st.SearchStrategy[QueueConfig]:
    is_in_order = order == "in-order"
    return st.builds(
        QueueConfig,
        order=st.just(order),
        visibility_ms=st.sampled_from([100, 100, 1000, 0]),
        delay_ms=st.sampled_from([0, 0, 0, 100, 1000]),
        retention_ms=st.sampled_from([60_000, 60_500, 120_000]),
        message_bytes_max=st.just(1024),
        depth_max=st.sampled_from([100, 100, 100, 3]),
        in_flight_max=st.sampled_from([100, 100, 100, 2]),
        dead_letters=st.just(dead_letters),
        receives_max=st.integers(1, 2) if dead_letters is not None else st.none(),
        deduplicate_by_content=st.just(value=False) if not is_in_order else st.booleans(),
        deduplicate_within_group=st.just(value=False) if not is_in_order else st.booleans(),
    )


BODIES = st.sampled_from([b"", b"x", b"y", b"z", bytes(1000), bytes(1020), bytes(1025)])
GROUPED = st.builds(
    c.SendEntry,
    BODIES,
    attributes=st.sampled_from([b"", b"", b"attributes"]),
    delay_ms=st.sampled_from([None, None, None, None, 100]),
    group=st.sampled_from(["", "a", "a", "a", "b"]),
    deduplication=st.sampled_from(["", "", "", "m", "n"]),
)
PLAIN = st.builds(
    c.SendEntry,
    BODIES,
    delay_ms=st.sampled_from([None, None, None, 0, 1, 100, 1000, -1, DELAY_MS_MAX + 1]),
    group=st.sampled_from(["", "", "", "", "a"]),
)


def without_reasons(value: Any) -> Any:
    """An answer as plain data. Reasons are for people: the model gives none."""
    if isinstance(value, c.Refused | c.MoveState):
        value = msgspec.structs.replace(value, reason="")
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, *(without_reasons(getattr(value, name)) for name in value.__struct_fields__))
    if isinstance(value, list):
        return [without_reasons(each) for each in value]
    if isinstance(value, dict):
        return {key: without_reasons(each) for key, each in value.items()}
    return value


def outcome(machine: Queues | Model, request: Request, now_ms: int) -> Any:
    """What is answered, or the kind of error that is raised."""
    try:
        return without_reasons(machine.handle(request, now_ms))
    except LavantError as error:
        return type(error)


def bytes_of(machine: Queues) -> list[bytes]:
    return list(machine.snapshot())


class QueueMachine(RuleBasedStateMachine):
    """Two queues, of which one takes the other's dead letters, and now and then others."""

    @initialize(data=st.data(), order=st.sampled_from(ORDERS))
    def begin(self, data: st.DataObject, order: str) -> None:
        self.order = order
        self.machine, self.model = Queues(), Model()
        self.now_ms = 1_000_000
        self.late_ms = 0
        """How far the clock was set back, for the next request."""
        self.journal: list[tuple[int, Request, Any]] = []
        """What changed something: when, what, and the answer."""
        self.receipts = [(WORK, c.Receipt(1, 7))]
        """All that were ever given, and where."""
        self.leases: dict[int, int] = {}
        """Until when somebody has a message."""
        self.sent_ms: dict[int, int] = {}
        """When the messages were sent that nobody took away."""
        self.ask(c.Open(1, data.draw(st.sampled_from([RULES, RULES, 0]), "rules")))
        self.ask(c.CreateQueue(DEAD, data.draw(configs(order), "dead letters")))
        self.ask(c.CreateQueue(WORK, data.draw(configs(order, DEAD), "work")))

    def ask(self, request: Request) -> Any:
        """The machine's answer, which must be the model's."""
        answer = None
        asked_ms, self.late_ms = self.now_ms - self.late_ms, 0
        try:
            answer = self.machine.handle(request, asked_ms)
            found = without_reasons(answer)
        except LavantError as error:
            found = type(error)
        has_changed, self.now_ms = self.machine.changed, max(self.now_ms, self.machine.now_ms)
        assert not (has_changed and answer is None), "what is refused changes nothing"
        assert found == outcome(self.model, request, asked_ms)
        if has_changed:
            self.journal.append((self.machine.now_ms, request, found))
        return answer

    def peek(self, name: str) -> dict[int, c.PeekedMessage]:
        peeked = self.ask(c.Peek(name, 1000))
        return {message.number: message for message in peeked.messages} if peeked is not None else {}

    @rule(data=st.data(), what=st.sampled_from([what for what, weight in WEIGHTS.items() for _ in range(weight)]))
    def do(self, data: st.DataObject, what: str) -> None:
        """One rule, because Hypothesis would take several equally often, and some not at all in most runs."""
        getattr(self, what)(data)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, data: st.DataObject) -> None:
        entry = GROUPED if self.order == "in-order" else PLAIN
        newest = self.model.number
        sent = self.ask(c.Send(data.draw(NAMES), data.draw(st.lists(entry, min_size=1, max_size=5))))
        for answer in sent.entries if sent is not None else []:
            if isinstance(answer, c.SentEntry) and answer.number > newest:
                self.sent_ms[answer.number] = self.now_ms

    def receive(self, data: st.DataObject) -> None:
        self.receive_from(data.draw(NAMES), data.draw(COUNTS), data.draw(VISIBILITIES_MS))

    def receive_in_vain(self, data: st.DataObject) -> None:
        name, count = data.draw(NAMES), data.draw(COUNTS)
        for _ in range(data.draw(st.integers(1, 3))):
            self.receive_from(name, count, 100)
            self.now_ms += 100

    def work(self, data: st.DataObject) -> None:
        name = data.draw(NAMES)
        receipts = self.receive_from(name, data.draw(COUNTS), None)
        done = [receipt for receipt in receipts if data.draw(st.integers(0, 3))]
        if done:
            self.acknowledge_all(name, done)

    def receive_from(self, name: str, count: int, visibility_ms: int | None) -> list[c.Receipt]:
        before = self.peek(name)
        received = self.ask(c.Receive(name, count, visibility_ms))
        if received is None:
            return []
        if visibility_ms is None:
            visibility_ms = self.machine.config(name).visibility_ms
        self.check_order(name, before, [delivery.receipt.number for delivery in received.deliveries])
        for delivery in received.deliveries:
            receipt = delivery.receipt
            assert all(receipt.lease != other.lease for _, other in self.receipts), "a lease was given twice"
            assert self.leases.get(receipt.number, 0) <= self.now_ms, "two have the same message"
            self.leases[receipt.number] = self.now_ms + visibility_ms
            self.receipts.append((name, receipt))
        return [delivery.receipt for delivery in received.deliveries]

    def check_order(self, name: str, before: dict[int, c.PeekedMessage], numbers: list[int]) -> None:
        """In its group, nothing is started behind something that is not done."""
        assert len(set(numbers)) == len(numbers)
        if self.model.queue(name).is_in_order:
            after = self.peek(name)
            for place, number in enumerate(numbers):
                group = [each for each in before.values() if each.group == before[number].group]
                assert all(each.state != "in flight" for each in group)
                earlier = [each.number for each in group if each.number < number and each.number in after]
                assert set(earlier) <= set(numbers[:place]), "a message has overtaken another"

    def acknowledge(self, data: st.DataObject) -> None:
        self.acknowledge_all(*self.some_receipts(data))

    def acknowledge_all(self, name: str, receipts: list[c.Receipt]) -> None:
        before = self.peek(name)
        answer = self.ask(c.Acknowledge(name, receipts))
        for place, receipt in enumerate(receipts):
            if answer is not None and place not in answer.refused and receipt.number in before:
                self.sent_ms.pop(receipt.number, None)
                self.leases.pop(receipt.number, None)

    def change_visibility(self, data: st.DataObject) -> None:
        name, receipts = self.some_receipts(data)
        times_ms = st.sampled_from([0, 0, 1, 100, 1000, -1, VISIBILITY_MS_MAX, VISIBILITY_MS_MAX + 1])
        reasons = st.sampled_from(["", "no luck", "x" * 500])
        changes = [c.VisibilityChange(receipt, data.draw(times_ms), data.draw(reasons)) for receipt in receipts]
        answer = self.ask(c.ChangeVisibility(name, changes))
        for place, change in enumerate(changes):
            if answer is not None and place not in answer.refused:
                self.leases[change.receipt.number] = self.now_ms + change.visibility_ms

    def release(self, data: st.DataObject) -> None:
        name, receipts = self.some_receipts(data)
        answer = self.ask(c.Release(name, receipts))
        for place, receipt in enumerate(receipts):
            if answer is not None and place not in answer.refused:
                self.leases[receipt.number] = self.now_ms

    def some_receipts(self, data: st.DataObject) -> tuple[str, list[c.Receipt]]:
        """Of the latest mostly; now and then for another queue, or such as were never given."""
        places = data.draw(st.lists(st.integers(0, min(8, len(self.receipts) - 1)), min_size=1, max_size=4))
        chosen = [self.receipts[-1 - place] for place in places]
        name = data.draw(st.sampled_from([chosen[0][0]] * 9 + [WORK, DEAD]))
        more = data.draw(st.sampled_from([0] * 8 + [-1, 1, 1 << 40]))
        return name, [c.Receipt(receipt.number, receipt.lease + more) for _, receipt in chosen]

    # ── queues and moves ──────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([WORK, DEAD, *OTHERS, OTHERS[0]]))
        order = data.draw(st.sampled_from(ORDERS)) if name == OTHERS[1] else self.order
        dead_letters = data.draw(st.sampled_from([None, WORK, DEAD]))
        self.ask(c.CreateQueue(name, data.draw(configs(order, dead_letters)), {"made": "again"}))

    def configure(self, data: st.DataObject) -> None:
        name, dead_letters = data.draw(NAMES), data.draw(st.sampled_from([None, DEAD, DEAD, DEAD, WORK, *OTHERS]))
        self.ask(c.ConfigureQueue(name, data.draw(configs(self.order, dead_letters))))
        self.ask(c.TagQueue(name, {"tag": str(len(self.journal))}))

    def delete(self, data: st.DataObject) -> None:
        name = data.draw(NAMES)
        self.take_away(c.DeleteQueue(name))
        if data.draw(st.integers(0, 3)):
            self.ask(c.CreateQueue(name, data.draw(configs(self.order, DEAD if name == WORK else None))))

    def purge(self, data: st.DataObject) -> None:
        self.take_away(c.PurgeQueue(data.draw(NAMES)))

    def take_away(self, request: c.DeleteQueue | c.PurgeQueue) -> None:
        for number in self.peek(request.queue):
            self.sent_ms.pop(number, None)
        self.ask(request)

    def open(self, data: st.DataObject) -> None:
        self.ask(c.Open(self.machine.epoch + data.draw(st.integers(-1, 2)), data.draw(st.integers(0, RULES))))

    def start_move(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from([DEAD, DEAD, WORK, "nobody"]))
        self.ask(c.StartMove(source, data.draw(st.sampled_from([None, None, WORK, *OTHERS]))))

    def redrive(self, data: st.DataObject) -> None:
        self.ask(c.StartMove(DEAD))
        self.ask(c.MoveSome(self.model.task, data.draw(st.integers(1, 3))))

    def move(self, data: st.DataObject) -> None:
        task = self.model.task - data.draw(st.sampled_from([0, 0, 0, 1]))
        is_cancelled = data.draw(st.integers(0, 3)) == 0
        self.ask(c.CancelMove(task) if is_cancelled else c.MoveSome(task, data.draw(st.integers(1, 3))))

    # ── time, looking, restarts ───────────────────────────────────────────────────────────────────────────────────────

    def wait(self, data: st.DataObject) -> None:
        """Some time, or until just before or after something happens."""
        events_ms = [until_ms for queue in self.model.queues.values() for until_ms in queue.events_ms()]
        if events_ms and data.draw(st.integers(0, 2)) > 0:
            event_ms = data.draw(st.sampled_from(sorted(events_ms)[:4]))
            self.now_ms = max(self.now_ms, event_ms + data.draw(st.integers(-1, 1)))
        else:
            self.now_ms += data.draw(STEPS_MS)

    def set_back(self, data: st.DataObject) -> None:
        self.late_ms = data.draw(STEPS_MS)

    def look(self, data: st.DataObject) -> None:
        for name in [WORK, DEAD, *OTHERS]:
            self.ask(c.DescribeQueue(name))
            self.ask(c.Peek(name, 2, after=1))
            self.ask(c.ListSources(name))
            self.ask(c.ListMoves(name))
        self.ask(c.ListQueues(after="dead", count=2))
        self.ask(c.ListQueues(prefix="d"))

    def replay(self, data: st.DataObject) -> None:
        """A crash: all that is left are the commands that changed something, and when they did."""
        fresh = Queues()
        for now_ms, request, answer in self.journal:
            assert outcome(fresh, request, now_ms) == answer
            assert fresh.changed
        fresh.advance(self.machine.now_ms)
        assert bytes_of(fresh) == bytes_of(self.machine)
        self.machine = fresh

    def restore(self, data: st.DataObject) -> None:
        chunks = bytes_of(self.machine)
        self.machine = Queues.restore(chunks)
        assert bytes_of(self.machine) == chunks

    @invariant()
    def all_is_as_it_must_be(self) -> None:
        self.machine.advance(self.now_ms)
        self.model.advance(self.now_ms)
        wakeup_ms = self.model.wakeup_ms()
        if wakeup_ms is not None:  # asked first: the exact answer tidies up
            assert self.machine.may_wake_before(wakeup_ms + 1)
        assert self.machine.wakeup_ms() == wakeup_ms
        places: list[int] = []
        bytes_held = 0
        for name in self.model.queues:
            places += self.peek(name)
            assert self.machine.visible(name, self.now_ms) == self.model.visible(name)
            bytes_held += self.ask(c.DescribeQueue(name)).figures.bytes
        assert self.machine.bytes_held == bytes_held
        assert len(set(places)) == len(places), "a message is in two places"
        young = {number for number, sent_ms in self.sent_ms.items() if sent_ms + 60_000 > self.now_ms}
        assert young <= set(places), "a message was lost"


def test_the_machine_does_what_the_model_does() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(stateful_step_count=60))


@pytest.mark.soak
def test_the_machine_does_what_the_model_does_soak() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(stateful_step_count=200))


@settings(max_examples=50)
@given(data=st.data(), size=st.integers(0, 3 * CHUNK))
def test_sorted_numbers_are_a_sorted_list(data: st.DataObject, size: int) -> None:
    numbers = SortedNumbers(range(0, 10 * size, 10))
    there = set(range(0, 10 * size, 10))
    for _ in range(data.draw(st.integers(0, 5), "rounds")):
        largest = max(there, default=0)
        new = data.draw(st.lists(st.integers(0, largest + 5), max_size=5), "added")
        for number in new:
            numbers.add(number)
        tail = [largest + 6, largest + 8] * data.draw(st.integers(0, 1), "extended")
        numbers.extend(tail)
        there = (there | {*new, *tail}) - data.draw(st.frozensets(st.integers(0, largest)), "gone")
        for _ in range(data.draw(st.integers(0, 4), "tidied")):
            numbers.tidy(there)
        after = data.draw(st.integers(-1, largest + 9), "after")
        assert list(numbers.above(after, there)) == sorted(number for number in there if number > after)
