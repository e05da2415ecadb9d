"""Topics: for each a queue of tasks, `topic.A`, and a queue of dead letters, `dead.A`.

Each attempt at a task is a message in the queue of the task's topic that names only the job and the task. It is removed
when the attempt ends. So the queue holds exactly the topic's outstanding work, and its figures show how far behind its
workers are.

Only jobs add messages to these queues and remove them; anyone may peek.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX, DEPTH_MAX, RETENTION_MS_MAX, QueueConfig
from lavant.broker.protocol.queues import SendEntry, SentEntry
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.send import send
from lavant.broker.queues.queue import QueueState
from lavant.broker.workflows.definitions.definition import TOPICS_MAX, letters_of, queue_of
from lavant.broker.workflows.limits import DEAD_LETTERS_MAX
from lavant.core.errors import LimitExceeded, QueueExists, UnknownTopic

TASKS = QueueConfig(retention_ms=RETENTION_MS_MAX, depth_max=DEPTH_MAX, in_flight_max=DEPTH_MAX)
LETTERS = QueueConfig(retention_ms=RETENTION_MS_MAX, depth_max=DEAD_LETTERS_MAX)


class Topics:
    """`changed` is called with each queue after its messages have changed."""

    def __init__(self, directory: Directory, counters: QueueCounters, changed: Callable[[QueueState], None]) -> None:
        self._directory = directory
        self._counters = counters
        self._changed = changed
        self._tasks: dict[str, QueueState] = {}
        self._letters: dict[str, QueueState] = {}
        self.queues: set[str] = set()
        """The names of all queues of tasks."""
        self.letter_queues: set[str] = set()

    def names(self) -> list[str]:
        return list(self._tasks)

    def check_new(self, topics: Iterable[str], queues_max: int, *, is_replay: bool) -> list[str]:
        """Topics that do not exist yet; raises if they cannot be added."""
        new = [topic for topic in topics if topic not in self._tasks]
        if len(self._tasks) + len(new) > TOPICS_MAX and not is_replay:
            raise LimitExceeded(f"there are {len(self._tasks)} topics, {len(new)} more would exceed {TOPICS_MAX}")
        if len(self._directory) + 2 * len(new) > queues_max:
            raise LimitExceeded(
                f"there are {len(self._directory)} queues, {len(new)} topics with two each would exceed the limit "
                f"of {queues_max}; delete some"
            )
        for topic in new:
            for name in (queue_of(topic), letters_of(topic)):
                if self._directory.find(name) is not None:
                    raise QueueExists(f"topic {topic!r} needs queue {name!r}, which exists already; delete that first")
        return new

    def add(self, topics: Iterable[str], now_ms: int) -> None:
        """Add topics that `check_new` returned."""
        for topic in topics:
            for name, config in ((queue_of(topic), TASKS), (letters_of(topic), LETTERS)):
                self._directory.create(name, config, {}, now_ms)
        self.restore(topics)

    def restore(self, topics: Iterable[str]) -> None:
        """Restore topics whose queues exist."""
        for topic in topics:
            self._tasks[topic] = self._directory[queue_of(topic)]
            self._letters[topic] = self._directory[letters_of(topic)]
            self.queues.add(queue_of(topic))
            self.letter_queues.add(letters_of(topic))

    def __getitem__(self, topic: str) -> QueueState:
        queue = self._tasks.get(topic)
        if queue is None:
            raise UnknownTopic(f"there is no topic {topic!r}; define a job type that uses it first")
        return queue

    def put(self, topic: str, reference: bytes, now_ms: int, delay_ms: int = 0) -> int:
        """Add a message and return its number."""
        queue = self._tasks[topic]
        entry = SendEntry(reference, delay_ms=delay_ms) if delay_ms else SendEntry(reference)
        [sent] = send(queue, (entry,), (len(reference),), now_ms, self._counters)
        assert isinstance(sent, SentEntry), sent
        self._changed(queue)
        return sent.number

    def take(self, queue: QueueState) -> Message | None:
        """Take the next visible message, which must be leased or discarded at once."""
        taken = queue.order.take(1, BATCH_BYTES_MAX)
        return taken[0] if taken else None

    def lease(self, queue: QueueState, message: Message, until_ms: int, now_ms: int) -> None:
        queue.lease((message,), until_ms, now_ms)
        self._changed(queue)

    def release(self, topic: str, number: int) -> None:
        """Make a leased message visible again, as if it had not been leased."""
        queue = self._tasks[topic]
        queue.release((queue.messages[number],))
        self._changed(queue)

    def extend(self, topic: str, number: int, until_ms: int) -> None:
        queue = self._tasks[topic]
        queue.extend(queue.messages[number], until_ms)
        self._changed(queue)

    def drop(self, topic: str, number: int) -> None:
        """Remove a message, in any state."""
        queue = self._tasks[topic]
        message = queue.messages.pop(number)
        queue.remove((message,))
        queue.totals.acknowledged += 1
        self._changed(queue)

    def discard(self, queue: QueueState, message: Message) -> None:
        """Remove a message that was taken and belongs to no task."""
        queue.move_out(message)
        self._changed(queue)

    def dead_letter(self, topic: str, letter: bytes, now_ms: int) -> None:
        """Add a dead letter. At the limit, the oldest is dropped."""
        queue = self._letters[topic]
        while len(queue.messages) >= queue.config.depth_max:
            oldest = queue.oldest()
            assert oldest is not None
            del queue.messages[oldest.number]
            queue.remove((oldest,))
        send(queue, (SendEntry(letter),), (len(letter),), now_ms, self._counters)
        self._changed(queue)
