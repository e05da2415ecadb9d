"""The records of a publisher's journal: publications, and which of them are settled.

1 | ticket | publication           received
2 | ticket | ticket | …            settled: published, or refused for good
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import msgspec

from lavant.core.errors import UNDECODABLE, CorruptJournal
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.publication import Publication, time_ms_of
from lavant.core.publications.trace_context import TraceContext
from lavant.core.seconds import SECOND_MS

_RECEIVED = 1
_SETTLED = 2
_HEAD = struct.Struct("<BQ")
HEAD_BYTES = _HEAD.size
TICKETS_MAX = 8192
"""Tickets in one record of settled publications; more take several records."""


class StoredPublication(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A publication in a record. The names of its fields are a format of the journal."""

    attributes: dict[str, AttributeValue]
    id: str = ""
    time_ms: int = 0
    payload: bytes | None = None
    trace: TraceContext | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredPublication)


def encode_publication(publication: Publication) -> bytes:
    return _encoder.encode(
        StoredPublication(
            attributes=publication.attributes,
            id=publication.id,
            time_ms=time_ms_of(publication),
            payload=publication.payload,
            trace=publication.trace,
        )
    )


def encode_received(ticket: int, encoded: bytes) -> bytes:
    """The record of an encoded publication."""
    return _HEAD.pack(_RECEIVED, ticket) + encoded


def encode_settled(tickets: Sequence[int]) -> list[bytes]:
    parts = (tickets[first : first + TICKETS_MAX] for first in range(0, len(tickets), TICKETS_MAX))
    return [struct.pack(f"<B{len(part)}Q", _SETTLED, *part) for part in parts]


def replay(records: Iterable[bytes]) -> tuple[dict[int, Publication], int]:
    """Returns the publications that are not settled, in order, and the highest ticket.

    >>> one, two = (encode_publication(Publication(attributes={"n": n})) for n in (1, 2))
    >>> replay([encode_received(1, one), encode_received(2, two), *encode_settled([1])])
    ({2: Publication(attributes={'n': 2}, id='', time_s=0.0, payload=None, trace=None)}, 2)
    """
    unpublished: dict[int, Publication] = {}
    last = 0
    for record in records:
        kind = record[0] if record else 0
        if kind == _RECEIVED:
            _, ticket = _HEAD.unpack_from(record)
            unpublished[ticket] = _decode(record)
            last = max(last, ticket)
        elif kind == _SETTLED and len(record) % 8 == 1:
            tickets = struct.unpack_from(f"<{len(record) // 8}Q", record, 1)
            for ticket in tickets:
                unpublished.pop(ticket, None)
            last = max(last, *tickets)
        else:
            raise CorruptJournal(
                f"a record begins with {kind}, which no publisher writes; "
                "the directory belongs to something else, or to a later version"
            )
    return unpublished, last


def _decode(record: bytes) -> Publication:
    try:
        stored = _decoder.decode(memoryview(record)[_HEAD.size :])
        return Publication(
            attributes=stored.attributes,
            id=stored.id,
            time_s=stored.time_ms / SECOND_MS,
            payload=stored.payload,
            trace=stored.trace,
        )
    except (*UNDECODABLE, ValueError) as error:
        raise CorruptJournal(f"a record is no publication: {error}; restore the directory from a copy") from None
