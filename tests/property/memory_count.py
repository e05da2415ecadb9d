"""Counts anew what a broker's state takes in memory, from what it holds: the oracle for the count that is kept."""

from __future__ import annotations

from lavant.broker.federation.link_queue import memory_of_batch
from lavant.broker.federation.state import Neighbour, memory_of_route
from lavant.broker.machine.state import BrokerState
from lavant.broker.queues.accounting.memory import (
    GROUP,
    HIDDEN,
    JOB_ENDED,
    KEYS_NAMESPACE,
    LOG_OFFSET,
    MESSAGE,
    NAMES_WINDOW,
    QUEUE,
    SHARED_BODY,
    text_bytes,
)
from lavant.broker.queues.operations import deduplication
from lavant.broker.queues.ordering import in_order
from lavant.broker.queues.queue import QueueState, size_of
from lavant.broker.queues.queue import memory_of as memory_of_queue
from lavant.broker.subscriptions.memory import memory_of, memory_of_advertisement, memory_of_key
from lavant.broker.workflows.job import memory_of as memory_of_job
from lavant.broker.workflows.job_types import memory_of as memory_of_type
from lavant.broker.workflows.schedules import memory_of_schedule


def counted_anew(broker: BrokerState) -> int:
    queues, subscriptions = broker.queues, broker.subscriptions
    store, recent = queues._store, subscriptions.recent
    return sum(
        (
            sum(map(_queue, queues.all())),
            -_saved(broker),
            sum(map(memory_of_job, store.all_running())),
            sum(JOB_ENDED + text_bytes(name) + len(view) for _, _, name, view in store.all_ended()),
            sum(memory_of_type(type_.definition) for type_ in queues._types),
            sum(map(memory_of, subscriptions)),
            sum(map(memory_of_schedule, queues.schedules)),
            sum(map(memory_of_advertisement, subscriptions._advertisements.values())),
            sum(memory_of_key(key, each.entries) for _, key, each in recent.all()),
            sum(KEYS_NAMESPACE + text_bytes(namespace) for namespace in recent.counts()),
            sum(map(_neighbour, broker.federation.neighbours.values())),
            sum(LOG_OFFSET + text_bytes(name) for name, _ in subscriptions.log_offsets.all()),
        )
    )


def _neighbour(neighbour: Neighbour) -> int:
    return QUEUE + sum(map(memory_of_route, neighbour.routes)) + sum(map(memory_of_batch, neighbour.queue.batches()))


def _queue(queue: QueueState) -> int:
    messages = list(queue.messages.values())
    hidden = sum(1 for message in messages if message.visible_ms)
    names = [key for _, keys in queue.deduplication._windows for key in keys]
    groups = queue.order._groups if isinstance(queue.order, in_order.InOrder) else {}
    return (
        memory_of_queue(queue.name, queue.tags)
        + len(messages) * MESSAGE
        + sum(map(size_of, messages))
        + hidden * HIDDEN
        + sum(GROUP + text_bytes(group) for group in groups)
        + sum(map(deduplication.memory_of, names))
        + len(queue.deduplication._windows) * NAMES_WINDOW
    )


def _saved(broker: BrokerState) -> int:
    """By bodies that are held once; and each must be held by as many messages as is noted, or more."""
    shared = broker.queues.counters.bodies._shared
    held: dict[bytes, int] = dict.fromkeys(shared, 0)
    for queue in broker.queues.all():
        for message in queue.messages.values():
            if queue.shares_bodies and message.body in held:
                held[message.body] += 1
    assert all(1 < each.messages <= held[body] for body, each in shared.items())
    return sum((each.messages - 1) * len(body) - SHARED_BODY for body, each in shared.items())
