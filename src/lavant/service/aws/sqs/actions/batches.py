"""Batches: number of entries, their ids, and an error for each entry that fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from lavant.broker.protocol.queues import DescribeQueue
from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.context import SqsContext
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.results import BatchResultErrorEntry

_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.ENTRY_ID_CHARACTERS_MAX}}}")


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


def check_batch(entries: Sequence[_HasId], entry_name: str) -> None:
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {entry_name} in the request.")
    if len(entries) > limits.BATCH_ENTRIES_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {limits.BATCH_ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    seen = set()
    for entry in entries:
        if _ID.fullmatch(entry.id) is None:
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                f"It can be at most {limits.ENTRY_ID_CHARACTERS_MAX} letters long.",
            )
        if entry.id in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry.id} repeated.")
        seen.add(entry.id)


async def check_exists(context: SqsContext, queue: str) -> None:
    """Checks the queue for a batch without valid entries: if the queue is missing, the whole batch fails."""
    await context.ask(DescribeQueue(queue))


def failed(entry_id: str, error: SqsError) -> BatchResultErrorEntry:
    return BatchResultErrorEntry(entry_id, error.fault.is_senders, error.fault.code, error.message)
