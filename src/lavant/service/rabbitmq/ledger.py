"""Which attempts are with another broker, and who has to keep their leases.

    leased ──published──► waiting ──the first report──► begun ──┬── ended by its worker, or by the job
       │                     │                            │     └── its lease ran out: the worker is gone
       └── kept here ────────┘                            └── kept by its worker

An attempt is its first worker's: a copy that the broker delivers to another one is refused there, for as long as the
attempt is open. So it makes no difference whether a broker delivers once or twice, and a worker that dies is missed
when its lease runs out, as any other of Lavant's.

While the broker is away, nobody can report: then all leases are kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from lavant.broker.protocol.amqp_messages import AttemptKey, Relayed, encode

SLACK_S = 1.0
"""A lease is thought to have run out so much later than it does: the server's clock decides, not this."""


class LedgerStage(Enum):
    LEASED = auto()
    """By the server; the broker may have it or not."""
    WAITING = auto()
    """With the broker."""
    BEGUN = auto()
    """With a worker."""


class LedgerEntry:
    """An attempt under way."""

    __slots__ = ("body", "key", "stage", "topic", "until_s", "worker")

    def __init__(self, topic: str, key: AttemptKey, stage: LedgerStage, until_s: float) -> None:
        self.topic = topic
        self.key = key
        self.stage = stage
        self.until_s = until_s
        """When the lease runs out."""
        self.worker = ""
        self.body = b""
        """What is to be published; let go when that is done."""


class AttemptLedger:
    """In the order in which tasks were leased. Times are seconds of a clock that never goes back."""

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

    # ── what happened ─────────────────────────────────────────────────────────────────────────────────────────────────

    def leased(self, relayed: Relayed, now_s: float) -> None:
        self._add(relayed, LedgerStage.LEASED, now_s + self._lease_s).body = encode(relayed)

    def published(self, entry: LedgerEntry) -> None:
        """The broker has it for sure. Its worker may have been quicker to say so."""
        entry.body = b""
        if entry.stage is LedgerStage.LEASED:
            entry.stage = LedgerStage.WAITING

    def found(self, relayed: Relayed, now_s: float) -> None:
        """It was with the broker already. How much is left of its lease is not known: it is to be extended at once."""
        entry = self._entries.get(relayed.topic, {}).get(relayed.key)
        if entry is None:
            self._add(relayed, LedgerStage.WAITING, now_s + self._lease_s / 4)
        else:
            self.published(entry)

    def claim(self, topic: str, key: AttemptKey, worker: str) -> bool:
        """Whether a worker may report this attempt. One of which nothing is known here may be known to the server."""
        entry = self._entries.get(topic, {}).get(key)
        if entry is None:
            return True
        if entry.stage is not LedgerStage.BEGUN:
            entry.stage, entry.worker, entry.body = LedgerStage.BEGUN, worker, b""
        return entry.worker == worker

    def extended(self, topic: str, key: AttemptKey, worker: str, until_s: float) -> None:
        """By a worker, who may be the first to tell that there is such an attempt."""
        entry = self._entries.setdefault(topic, {}).get(key)
        if entry is None:
            entry = self._entries[topic][key] = LedgerEntry(topic, key, LedgerStage.BEGUN, until_s)
            entry.worker = worker
        entry.until_s = until_s

    def ended(self, topic: str, key: AttemptKey) -> None:
        self._entries.get(topic, {}).pop(key, None)

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_extend(self, ready: Mapping[str, int] | None, now_s: float) -> list[LedgerEntry]:
        """Those whose lease is half over, and that have nobody else to keep it.

        `ready` says how many messages of each topic wait with the broker; None while it is away. Queues are first in,
        first out: the newest so many are those that wait, older ones have been taken, or lost.
        """
        due: list[LedgerEntry] = []
        for topic, entries in self._entries.items():
            kept = entries.values() if ready is None else _kept(entries.values(), ready.get(topic, 0))
            due += [entry for entry in kept if entry.until_s - now_s < self._lease_s / 2]
        return due

    def forget(self, now_s: float) -> None:
        """Those whose lease ran out: the server has noticed, and there will be another attempt."""
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
