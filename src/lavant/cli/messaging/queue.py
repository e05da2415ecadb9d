"""`lavant queue …`: inspect and use the queues of a server, over the native protocol."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from msgspec.structs import asdict, replace

from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES, QueueAttribute
from lavant.broker.protocol.queue_config import DELAY_MS_MAX, VISIBILITY_MS_MAX, WAIT_MS_MAX, QueueConfig
from lavant.broker.queues.validation import check_config
from lavant.cli.common import (
    EXIT_FAILED,
    AsJson,
    CaFile,
    Key,
    QueueName,
    Url,
    body_of,
    bytes_of,
    client,
    confirm,
    counted,
    note,
    print_json,
    print_table,
    report,
    time_of,
)
from lavant.cli.planning.queue_compare import compare_queue
from lavant.cli.planning.queue_plan import plan_queue
from lavant.client.values import queues as values
from lavant.client.values.mirror import from_protocol, to_protocol
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import InvalidValue, LavantError, UnknownMove
from lavant.core.seconds import in_seconds

if TYPE_CHECKING:
    from lavant.broker.protocol.queues import Described, MoveState
    from lavant.client.client import Client
    from lavant.client.queues import Queue

POLL_S = 0.1
LINES_AT_ONCE = 100
_Command = TypeVar("_Command", bound=Callable[..., None])

Yes = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]


def ls(
    prefix: Annotated[str, typer.Argument(help="only queues with this prefix")] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List queues and the number of their messages."""
    from lavant.client import queue_calls as calls  # noqa: PLC0415

    with client(url, key, ca_file) as server:
        names = list(server.queues(prefix))
        results = server.pipeline([calls.describe(name) for name in names])
    # A queue that was deleted meanwhile is not listed.
    pairs = zip(names, results, strict=True)
    found = [(name, to_protocol(result)) for name, result in pairs if not isinstance(result, LavantError)]
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
    """Show the attributes, tags, figures and moves of a queue."""
    with client(url, key, ca_file) as server:
        described = to_protocol(server.queue(queue).describe())
        moves = [to_protocol(move) for move in server.queue(queue).moves()]
    if as_json:
        print_json({"queue": queue, **_as_dict(described), "moves": [asdict(move) for move in moves]})
        return
    rows = [("queue", queue), ("created", time_of(described.created_ms)), ("changed", time_of(described.changed_ms))]
    rows += [(field, _text(value)) for field, value in asdict(described.config).items() if value not in (None, {})]
    rows += [(f"tag {key}", value) for key, value in described.tags.items()]
    for field, value in asdict(described.figures).items():
        if field == "oldest_sent_ms":
            rows.append(("oldest sent", "none" if value is None else time_of(value)))
        else:
            rows.append((field, _text(value)))
    rows += [(f"move {move.task}", _progress(move)) for move in moves]
    print_table(("", ""), [(name.replace("_", " "), value) for name, value in rows], has_header=False)


def _with_attributes(*, is_new: bool) -> Callable[[_Command], _Command]:
    """Replaces the parameter `**settings` of a command by one option for each queue attribute."""

    def decorate(command: _Command) -> _Command:
        signature = inspect.signature(command, eval_str=True)
        options = [_option(each, is_new=is_new) for each in QUEUE_ATTRIBUTES if is_new or not each.is_fixed]
        others = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        command.__signature__ = signature.replace(parameters=[others[0], *options, *others[1:]])  # type: ignore[attr-defined]
        return command

    return decorate


def _option(attribute: QueueAttribute, *, is_new: bool) -> inspect.Parameter:
    flag, text, metavar, annotation = attribute.flag, attribute.text, None, attribute.type | None
    if attribute.most is not None:
        text = f"{text}; {attribute.least:,} to {attribute.most:,}"
    if attribute.type is bool and not is_new:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    if attribute.type is dict:
        annotation, metavar, text = list[str] | None, "KEY=VALUE", f"{text}; may be repeated"
    if attribute.name == "order":
        annotation, text = bool | None, "deliver the messages of a group one after the other"
    option = typer.Option(flag, metavar=metavar, help=text)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(attribute.name, kind, default=None, annotation=Annotated[annotation, option])


def _changed(config: QueueConfig, settings: dict[str, Any]) -> values.QueueConfig:
    """Checked here, in the words of the options: the client's times are in seconds."""
    given = {name: value for name, value in settings.items() if value is not None}
    if given.pop("order", False):
        given["order"] = "in-order"
    if "labels" in given:
        labels = config.labels | dict(_pair(text, "--label") for text in given["labels"])
        given["labels"] = {name: value for name, value in labels.items() if value}
    if given.get("dead_letters") == "":
        given |= {"dead_letters": None, "receives_max": None}
    changed = replace(config, **given)
    check_config(changed)
    return from_protocol(values.QueueConfig, changed)


@_with_attributes(is_new=True)
def create(
    queue: QueueName,
    tag: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="may be repeated")] = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Create a queue. One that exists with the same attributes is left as it is."""
    tags = dict(_pair(text, "--tag") for text in tag or [])
    with client(url, key, ca_file) as server:
        server.create_queue(queue, _changed(QueueConfig(), settings), tags=tags)
    report(f"{queue} is there", as_json=as_json, queue=queue)


@_with_attributes(is_new=False)
def configure(
    queue: QueueName,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Set attributes of a queue; the others stay. `--dead-letters ""` and `--label KEY=` remove one."""
    if all(value is None for value in settings.values()):
        raise InvalidValue("give an attribute and its value, such as --visibility-ms 30000")
    with client(url, key, ca_file) as server:
        of = server.queue(queue)
        of.configure(_changed(to_protocol(of.describe().config), settings))
    report(f"{queue} is set", as_json=as_json, queue=queue)


@wraps(configure)
def _set(**given: Any) -> None:
    """The name of `configure` before."""
    note("lavant: `lavant queue set` is now `lavant queue configure`")
    configure(**given)


def redrive(
    queue: QueueName,
    to: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="destination; default: the queues they came from")
    ] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="largest number of messages a second")] = None,
    background: Annotated[bool, typer.Option("--background", help="do not wait for the end")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="end a move that runs; what was moved stays moved")] = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Move the messages of a dead-letter queue back to their sources; exit code 1 if some could not be moved."""
    with client(url, key, ca_file) as server:
        source = server.queue(queue)
        state = _cancelled(server, source) if cancel else _state(source, source.redrive(to, rate_per_s=rate))
        while state.status == "running" and not background:
            time.sleep(POLL_S)
            state = _state(source, state.task)
    has_failed = state.status == "failed"
    if has_failed and not as_json:
        print(_progress(state))
    else:
        report(_progress(state), as_json=as_json, **asdict(state))
    raise typer.Exit(EXIT_FAILED if has_failed else 0)


def purge(
    queue: QueueName,
    yes: Yes = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove all messages of a queue."""
    with client(url, key, ca_file) as server:
        _confirm("Remove all messages of", server.queue(queue), yes)
        server.queue(queue).purge()
    report(f"{queue} is empty", as_json=as_json, purged=queue)


def delete(
    queue: QueueName,
    yes: Yes = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete a queue and all its messages."""
    with client(url, key, ca_file) as server:
        _confirm("Delete queue", server.queue(queue), yes)
        server.queue(queue).delete()
    report(f"{queue} is gone", as_json=as_json, deleted=queue)


def send(
    queue: QueueName,
    body: Annotated[
        list[str] | None, typer.Argument(help="bodies; without any, each line of standard input is a message")
    ] = None,
    group: Annotated[str, typer.Option(help="in-order queues: group of the messages")] = "",
    deduplication: Annotated[str, typer.Option(help="in-order queues: deduplication name")] = "",
    delay_ms: Annotated[
        int | None, typer.Option(min=0, max=DELAY_MS_MAX, help="how long the messages stay hidden first")
    ] = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Send messages, and print their numbers once they are on the server's disk."""
    delay_s = in_seconds(delay_ms)
    bodies = iter([bytes_of(text) for text in body]) if body else _stdin_lines()
    sent = 0
    with client(url, key, ca_file) as server:
        while some := [
            values.SendEntry(each, delay_s=delay_s, group=group, deduplication=deduplication)
            for each in islice(bodies, LINES_AT_ONCE)
        ]:
            numbers = server.queue(queue).send_many(some)
            sent += len(numbers)
            if as_json:
                print_json(numbers)
            else:
                print("\n".join(map(str, numbers)), flush=True)
    if as_json and not sent:
        print_json([])


def receive(
    queue: QueueName,
    count: Annotated[int, typer.Option(min=1, help="largest number of messages")] = 1,
    wait_ms: Annotated[
        int | None,
        typer.Option(min=0, max=WAIT_MS_MAX, help="how long to wait for a message; default: attribute of the queue"),
    ] = None,
    visibility_ms: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=VISIBILITY_MS_MAX,
            help="how long they are hidden from other consumers; default: attribute of the queue",
        ),
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
        messages = server.queue(queue).receive(
            count, visibility_s=in_seconds(visibility_ms), wait_s=in_seconds(wait_ms)
        )
        printed = [
            {"number": each.receipt.number, "lease": each.receipt.lease, **_content(to_protocol(each))}
            for each in messages
        ]
        _print(printed, ("number", *_COLUMNS), as_json=as_json)
        if acknowledge and messages:
            sys.stdout.flush()  # messages that were not printed must not be acknowledged
            server.queue(queue).acknowledge(*messages)
    raise typer.Exit(0 if messages else EXIT_FAILED)


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
    printed = [{"number": each.number, "state": each.state, **_content(to_protocol(each))} for each in messages]
    _print(printed, ("number", "state", *_COLUMNS), as_json=as_json)


def _confirm(what: str, queue: Queue, yes: bool) -> None:
    """Ask, unless `yes`; raises if there is no such queue, so that nobody is asked about it."""
    if not yes:
        figures = queue.describe().figures
        held = figures.visible + figures.in_flight + figures.delayed
        confirm(f"{what} {queue.name}, which holds {counted(held, 'message')}?")


def _pair(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidValue(f"{flag} {text!r} is not KEY=VALUE, such as team=billing")
    return key, value


def _cancelled(server: Client, source: Queue) -> MoveState:
    running = [move.task for move in source.moves() if move.status == "running"]
    if not running:
        raise UnknownMove(f"nothing is being moved from queue {source.name!r}")
    return to_protocol(server.cancel_move(running[0]))


def _state(source: Queue, task: int) -> MoveState:
    return to_protocol(next(move for move in source.moves() if move.task == task))


def _progress(state: MoveState) -> str:
    reason = f": {state.reason}" if state.reason else ""
    return f"{state.status}, {state.moved:,} of {state.total:,} messages moved{reason}"


def _as_dict(described: Described) -> dict[str, Any]:
    return {
        "settings": asdict(described.config),
        "tags": described.tags,
        "created_ms": described.created_ms,
        "changed_ms": described.changed_ms,
        "figures": asdict(described.figures),
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _content(message: Any) -> dict[str, Any]:
    fields = ("sent_ms", "receive_count", "group", "origin", "reason", "attempts")
    return {field: getattr(message, field) for field in fields} | body_of(message.body)


def _stdin_lines() -> Iterator[bytes]:
    return (line.rstrip(b"\n") for line in sys.stdin.buffer)


_COLUMNS = ("sent", "receives", "group", "origin", "attempts", "reason", "body")
_SELDOM = frozenset(("group", "origin", "attempts", "reason"))
"""Columns that are shown only if a message has such a thing."""


def _print(messages: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(messages)
        return
    columns = tuple(each for each in columns if each not in _SELDOM or any(message[each] for message in messages))
    rows = [[_cell(message, column) for column in columns] for message in messages]
    if rows:
        print_table(columns, rows, numbers=("number", "receives", "attempts"))


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


queue = typer.Typer(help="Inspect and use the queues of a server.", no_args_is_help=True)
for _command in (ls, info, create, configure, send, receive, peek, redrive, purge, delete):
    queue.command(_command.__name__)(_command)
queue.command("set", hidden=True)(_set)
queue.command("plan")(plan_queue)
queue.command("compare")(compare_queue)
