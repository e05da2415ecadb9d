"""Request and reply: a message in a queue, and a publication that answers it.

    request(queue) ──message with a reply address──► consumer ──reply(message)──► publication ──► temporary subscription

The reply address is a message attribute, so that consumers of SQS see it too. A client has one subscription for all its
replies, made with its first request.
"""

from __future__ import annotations

import secrets
from concurrent.futures import Future
from itertools import count
from typing import TYPE_CHECKING

from lavant.core.errors import InvalidValue
from lavant.core.publications.publication import Publication
from lavant.core.publications.trace_context import (
    Attribute,
    MessageExtras,
    TraceContext,
    decode_extras,
    encode_extras,
    md5_of,
)

if TYPE_CHECKING:
    from lavant.client.consumers.consumer import QueueMessage
    from lavant.client.subscriptions.notification import Notification

ADDRESS = "lavant.reply_to"
"""The message attribute with the reply address: CLIENT.NUMBER."""
TO, NUMBER = "lavant_reply_to", "lavant_request"
"""Attributes of a publication that is a reply."""


class Replies:
    """The replies that a client waits for. Its threads may share one."""

    def __init__(self) -> None:
        self.client = secrets.token_hex(8)
        self._numbers = count(1)
        self._waiting: dict[int, Future[Notification]] = {}

    @property
    def filter(self) -> str:
        return f"{TO} = '{self.client}'"

    def expect(self) -> tuple[int, Future[Notification]]:
        """A new request and its reply."""
        number = next(self._numbers)
        future: Future[Notification] = Future()
        self._waiting[number] = future
        return number, future

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)

    def received(self, reply: Notification) -> None:
        """A reply that nobody waits for any more is dropped."""
        number = reply.attributes.get(NUMBER)
        future = self._waiting.pop(number, None) if isinstance(number, int) else None
        if future is not None:
            future.set_result(reply)

    def attributes(self, number: int, trace: TraceContext) -> bytes:
        """The attributes of the message that asks."""
        given = [(ADDRESS, f"{self.client}.{number}"), *trace.headers().items()]
        attributes = [Attribute(name, "String", value.encode()) for name, value in given]
        return encode_extras(MessageExtras(attributes, md5_of(attributes)))


def reply_to(message: QueueMessage, payload: bytes) -> Publication:
    """The publication that answers a message; raises if it asks for no reply."""
    if not hasattr(message, "delivery"):
        raise InvalidValue(f"reply takes a message that a consumer has received, got {message!r:.40}")
    found = {each.name: each.value for each in decode_extras(message.delivery.attributes).attributes}
    client, _, number = found.get(ADDRESS, b"").decode(errors="replace").rpartition(".")
    if not client or not number.isdecimal() or len(number) > 18:
        raise InvalidValue(f"message {message.number} asks for no reply; it was sent with `send`, not with `request`")
    return Publication(attributes={TO: client, NUMBER: int(number)}, payload=payload)
