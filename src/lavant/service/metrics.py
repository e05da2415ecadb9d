"""What a server tells about itself at `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from lavant.broker.queues.commands import Described, DescribeQueue, Listed, ListQueues, QueueFigures
from lavant.broker.queues.config import SECOND_MS
from lavant.broker.queues.hub import Queues
from lavant.service.openmetrics import Family, openmetrics
from lavant.service.server import Service
from lavant.service.storage.stores import Store

_PAGE = 1000
_GAUGES = {
    "visible": "Messages that can be received.",
    "in_flight": "Messages that somebody is working on.",
    "delayed": "Messages that cannot be received yet.",
}
_COUNTERS = {
    "sent": "Messages sent.",
    "received": "Deliveries of messages.",
    "acknowledged": "Messages acknowledged.",
    "expired": "Messages that were kept for as long as the queue keeps them.",
    "returned": "Leases that ran out, or were given back.",
    "dead_lettered": "Messages moved to the dead-letter queue.",
    "deduplicated": "Messages taken for one that was sent before.",
}


FamiliesOf: TypeAlias = Callable[[], Iterable[Family]]
"""Asked for figures each time."""


def queue_names(queues: Queues) -> Iterator[str]:
    """Of all queues, sorted."""
    after = ""
    while True:
        answer = queues.handle(ListQueues("", after, _PAGE), queues.now_ms)
        assert isinstance(answer, Listed)
        yield from answer.queues
        if len(answer.queues) < _PAGE:
            return
        after = answer.queues[-1]


def figures_of(queues: Queues, name: str) -> QueueFigures:
    answer = queues.handle(DescribeQueue(name), queues.now_ms)
    assert isinstance(answer, Described)
    return answer.figures


class Metrics:
    """Makes the text anew each time it is asked for."""

    def __init__(self, queues: Queues, store: Store, service: Service, others: Sequence[FamiliesOf] = ()) -> None:
        """`others` are asked for what they know beside."""
        self._others = others
        self._queues = queues
        self._store = store
        self._service = service

    def text(self) -> str:
        now_ms = self._queues.now_ms
        figures = {name: figures_of(self._queues, name) for name in queue_names(self._queues)}
        others = [family for families in self._others for family in families()]
        return openmetrics([*self._server_families(), *others, *_queue_families(figures, now_ms)])

    def _server_families(self) -> list[Family]:
        service, store = self._service, self._store
        return [
            _one("lavant_requests", "counter", "Requests over all protocols.", service.requests),
            _one("lavant_connections", "gauge", "Connections of the compact protocol.", len(service.connections)),
            _one("lavant_waiting_receives", "gauge", "Receives that wait for a message.", service.waiting_total),
            _one("lavant_access_waiting", "gauge", "Publications that wait to be matched.", service.access.waiting),
            _one("lavant_idempotency_keys", "gauge", "Idempotency keys that are remembered.", len(service.access.keys)),
            _one(
                "lavant_idempotency_keys_evicted",
                "counter",
                "Idempotency keys forgotten before their time, because their namespace uses too many.",
                service.access.keys.evicted,
            ),
            _one("lavant_journal_records", "counter", "Records of changes, since the journal began.", store.position),
            _one("lavant_journal_staged_bytes", "gauge", "Not yet on its way to the disk.", store.staged_bytes),
            Family(
                "lavant_commit_seconds",
                "histogram",
                "Writing and syncing a block of the journal.",
                [({}, store.commit_times)],
                unit="seconds",
            ),
            _one("lavant_storage_full", "gauge", "1 if nothing new is accepted.", int(store.is_full)),
            _one("lavant_stored_bytes", "gauge", "Bodies and attributes of all messages.", self._queues.bytes_held),
        ]


def _one(name: str, kind: str, help: str, value: float) -> Family:
    return Family(name, kind, help, [({}, value)])


def _queue_families(figures: dict[str, QueueFigures], now_ms: int) -> Iterator[Family]:
    for field, help in _GAUGES.items():
        samples = [({"queue": name}, getattr(each, field)) for name, each in figures.items()]
        yield Family(f"lavant_queue_{field}", "gauge", help, samples)
    yield Family(
        "lavant_queue_bytes",
        "gauge",
        "Bodies and attributes of a queue's messages.",
        [({"queue": name}, each.bytes) for name, each in figures.items()],
        unit="bytes",
    )
    yield Family(
        "lavant_queue_oldest_age_seconds",
        "gauge",
        "Age of the oldest message, 0 for an empty queue.",
        [
            ({"queue": name}, 0 if each.oldest_sent_ms is None else (now_ms - each.oldest_sent_ms) / SECOND_MS)
            for name, each in figures.items()
        ],
        unit="seconds",
    )
    for field, help in _COUNTERS.items():
        samples = [({"queue": name}, getattr(each, field)) for name, each in figures.items()]
        yield Family(f"lavant_queue_{field}", "counter", help, samples)
