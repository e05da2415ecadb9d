"""The native protocol on a byte stream: preface, greeting, and the types of frames (`lavant.core.frames`).

    client                                         server
      │  LAVANT1\\n  frame(0, Hello)                  │      the preface distinguishes it from HTTP on this port
      │ ───────────────────────────────────────────► │
      │                              frame(0, Done)  │      or frame(0, Refused), and the server closes
      │ ◄─────────────────────────────────────────── │
      │  frame(1, Send)  frame(2, Receive)  …        │      as many as you like without waiting for answers
      │ ───────────────────────────────────────────► │
      │             frame(2, Received)  frame(1, …)  │      in any order; the number is that of the request
      │ ◄─────────────────────────────────────────── │

    frame = length (u32, big endian, of what follows) | request number (u32, big endian) | MessagePack

Content that is no request is refused like a request. The server sends one frame unasked, with number `FAULT_NUMBER`:
why it closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.registry import ANSWERS, REGISTRY
from lavant.core.errors import UNDECODABLE

PREFACE = b"LAVANT1\n"
LINK_PREFACE = b"LAVANTLINK\n"
"""Of a link between brokers of a federation, on the same port; its first frame says which version it speaks."""
GREETING_NUMBER = 0
FAULT_NUMBER = 0xFFFF_FFFF
NUMBER_MAX = FAULT_NUMBER - 1
NO_REQUEST = "a frame holds no request"
"""How a server refuses content that it cannot read: a field of a wrong type, or a request of a newer version."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first frame of a client, with number 0."""

    token: bytes = b""
    """An API key, if the server requires one."""


_request: Any = reduce(or_, REGISTRY)
_answer: Any = reduce(or_, ANSWERS)
decode_request: Callable[[bytes | memoryview], Request] = msgspec.msgpack.Decoder(_request).decode
_fields: Any = msgspec.msgpack.Decoder(list[Any]).decode
_TAGS = frozenset(each.request.__struct_config__.tag for each in REGISTRY.values())
decode_answer: Callable[[bytes | memoryview], Answer] = msgspec.msgpack.Decoder(_answer).decode
decode_hello = msgspec.msgpack.Decoder(Hello).decode


def unknown_tag(data: bytes | memoryview) -> str | None:
    """The tag of a request that only a newer version of Lavant knows; None if it is known, or no request.

    >>> unknown_tag(msgspec.msgpack.encode(["fly", 1])), unknown_tag(msgspec.msgpack.encode(["publish"]))
    ('fly', None)
    """
    try:
        fields = _fields(data)
    except UNDECODABLE:
        return None
    return fields[0] if fields and isinstance(fields[0], str) and fields[0] not in _TAGS else None
