"""`lavant schedule add | ls | rm`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lavant.cli.common import (
    AsJson,
    CaFile,
    Key,
    Url,
    body_of,
    bytes_of,
    client,
    print_json,
    print_table,
    report,
    time_of,
)
from lavant.client.values.mirror import to_protocol
from lavant.core.addresses import QUEUES_URL

schedule = typer.Typer(help="Submit jobs or send messages by cron or at an interval.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the schedule")]
_FIELDS = ("name", "cron", "interval_ms", "job_type", "queue", "next_ms", "fired", "last_ms", "last_error")


@schedule.command("add")
def add(
    name: Name,
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY", help="input of the job, or the message; - reads standard input"),
    ] = None,
    cron: Annotated[str, typer.Option(help="when, in UTC: minute hour day month weekday, or @daily and the like")] = "",
    every_s: Annotated[float | None, typer.Option("--every", help="seconds between two times, at least 1")] = None,
    job: Annotated[str, typer.Option(help="submit a job of this type")] = "",
    queue: Annotated[str, typer.Option(help="send a message to this queue")] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule, or replace the one of this name. Give --cron or --every, and --job or --queue."""
    given = sys.stdin.buffer.read() if body == "-" else bytes_of(body or "")
    with client(url, key, ca_file) as server:
        state = to_protocol(server.schedule(name, cron=cron, every_s=every_s, job=job, queue=queue, body=given))
    text = f"schedule {state.name} fires next at {time_of(state.next_ms)}"
    report(text, as_json=as_json, schedule=state.name, next_ms=state.next_ms)


@schedule.command("ls")
def list_schedules(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """List schedules, when they fire next, and what went wrong the last time."""
    with client(url, key, ca_file) as server:
        found = [to_protocol(each) for each in server.schedules()]
    if as_json:
        print_json([{field: getattr(each, field) for field in _FIELDS} | body_of(each.body) for each in found])
        return
    rows = [
        (
            each.name,
            each.cron if each.cron else f"every {each.interval_ms / 1000:g} s",
            f"job {each.job_type}" if each.job_type else f"queue {each.queue}",
            time_of(each.next_ms),
            str(each.fired),
            each.last_error,
        )
        for each in found
    ]
    print_table(("schedule", "when", "what", "next", "fired", "last error"), rows, numbers=("fired",))


@schedule.command("rm")
def remove(name: Name, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Remove a schedule; jobs and messages that it has made stay."""
    with client(url, key, ca_file) as server:
        server.unschedule(name)
    report(f"removed schedule {name}", as_json=as_json, removed=name)
