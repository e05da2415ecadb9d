"""What becomes of a lease that could not be handed over: its consumer was gone before it was told. Pure."""

from __future__ import annotations

from lavant.broker.queues.commands import Received, Release
from lavant.broker.serving.effects import Reply
from lavant.broker.workflows.commands import Leased, ReleaseTasks, TaskAttempt


def release_of(reply: Reply) -> Release | ReleaseTasks | None:
    """Makes what a reply leased visible again, as if it had never been leased; None if it leased nothing."""
    answer = reply.answer
    if isinstance(answer, Leased) and answer.tasks:
        return ReleaseTasks([TaskAttempt(each.job, each.task, each.attempt) for each in answer.tasks])
    if isinstance(answer, Received) and answer.deliveries:
        return Release(reply.queue, [delivery.receipt for delivery in answer.deliveries])
    return None
