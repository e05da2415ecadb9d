"""Schedules of several namespaces, and those of versions without namespaces."""

from __future__ import annotations

import msgspec
import pytest

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.frames import decode_request
from lavant.broker.protocol.jobs import (
    AddSchedule,
    FireSchedule,
    ListSchedules,
    RemoveSchedule,
    SchedulesListed,
    ScheduleState,
)
from lavant.broker.protocol.namespaces import schedule_rule, strip_schedules
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Peek, Peeked
from lavant.core.errors import AccessDenied, UnknownSchedule
from lavant.service.auth.keys import Principal

ACME = Principal(name="k", scopes=frozenset({"admin"}), namespace="acme")


def names(broker: BrokerState, namespace: str) -> list[str]:
    answer = broker.answer(ListSchedules(namespace=namespace))
    assert isinstance(answer, SchedulesListed)
    return [each.name for each in answer.schedules]


def bodies(broker: BrokerState, queue: str) -> list[bytes]:
    answer = broker.answer(Peek(queue))
    assert isinstance(answer, Peeked)
    return [each.body for each in answer.messages]


def test_two_namespaces_may_have_schedules_of_one_name() -> None:
    broker = BrokerState()
    for namespace, queue in (("", "q"), ("acme", "acme/q")):
        broker.handle(CreateQueue(queue, QueueConfig()), 0)
        broker.handle(AddSchedule("s", "", 1000, "", queue, namespace.encode(), namespace), 0)
    assert broker.queues.schedules.due(1000) == [FireSchedule("s", ""), FireSchedule("s", "acme")]
    broker.handle(FireSchedule("s", "acme"), 1000)
    assert (bodies(broker, "q"), bodies(broker, "acme/q")) == ([], [b"acme"])
    broker = BrokerState.restore(list(broker.snapshot()))
    assert broker.queues.schedules.due(1000) == [FireSchedule("s", "")]
    broker.handle(RemoveSchedule("s"), 1000)
    assert (names(broker, ""), names(broker, "acme")) == ([], ["s"])
    with pytest.raises(UnknownSchedule):
        broker.handle(RemoveSchedule("s"), 1000)


def test_schedules_of_versions_without_namespaces_are_in_the_default_one() -> None:
    broker = BrokerState()
    broker.handle(CreateQueue("q", QueueConfig()), 0)
    for record in (["add-schedule", "old", "", 1000, "", "q", b"x"], ["fire-schedule", "old"]):
        broker.handle(decode_request(msgspec.msgpack.encode(record)), 1000)
    assert (names(broker, ""), bodies(broker, "q")) == (["old"], [b"x"])
    broker.handle(decode_request(msgspec.msgpack.encode(["remove-schedule", "old"])), 1000)
    assert names(broker, "") == []


def test_a_key_with_a_namespace_sees_its_own_names_and_submits_no_jobs() -> None:
    added = schedule_rule(ACME, AddSchedule("s", "@daily", queue="q"))
    assert (added.queue, added.namespace) == ("acme/q", "acme")
    with pytest.raises(AccessDenied, match="as a whole"):
        schedule_rule(ACME, AddSchedule("s", "@daily", job_type="report"))
    error = "there is no queue 'acme/q'"
    state = ScheduleState("s", "@daily", 0, "", "acme/q", b"", 0, 1, last_error=error, namespace="acme")
    [seen] = strip_schedules("acme", SchedulesListed([state])).schedules
    assert (seen.queue, seen.namespace, seen.last_error) == ("q", "", "there is no queue 'q'")
