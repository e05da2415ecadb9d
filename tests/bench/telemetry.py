"""What telemetry costs a server: its CPU time for the same work without telemetry, with figures, and with files.

python -m tests.bench.telemetry [ROUNDS]

The kinds take turns in one run, and the least of several rounds counts: what else the machine does only ever adds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.frames import FrameClient

from lavant.broker.queues.commands import Acknowledge, CreateQueue, Entry, PurgeQueue, Receive, Send
from lavant.broker.queues.config import QueueConfig
from lavant.broker.subscriptions.commands import Publish, Subscribe

KINDS = ("without", "figures", "files")
MESSAGES = 4000


def serve(kind: str) -> None:
    """In the process that is measured."""
    from lavant.service import process, server
    from lavant.service.settings import ServeSettings

    if kind == "without":
        server.Service.report_to = lambda self, events: None  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        telemetry = Path(place) if kind == "files" else None
        process.run(ServeSettings(port=0, telemetry=telemetry), lambda started: print(started.port, flush=True))


class Server:
    """A process of one kind."""

    def __init__(self, kind: str) -> None:
        command = [sys.executable, "-m", "tests.bench.telemetry", "serve", kind]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.client = FrameClient(int(self._process.stdout.readline()))

    def cpu_s(self) -> float:
        """Used until now, by all threads."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def stop(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait()


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


def main(rounds: int) -> None:
    servers = {kind: Server(kind) for kind in KINDS}
    for server in servers.values():
        server.client.ask(CreateQueue("q", QueueConfig()))
        for number in range(100):
            server.client.ask(Subscribe(f"a = {number % 20}", f"s{number}"))
    for name, work, batch in (
        ("messages one by one", cycles, 1),
        ("messages by 10", cycles, 10),
        ("publications by 10", publishes, 10),
    ):
        used: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind, server in servers.items():
                before_s = server.cpu_s()
                work(server.client, batch)
                used[kind].append((server.cpu_s() - before_s) / MESSAGES * 1e6)
        for kind in KINDS:
            share = min(used[kind]) / min(used["without"]) - 1
            print(f"{name}, {kind}: {min(used[kind]):.2f} µs of CPU each, {share:+.1%}", flush=True)
    for server in servers.values():
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
