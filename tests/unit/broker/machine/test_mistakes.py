"""Mistakes in a broker's code: in a query they harm nobody but who asked, in anything else they stop the server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.machine.servers import Bench, bench_with_queue

from lavant.broker.federation.state import FederationState
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, DescribeQueue, Refused, Send, SendEntry, Sent
from lavant.broker.protocol.registry import QUERIES
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.plan import HalfApplied
from lavant.broker.queues.queue import QueueState
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import LimitExceeded

FIELDS = {"queue": "q", "source": "q", "name": "x", "job": 1, "job_type": "x"}


def query_of(kind: Any) -> Any:
    return kind(**{field: FIELDS[field] for field in kind.__struct_fields__ if field in FIELDS})


def fail(*arguments: Any) -> Any:
    raise ZeroDivisionError("a mistake")


@pytest.mark.parametrize("kind", sorted(QUERIES, key=str))
def test_a_mistake_in_a_query_is_answered_told_and_survived(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for machine in (Jobs, Subscriptions, FederationState):
        if kind in machine._ANSWERS:
            monkeypatch.setitem(machine._ANSWERS, kind, fail)
    bench = bench_with_queue()
    bench.commit()
    answer = bench.answer(bench.ask(query_of(kind)))
    assert isinstance(answer, Refused)
    assert (answer.code, kind.__name__ in answer.reason) == ("InternalError", True)
    [mistake] = bench.mistakes
    assert isinstance(mistake.error, ZeroDivisionError)
    assert mistake.error.__traceback__ is not None
    sent = bench.send(b"still there")
    bench.commit()
    assert isinstance(bench.answer(sent), Sent)


def test_a_mistake_in_a_command_leaves_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Jobs._PLANNERS, Send, lambda hub, request: fail)
    bench = bench_with_queue()
    with pytest.raises(ZeroDivisionError):
        bench.send(b"one")


def test_a_mistake_in_what_happens_by_itself_leaves_the_server_also_at_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_with_queue()
    bench.send(b"one", delay_ms=100)
    monkeypatch.setattr(QueueState, "advance", fail)
    bench.now_ms += 1000
    with pytest.raises(ZeroDivisionError):
        bench.ask(DescribeQueue("q"))


def test_a_mistake_in_serving_who_waits_leaves_the_server_also_at_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_with_queue()
    bench.send(b"one", delay_ms=100)
    bench.receive("bob", wait_ms=10_000)
    monkeypatch.setattr(QueueState, "lease", fail)
    bench.now_ms += 1000
    with pytest.raises(ZeroDivisionError):
        bench.ask(DescribeQueue("q"))


@pytest.mark.parametrize("hub", [Queues, Jobs, BrokerState])
def test_what_is_refused_after_it_has_begun_is_no_refusal(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan must not fail; if it does, something may be half changed, and nobody may go on."""

    def refuse(*arguments: Any) -> Any:
        raise LimitExceeded("too late")

    machine = hub()
    machine.handle(CreateQueue("q", QueueConfig()), 0)
    monkeypatch.setattr("lavant.broker.queues.machine.send", refuse)
    with pytest.raises(HalfApplied, match="LimitExceeded: too late") as caught:
        machine.handle(Send("q", [SendEntry(b"one")]), 1)
    assert isinstance(caught.value.__cause__, LimitExceeded)


def test_the_server_does_not_answer_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise LimitExceeded("too late")

    bench: Bench = bench_with_queue()
    monkeypatch.setattr("lavant.broker.queues.machine.send", refuse)
    with pytest.raises(HalfApplied):
        bench.send(b"one")
