"""A queue of a million messages: what receiving costs, what a message takes in memory, and how long a restart takes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.bench.queues.clients import BODY
from tests.bench.queues.servers import lavant

from lavant import connect
from lavant.client.queues import Queue

MESSAGES = 1_000_000
BATCH = 500
SAMPLES = 1000


class Depth(NamedTuple):
    empty_us: float
    """Median of a receive from a queue that holds just that message."""
    deep_us: float
    bytes_each: float
    """Resident memory beyond the bodies."""
    restart_s: float


def measure_depth(home: Path) -> Depth:
    directory = home / "deep"
    with lavant(directory) as (port, process):
        with connect(f"lavant://127.0.0.1:{port}") as client:
            shallow, deep = client.create_queue("shallow"), client.create_queue("deep")
            shallow.send(BODY)
            empty_us = _receive_us(shallow)
            before = _resident_bytes(process)
            for _ in range(MESSAGES // BATCH):
                deep.send_many([BODY] * BATCH)
            bytes_each = (_resident_bytes(process) - before) / MESSAGES - len(BODY)
            deep_us = _receive_us(deep)
        os.kill(process, signal.SIGKILL)
    began = time.monotonic()
    with lavant(directory) as (port, _), connect(f"lavant://127.0.0.1:{port}") as client:
        restart_s = time.monotonic() - began
        figures = client.queue("deep").describe().figures
        assert figures.visible + figures.in_flight == MESSAGES, "a restart lost messages"
    return Depth(empty_us, deep_us, bytes_each, restart_s)


def _receive_us(queue: Queue) -> float:
    """Median of one receive; the message is given back each time."""
    taken = []
    for _ in range(SAMPLES):
        began = time.perf_counter()
        received = queue.receive(1)
        taken.append(time.perf_counter() - began)
        queue.change_visibility(received[0], visibility_s=0)
    return float(np.median(taken)) * 1e6


def _resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
