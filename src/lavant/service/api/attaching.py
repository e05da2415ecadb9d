"""To which queue a stream is attached: that of a subscription, or one that lives only as long as the stream.

A queue of the second kind has a label. When a server starts, it removes those that a server before it left behind.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import HTTPConnection

from lavant.broker.queues.commands import Acknowledge, Described, DescribeQueue
from lavant.broker.queues.config import VISIBILITY_MS_MAX, QueueConfig
from lavant.broker.serving.broker import Broker
from lavant.broker.subscriptions.commands import Subscribe, Subscribed, Unsubscribe
from lavant.service.api.desk import Desk
from lavant.service.api.faults import bad_request
from lavant.service.api.queries import integer
from lavant.service.api.subscriptions import find
from lavant.service.api.window import Window
from lavant.service.authorization import place
from lavant.service.keys import Principal
from lavant.service.server import Service

EPHEMERAL = "lavant-ephemeral"
"""The label of queues that end with their stream."""
NAME_PREFIX = "stream-"
VISIBILITY_MS_MIN = 1000
"""With less, messages would come again while they are on their way."""


@asynccontextmanager
async def attached(
    desk: Desk, principal: Principal, connection: HTTPConnection, *, prefetch: int
) -> AsyncIterator[Window]:
    """The window on the queue that a request for a stream names; at its end everything in it goes back."""
    name = connection.path_params.get("name")
    size = integer(connection.query_params, "prefetch", default=prefetch, lowest=1, highest=desk.limits.prefetch_max)
    if name is not None:
        queue = (await find(desk, principal, name)).queue
        window = await _window(desk, principal, connection, queue, size)
        try:
            yield window
        finally:
            await asyncio.shield(window.close())
        return
    text = connection.query_params.get("filter")
    if text is None:
        raise bad_request("say in ?filter=… what to send, or name a subscription: /subscriptions/NAME/…")
    wanted = Subscribe(text, f"{NAME_PREFIX}{secrets.token_hex(8)}", config=QueueConfig(labels={EPHEMERAL: "1"}))
    state = (await desk.ask(principal, wanted, Subscribed)).subscription
    try:
        yield await _window(desk, principal, connection, state.queue, size)
    finally:
        # Also for a principal that has been revoked since: its subscription must not stay.
        await asyncio.shield(desk.service.execute(place(principal, Unsubscribe(state.name))))


async def _window(desk: Desk, principal: Principal, connection: HTTPConnection, queue: str, size: int) -> Window:
    config = (await desk.ask(principal, DescribeQueue(queue), Described)).config
    visibility_ms = integer(
        connection.query_params,
        "visibility_ms",
        default=max(config.visibility_ms, VISIBILITY_MS_MIN),
        lowest=VISIBILITY_MS_MIN,
        highest=VISIBILITY_MS_MAX,
    )
    placed = desk.placed(principal, Acknowledge(queue, []))  # whoever may not acknowledge may not receive either
    assert isinstance(placed, Acknowledge)
    return Window(desk.service, placed.queue, principal, size=size, visibility_ms=visibility_ms)


async def remove_ephemeral(broker: Broker, service: Service) -> int:
    """Before the first request: streams of a server before this one are gone."""
    left = [
        each
        for each in broker.subscriptions
        if each.owns_queue and EPHEMERAL in broker.queues.config(each.queue).labels
    ]
    await asyncio.gather(*(service.execute(Unsubscribe(each.name, each.namespace)) for each in left))
    return len(left)
