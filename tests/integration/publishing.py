"""Transports in memory, and a publisher in a process of its own that can be killed.

python -m tests.integration.publishing DIRECTORY FILE

publishes 1, 2, 3, … until it is killed: prints `stored N` when all up to N are durable, and appends the ids of what the
transport takes to FILE.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock

from lavant.client.publisher import Publisher
from lavant.core.ids import PublicationId
from lavant.core.publications.publication import Publication


def publication(number: int, size: int = 0) -> Publication:
    return Publication(id=PublicationId(str(number)), attributes={"n": number}, payload=bytes(size) if size else None)


class Recorder:
    """Takes everything, once it is open, and does with each batch what it is told to."""

    def __init__(self, *, is_open: bool = True, act: Callable[[list[Publication]], None] = lambda batch: None) -> None:
        self.ids: list[str] = []
        self.calls = 0
        self.is_open = Event()
        self._act = act
        self._lock = Lock()
        if is_open:
            self.is_open.set()

    def publish(self, batch: list[Publication]) -> None:
        with self._lock:
            self.calls += 1
        self.is_open.wait()
        self._act(batch)
        with self._lock:
            self.ids.extend(one.id for one in batch)


def main(directory: Path, taken: Path) -> None:
    file = os.open(taken, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(batch: list[Publication]) -> None:
        os.write(file, "".join(f"{one.id}\n" for one in batch).encode())

    publisher = Publisher(Recorder(act=note), directory)
    number = 0
    while True:
        for _ in range(50):
            number += 1
            assert publisher.publish(publication(number), wait_s=60)
        assert publisher.flush(60)
        print(f"stored {number}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
