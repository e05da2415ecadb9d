"""Answers as a principal sees them: names without its namespace, and nothing that belongs to others.

An operator may make queues of two namespaces meet: by dead letters, or by a move. The others see no name from outside
of their own namespace then: the field is empty, as if nothing were there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from lavant.broker.protocol import queues, subscriptions
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.queue_config import NAMESPACE_END, namespace_of
from lavant.core.errors import QueueExists
from lavant.service.auth.keys import Principal

_FOREIGN = re.compile(rf"'[A-Za-z0-9_-]+{NAMESPACE_END}[A-Za-z0-9_.-]+'")
_HIDDEN = "'…'"


def shown(principal: Principal, answer: Answer) -> Answer:
    """The answer as the principal sees it."""
    if principal.is_operator:
        return answer
    show = _SHOWS.get(type(answer))
    return answer if show is None else show(principal.namespace, answer)


def _name(namespace: str, name: str) -> str:
    return name.removeprefix(namespace + NAMESPACE_END) if namespace else name


def _name_or_none(namespace: str, name: str | None) -> str | None:
    """None also if it is in another namespace."""
    return None if name is None or namespace_of(name) != namespace else _name(namespace, name)


def _text(namespace: str, text: str) -> str:
    """Errors quote the names of queues."""
    return text.replace(f"'{namespace}{NAMESPACE_END}", "'") if namespace else text


def _show_refused(namespace: str, answer: queues.Refused) -> queues.Refused:
    """Of all errors, this one alone tells how something is that somebody else may have set."""
    reason = _text(namespace, answer.reason)
    if answer.code == QueueExists.__name__:
        reason = _FOREIGN.sub(_HIDDEN, reason)
    return answer if reason == answer.reason else replace(answer, reason=reason)


def _show_entries(namespace: str, answer: Any) -> Any:
    if not any(isinstance(entry, queues.Refused) for entry in answer.entries):
        return answer
    return replace(
        answer,
        entries=[_show_refused(namespace, e) if isinstance(e, queues.Refused) else e for e in answer.entries],
    )


def _show_refusals(namespace: str, answer: Any) -> Any:
    if not answer.refused:
        return answer
    return replace(answer, refused={place: _show_refused(namespace, each) for place, each in answer.refused.items()})


def _show_received(namespace: str, answer: queues.Received) -> queues.Received:
    if all(each.origin is None for each in answer.deliveries):
        return answer
    return replace(answer, deliveries=[_show_origin(namespace, each) for each in answer.deliveries])


def _show_peeked(namespace: str, answer: queues.Peeked) -> queues.Peeked:
    return replace(answer, messages=[_show_origin(namespace, each) for each in answer.messages])


def _show_origin(namespace: str, message: Any) -> Any:
    return replace(message, origin=_name_or_none(namespace, message.origin))


def _show_described(namespace: str, answer: queues.Described) -> queues.Described:
    config = answer.config
    if config.dead_letters is None:
        return answer
    dead_letters = _name_or_none(namespace, config.dead_letters)
    receives_max = None if dead_letters is None else config.receives_max  # they go together
    return replace(answer, config=replace(config, dead_letters=dead_letters, receives_max=receives_max))


def _show_listed(namespace: str, answer: queues.Listed) -> queues.Listed:
    own = (queue for queue in answer.queues if namespace_of(queue) == namespace)
    return replace(answer, queues=[_name(namespace, queue) for queue in own])


def _show_move(namespace: str, move: queues.MoveState) -> queues.MoveState:
    return replace(
        move,
        source=_name(namespace, move.source),
        destination=_name_or_none(namespace, move.destination),
        reason=_FOREIGN.sub(_HIDDEN, _text(namespace, move.reason)),
        namespace=None,
    )


def _show_moved(namespace: str, answer: queues.Moved) -> queues.Moved:
    return replace(answer, state=_show_move(namespace, answer.state))


def _show_moves(namespace: str, answer: queues.Moves) -> queues.Moves:
    return replace(answer, moves=[_show_move(namespace, move) for move in answer.moves])


def _show_subscription(namespace: str, state: subscriptions.SubscriptionState) -> subscriptions.SubscriptionState:
    return replace(state, namespace="", queue=_name(namespace, state.queue))


def _show_subscribed(namespace: str, answer: subscriptions.Subscribed) -> subscriptions.Subscribed:
    return replace(answer, subscription=_show_subscription(namespace, answer.subscription))


def _show_subscriptions(namespace: str, answer: subscriptions.SubscriptionsListed) -> subscriptions.SubscriptionsListed:
    return replace(answer, subscriptions=[_show_subscription(namespace, each) for each in answer.subscriptions])


def _show_advertised(namespace: str, answer: subscriptions.Advertised) -> subscriptions.Advertised:
    return replace(answer, advertisement=replace(answer.advertisement, namespace=""))


def _show_advertisements(
    namespace: str, answer: subscriptions.AdvertisementsListed
) -> subscriptions.AdvertisementsListed:
    return replace(answer, advertisements=[replace(each, namespace="") for each in answer.advertisements])


_SHOWS: dict[type, Callable[[str, Any], Any]] = {
    queues.Refused: _show_refused,
    queues.Sent: _show_entries,
    subscriptions.Published: _show_entries,
    queues.Acknowledged: _show_refusals,
    queues.VisibilityChanged: _show_refusals,
    queues.Received: _show_received,
    queues.Peeked: _show_peeked,
    queues.Described: _show_described,
    queues.Listed: _show_listed,
    queues.Moved: _show_moved,
    queues.Moves: _show_moves,
    subscriptions.Subscribed: _show_subscribed,
    subscriptions.SubscriptionsListed: _show_subscriptions,
    subscriptions.Advertised: _show_advertised,
    subscriptions.AdvertisementsListed: _show_advertisements,
}
