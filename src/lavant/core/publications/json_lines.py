"""Publications as lines of JSON: `{"symbol": "YHOO", "volume": 300, "@id": "7"}`, the payload in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.ids import PublicationId
from lavant.core.publications.batch import PublicationBatch, check_batch
from lavant.core.publications.publication import (
    ID,
    PAYLOAD,
    TIME,
    Publication,
    Rejected,
    check_attributes,
    check_envelope,
)
from lavant.core.seconds import SECOND_MS

CONTENT_LENGTH_MAX = 200
"""The part of a line that an error quotes."""


def from_json_lines(data: bytes | str, *, rejected: list[Rejected] | None = None) -> PublicationBatch:
    """Parses publications from lines of JSON; skips blank lines.

    A line that is not a publication raises `InvalidValue` with its number. If a list `rejected` is given, such lines
    are appended to it with the reason instead.

    >>> refused: list[Rejected] = []
    >>> from_json_lines(b'{"a": 1}\\n{"a": [2]}\\n', rejected=refused)
    PublicationBatch(1 publications, attributes: a)
    >>> refused[0].reason
    "attribute 'a' is of type list; use a string, an integer, a float or a boolean (and `payload` for anything else)"
    """
    if not isinstance(data, bytes | bytearray | str):
        raise InvalidValue(f"from_json_lines takes bytes, such as those of a file, or text, got {data!r:.40}")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate((data.encode() if isinstance(data, str) else data).splitlines()):
        if not line.strip():
            continue
        try:
            rows.append(publication_row(line))
        except InvalidValue as error:
            if rejected is None:
                raise InvalidValue(f"line {number + 1}: {error}") from None
            rejected.append(Rejected(number, line[:CONTENT_LENGTH_MAX].decode(errors="replace"), str(error)))
    return PublicationBatch.from_dicts(rows)


def publication_of(line: bytes) -> Publication:
    """Parses one line.

    >>> publication_of(b'{"a": 1, "@id": "7", "b": null}')
    Publication(attributes={'a': 1}, id='7', time_s=0.0, payload=None, trace=None)
    """
    row = publication_row(line)
    id, time_ms = row.get(ID), row.get(TIME)
    return Publication(
        attributes=dict(_attributes(row)),
        id=PublicationId("" if id is None else id),
        time_s=0.0 if time_ms is None else time_ms / SECOND_MS,
        payload=row.get(PAYLOAD),
    )


def publication_row(text: bytes) -> dict[str, Any]:
    """Parses one publication into the row form of batches, in which null means absent.

    >>> publication_row(b'{"a": 1, "@payload": "eA=="}')
    {'a': 1, '@payload': b'x'}
    """
    row = json_object(text)
    payload = row.get(PAYLOAD)
    if payload is not None:
        row[PAYLOAD] = _decode_payload(payload)
    check_envelope(id=_given(row, ID, ""), time_ms=_given(row, TIME, 0), payload=row.get(PAYLOAD))
    check_attributes(dict(_attributes(row)))
    return row


def json_object(text: bytes) -> dict[str, Any]:
    """Parses a JSON object, whatever is in it."""
    try:
        row = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise InvalidValue(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InvalidValue(f"a publication must be an object, got {type(row).__name__}")
    return row


def to_json_lines(batch: PublicationBatch) -> bytes:
    """Returns one line for each publication."""
    check_batch(batch)
    encode = msgspec.json.encode
    return b"".join(encode(_with_text_payload(row)) + b"\n" for row in batch.to_dicts())


def _given(row: dict[str, Any], name: str, default: object) -> object:
    value = row.get(name)
    return default if value is None else value


def _attributes(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if value is not None and name not in (ID, TIME, PAYLOAD):
            yield name, value


def _decode_payload(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError):
        raise InvalidValue(f"@payload must be base64 text, got {text!r:.60}") from None


def _with_text_payload(row: dict[str, Any]) -> dict[str, Any]:
    payload = row.get(PAYLOAD)
    return row if payload is None else {**row, PAYLOAD: base64.b64encode(payload).decode()}
