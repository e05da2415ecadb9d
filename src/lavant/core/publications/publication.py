"""Publications and advertisements as values."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import AdvertisementId, PublisherId
from lavant.core.publications.attributes import ATTRIBUTES_MAX, AttributeValue, check_known_name, check_value
from lavant.core.publications.trace_context import TraceContext
from lavant.core.seconds import SECOND_MS, SecondsValue

ID, TIME, PAYLOAD, POINT = "@id", "@time_ms", "@payload", "@point"
"""Names beside attributes, in JSON and in columns; an encrypted publication has a point instead of attributes."""
PAYLOAD_BYTES_MAX = 1024 * 1024
PUBLICATION_ID_LENGTH_MAX = 128
TIME_MS_MAX = 2**63 - 1
TIME_S_MAX = TIME_MS_MAX / SECOND_MS
"""Latest times; up to 285,000 years, a double holds each millisecond."""


class Publication(SecondsValue, frozen=True):
    """One event: attributes, which filters compare, and a payload, which they ignore.

    >>> Publication(id="1", time_s=1794895409.048, attributes={"symbol": "YHOO", "volume": 203400}).attributes["volume"]
    203400
    """

    attributes: dict[str, AttributeValue]
    id: str = ""
    time_s: float = 0.0
    """When it happened, in seconds since 1970; if it is 0, the server sets the time of its arrival."""
    payload: bytes | None = None
    trace: TraceContext | None = None
    """The trace that it belongs to; that of the current span by default."""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)
        check_envelope(id=self.id, time_ms=0, payload=self.payload)
        time_s = self.time_s
        if isinstance(time_s, bool) or not isinstance(time_s, int | float) or not 0 <= time_s <= TIME_S_MAX:
            raise InvalidValue(f"time_s must be seconds since 1970 as a number, got {time_s!r:.60}")
        if self.trace is not None and not isinstance(self.trace, TraceContext):
            raise InvalidValue(f"trace must be a lavant.TraceContext, as messages have, got {self.trace!r:.40}")


def time_ms_of(publication: Publication) -> int:
    """The time of a publication as it is sent and stored: exact, as far as a float is, for every time of a row.

    >>> time_ms_of(Publication(attributes={}, time_s=1_000_000_000_000_001 / 1000))
    1000000000000001
    """
    whole = int(publication.time_s)
    return min(whole * SECOND_MS + round((publication.time_s - whole) * SECOND_MS), TIME_MS_MAX)


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """An announcement: a filter that all future publications of a publisher will match."""

    id: AdvertisementId
    filter: str
    publisher: PublisherId


class Rejected(NamedTuple):
    """A publication that was refused: its position in the input, its content, and the reason."""

    row: int
    content: str
    reason: str


def check_attributes(attributes: object) -> None:
    """Raises unless these are valid attributes of one publication."""
    if not isinstance(attributes, dict):
        raise InvalidValue(f"a publication must be an object of attributes, got {type(attributes).__name__}")
    if len(attributes) > ATTRIBUTES_MAX:
        raise LimitExceeded(
            f"a publication has {len(attributes)} attributes, at most {ATTRIBUTES_MAX} are allowed; use the payload"
        )
    for name, value in attributes.items():
        check_value(check_known_name(name), value)


def check_envelope(*, id: object, time_ms: object, payload: object) -> None:
    """Raises unless these are a valid id, time and payload of one publication."""
    if not isinstance(id, str) or len(id) > PUBLICATION_ID_LENGTH_MAX or not (id.isprintable()):
        raise InvalidValue(
            f"a publication id must be a printable string of at most {PUBLICATION_ID_LENGTH_MAX} characters, "
            f"got {id!r:.160}"
        )
    if not isinstance(time_ms, int) or isinstance(time_ms, bool) or not 0 <= time_ms <= TIME_MS_MAX:
        raise InvalidValue(f"time_ms must be milliseconds since 1970 as an integer, got {time_ms!r:.60}")
    if payload is None:
        return
    if not isinstance(payload, bytes):
        raise InvalidValue(f"a payload must be bytes, got {type(payload).__name__}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LimitExceeded(f"a payload has {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")
