"""Data directories for tests: how one is written with a bit of everything in it, and a broker's state as plain values.

The directories in `tests/data` were written by `write`, each with the code of its time, and `state_of` and `future_of`
were noted in a file of JSON beside it. To add one for the code of today:

    python -m tests.integration.data_directories tests/data/NAME
"""

from __future__ import annotations

import json
import lzma
import random
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from lavant.broker.machine.effects import Effect, Record, Reply
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import fold, replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol import jobs as w
from lavant.broker.protocol import queues as q
from lavant.broker.protocol import subscriptions as s
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import Journal, JournalConfig, apply_upkeep
from lavant.broker.storage.journal.compaction import compact
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.core.frames import encoder

CONFIG = JournalConfig(segment_bytes=256 << 10)
START_MS = 1_700_000_000_000
WORKFLOWS = """
topics = ["load", "draw"]
[jobs.picture]
start = "load"
tasks.load = { topic = "load", next = "draw", attempts = 3 }
tasks.draw = { topic = "draw" }
"""
WEIGHTS = {
    "send": 9,
    "receive": 9,
    "settle": 8,
    "purge": 0.5,
    "deliver": 1,
    "job": 0.5,
    "work": 1.5,
    "move": 1,
    "pass": 3,
}


class Writer:
    """A server on a journal in a directory, at times of our own."""

    def __init__(self, directory: Path) -> None:
        self.disk = FileDisk(directory)
        self.journal, recovered = Journal.open(self.disk, CONFIG, new_id=7)
        broker = replay(recovered.chunks, recovered.records)
        self.now_ms = max(START_MS, broker.queues.now_ms)
        self.server = BrokerMachine(broker, position=self.journal.position)
        self.answers: dict[int, Answer] = {}
        self.asked = 0
        self._perform(self.server.open(self.now_ms))
        self._commit()

    def ask(self, request: Request) -> Any:
        self.asked += 1
        raw = encoder.encode(request)
        self._perform(self.server.request("ann", self.asked, request, raw, self.now_ms))
        self._commit()
        return self.answers[self.asked]

    def deliver(self, delivered: s.Deliver) -> None:
        self._perform(self.server.deliver(delivered, [], self.now_ms))
        self._commit()

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self._perform(self.server.tick(self.now_ms))
        self._commit()

    def compact(self) -> None:
        """Fold everything until now into a snapshot."""
        size = compact(self.disk, self.journal.durable, fold, CONFIG)
        self.journal.adopt(self.journal.durable, size)
        while (upkeep := self.journal.upkeep()) is not None:
            apply_upkeep(self.disk, upkeep)
            self.journal.finish_upkeep(upkeep)

    def close(self) -> None:
        self.disk.close()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self.journal.stage(effect.data)
            elif isinstance(effect, Reply):
                self.answers[effect.number] = effect.answer

    def _commit(self) -> None:
        while (write := self.journal.begin()) is not None:
            self.disk.write(write.name, write.offset, write.data)
            self.disk.sync(write.name)
            self.journal.finish(write)
        self._perform(self.server.committed(self.journal.durable, self.now_ms))


def write(directory: Path, *, steps: int, seed: int, snapshot: bool) -> None:
    """Queues of both orders, leases, give-backs, purges, dead letters, moves, subscriptions, jobs; two starts."""
    writer = Writer(directory)
    _set_up(writer)
    chance = random.Random(seed)
    for _ in range(steps):
        _step(writer, chance)
    if snapshot:
        writer.compact()
    writer.close()
    writer = Writer(directory)
    for _ in range(steps):
        _step(writer, chance)
    writer.close()


def _set_up(writer: Writer) -> None:
    ask = writer.ask
    ask(q.CreateQueue("dead.fifo", QueueConfig(order="in-order")))
    ask(q.CreateQueue("dead", QueueConfig()))
    ask(q.CreateQueue("fifo", QueueConfig("in-order", 5_000, dead_letters="dead.fifo", receives_max=4)))
    grouped = QueueConfig("in-order", 3_000, deduplicate_by_content=True, deduplicate_within_group=True)
    ask(q.CreateQueue("grouped", grouped, {"team": "blue"}))
    ask(q.CreateQueue("plain", QueueConfig(visibility_ms=4_000, dead_letters="dead", receives_max=3)))
    ask(s.Subscribe("price > 10", "named"))
    ask(s.Subscribe("price > 20", "tmp-0123456789abcdef", config=QueueConfig(retention_ms=3_600_000)))
    ask(s.Subscribe("symbol = 'IBM'", "joined", "plain"))
    ask(s.Subscribe("price < 5", "hook", webhook=s.Webhook("http://127.0.0.1:1/hook", 5, secret="shh")))
    ask(s.Subscribe("price > 1", "of-acme", namespace="acme"))
    ask(s.Advertise("price > 0", "prices"))
    ask(w.DefineJobs(read_workflows(WORKFLOWS)))


def _step(writer: Writer, chance: random.Random) -> None:
    queue = chance.choice(["fifo", "grouped", "plain"])
    [kind] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
    if kind == "send":
        is_fifo = queue != "plain"
        entries = [
            q.SendEntry(
                b"body %d" % chance.randrange(20),
                group=chance.choice("abcd") if is_fifo else "",
                deduplication=f"name {chance.randrange(60)}" if queue == "fifo" else "",
                delay_ms=None if is_fifo else chance.choice([None, 0, 2_000]),
            )
            for _ in range(chance.randint(1, 3))
        ]
        writer.ask(q.Send(queue, entries))
    elif kind == "receive":
        writer.ask(q.Receive(queue, chance.randint(1, 4), chance.choice([None, None, 0, 60_000]), 0))
    elif kind == "settle":
        _settle(writer, queue, chance)
    elif kind == "purge":
        writer.ask(q.PurgeQueue(queue))
    elif kind == "deliver":
        _deliver(writer, chance)
    elif kind == "job":
        writer.ask(w.SubmitJob("picture", b"input %d" % writer.asked))
    elif kind == "work":
        _work(writer, chance)
    elif kind == "move":
        writer.ask(q.StartMove(chance.choice(["dead", "dead.fifo"])))
    else:
        writer.pass_ms(chance.choice([1, 50, 1_000, 5_000]))


def _settle(writer: Writer, queue: str, chance: random.Random) -> None:
    messages = writer.server.queues._directory[queue].messages.values()
    leased = [q.Receipt(each.number, each.lease) for each in messages if each.visible_ms and each.lease]
    if not leased:
        return
    chosen = chance.sample(leased, min(len(leased), chance.randint(1, 3)))
    if chance.random() < 0.25:
        writer.ask(q.Acknowledge(queue, chosen))
    else:
        hidden_ms = chance.choice([0, 0, 700])
        writer.ask(q.ChangeVisibility(queue, [q.VisibilityChange(each, hidden_ms) for each in chosen]))


def _deliver(writer: Writer, chance: random.Random) -> None:
    queues = writer.server.queues
    names = [each.queue for each in writer.server.broker.subscriptions if queues.exists(each.queue)]
    serial = queues.serial(chance.choice(names))
    numbers = [INTEGERS.type(each).tobytes() for each in (serial, 1, 0)]
    body = b'{"@id":"%d","price":7}' % writer.asked
    writer.deliver(s.Deliver(q.FanOut([body], *numbers), {f"key {writer.asked}": [f"{writer.asked}"]}))


def _work(writer: Writer, chance: random.Random) -> None:
    leased = writer.ask(w.LeaseTasks(chance.choice(["load", "draw"]), "bob", 1, 0, 5_000))
    for task in leased.tasks:
        if chance.random() < 0.7:
            writer.ask(w.CompleteTask(task.job, task.task, task.attempt, w.Result(b"made")))
        elif chance.random() < 0.5:
            writer.ask(w.FailTask(task.job, task.task, task.attempt, "it rained"))


def opened(directory: Path) -> BrokerState:
    """The broker of a data directory, as it was at the last record."""
    disk = FileDisk(directory)
    try:
        _, recovered = Journal.open(disk, CONFIG)
        return replay(recovered.chunks, recovered.records)
    finally:
        disk.close()


def state_of(broker: BrokerState) -> Any:
    """All that a broker holds, as plain values that do not depend on the form of snapshots."""
    queues = broker.queues
    number, subscriptions, advertisements = broker.subscriptions.contents()
    return _plain(
        {
            "now_ms": queues.now_ms,
            "counters": [queues._counters.number, queues._counters.lease, queues._counters.task, queues.bytes_held],
            "queues": {each.name: _queue(each, queues.now_ms) for each in queues._directory},
            "moves": queues._moves.states(),
            "last subscription": number,
            "subscriptions": list(subscriptions),
            "advertisements": list(advertisements),
            "keys": _keys(broker),
            "jobs": [queues.handle(w.DescribeJob(each.number), queues.now_ms) for each in _jobs(broker)],
            "job types": [queues.handle(w.DescribeJobType("picture"), queues.now_ms)],
        }
    )


def future_of(broker: BrokerState) -> Any:
    """What comes out of each queue next, in which order, until nothing is left."""
    found: dict[str, list[Any]] = {}
    for queue in [each.name for each in broker.queues._directory if not each.name.startswith("topic.")]:
        found[queue] = []
        while True:
            answer = broker.handle(q.Receive(queue, 2, 600_000), broker.queues.now_ms)
            assert isinstance(answer, q.Received)
            if not answer.deliveries and not broker.changed:
                break
            found[queue] += [(each.receipt, each.receive_count, each.body) for each in answer.deliveries]
            broker.handle(q.Acknowledge(queue, [each.receipt for each in answer.deliveries]), broker.queues.now_ms)
    return _plain(found)


def _queue(queue: Any, now_ms: int) -> Any:
    queue.deduplication.forget(now_ms)
    return {
        "config": queue.config,
        "tags": queue.tags,
        "times": [queue.created_ms, queue.changed_ms],
        "serial": queue.serial,
        "figures": queue.figures(),
        "messages": list(queue.messages.values()),
        "names": list(queue.deduplication.remembered()),
    }


def _jobs(broker: BrokerState) -> list[Any]:
    listed = broker.queues.handle(w.ListJobs(count=100), broker.queues.now_ms)
    return list(listed.jobs)


def _keys(broker: BrokerState) -> list[Any]:
    """Of requests to publish that came lately: key, time, answer."""
    recent = broker.subscriptions.recent
    placed = [(key, each.time_ms, each.entries) for _, key, each in recent.all()]
    return sorted([*recent.unplaced(), *placed])


def _plain(value: Any) -> Any:
    """With structs by the names of their fields: later versions may have more of them."""
    if isinstance(value, msgspec.Struct):
        return {field: _plain(getattr(value, field)) for field in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return json.loads(msgspec.json.encode(value))


def contains(now: Any, then: Any) -> bool:
    """Whether everything is as it was then, but for fields that did not exist."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(key in now and contains(now[key], each) for key, each in then.items())
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(contains, now, then))
    return bool(now == then)


def _pack(directory: Path, target: Path) -> None:
    with tarfile.open(target, "w:xz") as packed:
        for path in sorted(directory.iterdir()):
            packed.add(path, path.name)


def unpack(archive: Path, directory: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, snapshot in (("journal", False), ("snapshot", True)):
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place)
            write(directory, steps=250, seed=9, snapshot=snapshot)
            _pack(directory, target / f"{name}.tar.xz")
            golden = {"state": state_of(opened(directory)), "future": future_of(opened(directory))}
            (target / "state.json.xz").write_bytes(lzma.compress(json.dumps(golden).encode()))  # the same for both


if __name__ == "__main__":
    main(Path(sys.argv[1]))
