"""How much one tenant, or those who collect metrics, cost another: `python -m tests.bench.tenants`.

One client sends, or publishes, one request after the other, alone and then beside others; medians and 99th percentiles
of both, and the ratios of the medians, are printed. The others are processes of their own.
"""

from __future__ import annotations

import http.client
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.serving import Served

from lavant.broker.protocol.frames import PREFACE, Hello, decode_answer
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Refused, Send, SendEntry
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.core.frames import Frames, frame
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of

QUEUES = 10_000
SCRAPERS = 4
SECONDS = 4.0
NOISY, QUIET = "noisy-secret", "quiet-secret"
PIPELINE = 64
"""Requests that a noisy connection has under way."""


class Connection:
    """Blocking, with as many requests under way as one likes."""

    def __init__(self, port: int, token: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = Frames()
        self._number = 0
        self._socket.sendall(PREFACE + frame(0, Hello(token.encode())))
        self.wait(1)

    def tell(self, *requests: Any) -> None:
        data = bytearray()
        for request in requests:
            self._number += 1
            data += frame(self._number, request)
        self._socket.sendall(data)

    def wait(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            data = self._socket.recv(1 << 20)
            assert data, "the server hung up"
            found += [decode_answer(content) for _, content in self._frames.feed(data)]
        return found

    def ask(self, *requests: Any) -> list[Any]:
        self.tell(*requests)
        return self.wait(len(requests))


class Times(NamedTuple):
    p50_ms: float
    p99_ms: float


def times_of(connection: Connection, request: Any, seconds: float = SECONDS) -> Times:
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while (start_s := time.perf_counter()) < end_s:
        [answer] = connection.ask(request)
        assert not isinstance(answer, Refused), answer
        times.append(time.perf_counter() - start_s)
    times.sort()
    return Times(statistics.median(times) * 1000, times[len(times) * 99 // 100] * 1000)


# ── the others ────────────────────────────────────────────────────────────────────────────────────────────────────────


def scrape(port: int) -> None:
    is_ready = False
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.close()
        if not is_ready:
            is_ready = True
            print("ready", flush=True)


def make_noise(port: int, request: Any, pipeline: int = PIPELINE) -> None:
    """All refusals are taken as what they are, and it goes on."""
    connection = Connection(port, NOISY)
    connection.tell(*[request] * pipeline)
    print("ready", flush=True)
    while True:
        connection.tell(*[request] * len(connection.wait(1)))


def publish_noisily(port: int) -> None:
    make_noise(port, Publish([b'{"a": %d, "text": "some more to read"}' % n for n in range(1000)]), 8)


def publish_singly(port: int) -> None:
    make_noise(port, Publish([b'{"a": 1}']), 1000)


def send_noisily(port: int) -> None:
    make_noise(port, Send("q", [SendEntry(bytes(100))] * 1000), 16)


def send_singly(port: int) -> None:
    make_noise(port, Send("q", [SendEntry(bytes(100))]), 1000)


ROLES: dict[str, Callable[[int], None]] = {
    each.__name__: each for each in (scrape, publish_noisily, publish_singly, send_noisily, send_singly)
}


@contextmanager
def beside(role: str, count: int, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.tenants", role, str(port)]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for each in others:
            assert each.stdout is not None
            assert each.stdout.readline()
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


# ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def show(what: str, alone: Times, beside: Times) -> None:
    print(
        f"{what:52} alone {alone.p50_ms:6.2f} / {alone.p99_ms:6.2f} ms, beside {beside.p50_ms:7.2f} / "
        f"{beside.p99_ms:7.2f} ms, ratio {beside.p50_ms / alone.p50_ms:6.1f}",
        flush=True,
    )


def measure_metrics() -> None:
    with Served(None) as server:
        connection = Connection(server.port)
        for start in range(0, QUEUES, 500):
            connection.ask(*(CreateQueue(f"queue-{start + n}", QueueConfig()) for n in range(500)))
        send = Send("queue-77", [SendEntry(bytes(100))])
        alone = times_of(connection, send)
        with beside("scrape", SCRAPERS, server.port):
            show(f"sends, {QUEUES} queues, {SCRAPERS} scrapers", alone, times_of(connection, send))


def measure_neighbours() -> None:
    entries = [
        KeyEntry(name="noisy", sha256=sha256_of(NOISY), scopes=["publish", "subscribe", "admin"], namespace="noisy"),
        KeyEntry(name="quiet", sha256=sha256_of(QUIET), scopes=["publish", "subscribe", "admin"], namespace="quiet"),
    ]
    with tempfile.TemporaryDirectory() as directory:
        keys = Path(directory) / "keys.toml"
        keys.write_text("\n".join(map(entry_text, entries)))
        quick = {"quiet publishes": Publish([b'{"a": 1}']), "quiet sends": Send("q", [SendEntry(bytes(100))])}
        for role in ("publish_noisily", "publish_singly", "send_noisily", "send_singly"):
            for what, request in quick.items():
                with Served(None, "--keys-file", str(keys)) as server:
                    for secret in (NOISY, QUIET):
                        some = Connection(server.port, secret)
                        some.ask(CreateQueue("q", QueueConfig()), *(Subscribe(f"a = {n}", f"s{n}") for n in range(200)))
                    connection = Connection(server.port, QUIET)
                    alone = times_of(connection, request, SECONDS / 3)
                    with beside(role, 4, server.port):
                        show(f"{what}, noisy: 4 × {role}", alone, times_of(connection, request))


def measure_throughput() -> None:
    """Of one tenant alone, in publications or messages a second."""
    for role, batch in (("publish_noisily", 1000), ("publish_singly", 1), ("send_noisily", 1000), ("send_singly", 1)):
        with Served(None) as server:
            connection = Connection(server.port)
            connection.ask(CreateQueue("q", QueueConfig()), *(Subscribe(f"a = {n}", f"s{n}") for n in range(200)))
            with beside(role, 2, server.port):
                before, start_s = server.metric("lavant_requests_total"), time.perf_counter()
                time.sleep(SECONDS)
                requests = server.metric("lavant_requests_total") - before
                per_s = requests * batch / (time.perf_counter() - start_s)
        print(f"one tenant alone, 2 × {role:20} {per_s:12,.0f} a second", flush=True)


TABLES = {"metrics": measure_metrics, "neighbours": measure_neighbours, "throughput": measure_throughput}


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](int(sys.argv[2]))
        return
    for name, measure in TABLES.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            measure()


if __name__ == "__main__":
    main()
