"""A real server, its clients, and what happens to both of them: crashes, restarts, crowds, and bad manners."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant.broker.queues.commands import Peek, PeekedMessage, Receive, Refused
from lavant.broker.queues.wire import FAULT_NUMBER, PREFACE, Frames, Hello, decode_answer, frame
from lavant.client.queues import AsyncQueueClient, Entry, Queue, QueueClient, QueueConfig, calls
from lavant.client.queues.retrying import NO_RETRIES
from lavant.core.errors import (
    AccessDenied,
    ConnectionLost,
    LavantError,
    LimitExceeded,
    MissingComponent,
    PartlyRefused,
    UnknownQueue,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For tests that leave it as it was; each has queues of its own."""
    with Served(tmp_path_factory.mktemp("served")) as server:
        yield server
        assert server.stop() == 0


def drain(queue: Queue) -> list[bytes]:
    """All that can be had."""
    found = []
    while messages := queue.receive(count=1000, wait_ms=0):
        found += [message.body for message in messages]
        queue.acknowledge(*messages)
    return found


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_blocking_client_does_it_all(served: Served) -> None:
    with QueueClient.connect(served.url) as client:
        dead = client.create("dead-orders")
        orders = client.create("orders", QueueConfig(dead_letters="dead-orders", receives_max=2), tags={"team": "tea"})
        assert {"dead-orders", "orders"} <= set(client.queues())
        assert list(client.queues("ord")) == ["orders"]
        assert dead.sources() == ["orders"]

        first = orders.send(b"one", attributes=b"\x00a")
        assert orders.send_many([b"two", Entry(b"three", delay_ms=900_000)]) == [first + 1, first + 2]
        assert [(message.body, message.state) for message in orders.peek()] == [
            (b"one", "visible"),
            (b"two", "visible"),
            (b"three", "delayed"),
        ]
        [one] = orders.receive()
        assert (one.body, one.attributes, one.receive_count) == (b"one", b"\x00a", 1)
        orders.change_visibility(one, visibility_ms=0)
        messages = orders.receive(count=10)
        assert sorted(message.body for message in messages) == [b"one", b"two"]
        orders.acknowledge(*messages)
        orders.acknowledge(messages[0].receipt)
        assert orders.receive(wait_ms=0) == []

        described = orders.describe()
        assert (described.tags, described.figures.delayed, described.figures.acknowledged) == ({"team": "tea"}, 1, 2)
        orders.tag({})
        orders.configure(QueueConfig(visibility_ms=0, dead_letters="dead-orders", receives_max=1))
        assert orders.describe().tags == {}
        orders.purge()
        orders.send(b"bad")
        orders.receive()
        assert orders.receive() == []
        assert [message.body for message in dead.peek()] == [b"bad"]

        dead.redrive()
        assert [message.body for message in orders.receive(wait_ms=20_000)] == [b"bad"]
        assert [move.moved for move in dead.moves()] == [1]
        orders.delete()
        with pytest.raises(UnknownQueue, match="orders"):
            orders.send(b"late")


def test_the_asynchronous_client_shares_a_connection_among_its_tasks(served: Served) -> None:
    async def work() -> None:
        async with await AsyncQueueClient.connect(served.url) as client:
            queue = await client.create("shared")
            waiting = [asyncio.ensure_future(queue.receive(wait_ms=20_000)) for _ in range(50)]
            numbers = await asyncio.gather(*(queue.send(b"%d" % i) for i in range(50)))
            assert len(set(numbers)) == 50
            received = [message for messages in await asyncio.gather(*waiting) for message in messages]
            assert sorted(int(message.body) for message in received) == list(range(50))
            await asyncio.gather(*(queue.acknowledge(message) for message in received))
            assert (await queue.describe()).figures.acknowledged == 50
            assert [name async for name in client.queues("shared")] == ["shared"]
            assert served.metric("lavant_connections") == 1
            with pytest.raises(LimitExceeded):
                await queue.send(bytes(1 << 21))
            with pytest.raises(PartlyRefused, match="entry 1"):
                await queue.send_many([b"good", bytes(1 << 21)])

    asyncio.run(work())


def test_a_pipeline_gives_results_and_errors_in_their_places(served: Served) -> None:
    with QueueClient.connect(served.url) as client:
        client.create("pipelined")
        wanted = [calls.send("pipelined" if i % 3 else "none", Entry(b"%d" % i * 2000)) for i in range(99)]
        results = client.pipeline([*wanted, calls.describe("pipelined")])
        assert [isinstance(result, UnknownQueue) for result in results[:99]] == [i % 3 == 0 for i in range(99)]
        assert results[99].figures.sent == 66
        assert client.pipeline([]) == []


def test_large_batches_go_through_in_both_directions(served: Served) -> None:
    bodies = [bytes([i]) * (1 << 20) for i in range(15)]
    with QueueClient.connect(served.url) as client:
        queue = client.create("large")
        queue.send_many(bodies)
        assert [message.body for message in queue.receive(count=15)] == bodies


def test_in_order_queues_start_messages_one_after_the_other(served: Served) -> None:
    with QueueClient.connect(served.url) as client:
        queue = client.create("ordered", QueueConfig(order="in-order"))
        for i in range(3):
            queue.send(b"%d" % i, group="g", deduplication=str(i))
        queue.send(b"again", group="g", deduplication="2")
        for i in range(3):
            [message] = queue.receive()
            assert message.body == b"%d" % i
            assert queue.receive() == []
            queue.acknowledge(message)
        assert queue.receive() == []


def test_a_client_finds_the_server_again_after_a_restart(tmp_path: Path) -> None:
    with Served(tmp_path) as first:
        client = QueueClient.connect(first.url)
        queue = client.create("q")
        queue.send(b"one")
        first.kill()
        with Served(tmp_path, port=first.port):
            queue.send(b"two")
            assert {message.body for message in queue.receive(count=10)} == {b"one", b"two"}
        with pytest.raises(MissingComponent, match=f"lavant serve --port {first.port}"):
            QueueClient.connect(first.url)
    client.close()


def test_a_receive_that_waits_is_repeated_by_itself_when_the_server_is_started_again(tmp_path: Path) -> None:
    async def work() -> None:
        with Served(tmp_path) as first:
            async with await AsyncQueueClient.connect(first.url) as client:
                queue = await client.create("q")
                waiting = asyncio.ensure_future(queue.receive(wait_ms=20_000))
                await asyncio.to_thread(first.wait_for_metric, "lavant_waiting_receives", 1)
                first.kill()
                with Served(tmp_path, port=first.port) as second, QueueClient.connect(second.url) as other:
                    other.queue("q").send(b"one")
                    assert [message.body for message in await waiting] == [b"one"]

    asyncio.run(work())


def test_a_client_that_was_closed_stays_closed(served: Served) -> None:
    client = QueueClient.connect(served.url)
    client.close()
    with pytest.raises(ConnectionLost, match="was closed"):
        list(client.queues())

    async def work() -> None:
        waiting_client = await AsyncQueueClient.connect(served.url)
        queue = await waiting_client.create("closed")
        waiting = asyncio.ensure_future(queue.receive(wait_ms=20_000))
        await asyncio.to_thread(served.wait_for_metric, "lavant_waiting_receives", 1)
        await waiting_client.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            await waiting
        with pytest.raises(ConnectionLost, match="was closed"):
            await queue.send(b"late")

    asyncio.run(work())
    served.wait_for_metric("lavant_waiting_receives", 0)


def test_a_send_that_may_have_been_done_is_not_repeated(tmp_path: Path) -> None:
    with Served(tmp_path) as server, QueueClient.connect(server.url, timeout_s=0.2) as client:
        queue = client.create("q")
        server.process.send_signal(signal.SIGSTOP)
        goes_on = threading.Timer(0.5, lambda: server.process.send_signal(signal.SIGCONT))
        goes_on.start()
        with pytest.raises(ConnectionLost, match=r"it was silent for 0\.2 s; it may or may not"):
            queue.send(b"one")
        goes_on.join()
        assert len(queue.peek()) <= 1


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Worker(threading.Thread):
    """Sends, and does what others have sent, until the server is gone; and remembers what the server has confirmed."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__()
        self.name = name
        self.client = QueueClient.connect(url, retries=NO_RETRIES)
        self.sent: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.maybe_acknowledged: set[bytes] = set()

    def run(self) -> None:
        queue, chance = self.client.queue("q"), random.Random(self.name)
        try:
            for i in range(100_000):
                bodies = [f"{self.name} {i} {j}".encode().ljust(chance.choice((20, 1000))) for j in range(5)]
                queue.send_many(bodies)
                self.sent.update(bodies)
                messages = queue.receive(count=chance.randint(1, 5))
                done = [message for message in messages if chance.random() < 0.8]
                if done:
                    self.maybe_acknowledged = {message.body for message in done}
                    queue.acknowledge(*done)
                    self.acknowledged |= self.maybe_acknowledged
        except (ConnectionLost, MissingComponent):
            pass
        finally:
            self.client.close()


def test_a_server_that_is_killed_under_load_keeps_all_that_it_confirmed(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        with QueueClient.connect(server.url) as client:
            client.create("q", QueueConfig(visibility_ms=0))  # what is not acknowledged can be received again at once
        workers = [Worker(server.url, f"worker {i}") for i in range(6)]
        for worker in workers:
            worker.start()
        while sum(len(worker.sent) for worker in workers) < 1500:
            assert all(worker.is_alive() for worker in workers)
        time.sleep(random.uniform(0, 0.05))  # not just when something was confirmed
        server.kill()
        for worker in workers:
            worker.join()
    sent = set().union(*(worker.sent for worker in workers))
    acknowledged = set().union(*(worker.acknowledged for worker in workers))
    unknown = set().union(*(worker.maybe_acknowledged for worker in workers)) - acknowledged
    with Served(tmp_path) as server, QueueClient.connect(server.url) as client:
        found = [message.body for message in peek_all(client.queue("q"))]
        assert len(found) == len(set(found))
        assert sent - acknowledged - unknown <= set(found), "a send that was confirmed is lost"
        assert not acknowledged & set(found), "a message that was acknowledged is back"
        assert client.queue("q").send(b"next") > len(sent)
        assert server.stop() == 0


def peek_all(queue: Queue) -> Iterator[PeekedMessage]:
    after = 0
    while messages := queue.peek(count=1000, after=after):
        yield from messages
        after = messages[-1].number


def test_acknowledged_early_means_that_sends_are_safe_nevertheless(tmp_path: Path) -> None:
    with Served(tmp_path, "--acknowledge-early") as server:
        with QueueClient.connect(server.url) as client:
            queue = client.create("q")
            queue.send_many([b"%d" % i for i in range(100)])
            queue.acknowledge(*queue.receive(count=50))
            queue.send_many([b"%d" % i for i in range(100, 200)])
        server.kill()
    with Served(tmp_path) as server, QueueClient.connect(server.url) as client:
        assert {b"%d" % i for i in range(50, 200)} <= {message.body for message in peek_all(client.queue("q"))}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_answers_everybody_and_keeps_everything(
    tmp_path: Path, number: signal.Signals
) -> None:
    async def work(server: Served) -> None:
        async with await AsyncQueueClient.connect(server.url, retries=NO_RETRIES) as client:
            queue = await client.create("q")
            await queue.send(b"kept")
            await client.create("empty")
            waiting = [asyncio.ensure_future(client.queue("empty").receive(wait_ms=20_000)) for _ in range(10)]
            await asyncio.to_thread(server.wait_for_metric, "lavant_waiting_receives", 10)
            server.process.send_signal(number)
            assert await asyncio.gather(*waiting) == [[]] * 10

    with Served(tmp_path) as server:
        asyncio.run(work(server))
        assert server.process.wait(WAIT_S_MAX) == 0
    with Served(tmp_path) as server, QueueClient.connect(server.url) as client:
        assert server.line.endswith("2 queues with 1 message")
        assert drain(client.queue("q")) == [b"kept"]


def test_in_memory_nothing_is_kept() -> None:
    with Served(None) as server, QueueClient.connect(server.url) as client:
        client.create("q").send(b"one")
        assert "in memory only: 0 queues" in server.line
        assert server.stop() == 0


def test_a_second_server_in_the_same_directory_is_refused(served: Served) -> None:
    command = [str(LAVANT), "serve", "--port", "0", "--data", str(served.data)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert second.returncode == 2
    assert f"in use by another server (process {served.process.pid})" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_that_is_taken_is_told(tmp_path: Path, served: Served) -> None:
    command = [str(LAVANT), "serve", "--port", str(served.port), "--data", str(tmp_path / "other")]
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert second.returncode == 2
    assert "choose another --port" in second.stderr
    assert "Traceback" not in second.stderr


# ── crowds and bad manners ────────────────────────────────────────────────────────────────────────────────────────────


def test_ten_thousand_idle_receives_bother_nobody(served: Served) -> None:
    async def work() -> None:
        clients = [await AsyncQueueClient.connect(served.url) for _ in range(4)]
        idle = await clients[0].create("idle")
        waiting = [
            asyncio.ensure_future(client.queue("idle").receive(wait_ms=20_000))
            for _ in range(2500)
            for client in clients
        ]
        await asyncio.to_thread(served.wait_for_metric, "lavant_waiting_receives", 10_000)
        async with await AsyncQueueClient.connect(served.url) as other:
            busy = await other.create("busy")
            for i in range(50):
                await busy.send(b"%d" % i)
                [message] = await busy.receive(wait_ms=20_000)
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
    with QueueClient.connect(served.url) as client:
        queue = client.create("unread")
        queue.send_many([bytes(1 << 20)] * 8)
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
            assert len(queue.receive(visibility_ms=0)) == 1
        assert served.memory_kb_max() < 400_000, f"{asked} requests without reading"
        connection.close()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (struct.pack(">II", 0, 1), "InvalidValue"),
        (struct.pack(">II", 0x7FFF_FFFF, 1), "LimitExceeded"),
        (struct.pack(">II", 9, 1) + b"\xc1\xc1\xc1\xc1\xc1", "InvalidValue"),
        (struct.pack(">II", 5, 1) + b"\x90", "InvalidValue"),
    ],
)
def test_what_is_no_frame_is_answered_by_an_error_and_the_end(served: Served, data: bytes, code: str) -> None:
    with raw_connection(served) as connection:
        connection.sendall(data)
        *_, (number, content) = Frames().feed(read_until_closed(connection))
        answer = decode_answer(content)
        assert isinstance(answer, Refused)
        assert (number, answer.code) == (FAULT_NUMBER, code)
    with QueueClient.connect(served.url) as client:
        client.create("still-there")


def test_noise_of_any_kind_leaves_the_server_as_it_was(served: Served) -> None:
    chance = random.Random(7)
    for _ in range(60):
        with socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX) as connection:
            start = chance.choice((b"", PREFACE, PREFACE + frame(0, Hello()), b"POST / HTTP/1.1\r\n", PREFACE[:4]))
            connection.sendall(start + chance.randbytes(chance.randint(0, 2000)))
    with QueueClient.connect(served.url) as client:
        client.create("still-there")
    served.wait_for_metric("lavant_connections", 0)


def test_a_client_that_is_gone_gets_no_lease(served: Served) -> None:
    with QueueClient.connect(served.url) as client:
        queue = client.create("left")
        with raw_connection(served) as connection:
            connection.sendall(frame(1, Receive("left", wait_ms=20_000)))
            served.wait_for_metric("lavant_waiting_receives", 1)
        served.wait_for_metric("lavant_connections", 1)
        assert served.metric("lavant_waiting_receives") == 0
        queue.send(b"one")
        assert [message.receive_count for message in queue.receive()] == [1]


# ── who may come in, and what it tells ────────────────────────────────────────────────────────────────────────────────


def test_a_token_lets_in_and_nothing_else_does(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("correct horse battery staple\n")
    with Served(tmp_path / "data", "--token-file", str(secret)) as server:
        for token in (b"", b"correct horse battery stapl"):
            with pytest.raises(AccessDenied):
                QueueClient.connect(server.url, token=token)
        with QueueClient.connect(server.url, token=b"correct horse battery staple") as client:
            client.create("q").send(b"one")

        async def work() -> None:
            with pytest.raises(AccessDenied):
                await AsyncQueueClient.connect(server.url, token=b"wrong")

        asyncio.run(work())


def test_health_and_metrics_are_on_the_same_port(served: Served) -> None:
    with QueueClient.connect(served.url) as client:
        client.create("seen").send(b"1234")
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
    assert (refused.returncode, "--token-file and --credentials-file" in refused.stderr) == (2, True)


def test_errors_of_clients_are_of_our_tree(served: Served) -> None:
    with QueueClient.connect(served.url) as client, pytest.raises(LavantError):
        client.queue("bad name!").send(b"x")
