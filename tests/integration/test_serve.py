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

from lavant import PeekedMessage, connect, connect_async
from lavant.client import queue_calls as calls
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.queues import Queue, QueueConfig, SendEntry
from lavant.core.errors import (
    ConnectionLost,
    LimitExceeded,
    MissingComponent,
    PartlyRefused,
    StorageLocked,
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
    while messages := queue.receive(count=1000, wait_s=0):
        found += [message.body for message in messages]
        queue.acknowledge(*messages)
    return found


# ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_blocking_client_does_it_all(served: Served) -> None:
    with connect(served.url) as client:
        dead = client.create_queue("dead-orders")
        orders = client.create_queue(
            "orders", QueueConfig(dead_letters="dead-orders", receives_max=2), tags={"team": "tea"}
        )
        assert {"dead-orders", "orders"} <= set(client.queues())
        assert list(client.queues("ord")) == ["orders"]
        assert dead.sources() == ["orders"]

        first = orders.send(b"one", attributes=b"\x00a")
        assert orders.send_many([b"two", SendEntry(b"three", delay_s=900)]) == [first + 1, first + 2]
        assert [(message.body, message.state) for message in orders.peek()] == [
            (b"one", "visible"),
            (b"two", "visible"),
            (b"three", "delayed"),
        ]
        [one] = orders.receive()
        assert (one.body, one.attributes, one.receive_count) == (b"one", b"\x00a", 1)
        orders.change_visibility(one, visibility_s=0)
        messages = orders.receive(count=10)
        assert sorted(message.body for message in messages) == [b"one", b"two"]
        orders.acknowledge(*messages)
        orders.acknowledge(messages[0].receipt)
        assert orders.receive(wait_s=0) == []

        described = orders.describe()
        assert (described.tags, described.figures.delayed, described.figures.acknowledged) == ({"team": "tea"}, 1, 2)
        orders.tag({})
        orders.configure(QueueConfig(visibility_s=0, dead_letters="dead-orders", receives_max=1))
        assert orders.describe().tags == {}
        orders.purge()
        orders.send(b"bad")
        orders.receive()
        assert orders.receive() == []
        assert [message.body for message in dead.peek()] == [b"bad"]

        dead.redrive()
        assert [message.body for message in orders.receive(wait_s=20)] == [b"bad"]
        assert [move.moved for move in dead.moves()] == [1]
        orders.delete()
        with pytest.raises(UnknownQueue, match="orders"):
            orders.send(b"late")


def test_the_asynchronous_client_shares_a_connection_among_its_tasks(served: Served) -> None:
    async def work() -> None:
        async with await connect_async(served.url) as client:
            queue = await client.create_queue("shared")
            waiting = [asyncio.ensure_future(queue.receive(wait_s=20)) for _ in range(50)]
            numbers = await asyncio.gather(*(queue.send(b"%d" % i) for i in range(50)))
            assert len(set(numbers)) == 50
            received = [message for messages in await asyncio.gather(*waiting) for message in messages]
            assert sorted(int(message.body) for message in received) == list(range(50))
            await asyncio.gather(*(queue.acknowledge(message) for message in received))
            assert (await queue.describe()).figures.acknowledged == 50
            assert [name async for name in client.queues("shared")] == ["shared"]
            served.wait_for_metric("lavant_connections", 1)
            with pytest.raises(LimitExceeded):
                await queue.send(bytes(1 << 21))
            with pytest.raises(PartlyRefused, match="entry 1"):
                await queue.send_many([b"good", bytes(1 << 21)])

    asyncio.run(work())


def test_a_pipeline_gives_results_and_errors_in_their_places(served: Served) -> None:
    with connect(served.url) as client:
        client.create_queue("pipelined")
        wanted = [calls.send("pipelined" if i % 3 else "none", SendEntry(b"%d" % i * 2000)) for i in range(99)]
        results = client.pipeline([*wanted, calls.describe("pipelined")])
        assert [isinstance(result, UnknownQueue) for result in results[:99]] == [i % 3 == 0 for i in range(99)]
        assert results[99].figures.sent == 66
        assert client.pipeline([]) == []


def test_large_batches_go_through_in_both_directions(served: Served) -> None:
    bodies = [bytes([i]) * (1 << 20) for i in range(15)]
    with connect(served.url) as client:
        queue = client.create_queue("large")
        queue.send_many(bodies)
        assert [message.body for message in queue.receive(count=15)] == bodies


def test_in_order_queues_start_messages_one_after_the_other(served: Served) -> None:
    with connect(served.url) as client:
        queue = client.create_queue("ordered", QueueConfig(order="in-order"))
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
        client = connect(first.url)
        queue = client.create_queue("q")
        queue.send(b"one")
        first.kill()
        with Served(tmp_path, port=first.port):
            queue.send(b"two")
            assert {message.body for message in queue.receive(count=10)} == {b"one", b"two"}
        with pytest.raises(MissingComponent, match=f"lavant serve --data DIR --port {first.port}"):
            connect(first.url)
    client.close()


def test_a_receive_that_waits_is_repeated_by_itself_when_the_server_is_started_again(tmp_path: Path) -> None:
    async def work() -> None:
        with Served(tmp_path) as first:
            async with await connect_async(first.url) as client:
                queue = await client.create_queue("q")
                waiting = asyncio.ensure_future(queue.receive(wait_s=20))
                await asyncio.to_thread(first.wait_for_metric, "lavant_waiting_receives", 1)
                first.kill()
                with Served(tmp_path, port=first.port) as second, connect(second.url) as other:
                    other.queue("q").send(b"one")
                    assert [message.body for message in await waiting] == [b"one"]

    asyncio.run(work())


def test_what_is_no_server_of_lavant_is_told_from_one() -> None:
    for said in (b"HTTP/1.1 400 Bad Request\r\n", struct.pack(">II", 5, 0) + b"\xc1", b""):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]

            def answer(other: socket.socket = other, said: bytes = said) -> None:
                with other.accept()[0] as connection:
                    connection.recv(1000)
                    connection.sendall(said)

            for connected in (connect, lambda url: asyncio.run(connect_async(url))):
                answering = threading.Thread(target=answer)
                answering.start()
                with pytest.raises(ConnectionLost, match=r"is it a Lavant server|the server closed it"):
                    connected(f"lavant://127.0.0.1:{port}")
                answering.join()


def test_a_client_that_was_closed_stays_closed(served: Served) -> None:
    client = connect(served.url)
    client.close()
    with pytest.raises(ConnectionLost, match="was closed"):
        list(client.queues())

    async def work() -> None:
        waiting_client = await connect_async(served.url)
        queue = await waiting_client.create_queue("closed")
        waiting = asyncio.ensure_future(queue.receive(wait_s=20))
        await asyncio.to_thread(served.wait_for_metric, "lavant_waiting_receives", 1)
        await waiting_client.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            await waiting
        with pytest.raises(ConnectionLost, match="was closed"):
            await queue.send(b"late")

    asyncio.run(work())
    served.wait_for_metric("lavant_waiting_receives", 0)


def test_a_send_that_may_have_been_done_is_not_repeated(tmp_path: Path) -> None:
    with Served(tmp_path) as server, connect(server.url, timeout_s=0.2) as client:
        queue = client.create_queue("q")
        server.process.send_signal(signal.SIGSTOP)
        goes_on = threading.Timer(0.5, lambda: server.process.send_signal(signal.SIGCONT))
        goes_on.start()
        with pytest.raises(ConnectionLost, match=r"it was silent for 0\.2 s; requests may or may not"):
            queue.send(b"one")
        goes_on.join()
        assert len(queue.peek()) <= 1


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Worker(threading.Thread):
    """Sends, and does what others have sent, until the server is gone; and remembers what the server has confirmed."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__()
        self.name = name
        self.client = connect(url, retries=NO_RETRIES)
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
        with connect(server.url) as client:
            client.create_queue(
                "q", QueueConfig(visibility_s=0)
            )  # what is not acknowledged can be received again at once
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
    with Served(tmp_path) as server, connect(server.url) as client:
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
        with connect(server.url) as client:
            queue = client.create_queue("q")
            queue.send_many([b"%d" % i for i in range(100)])
            queue.acknowledge(*queue.receive(count=50))
            queue.send_many([b"%d" % i for i in range(100, 200)])
        server.kill()
    with Served(tmp_path) as server, connect(server.url) as client:
        assert {b"%d" % i for i in range(50, 200)} <= {message.body for message in peek_all(client.queue("q"))}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_answers_everybody_and_keeps_everything(
    tmp_path: Path, number: signal.Signals
) -> None:
    async def work(server: Served) -> None:
        async with await connect_async(server.url, retries=NO_RETRIES) as client:
            queue = await client.create_queue("q")
            await queue.send(b"kept")
            await client.create_queue("empty")
            waiting = [asyncio.ensure_future(client.queue("empty").receive(wait_s=20)) for _ in range(10)]
            await asyncio.to_thread(server.wait_for_metric, "lavant_waiting_receives", 10)
            server.process.send_signal(number)
            assert await asyncio.gather(*waiting) == [[]] * 10

    with Served(tmp_path) as server:
        asyncio.run(work(server))
        assert server.process.wait(WAIT_S_MAX) == 0
    with Served(tmp_path) as server, connect(server.url) as client:
        assert server.line.endswith("2 queues with 1 message")
        assert drain(client.queue("q")) == [b"kept"]


def test_in_memory_nothing_is_kept() -> None:
    with Served(None) as server, connect(server.url) as client:
        client.create_queue("q").send(b"one")
        assert "in memory only: 0 queues" in server.line
        assert server.stop() == 0


def test_a_second_server_in_the_same_directory_is_refused(served: Served) -> None:
    command = [str(LAVANT), "serve", "--port", "0", "--data", str(served.data)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert second.returncode == StorageLocked.exit_code
    assert f"in use already, by process {served.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_that_is_taken_is_told(tmp_path: Path, served: Served) -> None:
    command = [str(LAVANT), "serve", "--port", str(served.port), "--data", str(tmp_path / "other")]
    second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert second.returncode == 7
    assert "choose another --port" in second.stderr
    assert "Traceback" not in second.stderr
