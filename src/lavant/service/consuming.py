"""What consumers inside of the server do: receive without losing what was leased, acknowledge, give back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lavant.broker.queues.commands import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Receipt,
    Receive,
    Received,
    Refused,
    VisibilityChange,
)
from lavant.broker.queues.config import BATCH_ENTRIES_MAX
from lavant.broker.serving.commands import Answer
from lavant.service.keys import Principal
from lavant.service.server import Service


async def receive(service: Service, request: Receive, principal: Principal | None = None) -> Answer:
    """The answer to a receive. If it is cancelled, or the principal revoked, whatever was leased goes back at once."""
    call = service.ask(request, principal)
    try:
        await asyncio.wait([call.answer])
    except asyncio.CancelledError:
        if service.waiting(call):
            service.withdraw(call)
        else:  # it was given something, and the answer waits for the disk
            call.answer.add_done_callback(lambda answered: _return(service, request.queue, answered.result()))
        raise
    return call.answer.result()


async def acknowledge(service: Service, queue: str, receipts: Sequence[Receipt]) -> dict[int, Refused]:
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


async def give_back(service: Service, queue: str, receipts: Sequence[Receipt]) -> None:
    """Make messages visible at once. Those whose lease ran out are so already, and a queue that is gone has none."""
    for start in range(0, len(receipts), BATCH_ENTRIES_MAX):
        changes = [VisibilityChange(receipt, 0) for receipt in receipts[start : start + BATCH_ENTRIES_MAX]]
        await service.execute(ChangeVisibility(queue, changes))


def _return(service: Service, queue: str, answer: Answer) -> None:
    if isinstance(answer, Received) and answer.deliveries:
        service.ask(ChangeVisibility(queue, [VisibilityChange(each.receipt, 0) for each in answer.deliveries]))
