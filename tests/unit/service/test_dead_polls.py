"""Consumers that hang up at any moment, in every protocol: what they did not get is there for others, at once.

A poll, a message and the end of the poll's connection come in every order, with every number of turns of the loop
between them, while the disk is quick or slow. Afterwards the message was handed over, or it is visible and was never
received: nothing is in flight to somebody who is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.front_ends import FrontEnds, Open, credential, key
from tests.unit.service.wiring import FakeClient, turn

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.jobs import DefineJobs, LeaseTasks, SubmitJob, TasksLeased
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Receive, Received, Send, SendEntry
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.broker.workflows.definitions.definition import queue_of
from lavant.broker.workflows.definitions.toml_file import convert_workflows
from lavant.service.observability.metrics import figures_of

SCOPES = ("publish", "subscribe", "admin")
BODY = b'{"kind":"found"}'
TURNS = range(7)
ORDERS = ["late", "early", "lost first", "there before", "committed", "lost and committed"]


class Poll:
    """A consumer that waits; `lose` ends its connection."""

    def __init__(self, front: FrontEnds, name: str) -> None:
        self.front = front
        self.name = name

    def lose(self) -> None:
        raise NotImplementedError

    def got(self) -> bool:
        """Whether the message reached it."""
        raise NotImplementedError


class Native(Poll):
    def __init__(self, front: FrontEnds, name: str) -> None:
        super().__init__(front, name)
        self._client: FakeClient = front.client("all")
        self._client.ask((1, self.request()))
        self._answers: dict[int, Any] = {}

    def request(self) -> Request:
        return Receive(self.name, wait_ms=20_000)

    def lose(self) -> None:
        self.got()
        self._client.protocol.connection_lost(None)

    def got(self) -> bool:
        self._answers |= self._client.answers()
        answer = self._answers.get(1)
        return bool(
            (isinstance(answer, Received) and answer.deliveries) or (isinstance(answer, TasksLeased) and answer.tasks)
        )


class Worker(Native):
    def request(self) -> Request:
        return LeaseTasks(self.name, "worker", wait_ms=20_000)


class Asgi(Poll):
    kind = "http"

    def __init__(self, front: FrontEnds, name: str) -> None:
        super().__init__(front, name)
        self._open = self.start()

    def start(self) -> Open:
        raise NotImplementedError

    def lose(self) -> None:
        self._open.lose(self.kind)

    def got(self) -> bool:
        return b"found" in self._open.content


class Sqs(Asgi):
    def start(self) -> Open:
        return self.front.open_sqs("all", "ReceiveMessage", QueueUrl=self.name, WaitTimeSeconds=20)


class HttpReceive(Asgi):
    def start(self) -> Open:
        return self.front.open_http("all", "POST", f"/subscriptions/{self.name}/receive", {"wait_ms": 20_000})


class Events(Asgi):
    def start(self) -> Open:
        return self.front.open_http("all", "GET", f"/subscriptions/{self.name}/events")


class WebSocket(Asgi):
    kind = "websocket"

    def start(self) -> Open:
        return self.front.open_http("all", "GET", f"/subscriptions/{self.name}/stream", kind="websocket")


FRONTS: list[type[Poll]] = [Native, Worker, Sqs, HttpReceive, Events, WebSocket]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def settled(front: FrontEnds) -> None:
    front.store.is_held = False
    for _ in range(6):
        front.store.commit()
        await turn()


async def prepare(front: FrontEnds, start: type[Poll], name: str) -> None:
    """A topic with a type of jobs of that name, or a queue with a subscription."""
    if start is Worker:
        tables = {"topics": [name], "jobs": {name: {"start": "t", "tasks": {"t": {"topic": name}}}}}
        await front.native("all", DefineJobs(convert_workflows(tables)))
    else:
        await front.native("all", CreateQueue(name, QueueConfig(visibility_ms=3_600_000)))
        await front.native("all", Subscribe("kind = 'x'", name, queue=name))


async def run(front: FrontEnds, start: type[Poll], name: str, order: str, before: int, between: int) -> None:

    def send() -> None:
        front.service.ask(SubmitJob(name) if start is Worker else Send(name, [SendEntry(BODY)]))

    if order == "there before":
        send()
        front.store.commit()
        await turns(before)
    poll = start(front, name)
    if order == "late":  # the poll is waiting already
        await turns(40)

    def commit() -> None:
        front.store.commit()

    steps: dict[str, list[Callable[[], None]]] = {
        "late": [send, poll.lose],
        "early": [send, poll.lose],
        "lost first": [poll.lose, send],
        "there before": [poll.lose],
        "committed": [send, commit, poll.lose],
        "lost and committed": [send, poll.lose, commit],
    }
    await turns(between if order == "there before" else before)
    for step in steps[order]:
        step()
        await turns(between)
    await settled(front)
    assert front.wiring.failures == []
    queue = queue_of(name) if start is Worker else name
    figures = figures_of(front.wiring.queues, queue)
    if poll.got():
        assert figures.in_flight + figures.visible == 1
        return
    assert (figures.visible, figures.in_flight) == (1, 0), "it is not there for others"
    if start is Worker:
        leased = await front.native("all", LeaseTasks(name, "other", wait_ms=0))
        assert isinstance(leased, TasksLeased)
        assert [task.attempt for task in leased.tasks] == [1]
    else:
        received = await front.native("all", Receive(name, wait_ms=0))
        assert isinstance(received, Received)
        assert [each.receive_count for each in received.deliveries] == [1], "what nobody got counts as received"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("start", FRONTS, ids=lambda start: start.__name__)
def test_nothing_is_left_with_somebody_who_is_gone(tmp_path: Path, start: type[Poll], order: str) -> None:
    async def work() -> None:
        front = FrontEnds(tmp_path, [key("all", *SCOPES)], [credential("all", *SCOPES)])
        front.client("all")  # a second connection, so that the answers of a turn are collected
        moments = product((True, False), TURNS if order != "late" else (0,), TURNS)
        for number, (is_held, before, between) in enumerate(moments):
            await prepare(front, start, f"n{number}")
            front.store.is_held = is_held
            try:
                await run(front, start, f"n{number}", order, before, between)
            except AssertionError as error:
                raise AssertionError(f"held: {is_held}, {before} turns, then {between}: {error}") from error

    asyncio.run(work())
