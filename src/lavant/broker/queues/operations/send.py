"""Send: which entries of a batch are accepted, and the messages they become."""

from __future__ import annotations

from collections.abc import Sequence

from lavant.broker.protocol.queue_config import DELAY_MS_MAX, IDENTIFIER_CHARACTERS_MAX
from lavant.broker.protocol.queues import Refused, SendEntry, SentEntry
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.deduplication import name_of_content
from lavant.broker.queues.queue import QueueState
from lavant.broker.queues.validation import refusal
from lavant.core.errors import InvalidValue, LimitExceeded, QueueFull


def send(
    queue: QueueState, entries: Sequence[SendEntry], sizes: Sequence[int], now_ms: int, counters: QueueCounters
) -> list[SentEntry | Refused]:
    """Return an answer for each entry; `sizes` are their bytes, body and attributes together."""
    config, is_in_order = queue.config, queue.is_in_order
    room = config.depth_max - len(queue.messages)
    delayed_ms = now_ms + config.delay_ms if config.delay_ms else 0
    times_ms = {0: 0}  # by delay: messages that become visible together share the time object, which takes 32 bytes
    answers: list[SentEntry | Refused] = []
    messages: list[Message] = []
    bytes_added, bytes_max, number = 0, config.message_bytes_max, counters.number
    for entry, size in zip(entries, sizes, strict=True):
        visible_ms, name, key = delayed_ms, "", None
        if size > bytes_max:
            answers.append(_too_large(queue, size))
            continue
        if is_in_order:
            fault = _fault_in_order(queue, entry)
            if fault is not None:
                answers.append(fault)
                continue
            name = _name_of(queue, entry)
            if name:
                key = (entry.group, name) if config.deduplicate_within_group else name
                first = queue.deduplication.number_of(key, now_ms)
                if first is not None:
                    queue.totals.deduplicated += 1
                    answers.append(SentEntry(first))
                    continue
        elif entry.delay_ms is not None or entry.group or entry.deduplication:
            fault = _fault_out_of_order(queue, entry)
            if fault is not None:
                answers.append(fault)
                continue
            if entry.delay_ms is not None:
                visible_ms = times_ms.setdefault(entry.delay_ms, now_ms + entry.delay_ms)
        if len(messages) >= room:
            answers.append(_full(queue))
            continue
        number += 1
        if key is not None:
            queue.deduplication.remember(key, number=number, now_ms=now_ms)
        messages.append(
            Message(number, entry.body, entry.attributes, now_ms, now_ms, visible_ms, 0, 0, 0, entry.group, name, None)
        )
        answers.append(SentEntry(number))
        bytes_added += size
    counters.number = number
    queue.enter(messages, bytes_added)
    queue.totals.sent += len(messages)
    return answers


def _name_of(queue: QueueState, entry: SendEntry) -> str:
    if not entry.deduplication and queue.config.deduplicate_by_content:
        return name_of_content(entry.body)
    return entry.deduplication


def _fault_in_order(queue: QueueState, entry: SendEntry) -> Refused | None:
    if entry.delay_ms is not None and entry.delay_ms != queue.config.delay_ms:
        return refusal(
            InvalidValue(
                f"a message to queue {queue.name!r} has delay_ms {entry.delay_ms}, but an in-order queue delays "
                f"all messages alike, this one by {queue.config.delay_ms} ms; leave it out"
            )
        )
    for field, name in (("group", entry.group), ("deduplication", entry.deduplication)):
        if len(name) > IDENTIFIER_CHARACTERS_MAX:
            return refusal(
                LimitExceeded(
                    f"the {field} of a message to queue {queue.name!r} has {len(name)} characters, at most "
                    f"{IDENTIFIER_CHARACTERS_MAX} are allowed; send a hash of it"
                )
            )
    return None


def _fault_out_of_order(queue: QueueState, entry: SendEntry) -> Refused | None:
    if entry.group or entry.deduplication:
        return refusal(
            InvalidValue(
                f"a message to queue {queue.name!r} has group {entry.group[:40]!r} and deduplication "
                f"{entry.deduplication[:40]!r}, but the queue is out-of-order; leave them out, or send it to an "
                "in-order queue"
            )
        )
    if entry.delay_ms is not None and entry.delay_ms > DELAY_MS_MAX:
        return refusal(
            LimitExceeded(f"delay_ms must be at most {DELAY_MS_MAX}, got {entry.delay_ms}; send the message later")
        )
    if entry.delay_ms is not None and entry.delay_ms < 0:
        return refusal(InvalidValue(f"delay_ms must not be negative, got {entry.delay_ms}; 0 means no delay"))
    return None


def _too_large(queue: QueueState, size: int) -> Refused:
    return refusal(
        LimitExceeded(
            f"a message to queue {queue.name!r} has {size} bytes, body and attributes together, at most "
            f"{queue.config.message_bytes_max} are allowed; store the content elsewhere and send its location"
        )
    )


def _full(queue: QueueState) -> Refused:
    return refusal(
        QueueFull(
            f"queue {queue.name!r} is full: it may hold {queue.config.depth_max} messages; send again when some were "
            "acknowledged, or raise its depth_max"
        )
    )
