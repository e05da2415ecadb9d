"""How far logs of publications count, and how far they are delivered: together with what they stand for, and only
forward."""

from __future__ import annotations

import numpy as np
import pytest

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.queues import FanOut
from lavant.broker.protocol.subscriptions import Deliver, Subscribe
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.log_offsets import FORGOTTEN, LogOffset
from lavant.core.errors import InvalidValue, QueueFull

NOTHING = FanOut([], b"", b"", b"")


def _integers(*values: int) -> bytes:
    return np.array(values, INTEGERS).tobytes()


def test_offsets_are_part_of_the_state_and_of_its_snapshot() -> None:
    broker = BrokerState()
    broker.handle(Deliver(NOTHING, accepted={"plain": 7, "plain-acme": 2}), 1)
    assert broker.changed
    broker.handle(Deliver(NOTHING, delivered={"plain": 5}), 2)
    assert broker.changed
    restored = BrokerState.restore(broker.snapshot()).subscriptions.log_offsets
    assert restored.all() == [("plain", LogOffset(7, 5)), ("plain-acme", LogOffset(2, 0))]
    assert restored.lag == 4
    assert restored["encrypted"] == LogOffset(0, 0)


@pytest.mark.parametrize(
    "deliver",
    [
        Deliver(NOTHING, accepted={"plain": 6}),
        Deliver(NOTHING, delivered={"plain": 4}),
        Deliver(NOTHING, delivered={"plain": 8}),
        Deliver(NOTHING, delivered={"other": 1}),
    ],
)
def test_offsets_never_go_back_and_nothing_is_delivered_that_was_not_accepted(deliver: Deliver) -> None:
    broker = BrokerState()
    broker.handle(Deliver(NOTHING, accepted={"plain": 7}, delivered={"plain": 5}), 1)
    with pytest.raises(InvalidValue, match="cannot become"):
        broker.handle(deliver, 2)
    assert broker.subscriptions.log_offsets["plain"] == LogOffset(7, 5)


def test_a_delivery_that_fails_moves_no_offset() -> None:
    broker = BrokerState()
    config = Subscribe("a = 1").config
    broker.handle(Subscribe("a = 1", "s", config=type(config)(depth_max=1)), 1)
    serial = broker.queues.serial("s")
    spread = FanOut([b"x", b"y"], _integers(serial), _integers(2), _integers(0, 1))
    broker.handle(Deliver(NOTHING, accepted={"plain": 2}), 2)
    with pytest.raises(QueueFull):
        broker.handle(Deliver(spread, delivered={"plain": 2}), 3)
    assert broker.subscriptions.log_offsets["plain"].delivered == 0


def test_a_lane_that_owes_nothing_can_be_forgotten_and_no_offset_comes_twice() -> None:
    broker = BrokerState()
    broker.handle(Deliver(NOTHING, accepted={"plain": 7, "plain-acme": 2}, delivered={"plain": 7}), 1)
    with pytest.raises(
        InvalidValue, match="2 publications of log 'plain-acme' are not delivered yet: it cannot be forgotten"
    ):
        broker.handle(Deliver(NOTHING, forgotten=["plain-acme"]), 2)
    with pytest.raises(InvalidValue, match="1 publications of log 'plain' are not delivered"):
        broker.handle(Deliver(NOTHING, accepted={"plain": 8}, forgotten=["plain"]), 2)
    memory = broker.queues.memory_held
    broker.handle(Deliver(NOTHING, forgotten=["plain", "never heard of"]), 3)
    assert broker.changed
    assert broker.queues.memory_held < memory
    for each in (broker, BrokerState.restore(list(broker.snapshot()))):
        lanes = each.subscriptions.log_offsets
        assert [name for name, _ in lanes.all()] == ["plain-acme", FORGOTTEN]
        assert lanes["plain"] == lanes["new"] == LogOffset(7, 7)
        with pytest.raises(InvalidValue):
            each.handle(Deliver(NOTHING, accepted={"new": 6}), 4)
        each.handle(Deliver(NOTHING, accepted={"new": 8}), 4)
        assert lanes.lag == 3
