"""Slices that move between hosts while publications flow: hosts, manager and migrations as machines."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.slices.net import MANAGER, Net

from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.slices import SINK, BatchId, Publications, SliceLayout, SlicePublish, SliceSubscribe, wire
from lavant.broker.slices.migration.host import SliceHost
from lavant.broker.slices.migration.hosted_slice import Role
from lavant.broker.slices.migration.manager import Join, Leave, ManagerConfig, MigrationManager, Relocate
from lavant.broker.slices.migration.messages import (
    Create,
    Data,
    DataReceived,
    LinkTimerDue,
    Route,
    Routed,
    Settle,
    SliceCreated,
    SliceState,
    Stop,
    Transmit,
)
from lavant.broker.slices.migration.migration import MigrationStep
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId
from lavant.core.publications.batch import PublicationBatch

LAYOUT = SliceLayout(access=1, match=2, exit=1, schemes=("plain",))
A, B = HostId("host-0"), HostId("host-1")


def subscribe(wanted: dict[int, int]) -> SliceSubscribe:
    filters = encode_filters([f"x = {number}" for number in wanted.values()])
    return SliceSubscribe("plain", np.array(list(wanted), np.uint32), filters)


def publish(*numbers: int) -> SlicePublish:
    return SlicePublish("plain", PublicationBatch.from_dicts([{"x": number} for number in numbers]))


def found(net: Net) -> dict[int, list[list[int]]]:
    result: dict[int, list[list[int]]] = {}
    for notification in net.notifications:
        number = notification.publications.id.number
        assert number not in result, f"batch {number} was notified twice"
        matches = notification.matches.sorted()
        result[number] = [matches.of(row).tolist() for row in range(len(notification.publications.batch))]
    return result


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.2]))
def test_publications_reach_whom_they_must_while_slices_move_and_machines_start_from_snapshots(
    seed: int, loss: float
) -> None:
    net, random = Net(LAYOUT, seed, loss=loss, clones=0.1), Random(seed)
    wanted: dict[int, int] = {}
    expected: dict[int, list[list[int]]] = {}
    for _ in range(25):
        if random.random() < 0.4:
            change = {random.randrange(6): random.randrange(3) for _ in range(2)}
            wanted.update(change)
            net.offer(subscribe(change))
        else:
            numbers = [random.randrange(3) for _ in range(2)]
            expected[len(expected) + 1] = [sorted(i for i, n in wanted.items() if n == number) for number in numbers]
            net.offer(publish(*numbers))
        if random.random() < 0.4:
            net.move(random.choice(LAYOUT.slices), random.choice(net.names))
        for _ in range(random.randrange(30)):
            net.step()
    net.settle()
    assert found(net) == expected
    manager = net.machines[MANAGER]
    there = {slice: name for name in net.names for slice in net.machines[name].slices}
    assert there == manager.placement
    assert all(hosted.role is Role.ACTIVE for name in net.names for hosted in net.machines[name].slices.values())


def test_a_migration_takes_the_five_steps_of_the_paper_in_their_order() -> None:
    net = Net(LAYOUT, 1)
    said: list[str] = []
    tell = net.tell

    def listen(name: HostId, stimulus: Any) -> None:
        message = getattr(stimulus, "message", None)
        if isinstance(message, Create | Stop | Settle | Route) or type(message).__name__ == "SliceState":
            said.append(type(message).__name__)
        tell(name, stimulus)

    net.tell = listen  # type: ignore[method-assign]
    net.move(SliceId("M:0"), A if net.placed[SliceId("M:0")] == B else B)
    net.settle()
    assert list(dict.fromkeys(said)) == ["Create", "Route", "Stop", "SliceState", "Settle"]
    (relocated,) = net.relocated
    assert (relocated.is_moved, relocated.size_bytes > 0) == (True, True)


def test_a_migration_to_a_host_that_does_not_answer_is_abandoned_and_the_slice_goes_on() -> None:
    net = Net(LAYOUT, 2)
    gone = HostId("host-9")
    net.machines[gone] = _Silent()
    net.offer(subscribe({1: 1}))
    net.tell(MANAGER, Join(gone))
    net.move(SliceId("M:0"), gone)
    for _ in range(1_000):
        net.step()
    # It is not over before that host has heard of it, but decided.
    assert net.machines[MANAGER].migrations[SliceId("M:0")].step is MigrationStep.ABANDONING
    net.offer(publish(1))
    for _ in range(200):
        net.step()
    assert found(net) == {1: [[1]]}


class _Silent:
    def handle(self, stimulus: Any, now_ms: int) -> list[Any]:
        return []

    def wakeup_ms(self) -> None:
        return None


def creates(effects: list[Any]) -> list[str]:
    return [e.message.slice for e in effects if isinstance(e, Transmit) and isinstance(e.message, Create)]


def test_a_host_gives_away_one_slice_at_a_time() -> None:
    placement = {SliceId("M:0"): A, SliceId("M:1"): A, SliceId("AP:0"): B}
    manager = MigrationManager(placement, config=ManagerConfig(at_once_max=4))
    assert creates(manager.handle(Relocate(SliceId("M:0"), B), 0)) == ["M:0"]
    assert creates(manager.handle(Relocate(SliceId("M:1"), B), 0)) == []
    assert creates(manager.handle(Relocate(SliceId("AP:0"), A), 0)) == ["AP:0"]
    assert [move.slice for move in manager.waiting] == ["M:1"]


def test_a_slice_that_is_where_it_should_be_does_not_move() -> None:
    manager = MigrationManager({SliceId("M:0"): A})
    assert manager.handle(Relocate(SliceId("M:0"), A), 0) == []
    assert manager.is_idle


def test_a_host_with_slices_cannot_leave_and_one_without_is_not_waited_for() -> None:
    manager = MigrationManager({SliceId("M:0"): A})
    with pytest.raises(InvalidValue, match="it has slice M:0 or is to get it; move it first"):
        manager.handle(Leave(A), 0)
    told = manager.handle(Join(B), 0)
    assert [(e.to, e.message) for e in told if isinstance(e, Transmit)] == [(B, Route(0, SliceId("M:0"), (A,)))]
    assert manager.wakeup_ms() is not None
    manager.handle(Leave(B), 0)
    assert manager.wakeup_ms() is None


def test_a_move_of_an_unknown_slice_or_to_an_unknown_host_is_refused() -> None:
    manager = MigrationManager({SliceId("M:0"): A})
    with pytest.raises(InvalidValue, match="no slice 'M:7'; there are M:0"):
        manager.handle(Relocate(SliceId("M:7"), A), 0)
    with pytest.raises(InvalidValue, match="'host-1', which has not joined"):
        manager.handle(Relocate(SliceId("M:0"), B), 0)
    assert manager.is_idle


def test_of_moves_that_wait_together_each_host_begins_one() -> None:
    manager = MigrationManager(
        {SliceId("M:0"): A, SliceId("M:1"): A, SliceId("AP:0"): B}, config=ManagerConfig(at_once_max=4)
    )
    manager.waiting.extend([Relocate(SliceId("M:0"), B), Relocate(SliceId("M:1"), B), Relocate(SliceId("AP:0"), A)])
    assert creates(manager.handle(LinkTimerDue(), 0)) == ["M:0", "AP:0"]


def test_the_old_slice_processes_what_went_to_it_alone_before_it_stops() -> None:
    host = SliceHost(A, LAYOUT, MANAGER, {**dict.fromkeys(LAYOUT.slices, A), SINK: B})
    match = SliceId("M:0")
    stop = Stop(1, match, B, {SliceId("AP:0"): 2})
    assert host.handle(DataReceived(MANAGER, stop), 0) == []
    contents = [wire.encode(Publications(BatchId(0, number), "plain", publish(1).batch)) for number in (1, 2)]
    for number, content in enumerate(contents, start=1):
        assert host.slices[match].role is Role.STOPPING
        effects = host.handle(DataReceived(A, Data(SliceId("AP:0"), match, number, content)), 0)
    assert host.slices[match].role is Role.STOPPED
    states = [e for e in effects if isinstance(e, Transmit) and isinstance(e.message, SliceState)]
    assert [state.to for state in states] == [B]
    # The state was lost, and is asked for again.
    again = host.handle(DataReceived(MANAGER, stop), 0)
    assert [e.to for e in again if isinstance(e, Transmit)] == [MANAGER, B]


def test_the_manager_says_up_to_where_the_old_slice_has_to_go() -> None:
    manager = MigrationManager({SliceId("M:0"): A, SliceId("AP:0"): B})
    manager.handle(Relocate(SliceId("M:0"), B), 0)
    manager.handle(DataReceived(B, SliceCreated(1, SliceId("M:0"))), 0)
    manager.handle(DataReceived(B, Routed(2, SliceId("M:0"), {SliceId("AP:0"): 7})), 0)
    effects = manager.handle(DataReceived(A, Routed(2, SliceId("M:0"), {SliceId("AP:0"): 5})), 0)
    stops = [e.message for e in effects if isinstance(e, Transmit) and isinstance(e.message, Stop)]
    assert [(stop.destination, stop.after) for stop in stops] == [(B, {"AP:0": 7})]


def test_after_a_restart_everything_is_said_again_at_once_whatever_the_clock_shows() -> None:
    manager = MigrationManager({SliceId("M:0"): A, SliceId("AP:0"): B})
    manager.handle(Relocate(SliceId("M:0"), B), 1_000_000)
    manager.restart()
    assert manager.wakeup_ms() == 0
    assert creates(manager.handle(LinkTimerDue(), 5)) == ["M:0"]
    assert manager.migrations[SliceId("M:0")].step is MigrationStep.CREATING
