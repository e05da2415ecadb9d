"""Shared by commands: connection options, printing of results, checks of paths."""

from __future__ import annotations

import base64
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from rich.console import Console

    from lavant.client.client import Client

EXIT_FAILED = 1
"""The command ran, but the result is negative or partial."""

LINE_CHARACTERS_MAX = 10_000
HTTP_S_MAX = 5.0
LISTENS_WITHIN_S = 30.0
"""A server that was just started loads its modules and replays its journal before it listens."""

_quiet = ContextVar("quiet", default=False)

Url = Annotated[str, typer.Option(help="address of the server", envvar="LAVANT_URL")]
Key = Annotated[str, typer.Option(help="API key, if the server requires one", envvar="LAVANT_KEY")]
CaFile = Annotated[
    Path | None, typer.Option(help="CA certificates to trust, for lavants:// (TLS)", envvar="LAVANT_CA_FILE")
]
Encryption = Annotated[
    Path | None, typer.Option("--encrypt", metavar="KEY", help="encrypt end to end with this key of `lavant keygen`")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="name of the queue")]


def client(
    url: str, key: str, ca_file: Path | None, *, encryption: Path | None = None, is_patient: bool = False
) -> Client:
    """A connection to the server, without retries unless the command `is_patient`.

    A patient command runs for long; it also waits for a server that is still starting.
    """
    from lavant.client.client import connect  # noqa: PLC0415
    from lavant.client.connection.retries import NO_RETRIES, RETRIES  # noqa: PLC0415

    retries = RETRIES if is_patient else NO_RETRIES
    if is_patient:
        _wait_until_listening(url)
    if encryption is None:
        return connect(url, key=key, ca_file=ca_file, retries=retries)
    from lavant.client.encryption import Key as EncryptionKey  # noqa: PLC0415

    return connect(url, key=key, ca_file=ca_file, retries=retries, encryption=EncryptionKey.load(encryption))


def _wait_until_listening(url: str) -> None:
    """Retry while the connection is refused; the client reports any other error better."""
    from lavant.client.connection.retries import Retries  # noqa: PLC0415
    from lavant.core.addresses import Address  # noqa: PLC0415

    address = Address.parse(url)
    for attempt, pause_s in enumerate(Retries(within_s=LISTENS_WITHIN_S).pauses_s()):
        try:
            socket.create_connection((address.host, address.port), LISTENS_WITHIN_S).close()
        except ConnectionRefusedError:
            if attempt == 0:
                text = f"nothing listens at {address} yet; waiting up to {LISTENS_WITHIN_S:g} s"
                note(f"lavant: {text}")
            time.sleep(pause_s)
        except OSError:
            return
        else:
            return


def ask_http(
    url: str,
    path: str,
    key: str,
    ca_file: Path | None,
    *,
    method: str = "GET",
    body: object = None,
    timeout_s: float = HTTP_S_MAX,
) -> dict[str, Any]:
    """Ask the HTTP interface, which shares the port; returns the JSON of the answer, and raises a refusal."""
    from lavant.cli.reports.fetch import fetch  # noqa: PLC0415

    data = None if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads(fetch(url, path, key, ca_file, method=method, body=data, timeout_s=timeout_s))
    return answer


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def set_quiet(is_quiet: bool) -> None:
    """Whether `report`, `note` and progress print nothing, for the command that runs."""
    _quiet.set(is_quiet)


def report(text: str, *, as_json: bool, **fields: Any) -> None:
    """Say that a command has done its work: a sentence unless it is to be quiet, or these fields as JSON."""
    if as_json:
        print_json(fields)
    elif not _quiet.get():
        print(text, flush=True)


def note(text: str) -> None:
    """Tell a person something on standard error, unless the command is to be quiet."""
    if not _quiet.get():
        print(text, file=sys.stderr, flush=True)


def confirm(question: str) -> None:
    """Ask a person on standard error; the command ends unless the answer is yes."""
    try:
        is_sure = typer.confirm(question, err=True)
    except typer.Abort:  # no answer at all, as in a script
        print(file=sys.stderr)
        is_sure = False
    if not is_sure:
        print("lavant: nothing was changed; answer y, or give --yes", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED)


def bytes_of(argument: str) -> bytes:
    """The bytes of an argument that is sent as it is, also if they are not UTF-8.

    >>> bytes_of("größer"), bytes_of("\\udcff")
    (b'gr\\xc3\\xb6\\xc3\\x9fer', b'\\xff')
    """
    return argument.encode(errors="surrogateescape")


def check_readable(path: Path) -> None:
    """Raise in one line if a file cannot be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidValue(f"cannot read {path}: {error.strerror}") from None


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = (), has_header: bool = True
) -> None:
    """Print a table to standard output, with the columns in `numbers` aligned to the right.

    A terminal's rows are folded to its width. A file or pipe gets each row on one line.
    """
    if not sys.stdout.isatty():
        _print_plain_table(columns, rows, numbers=numbers, has_header=has_header)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, show_header=has_header)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    Console(markup=False, highlight=False).print(table)


def console() -> Console:
    """Standard output in colours. A terminal's lines are folded to its width; those of a file or pipe stay whole."""
    from rich.console import Console  # noqa: PLC0415

    return Console(highlight=False, width=None if sys.stdout.isatty() else LINE_CHARACTERS_MAX)


def narrator(*, as_json: bool) -> Console:
    """Where a demonstration tells what happens; its figures as JSON have standard output to themselves."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=as_json, quiet=as_json and _quiet.get())


def _print_plain_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str], has_header: bool
) -> None:
    cells = [list(columns)] if has_header else []
    cells += [[printable(cell) for cell in row] for row in rows]
    widths = [max((len(row[place]) for row in cells), default=0) for place in range(len(columns))]
    for row in cells:
        padded = (
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        print("  ".join(padded).rstrip())


def progress_console() -> Console:
    """Standard error, for progress. It prints nothing if the command is to be quiet, or if this is no terminal."""
    from rich.console import Console  # noqa: PLC0415

    shown = Console(stderr=True)
    shown.quiet = _quiet.get() or not shown.is_terminal
    return shown


@contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar of `total` steps; call the result with the name of each finished step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, advance=1, description=done)


def body_of(body: bytes) -> dict[str, str]:
    """A body as a JSON field: UTF-8 as text, anything else in base64.

    >>> body_of("größer".encode()), body_of(bytes([255]))
    ({'body': 'größer'}, {'body_base64': '/w=='})
    """
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def printable(text: str) -> str:
    """Text that is safe to print on one line of a terminal: control characters are escaped.

    >>> printable("two\\nlines, größer \\x1b[2J")
    'two\\\\nlines, größer \\\\x1b[2J'
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "queue"), counted(1200, "queue")
    ('1 queue', '1,200 queues')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def time_of(time_ms: int) -> str:
    """
    >>> time_of(1_500)
    '1970-01-01T00:00:01.500Z'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
