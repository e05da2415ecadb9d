"""Groups of an in-order queue take turns: a message that comes back again and again starves nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.queues.machines import Q, QueueMachine, bodies, machine_with, receipts, snapshot

from lavant.broker.protocol.queues import Delivery, Open, Release
from lavant.broker.queues.compatibility import RULES


def in_order(rules: int = RULES) -> QueueMachine:
    machine = machine_with(order="in-order", visibility_ms=100)
    machine.handle(Open(2, rules), 0)
    return machine


def give_back(machine: QueueMachine, deliveries: list[Delivery]) -> None:
    machine.change(*((receipt, 0) for receipt in receipts(deliveries)))


def let_expire(machine: QueueMachine, deliveries: list[Delivery]) -> None:
    machine.advance(machine.now_ms + 100)


def receive_for_no_time(machine: QueueMachine, deliveries: list[Delivery]) -> None:
    give_back(machine, deliveries)
    machine.receive(visibility_ms=0)


WAYS: list[Callable[[QueueMachine, list[Delivery]], None]] = [give_back, let_expire, receive_for_no_time]


@pytest.mark.parametrize("come_back", WAYS)
def test_a_message_that_comes_back_goes_behind_the_other_groups(come_back: Callable[..., None]) -> None:
    machine = in_order()
    for group in "abc":
        machine.send(group.encode(), group=group)
    seen = []
    for _ in range(6):
        deliveries = machine.receive()
        seen += bodies(deliveries)
        come_back(machine, deliveries)
    assert {b"a", b"b", b"c"} <= set(seen)


def test_two_that_fail_take_turns_and_a_new_message_waits_for_each_once() -> None:
    machine = in_order()
    machine.send(b"a", group="a")
    machine.send(b"b", group="b")
    seen = []
    for n in range(6):
        if n == 3:
            machine.send(b"c", group="c")
        deliveries = machine.receive()
        seen += bodies(deliveries)
        give_back(machine, deliveries)
    assert seen == [b"a", b"b", b"a", b"b", b"a", b"c"]


def test_the_order_within_a_group_stays() -> None:
    machine = in_order()
    machine.send(b"a1", b"a2", b"a3", group="a")
    machine.send(b"b1", group="b")
    give_back(machine, machine.receive(2))
    assert bodies(machine.receive(10)) == [b"b1", b"a1", b"a2", b"a3"]


def test_a_message_that_nobody_saw_keeps_its_place_and_its_count() -> None:
    machine = in_order()
    machine.send(b"a", group="a")
    machine.send(b"b", group="b")
    [delivery] = machine.receive()
    machine.handle(Release(Q, [delivery.receipt]), 1)
    [again] = machine.receive()
    assert (again.body, again.receive_count) == (b"a", 1)
    assert again.receipt.lease > delivery.receipt.lease


def test_a_group_that_did_not_fit_keeps_its_turn() -> None:
    machine = in_order()
    for n in range(17):
        machine.send(bytes([n]) * (1 << 20), group=str(n))
    machine.receive(17)
    machine.advance(100)  # 16 come back, and go behind the one that did not fit
    assert [delivery.body[0] for delivery in machine.receive(17)] == [16, *range(15)]
    assert [delivery.body[0] for delivery in machine.receive(17)] == [15]


def test_by_the_old_rules_the_oldest_message_comes_first_however_often_it_failed() -> None:
    machine = in_order(rules=0)
    machine.send(b"a", group="a")
    machine.send(b"b", group="b")
    for _ in range(3):
        deliveries = machine.receive()
        assert bodies(deliveries) == [b"a"]
        give_back(machine, deliveries)


@given(
    failing=st.sets(st.integers(0, 5)),
    sent=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    restarts=st.sets(st.integers(0, 60)),
    ways=st.lists(st.sampled_from([give_back, let_expire]), min_size=1, max_size=3),
)
def test_every_group_is_served_whatever_the_others_do(
    failing: set[int], sent: list[int], restarts: set[int], ways: list[Callable[..., None]]
) -> None:
    """As many receives as there are messages that can be handled, and one more round over those that can't, will do."""
    machine = in_order()
    for number, group in enumerate(sent):
        machine.send(bytes([number]), group=str(group))
    wanted = {number for number, group in enumerate(sent) if group not in failing}
    rounds = (len(wanted) + 1) * (len(failing) + 1)
    for n in range(rounds):
        if n in restarts:
            fresh = QueueMachine.restore([bytes(chunk) for chunk in machine.snapshot()])
            assert snapshot(fresh) == snapshot(machine)
            assert isinstance(fresh, QueueMachine)
            machine = fresh
        deliveries = machine.receive()
        for delivery in deliveries:
            if int(delivery.group) in failing:
                ways[n % len(ways)](machine, deliveries)
            else:
                machine.acknowledge(delivery.receipt)
                wanted.discard(delivery.body[0])
    assert not wanted
