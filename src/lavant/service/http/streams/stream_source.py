"""Attaches a stream to the queue of a subscription, which may exist only as long as the stream.

Such a subscription is temporary, like those of clients: if the server is killed, its lease expires. The lease is short,
because no client can come back to the stream. An attached stream renews the lease of a temporary subscription.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import HTTPConnection

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Acknowledge, DescribeQueue
from lavant.broker.protocol.subscriptions import (
    RenewSubscription,
    Subscribe,
    SubscriptionState,
    Unsubscribe,
)
from lavant.service.auth.authorization import in_namespace
from lavant.service.auth.keys import Principal
from lavant.service.delivery.stream import PrefetchWindow, StreamDelivery
from lavant.service.http.bodies import integer
from lavant.service.http.context import ApiContext
from lavant.service.http.errors import ApiError, bad_request
from lavant.service.http.routes.subscriptions import find


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Runs coroutines until one has ended, and cancels the others; raises the error of that one."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


NAME_PREFIX = "stream-"
VISIBILITY_MS_MIN = 1000
"""With less, messages would come again while they are in transit."""


@asynccontextmanager
async def attached(
    context: ApiContext, principal: Principal, connection: HTTPConnection, *, prefetch: int
) -> AsyncIterator[PrefetchWindow]:
    """The prefetch window on the queue that a request names; at the end, its messages are released."""
    name = connection.path_params.get("name")
    size = integer(connection.query_params, "prefetch", default=prefetch, lowest=1, highest=context.limits.prefetch_max)
    if name is not None:
        state = await find(context, principal, name)
        window = await _window(context, principal, connection, state.queue, size)
        try:
            async with _renewed(context, principal, state):
                yield window
        finally:
            await asyncio.shield(window.close())
        return
    text = connection.query_params.get("filter")
    if text is None:
        raise bad_request("give a filter in ?filter=…, or name a subscription: /subscriptions/NAME/…")
    wanted = Subscribe(text, f"{NAME_PREFIX}{secrets.token_hex(8)}", lease_ms=context.limits.stream_lease_ms)
    state = (await context.ask(principal, wanted)).subscription
    try:
        async with _renewed(context, principal, state):
            yield await _window(context, principal, connection, state.queue, size)
    finally:
        # Also for a principal whose key was revoked: its subscription must not stay.
        await asyncio.shield(context.service.execute(in_namespace(principal, Unsubscribe(state.name))))


def continued_at(error: ApiError, connection: HTTPConnection, window: PrefetchWindow, way: str) -> str | None:
    """The address at which a stream goes on if its subscription has moved to another broker."""
    if "Location" not in error.headers:
        return None
    # A stream that was opened by a filter has a subscription with the name of its queue.
    name = connection.path_params.get("name", window.queue.rpartition("/")[2])
    return f"{error.headers['Location']}/subscriptions/{name}/{way}"


@asynccontextmanager
async def _renewed(context: ApiContext, principal: Principal, state: SubscriptionState) -> AsyncIterator[None]:
    """Renews the lease of a temporary subscription meanwhile."""
    if not state.is_temporary:
        yield
        return
    renewing = asyncio.create_task(
        _renew(context, in_namespace(principal, RenewSubscription(state.name)), state.lease_ms)
    )
    try:
        yield
    finally:
        renewing.cancel()


async def _renew(context: ApiContext, request: Request, lease_ms: int) -> None:
    while True:
        await context.service.execute(request)
        await asyncio.sleep(lease_ms / SECOND_MS / 3)


async def _window(
    context: ApiContext, principal: Principal, connection: HTTPConnection, queue: str, size: int
) -> PrefetchWindow:
    config = (await context.ask(principal, DescribeQueue(queue))).config
    visibility_ms = integer(
        connection.query_params,
        "visibility_ms",
        default=max(config.visibility_ms, VISIBILITY_MS_MIN),
        lowest=VISIBILITY_MS_MIN,
        highest=VISIBILITY_MS_MAX,
    )
    # A key that may not acknowledge may not receive either.
    request = context.authorized(principal, Acknowledge(queue, []))
    assert isinstance(request, Acknowledge)
    return context.deliveries[StreamDelivery].window(request.queue, principal, size=size, visibility_ms=visibility_ms)
