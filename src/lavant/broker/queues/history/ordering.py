"""In-order queues: within a group, a message starts when all before it are done, and while none is in flight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import TypeAlias

from lavant.broker.queues.history.evidence import Evidence, Taking
from lavant.broker.queues.history.operations import HistoryViolation

STARTED_EARLY = "messages of a group start in order"
BLOCKED = "a group is blocked while a message of it is in flight"

GroupKey: TypeAlias = tuple[str, str]


def check_ordering(evidence: Evidence) -> Iterator[HistoryViolation]:
    groups: dict[GroupKey, list[list[Taking]]] = defaultdict(list)
    """What each receive got of each group."""
    for _, takings in evidence.receives:
        for key, taken in _by_group(evidence, takings).items():
            groups[key].append(taken)
    members = _members(evidence)
    for key, receives in groups.items():
        yield from _check_within(receives)
        yield from _check_blocked(evidence, receives)
        if evidence.is_only(key[0]):
            yield from _check_order(evidence, members.get(key, []), receives)


def _by_group(evidence: Evidence, takings: list[Taking]) -> dict[GroupKey, list[Taking]]:
    groups: dict[GroupKey, list[Taking]] = defaultdict(list)
    for taking in takings:
        if evidence.history.configs[taking.queue].order == "in-order":
            groups[taking.queue, taking.delivery.group].append(taking)
    return groups


def _members(evidence: Evidence) -> dict[GroupKey, list[int]]:
    """The messages of each group that are known to have been sent, by number."""
    members: dict[GroupKey, list[int]] = defaultdict(list)
    for number, sendings in sorted(evidence.by_number.items()):
        takings = evidence.takings.get(number)
        keys = {(sending.queue, sending.entry.group) for sending in sendings}
        if takings:
            sending = evidence.by_body.get(takings[0].delivery.body, sendings[0])
            keys = {(sending.queue, sending.entry.group)}
        if len(keys) == 1:  # of two that are duplicates, and in different groups, it is not known which one there is
            members[keys.pop()].append(number)
    return members


def _check_within(receives: list[list[Taking]]) -> Iterator[HistoryViolation]:
    for taken in receives:
        for one, other in pairwise(taken):
            if one.delivery.receipt.number > other.delivery.receipt.number:
                yield HistoryViolation(
                    STARTED_EARLY,
                    f"{one.operation} got message {one.delivery.receipt.number} before "
                    f"{other.delivery.receipt.number} of the same group",
                )


def _check_order(evidence: Evidence, numbers: list[int], receives: list[list[Taking]]) -> Iterator[HistoryViolation]:
    """Nothing but acknowledgement and purge ends a message here, so there must have been one before the next starts.

    Numbers tell the order in which messages came, and a number is known of what was confirmed or received.
    """
    done_ms = [_done_ms(evidence, number) for number in numbers]
    latest_ms = list(accumulate(done_ms, max))
    place_of = {number: place for place, number in enumerate(numbers)}
    for taken in receives:
        before = -1
        for taking in taken:
            place = place_of.get(taking.delivery.receipt.number)
            if place is None or place < before:
                continue  # nobody sent it, or it stands wrong here already: other rules say so
            # Those that the same receive got just before may be unfinished.
            waiting = (
                range(before + 1, place) if before >= 0 or not place or latest_ms[place - 1] > taking.end_ms else ()
            )
            for other in waiting:
                if done_ms[other] > taking.end_ms:
                    yield HistoryViolation(
                        STARTED_EARLY,
                        f"{taking.operation} got message {numbers[place]} of group {taking.delivery.group!r} in "
                        f"{taking.queue!r}, while {numbers[other]} before it was not done",
                    )
                    break
            before = place


def _done_ms(evidence: Evidence, number: int) -> int:
    """When a message of a queue that has no dead letters may have been done at the earliest."""
    ends = [attempt.operation for attempt in evidence.acknowledgements.get(number, ()) if attempt.is_possible]
    sending = evidence.by_number[number][0]
    ends += evidence.purges.get(sending.queue, [])
    return min([evidence.expires_ms(sending), *(operation.start_ms for operation in ends)])


def _check_blocked(evidence: Evidence, receives: list[list[Taking]]) -> Iterator[HistoryViolation]:
    """From the answer on until its lease may have ended, a message blocks its group for all other receives."""
    blocks = sorted(
        ((taken[0].end_ms, _blocks_until_ms(evidence, taking), taking) for taken in receives for taking in taken),
        key=lambda block: block[:2],
    )
    by_start = sorted((taken[0] for taken in receives), key=lambda taking: taking.start_ms)
    place, longest_ms, holder = 0, -1, None
    for taking in by_start:
        while place < len(blocks) and blocks[place][0] < taking.start_ms:
            if blocks[place][1] > longest_ms:
                _, longest_ms, holder = blocks[place]
            place += 1
        if holder is not None and taking.end_ms < longest_ms:
            yield HistoryViolation(
                BLOCKED,
                f"{taking.operation} got message {taking.delivery.receipt.number} of group "
                f"{taking.delivery.group!r} in {taking.queue!r}, while {holder.operation} had message "
                f"{holder.delivery.receipt.number}",
            )


def _blocks_until_ms(evidence: Evidence, taking: Taking) -> int:
    receipt = taking.delivery.receipt
    until_ms = taking.start_ms + evidence.at_least_ms(taking.visibility_ms) if taking.visibility_ms else taking.start_ms
    attempts = [*evidence.acknowledgements.get(receipt.number, ()), *evidence.changes.get(receipt, ())]
    for attempt in attempts:
        if attempt.is_possible:
            until_ms = min(until_ms, attempt.operation.start_ms)
    for purge in evidence.purges.get(taking.queue, ()):
        if purge.end_ms is None or purge.end_ms >= taking.start_ms:
            until_ms = min(until_ms, purge.start_ms)
    return evidence.first_restart_ms(taking.start_ms, until_ms)
