"""What all of `lavant queue …` have in common: which server, and how results are shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lavant.client.queues import QueueClient

Url = Annotated[str, typer.Option(help="the server", envvar="LAVANT_URL")]
TokenFile = Annotated[Path | None, typer.Option(help="secret to show to the server", envvar="LAVANT_TOKEN_FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Name = Annotated[str, typer.Argument(metavar="QUEUE", help="the queue's name")]


def client(url: str, token_file: Path | None) -> QueueClient:
    """A connection; without retries, because somebody is looking."""
    from lavant.client.queues import QueueClient  # noqa: PLC0415
    from lavant.client.queues.retrying import NO_RETRIES  # noqa: PLC0415
    from lavant.console.cli.secrets import read_token  # noqa: PLC0415

    token = b"" if token_file is None else read_token(token_file)
    return QueueClient.connect(url, token=token, retries=NO_RETRIES)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[str] = (), has_header: bool = True
) -> None:
    """A table on standard output; the columns in `numbers` are aligned to the right."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, show_header=has_header)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    Console(markup=False, highlight=False).print(table)


def body_of(body: bytes) -> dict[str, str]:
    """For JSON: text as text, anything else in base64.

    >>> body_of("größer".encode()), body_of(bytes([255]))
    ({'body': 'größer'}, {'body_base64': '/w=='})
    """
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def printable(text: str) -> str:
    """On one line of a terminal, whatever it holds.

    >>> printable("two\\nlines, größer \\x1b[2J")
    'two\\\\nlines, größer \\\\x1b[2J'
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def time_of(time_ms: int) -> str:
    """
    >>> time_of(1_500)
    '1970-01-01T00:00:01.500Z'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
