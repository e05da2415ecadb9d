"""Parses publications: each is validated and given an id and a time, or refused with a reason."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from lavant.broker.matching.encrypted.values import DIMENSIONS_MAX, EncryptedBatch
from lavant.broker.protocol.queue_config import MESSAGE_BYTES_MAX
from lavant.broker.protocol.queues import Refused
from lavant.broker.queues.validation import refusal
from lavant.core.errors import UNDECODABLE, InvalidValue, LimitExceeded
from lavant.core.publications.columns import ENVELOPE
from lavant.core.publications.publication import ID, PAYLOAD, POINT, TIME, check_attributes, check_envelope
from lavant.core.publications.trace_context import TRACEPARENT, TRACESTATE, of_row

PLAIN, ENCRYPTED = "plain", "encrypted"
_BESIDE = frozenset((*ENVELOPE, TRACEPARENT, TRACESTATE))
"""Names that are no attributes."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class ParsedPublication(msgspec.Struct, frozen=True, gc=False):
    """A publication ready to be matched."""

    id: str
    scheme: str
    content: Any
    """Attributes by name, or the vector of an encrypted one."""
    body: bytes
    """As delivered to subscribers: the publication in JSON, with its id and time."""


def accept(publications: Iterable[bytes], ids: Iterable[str], time_ms: int) -> list[ParsedPublication | Refused]:
    """Parse publications, in order. Those without an id get one of `ids`, those without a time get `time_ms`.

    >>> [accepted] = accept([b'{"symbol": "IBM", "price": 121.5}'], ["7-1"], time_ms=5)
    >>> accepted.id, accepted.content, accepted.body
    ('7-1', {'symbol': 'IBM', 'price': 121.5}, b'{"symbol":"IBM","price":121.5,"@id":"7-1","@time_ms":5}')
    """
    return [_accept(data, id, time_ms) for data, id in zip(publications, ids, strict=False)]


def accept_relayed(body: bytes, point: bytes | None) -> ParsedPublication | Refused:
    """Parse a publication as another broker has accepted it; `point` is the vector of an encrypted one, in doubles."""
    try:
        row = _object(body)
        id = str(row.get(ID))
        if point is not None:
            vector = np.frombuffer(point, "<f8")
            EncryptedBatch(vector[np.newaxis])  # raises if its length is out of bounds
            return ParsedPublication(id, ENCRYPTED, vector.tolist(), body)
        attributes = {name: value for name, value in row.items() if name not in _BESIDE}
        check_attributes(attributes)
        return ParsedPublication(id, PLAIN, attributes, body)
    except (InvalidValue, ValueError) as error:
        return Refused("InvalidValue", str(error))


def _accept(data: bytes, id: str, time_ms: int) -> ParsedPublication | Refused:
    try:
        row = _object(data)
        return _accept_encrypted(row, id, time_ms) if POINT in row else _accept_plain(row, id, time_ms)
    except InvalidValue as error:
        return refusal(error)


def _accept_plain(row: dict[str, Any], id: str, time_ms: int) -> ParsedPublication:
    attributes = {name: value for name, value in row.items() if value is not None and name not in _BESIDE}
    check_attributes(attributes)
    envelope = _envelope(row, id, time_ms)
    return ParsedPublication(envelope[ID], PLAIN, attributes, _body({**attributes, **envelope}))


def _accept_encrypted(row: dict[str, Any], id: str, time_ms: int) -> ParsedPublication:
    point = row.pop(POINT)
    others = [name for name in row if name not in _BESIDE]
    if others:
        raise InvalidValue(f"an encrypted publication has no attributes beside its {POINT}, got {others[0]!r}")
    if not isinstance(point, list) or not 2 <= len(point) <= DIMENSIONS_MAX:
        raise InvalidValue(f"{POINT} must be a list of between 2 and {DIMENSIONS_MAX} numbers, got {point!r:.80}")
    if not all(isinstance(value, float | int) and not isinstance(value, bool) for value in point):
        raise InvalidValue(f"{POINT} must be a list of numbers, got {point!r:.80}")
    try:
        vector = np.array([point], np.float64)
    except OverflowError:
        raise InvalidValue(f"{POINT} must be a list of numbers that doubles hold, got {point!r:.80}") from None
    EncryptedBatch(vector)  # raises if its length is out of bounds
    envelope = _envelope(row, id, time_ms)
    return ParsedPublication(envelope[ID], ENCRYPTED, point, _body(envelope))


def _object(data: bytes) -> dict[str, Any]:
    try:
        row = _decode(data)
    except UNDECODABLE as error:
        raise InvalidValue(f"a publication is an object in JSON, got {data[:60]!r}: {error}") from None
    if not isinstance(row, dict):
        raise InvalidValue(f"a publication is an object in JSON, got {data[:60]!r}")
    return row


def _envelope(row: dict[str, Any], id: str, time_ms: int) -> dict[str, Any]:
    """Its own id and time, if it has them; the payload is kept as text."""
    given, payload = row.get(ID), row.get(PAYLOAD)
    time = row.get(TIME)
    envelope = {ID: id if given is None or given == "" else given, TIME: time_ms if time is None else time}
    check_envelope(id=envelope[ID], time_ms=envelope[TIME], payload=None)
    if payload is not None:
        check_envelope(id="", time_ms=0, payload=_bytes_of(payload))
        envelope[PAYLOAD] = payload
    if TRACEPARENT in row:
        envelope |= of_row(row).row()
    return envelope


def _bytes_of(payload: object) -> bytes:
    if not isinstance(payload, str):
        raise InvalidValue(f"{PAYLOAD} must be base64 text, got {payload!r:.60}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidValue(f"{PAYLOAD} must be base64 text, got {payload!r:.60}") from None


def _body(row: dict[str, Any]) -> bytes:
    body = _encode(row)
    if len(body) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(
            f"a publication has {len(body)} bytes in JSON, at most {MESSAGE_BYTES_MAX} are allowed; store the "
            "content elsewhere and publish its location"
        )
    return body
