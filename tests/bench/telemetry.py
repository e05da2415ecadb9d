"""What telemetry costs a server, in CPU time, for messages and publications in batches of several sizes.

python -m tests.bench.telemetry [PAIRS] [nothing]

In one durable server telemetry is switched on and off again and again, so that both see the same machine: the CPU time
of the event loop's thread is compared in many pairs of short slices of work, of which now the one and now the other
comes first. Clients keep the server as busy as they can. What telemetry's own thread used, from its second file on, is
added to that. With `nothing`, what is switched on does nothing: what comes out then is how far the method can be
trusted.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.bench.queues.cycles import connected
from tests.integration.frames import FrameClient

from lavant.broker.protocol.queues import ListQueues, PurgeQueue
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.service.observability.telemetry.telemetry import FILE_S

SLICE_S = 0.06
CLIENTS = 8
PUBLICATIONS = 1000
AT_ONCE = 50
"""Requests to publish on their way together."""
Work = Callable[[], int]
"""Does something, and says for how many messages or publications."""


def _nothing(*_: Any) -> None:
    pass


def serve(*, does_nothing: bool) -> None:
    """In the process that is measured: a signal switches telemetry."""
    from lavant.service.runtime import broker_runtime as server
    from lavant.service.runtime import process
    from lavant.service.runtime.settings import ServeSettings

    def report_to(self: server.BrokerRuntime, events: Any, *others: Any) -> None:
        original(self, events, *others)
        observers, ingest = self._server._observers, self.ingest
        hooks = (ingest.on_arrived, ingest.on_matched)
        if does_nothing:
            observers, hooks = dict.fromkeys(observers, _nothing), (_nothing, _nothing)

        def switch(*_: Any) -> None:
            is_on = self._server._observers is observers
            self._server._observers = {} if is_on else observers
            ingest.on_arrived, ingest.on_matched = (_nothing, _nothing) if is_on else hooks

        signal.signal(signal.SIGUSR1, switch)

    original = server.BrokerRuntime.report_to
    server.BrokerRuntime.report_to = report_to  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        settings = ServeSettings(port=0, data=Path(place) / "data", telemetry=Path(place) / "telemetry")
        process.run(settings, lambda started: print(started.port, _native_id("telemetry"), flush=True))


def _native_id(name: str) -> int | None:
    return next(thread.native_id for thread in threading.enumerate() if thread.name == name)


class Server:
    """The process, and what its threads used."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tests.bench.telemetry", "serve", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port, thread = self._process.stdout.readline().split()
        self.port = int(port)
        self.client = FrameClient(self.port)
        self._thread = thread
        self._tasks = Path(f"/proc/{self._process.pid}/task")

    def switch(self) -> None:
        self._process.send_signal(signal.SIGUSR1)
        self.client.ask(ListQueues())  # the signal has been seen when this is answered

    def loop_us(self) -> float:
        return _used_us(self._tasks / str(self._process.pid))

    def telemetry_us(self) -> float:
        return _used_us(self._tasks / self._thread)

    def stop(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait()


def _used_us(task: Path) -> float:
    return int((task / "schedstat").read_text().split()[0]) / 1000


@contextmanager
def _messages(server: Server, batch: int) -> Iterator[Work]:
    """Each client sends to a queue of its own, receives and acknowledges."""
    with connected("lavant, lean", server.port, clients=CLIENTS, batch=batch) as clients:
        yield lambda: batch * len(clients.run(SLICE_S))


@contextmanager
def _publications(server: Server, batch: int) -> Iterator[Work]:
    """Each goes to 5 of 100 subscribers."""
    client = server.client
    for number in range(100):
        client.ask(Subscribe(f"a = {number % 20}", f"s{number}"))
    publications = [b'{"a": %d, "text": "something"}' % (number % 20) for number in range(PUBLICATIONS)]
    requests = [Publish(publications[start : start + batch]) for start in range(0, PUBLICATIONS, batch)]

    def publish() -> int:
        for start in range(0, len(requests), AT_ONCE):
            client.ask_all(requests[start : start + AT_ONCE])
        client.ask_all([PurgeQueue(f"s{number}") for number in range(100)])
        return PUBLICATIONS

    yield publish


def _measure(server: Server, work: Work, pairs: int) -> str:
    until_s = time.monotonic() + FILE_S + 2.0
    while time.monotonic() < until_s:  # with the first file, what writes files is loaded
        work()
    used: dict[bool, list[float]] = {True: [], False: []}
    done = {True: 0, False: 0}
    own_us, is_on = server.telemetry_us(), True
    for number in range(2 * pairs):
        before_us = server.loop_us()
        count = work()
        used[is_on].append((server.loop_us() - before_us) / count)
        done[is_on] += count
        if number % 2 == 0:  # on, off; off, on; and so forth
            server.switch()
            is_on = not is_on
    without = statistics.median(used[False])
    more = np.sort(np.array(used[True]) - np.array(used[False]))
    spread = int(np.sqrt(pairs))  # the median lies between these ranks, in 19 of 20 cases
    low, middle, high = more[pairs // 2 - spread], np.median(more), more[pairs // 2 + spread]
    own = (server.telemetry_us() - own_us) / done[True]
    return (
        f"{without:.2f} µs without telemetry; with it {middle:+.2f} ({low:+.2f} to {high:+.2f}) in the loop and "
        f"{own:+.2f} µs beside it, {(middle + own) / without:+.1%}"
    )


def main(pairs: int, *options: str) -> None:
    pairs += pairs % 2  # so that it is on again after the last
    server = Server(*options)
    for name, load, batch in (
        ("messages one by one", _messages, 1),
        ("messages by 10", _messages, 10),
        ("publications by 10", _publications, 10),
    ):
        with load(server, batch) as work:
            print(f"{name}: {_measure(server, work, pairs)}", flush=True)
    server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(does_nothing="nothing" in sys.argv)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 400, *sys.argv[2:])
