"""The service: requests of this process, time, failures, and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from tests.unit.service.wiring import FakeClient, Wiring, in_loop, turn, until

from lavant.broker.machine.effects import Effect
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    CreateQueue,
    Done,
    Listed,
    ListQueues,
    PurgeQueue,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
)
from lavant.broker.workflows.machine import Jobs
from lavant.client.connection.errors import error_of
from lavant.core.errors import InternalError
from lavant.service.aws.sqs.errors import refusal as sqs_refusal
from lavant.service.http.errors import status_of
from lavant.service.observability.telemetry.events import SENT_FIELDS, TelemetryEvents
from lavant.service.runtime.limits import LIMITS


@in_loop
async def test_a_call_is_answered_when_the_disk_has_it() -> None:
    wiring = Wiring()
    await wiring.create()
    asking = asyncio.ensure_future(wiring.service.execute(Send("q", [SendEntry(b"one")])))
    await turn()
    assert not asking.done()
    assert wiring.store.is_hurried
    wiring.store.commit()
    assert isinstance(await asking, Sent)


@in_loop
async def test_a_refusal_is_an_answer() -> None:
    wiring = Wiring()
    await wiring.create()
    answer = await wiring.service.execute(Receive("none"))
    assert isinstance(answer, Refused)


@in_loop
async def test_several_may_be_told_of_what_is_carried_out() -> None:
    wiring = Wiring()
    telemetry = TelemetryEvents(wiring.queues, later=lambda resume: None)
    told: list[str] = []
    wiring.service.report_to(
        telemetry,
        {Send: lambda command, answer: told.append(command.queue)},
        {CreateQueue: lambda command, answer: told.append("created")},
    )
    await wiring.create()
    wiring.service.ask(Send("q", [SendEntry(b"one")]))
    assert told == ["created", "q"]
    assert len(telemetry.take().sent) == SENT_FIELDS


@in_loop
async def test_a_receive_that_is_cancelled_gets_nothing() -> None:
    wiring = Wiring()
    await wiring.create()
    cancelled = asyncio.ensure_future(wiring.service.execute(Receive("q", wait_ms=20_000)))
    patient = asyncio.ensure_future(wiring.service.execute(Receive("q", wait_ms=20_000)))
    await turn()
    cancelled.cancel()
    await turn()
    assert wiring.service.waiting_total == 1
    sending = asyncio.ensure_future(wiring.service.execute(Send("q", [SendEntry(b"one")])))
    await turn()
    wiring.store.commit()
    await sending
    received = await patient
    assert isinstance(received, Received)
    assert [delivery.body for delivery in received.deliveries] == [b"one"]


@in_loop
async def test_a_receive_waits_and_then_hears_that_nothing_came() -> None:
    wiring = Wiring()
    await wiring.create()
    assert await wiring.service.execute(Receive("q", wait_ms=20)) == Received([])


@in_loop
async def test_a_delay_that_is_over_wakes_who_waits() -> None:
    wiring = Wiring()
    await wiring.create()
    sending = asyncio.ensure_future(wiring.service.execute(Send("q", [SendEntry(b"one", delay_ms=30)])))
    await turn()
    wiring.store.commit()
    await sending
    received = await wiring.service.execute(Receive("q", wait_ms=20_000))
    assert isinstance(received, Received)
    assert len(received.deliveries) == 1


@in_loop
async def test_a_message_that_appears_before_the_timer_moves_it_forward() -> None:
    wiring = Wiring()
    await wiring.create()
    waiting = asyncio.ensure_future(wiring.service.execute(Receive("q", wait_ms=20_000)))
    await turn()
    sending = asyncio.ensure_future(wiring.service.execute(Send("q", [SendEntry(b"soon", delay_ms=30)])))
    await turn()
    wiring.store.commit()
    await sending
    received = await asyncio.wait_for(waiting, 10)
    assert isinstance(received, Received)
    assert [delivery.body for delivery in received.deliveries] == [b"soon"]


@in_loop
async def test_a_nearer_deadline_moves_the_timer_forward() -> None:
    wiring = Wiring()
    await wiring.create()
    far = asyncio.ensure_future(wiring.service.execute(Receive("q", wait_ms=20_000)))
    await turn()
    assert await wiring.service.execute(Receive("q", wait_ms=10)) == Received([])
    await turn()
    assert not far.done()
    far.cancel()


@in_loop
async def test_a_mistake_in_the_queues_stops_the_service_and_not_only_a_connection() -> None:
    wiring = Wiring()
    await wiring.create()

    def fail(*_: object) -> list[Effect]:
        raise ZeroDivisionError("a mistake")

    wiring.server.request = fail  # type: ignore[method-assign, assignment]
    client = FakeClient(wiring.service).greet()
    client.ask((1, PurgeQueue("q")))
    await turn()
    assert [type(failure) for failure in wiring.failures] == [ZeroDivisionError]
    assert wiring.service.has_failed
    assert set(client.answers()) == {0}


@in_loop
async def test_a_full_disk_is_heard_of_and_forgotten_again() -> None:
    wiring = Wiring()
    await wiring.create()
    wiring.store.is_full = True
    await wiring.service.execute(Receive("q", wait_ms=0))
    await turn()
    answer = await wiring.service.execute(Send("q", [SendEntry(b"one")]))
    assert isinstance(answer, Refused)
    assert answer.code == "StorageFull"
    wiring.store.is_full = False
    await wiring.service.execute(Receive("q", wait_ms=0))
    await turn()
    sending = asyncio.ensure_future(wiring.service.execute(Send("q", [SendEntry(b"one")])))
    await turn()
    wiring.store.commit()
    assert isinstance(await sending, Sent)


@in_loop
async def test_at_the_end_everybody_has_an_answer() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Receive("q", wait_ms=20_000)), (2, PurgeQueue("q")))
    waiting = asyncio.ensure_future(wiring.service.execute(Receive("q", wait_ms=20_000)))
    await turn()
    wiring.service.release()
    await turn()
    assert waiting.done()
    assert waiting.result() == Received([])
    await wiring.service.stop()
    assert client.answers() == {0: Done(), 1: Received([]), 2: Done()}
    assert client.transport.is_closed
    assert wiring.store.is_closed


@in_loop
async def test_a_client_that_does_not_take_its_answers_holds_up_the_end_for_a_while_only() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, stop_s_max=0.02))
    stuck, slow = FakeClient(wiring.service).greet(), FakeClient(wiring.service).greet()
    stuck.transport.is_stuck = slow.transport.is_stuck = True
    asyncio.get_running_loop().call_later(0.005, slow.transport.on_close)
    await wiring.service.stop()
    assert (slow.transport.is_aborted, slow.protocol.ended.is_set()) == (False, True)
    await until(lambda: stuck.transport.is_aborted)


@in_loop
async def test_one_connection_that_fails_does_not_keep_answers_from_others() -> None:
    wiring = Wiring()
    await wiring.create()
    broken, fine = FakeClient(wiring.service).greet(), FakeClient(wiring.service).greet()

    def fail(data: object) -> None:
        raise RuntimeError("the transport is broken")

    broken.transport.write = fail  # type: ignore[method-assign]
    for client in (broken, fine):
        client.ask((1, Receive("q", wait_ms=0)))
    await turn()
    assert 1 in fine.answers()
    assert broken.transport.is_aborted


@in_loop
async def test_positions_that_differ_are_noticed() -> None:
    wiring = Wiring()
    wiring.store.position = 7
    client = FakeClient(wiring.service).greet()
    client.ask((1, CreateQueue("q", QueueConfig())))
    await turn()
    assert [type(failure) for failure in wiring.failures] == [AssertionError]


@in_loop
async def test_a_mistake_in_a_query_is_logged_with_its_trace_and_the_server_goes_on() -> None:
    wiring = Wiring()
    await wiring.create()

    def fail(hub: object, request: object) -> None:
        raise ZeroDivisionError("a mistake")

    with pytest.MonkeyPatch.context() as patch, logged("lavant.service.runtime.broker_runtime") as records:
        patch.setitem(Jobs._ANSWERS, ListQueues, fail)
        answer = await wiring.service.execute(ListQueues())
    assert isinstance(answer, Refused)
    assert answer.code == "InternalError"
    assert status_of(answer.code) == 500
    assert sqs_refusal(answer).kind == "InternalFailure"
    assert type(error_of(answer)) is InternalError
    [record] = records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert "ListQueues" in record.getMessage()
    assert not wiring.failures
    assert await wiring.service.execute(ListQueues()) == Listed(["q"])


@contextmanager
def logged(name: str) -> Iterator[list[logging.LogRecord]]:
    records: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        records.append(record)
        return False

    logging.getLogger(name).addFilter(keep)
    try:
        yield records
    finally:
        logging.getLogger(name).removeFilter(keep)
