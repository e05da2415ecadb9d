"""Progress of kernel compilation on standard error: a bar on a terminal, otherwise lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lavant.cli.common import note, progress_console

if TYPE_CHECKING:
    from lavant.core.kernels.warmup import WarmupProgress

LINE_S = 5.0
"""Time between two lines."""


@contextmanager
def shown_progress() -> Iterator[Callable[[WarmupProgress], None]]:
    """Call the result with each progress. Prints nothing if nothing is compiled."""
    with _progress() as show:
        yield _CacheWarning(show)


class _CacheWarning:
    """Warns once if compiled kernels cannot be cached."""

    def __init__(self, show: Callable[[WarmupProgress], None]) -> None:
        self._show = show
        self._is_first = True

    def __call__(self, at: WarmupProgress) -> None:
        from lavant.core.kernels.cache import cache_state  # noqa: PLC0415

        problem = cache_state().problem if self._is_first else None
        self._is_first = False
        if problem is not None:
            note(f"lavant: kernels are compiled again at each start: {problem}")
        self._show(at)


@contextmanager
def _progress() -> Iterator[Callable[[WarmupProgress], None]]:
    console = progress_console()
    if not console.is_terminal:
        yield _Lines()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", visible=False)
        yield lambda at: bar.update(task, description=str(at), completed=at.compiled, total=at.kinds, visible=True)


class _Lines:
    def __init__(self) -> None:
        self._last_s = -LINE_S

    def __call__(self, at: WarmupProgress) -> None:
        now_s = time.monotonic()
        if now_s >= self._last_s + LINE_S:
            self._last_s = now_s
            note(f"lavant: {at}")
