"""`lavant pub`: publish one publication, or those of a file or standard input."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import (
    EXIT_FAILED,
    AsJson,
    CaFile,
    Encryption,
    Key,
    Url,
    bytes_of,
    client,
    print_json,
    progress_console,
    report,
)
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.cli.messaging.publications import Read
    from lavant.client.client import Client

AT_ONCE = 500
PACES_PER_S = 20
"""Batches per second under --rate, so that the load is even."""
REASONS_SHOWN_MAX = 10


def pub(
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE", help="attributes of one publication; without, each line of standard input is one"
        ),
    ] = None,
    payload: Annotated[str | None, typer.Option(help="payload, as text")] = None,
    file: Annotated[
        Path | None, typer.Option(help="read from this file instead: .csv, .parquet, otherwise JSON lines")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="publications per second at most")] = None,
    encrypt: Encryption = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Publish, and print the id of the publication, or how many were published. Exit code 1 if some were refused.

    VALUE is a number, true or false as in JSON; "quoted" and anything else is text.

    A JSON line may also have "@id", "@time_ms" and "@payload" (base64).

    When the command has returned, the publications are durable.
    """
    from lavant.cli.messaging.publications import attributes_of, from_file, from_lines  # noqa: PLC0415

    if attributes and file is not None:
        raise InvalidValue("give NAME=VALUE or --file, not both")
    if not attributes and payload is not None:
        raise InvalidValue('--payload needs NAME=VALUE; in JSON lines, use "@payload" in base64')
    given = attributes_of(attributes or [])
    with client(url, key, ca_file, encryption=encrypt, is_patient=True) as server:
        if given:
            id = server.publish(given, payload=None if payload is None else bytes_of(payload))
            print_json({"id": id}) if as_json else print(id)
            return
        publishing = _Publishing(server, rate)
        publishing.run(from_lines(sys.stdin.buffer) if file is None else from_file(file))
    publishing.report(as_json=as_json)
    raise typer.Exit(EXIT_FAILED if publishing.refused else 0)


class _Publishing:
    """Publishes a stream of publications, at the rate if there is one."""

    def __init__(self, server: Client, rate: float | None) -> None:
        self.refused: dict[int, str] = {}
        """Reason of each refusal, by line or row number."""
        self._server = server
        self._rate = rate
        self._done = 0
        self._start_s = 0.0
        self._seconds = 0.0

    def run(self, publications: Iterator[Read]) -> None:
        from lavant.cli.messaging.publications import gathered  # noqa: PLC0415

        at_once = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate / PACES_PER_S)))
        with _progress() as show:
            for some in gathered(publications, at_once):
                if not self._done:  # do not count the time to read the first line
                    self._start_s = time.monotonic()
                self._publish(some)
                show(self._done)
                if self._rate is not None:
                    time.sleep(max(0.0, self._start_s + self._done / self._rate - time.monotonic()))
        self._seconds = time.monotonic() - self._start_s if self._done else 0.0

    def report(self, *, as_json: bool) -> None:
        published = self._done - len(self.refused)
        if not as_json:
            for number, reason in list(self.refused.items())[:REASONS_SHOWN_MAX]:
                print(f"lavant: line {number} was refused: {reason}", file=sys.stderr)
        report(
            f"{published:,} published in {self._seconds:.2f} s "
            f"({published / max(self._seconds, 1e-9):,.0f} per second), {len(self.refused):,} refused",
            as_json=as_json,
            published=published,
            refused=[{"line": number, "reason": reason} for number, reason in self.refused.items()],
            seconds=round(self._seconds, 3),
        )

    def _publish(self, some: list[Read]) -> None:
        from lavant.core.errors import PartlyRefused  # noqa: PLC0415

        good = [(each.number, each.content) for each in some if not isinstance(each.content, InvalidValue)]
        self.refused |= {each.number: str(each.content) for each in some if isinstance(each.content, InvalidValue)}
        try:
            self._server.publish_many([publication for _, publication in good])
        except PartlyRefused as partly:
            self.refused |= {good[place][0]: str(error) for place, error in partly.refused.items()}
        self._done += len(some)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A counter on standard error."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.completed:,} published"), TimeElapsedColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done: bar.update(task, completed=done)
