"""A key that is removed ends whatever is under way for it, in every protocol, before anything else is delivered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.service.front_ends import FrontEnds, Open, credential, denied, key
from tests.unit.service.wiring import FakeClient, in_loop, turn, until

from lavant.broker.protocol import queues as c
from lavant.broker.protocol.frames import FAULT_NUMBER
from lavant.broker.protocol.jobs import LeaseTasks
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.subscriptions import Subscribe

ALL = ("publish", "subscribe", "admin")
OPERATOR, GONE = key("operator", *ALL), key("gone", *ALL)
SIGNER, STAYS = credential("gone", *ALL), credential("stays", *ALL)
CHANGES = {
    "removed": [OPERATOR],
    "less": [OPERATOR, key("gone", "publish")],
    "elsewhere": [OPERATOR, key("gone", *ALL, namespace="other")],
}


async def started(directory: Path) -> FrontEnds:
    front = FrontEnds(directory, [OPERATOR, GONE], [SIGNER, STAYS])
    answer = await front.native("operator", Subscribe("a = 1", "s", config=QueueConfig(visibility_ms=60_000)))
    assert not isinstance(answer, c.Refused)
    return front


async def visible(front: FrontEnds) -> tuple[int, int]:
    """Messages that can be received, and those that are leased."""
    described = await front.native("operator", c.DescribeQueue("s"))
    assert isinstance(described, c.Described)
    return described.figures.visible, described.figures.in_flight


def shut_out(front: FrontEnds) -> None:
    front.write_keys(OPERATOR)
    front.write_credentials(STAYS)
    front.reload()


WAITS: dict[str, Any] = {
    "HTTP long poll": lambda front: front.open_http(
        "gone", "POST", "/subscriptions/s/receive", {"count": 10, "wait_ms": 20_000}
    ),
    "SQS long poll": lambda front: front.open_sqs("gone", "ReceiveMessage", QueueUrl="s", WaitTimeSeconds=20),
    "events": lambda front: front.open_http("gone", "GET", "/subscriptions/s/events"),
    "WebSocket": lambda front: front.open_http("gone", "GET", "/subscriptions/s/stream", kind="websocket"),
}


@pytest.mark.parametrize("way", WAITS)
def test_whoever_waits_gets_nothing_that_came_after_the_key_was_removed(tmp_path: Path, way: str) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        opened: Open = WAITS[way](front)
        await until(lambda: front.service.waiting_total == 1)
        shut_out(front)
        assert front.service.waiting_total == 0, "at once, not at the next turn of the loop"
        sender = front.client("operator")
        sender.ask((1, c.Send("s", [c.SendEntry(b"late")])))
        async with asyncio.timeout(20):
            await opened.task
        assert b"late" not in opened.content
        assert await visible(front) == (1, 0)
        peeked = await front.native("operator", c.Peek("s"))
        assert isinstance(peeked, c.Peeked)
        assert [each.receive_count for each in peeked.messages] == [0], "it was never leased"
        if way in ("HTTP long poll", "SQS long poll"):
            assert denied(await opened.response())
        if way == "WebSocket":
            assert opened.sent[-1]["type"] == "websocket.close"
            assert opened.sent[-1]["code"] == 1008

    work()


@pytest.mark.parametrize("way", WAITS)
def test_what_was_leased_and_has_not_left_goes_back(tmp_path: Path, way: str) -> None:
    """The disk is slow: a message is on its way to the client when its key is removed."""

    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        opened: Open = WAITS[way](front)
        await until(lambda: front.service.waiting_total == 1)
        front.store.is_held = True
        sender = front.client("operator")
        sender.ask((1, c.Send("s", [c.SendEntry(b"late")])))
        await turn()
        assert front.service.waiting_total == 0, "it is leased"
        shut_out(front)
        front.store.is_held = False
        front.store.commit()
        async with asyncio.timeout(20):
            await opened.task
        assert b"late" not in opened.content
        await turn()
        assert await visible(front) == (1, 0)

    work()


@pytest.mark.parametrize("way", WAITS)
def test_what_was_answered_in_the_same_turn_does_not_leave_either(tmp_path: Path, way: str) -> None:
    """The answer is there, and the task that would send it has not run yet."""

    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        opened: Open = WAITS[way](front)
        await until(lambda: front.service.waiting_total == 1)
        front.store.is_held = True
        sender = front.client("operator")
        sender.ask((1, c.Send("s", [c.SendEntry(b"late")])))
        await turn()
        front.store.is_held = False
        front.store.commit()
        shut_out(front)
        async with asyncio.timeout(20):
            await opened.task
        assert b"late" not in opened.content
        await turn()
        assert await visible(front) == (1, 0)

    work()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("request_", [c.Receive("s", 1, None, 20_000), LeaseTasks("T", "w", wait_ms=20_000)])
def test_native_connections_end_with_what_they_wait_for(tmp_path: Path, change: str, request_: Any) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        if isinstance(request_, LeaseTasks):
            toml = {"topics": ["T"], "jobs": {"j": {"start": "t", "tasks": {"t": {"topic": "T"}}}}}
            assert (await front.http("operator", "PUT", "/workflows", toml)).status == 200
        client = front.client("gone")
        client.ask((1, request_))
        await until(lambda: front.service.waiting_total == 1)
        front.write_keys(*CHANGES[change])
        front.reload()
        assert front.service.waiting_total == 0
        assert client.transport.is_closed
        assert denied(client.answers()[FAULT_NUMBER])
        await front.native("operator", c.Send("s", [c.SendEntry(b"late")]))
        assert client.answers() == {}

    work()


def test_answers_that_have_not_left_stay(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        await front.native("operator", c.Send("s", [c.SendEntry(b"late")]))
        other: FakeClient = front.client("operator")  # so that answers wait for the end of the turn
        client = front.client("gone")
        client.answers()
        client.ask((1, c.Peek("s")))
        shut_out(front)
        await turn()
        assert b"late" not in b"".join(client.transport.writes)
        assert other.transport.is_closed is False

    work()


def test_a_window_that_is_full_does_not_keep_a_stream_open(tmp_path: Path) -> None:
    """Such a stream waits for acknowledgements, not for messages."""

    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        await front.native("operator", c.Send("s", [c.SendEntry(b"1"), c.SendEntry(b"2")]))
        streams = [
            front.open_http("gone", "GET", "/subscriptions/s/stream?prefetch=1", kind="websocket"),
            front.open_http("gone", "GET", "/subscriptions/s/events?prefetch=1"),
        ]
        await until(lambda: all(b"1" in each.content or b"2" in each.content for each in streams))
        shut_out(front)
        streams[0].incoming.put_nowait({"type": "websocket.receive", "text": '{"ack": [1, 2]}'})
        async with asyncio.timeout(20):
            await asyncio.gather(*(each.task for each in streams))
        assert await visible(front) == (2, 0), "a revoked key acknowledges nothing either"

    work()


def test_a_stream_of_its_own_leaves_nothing_behind(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        opened = front.open_http("gone", "GET", "/events?filter=a%20=%201")
        await until(lambda: front.service.waiting_total == 1)
        shut_out(front)
        async with asyncio.timeout(20):
            await opened.task
        listed = await front.native("operator", c.ListQueues())
        assert listed == c.Listed(["s"])

    work()


def test_those_whose_keys_are_the_same_go_on(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        polls = [
            front.open_http("operator", "POST", "/subscriptions/s/receive", {"count": 1, "wait_ms": 20_000}),
            front.open_sqs("stays", "ReceiveMessage", QueueUrl="s", WaitTimeSeconds=20),
        ]
        await until(lambda: front.service.waiting_total == 2)
        shut_out(front)
        assert front.service.waiting_total == 2
        await front.native("operator", c.Send("s", [c.SendEntry(b"x"), c.SendEntry(b"x")]))
        assert [(await each.response()).status for each in polls] == [200, 200]

    work()


def test_a_request_whose_body_comes_after_the_removal_is_denied(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        headers = {"authorization": "Bearer gone", "content-type": "application/json"}
        opened = front.open("POST", "/publish", headers)
        opened.incoming.get_nowait()
        await turn()
        shut_out(front)
        opened.incoming.put_nowait({"type": "http.request", "body": b'{"a": 1}', "more_body": False})
        assert denied(await opened.response())
        assert await visible(front) == (0, 0)

    work()


def test_watchers_are_forgotten_when_a_receive_is_over(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        front = await started(tmp_path)
        principal = front.keys.principal(b"gone")
        for _ in range(5):
            await front.http("gone", "POST", "/subscriptions/s/receive", {"count": 1, "wait_ms": 0})
        assert principal.revocation._watchers == {}

    work()
