"""Namespaces in requests and answers: the rules that the registry's declarations name.

    request ──rule──► the request with full names of queues ──► broker ──► answer ──strip──► names without the namespace

A rule takes the key and a request, and returns the request in the key's namespace, the same object if nothing changes.
It raises `AccessDenied` if the request names another namespace. A strip function removes the namespace from the names
in an answer. An operator can connect queues of two namespaces by dead letters or a redrive; other keys then see an
empty field instead of a name outside their own namespace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from lavant.broker.protocol import jobs, queues, subscriptions
from lavant.broker.protocol.queue_config import NAMESPACE_END, QueueConfig, namespace_of
from lavant.core.errors import AccessDenied, QueueExists

Rule: TypeAlias = Callable[["KeyNamespace", Any], Any]
Strip: TypeAlias = Callable[[str, Any], Any]

_FOREIGN = re.compile(rf"'[A-Za-z0-9_-]+{NAMESPACE_END}[A-Za-z0-9_.-]+'")
_HIDDEN = "'…'"


class KeyNamespace(Protocol):
    """The part of a principal that the rules need."""

    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...


def in_namespace(namespace: str, queue: str) -> str:
    """The full name of a queue.

    >>> in_namespace("acme", "orders"), in_namespace("", "orders")
    ('acme/orders', 'orders')
    """
    return f"{namespace}{NAMESPACE_END}{queue}" if namespace else queue


# ── rules for requests ────────────────────────────────────────────────────────────────────────────────────────────────


def queue_rule(key: KeyNamespace, request: Any) -> Any:
    """For requests with a field `queue`."""
    name = _queue(key, request.queue)
    return request if name == request.queue else replace(request, queue=name)


def config_rule(key: KeyNamespace, request: queues.CreateQueue | queues.ConfigureQueue) -> Any:
    """For requests with fields `queue` and `config`, which names a dead-letter queue."""
    return replace(request, queue=_queue(key, request.queue), config=_config(key, request.config))


def list_rule(key: KeyNamespace, request: queues.ListQueues) -> queues.ListQueues:
    if not key.namespace:
        return replace(request, is_outside=True)
    return replace(
        request,
        prefix=in_namespace(key.namespace, request.prefix),
        after=in_namespace(key.namespace, request.after),
        is_outside=False,
    )


def source_rule(key: KeyNamespace, request: queues.ListMoves) -> queues.ListMoves:
    return replace(request, source=_queue(key, request.source))


def start_move_rule(key: KeyNamespace, request: queues.StartMove) -> queues.StartMove:
    destination = None if request.destination is None else _queue(key, request.destination)
    return replace(request, source=_queue(key, request.source), destination=destination, namespace=key.namespace)


def cancel_move_rule(key: KeyNamespace, request: queues.CancelMove) -> queues.CancelMove:
    """A redrive is identified by a number only, so the broker checks its namespace."""
    return replace(request, namespace=key.namespace)


def namespace_rule(key: KeyNamespace, request: Any) -> Any:
    """For requests with a field `namespace`: it names the key's own namespace, or none."""
    if request.namespace == key.namespace:
        return request
    if request.namespace:
        raise AccessDenied(
            f"key {key.name!r} is not of the namespace {request.namespace[:40]!r}; leave the namespace out"
        )
    return replace(request, namespace=key.namespace)


def subscribe_rule(key: KeyNamespace, request: subscriptions.Subscribe) -> subscriptions.Subscribe:
    own: subscriptions.Subscribe = namespace_rule(key, request)
    config = _config(key, request.config)
    return own if config is request.config else replace(own, config=config)


def publish_rule(key: KeyNamespace, request: subscriptions.Publish) -> subscriptions.Publish:
    """Idempotency keys belong to a namespace too: no key sees the answers to another namespace's requests."""
    own: subscriptions.Publish = namespace_rule(key, request)
    if not own.key:
        return own
    digest = blake2b(own.key.encode(), digest_size=32).hexdigest()
    return replace(own, key=in_namespace(key.namespace, digest))


def server_wide_rule(key: KeyNamespace, request: Any) -> Any:
    """For requests about jobs and neighbours, which belong to no namespace."""
    if key.namespace:
        raise AccessDenied(
            f"{type(request).__name__} concerns the server as a whole, not one of its namespaces; key "
            f"{key.name!r} is bound to the namespace {key.namespace!r}, use one without"
        )
    return request


def schedule_rule(key: KeyNamespace, request: jobs.AddSchedule) -> jobs.AddSchedule:
    """A schedule belongs to a namespace like the queue that it sends to. Jobs belong to none."""
    if request.job_type:
        server_wide_rule(key, request)
    own: jobs.AddSchedule = namespace_rule(key, request)
    return replace(own, queue=_queue(key, request.queue)) if request.queue else own


def no_client_rule(key: KeyNamespace, request: Any) -> Any:
    """For the server's own commands."""
    raise AccessDenied(f"{type(request).__name__} is for the server itself, not for its clients")


def _queue(key: KeyNamespace, name: str) -> str:
    if NAMESPACE_END in name:
        raise AccessDenied(
            f"key {key.name!r} reaches the queues of its own namespace only, by their names alone; got {name[:80]!r}"
        )
    return in_namespace(key.namespace, name)


def _config(key: KeyNamespace, config: QueueConfig) -> QueueConfig:
    if config.dead_letters is None:
        return config
    return replace(config, dead_letters=_queue(key, config.dead_letters))


# ── strip functions for answers ───────────────────────────────────────────────────────────────────────────────────────


def no_names(namespace: str, answer: Any) -> Any:
    """For answers without names of queues or namespaces."""
    return answer


def strip_refused(namespace: str, answer: queues.Refused) -> queues.Refused:
    """`QueueExists` alone quotes settings that another key may have made."""
    reason = _text(namespace, answer.reason)
    if answer.code == QueueExists.__name__:
        reason = _FOREIGN.sub(_HIDDEN, reason)
    return answer if reason == answer.reason else replace(answer, reason=reason)


def strip_entries(namespace: str, answer: Any) -> Any:
    if not any(isinstance(entry, queues.Refused) for entry in answer.entries):
        return answer
    return replace(
        answer,
        entries=[strip_refused(namespace, e) if isinstance(e, queues.Refused) else e for e in answer.entries],
    )


def strip_refusals(namespace: str, answer: Any) -> Any:
    if not answer.refused:
        return answer
    return replace(answer, refused={index: strip_refused(namespace, each) for index, each in answer.refused.items()})


def strip_received(namespace: str, answer: queues.Received) -> queues.Received:
    if all(each.origin is None for each in answer.deliveries):
        return answer
    return replace(answer, deliveries=[_origin(namespace, each) for each in answer.deliveries])


def strip_described(namespace: str, answer: queues.Described) -> queues.Described:
    config = answer.config
    if config.dead_letters is None:
        return answer
    dead_letters = _name_or_none(namespace, config.dead_letters)
    receives_max = None if dead_letters is None else config.receives_max  # they go together
    return replace(answer, config=replace(config, dead_letters=dead_letters, receives_max=receives_max))


def strip_listed(namespace: str, answer: queues.Listed) -> queues.Listed:
    own = (queue for queue in answer.queues if namespace_of(queue) == namespace)
    return replace(answer, queues=[_name(namespace, queue) for queue in own])


def _name(namespace: str, name: str) -> str:
    return name.removeprefix(namespace + NAMESPACE_END) if namespace else name


def _name_or_none(namespace: str, name: str | None) -> str | None:
    """None also if it is in another namespace."""
    return None if name is None or namespace_of(name) != namespace else _name(namespace, name)


def _text(namespace: str, text: str) -> str:
    """Errors quote the names of queues."""
    return text.replace(f"'{namespace}{NAMESPACE_END}", "'") if namespace else text


def _origin(namespace: str, message: Any) -> Any:
    return replace(message, origin=_name_or_none(namespace, message.origin))


def _move(namespace: str, move: queues.MoveState) -> queues.MoveState:
    return replace(
        move,
        source=_name(namespace, move.source),
        destination=_name_or_none(namespace, move.destination),
        reason=_FOREIGN.sub(_HIDDEN, _text(namespace, move.reason)),
        namespace=None,
    )


def _subscription(namespace: str, state: subscriptions.SubscriptionState) -> subscriptions.SubscriptionState:
    return replace(state, namespace="", queue=_name(namespace, state.queue))


def _schedule(namespace: str, state: jobs.ScheduleState) -> jobs.ScheduleState:
    error = _text(namespace, state.last_error)
    return replace(state, namespace="", queue=_name(namespace, state.queue), last_error=error)


def _advertisement(namespace: str, state: subscriptions.AdvertisementState) -> subscriptions.AdvertisementState:
    return replace(state, namespace="")


def _field(name: str, strip: Strip) -> Strip:
    """Strips one field of an answer."""
    return lambda namespace, answer: replace(answer, **{name: strip(namespace, getattr(answer, name))})


def _items(name: str, strip: Strip) -> Strip:
    """Strips each item of a list."""
    return _field(name, lambda namespace, items: [strip(namespace, each) for each in items])


strip_peeked = _items("messages", _origin)
strip_moved = _field("state", _move)
strip_moves = _items("moves", _move)
strip_subscribed = _field("subscription", _subscription)
strip_subscriptions = _items("subscriptions", _subscription)
strip_advertised = _field("advertisement", _advertisement)
strip_advertisements = _items("advertisements", _advertisement)
strip_scheduled = _field("schedule", _schedule)
strip_schedules = _items("schedules", _schedule)
