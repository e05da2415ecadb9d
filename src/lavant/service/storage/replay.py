"""From a journal to queues: a snapshot restored, and the records behind it handled once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lavant.broker.queues.hub import Queues
from lavant.broker.queues.limits import UNLIMITED, HubLimits
from lavant.broker.queues.wire import decode_request

_TIME_BYTES = 8


def replay(chunks: Iterable[bytes] | None, records: Iterable[bytes], limits: HubLimits = UNLIMITED) -> Queues:
    """The queues as they were when the last of these records was written."""
    queues = Queues(limits) if chunks is None else Queues.restore(chunks, limits)
    for record in records:
        queues.handle(decode_request(memoryview(record)[_TIME_BYTES:]), int.from_bytes(record[:_TIME_BYTES], "big"))
    return queues


def fold_queues(chunks: Iterator[bytes] | None, records: Iterator[bytes]) -> Iterator[bytes]:
    """What compaction makes of a snapshot and the records behind it."""
    return replay(chunks, records).snapshot()
