"""Rules of in-order queues: within a group, a message starts when all before it are done and none is in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import TypeAlias

from lavant.broker.queues.history.evidence import Evidence, ReceiveRecord
from lavant.broker.queues.history.operations import HistoryViolation

STARTED_EARLY = "messages of a group start in order"
BLOCKED = "a group is blocked while a message of it is in flight"

GroupKey: TypeAlias = tuple[str, str]


def check_ordering(evidence: Evidence) -> Iterator[HistoryViolation]:
    groups: dict[GroupKey, list[list[ReceiveRecord]]] = defaultdict(list)
    """The messages of each group that each receive returned."""
    for _, records in evidence.receives:
        for key, taken in _by_group(evidence, records).items():
            groups[key].append(taken)
    members = _members(evidence)
    for key, receives in groups.items():
        yield from _check_within(receives)
        yield from _check_blocked(evidence, receives)
        if evidence.is_only(key[0]):
            yield from _check_order(evidence, members.get(key, []), receives)


def _by_group(evidence: Evidence, records: list[ReceiveRecord]) -> dict[GroupKey, list[ReceiveRecord]]:
    groups: dict[GroupKey, list[ReceiveRecord]] = defaultdict(list)
    for record in records:
        if evidence.history.configs[record.queue].order == "in-order":
            groups[record.queue, record.delivery.group].append(record)
    return groups


def _members(evidence: Evidence) -> dict[GroupKey, list[int]]:
    """The messages of each group that are known to have been sent, by number."""
    members: dict[GroupKey, list[int]] = defaultdict(list)
    for number, sendings in sorted(evidence.by_number.items()):
        records = evidence.records.get(number)
        keys = {(sending.queue, sending.entry.group) for sending in sendings}
        if records:
            sending = evidence.by_body.get(records[0].delivery.body, sendings[0])
            keys = {(sending.queue, sending.entry.group)}
        if len(keys) == 1:  # of two duplicates in different groups, it is unknown which one was kept
            members[keys.pop()].append(number)
    return members


def _check_within(receives: list[list[ReceiveRecord]]) -> Iterator[HistoryViolation]:
    for taken in receives:
        for one, other in pairwise(taken):
            if one.delivery.receipt.number > other.delivery.receipt.number:
                yield HistoryViolation(
                    STARTED_EARLY,
                    f"{one.operation} got message {one.delivery.receipt.number} before "
                    f"{other.delivery.receipt.number} of the same group",
                )


def _check_order(
    evidence: Evidence, numbers: list[int], receives: list[list[ReceiveRecord]]
) -> Iterator[HistoryViolation]:
    """Only acknowledgement and purge end a message here, so one must have happened before the next starts.

    Numbers give the order of arrival; the number of a message is known if it was confirmed or received.
    """
    done_ms = [_done_ms(evidence, number) for number in numbers]
    latest_ms = list(accumulate(done_ms, max))
    place_of = {number: place for place, number in enumerate(numbers)}
    for taken in receives:
        before = -1
        for record in taken:
            place = place_of.get(record.delivery.receipt.number)
            if place is None or place < before:
                continue  # never sent, or out of order already: other rules report it
            # Messages that the same receive returned just before may be unfinished.
            waiting = (
                range(before + 1, place) if before >= 0 or not place or latest_ms[place - 1] > record.end_ms else ()
            )
            for other in waiting:
                if done_ms[other] > record.end_ms:
                    yield HistoryViolation(
                        STARTED_EARLY,
                        f"{record.operation} got message {numbers[place]} of group {record.delivery.group!r} in "
                        f"{record.queue!r}, while {numbers[other]} before it was not done",
                    )
                    break
            before = place


def _done_ms(evidence: Evidence, number: int) -> int:
    """The earliest time at which a message of a queue without dead letters may have been done."""
    ends = [settlement.operation for settlement in evidence.acknowledgements.get(number, ()) if settlement.is_possible]
    sending = evidence.by_number[number][0]
    ends += evidence.purges.get(sending.queue, [])
    return min([evidence.expires_ms(sending), *(operation.start_ms for operation in ends)])


def _check_blocked(evidence: Evidence, receives: list[list[ReceiveRecord]]) -> Iterator[HistoryViolation]:
    """From the answer until its lease may have ended, a message blocks its group for all other receives."""
    blocks = sorted(
        ((taken[0].end_ms, _blocks_until_ms(evidence, record), record) for taken in receives for record in taken),
        key=lambda block: block[:2],
    )
    by_start = sorted((taken[0] for taken in receives), key=lambda record: record.start_ms)
    place, longest_ms, holder = 0, -1, None
    for record in by_start:
        while place < len(blocks) and blocks[place][0] < record.start_ms:
            if blocks[place][1] > longest_ms:
                _, longest_ms, holder = blocks[place]
            place += 1
        if holder is not None and record.end_ms < longest_ms:
            yield HistoryViolation(
                BLOCKED,
                f"{record.operation} got message {record.delivery.receipt.number} of group "
                f"{record.delivery.group!r} in {record.queue!r}, while {holder.operation} had message "
                f"{holder.delivery.receipt.number}",
            )


def _blocks_until_ms(evidence: Evidence, record: ReceiveRecord) -> int:
    receipt = record.delivery.receipt
    until_ms = record.start_ms + evidence.at_least_ms(record.visibility_ms) if record.visibility_ms else record.start_ms
    settlements = [*evidence.acknowledgements.get(receipt.number, ()), *evidence.changes.get(receipt, ())]
    for settlement in settlements:
        if settlement.is_possible:
            until_ms = min(until_ms, settlement.operation.start_ms)
    for purge in evidence.purges.get(record.queue, ()):
        if purge.end_ms is None or purge.end_ms >= record.start_ms:
            until_ms = min(until_ms, purge.start_ms)
    return evidence.first_restart_ms(record.start_ms, until_ms)
