"""A real server that is killed again and again while real clients use it: what they were told, checked as a whole.

The clients do what those of the simulation do, so both worlds are held to the same rules.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random

from tests.integration.serving import WAIT_S_MAX, Served

from lavant import Client, connect
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Acknowledge, Acknowledged, Described, DescribeQueue, Received, Send, Sent
from lavant.broker.queues.history import History, RecordedOperation, check
from lavant.broker.queues.validation import refusal
from lavant.client.connection.calls import Call
from lavant.client.connection.retries import NO_RETRIES
from lavant.core.errors import ConnectionLost, LavantError, MissingComponent
from lavant.simulation.queues.workload import CONFIGS, DRAIN, QueueWorkload

CLIENTS = 8
KILLS = 3
OPERATIONS_BETWEEN = 100
AWAY_S = 0.02
"""Before a client that lost its server tries again."""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Recording:
    """The histories of all clients, and when they have to do what."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.operations: list[RecordedOperation] = []
        self.failures: list[BaseException] = []
        self.is_draining = False
        self.is_over = False

    def work(self, number: int) -> None:
        """One client, in a thread of its own."""
        workload = QueueWorkload(f"client-{number}", Random(number))
        try:
            client = connect(self.url, retries=NO_RETRIES)
            with client:
                while not self.is_over:
                    workload.asked(DRAIN if self.is_draining else "work", now_ms())
                    for request in list(workload.wishes(0, now_ms())):
                        workload.answered(request, self._ask(client, f"client-{number}", request), now_ms())
        except BaseException as error:
            self.failures.append(error)
            raise

    def _ask(self, client: Client, name: str, request: Request) -> Answer | None:
        start_ms = now_ms()
        answer: Answer | None = None
        try:
            answer = client.run(Call(request, lambda answer: answer, is_repeatable=False))
        except (ConnectionLost, MissingComponent):
            time.sleep(AWAY_S)
        except LavantError as error:  # an answer like any other
            answer = refusal(error)
        end_ms = None if answer is None else now_ms()
        self.operations.append(
            RecordedOperation(client=name, start_ms=start_ms, end_ms=end_ms, request=request, answer=answer)
        )
        return answer

    def wait_for(self, count: int) -> None:
        """Until so many operations more were answered."""
        wanted = len(self.operations) + count
        deadline_s = time.monotonic() + WAIT_S_MAX
        while len(self.operations) < wanted:
            assert not self.failures
            assert time.monotonic() < deadline_s, "the clients do nothing any more"
            time.sleep(0.005)


def test_clients_of_a_server_that_is_killed_are_told_the_truth(tmp_path: Path) -> None:
    served = Served(tmp_path)
    recording = Recording(served.url)
    restarts_ms: list[int] = []
    threads = [threading.Thread(target=recording.work, args=(number,)) for number in range(CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            recording.wait_for(OPERATIONS_BETWEEN)
            served.kill()
            restarts_ms.append(now_ms())
            served = Served(tmp_path, port=served.port)
        recording.wait_for(OPERATIONS_BETWEEN)
        recording.is_draining = True
        wait_until_empty(served.url)
    finally:
        recording.is_over = True
        for thread in threads:
            thread.join(WAIT_S_MAX)
        served.kill()
    assert not recording.failures
    history = History(configs=CONFIGS, operations=recording.operations, restarts_ms=restarts_ms, left={})
    assert [str(violation) for violation in check(history)] == []
    require_that_much_happened(recording.operations)


def wait_until_empty(url: str) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    with connect(url) as client:
        while any(_depth(client.run(Call(DescribeQueue(queue), lambda answer: answer))) for queue in CONFIGS):
            assert time.monotonic() < deadline_s, "some messages are never received"
            time.sleep(0.05)


def _depth(answer: Answer) -> int:
    assert isinstance(answer, Described)
    return answer.figures.visible + answer.figures.in_flight + answer.figures.delayed


def require_that_much_happened(operations: list[RecordedOperation]) -> None:
    answers = [operation.answer for operation in operations]
    assert sum(isinstance(answer, Sent) for answer in answers) > 50
    assert sum(isinstance(answer, Acknowledged) for answer in answers) > 50
    assert sum(isinstance(answer, Received) and bool(answer.deliveries) for answer in answers) > 50
    unanswered = [operation.request for operation in operations if operation.answer is None]
    assert any(isinstance(request, Send | Acknowledge) for request in unanswered)
