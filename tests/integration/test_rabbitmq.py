"""Tasks through a real RabbitMQ: nothing is lost and nothing counts twice, whatever breaks."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest
from tests.integration.bridging import (
    ONE_TASK,
    TWO_TASKS,
    Work,
    bridged,
    channel,
    forget,
    run,
    until,
    working,
)
from tests.integration.rabbitmq import RabbitMQNode, require_rabbitmq
from tests.integration.server_processes import free_port
from tests.integration.serving import LAVANT, Served

import lavant
from lavant.broker.protocol.amqp_messages import REPORTS, Report, encode, task_queue
from lavant.broker.protocol.jobs import CompleteTask, FailTask, JobView, LeaseTasks, Result, TasksLeased
from lavant.client.workers.backends.rabbitmq import RabbitMQBackend
from lavant.client.workers.task import Task
from lavant.core.errors import AccessDenied, MissingComponent


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQNode]:
    require_rabbitmq()
    node = RabbitMQNode(tmp_path_factory.mktemp("rabbitmq"))
    node.start()
    yield node
    node.stop()


@pytest.fixture
def node(running: RabbitMQNode) -> Iterator[RabbitMQNode]:
    yield running
    asyncio.run(forget(running.url, "A", "B"))


def attempts(view: lavant.JobView | JobView) -> list[int]:
    return [len(task.attempts) for task in view.tasks]


def test_jobs_go_through_rabbitmq_and_each_task_is_done_once(node: RabbitMQNode) -> None:
    async def scenario() -> None:
        first, second = Work(), Work()

        async def join(task: Task) -> bytes:
            await second(task)
            return task.results["a"].body + b"!"

        async with (
            bridged(node.url, TWO_TASKS) as served,
            working(node.url, ("A", first.function), ("B", join), name="ann", concurrency=3),
            working(node.url, ("A", first.function), ("B", join), name="bob", concurrency=3),
        ):
            inputs = [b"job %d" % number for number in range(30)]
            views = await served.ended(*await served.submit("two", *inputs))
            assert [view.results["b"].body for view in views] == [each.upper() + b"!" for each in inputs]
            assert {tuple(attempts(view)) for view in views} == {(1, 1)}
            assert first.done == second.done == dict.fromkeys(inputs, 1)
            assert await left(node, "A") == await left(node, "B") == 0

    run(scenario())


def test_only_as_many_tasks_are_with_rabbitmq_as_it_has_consumers(node: RabbitMQNode) -> None:
    async def scenario() -> None:
        work = Work(is_held=True)
        async with bridged(node.url, ONE_TASK) as served:
            numbers = await served.submit("one", *[b"%d" % number for number in range(10)])
            await until(lambda: served.bridge.fault is None)
            await asyncio.sleep(0.6)  # longer than from one look at the queues to the next
            assert served.waiting("A") == 10, "without a consumer, all wait where they are measured"
            async with working(node.url, ("A", work.function), concurrency=3):
                await until(lambda: len(work.begun) == 3)
                await asyncio.sleep(0.6)
                assert (served.waiting("A"), len(work.begun), await left(node, "A")) == (7, 3, 0)
                work.free.set()
                assert {view.state for view in await served.ended(*numbers)} == {"completed"}

    run(scenario())


def test_some_may_wait_ahead_in_rabbitmq(node: RabbitMQNode) -> None:
    async def scenario() -> None:
        work = Work(is_held=True)
        async with (
            bridged(node.url, ONE_TASK, ahead=2.0, lease_s=2.0) as served,
            working(node.url, ("A", work.function), concurrency=2),
        ):
            numbers = await served.submit("one", *[b"%d" % number for number in range(10)])
            await until(lambda: served.waiting("A") == 6)
            assert await left(node, "A") == 2
            await asyncio.sleep(2.5)  # longer than a lease: those that wait are kept
            work.free.set()
            assert {tuple(attempts(view)) for view in await served.ended(*numbers)} == {(1,)}

    run(scenario())


def test_a_copy_of_a_task_is_not_done_again(node: RabbitMQNode) -> None:
    """As after a confirmation that was lost: the same attempt is in the queue twice."""

    async def scenario() -> None:
        work = Work(is_held=True)
        async with bridged(node.url, ONE_TASK) as served, channel(node.url) as other:
            await until(lambda: served.bridge.fault is None)
            async with working(node.url, ("A", work.function), name="ann", concurrency=2):
                [number] = await served.submit("one", b"x")
                await until(lambda: work.begun[b"x"] == 1)
                body = encode_task(number)
                for _ in range(3):
                    await other.default_exchange.publish(aio_pika.Message(body), task_queue("A"))
                async with working(node.url, ("A", work.function), name="bob"):
                    await asyncio.sleep(0.5)
                    work.free.set()
                    [view] = await served.ended(number)
                    await other.default_exchange.publish(aio_pika.Message(body), task_queue("A"))
                    await empty(node, "A")
        assert (view.results["a"].body, work.begun[b"x"]) == (b"X", 1)

    run(scenario())


def test_reports_that_come_twice_late_or_contradict_change_nothing(node: RabbitMQNode) -> None:
    async def scenario() -> None:
        async with bridged(node.url, ONE_TASK) as served, channel(node.url) as other:
            await until(lambda: served.bridge.fault is None)

            async def report(worker: str, command: CompleteTask | FailTask) -> None:
                body = encode(Report("A", worker, command))
                await other.default_exchange.publish(aio_pika.Message(body), REPORTS)

            numbers = await served.submit("one", b"x", b"y")
            leased = await served.ask(LeaseTasks("A", "rabbitmq", 2, 0))
            assert isinstance(leased, TasksLeased)
            x, y = numbers
            done = CompleteTask(x, "a", 1, Result(b"first"))
            await report("ann", done)
            await report("ann", done)
            await report("bob", CompleteTask(x, "a", 1, Result(b"second")))
            await report("bob", FailTask(x, "a", 1, "too late"))
            await report("bob", CompleteTask(999, "a", 1))
            for rubbish in (b"", b"rubbish", encode(["A", "bob", ["complete-task"]])):
                await other.default_exchange.publish(aio_pika.Message(rubbish), REPORTS)
            await report("ann", CompleteTask(y, "a", 1, Result(b"last")))
            views = await served.ended(x, y)
            assert [view.results["a"].body for view in views] == [b"first", b"last"]
            queue = await other.get_queue(REPORTS)
            assert queue.declaration_result.message_count == 0

    run(scenario())


def test_a_worker_that_dies_is_missed_when_its_lease_runs_out(node: RabbitMQNode, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(
        "import os, pathlib, time, lavant\n"
        "@lavant.task('A')\n"
        "def a(task):\n"
        f"    pathlib.Path({str(tmp_path / 'begun')!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
    )

    async def scenario() -> None:
        command = [str(LAVANT), "worker", "functions.py", "--backend", node.url, "--lease", "1"]
        work = Work()
        async with bridged(node.url, ONE_TASK, lease_s=1.0) as served:
            [number] = await served.submit("one", b"x")
            with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
                await until((tmp_path / "begun").exists)
                await asyncio.sleep(1.5)  # longer than its lease, which it keeps
                assert (await served.job(number)).tasks[0].state == "running"
                async with working(node.url, ("A", work.function), name="bob", lease_s=1.0):
                    process.kill()
                    [view] = await served.ended(number)
        assert view.results["a"].body == b"X"
        assert [each.outcome for each in view.tasks[0].attempts] == ["timed out", "completed"]
        assert work.done == {b"x": 1}

    run(scenario())


def test_a_task_whose_message_is_lost_comes_again(node: RabbitMQNode) -> None:
    """Somebody purges the queue. Those that are still there when the lease is half over are kept."""

    async def scenario() -> None:
        work = Work(is_held=True)
        async with (
            bridged(node.url, ONE_TASK, ahead=3.0, lease_s=1.0) as served,
            working(node.url, ("A", work.function), lease_s=1.0),
            channel(node.url) as other,
        ):
            numbers = await served.submit("one", b"x", b"y", b"z")
            await until(lambda: served.waiting("A") == 0 and len(work.begun) == 1)
            await until_ready(node, "A", 2)
            await (await other.get_queue(task_queue("A"))).purge()
            await asyncio.sleep(1.2)
            work.free.set()
            views = await served.ended(*numbers)
            assert [view.state for view in views] == ["completed"] * 3
            assert sorted(len(view.tasks[0].attempts) for view in views) == [1, 2, 2]
            assert work.done == {b"x": 1, b"y": 1, b"z": 1}

    run(scenario())


def test_reports_come_again_when_somebody_has_deleted_their_queue(node: RabbitMQNode) -> None:
    """The server's connection stays, but nothing would be delivered on it any more."""

    async def scenario() -> None:
        work = Work(is_held=True)
        async with (
            bridged(node.url, ONE_TASK) as served,
            working(node.url, ("A", work.function), concurrency=2),
            channel(node.url) as other,
        ):
            numbers = await served.submit("one", b"x", b"y")
            await until(lambda: len(work.begun) == 2)
            await other.queue_delete(REPORTS)
            work.free.set()
            assert {tuple(attempts(view)) for view in await served.ended(*numbers)} == {(1,)}
            assert work.done == {b"x": 1, b"y": 1}

    run(scenario())


def test_a_worker_that_drains_leaves_tasks_to_others(node: RabbitMQNode) -> None:
    async def scenario() -> None:
        slow, quick = Work(is_held=True), Work()
        async with bridged(node.url, ONE_TASK) as served:
            backend_url = node.url
            async with working(backend_url, ("A", slow.function), name="slow", concurrency=2) as leaving:
                [first] = await served.submit("one", b"slow")
                await until(lambda: slow.begun[b"slow"] == 1)
                leaving.drain()
                await asyncio.sleep(1.2)  # its idle slot has asked for the last time
                async with working(backend_url, ("A", quick.function), name="quick"):
                    numbers = await served.submit("one", b"x", b"y", b"z")
                    views = await served.ended(*numbers)
                    assert [attempts(view) for view in views] == [[1]] * 3
                    assert quick.done == {b"x": 1, b"y": 1, b"z": 1}
                slow.free.set()
                assert (await served.ended(first))[0].state == "completed"

    run(scenario())


def test_nothing_is_lost_or_done_twice_when_rabbitmq_is_killed(node: RabbitMQNode) -> None:
    """For longer than leases last: meanwhile nobody could keep them but the server itself."""

    async def scenario() -> None:
        held, quick = Work(is_held=True), Work()

        async def second(task: Task) -> bytes:
            return await quick(task)

        async with (
            bridged(node.url, TWO_TASKS, lease_s=5.0) as served,
            working(node.url, ("A", held.function), ("B", second), concurrency=4, lease_s=5.0),
        ):
            inputs = [b"%d" % number for number in range(12)]
            numbers = await served.submit("two", *inputs)
            await until(lambda: len(held.begun) == 4)
            await until(lambda: node.has_written_down(queues=3))
            node.kill()
            held.free.set()  # reports have nowhere to go for now
            await until(lambda: served.bridge.fault is not None)
            assert served.bridge.fault is not None
            assert f"127.0.0.1:{node.port}" in served.bridge.fault
            assert "guest:guest" not in served.bridge.fault
            await asyncio.sleep(2.0)  # with the start, longer than a lease
            await asyncio.get_running_loop().run_in_executor(None, node.start)
            views = await served.ended(*numbers)
            assert {view.state for view in views} == {"completed"}
            assert {tuple(attempts(view)) for view in views} == {(1, 1)}
            assert held.done == quick.done == dict.fromkeys(inputs, 1)

    run(scenario())


def test_nothing_is_lost_or_counts_twice_when_the_server_is_killed(node: RabbitMQNode, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(TWO_TASKS)

    async def scenario() -> None:
        first, second = Work(is_held=True), Work()
        port = free_port()
        inputs = [b"%d" % number for number in range(20)]

        def submit() -> list[int]:
            with lavant.connect(f"lavant://127.0.0.1:{port}") as client:
                client.define_jobs(tmp_path / "jobs.toml")
                return [client.submit("two", each) for each in inputs]

        def ended(numbers: list[int]) -> list[lavant.JobView]:
            with lavant.connect(f"lavant://127.0.0.1:{port}") as client:
                return [client.wait(number, timeout_s=30) for number in numbers]

        async with working(node.url, ("A", first.function), ("B", second.function), concurrency=4):
            with Served(tmp_path / "data", "--rabbitmq", node.url, port=port) as served:
                numbers = await asyncio.to_thread(submit)
                await until(lambda: len(first.begun) == 4)
                served.kill()
            first.free.set()  # reports wait with RabbitMQ
            await until(lambda: len(first.done) == 4)
            with Served(tmp_path / "data", "--rabbitmq", node.url, port=port) as served:
                views = await asyncio.to_thread(ended, numbers)
                assert served.stop() == 0
        assert {view.state for view in views} == {"completed"}
        assert {tuple(attempts(view)) for view in views} == {(1, 1)}
        assert first.done == second.done == dict.fromkeys(inputs, 1)

    run(scenario())


def test_who_is_not_let_in_is_told_so_without_the_password(node: RabbitMQNode) -> None:
    async def scenario() -> None:
        for url, kind, said in (
            (f"amqp://guest:secret@127.0.0.1:{node.port}/", AccessDenied, "does not let us in"),
            (f"amqp://guest:guest@127.0.0.1:{node.port}/nowhere", AccessDenied, "does not let us in"),
            (f"amqp://guest:secret@127.0.0.1:{free_port()}/", MissingComponent, "does not answer"),
        ):
            with pytest.raises(kind, match=said) as caught:
                await RabbitMQBackend(url, "ann").open()
            assert "secret" not in str(caught.value)
            async with bridged(url, ONE_TASK) as served:
                await until(lambda served=served, said=said: said in str(served.bridge.fault))  # type: ignore[misc]
                assert "secret" not in str(served.bridge.fault)
                await served.submit("one", b"x")
                assert served.waiting("A") == 1, "nothing is leased for nobody"

    run(scenario())


def test_the_command_line_says_what_is_wrong(node: RabbitMQNode, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text("import lavant\n@lavant.task('A')\ndef a(task): return b''\n")
    command = [str(LAVANT), "worker", "functions.py", "--backend", f"amqp://guest:secret@127.0.0.1:{node.port}/"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == AccessDenied.exit_code
    assert ended.stderr.startswith(f"lavant: RabbitMQ at amqp://guest@127.0.0.1:{node.port}/ does not let us in")
    assert len(ended.stderr.splitlines()) == 1


# ── looking at RabbitMQ ───────────────────────────────────────────────────────────────────────────────────────────────


def encode_task(number: int) -> bytes:
    from lavant.broker.protocol.amqp_messages import Relayed
    from lavant.broker.protocol.jobs import TaskAssignment

    return encode(Relayed("A", TaskAssignment(number, "one", "a", 1, 0, b"x", {}, 60_000)))


async def left(node: RabbitMQNode, topic: str) -> int:
    """Messages that no worker has."""
    async with channel(node.url) as open_:
        queue = await open_.declare_queue(task_queue(topic), passive=True)
        return queue.declaration_result.message_count or 0


async def until_ready(node: RabbitMQNode, topic: str, count: int) -> None:
    while await left(node, topic) != count:
        await asyncio.sleep(0.05)


async def empty(node: RabbitMQNode, topic: str) -> None:
    await until_ready(node, topic, 0)
