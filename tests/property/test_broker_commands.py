"""Commands of every kind in one broker: what is refused changes nothing, and what is recorded can be had again.

After every step the state is compared as the bytes of a snapshot. Small limits, so that they are reached.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.broker_commands import GENERATORS, Commands
from tests.property.memory_count import counted_anew

from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.replay import replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.federation import MoveSubscription, SwitchBalancing
from lavant.broker.protocol.queue_config import namespace_of
from lavant.broker.protocol.queues import EndLongPolls
from lavant.broker.protocol.registry import COMMANDS, QUERIES, REGISTRY
from lavant.broker.protocol.subscriptions import Publish, RenewSubscription
from lavant.broker.queues.accounting.quotas import QueueLimits, Quota, Quotas
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.workflows.limits import JobLimits
from lavant.core.errors import LavantError

HUB = QueueLimits(queues_max=14, memory_max=60_000, moves_max=1, deduplication_names_max=6)
SUBSCRIPTIONS = SubscriptionLimits(subscriptions_max=6, advertisements_max=3)
QUOTAS = Quotas(Quota(queues_max=4, bytes_max=1_500, subscriptions_max=3))
JOBS = JobLimits(running_max=3, bytes_max=400)
STEPS_MS = [*[0] * 6, *[1] * 6, 30, 30, 100, 500, 500, 1_000, 5_000, 30_000, 60_000, -20]
_encode = msgspec.msgpack.Encoder().encode


def bytes_of(broker: BrokerState) -> bytes:
    return b"".join(broker.snapshot())


def check_usages(broker: BrokerState) -> None:
    """What is counted for quotas is what a look at all queues and subscriptions says."""
    queues, sizes = Counter[str](), Counter[str]()
    for queue in broker.queues.all():
        queues[namespace_of(queue.name)] += 1
        sizes[namespace_of(queue.name)] += sum(
            len(each.body) + len(each.attributes) + len(each.reason) for each in queue.messages.values()
        )
    usages = broker.queues.usages
    assert {name: (usages.of(name).queues, usages.of(name).bytes) for name in usages} == {
        name: (count, sizes[name]) for name, count in queues.items()
    }
    for name, count in Counter(each.namespace for each in broker.subscriptions).items():
        assert broker.subscriptions.count(name) == count


def limited(broker: BrokerState) -> BrokerState:
    broker.queues.limits, broker.queues.job_limits, broker.subscriptions.limits = HUB, JOBS, SUBSCRIPTIONS
    broker.queues.usages.quotas = QUOTAS
    return broker


class World:
    """A broker, its journal, and commands that come one after the other."""

    def __init__(self, seed: int, *, compares: bool = True) -> None:
        self._compares = compares
        self.make = Commands(seed)
        self.broker = limited(BrokerState())
        self.records: list[bytes] = []
        self.now_ms = 1_000_000
        self.outcomes: dict[str, set[str]] = {}
        """By kind of command: what came of it."""

    def step(self) -> None:
        broker = self.broker
        self.now_ms += self.make.one(*STEPS_MS)
        command = self.make.next(broker)
        broker.queues.advance(self.now_ms)
        before = self.bytes()
        self.check_plan(command, before)
        try:
            answer: Any = broker.handle(command, self.now_ms)
        except LavantError as error:
            answer = error
        if broker.changed:
            self.records.append(broker.queues.now_ms.to_bytes(TIME_BYTES, "big") + _encode(command))
        else:
            assert self.bytes() == before, f"{command} is not in the journal, and changed something: {answer}"
        assert broker.queues.memory_held == counted_anew(broker), f"{command} is not counted as it is"
        check_usages(broker)
        if isinstance(answer, LavantError):
            assert not broker.changed
            self.note(command, type(answer).__name__)
        else:
            self.make.learn(command, answer)
            self.note(command, "changed" if broker.changed else "unchanged")

    def check_plan(self, command: Any, before: bytes) -> None:
        """A plan that is not applied has changed nothing."""
        with suppress(LavantError):
            self.broker._planners[type(command)](command)
        assert self.bytes() == before, f"the check of {command} has changed something"

    def check_restarts(self) -> None:
        """The journal and the snapshot both give this very broker again; the next steps are made with one of them."""
        expected, time_ms = bytes_of(self.broker), self.broker.queues.now_ms
        again = replay(None, self.records)
        again.queues.advance(time_ms)
        restored = BrokerState.restore(list(self.broker.snapshot()))
        for broker in (again, restored):
            assert bytes_of(broker) == expected
            assert broker.queues.memory_held == counted_anew(broker)
            if not (len(broker.queues.counters.bodies) or len(self.broker.queues.counters.bodies)):
                assert broker.queues.memory_held == self.broker.queues.memory_held
            check_usages(broker)
        self.broker = limited(self.make.one(self.broker, again, restored))
        self.broker.subscriptions.changes.clear()

    def bytes(self) -> bytes:
        return bytes_of(self.broker) if self._compares else b""

    def note(self, command: Any, outcome: str) -> None:
        self.outcomes.setdefault(type(command).__name__, set()).add(outcome)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32))
def test_what_is_refused_changes_nothing_and_what_is_recorded_can_be_had_again(seed: int) -> None:
    world = World(seed)
    for number in range(80):
        world.step()
        if number % 20 == 19:
            world.check_restarts()


@pytest.mark.soak
@settings(deadline=None, max_examples=3000)
@given(st.integers(0, 2**64))
def test_the_same_for_long(seed: int) -> None:
    world = World(seed)
    for number in range(400):
        world.step()
        if number % 40 == 39:
            world.check_restarts()


def test_every_kind_of_command_is_generated_changes_something_and_is_refused() -> None:
    """The test above would prove nothing about a command that never succeeds, or never fails."""
    assert set(GENERATORS) == COMMANDS, "a command without a generator, or a generator too many"
    codes = {"LimitExceeded", "QuotaExceeded", "StorageFull", "QueueFull", "TooManyInFlight", "MoveRunning"}
    succeeds, fails = {kind.__name__ for kind in GENERATORS}, {kind.__name__ for kind in GENERATORS}
    for seed in range(400):
        world = World(seed, compares=False)
        for _ in range(200):
            world.step()
        for name, found in world.outcomes.items():
            succeeds -= {name} if "changed" in found else set()
            fails -= {name} if found - {"changed", "unchanged"} else set()
            codes -= found
        if not (succeeds or fails or codes):
            return
    raise AssertionError(f"none of these succeeds: {succeeds}, is refused: {fails}, is a reason: {codes}")


def test_every_request_is_a_command_or_a_query_and_somebody_handles_it() -> None:
    broker = BrokerState()
    kinds = {*broker.queues._PLANNERS, *broker.subscriptions._PLANNERS}
    kinds |= {*broker.federation._PLANNERS, *broker.migrations._PLANNERS}
    assert kinds == COMMANDS
    assert {*broker.queues._ANSWERS, *broker.subscriptions._ANSWERS, *broker.federation._ANSWERS} == QUERIES
    own = {Publish, RenewSubscription, EndLongPolls, MoveSubscription, SwitchBalancing}
    assert {*kinds, *QUERIES, *own} == set(REGISTRY), "a publication becomes a Deliver, the others nothing"
