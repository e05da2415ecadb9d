"""`lavant check`: verify a data directory, and save a readable copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, counted, progress_console, time_of

if TYPE_CHECKING:
    from lavant.service.storage.check import CheckReport, Contents
    from lavant.service.storage.repair import Repaired

DAMAGED = 3
"""Data is lost or corrupt: a server does not open it."""
OBSTRUCTED = 4
"""The data is intact, but a server does not open it here: permissions, space, older version."""
_BAR_BYTES_MIN = 64 << 20


def check(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="data directory, as in `lavant serve --data`")],
    repair: Annotated[
        Path | None,
        typer.Option(metavar="NEW", help="write a copy that opens to this directory, and list what was left out"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a data directory and summarise its contents. The directory is never changed.

    Stop its server first. Exit code 0 if a server can open it, 3 if it is damaged, 4 if it is intact but a
    server cannot open it here (permissions, older version), 2 if it is not a data directory, 7 if it is in use.
    """
    import msgspec  # noqa: PLC0415

    from lavant.service.storage.check import check as check_directory  # noqa: PLC0415
    from lavant.service.storage.check import size_of  # noqa: PLC0415
    from lavant.service.storage.directory_errors import checked_directory  # noqa: PLC0415
    from lavant.service.storage.repair import repair as repair_directory  # noqa: PLC0415

    checked_directory(data)
    with byte_bar(size_of(data)) as on_read:
        if repair is not None:
            repaired = repair_directory(data, repair, on_read)
        else:
            report = check_directory(data, on_read)
    if repair is not None:
        print(msgspec.json.encode(repaired).decode()) if as_json else _show_repaired(repaired)
        return
    print(msgspec.json.encode(report).decode()) if as_json else _show(report)
    levels = {finding.level for finding in report.findings}
    if "damage" in levels:
        raise typer.Exit(DAMAGED)
    if not report.opens:
        raise typer.Exit(OBSTRUCTED)


@contextmanager
def byte_bar(size_bytes: int, name: str = "reading") -> Iterator[Callable[[int], None]]:
    """A progress bar, on a terminal and for large directories. Call the result with the size of each part."""
    from rich.progress import Progress  # noqa: PLC0415

    console = progress_console()
    if console.quiet or size_bytes < _BAR_BYTES_MIN:
        yield lambda size: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(name, total=size_bytes)
        yield lambda size: progress.advance(task, size)


def _show(report: CheckReport) -> None:
    for finding in report.findings:
        print(f"{finding.level.upper() if finding.level != 'note' else 'note':<9}{finding.said}")
        print(f"{'':<9}→ {finding.remedy}")
    print(f"{report.directory}: {report.size_bytes:,} bytes; {'opens' if report.opens else 'does not open'}")
    if report.contents is not None:
        print(contents_line(report.contents))


def _show_repaired(repaired: Repaired) -> None:
    if repaired.problem:
        print(f"kept everything up to record {repaired.position}; then: {repaired.problem}")
    else:
        print(f"kept all {repaired.position} records")
    for kind, count in sorted(repaired.left_out.items()):
        print(f"left out {count:>9,}  {kind}")
    print(f"{repaired.directory} opens; {repaired.report} lists what was left out")
    print(contents_line(repaired.contents))


def contents_line(contents: Contents) -> str:
    flight = f" ({contents.in_flight:,} in flight)" if contents.in_flight else ""
    waiting = f", {contents.owed:,} publications for the Spark engine" if contents.owed else ""
    return (
        f"{counted(contents.queues, 'queue')} with {counted(contents.messages, 'message')}{flight}, "
        f"{counted(contents.subscriptions, 'subscription')}, {counted(contents.advertisements, 'advertisement')}, "
        f"{counted(contents.jobs, 'job')} under way{waiting}; last record at {time_of(contents.time_ms)}"
    )
