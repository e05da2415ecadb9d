"""Recovery: restore a snapshot, and apply the records after it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lavant.broker.federation.state import UNLIMITED_LINKS, LinkLimits
from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.frames import decode_request, unknown_tag
from lavant.broker.queues.accounting.quotas import UNLIMITED, QueueLimits
from lavant.broker.subscriptions import limits as subscriptions
from lavant.broker.workflows.limits import UNLIMITED_JOBS
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import CorruptJournal, NewerFormat


def replay(
    chunks: Iterable[bytes] | None, records: Iterable[bytes], limits: QueueLimits = UNLIMITED, *, after: int = 0
) -> BrokerState:
    """The state after the last of these records; `after` is the position before the first.

    Raises `CorruptJournal` if a record cannot be applied again, `NewerFormat` if a newer version wrote it.
    """
    broker = BrokerState(Jobs(limits)) if chunks is None else BrokerState.restore(chunks, limits)
    broker.queues.is_replay = True
    broker.queues.job_limits = UNLIMITED_JOBS
    broker.subscriptions.limits = subscriptions.UNLIMITED
    broker.federation.limits = UNLIMITED_LINKS
    for position, record in enumerate(records, after + 1):
        try:
            apply_again(broker, record)
        except NewerFormat:
            raise
        except Exception as error:
            tag = unknown_tag(memoryview(record)[TIME_BYTES:])
            if tag is not None:
                raise NewerFormat(
                    f"record {position} of the journal is a command {tag!r:.60}, which this version of Lavant does not "
                    "know; use the version that wrote it, or a later one"
                ) from None
            reason = f"{type(error).__name__}: {error}"
            raise CorruptJournal(
                f"record {position} cannot be applied again ({reason}); restore the journal from a copy"
            ) from error
    broker.queues.is_replay = False
    broker.federation.limits = LinkLimits()
    return broker


def apply_again(broker: BrokerState, record: bytes) -> None:
    """Apply a record at its time."""
    broker.handle(decode_request(memoryview(record)[TIME_BYTES:]), int.from_bytes(record[:TIME_BYTES], "big"))


def fold(chunks: Iterator[bytes] | None, records: Iterator[bytes]) -> Iterator[bytes]:
    """The new snapshot that compaction writes."""
    return replay(chunks, records).snapshot()
