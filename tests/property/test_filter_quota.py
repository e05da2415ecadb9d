"""Batches of subscriptions near every limit: what was accepted opens again on any number of slices under any limits,
what was refused left nothing, and only what is beyond a limit is refused."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.spark_world import Asking, World

from lavant.broker.matching.plain import table
from lavant.broker.protocol.queues import DeleteQueue, Refused
from lavant.broker.protocol.subscriptions import (
    EncryptedFilter,
    Publish,
    Subscribe,
    Subscribed,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.broker.queues.accounting.quotas import Quota, Quotas
from lavant.broker.subscriptions.limits import SubscriptionLimits
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.service.engines.filters import prepared_filter
from lavant.service.engines.local import LocalEngine
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.settings import SparkLimits

LIMITS = SubscriptionLimits(9, 5, 5)
QUOTAS = Quotas(Quota(subscriptions_max=6))
LANES_MAX = 3
ATTRIBUTES = "abcdefgh"

plain = st.lists(st.tuples(st.sampled_from(ATTRIBUTES), st.sampled_from(["> 1", "= 'x'"])), min_size=1, max_size=4).map(
    lambda predicates: " and ".join(f"{name} {rest}" for name, rest in sorted(dict(predicates).items()))
)
encrypted = st.sampled_from([2, 3]).map(lambda d: EncryptedFilter(d, np.ones((2 * d - 2, d)).tobytes()))
names = st.sampled_from([f"s{number}" for number in range(7)])
namespaces = st.sampled_from(["", "n", "m"])
requests = st.one_of(
    st.builds(lambda filter, name, namespace: Subscribe(filter, name, "", namespace), plain, names, namespaces),
    st.builds(lambda filter, name, namespace: Subscribe(filter, name, "", namespace), encrypted, names, namespaces),
    st.builds(UpdateSubscription, names, plain | encrypted, namespaces),
    st.builds(Unsubscribe, names, namespaces),
    st.builds(DeleteQueue, names),
)


class LocalWorld(World):
    def make_engine(self) -> LocalEngine:  # type: ignore[override]
        return LocalEngine(slices=self.slices)


class Model:
    """What a registry with these limits accepts, one request after the other."""

    def __init__(self, scopes_max: int | None) -> None:
        self.held: dict[tuple[str, str], str | EncryptedFilter] = {}
        self.scopes_max = scopes_max
        self.lanes_ever: set[tuple[str, type]] = set()

    def takes(self, request: Subscribe | UpdateSubscription) -> bool | None:
        """None if it depends on whether a lane that is empty has retired already."""
        key = (request.namespace, request.name)
        known = self.held.get(key)
        if isinstance(request, UpdateSubscription):
            return known is not None and self._fits(request)
        if known is not None:
            both_encrypted = isinstance(known, EncryptedFilter) and isinstance(request.filter, EncryptedFilter)
            return self._fits(request) is True and (both_encrypted or known == request.filter)
        own = [namespace for namespace, _ in self.held if namespace == request.namespace]
        if len(self.held) >= LIMITS.subscriptions_max:
            return False
        if request.namespace and len(own) >= 6:
            return False
        return self._fits(request)

    def _fits(self, request: Subscribe | UpdateSubscription) -> bool | None:
        kind = type(request.filter)
        lane = (request.namespace, kind)
        live = {(namespace, type(filter)) for (namespace, _), filter in self.held.items()}
        if self.scopes_max is not None and lane not in live and len(self.lanes_ever) >= self.scopes_max:
            return False if len(live) >= self.scopes_max else None
        gone = request.name if isinstance(request, UpdateSubscription) else None
        beside = [f for (n, name), f in self.held.items() if (n, type(f)) == lane and name != gone]
        before, new = features(beside), features([request.filter])
        if isinstance(request.filter, str):
            return new <= before or len(before | new) <= LIMITS.namespace_attributes_max
        return not before or before == new


def features(filters: list[str | EncryptedFilter]) -> set[Any]:
    found: set[Any] = set()
    for each in filters:
        made = prepared_filter(each)
        found |= set(made.dimensions) if isinstance(made, table.FilterTable) else {made.tests.shape[1:]}
    return found


@contextmanager
def decisions(world: World) -> Iterator[dict[int, int]]:
    """When requests were decided about, by their ids: namespaces have their turns, so not in the order they came."""
    decided: dict[int, int] = {}
    problem, places = world.ingest._filters.problem, count()

    def noted(request: Any, *rest: Any) -> Any:
        decided[id(request)] = next(places)  # the last look at it counts: some have to wait for others
        return problem(request, *rest)

    world.ingest._filters.problem = noted  # type: ignore[assignment, method-assign]
    yield decided
    world.ingest._filters.problem = problem  # type: ignore[method-assign]


async def ask_together(world: World, batch: list[Any], model: Model) -> None:
    """All in the line before the first is looked at; queues are deleted beside the line, before all of them."""
    for request in batch:
        if isinstance(request, DeleteQueue):
            world.perform(world.server.request(Asking(), 0, request, None, 0))
            model.held.pop(("", request.queue), None)
    lined = [(request, Asking()) for request in batch if not isinstance(request, DeleteQueue)]
    for request, asking in lined:
        world.ingest.request(asking, 0, request)
    world.ingest.go_on()
    with decisions(world) as decided:
        await world.settle()
    for request, asking in sorted(lined, key=lambda each: decided[id(each[0])]):
        if isinstance(request, Unsubscribe):
            model.held.pop((request.namespace, request.name), None)
            continue
        taken = model.takes(request)
        expected = isinstance(asking.answer, Subscribed) if taken is None else taken
        assert isinstance(asking.answer, Subscribed if expected else Refused), (request, asking.answer)
        if expected:
            if isinstance(request, UpdateSubscription):
                del model.held[request.namespace, request.name]
            model.held.setdefault((request.namespace, request.name), request.filter)
            model.lanes_ever.add((request.namespace, type(request.filter)))
    assert held(world.server.broker.subscriptions) == set(model.held)


def held(subscriptions: Subscriptions) -> set[tuple[str, str]]:
    return {(each.namespace, each.name) for each in subscriptions}


async def matched(world: World) -> dict[str, int]:
    """How many publications each queue has after some more, which everybody wants."""
    wanted: dict[str, Any] = dict.fromkeys(ATTRIBUTES, 2)
    rows = [wanted, dict.fromkeys(ATTRIBUTES, "x"), {"@point": [1.0, 1.0]}, {"@point": [1.0, 1.0, 1.0]}]
    for namespace in ("", "n", "m"):
        await world.ask(Publish([msgspec.json.encode(row) for row in rows], namespace=namespace))
    return {each.queue: len(world.bodies(each.queue)) for each in world.server.broker.subscriptions}


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One filter's worth: what is accepted has nothing to do with what one table holds."""
    monkeypatch.setattr(table, "DIMENSIONS_MAX", 4)


@given(batches=st.lists(st.lists(requests, max_size=12), min_size=1, max_size=4), data=st.data())
@settings(max_examples=40, deadline=None)
def test_what_was_accepted_opens_with_any_number_of_slices(batches: list[list[Any]], data: st.DataObject) -> None:
    async def check() -> None:
        world = LocalWorld(Path(), slices=data.draw(st.integers(1, 8)))
        await world.start()
        world.server.broker.subscriptions.limits = LIMITS
        world.server.queues.usages.quotas = QUOTAS
        model = Model(None)
        for batch in batches:
            await ask_together(world, batch, model)
        counts = await matched(world)
        journal = world.durable
        world.engine.close()
        for slices in (1, data.draw(st.integers(2, 7)), 8):
            again = LocalWorld(Path(), slices=slices)
            again.durable = list(journal)
            await again.start()
            again.server.broker.subscriptions.limits = SubscriptionLimits(1, 1, 1)
            again.server.queues.usages.quotas = Quotas(Quota(subscriptions_max=1))
            assert held(again.server.broker.subscriptions) == set(model.held)
            doubled = {queue: 2 * count for queue, count in counts.items()}
            assert await matched(again) == doubled
            again.engine.close()

    asyncio.run(check())


@given(batches=st.lists(st.lists(requests, max_size=12), min_size=1, max_size=3))
@settings(max_examples=15, deadline=None)
def test_the_spark_engine_takes_the_same(batches: list[list[Any]]) -> None:
    async def check(directory: Path) -> None:
        world = World(directory, SparkLimits(scopes_max=LANES_MAX))
        await world.start()
        world.server.broker.subscriptions.limits = LIMITS
        world.server.queues.usages.quotas = QUOTAS
        model = Model(LANES_MAX)
        for batch in batches:
            await ask_together(world, batch, model)
        await world.crash()
        assert held(world.server.broker.subscriptions) == set(model.held)
        assert isinstance(world.engine, SparkEngine)
        assert sum(len(lane) for lane in world.engine._logs.values()) == len(model.held)
        world.engine.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(check(Path(directory)))
