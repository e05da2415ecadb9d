"""To which queue a stream is attached: that of a subscription, or one that lives only as long as the stream.

A subscription of the second kind is temporary, like those of clients: should the server be killed, its lease ends it.
That is short, since nobody can come back to such a stream. While a stream is attached to a temporary subscription, its
lease is renewed.
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
from lavant.service.http.errors import bad_request
from lavant.service.http.routes.subscriptions import find


async def first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Ends when one of them has ended, and all others are cancelled and over; raises what that one raised."""
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
"""With less, messages would come again while they are on their way."""


@asynccontextmanager
async def attached(
    desk: ApiContext, principal: Principal, connection: HTTPConnection, *, prefetch: int
) -> AsyncIterator[PrefetchWindow]:
    """The window on the queue that a request for a stream names; at its end everything in it goes back."""
    name = connection.path_params.get("name")
    size = integer(connection.query_params, "prefetch", default=prefetch, lowest=1, highest=desk.limits.prefetch_max)
    if name is not None:
        state = await find(desk, principal, name)
        window = await _window(desk, principal, connection, state.queue, size)
        try:
            async with _renewed(desk, principal, state):
                yield window
        finally:
            await asyncio.shield(window.close())
        return
    text = connection.query_params.get("filter")
    if text is None:
        raise bad_request("say in ?filter=… what to send, or name a subscription: /subscriptions/NAME/…")
    wanted = Subscribe(text, f"{NAME_PREFIX}{secrets.token_hex(8)}", lease_ms=desk.limits.stream_lease_ms)
    state = (await desk.ask(principal, wanted)).subscription
    try:
        async with _renewed(desk, principal, state):
            yield await _window(desk, principal, connection, state.queue, size)
    finally:
        # Also for a principal that has been revoked since: its subscription must not stay.
        await asyncio.shield(desk.service.execute(in_namespace(principal, Unsubscribe(state.name))))


@asynccontextmanager
async def _renewed(desk: ApiContext, principal: Principal, state: SubscriptionState) -> AsyncIterator[None]:
    """While this lasts, a subscription that is temporary does not end."""
    if not state.is_temporary:
        yield
        return
    renewing = asyncio.create_task(_renew(desk, in_namespace(principal, RenewSubscription(state.name)), state.lease_ms))
    try:
        yield
    finally:
        renewing.cancel()


async def _renew(desk: ApiContext, request: Request, lease_ms: int) -> None:
    while True:
        await desk.service.execute(request)
        await asyncio.sleep(lease_ms / SECOND_MS / 3)


async def _window(
    desk: ApiContext, principal: Principal, connection: HTTPConnection, queue: str, size: int
) -> PrefetchWindow:
    config = (await desk.ask(principal, DescribeQueue(queue))).config
    visibility_ms = integer(
        connection.query_params,
        "visibility_ms",
        default=max(config.visibility_ms, VISIBILITY_MS_MIN),
        lowest=VISIBILITY_MS_MIN,
        highest=VISIBILITY_MS_MAX,
    )
    placed = desk.placed(principal, Acknowledge(queue, []))  # whoever may not acknowledge may not receive either
    assert isinstance(placed, Acknowledge)
    return desk.deliveries[StreamDelivery].window(placed.queue, principal, size=size, visibility_ms=visibility_ms)
