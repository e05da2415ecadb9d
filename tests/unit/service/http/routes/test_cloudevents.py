"""CloudEvents as publications."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from lavant.broker.protocol.queues import Refused
from lavant.broker.subscriptions.parsing import ParsedPublication, accept
from lavant.service.http.routes.cloudevents import of_headers, of_json

EVENT = {"specversion": "1.0", "id": "e1", "source": "/till", "type": "sold"}
HEADERS = {f"ce-{name}": value for name, value in EVENT.items()}


def row_of(publication: bytes | Refused) -> dict[str, Any]:
    assert isinstance(publication, bytes), publication
    [accepted] = accept([publication], ["new"], time_ms=1)
    assert isinstance(accepted, ParsedPublication), accepted
    row: dict[str, Any] = json.loads(publication)
    return row


def of(**fields: Any) -> dict[str, Any]:
    return row_of(of_json(json.dumps({**EVENT, **fields}).encode()))


def payload(row: dict[str, Any]) -> bytes:
    return base64.b64decode(row["@payload"])


def test_what_the_event_says_of_itself_becomes_attributes_id_and_time() -> None:
    row = of(time="1970-01-01T00:00:01.5+00:00", subject="tea", partitionkey="p", sampledrate=3)
    assert row == {
        "source": "/till",
        "type": "sold",
        "subject": "tea",
        "partitionkey": "p",
        "sampledrate": 3,
        "@id": "e1",
        "@time_ms": 1500,
    }


def test_scalar_members_of_the_data_become_attributes_and_nothing_else_is_needed() -> None:
    row = of(data={"price": 3.5, "count": 2, "paid": True, "what": "tea"})
    assert (row["price"], row["count"], row["paid"], row["what"]) == (3.5, 2, True, "tea")
    assert "@payload" not in row


@pytest.mark.parametrize(
    "data",
    [
        {"price": 1, "items": [1, 2]},
        {"price": 1, "buyer": {"name": "Ann"}},
        {"price": 1, "note": None},
        {"price": 1, "type": "another"},
        {"price": 1, "@id": "another"},
        {"price": 1, "": "x"},
    ],
)
def test_data_that_is_not_wholly_in_the_attributes_is_in_the_payload(data: dict[str, Any]) -> None:
    row = of(data=data)
    assert (row["price"], row["type"], row["@id"]) == (1, "sold", "e1")
    assert json.loads(payload(row)) == data


@pytest.mark.parametrize("data", [[1, 2], "text", 7, True])
def test_data_that_is_no_object_is_the_payload(data: Any) -> None:
    assert json.loads(payload(of(data=data))) == data


def test_binary_data_is_the_payload() -> None:
    assert payload(of(data_base64=base64.b64encode(b"\x00\xff").decode())) == b"\x00\xff"


def test_headers_and_body_make_the_same_publication_as_json() -> None:
    headers = {**HEADERS, "ce-subject": "caf%C3%A9", "content-type": "application/json", "accept": "*/*"}
    in_headers = row_of(of_headers(headers, b'{"price": 3}'))
    assert in_headers == of(subject="café", datacontenttype="application/json", data={"price": 3})


@pytest.mark.parametrize(
    ("kind", "body"), [("text/plain", b"hello"), ("application/octet-stream", b"\xff"), ("application/json", b"{nope")]
)
def test_a_body_that_is_not_json_is_the_payload(kind: str, body: bytes) -> None:
    row = row_of(of_headers({**HEADERS, "content-type": kind}, body))
    assert (payload(row), row["datacontenttype"]) == (body, kind)


def test_an_event_without_data_has_no_payload() -> None:
    assert "@payload" not in row_of(of_headers(HEADERS, b""))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"7", "object"),
        (json.dumps({**EVENT, "specversion": "0.3"}).encode(), "specversion"),
        (json.dumps({**EVENT, "id": ""}).encode(), "id"),
        (json.dumps({**EVENT, "source": 3}).encode(), "source"),
        (json.dumps({name: value for name, value in EVENT.items() if name != "type"}).encode(), "type"),
        (json.dumps({**EVENT, "time": "yesterday"}).encode(), "yesterday"),
        (json.dumps({**EVENT, "time": "2026-01-01T00:00:00"}).encode(), "time"),
        (json.dumps({**EVENT, "time": 5}).encode(), "time"),
    ],
)
def test_what_is_no_event_is_refused(event: bytes, said: str) -> None:
    refused = of_json(event)
    assert isinstance(refused, Refused)
    assert said in refused.reason
