"""All queues of a hub by name: which there are, and which take each other's dead letters.

A dead-letter queue must be there, and of the same order, when a queue is set to use it. It may be deleted nevertheless,
as with cloud queues, where programs that clean up delete queues in any order. Those that use it keep its name: while
it is missing their messages are received more often than `receives_max`, and none is lost; if a queue of that name
and order is created again, it takes the dead letters from then on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice, takewhile

from msgspec.structs import asdict

from lavant.broker.queues.config import NAMESPACE_END, QueueConfig
from lavant.broker.queues.counters import Counters
from lavant.broker.queues.queue import Queue
from lavant.broker.queues.validation import check_config, check_name, check_tags
from lavant.core.errors import InvalidValue, LimitExceeded, QueueExists, UnknownQueue


class Directory:
    """Queues by name."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._queues: dict[str, Queue] = {}
        self._by_serial: dict[int, Queue] = {}
        self._names: list[str] = []
        """Sorted."""

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        """In the order of their creation."""
        return iter(self._queues.values())

    def find(self, name: str) -> Queue | None:
        return self._queues.get(name)

    def numbered(self, serial: int) -> Queue | None:
        return self._by_serial.get(serial)

    def __getitem__(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            raise UnknownQueue(f"there is no queue {name!r}; create it first, or list the queues to see their names")
        return queue

    def create(
        self, name: str, config: QueueConfig, tags: dict[str, str], now_ms: int, queues_max: int
    ) -> Queue | None:
        """The new queue, or None if it exists with these very settings."""
        check_name(name)
        check_tags(tags)
        check_config(config)
        existing = self._queues.get(name)
        if existing is not None:
            if existing.config == config:
                return None
            raise QueueExists(
                f"queue {name!r} exists already with {_difference(existing.config, config)}; "
                "configure it, or choose another name"
            )
        self._check_dead_letters(name, config)
        if len(self._queues) >= queues_max:
            raise LimitExceeded(f"there are {len(self._queues)} queues, which is the limit; delete some")
        self._counters.serial += 1
        return self.add(Queue(name, config, tags, self._counters, created_ms=now_ms, serial=self._counters.serial))

    def add(self, queue: Queue) -> Queue:
        self._queues[queue.name] = queue
        self._by_serial[queue.serial] = queue
        insort(self._names, queue.name)
        return queue

    def configure(self, name: str, config: QueueConfig, now_ms: int) -> Queue:
        queue = self[name]
        check_config(config)
        if config.order != queue.config.order:
            raise InvalidValue(
                f"queue {name!r} is {queue.config.order} and cannot become {config.order}; create another queue"
            )
        # A dead-letter queue that was deleted since does not stand in the way of other settings.
        if config.dead_letters != queue.config.dead_letters:
            self._check_dead_letters(name, config)
        queue.config = config
        queue.changed_ms = now_ms
        return queue

    def delete(self, name: str) -> Queue:
        queue = self[name]
        queue.purge()
        del self._queues[name]
        del self._by_serial[queue.serial]
        del self._names[bisect_left(self._names, name)]
        return queue

    def names(self, prefix: str, after: str, count: int, *, is_outside: bool = False) -> list[str]:
        """Sorted; those that start with `prefix`, come behind `after`, and perhaps only those in no namespace."""
        start = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        following = (self._names[place] for place in range(start, len(self._names)))
        matching = takewhile(lambda name: name.startswith(prefix), following)
        return list(islice((name for name in matching if not (is_outside and NAMESPACE_END in name)), count))

    def sources(self, name: str) -> list[str]:
        """Those whose dead letters go to a queue, sorted."""
        target = self[name].name
        return [source for source in self._names if self._queues[source].config.dead_letters == target]

    def dead_letters_of(self, queue: Queue) -> Queue | None:
        """Where its dead letters go, if there is such a queue now."""
        if queue.config.dead_letters is None:
            return None
        target = self._queues.get(queue.config.dead_letters)
        return target if target is not None and target.config.order == queue.config.order else None

    def _check_dead_letters(self, name: str, config: QueueConfig) -> None:
        if config.dead_letters is None:
            return
        if config.dead_letters == name:
            raise InvalidValue(f"queue {name!r} cannot be its own dead-letter queue; create another one for that")
        target = self._queues.get(config.dead_letters)
        if target is None:
            raise InvalidValue(f"there is no queue {config.dead_letters!r} for dead letters; create it first")
        if target.config.order != config.order:
            raise InvalidValue(
                f"queue {name!r} is {config.order}, but {config.dead_letters!r}, which is to take its dead letters, is "
                f"{target.config.order}; both must be the same"
            )


def _difference(existing: QueueConfig, wanted: QueueConfig) -> str:
    """The first setting that differs."""
    have, want = asdict(existing), asdict(wanted)
    field = next(field for field in have if have[field] != want[field])
    return f"{field} {have[field]!r} instead of {want[field]!r}"
