"""An application that uses OpenTelemetry: does one thing after the other, each in a trace of its own.

    python -m tests.integration.traced_program URL DIRECTORY

It prints the ids of the traces, by name, in JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lavant import Client, Notification, Publication, QueueMessage, connect, connect_async

WAIT_S = 20.0


def main(url: str, directory: Path) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "application"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("application")
    traces = {}
    with connect(url) as client:
        actions: dict[str, Callable[[], None]] = {
            "publish": lambda: publish(client),
            "store": lambda: store(client, directory),
            "send": lambda: send(client),
            "fail": lambda: fail(client),
            "request": lambda: request(client),
            "submit": lambda: submit(client),
            "asynchronous": lambda: asyncio.run(asynchronous(url)),
        }
        for name, act in actions.items():
            with tracer.start_as_current_span(name) as span:
                traces[name] = f"{span.get_span_context().trace_id:032x}"
                act()
    print(json.dumps(traces))


def publish(client: Client) -> None:
    seen = threading.Event()

    def handler(notification: Notification) -> None:
        seen.set()

    with client.subscribe("traced = 1", handler=handler):
        client.publish({"traced": 1})
        assert seen.wait(WAIT_S)


def store(client: Client, directory: Path) -> None:
    with client.subscribe("stored = 1") as stored, client.publisher(directory) as publisher:
        publisher.publish(Publication(attributes={"stored": 1}))
        [found] = stored.notifications(count=1, timeout_s=WAIT_S)
    assert found.trace.parent.split("-")[2] == f"{trace.get_current_span().get_span_context().span_id:016x}"


def send(client: Client) -> None:
    queue = client.create_queue("sent")
    queue.send("tea")
    queue.send_many(["milk", "sugar"])
    with queue.consume() as consumer:
        consumer.run(lambda message: None, count=3, timeout_s=WAIT_S)


def fail(client: Client) -> None:
    queue = client.create_queue("failing")
    queue.send("tea")

    def handler(message: QueueMessage) -> None:
        if message.attempt == 1:
            raise ValueError("the cup is full")

    with queue.consume() as consumer:
        consumer.run(handler, count=2, timeout_s=WAIT_S)


def request(client: Client) -> None:
    queue = client.create_queue("asked")
    with queue.consume(lambda message: client.reply(message, "yes")):
        client.request("asked", "well?")


def submit(client: Client) -> None:
    assert client.wait(client.submit("both", b"go"), timeout_s=WAIT_S).state == "completed"


async def asynchronous(url: str) -> None:
    async with await connect_async(url) as client:
        queue = await client.create_queue("tasks-of-a-loop")
        await queue.send("tea")

        async def handler(message: QueueMessage) -> None:
            await client.publish({"nobody": 1})

        async with queue.consume() as consumer:
            await consumer.run(handler, count=1, timeout_s=WAIT_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
