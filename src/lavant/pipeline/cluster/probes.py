"""Measurements of tasks per slice, for the manager. They return to the driver with the results of the tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterable

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

    def put(self, probes: Iterable[Probe]) -> None:
        with self._lock:
            self._probes += probes

    def take(self, store: str = UNKNOWN) -> list[Probe]:
        """All probes of a store since the last call; those of other stores are dropped."""
        with self._lock:
            taken, self._probes = self._probes, []
        return [probe for probe in taken if not is_other(store, probe.store)]
