"""CloudEvents 1.0 as publications, in the three forms of their HTTP binding.

| of the event | in the publication |
| --- | --- |
| `id` | `@id` |
| `time` | `@time_ms` |
| `source`, `type`, `subject`, `dataschema`, `datacontenttype`, extensions | attributes of the same names |
| `data`, an object in JSON | its members that are strings, numbers or booleans: attributes of the same names |
| `data` of other kinds, `data_base64` | `@payload` |

`@payload` also has the whole object if not all of it is in the attributes: if a member is an object, a list or null, or
has the name of an attribute of the event itself, which takes precedence. So subscribers get all data, and filters see
all that they can compare.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import msgspec

from lavant.broker.protocol.queues import Refused
from lavant.broker.queues.validation import refusal
from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.publications.publication import ID, PAYLOAD, TIME
from lavant.core.publications.trace_context import trace_context

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
HEADER_PREFIX = "ce-"
VERSION = "1.0"

_REQUIRED = ("id", "source", "type")
_ENVELOPE = ("specversion", "id", "time", "data", "data_base64")

_encode = msgspec.json.Encoder().encode


def of_json(event: msgspec.Raw | bytes) -> bytes | Refused:
    """Converts an event in structured form.

    >>> of_json(b'{"specversion": "1.0", "id": "7", "source": "/till", "type": "sold", "data": {"price": 3}}')
    b'{"source":"/till","type":"sold","price":3,"@id":"7"}'
    """
    try:
        fields = msgspec.json.decode(event)
    except UNDECODABLE as error:
        return refusal(InvalidValue(f"an event must be a JSON object: {error}"))
    if not isinstance(fields, dict):
        return refusal(InvalidValue(f"an event must be a JSON object, got {bytes(event)[:60]!r}"))
    return _publication(fields)


def of_headers(headers: Mapping[str, str], body: bytes) -> bytes | Refused:
    """Converts an event in binary form: attributes in headers, data in the body."""
    fields: dict[str, Any] = {
        name[len(HEADER_PREFIX) :]: unquote(value) for name, value in headers.items() if name.startswith(HEADER_PREFIX)
    }
    kind = headers.get("content-type", "")
    if kind:
        fields["datacontenttype"] = kind
    if body:
        data = _json_or_none(body) if _is_json(kind) else None
        if data is None:
            fields["data_base64"] = base64.b64encode(body).decode()
        else:
            fields["data"] = data
    return _publication(fields)


def _publication(fields: dict[str, Any]) -> bytes | Refused:
    try:
        return _encode(_row(fields))
    except InvalidValue as error:
        return refusal(error)


def _row(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("specversion") != VERSION:
        raise InvalidValue(f"specversion must be {VERSION!r}, got {fields.get('specversion')!r:.40}")
    for name in _REQUIRED:
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise InvalidValue(f"an event needs {', '.join(_REQUIRED)}; {name} is missing or not a string")
    row = {name: value for name, value in fields.items() if name not in _ENVELOPE and value is not None}
    envelope: dict[str, Any] = {ID: fields["id"]}
    if fields.get("time") is not None:
        envelope[TIME] = _milliseconds(fields["time"])
    envelope |= trace_context(fields.get("traceparent"), fields.get("tracestate", "")).row()
    data = fields.get("data")
    if isinstance(data, dict):
        members = {name: value for name, value in data.items() if name not in row and _is_attribute(name, value)}
        row |= members
        if len(members) < len(data):
            envelope[PAYLOAD] = base64.b64encode(_encode(data)).decode()
    elif data is not None:
        envelope[PAYLOAD] = base64.b64encode(_encode(data)).decode()
    elif fields.get("data_base64") is not None:
        envelope[PAYLOAD] = fields["data_base64"]
    return row | envelope


def _is_attribute(name: str, value: object) -> bool:
    return isinstance(value, str | int | float | bool) and not name.startswith("@") and name != ""


def _milliseconds(time: object) -> int:
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidValue(f"an event's time must look like 2026-02-28T09:30:00Z, got {time!r:.60}")
    return round(moment.timestamp() * 1000)


def _is_json(kind: str) -> bool:
    media = kind.partition(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json")


def _json_or_none(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except UNDECODABLE:
        return None
