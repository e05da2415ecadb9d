"""Delivery by queue: consumers ask for messages, acknowledge them and release them.

The functions here do that for consumers inside the server: streams, webhooks and the HTTP interface.
"""

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
from lavant.service.delivery.interface import DeliveryKind
from lavant.service.runtime.broker_runtime import BrokerRuntime

PULL = "pull"


class QueueDelivery(DeliveryKind):
    """Waits for consumers to receive messages."""

    name = "queue"
    ways = (PULL,)


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
    """Acknowledges messages, and returns those that were refused, by their index."""
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
    """Makes messages visible at once. Expired leases and deleted queues are no error."""
    for start in range(0, len(receipts), BATCH_ENTRIES_MAX):
        changes = [VisibilityChange(receipt, 0) for receipt in receipts[start : start + BATCH_ENTRIES_MAX]]
        await service.execute(ChangeVisibility(queue, changes))


async def release(service: BrokerRuntime, queue: str, receipts: Sequence[Receipt]) -> None:
    """Makes messages visible that no consumer has seen: they do not count as received."""
    for start in range(0, len(receipts), BATCH_ENTRIES_MAX):
        await service.execute(Release(queue, list(receipts[start : start + BATCH_ENTRIES_MAX])))
