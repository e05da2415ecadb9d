"""The ledger of attempts in RabbitMQ, and whose turn it is to extend their leases.

    leased ──published──► waiting ──the first report──► begun ──┬── ended by its worker, or by the job
       │                     │                            │     └── its lease ran out: the worker is gone
       └── extended here ────┘                            └── extended by its worker

An attempt belongs to its first worker: reports of a redelivered copy by another worker are refused while the attempt is
open. So duplicate deliveries do no harm, and a dead worker is noticed when its lease runs out, as elsewhere in Lavant.

While RabbitMQ is away no worker can report, so all leases are extended here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from lavant.broker.protocol.amqp_messages import AttemptKey, Relayed, encode

SLACK_S = 1.0
"""Margin before a lease counts as expired here: the server's clock decides, not this one."""


class LedgerStage(Enum):
    LEASED = auto()
    """Leased from the server; RabbitMQ may have it or not."""
    WAITING = auto()
    """In a queue of RabbitMQ."""
    BEGUN = auto()
    """With a worker."""


class LedgerEntry:
    """An open attempt."""

    __slots__ = ("body", "key", "stage", "topic", "until_s", "worker")

    def __init__(self, topic: str, key: AttemptKey, stage: LedgerStage, until_s: float) -> None:
        self.topic = topic
        self.key = key
        self.stage = stage
        self.until_s = until_s
        """When the lease runs out."""
        self.worker = ""
        self.body = b""
        """The message to publish; dropped afterwards."""


class AttemptLedger:
    """Attempts in the order of their leases. Times are seconds of a monotonic clock."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._entries: dict[str, dict[AttemptKey, LedgerEntry]] = {}

    def count(self, topic: str) -> int:
        return len(self._entries.get(topic, ()))

    def counts(self) -> dict[str, int]:
        return {topic: len(entries) for topic, entries in sorted(self._entries.items())}

    def entries(self) -> list[LedgerEntry]:
        return [entry for entries in self._entries.values() for entry in entries.values()]

    def unpublished(self, topic: str) -> list[LedgerEntry]:
        return [entry for entry in self._entries.get(topic, {}).values() if entry.stage is LedgerStage.LEASED]

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def leased(self, relayed: Relayed, now_s: float) -> None:
        self._add(relayed, LedgerStage.LEASED, now_s + self._lease_s).body = encode(relayed)

    def published(self, entry: LedgerEntry) -> None:
        """RabbitMQ has confirmed it. Its worker may have reported even before."""
        entry.body = b""
        if entry.stage is LedgerStage.LEASED:
            entry.stage = LedgerStage.WAITING

    def recovered(self, relayed: Relayed, now_s: float) -> None:
        """A task that was in RabbitMQ at the start. The rest of its lease is unknown, so it is extended soon."""
        entry = self._entries.get(relayed.topic, {}).get(relayed.key)
        if entry is None:
            self._add(relayed, LedgerStage.WAITING, now_s + self._lease_s / 4)
        else:
            self.published(entry)

    def claim(self, topic: str, key: AttemptKey, worker: str) -> bool:
        """Whether a worker may report this attempt. An attempt unknown here may be known to the server."""
        entry = self._entries.get(topic, {}).get(key)
        if entry is None:
            return True
        if entry.stage is not LedgerStage.BEGUN:
            entry.stage, entry.worker, entry.body = LedgerStage.BEGUN, worker, b""
        return entry.worker == worker

    def extended(self, topic: str, key: AttemptKey, worker: str, until_s: float) -> None:
        """A worker extended the lease; its attempt may be new here."""
        entry = self._entries.setdefault(topic, {}).get(key)
        if entry is None:
            entry = self._entries[topic][key] = LedgerEntry(topic, key, LedgerStage.BEGUN, until_s)
            entry.worker = worker
        entry.until_s = until_s

    def ended(self, topic: str, key: AttemptKey) -> None:
        self._entries.get(topic, {}).pop(key, None)

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_extend(self, ready: Mapping[str, int] | None, now_s: float) -> list[LedgerEntry]:
        """Attempts whose lease is half over and that no worker extends.

        `ready` is the number of waiting messages by topic; None while RabbitMQ is away. Queues are first in, first out:
        the newest that many are still waiting, older ones were delivered or lost.
        """
        due: list[LedgerEntry] = []
        for topic, entries in self._entries.items():
            kept = entries.values() if ready is None else _kept(entries.values(), ready.get(topic, 0))
            due += [entry for entry in kept if entry.until_s - now_s < self._lease_s / 2]
        return due

    def forget(self, now_s: float) -> None:
        """Drop attempts whose lease ran out: the server has noticed and makes another attempt."""
        for entries in self._entries.values():
            for key in [key for key, entry in entries.items() if entry.until_s + SLACK_S < now_s]:
                del entries[key]

    def _add(self, relayed: Relayed, stage: LedgerStage, until_s: float) -> LedgerEntry:
        entry = LedgerEntry(relayed.topic, relayed.key, stage, until_s)
        self._entries.setdefault(relayed.topic, {})[relayed.key] = entry
        return entry


def _kept(entries: Iterable[LedgerEntry], ready: int) -> list[LedgerEntry]:
    waiting = [entry for entry in entries if entry.stage is LedgerStage.WAITING]
    return [entry for entry in entries if entry.stage is LedgerStage.LEASED] + waiting[max(0, len(waiting) - ready) :]
