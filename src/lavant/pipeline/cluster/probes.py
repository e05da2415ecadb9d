"""Measurements of tasks per slice, for the manager. They return to the driver with the results of the tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from lavant.broker.slices.layout import MATCH
from lavant.core.identities import UNKNOWN, is_other


class Probe(msgspec.Struct):
    """Of one slice on one host in one batch."""

    host: int
    slice: int
    cpu_s: float = 0.0
    publications: int = 0
    matches: int = 0
    memory_bytes: int = 0
    store: str = UNKNOWN
    """Identity of the slice's store."""
    operator: str = MATCH

    def add(self, *, cpu_s: float, publications: int, matches: int, memory_bytes: int = 0) -> None:
        self.cpu_s += cpu_s
        self.publications += publications
        self.matches += matches
        self.memory_bytes = max(self.memory_bytes, memory_bytes)


class ProbeBuffer:
    """Probes of finished batches, until the manager takes them; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probes: list[Probe] = []
        self._under_way = 0

    def begin(self) -> None:
        """A batch has begun; its probes come when it ends."""
        with self._lock:
            self._under_way += 1

    def put(self, probes: Iterable[Probe]) -> None:
        with self._lock:
            self._probes += probes

    def end(self) -> None:
        with self._lock:
            self._under_way -= 1

    @contextmanager
    def batch(self) -> Iterator[None]:
        """For a batch that begins and ends here."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def is_awaiting(self) -> bool:
        """Whether there are no new probes although a batch is under way: what it costs is not known yet."""
        with self._lock:
            return self._under_way > 0 and not self._probes

    def take(self, store: str = UNKNOWN) -> list[Probe]:
        """All probes of a store since the last call; those of other stores are dropped."""
        with self._lock:
            taken, self._probes = self._probes, []
        return [probe for probe in taken if not is_other(store, probe.store)]


class ProbeSampler:
    """Divides the stream of probes into samples, each of at least `sample_ms`.

    Probes come at the end of a batch. A sample in the middle of a batch, or in the pause between two, would show an
    idle host; then a rule that must hold for a whole window would hold for no busy one.
    """

    def __init__(self, buffer: ProbeBuffer, sample_ms: int) -> None:
        self._buffer = buffer
        self._sample_ms = max(1, sample_ms)
        self._last_ms: int | None = None

    def sample(self, store: str, now_ms: int) -> tuple[list[Probe], float] | None:
        """The probes since the last sample, and the seconds since then; None if it is too early for a sample."""
        if self._last_ms is None or now_ms < self._last_ms:
            self._buffer.take()
            self._last_ms = now_ms
            return None
        if now_ms - self._last_ms < self._sample_ms or self._buffer.is_awaiting():
            return None
        seconds = (now_ms - self._last_ms) / 1000
        self._last_ms = now_ms
        return self._buffer.take(store), seconds
