"""Spreading: the same bodies into many queues at once, as publications go to those who want them.

A body is held once, however many queues it is in. The journal too has it once, and the queues by their numbers: what
a thousand subscribers get is then hardly longer than what one gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from lavant.broker.protocol.queues import FanOut
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.shared_bodies import SAVED_BYTES_MIN, is_worth_sharing
from lavant.broker.queues.queue import QueueState
from lavant.core.errors import InvalidValue, LimitExceeded, QueueFull

INTEGERS = np.dtype("<u4")


class Share:
    """What one queue gets: the places of bodies, and their bytes in all."""

    __slots__ = ("places", "queue", "size_bytes")

    def __init__(self, queue: QueueState, places: list[int], size_bytes: int) -> None:
        self.queue = queue
        self.places = places
        self.size_bytes = size_bytes


def shares_of(request: FanOut, directory: Directory) -> list[Share]:
    """Who gets what. A queue that was deleted since it was chosen gets nothing."""
    sizes = [len(body) for body in request.bodies]
    shares: list[Share] = []
    for serial, places in _lists(request):
        queue = directory.numbered(serial)
        if queue is not None and places:
            if max(places) >= len(sizes):
                raise InvalidValue(f"queue number {serial} is to get body {max(places)}, but there are {len(sizes)}")
            shares.append(Share(queue, places, sum([sizes[place] for place in places])))
    return shares


def check_shares(shares: Sequence[Share], sizes: Sequence[int]) -> None:
    """Raise if a queue has no room for its share, or does not take messages as large as these."""
    largest = max(sizes, default=0)
    for share in shares:
        config = share.queue.config
        if len(share.queue.messages) + len(share.places) > config.depth_max:
            raise QueueFull(
                f"queue {share.queue.name!r} is full: it may hold {config.depth_max} messages; publish again when some "
                "were acknowledged, or raise its depth_max"
            )
        if largest > config.message_bytes_max:
            _check_size(share, sizes, config.message_bytes_max)


def carry_out(shares: Sequence[Share], bodies: Sequence[bytes], now_ms: int, counters: QueueCounters) -> None:
    """Every queue gets its messages, in the order of their places."""
    bodies, saved = _shared(shares, bodies, counters)
    number = counters.number
    for share in shares:
        queue = share.queue
        delay_ms = queue.config.delay_ms
        visible_ms = now_ms + delay_ms if delay_ms else 0
        messages = []
        for place in share.places:
            number += 1
            messages.append(Message(number, bodies[place], b"", now_ms, now_ms, visible_ms, 0, 0, 0, "", "", None))
        queue.enter(messages, share.size_bytes)
        queue.totals.sent += len(messages)
        queue.shares_bodies |= saved is not None
    counters.number = number
    counters.memory -= 0 if saved is None else saved


def memory_of_shares(shares: Sequence[Share], bodies: Sequence[bytes]) -> int:
    """About what it takes to carry it out, each body once."""
    messages = sum(len(share.places) for share in shares)
    return messages * MESSAGE + sum(map(len, bodies)) if messages else 0


def _shared(
    shares: Sequence[Share], bodies: Sequence[bytes], counters: QueueCounters
) -> tuple[Sequence[bytes], int | None]:
    """The bodies, as far as others have the same ones too; and what it saves to count them once, if any is shared."""
    if len(shares) * max(map(len, bodies), default=0) < SAVED_BYTES_MIN:
        return bodies, None
    counts = np.bincount([place for share in shares for place in share.places], minlength=len(bodies)).tolist()
    shared, saved = list(bodies), None
    for place, (body, messages) in enumerate(zip(bodies, counts, strict=True)):
        if is_worth_sharing(len(body), messages):
            shared[place], saved_here = counters.bodies.share(body, messages)
            saved = saved_here if saved is None else saved + saved_here
    return shared, saved


def _check_size(share: Share, sizes: Sequence[int], bytes_max: int) -> None:
    for place in share.places:
        if sizes[place] > bytes_max:
            raise LimitExceeded(
                f"a publication has {sizes[place]} bytes, but queue {share.queue.name!r}, which is to get it, takes at "
                f"most {bytes_max}; store the content elsewhere and publish where it is"
            )


def _lists(request: FanOut) -> Iterator[tuple[int, list[int]]]:
    try:
        serials, ends, places = (
            np.frombuffer(data, INTEGERS).tolist() for data in (request.queues, request.ends, request.places)
        )
    except ValueError:
        raise InvalidValue("a spread's arrays are of 4 bytes for each number") from None
    if len(ends) != len(serials) or (ends and ends[-1] != len(places)):
        raise InvalidValue(f"a spread has {len(serials)} queues, {len(ends)} ends and {len(places)} places")
    for serial, (start, end) in zip(serials, pairwise([0, *ends]), strict=True):
        yield serial, places[start:end]
