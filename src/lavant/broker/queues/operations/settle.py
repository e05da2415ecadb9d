"""Settle received messages: acknowledge them, change their visibility timeout, or release them."""

from __future__ import annotations

from collections.abc import Sequence

from lavant.broker.protocol.queue_config import REASON_CHARACTERS_MAX, VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Receipt, Refused, VisibilityChange
from lavant.broker.queues.message import Message, state_of
from lavant.broker.queues.queue import QueueState
from lavant.broker.queues.validation import refusal
from lavant.core.errors import InvalidValue, LimitExceeded, NotInFlight, StaleReceipt


def acknowledge(
    queue: QueueState, receipts: Sequence[Receipt], lease_last: int, *, is_elsewhere: bool = False
) -> dict[int, Refused]:
    """Return the refused receipts. A message that is already gone is no error.

    A receipt is valid unless a later lease was given. A lease later than the last known one comes from a receive that
    was lost in a crash. In an out-of-order queue a receipt also stays valid after its lease has run out, unless the
    queue has left for another broker, or is arriving (`is_elsewhere`): then the message has followed it, or will. Nor
    does it stay valid at the new broker, or after the queue has returned: the message may be there, under another
    number.
    """
    refused: dict[int, Refused] = {}
    done: list[Message] = []
    messages, is_in_order = queue.messages, queue.is_in_order
    for place, receipt in enumerate(receipts):
        message = messages.get(receipt.number)
        fault = _not_held(queue, message, receipt, lease_last) if is_elsewhere else None
        if fault is not None:
            refused[place] = fault
            continue
        if message is None:
            if receipt.number <= queue.arrived_above:
                refused[place] = _from_before(queue, receipt)
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
    """Return the refused changes. Only the holder of the lease may extend it or give the message back."""
    refused = {}
    for place, change in enumerate(changes):
        message = queue.messages.get(change.receipt.number)
        fault = _fault(queue, message, change, lease_last)
        if fault is not None:
            refused[place] = fault
            continue
        assert message is not None
        if change.reason:
            queue.fail(message, change.reason)
        if change.visibility_ms == 0:
            queue.give_back(message)
        else:
            queue.extend(message, now_ms + change.visibility_ms)
    return refused


def release(queue: QueueState, receipts: Sequence[Receipt], lease_last: int) -> dict[int, Refused]:
    """Return the refused receipts. A message leased to another consumer since, or gone, is refused."""
    refused: dict[int, Refused] = {}
    released: dict[int, Message] = {}
    for place, receipt in enumerate(receipts):
        message = queue.messages.get(receipt.number)
        fault = _not_held(queue, message, receipt, lease_last)
        if fault is not None:
            refused[place] = fault
        elif message is not None:
            released[receipt.number] = message  # once, even if named several times
    queue.release(list(released.values()))
    return refused


def _fault(queue: QueueState, message: Message | None, change: VisibilityChange, lease_last: int) -> Refused | None:
    if change.visibility_ms < 0:
        return refusal(
            InvalidValue(f"visibility_ms must not be negative, got {change.visibility_ms}; 0 gives the message back")
        )
    if change.visibility_ms > VISIBILITY_MS_MAX:
        return refusal(
            LimitExceeded(
                f"visibility_ms must be at most {VISIBILITY_MS_MAX}, got {change.visibility_ms}; "
                "change it again before it has passed"
            )
        )
    if len(change.reason) > REASON_CHARACTERS_MAX:
        return refusal(
            LimitExceeded(
                f"a reason has at most {REASON_CHARACTERS_MAX} characters, got {len(change.reason)}; give its beginning"
            )
        )
    return _not_held(queue, message, change.receipt, lease_last)


def _not_held(queue: QueueState, message: Message | None, receipt: Receipt, lease_last: int) -> Refused | None:
    """Why a receipt is not that of a lease in force."""
    if receipt.lease > lease_last:
        return _never_given(receipt)
    if message is None:
        return refusal(
            NotInFlight(f"message {receipt.number} is no longer in queue {queue.name!r}; nothing is left to do")
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


def _from_before(queue: QueueState, receipt: Receipt) -> Refused:
    return refusal(
        NotInFlight(
            f"message {receipt.number} was received before queue {queue.name!r} moved here; unless it was acknowledged "
            "then, it is delivered again"
        )
    )


def _never_given(receipt: Receipt) -> Refused:
    return refusal(
        InvalidValue(
            f"lease {receipt.lease} of message {receipt.number} was never given; use the receipt that came with "
            "the message"
        )
    )
