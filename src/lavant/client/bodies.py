"""Bodies of messages, payloads and inputs: bytes, text, or JSON."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from lavant.core.errors import UNDECODABLE, InvalidValue

Body: TypeAlias = "bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]"
"""Bytes are sent as they are, text as UTF-8, dicts and lists as JSON."""


def body_bytes(body: Body, what: str = "a message's body") -> bytes:
    """The bytes that are sent.

    >>> body_bytes("größer"), body_bytes({"a": 1})
    (b'gr\\xc3\\xb6\\xc3\\x9fer', b'{"a":1}')
    >>> body_bytes(5)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: a message's body must be bytes, text, or a dict or list (sent as JSON), got 5
    """
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return utf8(body, what)
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if not isinstance(body, dict | list):
        raise InvalidValue(f"{what} must be bytes, text, or a dict or list (sent as JSON), got {body!r:.80}")
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidValue(f"{what} cannot be sent as JSON: {error}; convert it, or send bytes") from None


def utf8(text: str, what: str) -> bytes:
    """The text in UTF-8; raises `InvalidValue` if it has half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} is no text that UTF-8 can hold: {error}; got {text!r:.80}") from None


def text_of(body: bytes) -> str:
    """The body as text; raises `InvalidValue` if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(f"the body is not text in UTF-8 ({error}); use its bytes: {body[:40]!r}") from None


def json_of(body: bytes, type: Any = Any) -> Any:
    """The body decoded from JSON, as a value of `type`; raises `InvalidValue` if it is none."""
    try:
        return msgspec.json.decode(body, type=type)
    except UNDECODABLE as error:
        raise InvalidValue(f"the body is not the JSON that was asked for: {error}; it is {body[:80]!r}") from None
