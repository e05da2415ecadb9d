"""Temporary subscriptions under random requests, time that passes or jumps, crashes and compactions.

A plain model says who must be there after every step. The broker that a journal and a snapshot give is the same one.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.machine.servers import Bench

from lavant.broker.machine.leases import STEP_MS_MAX
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import fold, replay
from lavant.broker.protocol.namespaces import in_namespace
from lavant.broker.protocol.queues import DeleteQueue, Receive
from lavant.broker.protocol.subscriptions import RenewSubscription, Subscribe, Unsubscribe, UpdateSubscription

Key = tuple[str, str]
LEASES_MS = [0, 1_000, 1_000, 7_000, 60_000]


class Modelled(msgspec.Struct):
    lease_ms: int
    left_ms: int
    """Of its lease."""
    waits_ms: list[int]
    """Until when receives wait at its queue."""


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench(now_ms=1_000_000)
        self.bench.commit()
        self.model: dict[Key, Modelled] = {}
        self.durable: dict[Key, int] = {}
        """Leases of those that a crash leaves."""
        self.folded: list[bytes] | None = None
        """A snapshot, and how many records are in it."""
        self.folded_records = 0

    def step(self) -> None:
        self.chance.choice(
            [*[self.ask] * 10, *[self.run] * 5, self.jump, self.crash, self.commit, self.fold, self.hang_up]
        )()
        self.check()

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self) -> None:
        namespace, name = self.chance.choice(["", "acme"]), self.chance.choice("abc")
        key, queue = (namespace, name), in_namespace(namespace, name)
        there = self.model.get(key)
        kind = self.chance.choice(
            [*["subscribe"] * 4, *["renew"] * 3, *["receive"] * 5, "update", "unsubscribe", "delete"]
        )
        request: Any
        match kind:
            case "subscribe":
                lease_ms = self.chance.choice(LEASES_MS) if there is None else there.lease_ms
                request = Subscribe("a = 1", name, namespace=namespace, lease_ms=lease_ms)
                there = self.model.setdefault(key, Modelled(lease_ms, lease_ms, []))
                there.left_ms = lease_ms
            case "renew":
                request = RenewSubscription(name, namespace)
                if there is not None:
                    there.left_ms = there.lease_ms
            case "receive":
                wait_ms = self.chance.choice([0, 2_000, 20_000, 20_000])
                request = Receive(queue, wait_ms=wait_ms)
                if there is not None:
                    there.left_ms = there.lease_ms
                    there.waits_ms += [self.bench.now_ms + wait_ms] if wait_ms else []
            case "update":
                request = UpdateSubscription(name, self.chance.choice(["a = 2", "a = 3"]), namespace)
                if there is not None:
                    there.left_ms = there.lease_ms
            case "unsubscribe":
                request = Unsubscribe(name, namespace)
                self.model.pop(key, None)
            case _:
                request = DeleteQueue(queue)
                self.model.pop(key, None)
        self.bench.ask(request)

    def hang_up(self) -> None:
        """All clients do; they may come back."""
        self.bench.server.gone("ann")
        for each in self.model.values():
            each.waits_ms = []

    def run(self) -> None:
        """Time passes, and the server looks at it as it wanted to."""
        until_ms = self.bench.now_ms + self.chance.choice([1, 400, 1_000, 6_999, 30_000, 60_000])
        while (wakeup_ms := self.bench.server.wakeup_ms()) is not None and wakeup_ms <= until_ms:
            self.pass_to(wakeup_ms)
        self.pass_to(until_ms)

    def jump(self) -> None:
        """The server does not run meanwhile."""
        self.pass_to(self.bench.now_ms + self.chance.choice([20_000, 60_000, 10**9]))

    def pass_to(self, now_ms: int) -> None:
        passed_ms = min(now_ms - self.bench.now_ms, STEP_MS_MAX)
        for key, each in list(self.model.items()):
            each.left_ms -= passed_ms
            if any(wait_ms <= now_ms for wait_ms in each.waits_ms):
                each.left_ms = each.lease_ms
            each.waits_ms = [wait_ms for wait_ms in each.waits_ms if wait_ms > now_ms]
            if each.lease_ms and each.left_ms <= 0:
                if each.waits_ms:
                    each.left_ms = each.lease_ms
                else:
                    del self.model[key]
        self.bench.tick(now_ms)

    def commit(self) -> None:
        self.bench.commit()
        self.durable = {key: each.lease_ms for key, each in self.model.items()}

    def crash(self) -> None:
        """What is not durable is lost; after a while another server starts, and all have a whole lease."""
        now_ms = self.bench.now_ms + self.chance.choice([0, 1_000, 10**9])
        records = self.bench.records[: self.bench.durable]
        self.bench = Bench(now_ms=now_ms)
        self.bench.records = records
        broker = replay(self.folded, records[self.folded_records :])
        self.bench.server = BrokerMachine(broker, position=len(records))
        self.bench.perform(self.bench.server.open(now_ms))
        self.model = {key: Modelled(lease_ms, lease_ms, []) for key, lease_ms in self.durable.items()}
        self.commit()

    def fold(self) -> None:
        some = self.bench.records[self.folded_records : self.bench.durable]
        self.folded = list(fold(None if self.folded is None else iter(self.folded), iter(some)))
        self.folded_records = self.bench.durable

    # ── what must be so ───────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        broker = self.bench.server.broker
        assert {(each.namespace, each.name) for each in broker.subscriptions} == set(self.model)
        assert {each.name for each in broker.queues.all()} == {in_namespace(*key) for key in self.model}
        again = replay(self.folded, self.bench.records[self.folded_records :])
        again.queues.advance(broker.queues.now_ms)
        assert list(again.snapshot()) == list(broker.snapshot())


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_those_are_there_whose_clients_were_heard_of(seed: int) -> None:
    world = World(seed)
    for _ in range(80):
        world.step()
