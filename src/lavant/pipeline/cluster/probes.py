"""Measurements of match tasks per slice, for the manager."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lavant.core.identities import UNKNOWN, is_other


class Probe(msgspec.Struct):
    """Of one slice on one host in one batch."""

    host: int
    slice: int
    cpu_s: float = 0.0
    publications: int = 0
    matches: int = 0
    memory_bytes: int = 0
    time_ms: int = 0
    store: str = UNKNOWN
    """Identity of the slice's store."""

    def add(self, *, cpu_s: float, publications: int, matches: int, memory_bytes: int) -> None:
        self.cpu_s += cpu_s
        self.publications += publications
        self.matches += matches
        self.memory_bytes = memory_bytes


def write_probes(directory: str, batch: int, probes: list[Probe], *, part: str = "") -> None:
    """One small file per task, renamed into place; a repeated task replaces its own. `part` tells logs apart."""
    if not probes:
        return
    path = Path(directory) / f"{batch:020d}-{part}{probes[0].host:04d}.json"
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(probes))
    temporary.replace(path)


def take_probes(directory: Path, store: str = UNKNOWN) -> list[Probe]:
    """All probes of a store since the last call, oldest batch first; deletes the files of all."""
    taken: list[Probe] = []
    for path in sorted(directory.glob("*.json")):
        probes = msgspec.json.decode(path.read_bytes(), type=list[Probe])
        taken += [probe for probe in probes if not is_other(store, probe.store)]
        path.unlink()
    return taken
