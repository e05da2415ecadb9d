"""Fills a broker with one kind of thing, in a process of its own, and prints what was counted and what it really took.

    python -m tests.integration.memory_filling KIND

Requests pass through the wire's encoding first, so that nothing is shared that a server would not share.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.frames import decode_request
from lavant.broker.protocol.jobs import CompleteTask, DefineJobs, LeaseTasks, Result, SubmitJob
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, FanOut, Receive, Refused, Send, SendEntry
from lavant.broker.protocol.subscriptions import Advertise, Deliver, PublishOutcome, Subscribe
from lavant.broker.queues.accounting.quotas import UNLIMITED
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions import limits
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.broker.workflows.limits import UNLIMITED_JOBS
from lavant.broker.workflows.machine import Jobs

QUEUE = "queue"
BATCH = 500
MANY = 56_000
"""So that dictionaries, whose sizes double, are neither nearly full nor nearly empty."""
DEEP = 10_000_000
FAN_OUT = 100
NEVER_S = 3600.0
"""Without changes before segments are merged: what merging loads and copies meanwhile is not counted here."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NOTHING = FanOut([], b"", b"", b"")
WORKFLOWS = read_workflows(
    'topics = ["C"]\n[jobs.chain]\nstart = "a"\ntasks.a = { topic = "C", next = "b" }\ntasks.b = { topic = "C" }\n'
)
_encode = msgspec.msgpack.Encoder().encode


class Filling:
    """A broker without limits, and its time."""

    def __init__(self, **config: Any) -> None:
        self.broker = BrokerState(Jobs(UNLIMITED, UNLIMITED_JOBS))
        self.broker.subscriptions.limits = limits.UNLIMITED
        self.now_ms = 1_700_000_000_000
        self.count = 0
        self.ask(CreateQueue(QUEUE, QueueConfig(depth_max=DEEP, in_flight_max=DEEP, **config)))
        self.ask(DefineJobs(WORKFLOWS))

    def ask(self, request: Any) -> Any:
        return self.broker.handle(decode_request(_encode(request)), self.now_ms)

    def numbers(self, count: int) -> Iterable[int]:
        """That nobody had before; time passes now and then."""
        self.now_ms += 1
        self.count += count
        return range(self.count - count, self.count)

    def send(self, count: int, entry: Callable[[int], SendEntry], batch: int = BATCH) -> None:
        for _ in range(0, count, batch):
            self.ask(Send(QUEUE, [entry(number) for number in self.numbers(batch)]))

    def receive(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            self.now_ms += 1
            self.ask(Receive(QUEUE, count=BATCH, visibility_ms=60_000))


Fill = Callable[[int], None]


def sending(entry: Callable[[int], SendEntry], *, batch: int = BATCH, **config: Any) -> tuple[Filling, Fill]:
    filling = Filling(**config)
    return filling, lambda count: filling.send(count, entry, batch)


def receiving(entry: Callable[[int], SendEntry], **config: Any) -> tuple[Filling, Fill]:
    filling = Filling(**config)

    def fill(count: int) -> None:
        filling.send(count, entry)
        filling.receive(count)

    return filling, fill


def spreading(size_bytes: int) -> tuple[Filling, Fill]:
    filling = Filling()
    for number in range(FAN_OUT):
        filling.ask(CreateQueue(f"fan-{number}", QueueConfig()))
    serials = [filling.broker.queues.serial(f"fan-{number}") for number in range(FAN_OUT)]

    def fill(count: int) -> None:
        bodies = count // FAN_OUT
        arrays = (serials, np.arange(1, FAN_OUT + 1) * bodies, np.tile(np.arange(bodies), FAN_OUT))
        content = [b"%0*d" % (size_bytes, number) for number in filling.numbers(bodies)]
        filling.ask(Deliver(FanOut(content, *(np.array(each, INTEGERS).tobytes() for each in arrays))))

    return filling, fill


def one_by_one(request: Callable[[int], Any], share: int) -> tuple[Filling, Fill]:
    """Each counts as much as so many messages, to take about as long."""
    filling = Filling()

    def fill(count: int) -> None:
        for _ in range(count // share):
            [number] = filling.numbers(1)
            filling.ask(request(number))

    return filling, fill


def keys(publications: int, share: int) -> tuple[Filling, Fill]:
    def request(number: int) -> Deliver:
        ids: list[str | Refused] = [f"{number:x}-{place:x}" for place in range(publications)]
        return Deliver(NOTHING, answered=[PublishOutcome("acme", f"key-{number:016d}", os.urandom(16), ids)])

    return one_by_one(request, share)


def subscribing(filter: Callable[[int], str], share: int) -> tuple[Filling, Fill]:
    """With the index of the local engine."""
    from lavant.service.engines.filters import FilterAdmission
    from lavant.service.engines.local import LocalEngine

    filling, filters = Filling(), FilterAdmission(LocalEngine(1, quiet_s=NEVER_S))

    def fill(count: int) -> None:
        for number in filling.numbers(count // share):
            filling.ask(Subscribe(filter(number), name=f"subscription-{number}", queue=QUEUE))
        filters.apply(list(filling.broker.subscriptions.changes), {})
        filling.broker.subscriptions.changes.clear()

    return filling, fill


def ending_jobs() -> tuple[Filling, Fill]:
    filling = Filling()

    def fill(count: int) -> None:
        for number in filling.numbers(count // 4):
            filling.now_ms += 1
            filling.ask(SubmitJob("chain", b"12345678", name=f"job-{number:010d}"))
            for _ in "ab":
                [task] = filling.ask(LeaseTasks("C", "worker")).tasks
                filling.ask(CompleteTask(task.job, task.task, task.attempt, Result(b"done")))

    return filling, fill


def running_jobs() -> tuple[Filling, Fill]:
    filling = Filling()

    def fill(count: int) -> None:
        for number in filling.numbers(count // 4):
            filling.now_ms += 1
            filling.ask(SubmitJob("chain", b"12345678", name=f"job-{number:010d}"))
            [task] = filling.ask(LeaseTasks("C", "worker")).tasks
            filling.ask(CompleteTask(task.job, task.task, task.attempt, Result(b"done")))
            filling.ask(LeaseTasks("C", "worker"))

    return filling, fill


def _group(number: int) -> str:
    return f"group-{number:014d}"


def _filter(number: int) -> str:
    return f"price > {number} and name = 'x{number}'"


def _alternatives(number: int) -> str:
    return " or ".join(f"(price{place} > {number} and name = 'x{number}')" for place in range(10))


KINDS: dict[str, Callable[[], tuple[Filling, Fill]]] = {
    "one byte": lambda: sending(lambda _: SendEntry(b"x")),
    "one byte, each sent alone": lambda: sending(lambda _: SendEntry(b"x"), batch=1),
    "a hundred bytes": lambda: sending(lambda _: SendEntry(b"x" * 100)),
    "a kilobyte": lambda: sending(lambda _: SendEntry(b"x" * 1000)),
    "attributes": lambda: sending(lambda _: SendEntry(b"x", attributes=b"a" * 60)),
    "delayed": lambda: sending(lambda number: SendEntry(b"x", delay_ms=60_000 + number % 1000)),
    "in order, one group": lambda: sending(lambda _: SendEntry(b"x", group="g"), order="in-order"),
    "in order, own groups": lambda: sending(lambda number: SendEntry(b"x", group=_group(number)), order="in-order"),
    "names": lambda: sending(lambda number: SendEntry(b"x", deduplication=f"name-{number:015d}"), order="in-order"),
    "names, each sent alone": lambda: sending(
        lambda number: SendEntry(b"x", deduplication=f"name-{number:015d}"), order="in-order", batch=1
    ),
    "names in groups": lambda: sending(
        lambda number: SendEntry(b"x", group=_group(number), deduplication=f"name-{number:015d}"),
        order="in-order",
        deduplicate_within_group=True,
    ),
    "names of content": lambda: sending(
        lambda number: SendEntry(b"%d" % number), order="in-order", deduplicate_by_content=True
    ),
    "names beyond ASCII": lambda: sending(
        lambda number: SendEntry(b"x", group=f"größe-{number:012d}"), order="in-order"
    ),
    "in flight": lambda: receiving(lambda _: SendEntry(b"x")),
    "in flight, in order": lambda: receiving(lambda number: SendEntry(b"x", group=_group(number)), order="in-order"),
    "fan-out, 1 byte": lambda: spreading(1),
    "fan-out, 100 bytes": lambda: spreading(100),
    "fan-out, 10,000 bytes": lambda: spreading(10_000),
    "queues": lambda: one_by_one(
        lambda number: CreateQueue(f"queue-{number}", QueueConfig(visibility_ms=number), {"team": f"team-{number}"}), 12
    ),
    "idempotency keys": lambda: keys(1, 2),
    "idempotency keys of large requests": lambda: keys(100, 40),
    "subscriptions": lambda: subscribing(_filter, 6),
    "subscriptions with alternatives": lambda: subscribing(_alternatives, 30),
    "advertisements": lambda: one_by_one(lambda number: Advertise(_filter(number), name=f"adv-{number}"), 2),
    "jobs": lambda: one_by_one(lambda number: SubmitJob("chain", b"12345678", name=f"job-{number:010d}"), 4),
    "jobs at work": running_jobs,
    "jobs that ended": ending_jobs,
}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main(kind: str) -> None:
    filling, fill = KINDS[kind]()
    fill(MANY // 20)  # what is loaded and made only once
    held, resident = filling.broker.queues.memory_held, resident_bytes()
    fill(MANY)
    print(filling.broker.queues.memory_held - held, resident_bytes() - resident, flush=True)
    os._exit(0)  # threads of an engine need not end in good order


if __name__ == "__main__":
    main(sys.argv[1])
