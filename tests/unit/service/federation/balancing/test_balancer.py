"""Balancers of several brokers over links in memory: they find each other, agree, sample and move."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from tests.unit.service.federation.balancing.balanced_network import BalancedNetwork

from lavant.broker.federation.frames import BalancingContent, BrokerMessage
from lavant.broker.protocol.frames import decode_request
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Advertise, Publish, Subscribe
from lavant.control.balancing import BalancingStatus, BrokerLoad, LoadReport
from lavant.control.balancing.policies.interface import OffloadPlan, OpenSession
from lavant.control.balancing.policies.shares import SharesPolicy
from lavant.control.balancing.values import LoadIndex, SessionRequest
from lavant.service.federation.balancing.views import balancing_families, balancing_view
from lavant.service.observability.openmetrics import openmetrics

SUBSCRIPTIONS = 24
CAPACITIES = {"B1": 1.0, "B2": 2.0, "B3": 3.0}


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def star(*, is_on: bool = True) -> BalancedNetwork:
    """A core that publishes, and edges around it; all subscriptions are at the weakest."""
    network = BalancedNetwork()
    network.add("B0", requires_advertisements=True)
    network.request("B0", Advertise("true", "all"))
    for name, strength in CAPACITIES.items():
        network.add(name, requires_advertisements=True)
        network.join(name, "B0")
        network.settle()
        network.balance(name, is_on=is_on, rate=1000 * strength, bandwidth=5000 * strength)
    await network.second()
    for number in range(SUBSCRIPTIONS):
        network.request("B1", Subscribe(f"x >= {number % 8} and x < {number % 8 + 4}", f"s{number}"))
    return network


async def run(network: BalancedNetwork, seconds: int) -> list[int]:
    published = []
    for second in range(seconds):
        for x in range(8):
            network.publish("B0", {"x": x, "n": second * 8 + x})
            published.append(second * 8 + x)
        await network.second()
    return published


def places(network: BalancedNetwork) -> Counter[str]:
    return Counter({name: sum(1 for _ in broker.node.broker.subscriptions) for name, broker in network.brokers.items()})


def message(network: BalancedNetwork, source: str, target: str, content: Any) -> BrokerMessage:
    return BrokerMessage(f"id-{source}", f"id-{target}", BalancingContent(msgspec.msgpack.encode(content)))


def report(broker: str, *, subscriptions: int = 7) -> LoadReport:
    load = BrokerLoad(subscriptions=subscriptions)
    return LoadReport(broker=broker, cluster="federation", status=BalancingStatus.OK, load=load, number=1 << 60)


@in_loop
async def test_subscriptions_spread_by_capacity_and_each_gets_everything_once() -> None:
    network = await star()
    published = await run(network, 60)
    assert places(network) == {"B0": 0, "B1": 4, "B2": 8, "B3": 12}
    balancer = network.balancers["B1"]
    assert (balancer.counts.moved, balancer.counts.failed, balancer.fault) == (20, 0, None)
    for number in range(SUBSCRIPTIONS):
        got = [
            each["n"]
            for name, broker in network.brokers.items()
            if any(state.name == f"s{number}" for state in broker.node.broker.subscriptions)
            for each in network.received(name, f"s{number}")
        ]
        low = number % 8
        assert sorted(got) == [n for n in published if low <= n % 8 < low + 4], f"s{number}"
    check_view(network)


def check_view(network: BalancedNetwork) -> None:
    """The decision is there, with what was predicted and measured."""
    view = balancing_view(network.balancers["B1"])
    decision = next(each for each in view.decisions if each.moves)
    assert decision.moves == 20
    assert set(decision.before) == set(decision.predicted) == set(decision.measured) == set(CAPACITIES)
    for broker, predicted in decision.predicted.items():
        assert decision.measured[broker].subscriptions == predicted.subscriptions
        assert decision.measured[broker].output == pytest.approx(predicted.output, rel=0.1)
    assert [peer.broker for peer in view.peers] == ["B2", "B3"]
    msgspec.json.encode(view)
    text = openmetrics(balancing_families(network.balancers["B1"]))
    assert 'lavant_balancing_moves_total{outcome="completed"} 20' in text


class LongPlans(SharesPolicy):
    """Each plan takes until the loop of the broker answers, or five seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.answered: list[bool] = []

    def plan(self, session: OpenSession) -> OffloadPlan:
        answer = threading.Event()
        self._loop.call_soon_threadsafe(answer.set)
        self.answered.append(answer.wait(5))
        return super().plan(session)


@in_loop
async def test_a_broker_goes_on_while_it_plans() -> None:
    network = await star()
    balancer, policy = network.balancers["B1"], LongPlans(asyncio.get_running_loop())
    balancer._policy = balancer.machine.policy = policy
    await run(network, 60)
    assert set(policy.answered) == {True}
    assert places(network) == {"B0": 0, "B1": 4, "B2": 8, "B3": 12}


@in_loop
async def test_nothing_moves_while_balancing_is_off() -> None:
    network = await star(is_on=False)
    await run(network, 15)
    assert places(network)["B1"] == SUBSCRIPTIONS
    assert not network.balancers["B2"].machine.peers
    for balancer in network.balancers.values():
        balancer.switch(is_on=True)
    await run(network, 50)
    assert places(network) == {"B0": 0, "B1": 4, "B2": 8, "B3": 12}, "the first session is with all of them"


@in_loop
async def test_a_broker_that_is_off_gets_nothing() -> None:
    network = await star()
    network.balancers["B3"].switch(is_on=False)
    await run(network, 60)
    assert places(network) == {"B0": 0, "B1": 8, "B2": 16, "B3": 0}


@in_loop
async def test_a_broker_that_joins_later_learns_the_load_of_the_others() -> None:
    network = await star()
    await run(network, 2)
    network.add("B4")
    network.join("B4", "B0")
    network.settle()
    network.balance("B4")
    await network.second()
    assert set(network.balancers["B4"].machine.peers) == {"B1", "B2", "B3"}


@in_loop
async def test_a_session_ends_if_the_other_side_falls_silent() -> None:
    network = await star()
    await run(network, 2)
    network.lost = {"B2", "B3"}
    await run(network, 40)
    assert places(network)["B1"] == SUBSCRIPTIONS
    network.lost = set()
    await run(network, 90)
    assert places(network) == {"B0": 0, "B1": 4, "B2": 8, "B3": 12}


@in_loop
async def test_nobody_can_speak_for_another_broker() -> None:
    network = await star()
    await network.second()
    known = dict(network.balancers["B1"].machine.peers)
    core_to_1, b2_to_core = network.end("B0", "B1"), network.end("B2", "B0")
    assert core_to_1 is not None
    assert b2_to_core is not None
    # B2 sends a report of B3 under its own identity: the sender does not fit.
    network.send(b2_to_core, message(network, "B2", "B1", report("B3")))
    network.settle()
    assert network.balancers["B1"].counts.rejected == 1
    # B3 is not behind the link to B1: the core's machine does not deliver what claims to be of it.
    from_1 = network.end("B1", "B0")
    assert from_1 is not None
    network.balance("B0")
    before = network.balancers["B0"].counts
    network.send(from_1, message(network, "B3", "B0", report("B3")))
    network.settle()
    assert (before.received, before.rejected) == (0, 0)
    assert dict(network.balancers["B1"].machine.peers) == known


def test_a_client_cannot_send_a_balancing_message() -> None:
    """The protocol of clients has no such request, and a publication with the same content is a publication."""
    content = BalancingContent(msgspec.msgpack.encode(report("B2")))
    with pytest.raises(msgspec.ValidationError):
        decode_request(msgspec.msgpack.encode(BrokerMessage("id-B2", "id-B1", content)))

    async def check() -> None:
        network = await star()
        before = [msgspec.structs.replace(each.counts) for each in network.balancers.values()]
        network.request("B1", Publish([msgspec.json.encode(report("B2"))]))
        network.request("B1", Publish([msgspec.json.encode({"x": 1, "type": "load_report", "broker": "B2"})]))
        assert [each.counts for each in network.balancers.values()] == before

    asyncio.run(check())


@pytest.mark.parametrize("content", [b"", b"\xc1", msgspec.msgpack.encode({"type": "load_report"}), b"\x93abc"])
def test_a_message_that_cannot_be_read_is_counted_and_ignored(content: bytes) -> None:
    async def check() -> None:
        network = await star()
        end = network.end("B2", "B0")
        assert end is not None
        network.send(end, BrokerMessage("id-B2", "id-B1", BalancingContent(content)))
        network.settle()
        balancer = network.balancers["B1"]
        assert (balancer.counts.rejected, balancer.fault) == (1, None)

    asyncio.run(check())


@in_loop
async def test_a_mistake_ends_balancing_and_not_the_broker() -> None:
    network = await star()
    await run(network, 2)
    balancer = network.balancers["B1"]

    def broken(*arguments: object) -> Any:
        raise ZeroDivisionError("division by zero")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(balancer.machine, "handle", broken)
        await run(network, 2)
    assert not balancer.is_on
    assert "ZeroDivisionError" in str(balancer.fault)
    assert places(network)["B1"] == SUBSCRIPTIONS
    balancer.switch(is_on=True)
    await run(network, 4)
    assert balancer.machine.is_on
    assert balancer.fault is None


@in_loop
async def test_a_reply_has_the_filters_that_are_told_towards_the_asking_broker() -> None:
    network = await star()
    for _ in range(3):
        await network.second()
    balancer = network.balancers["B1"]
    b2 = network.brokers["B1"].node.machine.migrations.member("B2")
    texts = set(balancer._covering(b2))
    assert not set(balancer._covering(msgspec.structs.replace(b2, identity="gone")))
    assert len(texts) == 8, "equal filters are told once"
    assert all(text.startswith("\nx ") for text in texts)
    request = SessionRequest(session="s", sender="B2", cluster="federation", index=LoadIndex.SHARES, deadline_ms=1000)
    end = network.end("B2", "B0")
    assert end is not None
    network.lost = {"B2"}
    network.send(end, message(network, "B2", "B1", request))
    network.settle()
    assert balancer.machine.status is BalancingStatus.BUSY


@in_loop
async def test_off_ends_a_session_between_two_moves() -> None:
    network = await star()
    balancer = network.balancers["B1"]
    execute = balancer._links.service.execute

    async def execute_once(request: Any) -> Any:
        balancer.switch(is_on=False)
        return await execute(request)

    service: Any = balancer._links.service
    service.execute = execute_once
    await run(network, 50)
    moved = SUBSCRIPTIONS - places(network)["B1"]
    assert 0 < moved < 20
    assert (balancer.counts.moved, balancer.counts.failed) == (moved, 20 - moved)


@in_loop
async def test_a_subscription_that_cannot_move_stays_and_is_counted() -> None:
    network = await star()
    balancer = network.balancers["B1"]

    async def refuse(request: Any) -> Any:
        return Refused("SubscriptionMoving", "no room")

    service: Any = balancer._links.service
    service.execute = refuse
    await run(network, 50)
    assert places(network)["B1"] == SUBSCRIPTIONS
    assert balancer.counts.moved == 0
    assert balancer.counts.failed >= 20
    assert balancer.fault is None


@in_loop
async def test_moves_to_a_broker_that_does_not_answer_hold_up_no_others_and_end_with_the_session() -> None:
    network = await star()
    balancer = network.balancers["B1"]
    execute, asked = balancer._links.service.execute, Counter[str]()
    silent = asyncio.Event()

    async def execute_at_b2(request: Any) -> Any:
        asked[request.broker] += 1
        if request.broker == "B3":
            await silent.wait()
        return await execute(request)

    service: Any = balancer._links.service
    service.execute = execute_at_b2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lavant.service.federation.balancing.balancer.MOVES_AT_ONCE", 1)
        await run(network, 40)
        assert asked == {"B2": 8, "B3": 1}
        assert places(network)["B2"] == 8
        balancer.machine._session = None  # at its deadline
        silent.set()
        for _ in range(3):
            await network.second()
    assert asked["B3"] == 1, "the plan is out of date"
    assert (balancer.counts.moved, balancer.counts.failed) == (9, 11)


@in_loop
async def test_a_mistake_in_a_sample_ends_balancing_and_not_the_delivery() -> None:
    network = await star()
    balancer = network.balancers["B1"]

    def broken(*arguments: object) -> Any:
        raise IndexError("out of bounds")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lavant.service.federation.balancing.press_sampler.PressSampler.see", broken)
        await run(network, 40)
    assert "IndexError" in str(balancer.fault)
    assert balancer.meter.sampler is None
    assert places(network)["B1"] == SUBSCRIPTIONS


@in_loop
async def test_a_message_of_a_broker_that_has_just_left_is_ignored() -> None:
    network = await star()
    balancer = network.balancers["B1"]
    before = dict(balancer.machine.peers)
    request = SessionRequest(session="s", sender="", cluster="federation", index=LoadIndex.SHARES, deadline_ms=1000)
    balancer.received(message(network, "B9", "B1", request))
    assert balancer.fault is None
    assert balancer.machine.peers == before
    assert balancer.machine.status is not BalancingStatus.BUSY
