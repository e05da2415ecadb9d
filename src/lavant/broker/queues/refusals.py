"""What is refused of a batch, entry by entry."""

from __future__ import annotations

from lavant.broker.queues.commands import Refused
from lavant.core.errors import LavantError


def refusal(error: LavantError) -> Refused:
    """An error as an answer.

    >>> from lavant.core.errors import QueueFull
    >>> refusal(QueueFull("there is no room"))
    Refused(code='QueueFull', reason='there is no room')
    """
    return Refused(type(error).__name__, str(error))
