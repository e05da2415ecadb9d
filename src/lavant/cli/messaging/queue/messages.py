"""`lavant queue send | receive | peek`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from lavant.cli.common import AsJson, CaFile, Key, QueueName, Url, body_of, client, print_json, print_table, time_of
from lavant.core.ports import QUEUES_URL

EXIT_NOTHING = 1
LINES_AT_ONCE = 100


def send(
    queue: QueueName,
    body: Annotated[
        list[str] | None, typer.Argument(help="bodies; without any, each line of standard input is a message")
    ] = None,
    group: Annotated[str, typer.Option(help="in-order queues: group of the messages")] = "",
    deduplication: Annotated[str, typer.Option(help="in-order queues: deduplication name")] = "",
    delay_ms: Annotated[int | None, typer.Option(help="how long the messages stay hidden first")] = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Send messages, and print their numbers once they are on the server's disk."""
    from lavant.client.queues import SendEntry  # noqa: PLC0415

    bodies = iter([text.encode() for text in body]) if body else _stdin_lines()
    with client(url, key, ca_file) as server:
        while some := [
            SendEntry(each, delay_ms=delay_ms, group=group, deduplication=deduplication)
            for each in islice(bodies, LINES_AT_ONCE)
        ]:
            numbers = server.queue(queue).send_many(some)
            if as_json:
                print_json(numbers)
            else:
                print("\n".join(map(str, numbers)), flush=True)


def receive(
    queue: QueueName,
    count: Annotated[int, typer.Option(min=1, help="largest number of messages")] = 1,
    wait_ms: Annotated[
        int | None, typer.Option(help="how long to wait for a message; default: attribute of the queue")
    ] = None,
    visibility_ms: Annotated[
        int | None, typer.Option(help="how long they are hidden from other consumers; default: attribute of the queue")
    ] = None,
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="acknowledge the messages after they are printed")
    ] = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Receive and print messages; exit code 1 if there are none. Without --acknowledge they are delivered again."""
    with client(url, key, ca_file) as server:
        messages = server.queue(queue).receive(count, visibility_ms=visibility_ms, wait_ms=wait_ms)
        printed = [{"number": each.receipt.number, "lease": each.receipt.lease, **_content(each)} for each in messages]
        _print(printed, ("number", "sent", "receives", "group", "body"), as_json=as_json)
        if acknowledge and messages:
            sys.stdout.flush()  # messages that were not printed must not be acknowledged
            server.queue(queue).acknowledge(*messages)
    raise typer.Exit(0 if messages else EXIT_NOTHING)


def peek(
    queue: QueueName,
    count: Annotated[int, typer.Option(min=1, help="largest number of messages")] = 10,
    after: Annotated[int, typer.Option(min=0, help="only messages with a larger number")] = 0,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Print messages in any state without receiving them."""
    with client(url, key, ca_file) as server:
        messages = server.queue(queue).peek(count, after=after)
    printed = [{"number": each.number, "state": each.state, **_content(each)} for each in messages]
    _print(printed, ("number", "state", "sent", "receives", "group", "body"), as_json=as_json)


def _content(message: Any) -> dict[str, Any]:
    fields = ("sent_ms", "receive_count", "group", "origin")
    return {field: getattr(message, field) for field in fields} | body_of(message.body)


def _stdin_lines() -> Iterator[bytes]:
    return (line.rstrip(b"\n") for line in sys.stdin.buffer)


def _print(messages: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(messages)
        return
    if not any(message["group"] for message in messages):
        columns = tuple(column for column in columns if column != "group")
    rows = [[_cell(message, column) for column in columns] for message in messages]
    if rows:
        print_table(columns, rows, numbers=("number", "receives"))


def _cell(message: dict[str, Any], column: str) -> str:
    match column:
        case "sent":
            return time_of(message["sent_ms"])
        case "receives":
            return str(message["receive_count"])
        case "body":
            return str(message.get("body", message.get("body_base64")))
        case _:
            return str(message[column])
