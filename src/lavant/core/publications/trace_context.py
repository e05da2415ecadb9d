"""Trace context (W3C): `traceparent` and `tracestate`, with publications and with the messages of queues.

A publication has them as `@traceparent` and `@tracestate` beside its id, a message as message attributes, which SQS's
consumers see too. Nothing here knows a tracing library: the values are carried as they came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import md5
from typing import Any, NamedTuple

import msgspec

from lavant.core.errors import UNDECODABLE

TRACEPARENT, TRACESTATE = "@traceparent", "@tracestate"
"""Names beside the attributes of a publication."""
STATE_CHARACTERS_MAX = 512
_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{0,100})?")
_MARK = TRACEPARENT.encode()


class TraceContext(NamedTuple):
    """Both headers; empty without a trace."""

    parent: str = ""
    state: str = ""

    def headers(self) -> dict[str, str]:
        """As HTTP headers.

        >>> TraceContext().headers()
        {}
        """
        if not self.parent:
            return {}
        return {"traceparent": self.parent} | ({"tracestate": self.state} if self.state else {})

    def row(self) -> dict[str, str]:
        """As members of a publication in JSON."""
        return {f"@{name}": value for name, value in self.headers().items()}


NO_TRACE = TraceContext()


def trace_context(parent: object, state: object = "") -> TraceContext:
    """The context in these values; none if they are invalid, which must not fail a request (W3C Trace Context, 3.3).

    >>> trace_context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 5).state
    ''
    >>> trace_context("00-0-0-01")
    TraceContext(parent='', state='')
    """
    if not isinstance(parent, str) or _PARENT.fullmatch(parent) is None or parent.startswith("ff"):
        return NO_TRACE
    is_known = isinstance(state, str) and len(state) <= STATE_CHARACTERS_MAX and state.isascii() and state.isprintable()
    return TraceContext(parent, str(state) if is_known else "")


def of_headers(headers: Mapping[str, str]) -> TraceContext:
    """The context in HTTP headers."""
    parent = headers.get("traceparent", "")
    return trace_context(parent, headers.get("tracestate", "")) if parent else NO_TRACE


def of_publication(body: bytes) -> TraceContext:
    """The context of a publication in JSON; it is decoded only if it has one."""
    if _MARK not in body:
        return NO_TRACE
    try:
        row = msgspec.json.decode(body)
    except UNDECODABLE:
        return NO_TRACE
    return of_row(row) if isinstance(row, dict) else NO_TRACE


def of_row(row: Mapping[str, Any]) -> TraceContext:
    parent = row.get(TRACEPARENT)
    return NO_TRACE if parent is None else trace_context(parent, row.get(TRACESTATE, ""))


# ── message attributes ────────────────────────────────────────────────────────────────────────────────────────────────


class Attribute(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attribute of a message of a queue, as SQS has them."""

    name: str
    type: str
    value: bytes
    """Text is in UTF-8."""

    @property
    def is_binary(self) -> bool:
        return self.type.startswith("Binary")


class MessageExtras(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sqs"):
    """The data that SQS keeps with a message. The tag tells it from data of other protocols."""

    attributes: list[Attribute]
    md5: bytes
    """Over all attributes."""
    trace_header: str = ""
    group: str = ""
    """The message group in a standard queue; in FIFO queues the broker keeps it."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(MessageExtras).decode
NOTHING = MessageExtras([], b"")


def encode_extras(extras: MessageExtras) -> bytes:
    """Encodes the data; empty for most messages."""
    return b"" if extras == NOTHING else _encode(extras)


def decode_extras(data: bytes) -> MessageExtras:
    """Decodes the data of a message; empty if another protocol has sent it."""
    if not data:
        return NOTHING
    try:
        return _decode(data)
    except UNDECODABLE:
        return NOTHING


def md5_of(attributes: list[Attribute]) -> bytes:
    """Computes the MD5 that SDKs compare over sent or received attributes.

    >>> md5_of([Attribute("Foo", "String", b"Bar")]).hex()
    'ae7155c6026991b6d54b11589678bf9c'
    """
    hashing = md5(usedforsecurity=False)
    for attribute in attributes:
        name, type_, value = attribute.name.encode(), attribute.type.encode(), attribute.value
        hashing.update(len(name).to_bytes(4, "big") + name + len(type_).to_bytes(4, "big") + type_)
        hashing.update(b"\x02" if attribute.is_binary else b"\x01")
        hashing.update(len(value).to_bytes(4, "big") + value)
    return hashing.digest()


def of_message(attributes: bytes) -> TraceContext:
    """The context in the attributes of a message.

    >>> context = trace_context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    >>> of_message(as_attributes(context)) == context, of_message(b"")
    (True, TraceContext(parent='', state=''))
    """
    if not attributes:
        return NO_TRACE
    found = {each.name: each.value for each in decode_extras(attributes).attributes}
    parent = found.get("traceparent", b"").decode(errors="replace")
    return trace_context(parent, found.get("tracestate", b"").decode(errors="replace"))


def as_attributes(context: TraceContext) -> bytes:
    """The attributes of a message with this context; empty without one."""
    if not context.parent:
        return b""
    attributes = [Attribute(name, "String", value.encode()) for name, value in context.headers().items()]
    return encode_extras(MessageExtras(attributes, md5_of(attributes)))
