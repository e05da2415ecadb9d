"""A real server and its less ordinary clients: crowds, bad manners, strangers, and those who only want to know."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import connect, connect_async
from lavant.broker.protocol.frames import FAULT_NUMBER, PREFACE, Hello, decode_answer
from lavant.broker.protocol.queues import Peek, Receive, Refused
from lavant.core.errors import AccessDenied, LavantError
from lavant.core.frames import Frames, frame
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For tests that leave it as it was; each has queues of its own."""
    with Served(tmp_path_factory.mktemp("served")) as server:
        yield server
        assert server.stop() == 0


# ── crowds and bad manners ────────────────────────────────────────────────────────────────────────────────────────────


def test_ten_thousand_idle_receives_bother_nobody(served: Served) -> None:
    async def work() -> None:
        clients = [await connect_async(served.url) for _ in range(4)]
        idle = await clients[0].create_queue("idle")
        waiting = [
            asyncio.ensure_future(client.queue("idle").receive(wait_s=20)) for _ in range(2500) for client in clients
        ]
        await asyncio.to_thread(served.wait_for_metric, "lavant_waiting_receives", 10_000)
        async with await connect_async(served.url) as other:
            busy = await other.create_queue("busy")
            for i in range(50):
                await busy.send(b"%d" % i)
                [message] = await busy.receive(wait_s=20)
                assert message.body == b"%d" % i
                await busy.acknowledge(message)
            await idle.send_many([b"%d" % i for i in range(8)])
            while sum(each.done() for each in waiting) < 8:
                await asyncio.sleep(0.01)
            came = [message.body for each in waiting if each.done() for message in each.result()]
            assert sorted(came) == [b"%d" % i for i in range(8)]
            await asyncio.gather(*(client.close() for client in clients))
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.to_thread(served.wait_for_metric, "lavant_waiting_receives", 0)
            await other.queue("idle").send(b"nobody is left")

    asyncio.run(work())


def raw_connection(served: Served) -> socket.socket:
    connection = socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX)
    connection.sendall(PREFACE + frame(0, Hello()))
    return connection


def read_until_closed(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(1 << 20):
        data += part
    return data


def test_a_client_that_never_reads_costs_no_more_than_a_bounded_buffer(served: Served) -> None:
    with connect(served.url) as client:
        queue = client.create_queue("unread")
        queue.send_many([bytes(1 << 20)] * 8)
        before_kb = served.memory_kb_at_rest()
        connection = raw_connection(served)
        connection.setblocking(False)
        request = bytes(frame(1, Peek("unread", 8)))  # 8 MiB for some bytes
        asked = 0
        try:
            while asked < 100_000:
                asked += connection.send(request * 100) // len(request)
        except BlockingIOError:
            pass  # the server does not read any more
        for _ in range(20):
            assert len(queue.receive(visibility_s=0)) == 1
        assert served.memory_kb_max() - before_kb < 150_000, f"{asked} requests without reading"
        connection.close()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (struct.pack(">II", 0, 1), "InvalidValue"),
        (struct.pack(">II", 0x7FFF_FFFF, 1), "LimitExceeded"),
        (struct.pack(">II", 3, 1), "InvalidValue"),
    ],
)
def test_what_is_no_frame_is_answered_by_an_error_and_the_end(served: Served, data: bytes, code: str) -> None:
    with raw_connection(served) as connection:
        connection.sendall(data)
        *_, (number, content) = Frames().feed(read_until_closed(connection))
        answer = decode_answer(content)
        assert isinstance(answer, Refused)
        assert (number, answer.code) == (FAULT_NUMBER, code)
    with connect(served.url) as client:
        client.create_queue("still-there")


def test_noise_of_any_kind_leaves_the_server_as_it_was(served: Served) -> None:
    chance = random.Random(7)
    for _ in range(60):
        with socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX) as connection:
            start = chance.choice((b"", PREFACE, PREFACE + frame(0, Hello()), b"POST / HTTP/1.1\r\n", PREFACE[:4]))
            connection.sendall(start + chance.randbytes(chance.randint(0, 2000)))
    with connect(served.url) as client:
        client.create_queue("still-there")
    served.wait_for_metric("lavant_connections", 0)


def test_a_client_that_is_gone_gets_no_lease(served: Served) -> None:
    with connect(served.url) as client:
        queue = client.create_queue("left")
        with raw_connection(served) as connection:
            connection.sendall(frame(1, Receive("left", wait_ms=20_000)))
            served.wait_for_metric("lavant_waiting_receives", 1)
        served.wait_for_metric("lavant_connections", 1)
        assert served.metric("lavant_waiting_receives") == 0
        queue.send(b"one")
        assert [message.receive_count for message in queue.receive()] == [1]


# ── who may come in, and what it tells ────────────────────────────────────────────────────────────────────────────────


def test_a_key_lets_in_and_nothing_else_does(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    entry = KeyEntry(name="k", sha256=sha256_of("correct horse battery staple"), scopes=["publish", "admin"])
    keys.write_text(entry_text(entry))
    with Served(tmp_path / "data", "--keys-file", str(keys)) as server:
        for key in ("", "correct horse battery stapl"):
            with pytest.raises(AccessDenied):
                connect(server.url, key=key)
        with connect(server.url, key="correct horse battery staple") as client:
            client.create_queue("q").send(b"one")

        async def work() -> None:
            with pytest.raises(AccessDenied):
                await connect_async(server.url, key="wrong")

        asyncio.run(work())


def test_health_and_metrics_are_on_the_same_port(served: Served) -> None:
    with connect(served.url) as client:
        client.create_queue("seen").send(b"1234")
    with served.http("/healthz") as response:
        assert (response.status, response.read()) == (200, b"ok\n")
        assert response.headers["date"] is not None
    with served.http("/metrics") as response:
        text = response.read().decode()
        assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert 'lavant_queue_bytes{queue="seen"} 4\n' in text
    assert text.endswith("\n# EOF\n")


def test_a_head_that_does_not_end_is_refused(served: Served) -> None:
    with socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"y" * 900) for i in range(80)))
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")


def test_other_machines_are_not_served_without_proof_of_who_they_are(tmp_path: Path) -> None:
    command = [str(LAVANT), "serve", "--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert (refused.returncode, "--keys-file, --credentials-file or both" in refused.stderr) == (2, True)


def test_errors_of_clients_are_of_our_tree(served: Served) -> None:
    with connect(served.url) as client, pytest.raises(LavantError):
        client.queue("bad name!").send(b"x")
