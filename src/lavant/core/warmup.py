"""Warm-up: have all kernels compiled, or loaded if they were before, ahead of their first use.

A package with kernels has a module `warmup` with one function that calls each of them with every kind of arguments that
it is used with (`lavant.broker.warmup`, `lavant.models.warmup`, `lavant.pipeline.warmup`). Whoever is going to need them
runs these functions through `warm_up`: the server, Spark's workers, `lavant warm-up`, and tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from numba.core import event

from lavant.core.kernel_cache import cache_state, locked, prune
from lavant.core.kernels import KERNELS

Exercise = Callable[[], None]


class Progress(NamedTuple):
    """How far a warm-up is. While nothing has to be compiled, there is none."""

    compiled: int
    kernels: int

    def __str__(self) -> str:
        return f"compiling kernels {self.compiled}/{self.kernels}, once for this version and processor"


def warm_up(exercises: Sequence[Exercise], on_progress: Callable[[Progress], None] = lambda progress: None) -> int:
    """Call the kernels; how many had to be compiled. `on_progress` is told of each, and may raise to make an end of it.

    Of several processes that start at the same time one compiles, and the others wait for it and load what it has left.
    """
    directory = cache_state().directory
    counter = _Counter(on_progress)
    with locked(directory) if directory is not None else contextlib.nullcontext(), _listening(counter):
        for exercise in exercises:
            exercise()
    if counter.compiled and directory is not None:
        prune(directory)
    return counter.compiled


class _Counter(event.Listener):  # type: ignore[misc]  # Numba has no types
    """Hears of each compilation; those of Numba's own functions, inside of ours, do not count."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self.compiled = 0
        self._on_progress = on_progress
        self._seen: set[int] = set()

    def on_start(self, event: Any) -> None:
        kernel = event.data["dispatcher"]
        if kernel in KERNELS:
            self.compiled += 1
            self._seen.add(id(kernel))
            self._on_progress(Progress(len(self._seen), len(KERNELS)))

    def on_end(self, event: Any) -> None:
        """The next one's start says enough."""


@contextlib.contextmanager
def _listening(counter: _Counter) -> Iterator[None]:
    event.register("numba:compile", counter)
    try:
        yield
    finally:
        event.unregister("numba:compile", counter)
