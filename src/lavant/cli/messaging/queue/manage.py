"""`lavant queue ls | info | create | redrive | purge | delete`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import EXIT_FAILED, AsJson, CaFile, Key, QueueName, Url, client, print_json, print_table, time_of
from lavant.core.errors import InvalidValue, LavantError
from lavant.core.ports import QUEUES_URL

if TYPE_CHECKING:
    from lavant.broker.protocol.queues import Described, MoveState
    from lavant.client.queues import Queue

POLL_S = 0.1

Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


def ls(
    prefix: Annotated[str, typer.Argument(help="only queues whose names start so")] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List the queues, and how many messages they hold."""
    from lavant.client.queues import calls  # noqa: PLC0415

    with client(url, key, ca_file) as server:
        names = list(server.queues(prefix))
        results = server.pipeline([calls.describe(name) for name in names])
    # One that was deleted meanwhile is not listed.
    found = [(name, result) for name, result in zip(names, results, strict=True) if not isinstance(result, LavantError)]
    if as_json:
        print_json([{"queue": name, **_as_dict(each)} for name, each in found])
        return
    columns = ("queue", "order", "visible", "in flight", "delayed", "bytes")
    rows = []
    for name, each in found:
        figures = each.figures
        numbers = (figures.visible, figures.in_flight, figures.delayed, figures.bytes)
        rows.append((name, each.config.order, *(f"{number:,}" for number in numbers)))
    print_table(columns, rows, numbers=columns[2:])


def info(
    queue: QueueName, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Show the settings, tags, figures and moves of a queue."""
    with client(url, key, ca_file) as server:
        described = server.queue(queue).describe()
        moves = server.queue(queue).moves()
    if as_json:
        print_json({"queue": queue, **_as_dict(described), "moves": [_fields(move) for move in moves]})
        return
    rows = [("queue", queue), ("created", time_of(described.created_ms)), ("changed", time_of(described.changed_ms))]
    rows += [(field, _shown(value)) for field, value in _fields(described.config).items() if value not in (None, {})]
    rows += [(f"tag {key}", value) for key, value in described.tags.items()]
    for field, value in _fields(described.figures).items():
        if field == "oldest_sent_ms":
            rows.append(("oldest sent", "none" if value is None else time_of(value)))
        else:
            rows.append((field, _shown(value)))
    rows += [(f"move {move.task}", _progress(move)) for move in moves]
    print_table(("", ""), [(name.replace("_", " "), value) for name, value in rows], has_header=False)


def create(
    queue: QueueName,
    in_order: Annotated[bool, typer.Option("--in-order", help="messages of a group start one after the other")] = False,
    visibility_ms: Annotated[int | None, typer.Option(help="how long a received message is hidden")] = None,
    delay_ms: Annotated[int | None, typer.Option(help="until a message can be received")] = None,
    retention_ms: Annotated[int | None, typer.Option(help="how long messages are kept")] = None,
    wait_ms: Annotated[int | None, typer.Option(help="how long a receive waits for a message")] = None,
    message_bytes_max: Annotated[int | None, typer.Option(help="of one message")] = None,
    dead_letters: Annotated[str | None, typer.Option(help="queue for messages received too often")] = None,
    receives_max: Annotated[int | None, typer.Option(help="how often that is")] = None,
    deduplicate_by_content: Annotated[bool, typer.Option("--deduplicate-by-content", help="in-order queues")] = False,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="may be given often")] = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
) -> None:
    """Create a queue. One that exists with the same settings is left as it is."""
    from lavant.client.queues import QueueConfig  # noqa: PLC0415

    given = {
        "visibility_ms": visibility_ms,
        "delay_ms": delay_ms,
        "retention_ms": retention_ms,
        "wait_ms": wait_ms,
        "message_bytes_max": message_bytes_max,
        "dead_letters": dead_letters,
        "receives_max": receives_max,
    }
    settings: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    config = QueueConfig(
        order="in-order" if in_order else "out-of-order", deduplicate_by_content=deduplicate_by_content, **settings
    )
    with client(url, key, ca_file) as server:
        server.create_queue(queue, config, tags=dict(_tag(text) for text in tag or []))
    print(f"{queue} is there")


def redrive(
    queue: QueueName,
    to: Annotated[str | None, typer.Option(metavar="QUEUE", help="where to; where they came from by default")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="messages a second at most")] = None,
    background: Annotated[bool, typer.Option("--background", help="do not wait until all are moved")] = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Move the messages of a dead-letter queue back to where they came from; exit code 1 if some could not be."""
    with client(url, key, ca_file) as server:
        source = server.queue(queue)
        state = _state(source, source.redrive(to, rate_per_s=rate))
        while state.status == "running" and not background:
            time.sleep(POLL_S)
            state = _state(source, state.task)
    if as_json:
        print_json(_fields(state))
    else:
        print(_progress(state))
    raise typer.Exit(EXIT_FAILED if state.status == "failed" else 0)


def purge(queue: QueueName, yes: Yes = False, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None) -> None:
    """Remove all messages of a queue."""
    _confirm(f"Remove all messages of {queue}?", yes)
    with client(url, key, ca_file) as server:
        server.queue(queue).purge()
    print(f"{queue} is empty")


def delete(queue: QueueName, yes: Yes = False, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None) -> None:
    """Delete a queue and all its messages."""
    _confirm(f"Delete {queue} and all its messages?", yes)
    with client(url, key, ca_file) as server:
        server.queue(queue).delete()
    print(f"{queue} is gone")


def _confirm(question: str, yes: bool) -> None:
    if not yes:
        typer.confirm(question, abort=True)


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidValue(f"--tag {text!r} is not KEY=VALUE, such as team=billing")
    return key, value


def _state(source: Queue, task: int) -> MoveState:
    return next(move for move in source.moves() if move.task == task)


def _progress(state: MoveState) -> str:
    reason = f": {state.reason}" if state.reason else ""
    return f"{state.status}, {state.moved:,} of {state.total:,} messages moved{reason}"


def _as_dict(described: Described) -> dict[str, Any]:
    return {
        "settings": _fields(described.config),
        "tags": described.tags,
        "created_ms": described.created_ms,
        "changed_ms": described.changed_ms,
        "figures": _fields(described.figures),
    }


def _fields(value: Any) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    return msgspec.structs.asdict(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
