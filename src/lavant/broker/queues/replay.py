"""From a journal to queues: a snapshot restored, and the records behind it handled once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lavant.broker.queues.hub import Queues
from lavant.broker.queues.limits import UNLIMITED, HubLimits
from lavant.broker.queues.server import TIME_BYTES
from lavant.broker.queues.wire import decode_request


def replay(chunks: Iterable[bytes] | None, records: Iterable[bytes], limits: HubLimits = UNLIMITED) -> Queues:
    """The queues as they were when the last of these records was written."""
    queues = Queues(limits) if chunks is None else Queues.restore(chunks, limits)
    for record in records:
        handle_again(queues, record)
    return queues


def handle_again(queues: Queues, record: bytes) -> None:
    """One record, at the time that it names."""
    queues.handle(decode_request(memoryview(record)[TIME_BYTES:]), int.from_bytes(record[:TIME_BYTES], "big"))


def fold_queues(chunks: Iterator[bytes] | None, records: Iterator[bytes]) -> Iterator[bytes]:
    """What compaction makes of a snapshot and the records behind it."""
    return replay(chunks, records).snapshot()
