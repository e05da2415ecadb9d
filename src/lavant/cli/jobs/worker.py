"""`lavant worker`: do the tasks of jobs."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import CaFile, Key, Url
from lavant.core.ports import QUEUES_URL

if TYPE_CHECKING:
    from lavant.client.workers.backend import Backend


def worker(
    place: Annotated[
        str, typer.Argument(metavar="MODULE[:FUNCTION]", help="where the functions are: a module, or a file.py")
    ],
    topic: Annotated[list[str] | None, typer.Option(help="of these topics only; may be repeated")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="tasks of a topic at a time")] = 1,
    name: Annotated[str, typer.Option(help="shown in the timelines of jobs; host and process if not given")] = "",
    lease_s: Annotated[
        float, typer.Option("--lease", min=0.5, max=3600, help="a worker not heard of for so long is taken for dead")
    ] = 30.0,
    drain_s: Annotated[
        float, typer.Option("--drain", min=0, max=86_400, help="seconds to finish what was begun, when told to stop")
    ] = 25.0,
    backend: Annotated[
        str,
        typer.Option(
            envvar="LAVANT_BACKEND",
            metavar="URL",
            help="where tasks come from, if not from the server: RabbitMQ, at amqp://USER:PASSWORD@HOST/",
        ),
    ] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
) -> None:
    """Lease tasks, call the functions that are marked with @lavant.task, and report what they made.

    SIGTERM and Ctrl-C end it in good order: no further task is leased, and those that were begun are finished.
    """
    from lavant.broker.protocol.amqp_messages import check_address, shown  # noqa: PLC0415
    from lavant.client.connection.retries import NO_RETRIES, TIMEOUT_S  # noqa: PLC0415
    from lavant.client.workers.backends.factory import open_backend  # noqa: PLC0415
    from lavant.client.workers.functions import load  # noqa: PLC0415
    from lavant.client.workers.process import default_name, work  # noqa: PLC0415
    from lavant.client.workers.worker import Worker  # noqa: PLC0415

    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    handlers = load(place, [] if topic is None else topic)
    place_of_tasks = check_address(backend) if backend else url
    called = name if name else default_name()

    async def open_it() -> Backend:
        return await open_backend(
            place_of_tasks,
            called,
            key=key,
            ca_file=ca_file,
            timeout_s=TIMEOUT_S,
            retries=NO_RETRIES,
            concurrency=concurrency,
            lease_s=lease_s,
        )

    def started() -> None:
        topics = ", ".join(handler.topic for handler in handlers)
        print(f"worker {called} of {shown(place_of_tasks)}: topics {topics}, {concurrency} at a time", flush=True)

    ended = asyncio.run(
        work(
            open_it,
            lambda opened: Worker(opened, handlers, concurrency=concurrency, lease_s=lease_s),
            drain_s=drain_s,
            on_started=started,
        )
    )
    print(f"worker {called}: {ended.counts}", flush=True)
