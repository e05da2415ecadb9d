"""`/subscriptions`: create, list, describe, renew and remove."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.queues import DescribeQueue, Refused
from lavant.broker.protocol.subscriptions import (
    DescribeSubscription,
    EncryptedFilter,
    ListSubscriptions,
    RenewSubscription,
    Subscribe,
    Subscribed,
    SubscriptionState,
    Unsubscribe,
    Webhook,
)
from lavant.service.auth.keys import Principal
from lavant.service.http.bodies import check_json, content_type, decode, integer, page_end, read_body
from lavant.service.http.context import ApiContext, json_response
from lavant.service.http.errors import ApiError, error_of_all
from lavant.service.http.schemas import (
    EncryptedFilterBody,
    MessagesView,
    NewSubscription,
    QueueSettings,
    RefusedEntry,
    SubscribeManyAnswer,
    SubscriptionsPage,
    SubscriptionView,
    WebhookView,
)

CREATED = 201


async def subscribe(context: ApiContext, request: Request) -> Response:
    """Creates one subscription from an object, or many from an array."""
    principal = context.principal(request)
    check_json(content_type(request))
    body = await read_body(request, context.limits)
    if body.lstrip()[:1] == b"[":
        return await _subscribe_many(context, principal, decode(body, list[NewSubscription]))
    answer = await context.ask(principal, _command(decode(body, NewSubscription)))
    return json_response(view(answer.subscription), CREATED if answer.is_new else 200)


async def _subscribe_many(context: ApiContext, principal: Principal, wanted: list[NewSubscription]) -> Response:
    if not 1 <= len(wanted) <= context.limits.entries_max:
        raise ApiError(
            400, "LimitExceeded", f"an array has 1 to {context.limits.entries_max} subscriptions, got {len(wanted)}"
        )
    # All at once, so that they are ingested and indexed as one batch.
    answers = await asyncio.gather(*(context.answer(principal, _command(each)) for each in wanted))
    refused = {place: each for place, each in enumerate(answers) if isinstance(each, Refused)}
    if len(refused) == len(answers):
        raise error_of_all(list(refused.values()))
    done = [each for each in answers if isinstance(each, Subscribed)]
    answer = SubscribeManyAnswer(
        subscriptions=[view(each.subscription) if isinstance(each, Subscribed) else None for each in answers],
        refused=[RefusedEntry(index=place, code=each.code, reason=each.reason) for place, each in refused.items()],
    )
    return json_response(answer, CREATED if any(each.is_new for each in done) else 200)


async def list_subscriptions(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    query = request.query_params
    limit = integer(query, "limit", default=100, lowest=1, highest=1000)
    asked = ListSubscriptions(prefix=query.get("prefix", ""), after=query.get("after", ""), count=limit)
    found = (await context.ask(principal, asked)).subscriptions
    page = SubscriptionsPage(subscriptions=list(map(view, found)), next=page_end([each.name for each in found], limit))
    return json_response(page)


async def describe_subscription(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    state = await find(context, principal, request.path_params["name"])
    described = await context.ask(principal, DescribeQueue(state.queue))
    figures = described.figures
    messages = MessagesView(
        visible=figures.visible,
        in_flight=figures.in_flight,
        delayed=figures.delayed,
        oldest_sent_ms=figures.oldest_sent_ms,
    )
    settings = QueueSettings(**msgspec.structs.asdict(described.config))
    return json_response(msgspec.structs.replace(view(state), messages=messages, settings=settings))


async def renew(context: ApiContext, request: Request) -> Response:
    answer = await context.ask(context.principal(request), RenewSubscription(request.path_params["name"]))
    return json_response(view(answer.subscription))


async def unsubscribe(context: ApiContext, request: Request) -> Response:
    await context.ask(context.principal(request), Unsubscribe(request.path_params["name"]))
    return Response(status_code=204)


async def find(context: ApiContext, principal: Principal, name: str) -> SubscriptionState:
    """A subscription in the principal's namespace; raises if there is none of that name."""
    return (await context.ask(principal, DescribeSubscription(name))).subscription


def view(state: SubscriptionState) -> SubscriptionView:
    """Without the webhook's secret."""
    filter, webhook = state.filter, state.webhook
    return SubscriptionView(
        name=state.name,
        filter=filter
        if isinstance(filter, str)
        else EncryptedFilterBody(dimensions=filter.dimensions, tests=filter.tests),
        queue=state.queue,
        owns_queue=state.owns_queue,
        created_ms=state.created_ms,
        lease_ms=state.lease_ms,
        expires_ms=state.expires_ms,
        webhook=None
        if webhook is None
        else WebhookView(
            url=webhook.url,
            attempts_max=webhook.attempts_max,
            timeout_ms=webhook.timeout_ms,
            is_signed=bool(webhook.secret),
        ),
    )


def _command(wanted: NewSubscription) -> Subscribe:
    filter, webhook = wanted.filter, wanted.webhook
    return Subscribe(
        filter if isinstance(filter, str) else EncryptedFilter(filter.dimensions, filter.tests),
        name=wanted.name,
        queue=wanted.queue,
        config=wanted.settings.config(),
        webhook=None
        if webhook is None
        else Webhook(webhook.url, webhook.attempts_max, webhook.timeout_ms, webhook.secret),
        lease_ms=wanted.lease_ms,
    )
