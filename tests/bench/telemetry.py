"""What telemetry costs a server, in CPU time, for messages and publications in batches of several sizes.

python -m tests.bench.telemetry [PAIRS] [nothing]

In one server telemetry is switched on and off again and again, so that both see the same machine: the CPU time of the
event loop's thread is compared in many pairs of short slices of work, of which now the one and now the other comes
first. What telemetry's own thread used is added to that. With `nothing`, what is switched on does nothing: what comes
out then is how far the method can be trusted.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from tests.integration.frames import FrameClient

from lavant.broker.queues.commands import Acknowledge, CreateQueue, Entry, ListQueues, PurgeQueue, Receive, Send
from lavant.broker.queues.config import QueueConfig
from lavant.broker.subscriptions.commands import Publish, Subscribe

MESSAGES = 500


def _nothing(*_: Any) -> None:
    pass


def serve(*, does_nothing: bool) -> None:
    """In the process that is measured: a signal switches telemetry."""
    from lavant.service import process, server
    from lavant.service.settings import ServeSettings

    def report_to(self: server.Service, events: Any) -> None:
        original(self, events)
        observe, access = self._server.observe, self.access
        hooks = (access.on_arrived, access.on_matched)
        if does_nothing:
            observe, hooks = _nothing, (_nothing, _nothing)

        def switch(*_: Any) -> None:
            is_on = self._server.observe is not None
            self._server.observe = None if is_on else observe
            access.on_arrived, access.on_matched = (_nothing, _nothing) if is_on else hooks

        signal.signal(signal.SIGUSR1, switch)

    original = server.Service.report_to
    server.Service.report_to = report_to  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        settings = ServeSettings(port=0, telemetry=Path(place))
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
        self.client = FrameClient(int(port))
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


def cycles(client: FrameClient, batch: int) -> None:
    for _ in range(MESSAGES // batch):
        client.ask(Send("q", [Entry(b"x" * 100)] * batch))
        received = client.ask(Receive("q", batch))
        client.ask(Acknowledge("q", [delivery.receipt for delivery in received.deliveries]))


def publishes(client: FrameClient, batch: int) -> None:
    """Each goes to 5 of 100 subscribers."""
    for number in range(MESSAGES // batch):
        client.ask(Publish([b'{"a": %d, "text": "something"}' % ((number * batch + i) % 20) for i in range(batch)]))
    for number in range(100):
        client.ask(PurgeQueue(f"s{number}"))


def main(pairs: int, *options: str) -> None:
    pairs += pairs % 2  # so that it is on again after the last
    server = Server(*options)
    server.client.ask(CreateQueue("q", QueueConfig()))
    for number in range(100):
        server.client.ask(Subscribe(f"a = {number % 20}", f"s{number}"))
    for name, work, batch in (
        ("messages one by one", cycles, 1),
        ("messages by 10", cycles, 10),
        ("publications by 10", publishes, 10),
    ):
        used: dict[bool, list[float]] = {True: [], False: []}
        own_us = server.telemetry_us()
        is_on = True
        for number in range(2 * pairs):
            before_us = server.loop_us()
            work(server.client, batch)
            used[is_on].append((server.loop_us() - before_us) / MESSAGES)
            if number % 2 == 0:  # on, off; off, on; and so forth
                server.switch()
                is_on = not is_on
        without = statistics.median(used[False])
        more = np.sort(np.array(used[True]) - np.array(used[False]))
        spread = int(np.sqrt(pairs))  # the median lies between these ranks, in 19 of 20 cases
        low, middle, high = more[pairs // 2 - spread], np.median(more), more[pairs // 2 + spread]
        own = (server.telemetry_us() - own_us) / pairs / MESSAGES
        print(
            f"{name}: {without:.2f} µs without telemetry; with it {middle:+.2f} ({low:+.2f} to {high:+.2f}) in the "
            f"loop and {own:+.2f} µs beside it, {(middle + own) / without:+.1%}",
            flush=True,
        )
    server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(does_nothing="nothing" in sys.argv)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, *sys.argv[2:])
