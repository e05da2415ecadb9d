"""`lavant worker`: lease tasks and run their functions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, CaFile, Key, Url, report
from lavant.core.addresses import QUEUES_URL

if TYPE_CHECKING:
    from lavant.client.workers.backend import Backend


def worker(
    functions: Annotated[
        str, typer.Argument(metavar="MODULE[:FUNCTION]", help="module or file.py with the task functions")
    ],
    topic: Annotated[
        list[str] | None, typer.Option(help="topic to serve; repeatable; by default all topics of the functions")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="concurrent tasks per topic")] = 1,
    name: Annotated[str, typer.Option(help="worker name, shown with attempts; by default host and process id")] = "",
    lease_s: Annotated[
        float,
        typer.Option(
            "--lease", min=0.5, max=3600, help="seconds without a heartbeat after which the worker is taken for dead"
        ),
    ] = 30.0,
    drain_s: Annotated[
        float, typer.Option("--drain", min=0, max=86_400, help="seconds to finish running tasks after SIGTERM")
    ] = 25.0,
    backend: Annotated[
        str,
        typer.Option(
            envvar="LAVANT_BACKEND",
            metavar="URL",
            help="get tasks from RabbitMQ instead of the server: amqp://USER:PASSWORD@HOST/",
        ),
    ] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Lease tasks, call the functions marked with @lavant.task, and report their results.

    At SIGTERM or Ctrl-C the worker leases no more tasks and finishes the running ones.
    """
    from lavant.broker.protocol.amqp_messages import check_address, redacted  # noqa: PLC0415
    from lavant.client.connection.retries import NO_RETRIES, TIMEOUT_S  # noqa: PLC0415
    from lavant.client.workers.backends.factory import open_backend  # noqa: PLC0415
    from lavant.client.workers.functions import load  # noqa: PLC0415
    from lavant.client.workers.process import default_name, work  # noqa: PLC0415
    from lavant.client.workers.worker import Worker  # noqa: PLC0415

    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    handlers = load(functions, [] if topic is None else topic)
    address = check_address(backend) if backend else url
    worker_name = name if name else default_name()

    async def open_tasks() -> Backend:
        return await open_backend(
            address,
            worker_name,
            key=key,
            ca_file=ca_file,
            timeout_s=TIMEOUT_S,
            retries=NO_RETRIES,
            concurrency=concurrency,
            lease_s=lease_s,
        )

    def started() -> None:
        topics = [handler.topic for handler in handlers]
        text = f"worker {worker_name} of {redacted(address)}: topics {', '.join(topics)}, {concurrency} at a time"
        report(text, as_json=as_json, worker=worker_name, topics=topics, concurrency=concurrency)

    ended = asyncio.run(
        work(
            open_tasks,
            lambda opened: Worker(opened, handlers, concurrency=concurrency, lease_s=lease_s),
            drain_s=drain_s,
            on_started=started,
        )
    )
    counts = vars(ended.counts)
    report(f"worker {worker_name}: {ended.counts}", as_json=as_json, worker=worker_name, **counts)
