"""Links between brokers: they open, mend, hold back and are refused as they should."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.property.federation_network import Network

from lavant.broker.federation import relays
from lavant.broker.federation.frames import LinkPublications
from lavant.broker.federation.routes.router import ROUTES_A_STEP
from lavant.broker.federation.session import FederationConfig, LinkSession
from lavant.broker.federation.state import LinkLimits
from lavant.broker.protocol.federation import NeighbourRemoved, RemoveNeighbour, SubscribedRoute
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import PurgeQueue, Refused
from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Unsubscribe


def publication(**attributes: Any) -> bytes:
    return msgspec.json.encode(attributes)


def chain(*names: str, **options: Any) -> Network:
    network = Network()
    for name in names:
        network.add(name, **options)
    for one, other in pairwise(names):
        network.join(one, other)
        network.settle()
    return network


def numbers(network: Network, broker: str, queue: str) -> list[int]:
    return [each["x"] for each in network.received(broker, queue)]


def test_a_publication_reaches_a_subscription_over_several_brokers_once() -> None:
    network = chain("A", "B", "C", "D")
    network.request("D", Subscribe("x > 1", "s"))
    network.request("A", Publish([publication(x=1), publication(x=2), publication(x=3)]))
    assert numbers(network, "D", "s") == [2, 3]
    assert network.brokers["C"].node.machine.state.neighbours["B"].received.floor == 2


def test_a_publication_crosses_a_chain_of_seventy_brokers() -> None:
    names = [f"b{place}" for place in range(70)]
    network = chain(*names)
    network.request(names[-1], Subscribe("true", "s"))
    network.request(names[0], Publish([publication(x=1)]))
    assert numbers(network, names[-1], "s") == [1]
    assert network.notices == []


def test_a_publication_that_crossed_too_many_links_is_dropped_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "HOPS_MAX", 2)
    network = chain("A", "B", "C", "D")
    network.request("D", Subscribe("true", "s"))
    network.request("B", Publish([publication(x=1)]))
    network.request("A", Publish([publication(x=2)]))
    assert numbers(network, "D", "s") == [1]
    [notice] = network.notices
    assert "from 'C' was dropped: it has crossed 3 links" in notice


def test_brokers_give_different_ids() -> None:
    network = chain("A", "B")
    given = [network.request(name, Publish([publication(x=1)])).entries[0] for name in ("A", "B")]
    assert given == ["A-1-1", "B-1-1"]


def test_what_was_published_during_a_partition_arrives_after_it() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    network.cut("A", "B")
    network.settle()
    for x in range(5):
        network.request("A", Publish([publication(x=x)]))
    assert numbers(network, "B", "s") == []
    network.restart("A")
    network.join("B", "A")
    network.settle()
    assert numbers(network, "B", "s") == [0, 1, 2, 3, 4]
    assert len(network.brokers["A"].node.machine.state.neighbours["B"].queue) == 0


@pytest.mark.parametrize("steps", range(6))
def test_what_becomes_durable_while_a_link_opens_is_confirmed_when_it_comes_again(steps: int) -> None:
    network = chain("A", "B", window_publications=2)
    network.request("B", Subscribe("true", "s"))
    network.brokers["B"].is_disk_stopped = True
    network.request("A", Publish([publication(x=x) for x in range(5)]))
    network.cut("A", "B")
    network.settle()
    network.join("A", "B")
    for _ in range(steps):
        network.step()
    network.resume_disk("B")
    network.settle()
    assert numbers(network, "B", "s") == [0, 1, 2, 3, 4]
    assert network.refusals == []


def test_a_backlog_of_many_frames_arrives_whole_and_in_order() -> None:
    network = chain("A", "B", batch_bytes=300, window_publications=12)
    network.request("B", Subscribe("true", "s"))
    network.cut("A", "B")
    network.settle()
    for first in range(0, 60, 6):
        network.request("A", Publish([publication(x=x) for x in range(first, first + 6)]))
    network.join("A", "B")
    network.settle()
    assert numbers(network, "B", "s") == list(range(60))


def test_while_frames_are_under_way_publications_gather_for_the_next_one() -> None:
    session, config = LinkSession("connection", 0, is_dialled=True), FederationConfig(name="A", identity="a")
    session.sent_ms, soon_ms = 100, 100 + config.gather_ms - 1
    assert session.room(1, soon_ms, config) == 1, "nothing is under way"
    session.in_flight.extend((number, 1) for number in range(config.gather_frames))
    assert session.room(config.gather_publications, soon_ms, config) == config.gather_publications, "they are many"
    assert session.room(1, soon_ms + 1, config) == 1, "they have waited"
    assert session.room(1, 99, config) == 1, "the clock was set back"
    assert session.gathers_until_ms is None
    assert session.room(1, soon_ms, config) == 0
    assert session.gathers_until_ms == soon_ms + 1


def test_a_publication_that_gathers_leaves_when_its_time_has_come() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    machine = network.brokers["A"].node.machine
    [session] = machine.sessions.values()
    session.in_flight.extend((0, 0) for _ in range(machine.config.gather_frames))  # as if B had not confirmed them
    session.sent_ms = published_ms = network.now_ms
    network.request("A", Publish([publication(x=1)]))
    assert network.now_ms == published_ms + machine.config.gather_ms
    assert numbers(network, "B", "s") == [1]


def test_publications_after_a_gap_are_refused_and_sent_again() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    machine = network.brokers["A"].node.machine
    [session] = machine.sessions.values()
    session.sent += 1  # as if a frame had been lost
    network.request("A", Publish([publication(x=1)]))
    network.request("A", Publish([publication(x=2)]))
    network.settle()
    assert any("numbers have no gaps" in refused.reason for refused in network.refusals), network.refusals
    network.join("A", "B")
    network.settle()
    assert numbers(network, "B", "s") == [1, 2]


def test_routes_that_changed_while_a_link_was_down_are_mended_both_ways() -> None:
    network = chain("A", "B")
    network.request("A", Subscribe("a = 1", "old"))
    network.request("B", Subscribe("b = 1", "old"))
    network.cut("A", "B")
    network.settle()
    for name in ("A", "B"):
        network.request(name, Unsubscribe("old"))
        network.request(name, Subscribe(f"new = '{name}'", "new"))
    network.join("A", "B")
    network.settle()
    for one, other in (("A", "B"), ("B", "A")):
        routes = network.brokers[one].node.machine.state.neighbours[other].routes
        assert [each.filter for each in routes if isinstance(each, SubscribedRoute)] == [f"new = '{other}'"]
        assert routes.digests() == network.brokers[other].node.machine.router.outgoing[one].table.digests()


def test_a_join_that_would_close_a_cycle_is_refused_with_the_path() -> None:
    network = chain("A", "B", "C")
    network.join("A", "C")
    network.settle()
    [refusal] = network.refusals
    assert refusal.code == "cycle"
    assert any(path in refusal.reason for path in ("A - B - C", "C - B - A", "A - C - B", "B - A - C", "B - C - A"))
    assert set(network.brokers["A"].node.machine.state.neighbours) == {"B"}


def test_a_link_that_only_one_side_remembers_is_forgotten_when_it_would_close_a_cycle() -> None:
    network = chain("A", "B", "C")
    network.cut("C", "B")
    network.settle()
    network.request("C", RemoveNeighbour("B"))  # B does not hear of it
    network.restart("B")
    network.join("C", "A")
    network.settle()
    network.join("A", "B")
    network.settle()
    network.join("C", "B")
    network.settle()
    assert [refusal.code for refusal in network.refusals] == ["cycle"]
    assert network.links() == {frozenset("AB"), frozenset("AC")}


def test_a_broker_that_leaves_and_joins_elsewhere_is_no_cycle() -> None:
    """C still believes that A is behind B, since B is down when A leaves."""
    network = chain("A", "B", "C")
    network.cut("A", "B")
    network.cut("B", "C")
    network.settle()
    network.request("A", RemoveNeighbour("B"))
    network.join("A", "C")
    network.settle()
    assert network.refusals == []
    network.join("B", "C")
    network.settle()
    assert network.refusals == []
    network.request("B", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1)]))
    assert numbers(network, "B", "s") == [1]


@pytest.mark.parametrize("youngest", [("A", "B"), ("B", "C"), ("C", "A")])
def test_of_a_cycle_the_youngest_link_is_removed(youngest: tuple[str, str]) -> None:
    network = Network()
    for name in "ABC":
        network.add(name)
    pairs = [("A", "B"), ("B", "C"), ("C", "A")]
    older = [pair for pair in pairs if pair != youngest]
    for pair in older:
        network.join(*pair)
    for _ in range(4):  # both sides of both links have said hello; nobody knows yet who is behind a link
        network.step()
    network.now_ms += 1_000
    network.join(*youngest)
    network.settle()
    linked = [{name, to} for name, each in network.brokers.items() for to in each.node.machine.state.neighbours]
    assert all(linked.count(set(pair)) == 2 for pair in older), network.notices
    assert set(youngest) not in linked


def test_a_start_with_many_subscriptions_goes_step_by_step_and_links_open_at_its_end() -> None:
    network = chain("A", "B")
    count = 3 * ROUTES_A_STEP
    for x in range(count):
        network.request("A", Subscribe(f"x = {x}", f"s{x}"))
    network.request("B", Publish([publication(x=7)]))
    assert numbers(network, "A", "s7") == [7]
    network.restart("A")
    machine = network.brokers["A"].node.machine
    assert machine.router.is_busy
    assert machine.wakeup_ms() == machine.now_ms
    network.request("A", Unsubscribe("s299"))
    network.join("A", "B")
    network.settle()
    held = network.brokers["B"].node.machine.state.neighbours["A"].routes
    assert held.kinds[SubscribedRoute] == count - 1
    assert held.digests() == machine.router.outgoing["B"].table.digests()
    network.request("B", Publish([publication(x=8), publication(x=299)]))
    assert numbers(network, "A", "s8") == [8]


def test_joins_at_the_same_time_that_close_a_cycle_multiply_nothing_and_one_is_undone() -> None:
    network = Network()
    for name in "ABC":
        network.add(name)
    network.join("A", "B")
    network.join("B", "C")
    network.join("C", "A")
    network.settle()
    links = [len(broker.node.machine.state.neighbours) for broker in network.brokers.values()]
    assert sum(links) == 4, network.notices
    assert all("it closes the cycle" in each or "has removed this broker" in each for each in network.notices)
    network.request("A", Subscribe("true", "s"))
    for name in "ABC":
        network.request(name, Publish([publication(x=ord(name))]))
    assert sorted(numbers(network, "A", "s")) == [65, 66, 67]


@pytest.mark.parametrize("matching_ms", [0, 10])
def test_of_copies_that_come_over_two_links_at_once_one_is_delivered(matching_ms: int) -> None:
    network = Network()
    for name in "ABC":
        network.add(name)
    for name in "BC":
        network.join(name, "A")
        network.settle()
    network.request("A", Subscribe("true", "s"))
    broker = network.brokers["A"]
    broker.node.matching_ms = matching_ms  # so that the second copy comes while the first one is matched
    copy = LinkPublications(
        first=1,
        namespace="",
        bodies=[publication(x=1)],
        points=[],
        origins=["id-D"],
        origin_of=bytes(2),
        origin_numbers=(7).to_bytes(8, "little"),
        hops=bytes(1),
        entered_ms=1,
    )
    for connection in broker.node.machine.sessions:
        network.perform("A", broker.node.frame(connection, copy, network.now_ms))
    network.pass_time(2 * matching_ms)
    assert numbers(network, "A", "s") == [1]
    for neighbour in broker.node.machine.state.neighbours.values():
        assert neighbour.received.floor == 1, "both links go on"
    assert network.notices == []


def test_a_full_queue_of_a_link_refuses_what_must_cross_and_nothing_else() -> None:
    network = chain("A", "B", limits=LinkLimits(bytes_max=300))
    network.request("B", Subscribe("x = 1", "s"))
    network.cut("A", "B")
    network.settle()
    answers = [network.request("A", Publish([publication(x=1)])) for _ in range(20)]
    entries = [entry for answer in answers for entry in answer.entries]
    refused = [entry for entry in entries if isinstance(entry, Refused)]
    assert 0 < len(refused) < 20
    assert "queue for neighbour 'B' is full" in refused[0].reason
    other = network.request("A", Publish([publication(x=2)]))
    assert isinstance(other, Published)
    assert isinstance(other.entries[0], str)
    network.join("A", "B")
    network.settle()
    assert len(numbers(network, "B", "s")) == 20 - len(refused)


def test_an_old_queue_of_a_link_refuses_too() -> None:
    network = chain("A", "B", limits=LinkLimits(age_ms_max=1_000))
    network.request("B", Subscribe("x = 1", "s"))
    network.cut("A", "B")
    network.settle()
    first = network.request("A", Publish([publication(x=1)]))
    assert isinstance(first.entries[0], str)
    network.pass_time(2_000)
    second = network.request("A", Publish([publication(x=1)]))
    [refused] = second.entries
    assert isinstance(refused, Refused)
    assert "waits for 2000 ms, and 1000 may" in refused.reason
    assert "link_waiting_s_max" in refused.reason


def test_a_removed_neighbour_is_listed_with_what_waited_and_may_not_come_back_by_itself() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    network.cut("A", "B")
    network.settle()
    network.request("A", Publish([msgspec.json.encode({"x": 1, "@id": "one"})]))
    removed = network.request("A", RemoveNeighbour("B"))
    assert isinstance(removed, NeighbourRemoved)
    assert (removed.publications, removed.ids) == (1, ["one"])
    network.join("B", "A")
    network.settle()
    assert [each.code for each in network.refusals] == ["removed"]
    network.join("A", "B")
    network.settle()
    network.request("A", Publish([publication(x=2)]))
    assert numbers(network, "B", "s") == [2]


def test_a_neighbour_that_is_removed_while_it_is_connected_leaves() -> None:
    network = chain("A", "B", "C")
    network.request("B", RemoveNeighbour("C"))
    assert network.brokers["C"].node.machine.state.neighbours == {}
    assert [each.name for each in network.brokers["A"].node.machine.members_behind["B"].values()] == ["B"]


def test_another_data_directory_under_the_same_name_is_refused() -> None:
    network = chain("A", "B", "C")
    network.add("twin", identity="id-twin")
    network.brokers["twin"].node.machine.own = msgspec.structs.replace(
        network.brokers["twin"].node.machine.own, name="C"
    )
    network.join("twin", "A")
    network.settle()
    assert [each.code for each in network.refusals] == ["name"]


@pytest.mark.parametrize("dialler", ["A", "D"])
def test_a_link_between_parts_that_have_brokers_of_one_name_is_refused(dialler: str) -> None:
    network = chain("A", "B")
    network.add("D")
    twin = network.add("twin", identity="id-twin").node.machine
    twin.own = msgspec.structs.replace(twin.own, name="B")
    network.join("D", "twin")
    network.settle()
    network.join(dialler, "D" if dialler == "A" else "A")
    network.settle()
    [refusal] = network.refusals
    assert refusal.code == "name"
    assert "another broker named 'B'" in refusal.reason
    assert [len(network.brokers[name].node.machine.state.neighbours) for name in ("A", "D")] == [1, 1]


def test_a_publication_that_does_not_fit_is_held_until_it_does() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s", config=QueueConfig(depth_max=2)))
    for x in range(4):
        network.request("A", Publish([publication(x=x)]))
    assert "full" in next(iter(network.brokers["B"].node.machine.sessions.values())).blocked
    taken = network.received("B", "s")
    assert [each["x"] for each in taken] == [0, 1]
    network.request("B", PurgeQueue("s"))
    network.pass_time(1_000)
    network.settle()
    assert numbers(network, "B", "s") == [2, 3]
    assert len(network.brokers["A"].node.machine.state.neighbours["B"].queue) == 0


def test_publications_that_stay_held_are_tried_together_and_less_and_less_often() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s", config=QueueConfig(depth_max=1)))
    network.request("A", Publish([publication(x=x) for x in range(50)]))
    relays = network.brokers["B"].node.machine.relays
    first = relays.last
    for _ in range(600):
        network.pass_time(100)
        network.settle()
    assert 15 <= relays.last - first <= 25  # after 0.2, 0.4, 0.8, 1.6, 3, 3, … s
    network.request("B", PurgeQueue("s"))
    network.pass_time(3_000)
    network.settle()
    assert numbers(network, "B", "s") == [1]


def test_a_queue_that_does_not_allow_its_size_keeps_a_publication_from_nobody_else() -> None:
    network = chain("A", "B", "C")
    network.request("B", Subscribe("true", "small", config=QueueConfig(message_bytes_max=1024)))
    network.request("B", Subscribe("true", "s"))
    network.request("C", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1, text="y" * 2000), publication(x=2)]))
    received = [numbers(network, broker, queue) for broker, queue in (("B", "small"), ("B", "s"), ("C", "s"))]
    assert received == [[2], [1, 2], [1, 2]]
    [refused] = network.request("B", Publish([publication(x=3, text="y" * 2000)])).entries
    assert isinstance(refused, Refused), "here nobody has accepted it"


def test_two_connections_between_two_brokers_become_one() -> None:
    network = Network()
    network.add("A")
    network.add("B")
    network.join("A", "B")
    network.join("B", "A")
    network.settle()
    network.join("A", "B")
    network.settle()
    sessions = [session for each in network.brokers.values() for session in each.node.machine.sessions.values()]
    assert [session.is_up for session in sessions] == [True, True]
    network.request("B", Subscribe("true", "s"))
    network.request("A", Publish([publication(x=1)]))
    assert numbers(network, "B", "s") == [1]


def test_a_link_that_forwards_nothing_is_found_by_its_probe() -> None:
    network = chain("A", "B")
    network.request("B", Subscribe("true", "s"))
    network.brokers["B"].is_disk_stopped = True
    network.request("A", Publish([publication(x=1)]))
    for _ in range(5):
        network.pass_time(5_000)
        network.settle()
    assert any("forwards nothing" in notice for notice in network.notices)
    network.resume_disk("B")
    network.join("A", "B")
    network.settle()
    assert numbers(network, "B", "s") == [1]


def test_a_partition_of_an_hour_heals() -> None:
    network = chain("A", "B", "C")
    network.request("C", Subscribe("true", "s"))
    network.cut("B", "C")
    network.settle()
    for minute in range(60):
        network.request("A", Publish([publication(x=minute)]))
        network.pass_time(60_000)
        network.settle()
    network.join("C", "B")
    network.settle()
    network.join("A", "B")  # its probes had no trouble, but another connection does no harm
    network.settle()
    assert numbers(network, "C", "s") == list(range(60))
