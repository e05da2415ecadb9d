"""What consumers do with messages they have received: acknowledge them, or change how long they are hidden."""

from __future__ import annotations

from collections.abc import Sequence

from lavant.broker.protocol.queue_config import VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Receipt, Refused, VisibilityChange
from lavant.broker.queues.message import Message, state_of
from lavant.broker.queues.queue import QueueState
from lavant.broker.queues.validation import refusal
from lavant.core.errors import InvalidValue, LimitExceeded, NotInFlight, StaleReceipt


def acknowledge(queue: QueueState, receipts: Sequence[Receipt], lease_last: int) -> dict[int, Refused]:
    """Which receipts were refused. A message that is gone already is no fault.

    A receipt counts if no later lease was given. One that is later than the lease the queue knows comes from a receive
    that a crash let the queue forget. In an out-of-order queue a receipt also counts when nobody has the message now.
    """
    refused: dict[int, Refused] = {}
    done: list[Message] = []
    messages, is_in_order = queue.messages, queue.is_in_order
    for place, receipt in enumerate(receipts):
        message = messages.get(receipt.number)
        if message is None:
            continue
        if receipt.lease < message.lease and (is_in_order or message.visible_ms):
            refused[place] = _stale(queue, message)
        elif receipt.lease > lease_last:
            refused[place] = _never_given(receipt)
        else:
            del messages[message.number]
            done.append(message)
    queue.remove(done)
    queue.totals.acknowledged += len(done)
    return refused


def change_visibility(
    queue: QueueState, changes: Sequence[VisibilityChange], now_ms: int, lease_last: int
) -> dict[int, Refused]:
    """Which changes were refused. Only who has a message may keep it longer, or give it back."""
    refused = {}
    for place, change in enumerate(changes):
        message = queue.messages.get(change.receipt.number)
        fault = _fault(queue, message, change, lease_last)
        if fault is not None:
            refused[place] = fault
            continue
        assert message is not None
        if change.visibility_ms == 0:
            queue.give_back(message)
        else:
            queue.extend(message, now_ms + change.visibility_ms)
    return refused


def release(queue: QueueState, receipts: Sequence[Receipt], lease_last: int) -> dict[int, Refused]:
    """Which were refused. What was leased to somebody else since, or is gone, nobody has to give back."""
    refused: dict[int, Refused] = {}
    released: dict[int, Message] = {}
    for place, receipt in enumerate(receipts):
        message = queue.messages.get(receipt.number)
        fault = _not_held(queue, message, receipt, lease_last)
        if fault is not None:
            refused[place] = fault
        elif message is not None:
            released[receipt.number] = message  # once, however often it is named
    queue.release(list(released.values()))
    return refused


def _fault(queue: QueueState, message: Message | None, change: VisibilityChange, lease_last: int) -> Refused | None:
    if change.visibility_ms < 0:
        return refusal(InvalidValue(f"visibility_ms must not be negative, got {change.visibility_ms}; 0 gives it back"))
    if change.visibility_ms > VISIBILITY_MS_MAX:
        return refusal(
            LimitExceeded(
                f"visibility_ms must be at most {VISIBILITY_MS_MAX}, got {change.visibility_ms}; "
                "change it again before it has passed"
            )
        )
    return _not_held(queue, message, change.receipt, lease_last)


def _not_held(queue: QueueState, message: Message | None, receipt: Receipt, lease_last: int) -> Refused | None:
    """Why a receipt is not that of a lease which somebody has now."""
    if receipt.lease > lease_last:
        return _never_given(receipt)
    if message is None:
        return refusal(
            NotInFlight(f"message {receipt.number} is not in queue {queue.name!r} any more; nothing is left to do")
        )
    if message.visible_ms == 0 or message.lease == 0:
        return refusal(
            NotInFlight(
                f"message {message.number} of queue {queue.name!r} is {state_of(message)}: the lease has run out; "
                "receive it again, with a longer visibility_ms"
            )
        )
    return None if receipt.lease == message.lease else _stale(queue, message)


def _stale(queue: QueueState, message: Message) -> Refused:
    return refusal(
        StaleReceipt(
            f"message {message.number} of queue {queue.name!r} was received again since, {message.receive_count} times "
            "in all; receive with a visibility_ms that is longer than your work takes"
        )
    )


def _never_given(receipt: Receipt) -> Refused:
    return refusal(
        InvalidValue(
            f"lease {receipt.lease} of message {receipt.number} was never given; show the receipt that came with it"
        )
    )
