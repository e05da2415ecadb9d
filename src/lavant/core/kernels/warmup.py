"""Warm-up: have kernels compiled, or loaded if they were before, ahead of their first use.

A package with kernels has a module `warmup` with a `KernelSet`: a function that calls each of them with every kind of
arguments that it is used with (`lavant.broker.warmup`, `lavant.models.warmup`, `lavant.pipeline.warmup`). The server,
Spark's workers, `lavant warm-up` and tests run the sets that they need through `warm_up`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from numba.core import event

from lavant.core.kernels.cache import cache_state, locked, prune
from lavant.core.kernels.kernels import KERNELS


class KernelSet(NamedTuple):
    """The kernels of a package."""

    call_all: Callable[[], None]
    kinds: int
    """Of kernels and argument types, that is compilations if nothing is there yet."""


class WarmupProgress(NamedTuple):
    """How far a warm-up is. One that only loads has none to speak of."""

    compiled: int
    kinds: int
    is_elsewhere: bool = False

    def __str__(self) -> str:
        if self.is_elsewhere:
            return "waiting for another process that is compiling kernels"
        return f"compiling kernels {self.compiled}/{self.kinds}, once for this version and processor"


def warm_up(
    sets: Sequence[KernelSet],
    on_progress: Callable[[WarmupProgress], None] = lambda progress: None,
    *,
    pause: Callable[[], None] | None = None,
    is_locked: bool = True,
) -> int:
    """Call the kernels; how many had to be compiled. `on_progress` is told of each, and may raise to make an end of it.

    Of several processes that start at the same time one compiles, and the others wait for it and load what it has left.
    While it waits, `pause` is called again and again, if it is given. Whoever only loads needs no lock (`is_locked`).
    """
    counter = _Counter(sum(each.kinds for each in sets), on_progress)

    def wait() -> None:
        on_progress(WarmupProgress(0, counter.kinds, is_elsewhere=True))
        assert pause is not None
        pause()

    directory = cache_state().directory
    lock = (
        locked(directory, None if pause is None else wait)
        if is_locked and directory is not None
        else contextlib.nullcontext()
    )
    with lock, _heard_by(counter):
        for each in sets:
            each.call_all()
    if counter.compiled and directory is not None:
        prune(directory)
    return counter.compiled


class _Counter(event.Listener):
    """Hears of each compilation; those of Numba's own functions, inside of ours, do not count."""

    def __init__(self, kinds: int, on_progress: Callable[[WarmupProgress], None]) -> None:
        self.kinds = kinds
        self.compiled = 0
        self._on_progress = on_progress

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in KERNELS:
            self.compiled += 1
            self._on_progress(WarmupProgress(self.compiled, self.kinds))

    def on_end(self, event: Any) -> None:
        """The start of the next says enough."""


@contextlib.contextmanager
def _heard_by(counter: _Counter) -> Iterator[None]:
    events: Any = event  # Numba has few types
    events.register("numba:compile", counter)
    try:
        yield
    finally:
        events.unregister("numba:compile", counter)
