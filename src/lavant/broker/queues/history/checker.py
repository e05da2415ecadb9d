"""Checks a history against all rules; the rules for acknowledgements, losses, leases and de-duplication are here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import TypeAlias

from lavant.broker.protocol.queue_config import DEDUPLICATION_MS
from lavant.broker.queues.history.evidence import Evidence, ReceiveRecord, SendRecord, Settlement
from lavant.broker.queues.history.identity import check_identity, key_of
from lavant.broker.queues.history.operations import History, HistoryViolation
from lavant.broker.queues.history.ordering import check_ordering
from lavant.core.errors import NotInFlight

GONE = "what is acknowledged is not received again"
STILL_THERE = "what is acknowledged is gone"
REFUSED = "the holder of a lease is not refused"


def check_acknowledgements(evidence: Evidence) -> Iterator[HistoryViolation]:
    for number, settlements in evidence.acknowledgements.items():
        for settlement in settlements:
            record = _receive_of(evidence, settlement)
            if record is None:
                continue
            if settlement.is_confirmed:
                yield from _check_gone(evidence, number, settlement, record)
            elif settlement.refused is not None:
                yield from _check_refusal(evidence, settlement, record)
    for changes in evidence.changes.values():
        for change in changes:
            record = _receive_of(evidence, change)
            if record is not None and change.refused is not None and not _may_be_gone(evidence, change):
                yield from _check_refusal(evidence, change, record)


def _check_gone(
    evidence: Evidence, number: int, settlement: Settlement, record: ReceiveRecord
) -> Iterator[HistoryViolation]:
    """A receipt is also accepted for a message that moved to a dead-letter queue.

    So the message itself was certainly acknowledged only if it had nowhere to go, or its lease was in force. If it is
    received again during the same stay in the same queue, as `first_received_ms` shows, it was not gone.
    """
    operation = settlement.operation
    assert operation.end_ms is not None
    is_certain = evidence.is_last(record.queue) or evidence.is_held(record, operation)
    stay = record.queue, record.delivery.first_received_ms
    for later in evidence.records[number]:
        if later.start_ms <= operation.end_ms:
            continue
        if is_certain or stay == (later.queue, later.delivery.first_received_ms):
            yield HistoryViolation(GONE, f"{later.operation} got message {number}, after {operation} was confirmed")
    left = evidence.history.left
    if is_certain and left is not None and number in left:
        yield HistoryViolation(
            STILL_THERE, f"message {number} is in {left[number]!r}, though {operation} was confirmed"
        )


def _check_refusal(evidence: Evidence, settlement: Settlement, record: ReceiveRecord) -> Iterator[HistoryViolation]:
    refused = settlement.refused
    assert refused is not None
    if settlement.operation.answer is not refused and evidence.is_held(record, settlement.operation):
        yield HistoryViolation(
            REFUSED,
            f"{settlement.operation} was refused, for message {settlement.receipt.number} ({refused.code}: "
            f"{refused.reason}), though the lease from {record.operation} was in force",
        )


def _may_be_gone(evidence: Evidence, change: Settlement) -> bool:
    """Whether a change of visibility may have come too late and was rightly refused."""
    assert change.refused is not None
    end_ms = change.operation.end_ms
    assert end_ms is not None
    if change.refused.code != NotInFlight.__name__:
        return False
    others = [*evidence.acknowledgements.get(change.receipt.number, ()), *evidence.changes[change.receipt]]
    ends = [other.operation for other in others if other.is_possible and not other.visibility_ms]
    return any(operation.start_ms <= end_ms for operation in [*ends, *evidence.purges.get(change.queue, ())])


def _receive_of(evidence: Evidence, settlement: Settlement) -> ReceiveRecord | None:
    """The delivery that the receipt belongs to, if it was used with the right queue."""
    records = evidence.by_receipt.get(settlement.receipt)
    return records[0] if records and records[0].queue == settlement.queue else None


LOST = "what was confirmed is not lost"


def check_losses(evidence: Evidence) -> Iterator[HistoryViolation]:
    left = evidence.history.left
    if left is None:
        return
    over_ms = max((_last_ms(sending) for sending in evidence.sendings), default=0)
    over_ms = max([over_ms, *(record.end_ms for records in evidence.records.values() for record in records)])
    for number, (sending, *_) in evidence.by_number.items():
        if number in left or _was_ended(evidence, sending, number, over_ms):
            continue
        records = evidence.records.get(number)
        if records:
            yield HistoryViolation(
                LOST, f"message {number} is gone, though {records[-1].operation} got it, and it was not acknowledged"
            )
        else:
            yield HistoryViolation(
                LOST, f"message {number} was never received and is gone, though {sending.operation} sent it"
            )


def _was_ended(evidence: Evidence, sending: SendRecord, number: int, over_ms: int) -> bool:
    """Whether something explains that the message is gone."""
    records = evidence.records.get(number)
    last_ms = records[-1].start_ms if records else 0
    for settlement in evidence.acknowledgements.get(number, ()):
        end_ms = settlement.operation.end_ms
        # An acknowledgement that was over when the message was received again did not remove it.
        if settlement.is_possible and (end_ms is None or end_ms >= last_ms):
            return True
    for queue in evidence.reachable(sending.queue):
        for purge in evidence.purges.get(queue, ()):
            if purge.end_ms is None or purge.end_ms >= max(sending.operation.start_ms, last_ms):
                return True
    return over_ms >= evidence.expires_ms(sending)


def _last_ms(sending: SendRecord) -> int:
    operation = sending.operation
    return operation.start_ms if operation.end_ms is None else operation.end_ms


SHARED = "a lease has one holder"
UNIQUE = "a lease is given once"
TOO_OFTEN = "a message received too often is a dead letter"


def check_leases(evidence: Evidence) -> Iterator[HistoryViolation]:
    yield from _check_unique(evidence)
    for number, records in evidence.records.items():
        for one, other in pairwise(records):
            if one.delivery.receipt != other.delivery.receipt and evidence.is_held(one, other.operation):
                until_ms = evidence.held_until_ms(one, other.operation)
                yield HistoryViolation(
                    SHARED,
                    f"{one.operation} got message {number} until {until_ms} ms at least, "
                    f"and {other.operation} got it too",
                )
        for record in records:
            config = evidence.history.configs[record.queue]
            count = record.delivery.receive_count
            if config.dead_letters is not None and config.receives_max is not None and count > config.receives_max:
                yield HistoryViolation(
                    TOO_OFTEN,
                    f"{record.operation} got message {number}, for the {count}th time from {record.queue!r}, "
                    f"where {config.receives_max} are allowed",
                )


def _check_unique(evidence: Evidence) -> Iterator[HistoryViolation]:
    """Leases are unique, also across restarts and messages: the lease tells a receipt from an outdated one."""
    first: dict[int, ReceiveRecord] = {}
    for _, records in evidence.receives:
        for record in records:
            lease = record.delivery.receipt.lease
            other = first.setdefault(lease, record)
            if other is not record:
                yield HistoryViolation(
                    UNIQUE,
                    f"{other.operation} got message {other.delivery.receipt.number}, and {record.operation} message "
                    f"{record.delivery.receipt.number}, both under lease {lease}",
                )


DUPLICATE = "a name stands for one message within the window"


def check_duplicates(evidence: Evidence) -> Iterator[HistoryViolation]:
    by_key: dict[tuple[str, str, str], dict[int, list[SendRecord]]] = defaultdict(lambda: defaultdict(list))
    for number, sendings in evidence.by_number.items():
        for sending in sendings:
            key = key_of(evidence, sending)
            if key is not None:
                by_key[key][number].append(sending)
    for (queue, _, name), by_number in by_key.items():
        for one, other in pairwise(sorted(by_number)):
            ones, others = by_number[one], by_number[other]
            if _is_within_window(evidence, one, ones, other, others) and not _is_purged(evidence, queue, ones, others):
                yield HistoryViolation(
                    DUPLICATE,
                    f"{others[0].operation} sent {name!r} to {queue!r} as message {other}, "
                    f"and {ones[0].operation} as message {one} not long before",
                )


def _is_within_window(
    evidence: Evidence, one: int, ones: list[SendRecord], other: int, others: list[SendRecord]
) -> bool:
    one_ms, other_ms = _sent_ms(evidence, one), _sent_ms(evidence, other)
    if one_ms is not None and other_ms is not None:
        return other_ms - one_ms < DEDUPLICATION_MS  # by the server's own clock
    start_ms = min(sending.operation.start_ms for sending in ones)
    ends_ms = [sending.operation.end_ms for sending in others]
    end_ms = max((end for end in ends_ms if end is not None), default=None)
    if end_ms is None or None in ends_ms:
        return False
    return end_ms - start_ms < evidence.at_least_ms(DEDUPLICATION_MS) and not evidence.restarted(start_ms, end_ms)


def _is_purged(evidence: Evidence, queue: str, ones: list[SendRecord], others: list[SendRecord]) -> bool:
    """Whether the queue may have been purged in between, which forgets the name."""
    start_ms = min(sending.operation.start_ms for sending in ones)
    ends_ms = [sending.operation.end_ms for sending in others]
    return any(
        (purge.end_ms is None or purge.end_ms >= start_ms)
        and any(end_ms is None or purge.start_ms <= end_ms for end_ms in ends_ms)
        for purge in evidence.purges.get(queue, ())
    )


def _sent_ms(evidence: Evidence, number: int) -> int | None:
    records = evidence.records.get(number)
    return records[0].delivery.sent_ms if records else None


VIOLATIONS_MAX = 20
"""Violations per rule; one bug often shows in many places."""

Rule: TypeAlias = Callable[[Evidence], Iterator[HistoryViolation]]
RULES: tuple[Rule, ...] = (
    check_identity,
    check_leases,
    check_acknowledgements,
    check_ordering,
    check_duplicates,
    check_losses,
)


def check(history: History) -> list[HistoryViolation]:
    """Return the violations, rule by rule; an empty list if there are none.

    >>> from lavant.broker.queues.history import RecordedOperation
    >>> from lavant.broker.protocol.queues import *
    >>> from lavant.broker.protocol.queue_config import QueueConfig
    >>> send = RecordedOperation(
    ...     client="ann", start_ms=0, end_ms=1, request=Send("q", [SendEntry(b"tea")]), answer=Sent([SentEntry(1)])
    ... )
    >>> print(*check(History(configs={"q": QueueConfig()}, operations=[send], left={})))
    what was confirmed is not lost: message 1 was never received and is gone, though ann's Send (0 ms to 1 ms) sent it
    >>> check(History(configs={"q": QueueConfig()}, operations=[send], left={1: "q"}))
    []
    """
    evidence = Evidence(history)
    return [violation for rule in RULES for violation in islice(rule(evidence), VIOLATIONS_MAX)]
