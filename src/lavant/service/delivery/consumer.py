"""What consumers inside of the server do with what they received: acknowledge, give back, release."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lavant.broker.protocol.queue_config import BATCH_ENTRIES_MAX
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Receipt,
    Refused,
    Release,
    VisibilityChange,
)
from lavant.core.errors import UNDECODABLE
from lavant.service.runtime.broker_runtime import BrokerRuntime


def is_json(body: bytes) -> bool:
    """
    >>> is_json(b'{"price":3}'), is_json(b"price=3")
    (True, False)
    """
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except UNDECODABLE:
        return False
    return True


async def acknowledge(service: BrokerRuntime, queue: str, receipts: Sequence[Receipt]) -> dict[int, Refused]:
    """Which of them were refused, by place."""
    refused: dict[int, Refused] = {}
    for start in range(0, len(receipts), BATCH_ENTRIES_MAX):
        some = list(receipts[start : start + BATCH_ENTRIES_MAX])
        answer = await service.execute(Acknowledge(queue, some, is_patient=True))
        if isinstance(answer, Acknowledged):
            refused.update({start + place: refusal for place, refusal in answer.refused.items()})
        elif isinstance(answer, Refused):
            refused.update(dict.fromkeys(range(start, start + len(some)), answer))
    return refused


async def give_back(service: BrokerRuntime, queue: str, receipts: Sequence[Receipt]) -> None:
    """Make messages visible at once. Those whose lease ran out are so already, and a queue that is gone has none."""
    for start in range(0, len(receipts), BATCH_ENTRIES_MAX):
        changes = [VisibilityChange(receipt, 0) for receipt in receipts[start : start + BATCH_ENTRIES_MAX]]
        await service.execute(ChangeVisibility(queue, changes))


async def release(service: BrokerRuntime, queue: str, receipts: Sequence[Receipt]) -> None:
    """The same for messages that nobody has seen: they were never received."""
    for start in range(0, len(receipts), BATCH_ENTRIES_MAX):
        await service.execute(Release(queue, list(receipts[start : start + BATCH_ENTRIES_MAX])))
