"""A real server and connections of those whom nobody knows: they cost it little, and others nothing."""

from __future__ import annotations

import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.integration.serving import WAIT_S_MAX, Served

from lavant import connect
from lavant.broker.serving.wire import PREFACE, Frames, decode_answer
from lavant.service.keys import KeyEntry, entry_text, sha256_of

DESCRIPTORS = 700
MIB = 1 << 20


class ServedWithFewDescriptors(Served):
    def __init__(self, data: Path, descriptors: int) -> None:
        self.data = data
        serve = f"exec {sys.executable} -m tests.integration.limited_server {{}} {data} {MIB}"
        self._start(["sh", "-c", f"ulimit -n {descriptors}; {serve}"])


@contextmanager
def idle_connections(served: Served, count: int) -> Iterator[list[socket.socket]]:
    """As many as the server keeps, each of which has said nothing or only its preface."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 500)), hard))
    opened = []
    try:
        for number in range(count):
            connection = socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX)
            opened.append(connection)
            if number % 2:
                with suppress(ConnectionError):
                    connection.sendall(PREFACE)
        yield opened
    finally:
        for connection in opened:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def still_open(connections: list[socket.socket]) -> int:
    """How many of them the server has not closed."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN | select.POLLHUP)
    return len(connections) - len(poll.poll(0))


def test_the_journal_goes_on_while_connections_take_all_descriptors_that_they_get(tmp_path: Path) -> None:
    """Segments are begun and folded, which takes files and a process, and who is connected is served."""
    with ServedWithFewDescriptors(tmp_path / "data", DESCRIPTORS) as served:
        with connect(served.url) as client, idle_connections(served, DESCRIPTORS) as idle:
            queue = client.create_queue("q")
            for _ in range(20):
                queue.send_many([bytes(MIB // 16)] * 8)
                messages = queue.receive(8)
                assert len(messages) == 8
                queue.acknowledge(*messages)
            deadline_s = time.monotonic() + WAIT_S_MAX
            while not list((tmp_path / "data").glob("snapshot-*")):
                assert time.monotonic() < deadline_s, sorted((tmp_path / "data").iterdir())
                time.sleep(0.05)
            assert still_open(idle) < DESCRIPTORS - 400, "the rest was kept for files"
        assert served.stop() == 0
        assert "ulimit -n" in served.complaints
        assert "Traceback" not in served.complaints
        assert len(served.complaints.splitlines()) < 30, "not a line for each"


def test_who_has_shown_no_key_cannot_fill_the_memory(tmp_path: Path) -> None:
    """A frame that says that it is large is refused by its header, whatever follows."""
    keys = tmp_path / "keys.toml"
    keys.write_text(entry_text(KeyEntry(name="k", sha256=sha256_of("secret"), scopes=["admin", "publish"])))
    with Served(tmp_path / "data", "--keys-file", str(keys)) as served:
        before_kb = served.memory_kb_max()
        opened = []
        for _ in range(40):
            connection = socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX)
            opened.append(connection)
            with suppress(ConnectionError):
                connection.sendall(PREFACE + struct.pack(">II", 45 * MIB, 0))
                for _ in range(45):
                    connection.sendall(bytes(MIB))
        answered = [decode_answer(content) for _, content in Frames().feed(refusal(served))]
        assert [answer.code for answer in answered] == ["LimitExceeded"]
        with connect(served.url, key="secret") as client:
            client.create_queue("q").send(b"one")
        assert served.memory_kb_max() - before_kb < 100_000
        for connection in opened:
            connection.close()


def refusal(served: Served) -> bytes:
    with socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(PREFACE + struct.pack(">II", 45 * MIB, 0))
        data = b""
        with suppress(ConnectionError):
            while part := connection.recv(1000):
                data += part
        return data
