"""From JSON to publications."""

from __future__ import annotations

import base64
import json
import re

import pytest

from lavant.broker.protocol.queues import Refused
from lavant.broker.subscriptions.parsing import ParsedPublication, accept


def one(text: str | bytes) -> ParsedPublication | Refused:
    data = text if isinstance(text, bytes) else text.encode()
    [result] = accept([data], ["new"], time_ms=5)
    return result


def test_id_and_time_are_given_where_they_are_missing() -> None:
    accepted = one('{"a": 1, "b": "x", "c": null}')
    assert isinstance(accepted, ParsedPublication)
    assert (accepted.id, accepted.scheme, accepted.content) == ("new", "plain", {"a": 1, "b": "x"})
    assert json.loads(accepted.body) == {"a": 1, "b": "x", "@id": "new", "@time_ms": 5}


def test_id_time_and_payload_stay_as_they_came() -> None:
    text = base64.b64encode(b"\0\xff").decode()
    accepted = one(json.dumps({"a": True, "@id": "mine", "@time_ms": 9, "@payload": text}))
    assert isinstance(accepted, ParsedPublication)
    assert accepted.content == {"a": True}
    assert json.loads(accepted.body) == {"a": True, "@id": "mine", "@time_ms": 9, "@payload": text}


def test_an_encrypted_one_shows_its_vector_to_nobody_but_the_matcher() -> None:
    accepted = one('{"@point": [1, 2.5, -3], "@payload": "AAAA"}')
    assert isinstance(accepted, ParsedPublication)
    assert (accepted.scheme, accepted.content) == ("encrypted", [1, 2.5, -3])
    assert json.loads(accepted.body) == {"@id": "new", "@time_ms": 5, "@payload": "AAAA"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "an object in JSON"),
        (b"\xff", "an object in JSON"),
        ("[1]", "an object in JSON"),
        ("[" * 2000, "an object in JSON"),
        ('{"a": [1]}', "of type list"),
        ('{"a": {"b": 1}}', "of type dict"),
        ('{"@b": 1}', "@b"),
        ('{"a": 1e999}', "a"),
        ('{"a": 9007199254740993}', "2\\^53"),
        ('{"@id": 7}', "publication id"),
        ('{"@id": "a\\nb"}', "publication id"),
        ('{"@time_ms": -1}', "time_ms"),
        ('{"@time_ms": "now"}', "time_ms"),
        ('{"@payload": "?"}', "base64"),
        ('{"@payload": 1}', "base64"),
        ('{"@point": "x"}', "@point"),
        ('{"@point": [1]}', "@point"),
        ('{"@point": [1, true]}', "@point"),
        ('{"@point": [0, 0]}', "length"),
        ('{"@point": [1e200, 1]}', "length"),
        ('{"@point": [1e350, 1]}', "out of range"),
        ('{"@point": [NaN, 1]}', "malformed"),
        ('{"@point": [' + "9" * 400 + ", 1]}", "numbers that doubles hold"),
        ('{"@point": [1, 2], "a": 1}', "no attributes"),
        (json.dumps({"a": "x" * 70_000}), "bytes"),
        (json.dumps({"@payload": base64.b64encode(bytes(900_000)).decode()}), "bytes in JSON"),
    ],
)
def test_what_is_no_publication_is_refused_with_the_reason(text: str | bytes, why: str) -> None:
    refused = one(text)
    assert isinstance(refused, Refused)
    assert re.search(why, refused.reason), refused.reason


def test_a_bad_one_does_not_take_the_others_with_it() -> None:
    results = accept([b'{"a": 1}', b"x", b'{"a": 2}'], ["1", "2", "3"], 0)
    assert [each.id if isinstance(each, ParsedPublication) else each.code for each in results] == [
        "1",
        "InvalidValue",
        "3",
    ]
