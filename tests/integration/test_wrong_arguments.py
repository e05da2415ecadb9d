"""Wrong arguments of the public API: each is answered by one line in the words of the caller, and harms nobody else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.integration.serving import Served
from tests.integration.talking_http import Talker

from lavant import Client, QueueConfig, SendEntry, Webhook, Workflow, connect, connect_async
from lavant.broker.workflows.definitions.definition import Join, OnFailure
from lavant.broker.workflows.job import JOB_STATES
from lavant.client.connection.retries import NO_RETRIES
from lavant.core.errors import FilterSyntaxError, InvalidValue, LavantError
from lavant.service.http.routes.operations import OPERATIONS

ORDERS = ("out-of-order", "in-order")
TOML = """
topics = ["t"]

[jobs.j]
start = "a"

[jobs.j.tasks]
a = {{ topic = "t", {} = "{}" }}
"""
WRONG: list[Any] = [
    *(None, "text", b"bytes", "", "x" * 300, "\ud800", -1, -1.5, 1.5, math.nan, math.inf, 10**30, True),
    *([], {}, ("a", 1), object(), [object()], {"a": object()}),
]
Calls = dict[str, Callable[[Any], Any]]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(None) as server:
        yield server


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    with connect(served.url) as connection:
        connection.create_queue("q")
        yield connection


def calls_of(client: Client, url: str, directory: Path) -> Calls:
    queue = client.queue("q")

    def given(**arguments: Any) -> None:
        connect(**{"url": url, "retries": NO_RETRIES, **arguments}).close()

    return {
        "connect url": lambda it: given(url=it, timeout_s=5),
        "connect key": lambda it: given(key=it),
        "connect timeout_s": lambda it: given(timeout_s=it),
        "connect ca_file": lambda it: given(ca_file=it),
        "connect retries": lambda it: given(retries=it),
        "connect encryption": lambda it: given(encryption=it),
        "create_queue": client.create_queue,
        "create_queue config": lambda it: client.create_queue("c", it),
        "create_queue tags": lambda it: client.create_queue("t", tags=it),
        "QueueConfig visibility_s": lambda it: client.create_queue("v", QueueConfig(visibility_s=it)),
        "QueueConfig order": lambda it: client.create_queue("o", QueueConfig(order=it)),
        "QueueConfig dead_letters": lambda it: client.create_queue("d", QueueConfig(dead_letters=it)),
        "queue": lambda it: client.queue(it).describe(),
        "queues": lambda it: list(client.queues(it)),
        "send": queue.send,
        "send delay_s": lambda it: queue.send(b"x", delay_s=it),
        "send group": lambda it: queue.send(b"x", group=it),
        "send attributes": lambda it: queue.send(b"x", attributes=it),
        "send_many": queue.send_many,
        "send_many one": lambda it: queue.send_many([it]),
        "receive": queue.receive,
        "receive visibility_s": lambda it: queue.receive(visibility_s=it),
        "acknowledge": queue.acknowledge,
        "change_visibility": lambda it: queue.change_visibility(it, visibility_s=1),
        "peek": queue.peek,
        "configure": queue.configure,
        "redrive": queue.redrive,
        "tag": queue.tag,
        "consume": lambda it: queue.consume(it).close(),
        "consume workers": lambda it: queue.consume(print, workers=it).close(),
        "consume prefetch": lambda it: queue.consume(prefetch=it).close(),
        "publish": client.publish,
        "publish attribute": lambda it: client.publish({"a": it}),
        "publish payload": lambda it: client.publish({"a": 1}, payload=it),
        "publish_many": client.publish_many,
        "publish_many one": lambda it: client.publish_many([it]),
        "publisher": lambda it: client.publisher(directory if isinstance(it, str) else it).close(),
        "subscribe": lambda it: client.subscribe(it).close(),
        "subscribe name": lambda it: client.subscribe("a = 1", name=it),
        "subscribe webhook": lambda it: client.subscribe("a = 1", name="w", webhook=it),
        "Webhook": lambda it: client.subscribe("a = 1", name="u", webhook=Webhook(it)),
        "subscribe config": lambda it: client.subscribe("a = 1", name="c", config=it),
        "subscribe lease_s": lambda it: client.subscribe("a = 1", lease_s=it).close(),
        "subscribe handler": lambda it: client.subscribe("a = 1", handler=it).close(),
        "subscribe visibility_s": lambda it: client.subscribe("a = 1", visibility_s=it).close(),
        "subscription": lambda it: client.subscription(it).close(),
        "unsubscribe": client.unsubscribe,
        "submit": client.submit,
        "submit input": lambda it: client.submit("image", it),
        "job": client.job,
        "jobs": lambda it: list(client.jobs(state=it)),
        "Workflow": lambda it: client.define_jobs(Workflow(it)),
        "task topic": lambda it: client.define_jobs([task_of(topic=it)]),
        "task join": lambda it: client.define_jobs([task_of(join=it)]),
        "task attempts": lambda it: client.define_jobs([task_of(attempts=it)]),
        "task timeout_s": lambda it: client.define_jobs([task_of(timeout_s=it)]),
        "task backoff_s_max": lambda it: client.define_jobs([task_of(backoff_s_max=it)]),
        "task on_failure": lambda it: client.define_jobs([task_of(on_failure=it)]),
        "wait timeout_s": lambda it: client.wait(1, timeout_s=it),
        "define_jobs": client.define_jobs,
        "schedule": lambda it: client.schedule(it, every_s=60, queue="q"),
        "schedule cron": lambda it: client.schedule("n", cron=it, queue="q"),
        "schedule every_s": lambda it: client.schedule("n", every_s=it, queue="q"),
        "unschedule": client.unschedule,
        "request": lambda it: client.request(it, b"x", timeout_s=0),
        "reply": lambda it: client.reply(it, b"x"),
        "advertise": client.advertise,
    }


def task_of(**arguments: Any) -> Workflow:
    workflow = Workflow("image")
    workflow.task("load", **arguments)
    return workflow


def test_a_wrong_argument_is_answered_in_one_line(client: Client, served: Served, tmp_path: Path) -> None:
    unlike = []
    for name, call in calls_of(client, served.url, tmp_path).items():
        for value in WRONG:
            try:
                call(value)
            except FilterSyntaxError:
                pass  # shows the filter below the line
            except LavantError as error:
                if "\n" in str(error) or "holds no request" in str(error) or len(str(error)) > 500:
                    unlike.append(f"{name}({value!r:.30}): {error}")
            except Exception as error:
                unlike.append(f"{name}({value!r:.30}): {type(error).__name__}: {error}")
    assert unlike == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda client: client.schedule("n", every_s=0.1, queue="q"), "every_s must be between 1 and"),
        (lambda client: client.queue("q").acknowledge("x"), "give messages as `receive` returned them"),
        (lambda client: client.queue("q").acknowledge([]), "give those of a list as"),
        (lambda client: client.queue("q").send("x", attributes=[]), "attributes is of the wrong type"),
        (
            lambda client: client.queue("q").send_many([b"x", SendEntry(b"y", group=WRONG[6])]),
            "group is of the wrong type",
        ),
        (lambda client: client.create_queue("n", QueueConfig(visibility_s=WRONG[0])), "visibility_s must be a number"),
        (lambda client: client.queue("q").send(5), "a message's body must be bytes, text, or a dict or list"),
    ],
)
def test_a_wrong_argument_is_named_in_the_callers_words(
    client: Client, call: Callable[[Client], object], said: str
) -> None:
    with pytest.raises(InvalidValue, match=said):
        call(client)


CHOICES: dict[str, tuple[Callable[[Client, Any], Any], tuple[str, ...]]] = {
    "jobs state": (lambda client, it: list(client.jobs(state=it)), JOB_STATES),
    "QueueConfig order": (lambda client, it: client.create_queue("q2", QueueConfig(order=it)), ORDERS),
    "configure order": (lambda client, it: client.queue("q").configure(QueueConfig(order=it)), ORDERS),
    "task join": (lambda client, it: client.define_jobs(task_of(join=it)), get_args(Join)),
    "task on_failure": (lambda client, it: client.define_jobs(task_of(on_failure=it)), get_args(OnFailure)),
    "join in TOML": (lambda client, it: client.define_jobs(TOML.format("join", it)), get_args(Join)),
    "on_failure in TOML": (lambda client, it: client.define_jobs(TOML.format("on_failure", it)), get_args(OnFailure)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_one_of_a_few_values_is_refused_with_these(client: Client, name: str) -> None:
    call, allowed = CHOICES[name]
    with pytest.raises(InvalidValue) as refused:
        call(client, "nonsense")
    assert "\n" not in str(refused.value)
    assert all(repr(each) in str(refused.value) for each in ("nonsense", *allowed))


def enumerated() -> Iterator[tuple[str, str, dict[str, Any] | None, tuple[str, ...]]]:
    """Every parameter that has a few values, and members of bodies that have, in a request with another one."""
    for operation in OPERATIONS:
        for each in operation.parameters:
            if each.choices:
                yield operation.method, f"{operation.path}?{each.name}=nonsense", None, each.choices
    yield "PUT", "/queues/q3", {"settings": {"order": "nonsense"}}, ORDERS
    tasks = {"a": {"topic": "t", "join": "nonsense"}}
    yield "PUT", "/workflows", {"topics": ["t"], "jobs": {"j": {"start": "a", "tasks": tasks}}}, get_args(Join)


@pytest.mark.parametrize(("method", "path", "body", "allowed"), list(enumerated()))
def test_http_refuses_one_of_a_few_values_with_these(
    served: Served, method: str, path: str, body: dict[str, Any] | None, allowed: tuple[str, ...]
) -> None:
    with Talker(served) as talker:
        answer = talker.ask(method, path, body)
    assert answer.status == 400
    assert all(f"'{each}'" in answer.json["detail"] for each in ("nonsense", *allowed))


def test_a_wrong_argument_of_one_task_harms_no_other(served: Served) -> None:
    """The first cannot be encoded, the second cannot be read by the server."""

    async def work() -> None:
        wrong: list[Any] = [10**30, "two"]
        async with await connect_async(served.url) as client:
            queue = await client.create_queue("tasks")
            polls = [asyncio.ensure_future(queue.receive(wait_s=10)) for _ in range(2)]
            await asyncio.sleep(0)
            for value in wrong:
                with pytest.raises(InvalidValue, match="count"):
                    await queue.receive(value)
                await queue.send(b"x")
            assert [[message.body for message in messages] for messages in await asyncio.gather(*polls)] == [[b"x"]] * 2

    asyncio.run(work())
