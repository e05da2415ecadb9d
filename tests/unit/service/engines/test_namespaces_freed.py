"""A namespace that is empty again leaves nothing behind: not in the broker's state, and not in an engine."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.match_protocol import MatchResults, OffsetRange
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import FanOut, Send, SendEntry
from lavant.broker.protocol.subscriptions import Advertise, Deliver, PublishOutcome, Subscribe, Unadvertise, Unsubscribe
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.timers import SWEEP_MS
from lavant.broker.subscriptions.idempotency import REMEMBERED_MS
from lavant.broker.subscriptions.log_offsets import FORGOTTEN, LogOffset
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication
from lavant.service.engines.filters import FilterAdmission
from lavant.service.engines.interface import Engine, EngineBatch
from lavant.service.engines.local import LocalEngine
from lavant.service.engines.spark.engine import SparkEngine

NOTHING = FanOut([], b"", b"", b"")
TIDIED_LATER = "_timers._heap"
"""Up to `STALE_MIN` entries that mean nothing any more stay there until their time comes."""
CONTAINERS = (dict, list, set, deque)


def sizes(*roots: Any) -> dict[str, int]:
    """The length of every container that objects of ours hold, by the way to it."""
    seen: set[int] = set()
    found = [each for root in roots for each in _sizes(root, type(root).__name__, seen)]
    return {path: size for path, size in found if size and not path.endswith(TIDIED_LATER)}


def _sizes(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, CONTAINERS):
        yield path, len(value)
        for each in list(value.values()) if isinstance(value, dict) else list(value):
            yield from _sizes(each, f"{path}[]", seen)
    elif isinstance(value, np.ndarray):
        yield path, value.nbytes
    elif type(value).__module__.startswith("lavant."):
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in {*slots, *getattr(value, "__dict__", ())}:
            yield from _sizes(getattr(value, name, None), f"{path}.{name}", seen)


class Tenants:
    """A broker and an engine, told of everything as a server does it."""

    def __init__(self, broker: BrokerState, engine: Engine | None = None) -> None:
        self.broker = broker
        self.engine = engine
        self.filters = None if engine is None else FilterAdmission(engine)
        self.now_ms = 1_000_000

    def ask(self, request: Any) -> None:
        self.broker.handle(request, self.now_ms)
        changes = self.broker.subscriptions.changes
        if self.filters is not None:
            self.filters.apply(list(changes), {})
        changes.clear()

    def come(self, namespace: str) -> None:
        self.ask(Subscribe("price > 1", name="own", namespace=namespace, config=QueueConfig("in-order")))
        self.ask(Advertise("price > 1", name="adv", namespace=namespace))
        self.ask(Send(f"{namespace}/own", [SendEntry(b"x", group=namespace, deduplication=namespace)]))
        self.ask(Deliver(NOTHING, answered=[PublishOutcome(namespace, "key", b"f", ["1"])]))

    def go(self, namespace: str) -> None:
        self.ask(Unsubscribe("own", namespace))
        self.ask(Unadvertise("adv", namespace))

    def let_time_pass(self) -> None:
        for _ in range(2):
            self.now_ms += REMEMBERED_MS + SWEEP_MS
            self.broker.queues.advance(self.now_ms)

    def held(self) -> dict[str, int]:
        return sizes(self.broker, self.engine, self.filters)


@pytest.mark.parametrize(
    ("namespaces", "engine"), [(10_000, None), (100, LocalEngine(1))], ids=["broker", "with the local engine"]
)
def test_namespaces_that_came_and_went_leave_nothing(namespaces: int, engine: LocalEngine | None) -> None:
    tenants = Tenants(BrokerState(), engine)
    tenants.come("stays")
    tenants.let_time_pass()
    held, memory = tenants.held(), tenants.broker.queues.memory_held
    snapshot = b"".join(tenants.broker.snapshot())
    for number in range(namespaces):
        tenants.come(f"tenant-{number}")
        tenants.go(f"tenant-{number}")
    tenants.let_time_pass()
    assert tenants.held() == held
    assert tenants.broker.queues.memory_held == memory
    assert len(b"".join(tenants.broker.snapshot())) - len(snapshot) < 20, "counters have more digits, and that is all"
    if engine is not None:
        engine.close()


def test_publications_nobody_subscribes_to_leave_nothing_in_the_engine() -> None:
    engine = LocalEngine(1)
    held = sizes(engine)
    for number in range(100):
        [piece] = engine.publish(batch(f"tenant-{number}"))
        assert not piece.queues
    assert sizes(engine) == held
    engine.close()


def batch(namespace: str, *prices: int) -> EngineBatch:
    publications = [ParsedPublication(f"{price}", PLAIN, {"price": price}, b"%d" % price) for price in prices or (1,)]
    return EngineBatch(namespace=namespace, scheme=PLAIN, publications=publications)


class SparkTenants(Tenants):
    """Publications go to logs, and what is found in them comes from here."""

    def __init__(self, directory: Path, broker: BrokerState) -> None:
        self.spark = SparkEngine(directory, broker.subscriptions.log_offsets, slices=2, identity=b"one")
        super().__init__(broker, self.spark)

    def publish(self, namespace: str, *prices: int) -> None:
        logged = self.spark.publish(batch(namespace, *prices))
        assert not isinstance(logged, list)
        self.ask(Deliver(NOTHING, accepted={logged.log_name: logged.end}))
        logged.confirm()

    def deliver(self) -> list[bytes]:
        """All that is owed; the bodies."""
        bodies: list[bytes] = []
        for stretch in self.spark.work(0):
            for part in self.spark.parts(
                found_in(stretch), self.broker.subscriptions.log_offsets[stretch.log_name].delivered
            ):
                bodies += part.bodies
                self.ask(Deliver(NOTHING, delivered={stretch.log_name: part.delivered}))
                self.spark.moved(stretch.log_name)
        return bodies

    def retire(self) -> list[str]:
        retired = self.spark.retire()
        if retired:
            self.ask(Deliver(NOTHING, forgotten=[each.log_name for each in retired]))
        return [each.log_name for each in retired]


def found_in(stretch: OffsetRange) -> MatchResults:
    """Every publication is found by subscription 1."""
    ends = np.arange(1, stretch.end - stretch.start + 1).astype(INTEGERS)
    return MatchResults(stretch.log_name, stretch.start, ends.tobytes(), np.ones_like(ends).tobytes())


def test_a_lane_goes_with_its_last_subscription_and_its_log_and_a_new_one_begins_behind_it(tmp_path: Path) -> None:
    tenants = SparkTenants(tmp_path, BrokerState())
    held = tenants.held()
    tenants.ask(Subscribe("price > 0", name="s", namespace="acme"))
    tenants.publish("acme", 1, 2)
    tenants.ask(Unsubscribe("s", "acme"))
    assert tenants.retire() == [], "it owes something"
    assert tenants.deliver() == [b"", b""], "nobody is there any more who wants it"
    assert tenants.retire() == ["plain-acme"]
    lanes = tenants.broker.subscriptions.log_offsets
    assert lanes.all() == [(FORGOTTEN, LogOffset(2, 2))]
    new = {path: size for path, size in tenants.held().items() if path not in held}
    # The routes of a federation hold the subscriptions too, and either way to them may be found first.
    assert {path.rpartition("subscriptions.")[2]: size for path, size in new.items()} == {"log_offsets._logs": 1}
    tenants.ask(Subscribe("price > 0", name="s", namespace="acme"))
    tenants.publish("acme", 3)
    assert lanes["plain-acme"] == LogOffset(3, 2)
    assert [(each.start, each.end) for each in tenants.spark.work(0)] == [(2, 3)]
    tenants.spark.close()


@pytest.mark.parametrize("is_forgotten", [True, False], ids=["the journal has it", "the journal does not have it"])
def test_a_crash_when_a_lane_goes_does_no_harm(tmp_path: Path, is_forgotten: bool) -> None:
    tenants = SparkTenants(tmp_path, BrokerState())
    tenants.ask(Subscribe("price > 0", name="s", namespace="acme"))
    tenants.publish("acme", 1, 2)
    tenants.deliver()
    tenants.ask(Unsubscribe("s", "acme"))
    before = list(tenants.broker.snapshot())
    [retired] = tenants.spark.retire()
    if is_forgotten:
        tenants.ask(Deliver(NOTHING, forgotten=[retired.log_name]))
        before = list(tenants.broker.snapshot())
    else:
        shutil.rmtree(retired.directory)
    again = SparkTenants(tmp_path, BrokerState.restore(before))
    again.ask(Subscribe("price > 0", name="s", namespace="acme"))
    again.publish("acme", 3)
    [stretch] = again.spark.work(0)
    assert (stretch.start, stretch.end) == (2, 3)
    again.spark.close()


def test_a_lane_that_was_over_before_a_restart_goes_then(tmp_path: Path) -> None:
    broker = BrokerState()
    broker.handle(Deliver(NOTHING, accepted={"plain-acme": 5}, delivered={"plain-acme": 5}), 1)
    tenants = SparkTenants(tmp_path, broker)
    assert tenants.retire() == ["plain-acme"]
    assert broker.subscriptions.log_offsets.all() == [(FORGOTTEN, LogOffset(5, 5))]
