"""The directory of queues: by name, by serial, and by dead-letter queue.

A dead-letter queue must exist, with the same order, when a queue is configured to use it. It may still be deleted
later, as in cloud services, where clean-up programs delete queues in any order. Its sources keep its name: while it is
missing, their messages are received more often than `receives_max` and none is lost; when a queue of that name and
order is created again, it takes the dead letters from then on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile

from msgspec.structs import asdict

from lavant.broker.protocol.queue_config import NAME_CHARACTERS_MAX, NAMESPACE_END, QueueConfig, namespace_of
from lavant.broker.protocol.queues import CreateQueue
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.queue import QueueState, memory_of, tags_memory
from lavant.broker.queues.validation import check_config, check_name, check_tags
from lavant.core.errors import InvalidValue, LimitExceeded, QueueExists, UnknownQueue


class Directory:
    """Queues by name."""

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self._queues: dict[str, QueueState] = {}
        self._by_serial: dict[int, QueueState] = {}
        self._names: list[str] = []
        """Sorted."""

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[QueueState]:
        """In the order of creation."""
        return iter(self._queues.values())

    def find(self, name: str) -> QueueState | None:
        return self._queues.get(name)

    def numbered(self, serial: int) -> QueueState | None:
        return self._by_serial.get(serial)

    def __getitem__(self, name: str) -> QueueState:
        queue = self._queues.get(name)
        if queue is None:
            shown = name[:NAME_CHARACTERS_MAX]
            raise UnknownQueue(f"there is no queue {shown!r}; create it first; `lavant queue ls` lists the queues")
        return queue

    def check_new(self, creates: Iterable[CreateQueue], queues_max: int, *, is_replay: bool) -> list[CreateQueue]:
        """Return those that do not exist yet; the others exist with exactly these settings.

        Raises unless all can be created in turn, where later ones may use earlier ones as dead-letter queues.
        """
        new: dict[str, CreateQueue] = {}
        for each in creates:
            if not is_replay:
                check_name(each.queue)
                check_tags(each.tags)
                check_config(each.config)
            existing = self._config_of(each.queue, new)
            if existing is None:
                self._check_dead_letters(each.queue, each.config, new)
                new[each.queue] = each
            elif existing != each.config:
                raise QueueExists(
                    f"queue {each.queue!r} exists already with {_difference(existing, each.config)}; "
                    "change them with `lavant queue configure`, or choose another name"
                )
        if new and len(self._queues) + len(new) > queues_max:
            raise LimitExceeded(
                f"there are {len(self._queues)} queues, which is the limit; delete some"
                if len(new) == 1
                else f"there are {len(self._queues)} queues, {len(new)} more would exceed the limit of "
                f"{queues_max}; delete some"
            )
        if not is_replay:
            self._counters.usages.check_queues(new)
        return list(new.values())

    def create(self, name: str, config: QueueConfig, tags: dict[str, str], now_ms: int) -> QueueState:
        """Create a queue that `check_new` returned."""
        self._counters.serial += 1
        return self.add(QueueState(name, config, tags, self._counters, created_ms=now_ms, serial=self._counters.serial))

    def add(self, queue: QueueState) -> QueueState:
        self._counters.memory += memory_of(queue.name, queue.tags)
        queue.usage = self._counters.usages.enter(namespace_of(queue.name))
        self._queues[queue.name] = queue
        self._by_serial[queue.serial] = queue
        insort(self._names, queue.name)
        return queue

    def check_configure(self, name: str, config: QueueConfig, *, is_replay: bool) -> QueueState:
        """Return the queue if it may have these settings."""
        queue = self[name]
        if not is_replay:
            check_config(config)
        if config.order != queue.config.order:
            raise InvalidValue(
                f"queue {name!r} is {queue.config.order} and cannot become {config.order}; create another queue"
            )
        # If the dead-letter queue was deleted since, other settings can still be changed.
        if config.dead_letters != queue.config.dead_letters:
            self._check_dead_letters(name, config, {})
        return queue

    def tag(self, queue: QueueState, tags: dict[str, str]) -> None:
        self._counters.memory += tags_memory(tags) - tags_memory(queue.tags)
        queue.tags = tags

    def delete(self, queue: QueueState) -> None:
        queue.purge()
        queue.deduplication.clear()
        self._counters.memory -= memory_of(queue.name, queue.tags)
        self._counters.usages.leave(namespace_of(queue.name))
        del self._queues[queue.name]
        del self._by_serial[queue.serial]
        del self._names[bisect_left(self._names, queue.name)]

    def renumber(self, queue: QueueState) -> None:
        """Give a queue the next serial."""
        del self._by_serial[queue.serial]
        self._counters.serial += 1
        queue.serial = self._counters.serial
        self._by_serial[queue.serial] = queue

    def forget_names(self, now_ms: int) -> None:
        """Forget de-duplication names that have expired."""
        if self._counters.names:
            for queue in self:
                queue.deduplication.forget(now_ms)

    def names(self, prefix: str, after: str, count: int, *, is_outside: bool = False) -> list[str]:
        """Sorted names that start with `prefix` and come after `after`; `is_outside` excludes those in a namespace."""
        start = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        following = (self._names[place] for place in range(start, len(self._names)))
        matching = takewhile(lambda name: name.startswith(prefix), following)
        return list(islice((name for name in matching if not (is_outside and NAMESPACE_END in name)), count))

    def sources(self, name: str) -> list[str]:
        """Sorted names of the queues whose dead letters go to this one."""
        target = self[name].name
        return [source for source in self._names if self._queues[source].config.dead_letters == target]

    def dead_letters_of(self, queue: QueueState) -> QueueState | None:
        """Its dead-letter queue, if that exists now."""
        if queue.config.dead_letters is None:
            return None
        target = self._queues.get(queue.config.dead_letters)
        return target if target is not None and target.config.order == queue.config.order else None

    def _config_of(self, name: str, planned: Mapping[str, CreateQueue]) -> QueueConfig | None:
        """Settings of a queue that exists or is planned."""
        queue = self._queues.get(name)
        if queue is not None:
            return queue.config
        return planned[name].config if name in planned else None

    def _check_dead_letters(self, name: str, config: QueueConfig, planned: Mapping[str, CreateQueue]) -> None:
        if config.dead_letters is None:
            return
        if config.dead_letters == name:
            raise InvalidValue(f"queue {name!r} cannot be its own dead-letter queue; create another one for that")
        target = self._config_of(config.dead_letters, planned)
        if target is None:
            raise InvalidValue(f"there is no queue {config.dead_letters!r} for dead letters; create it first")
        if target.order != config.order:
            raise InvalidValue(
                f"queue {name!r} is {config.order}, but its dead-letter queue {config.dead_letters!r} is "
                f"{target.order}; both must be the same"
            )


def _difference(existing: QueueConfig, wanted: QueueConfig) -> str:
    """The first setting that differs."""
    have, want = asdict(existing), asdict(wanted)
    field = next(field for field in have if have[field] != want[field])
    return f"{field} {have[field]!r} instead of {want[field]!r}"
