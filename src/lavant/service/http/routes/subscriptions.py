"""`/subscriptions`: create, list, describe, update, renew and remove."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.queues import Described, DescribeQueue, Refused
from lavant.broker.protocol.subscriptions import (
    DescribeSubscription,
    EncryptedFilter,
    ListSubscriptions,
    RenewSubscription,
    Subscribe,
    Subscribed,
    SubscriptionState,
    Unsubscribe,
    UpdateSubscription,
    Webhook,
)
from lavant.service.auth.keys import Principal
from lavant.service.http.bodies import check_json, content_type, decode, integer, page_end, read_body, read_json
from lavant.service.http.context import ApiContext, check_tag, json_response, tag_of, tagged_response
from lavant.service.http.errors import ApiError, error_of_all
from lavant.service.http.schemas import (
    EncryptedFilterBody,
    MessagesView,
    NewSubscription,
    QueueSettings,
    SubscribeManyAnswer,
    SubscriptionsPage,
    SubscriptionUpdate,
    SubscriptionView,
    WebhookView,
    refused_entries,
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
        refused=refused_entries(refused),
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
    return await _answered(context, principal, request, await find(context, principal, request.path_params["name"]))


async def update(context: ApiContext, request: Request) -> Response:
    """With If-Match, the broker checks once more that nobody else changes the subscription in between."""
    principal, name = context.principal(request), request.path_params["name"]
    wanted = await read_json(request, context.limits, SubscriptionUpdate)
    number = await _number_if_matching(context, principal, request)
    answer = await context.ask(principal, UpdateSubscription(name, _filter(wanted.filter), number=number))
    return await _answered(context, principal, request, answer.subscription)


async def _number_if_matching(context: ApiContext, principal: Principal, request: Request) -> int:
    """The number of the subscription if the request has an If-Match, 0 if it has none; raises 412 if they differ."""
    if "if-match" not in request.headers:
        return 0
    state = await find(context, principal, request.path_params["name"])
    check_tag(request, _tag(state, await context.ask(principal, DescribeQueue(state.queue))))
    return state.number


async def _answered(context: ApiContext, principal: Principal, request: Request, state: SubscriptionState) -> Response:
    described = await context.ask(principal, DescribeQueue(state.queue))
    figures = described.figures
    messages = MessagesView(
        visible=figures.visible,
        in_flight=figures.in_flight,
        delayed=figures.delayed,
        oldest_sent_ms=figures.oldest_sent_ms,
    )
    whole = msgspec.structs.replace(view(state), messages=messages, settings=_settings(described))
    return tagged_response(request, whole, _tag(state, described))


def _tag(state: SubscriptionState, described: Described) -> str:
    """Of the subscription and the settings of its queue; figures change all the time, and are not part of it."""
    return tag_of(state.number, state.created_ms, _settings(described))


def _settings(described: Described) -> QueueSettings:
    return QueueSettings(**msgspec.structs.asdict(described.config))


async def renew(context: ApiContext, request: Request) -> Response:
    answer = await context.ask(context.principal(request), RenewSubscription(request.path_params["name"]))
    return json_response(view(answer.subscription))


async def unsubscribe(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    await _number_if_matching(context, principal, request)
    await context.ask(principal, Unsubscribe(request.path_params["name"]))
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
    webhook = wanted.webhook
    return Subscribe(
        _filter(wanted.filter),
        name=wanted.name,
        queue=wanted.queue,
        config=wanted.settings.config(),
        webhook=None
        if webhook is None
        else Webhook(webhook.url, webhook.attempts_max, webhook.timeout_ms, webhook.secret),
        lease_ms=wanted.lease_ms,
    )


def _filter(filter: str | EncryptedFilterBody) -> str | EncryptedFilter:
    return filter if isinstance(filter, str) else EncryptedFilter(filter.dimensions, filter.tests)
