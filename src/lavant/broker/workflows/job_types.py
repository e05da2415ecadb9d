"""The job types that are defined, with totals of their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import JOB_TYPE, JOB_TYPE_BYTE
from lavant.broker.workflows.definitions.dag import JobType
from lavant.broker.workflows.definitions.definition import JOB_TYPES_MAX, NAME_CHARACTERS_MAX, JobDefinition
from lavant.core.errors import LimitExceeded, UnknownJobType


class JobTotals(msgspec.Struct, array_like=True):
    """Jobs of one type since it was first defined."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    def count(self, state: str) -> None:
        """Count a job that ended in this state."""
        setattr(self, state, getattr(self, state) + 1)


class JobTypes:
    """By name, in the order of first definition."""

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self._types: dict[str, JobType] = {}
        self._totals: dict[str, JobTotals] = {}
        self._running: dict[str, int] = {}
        """Running jobs by type, including types that were removed."""

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._types.values())

    def __getitem__(self, name: str) -> JobType:
        found = self._types.get(name)
        if found is None:
            shown = name[:NAME_CHARACTERS_MAX]
            raise UnknownJobType(
                f"there is no job type {shown!r}; define it first; `lavant job types` lists the job types"
            )
        return found

    def check_room(self, definitions: Iterable[JobDefinition]) -> None:
        names = {*self._types, *(definition.name for definition in definitions)}
        if len(names) > JOB_TYPES_MAX:
            raise LimitExceeded(f"there would be {len(names)} job types, at most {JOB_TYPES_MAX} are allowed")

    def has(self, definition: JobDefinition) -> bool:
        """Whether exactly this definition exists."""
        known = self._types.get(definition.name)
        return known is not None and known.definition == definition

    def define(self, type_: JobType) -> None:
        self.restore(type_, self._totals.get(type_.name, JobTotals()))

    def restore(self, type_: JobType, totals: JobTotals) -> None:
        self._forget(type_.name)
        self._types[type_.name] = type_
        self._totals[type_.name] = totals
        self._counters.memory += memory_of(type_.definition)

    def remove(self, type_: JobType) -> None:
        self._forget(type_.name)
        del self._types[type_.name]
        del self._totals[type_.name]

    def totals(self, name: str) -> JobTotals:
        return self._totals[name]

    def running(self, name: str) -> int:
        return self._running.get(name, 0)

    def submitted(self, name: str) -> None:
        self._totals[name].submitted += 1
        self.began(name)

    def began(self, name: str) -> None:
        """Count a running job, submitted or restored."""
        self._running[name] = self._running.get(name, 0) + 1

    def ended(self, name: str, state: str) -> None:
        left = self._running[name] - 1
        if left:
            self._running[name] = left
        else:
            del self._running[name]
        totals = self._totals.get(name)
        if totals is not None:
            totals.count(state)

    def _forget(self, name: str) -> None:
        """Stop counting the memory of a type, if it exists."""
        known = self._types.get(name)
        self._counters.memory -= 0 if known is None else memory_of(known.definition)


def memory_of(definition: JobDefinition) -> int:
    return JOB_TYPE + JOB_TYPE_BYTE * len(msgspec.msgpack.encode(definition))
