"""A connection to RabbitMQ, the server's or a worker's, from when it is made to when it is lost.

    open ──► call, call, … ──► lost: a channel is closed, a consumer is cancelled, the connection is gone ──► close

Nothing comes back by itself: whoever has a wire that is lost closes it, and opens another.

Here alone it is known what aio-pika raises, which is more than it says. When a connection ends between two frames,
calls that wait for an answer get a bare `Exception`. When it was silent for too long, they get a `CancelledError`,
though nobody has cancelled them; whoever took that for the end of itself would be gone for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import TypeVar

from lavant.broker.protocol.amqp_messages import CONTENT_TYPE, QUEUE_ARGUMENTS, locked_out, unreachable
from lavant.core.errors import ConnectionLost
from lavant.core.packages import named_extras

with named_extras():
    import aio_pika
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue
    from aio_pika.connection import make_url
    from aio_pika.exceptions import (
        CONNECTION_EXCEPTIONS,
        AMQPChannelError,
        AuthenticationError,
        ChannelInvalidStateError,
        InvalidFrameError,
        ProbableAuthenticationError,
    )

CALL_S_MAX = 10.0
"""For RabbitMQ to answer or to confirm: it may be short of memory or disk, and hold publishers up."""
HEARTBEAT_S = 10

_T = TypeVar("_T")

for _name in ("aiormq", "aio_pika"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # what they raise is told once, with what to do about it


async def call(awaitable: Awaitable[_T], seconds_max: float = CALL_S_MAX) -> _T:
    """What RabbitMQ answers. Raises `ConnectionLost` if there is no answer, or the channel was closed instead."""
    try:
        async with asyncio.timeout(seconds_max):
            return await awaitable
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionLost("RabbitMQ was silent for too long") from error
    except TimeoutError as error:
        raise ConnectionLost(f"RabbitMQ does not answer within {seconds_max:g} s") from error
    except Exception as error:
        if isinstance(error, ChannelInvalidStateError) or type(error) is Exception:
            raise ConnectionLost("the connection was lost") from error
        if isinstance(error, CONNECTION_EXCEPTIONS):
            raise ConnectionLost(str(error) or type(error).__name__) from error
        raise


class Wire:
    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.lost = asyncio.Event()

    @classmethod
    async def open(cls, url: str, name: str, *, heartbeat_s: int = HEARTBEAT_S) -> Wire:
        """`name` is what RabbitMQ shows. Raises `MissingComponent` or `AccessDenied`."""
        address = make_url(url, heartbeat=heartbeat_s)
        connection = aio_pika.Connection(address, client_properties={"connection_name": name})
        wire = cls(connection)
        try:
            await call(connection.connect())
        except BaseException as error:
            await wire.close()  # aio-pika would do it some time, and complain if no event loop runs then
            raise explained(error, url) from None
        return wire

    async def channel(self, *, confirms: bool = True) -> AbstractChannel:
        """One that is watched. Who publishes is told when nobody has the queue, if RabbitMQ `confirms`."""
        opened = self._connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
        await call(opened.initialize())
        opened.close_callbacks.add(self._set_lost)
        below = await opened.get_underlay_channel()
        below.on_consumer_cancel_callbacks.add(self._set_lost)  # somebody has deleted a queue
        if opened.is_closed:
            raise ConnectionLost("RabbitMQ has closed the channel")
        return opened

    async def close(self) -> None:
        """Whether it is still there or not."""
        with contextlib.suppress(ConnectionLost):
            await call(self._connection.close())

    def _set_lost(self, *_: object) -> None:
        self.lost.set()


async def publish(
    channel: AbstractChannel,
    queue: str,
    body: bytes,
    *,
    message_id: str | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    valid_s: float | None = None,
) -> None:
    """Returns when RabbitMQ has it for good, if it confirms on this channel, else when it is on its way."""
    message = aio_pika.Message(
        body,
        content_type=CONTENT_TYPE,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=message_id,
        correlation_id=correlation_id,
        reply_to=reply_to,
        expiration=valid_s,
    )
    await call(channel.default_exchange.publish(message, queue, mandatory=channel.publisher_confirms))


async def declare(channel: AbstractChannel, name: str) -> AbstractQueue:
    """A queue that outlives RabbitMQ's crash."""
    try:
        return await call(channel.declare_queue(name, durable=True, arguments=dict(QUEUE_ARGUMENTS)))
    except ConnectionLost as error:
        raise ConnectionLost(f"queue {name}: {error}") from error.__cause__


def explained(error: BaseException, url: str) -> BaseException:
    """Why there is no connection: `MissingComponent` or `AccessDenied`. Other errors stay what they are."""
    if not isinstance(error, ConnectionLost):
        return error
    cause = error.__cause__
    if isinstance(cause, AuthenticationError | ProbableAuthenticationError | AMQPChannelError):
        return locked_out(url, str(cause))
    if isinstance(cause, InvalidFrameError):  # it hangs up instead of opening the virtual host
        return locked_out(url, "the virtual host is not there, or not for this user")
    return unreachable(url, error)
