"""A notification: a publication as a subscriber receives it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from lavant.broker.protocol.queues import Delivery
from lavant.client.bodies import json_of, text_of
from lavant.client.consumers.item import ReceivedItem, Settle
from lavant.core.errors import UNDECODABLE
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.publication import ID, PAYLOAD, TIME
from lavant.core.publications.trace_context import (
    NO_TRACE,
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
    of_message,
    of_row,
)
from lavant.core.seconds import SECOND_MS, warn_of_milliseconds

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

_ENVELOPE = frozenset((ID, TIME, PAYLOAD, TRACEPARENT, TRACESTATE))
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Notification(ReceivedItem):
    """A publication that matched a subscription."""

    __slots__ = ("attributes", "id", "payload", "time_s")

    def __init__(
        self,
        attributes: Mapping[str, AttributeValue],
        *,
        id: str,
        time_s: float,
        payload: bytes | None,
        attempt: int,
        settle: Settle,
        trace: TraceContext = NO_TRACE,
    ) -> None:
        super().__init__(attempt, settle, trace)
        self.attributes = attributes
        self.id = id
        self.time_s = time_s
        """When it was published, in seconds since 1970."""
        self.payload = payload

    if not TYPE_CHECKING:

        @property
        def time_ms(self) -> int:
            warn_of_milliseconds("time_ms", "time_s", stacklevel=2)
            return round(self.time_s * SECOND_MS)

    def text(self) -> str:
        """The payload as text; empty without one."""
        return "" if self.payload is None else text_of(self.payload)

    def json(self, type: Any = Any) -> Any:
        """The payload decoded from JSON, as a value of `type`; None without one."""
        return None if self.payload is None else json_of(self.payload, type)

    def __repr__(self) -> str:
        return f"Notification({dict(self.attributes)!r}, id={self.id!r})"


def notification_of(delivery: Delivery, cipher: Cipher | None, settle: Settle) -> Notification:
    """Decodes a delivery. Raises `InvalidValue` if it is encrypted with another key.

    A queue may also hold messages that are not publications: they are all payload.
    """
    try:
        row = _decode(delivery.body)
        payload = base64.b64decode(row[PAYLOAD], validate=True) if PAYLOAD in row else None
    except (*UNDECODABLE, binascii.Error, TypeError, ValueError):
        row, payload = {}, delivery.body
    attributes = {name: value for name, value in row.items() if name not in _ENVELOPE}
    if cipher is not None and payload is not None:
        attributes, payload = cipher.open(payload)
    time_ms = row.get(TIME)
    return Notification(
        attributes,
        id=str(row.get(ID, delivery.receipt.number)),
        time_s=(time_ms if isinstance(time_ms, int) else delivery.sent_ms) / SECOND_MS,
        payload=payload,
        attempt=delivery.receive_count,
        settle=settle,
        trace=of_row(row) if TRACEPARENT in row else of_message(delivery.attributes),
    )
