"""Progress of an experiment on the terminal; standard output stays for the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar; what it yields is told what has just been done, `total` times."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task(name, total=total)
        yield lambda done: bar.update(shown, advance=1, description=done)
