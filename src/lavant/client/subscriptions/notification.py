"""A notification: a publication as a subscriber receives it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Delivery
from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.publication import ID, PAYLOAD, TIME

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

RETRY_S_FIRST, RETRY_S_MAX = 1.0, 300.0

_ENVELOPE = frozenset((ID, TIME, PAYLOAD))
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Notification:
    """Comes again until it is acknowledged. Only the first `acknowledge` or `retry` counts."""

    __slots__ = ("_is_settled", "_settle", "attempt", "attributes", "id", "payload", "time_ms")

    def __init__(
        self,
        attributes: Mapping[str, AttributeValue],
        *,
        id: str,
        time_ms: int,
        payload: bytes | None,
        attempt: int,
        settle: Callable[[int | None], None],
    ) -> None:
        self.attributes = attributes
        self.id = id
        self.time_ms = time_ms
        self.payload = payload
        self.attempt = attempt
        """The attempt number, from 1."""
        self._settle = settle
        self._is_settled = False

    def acknowledge(self) -> None:
        """Marks it as done: it never comes again. The server is told in the background, in batches."""
        self._settle_once(None)

    def retry(self, after_s: float = 0.0) -> None:
        """Releases it: it comes again after `after_s`, to any consumer."""
        if not 0 <= after_s * SECOND_MS <= VISIBILITY_MS_MAX:
            raise InvalidValue(f"after_s must be between 0 and {VISIBILITY_MS_MAX // SECOND_MS} s, got {after_s}")
        self._settle_once(round(after_s * SECOND_MS))

    def __repr__(self) -> str:
        return f"Notification({dict(self.attributes)!r}, id={self.id!r})"

    def _settle_once(self, retry_ms: int | None) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settle(retry_ms)


def pause_s(attempt: int) -> float:
    """The pause before a failed notification comes again; it doubles with each attempt.

    >>> [pause_s(attempt) for attempt in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 300.0]
    """
    return min(RETRY_S_FIRST * 2.0 ** min(attempt - 1, 20), RETRY_S_MAX)


def notification_of(delivery: Delivery, cipher: Cipher | None, settle: Callable[[int | None], None]) -> Notification:
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
    return Notification(
        attributes,
        id=str(row.get(ID, delivery.receipt.number)),
        time_ms=row.get(TIME, delivery.sent_ms),
        payload=payload,
        attempt=delivery.receive_count,
        settle=settle,
    )
