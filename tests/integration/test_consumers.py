"""Consumers of plain queues against a real server: loops, handlers, bodies, and dead letters that say why."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.serving import Served

from lavant import AsyncClient, Client, QueueConfig, QueueMessage, connect, connect_async
from lavant.core.errors import InvalidValue, UnknownQueue

WAIT_S = 20.0


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(None) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with connect(served.url) as connection:
        yield connection
        for name in list(connection.queues()):
            connection.queue(name).delete()


@dataclasses.dataclass
class Order:
    item: str
    count: int


def left(client: Client, queue: str) -> int:
    figures = client.queue(queue).describe().figures
    return figures.visible + figures.in_flight + figures.delayed


def test_a_loop_reads_text_and_json_and_acknowledges(client: Client) -> None:
    orders = client.create_queue("orders")
    orders.send("größer")
    orders.send({"item": "tea", "count": 2})
    orders.send_many(["one", b"two", [3]])
    with orders.consume(prefetch=2) as consumer:
        text, order, *rest = consumer.messages(count=5, timeout_s=WAIT_S)
    assert text.text() == "größer"
    assert order.json(Order) == Order("tea", 2)
    assert [each.body for each in rest] == [b"one", b"two", b"[3]"]
    assert left(client, "orders") == 0


def test_consumers_share_a_connection_and_one_that_is_closed_leaves_nothing_behind(served: Served) -> None:
    """Twenty consumers wait; ten are closed; what comes then is received at once by another client, the first time."""
    with connect(served.url) as client, connect(served.url) as other:
        before = served.fresh_metric("lavant_open_connections")
        queues = [client.create_queue(f"shared-{number}") for number in range(20)]
        consumers = [queue.consume() for queue in queues]
        for queue, consumer in zip(queues, consumers, strict=True):
            queue.send(queue.name)
            assert next(consumer.messages(count=1, timeout_s=WAIT_S)).text() == queue.name
        assert served.fresh_metric("lavant_open_connections") == before + 1
        for consumer in consumers[:10]:
            consumer.close()
        for queue in queues:
            queue.send("again")
        for queue in queues[:10]:
            [message] = other.queue(queue.name).receive(wait_s=WAIT_S)
            assert message.receive_count == 1
        for consumer in consumers[10:]:
            assert next(consumer.messages(count=1, timeout_s=WAIT_S)).text() == "again"
    with connect(served.url) as client:
        for queue in queues:
            client.queue(queue.name).delete()


def test_a_message_whose_block_raises_comes_again(client: Client) -> None:
    orders = client.create_queue("orders")
    orders.send("tea")

    def fail() -> None:
        with orders.consume() as consumer:
            for _ in consumer:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    [again] = orders.consume().messages(count=1, timeout_s=WAIT_S)
    assert (again.text(), again.attempt) == ("tea", 2)


def test_handlers_share_the_work_and_every_message_is_handled_once(client: Client) -> None:
    orders = client.create_queue("orders")
    orders.send_many([str(n) for n in range(200)])
    handled: list[int] = []
    lock = threading.Lock()

    def handle(message: QueueMessage) -> None:
        with lock:
            handled.append(int(message.text()))

    with orders.consume() as consumer:
        assert consumer.run(handle, workers=4, count=200, timeout_s=WAIT_S) == 200
    assert sorted(handled) == list(range(200))
    assert left(client, "orders") == 0


def test_a_client_that_closes_ends_its_consumers(served: Served) -> None:
    seen = threading.Event()
    with connect(served.url) as client:
        orders = client.create_queue("background")
        orders.consume(lambda message: seen.set())
        orders.send("tea")
        assert seen.wait(WAIT_S)
    with connect(served.url) as client:
        assert left(client, "background") == 0
        client.queue("background").delete()


def test_a_dead_letter_says_why_and_after_how_many_attempts(client: Client) -> None:
    dead = client.create_queue("dead")
    orders = client.create_queue("orders", QueueConfig(dead_letters="dead", receives_max=2, visibility_s=1))
    orders.send("tea")
    tries: list[int] = []

    def fail(message: QueueMessage) -> None:
        tries.append(message.attempt)
        raise LookupError(f"no tea at attempt {message.attempt}")

    with orders.consume() as consumer:
        consumer.start(fail)
        [letter] = dead.consume().messages(count=1, timeout_s=WAIT_S)
    assert tries == [1, 2]
    assert letter.delivery.reason == "LookupError: no tea at attempt 2"
    assert (letter.delivery.attempts, letter.delivery.origin, letter.attempt) == (2, "orders", 1)


def test_a_released_message_tells_the_next_consumer_why(client: Client) -> None:
    orders = client.create_queue("orders")
    orders.send("tea")
    [first] = orders.receive(wait_s=WAIT_S)
    orders.change_visibility(first, visibility_s=0, reason="the kettle is broken")
    assert orders.peek()[0].reason == "the kettle is broken"
    assert orders.receive(wait_s=WAIT_S)[0].reason == "the kettle is broken"


def test_tasks_consume_as_threads_do(served: Served) -> None:
    async def work(client: AsyncClient) -> list[str]:
        orders = await client.create_queue("async")
        await orders.send_many(["a", "b", "c"])
        handled: list[str] = []

        async def handle(message: QueueMessage) -> None:
            handled.append(message.text())

        async with orders.consume() as consumer:
            handled += [message.text() async for message in consumer.messages(count=1, timeout_s=WAIT_S)]
            await consumer.run(handle, workers=2, count=2, timeout_s=WAIT_S)
        assert (await orders.describe()).figures.visible == 0
        await orders.delete()
        return sorted(handled)

    async def main() -> list[str]:
        async with await connect_async(served.url) as client:
            return await work(client)

    assert asyncio.run(main()) == ["a", "b", "c"]


def test_bad_arguments_are_named_as_the_caller_named_them(client: Client) -> None:
    orders = client.create_queue("orders")
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: orders.send(5), "a message's body must be bytes, text"),  # type: ignore[arg-type]
        (lambda: orders.receive(wait_s="soon"), "wait_s must be a number"),  # type: ignore[arg-type]
        (lambda: orders.receive("two"), "count"),  # type: ignore[arg-type]
        (lambda: orders.send("x", group=7), "group"),  # type: ignore[arg-type]
        (lambda: client.queue(""), "a queue's name"),
        (lambda: client.queue(7), "a queue's name"),  # type: ignore[arg-type]
        (lambda: client.publish("text"), "publish takes a dict"),  # type: ignore[arg-type]
        (lambda: client.submit("none", 7), "a job's input"),  # type: ignore[arg-type]
        (lambda: client.subscribe("a = 1", queue=7), "queue"),  # type: ignore[arg-type]
        (lambda: orders.consume(prefetch=0), "prefetch must be between"),
    ]
    for call, said in wrong:
        with pytest.raises(InvalidValue, match=said) as raised:
            call()
        assert "frame" not in str(raised.value)
    with pytest.raises(UnknownQueue):
        next(iter(client.queue("nowhere").consume()))
