"""Answers as a principal sees them: the names of its queues and subscriptions without its namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from lavant.broker.queues import commands as queues
from lavant.broker.queues.config import NAMESPACE_END
from lavant.broker.serving.commands import Answer
from lavant.broker.subscriptions import commands as subscriptions
from lavant.service.keys import Principal


def shown(principal: Principal, answer: Answer) -> Answer:
    """The answer as the principal sees it."""
    if not principal.namespace:
        return answer
    show = _SHOWS.get(type(answer))
    return answer if show is None else show(principal.namespace, answer)


def _name(namespace: str, name: str) -> str:
    return name.removeprefix(namespace + NAMESPACE_END)


def _name_or_none(namespace: str, name: str | None) -> str | None:
    return None if name is None else _name(namespace, name)


def _show_refused(namespace: str, answer: queues.Refused) -> queues.Refused:
    """Errors quote the names of queues."""
    return replace(answer, reason=answer.reason.replace(f"'{namespace}{NAMESPACE_END}", "'"))


def _show_entries(namespace: str, answer: Any) -> Any:
    return replace(
        answer,
        entries=[_show_refused(namespace, e) if isinstance(e, queues.Refused) else e for e in answer.entries],
    )


def _show_refusals(namespace: str, answer: Any) -> Any:
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
    dead_letters = _name_or_none(namespace, answer.config.dead_letters)
    return replace(answer, config=replace(answer.config, dead_letters=dead_letters))


def _show_listed(namespace: str, answer: queues.Listed) -> queues.Listed:
    return replace(answer, queues=[_name(namespace, queue) for queue in answer.queues])


def _show_moves(namespace: str, answer: queues.Moves) -> queues.Moves:
    return replace(
        answer,
        moves=[
            replace(move, source=_name(namespace, move.source), destination=_name_or_none(namespace, move.destination))
            for move in answer.moves
        ],
    )


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
    queues.Moves: _show_moves,
    subscriptions.Subscribed: _show_subscribed,
    subscriptions.SubscriptionsListed: _show_subscriptions,
    subscriptions.Advertised: _show_advertised,
    subscriptions.AdvertisementsListed: _show_advertisements,
}
