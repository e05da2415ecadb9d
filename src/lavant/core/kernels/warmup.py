"""Warm-up: compiles kernels, or loads them from the cache, before their first use.

A package with kernels has a module `warmup` with a `KernelSet`: a function that calls each kernel with all argument
types in use (`lavant.broker.warmup`, `lavant.models.warmup`, `lavant.pipeline.warmup`). The server,
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

    name: str
    call_all: Callable[[], None]
    kinds: int
    """The number of pairs of kernel and argument types, that is of compilations with an empty cache."""


class WarmupProgress(NamedTuple):
    """The progress of a warm-up that compiles."""

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
    """Calls the kernels and returns how many were compiled. `on_progress` is called for each, and may raise to stop.

    Of several processes that want a set at once, one compiles it; the others wait and load it. While a process waits,
    `pause` is called repeatedly, if given. A process that only loads needs no lock (`is_locked`).
    """
    counter = _Counter(sum(each.kinds for each in sets), on_progress)

    def wait() -> None:
        on_progress(WarmupProgress(0, counter.kinds, is_elsewhere=True))
        assert pause is not None
        pause()

    directory = cache_state().directory
    for each in sets:
        lock = (
            locked(directory, None if pause is None else wait, each.name)
            if is_locked and directory is not None
            else contextlib.nullcontext()
        )
        with lock, _heard_by(counter):
            each.call_all()
    if counter.compiled and directory is not None:
        prune(directory)
    return counter.compiled


class _Counter(event.Listener):
    """Listens to compilations; those of Numba's own functions inside of ours do not count."""

    def __init__(self, kinds: int, on_progress: Callable[[WarmupProgress], None]) -> None:
        self.kinds = kinds
        self.compiled = 0
        self._on_progress = on_progress

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"] in KERNELS:
            self.compiled += 1
            self._on_progress(WarmupProgress(self.compiled, self.kinds))

    def on_end(self, event: Any) -> None:
        """Does nothing: the start of the next compilation is enough."""


@contextlib.contextmanager
def _heard_by(counter: _Counter) -> Iterator[None]:
    events: Any = event  # Numba has few types
    events.register("numba:compile", counter)
    try:
        yield
    finally:
        events.unregister("numba:compile", counter)
