"""Fan-out: deliver the same bodies to many queues at once, as publications go to their subscribers.

A body is held once, in memory and in the journal, however many queues it is in; the journal lists queues by number. A
fan-out to a thousand subscribers is therefore hardly longer than one to a single subscriber.
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
    """The messages of one queue: indexes of bodies, and their total size."""

    __slots__ = ("indexes", "queue", "size_bytes")

    def __init__(self, queue: QueueState, indexes: list[int], size_bytes: int) -> None:
        self.queue = queue
        self.indexes = indexes
        self.size_bytes = size_bytes


def shares_of(request: FanOut, directory: Directory) -> list[Share]:
    """The share of each queue; a queue that was deleted meanwhile is left out."""
    sizes = [len(body) for body in request.bodies]
    shares: list[Share] = []
    for serial, indexes in _lists(request):
        queue = directory.numbered(serial)
        if queue is not None and indexes:
            if max(indexes) >= len(sizes):
                raise InvalidValue(
                    f"queue number {serial} is to get body {max(indexes)}, but there are only {len(sizes)} bodies"
                )
            shares.append(Share(queue, indexes, sum([sizes[index] for index in indexes])))
    return shares


def check_shares(shares: Sequence[Share], sizes: Sequence[int]) -> None:
    """Raise if a queue has no room for its share, or a body is too large for it."""
    largest = max(sizes, default=0)
    for share in shares:
        config = share.queue.config
        if len(share.queue.messages) + len(share.indexes) > config.depth_max:
            raise QueueFull(
                f"queue {share.queue.name!r} is full: it may hold {config.depth_max} messages; publish again when some "
                "were acknowledged, or raise its depth_max"
            )
        if largest > config.message_bytes_max:
            _check_size(share, sizes, config.message_bytes_max)


def fan_out(shares: Sequence[Share], bodies: Sequence[bytes], now_ms: int, counters: QueueCounters) -> None:
    """Add the messages to every queue, in the order of their indexes."""
    bodies, saved = _shared(shares, bodies, counters)
    number = counters.number
    for share in shares:
        queue = share.queue
        delay_ms = queue.config.delay_ms
        visible_ms = now_ms + delay_ms if delay_ms else 0
        messages = []
        for index in share.indexes:
            number += 1
            messages.append(Message(number, bodies[index], b"", now_ms, now_ms, visible_ms, 0, 0, 0, "", "", None))
        queue.enter(messages, share.size_bytes)
        queue.totals.sent += len(messages)
        queue.shares_bodies |= saved is not None
    counters.number = number
    counters.memory -= 0 if saved is None else saved


def memory_of_shares(shares: Sequence[Share], bodies: Sequence[bytes]) -> int:
    """Approximate memory it takes, each body counted once."""
    messages = sum(len(share.indexes) for share in shares)
    return messages * MESSAGE + sum(map(len, bodies)) if messages else 0


def _shared(
    shares: Sequence[Share], bodies: Sequence[bytes], counters: QueueCounters
) -> tuple[Sequence[bytes], int | None]:
    """The bodies with shared ones replaced by the shared object, and the memory saved; None if none is shared."""
    if len(shares) * max(map(len, bodies), default=0) < SAVED_BYTES_MIN:
        return bodies, None
    counts = np.bincount([index for share in shares for index in share.indexes], minlength=len(bodies)).tolist()
    shared, saved = list(bodies), None
    for index, (body, messages) in enumerate(zip(bodies, counts, strict=True)):
        if is_worth_sharing(len(body), messages):
            shared[index], saved_here = counters.bodies.share(body, messages)
            saved = saved_here if saved is None else saved + saved_here
    return shared, saved


def _check_size(share: Share, sizes: Sequence[int], bytes_max: int) -> None:
    for index in share.indexes:
        if sizes[index] > bytes_max:
            raise LimitExceeded(
                f"a publication has {sizes[index]} bytes, but queue {share.queue.name!r} takes at most "
                f"{bytes_max}; store the content elsewhere and publish its location"
            )


def _lists(request: FanOut) -> Iterator[tuple[int, list[int]]]:
    try:
        serials, ends, indexes = (
            np.frombuffer(data, INTEGERS).tolist() for data in (request.queues, request.ends, request.indexes)
        )
    except ValueError:
        raise InvalidValue("each array of a fan-out has 4 bytes per number") from None
    if len(ends) != len(serials) or (ends and ends[-1] != len(indexes)):
        raise InvalidValue(f"a fan-out has {len(serials)} queues, {len(ends)} ends and {len(indexes)} indexes")
    for serial, (start, end) in zip(serials, pairwise([0, *ends]), strict=True):
        yield serial, indexes[start:end]
