"""The topics of a hub: for each a queue of tasks, `topic.A`, and a queue of dead letters, `dead.A`.

Every attempt at a task is a message of its own in the queue of the task's topic; it says which job and which task, and
no more. It is gone when the attempt is over. So what waits in the queue is the work that a topic has, and the queue's
own figures tell how far behind its workers are.

Only jobs put messages into these queues and take them out; everybody may look.
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
        """Those that there are not yet; raises if they cannot be added."""
        new = [topic for topic in topics if topic not in self._tasks]
        if len(self._tasks) + len(new) > TOPICS_MAX and not is_replay:
            raise LimitExceeded(f"there are {len(self._tasks)} topics, {len(new)} more would be over {TOPICS_MAX}")
        if len(self._directory) + 2 * len(new) > queues_max:
            raise LimitExceeded(
                f"there are {len(self._directory)} queues, {len(new)} topics with two each would be over the limit of "
                f"{queues_max}; delete some"
            )
        for topic in new:
            for name in (queue_of(topic), letters_of(topic)):
                if self._directory.find(name) is not None:
                    raise QueueExists(f"topic {topic!r} needs queue {name!r}, which exists already; delete that first")
        return new

    def add(self, topics: Iterable[str], now_ms: int) -> None:
        """Those that `check_new` has returned."""
        for topic in topics:
            for name, config in ((queue_of(topic), TASKS), (letters_of(topic), LETTERS)):
                self._directory.create(name, config, {}, now_ms)
        self.restore(topics)

    def restore(self, topics: Iterable[str]) -> None:
        """Their queues exist."""
        for topic in topics:
            self._tasks[topic] = self._directory[queue_of(topic)]
            self._letters[topic] = self._directory[letters_of(topic)]
            self.queues.add(queue_of(topic))
            self.letter_queues.add(letters_of(topic))

    def __getitem__(self, topic: str) -> QueueState:
        queue = self._tasks.get(topic)
        if queue is None:
            raise UnknownTopic(f"there is no topic {topic!r}; define a job type that goes there first")
        return queue

    def put(self, topic: str, reference: bytes, now_ms: int, delay_ms: int = 0) -> int:
        """The number of a new message."""
        queue = self._tasks[topic]
        entry = SendEntry(reference, delay_ms=delay_ms) if delay_ms else SendEntry(reference)
        [sent] = send(queue, (entry,), (len(reference),), now_ms, self._counters)
        assert isinstance(sent, SentEntry), sent
        self._changed(queue)
        return sent.number

    def take(self, queue: QueueState) -> Message | None:
        """The next message that is visible. It must be leased or dropped at once."""
        taken = queue.order.take(1, BATCH_BYTES_MAX)
        return taken[0] if taken else None

    def lease(self, queue: QueueState, message: Message, until_ms: int, now_ms: int) -> None:
        queue.lease((message,), until_ms, now_ms)
        self._changed(queue)

    def release(self, topic: str, number: int) -> None:
        """A message that was leased is visible again, as if it had not been."""
        queue = self._tasks[topic]
        queue.release((queue.messages[number],))
        self._changed(queue)

    def extend(self, topic: str, number: int, until_ms: int) -> None:
        queue = self._tasks[topic]
        queue.extend(queue.messages[number], until_ms)
        self._changed(queue)

    def drop(self, topic: str, number: int) -> None:
        """A message is gone, in whatever state it was."""
        queue = self._tasks[topic]
        message = queue.messages.pop(number)
        queue.remove((message,))
        queue.totals.acknowledged += 1
        self._changed(queue)

    def discard(self, queue: QueueState, message: Message) -> None:
        """One that was taken, and stands for nothing."""
        queue.move_out(message)
        self._changed(queue)

    def bury(self, topic: str, letter: bytes, now_ms: int) -> None:
        """A dead letter. If there are as many as may be, the oldest makes room."""
        queue = self._letters[topic]
        while len(queue.messages) >= queue.config.depth_max:
            oldest = queue.oldest()
            assert oldest is not None
            del queue.messages[oldest.number]
            queue.remove((oldest,))
        send(queue, (SendEntry(letter),), (len(letter),), now_ms, self._counters)
        self._changed(queue)
