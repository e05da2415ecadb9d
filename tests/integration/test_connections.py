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

from tests.integration.serving import WAIT_S_MAX, Served, ServedWithLimits

from lavant import QueueConfig, connect
from lavant.broker.protocol.frames import PREFACE, decode_answer
from lavant.broker.protocol.queues import Refused
from lavant.core.frames import Frames
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of

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
        assert "ulimit -n" in served.log
        assert "Traceback" not in served.log
        assert len(served.log.splitlines()) < 30, "not a line for each"


def test_who_has_shown_no_key_cannot_fill_the_memory(tmp_path: Path) -> None:
    """A frame that says that it is large is refused by its header, whatever follows."""
    keys = tmp_path / "keys.toml"
    keys.write_text(entry_text(KeyEntry(name="k", sha256=sha256_of("secret"), scopes=["admin", "publish"])))
    with Served(tmp_path / "data", "--keys-file", str(keys)) as served:
        before_kb = served.memory_kb_at_rest("secret")
        opened = []
        for _ in range(40):
            connection = socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX)
            opened.append(connection)
            with suppress(ConnectionError):
                connection.sendall(PREFACE + struct.pack(">II", 45 * MIB, 0))
                for _ in range(45):
                    connection.sendall(bytes(MIB))
        answered = [decode_answer(content) for _, content in Frames().feed(refusal(served))]
        assert [answer.code for answer in answered if isinstance(answer, Refused)] == ["LimitExceeded"]
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


def half(path: str, start: bytes, *headers: str) -> bytes:
    """A request that says that its body is longer than it is."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Length: 500", *headers, "", ""]
    return "\r\n".join(lines).encode() + start


AMZ_JSON, FORM = "application/x-amz-json-1.0", "application/x-www-form-urlencoded"
HALVES = {
    "a call of SQS": half("/", b"{", "X-Amz-Target: AmazonSQS.ListQueues", f"Content-Type: {AMZ_JSON}"),
    "a form of SQS": half("/", b"Action=", f"Content-Type: {FORM}"),
    "a publication": half("/publish", b"{", "Content-Type: application/json"),
    "a head": b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-",
}


def test_half_a_request_is_not_waited_for_in_any_protocol() -> None:
    with ServedWithLimits(body_s_max=1.0, head_s_max=1.0) as served:
        for what, request in HALVES.items():
            with socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX / 3) as connection:
                connection.sendall(request)
                assert connection.recv(1000)[:12] in (b"HTTP/1.1 408", b""), what
        served.wait_for_metric("lavant_open_connections", 1)  # that of the question


def test_an_endless_line_of_a_head_does_not_fill_the_memory() -> None:
    with ServedWithLimits() as served:
        before_kb = served.memory_kb_at_rest()
        with socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
            with suppress(ConnectionError):
                for _ in range(200):
                    connection.sendall(b"x" * MIB)
        assert served.memory_kb_max() - before_kb < 50_000


def test_a_message_that_is_sent_when_a_long_poll_was_aborted_is_there_for_others(tmp_path: Path) -> None:
    """Whenever the poll's connection ends: before the message comes, with it, or a little after it."""
    with Served(tmp_path / "data") as served, connect(served.url) as client:
        queue = client.create_queue("q", QueueConfig(visibility_s=600))
        for number in range(60):
            body = b'{"QueueUrl": "q", "WaitTimeSeconds": 20}'
            head = [
                "POST / HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", f"Content-Type: {AMZ_JSON}",
                "X-Amz-Target: AmazonSQS.ReceiveMessage", "", "",
            ]  # fmt: skip
            poll = socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX)
            poll.sendall("\r\n".join(head).encode() + body)
            time.sleep(0.003)  # so that most of them wait
            poll.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", number % 2, 0))
            poll.close()
            time.sleep((number % 6) / 1000)
            queue.send(b"%d" % number)
            [message] = queue.receive(wait_s=5)
            assert (message.body, message.receive_count) == (b"%d" % number, 1)
            queue.acknowledge(message)
