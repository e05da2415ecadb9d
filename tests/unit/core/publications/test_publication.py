"""Publications and subscriptions refuse what could not be carried on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import PublicationId
from lavant.core.publications.attributes import ATTRIBUTES_MAX
from lavant.core.publications.publication import (
    PAYLOAD_BYTES_MAX,
    PUBLICATION_ID_LENGTH_MAX,
    TIME_S_MAX,
    Publication,
    check_attributes,
)


def publication(**fields: Any) -> Publication:
    return Publication(**{"attributes": {}, **fields})


def test_a_publication_needs_nothing_but_attributes() -> None:
    assert publication(attributes={"a": 1}) == Publication(
        attributes={"a": 1}, id=PublicationId(""), time_s=0, payload=None
    )


def test_a_publication_at_every_limit_is_accepted() -> None:
    publication(
        attributes={f"a{i}": i for i in range(ATTRIBUTES_MAX)},
        id="é" * PUBLICATION_ID_LENGTH_MAX,
        time_s=TIME_S_MAX,
        payload=bytes(PAYLOAD_BYTES_MAX),
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attributes": [1]}, "a publication must be an object of attributes, got list"),
        ({"attributes": {"@x": 1}}, "attribute name '@x' starts with '@'"),
        ({"attributes": {"a": None}}, "attribute 'a' is of type NoneType"),
        ({"id": 7}, "a publication id must be a printable string of at most 128 characters, got 7"),
        ({"id": "a\n"}, "a publication id must be a printable string"),
        ({"id": "x" * 129}, "at most 128 characters, got 'xxx"),
        ({"time_s": -1}, "time_s must be seconds since 1970 as a number, got -1"),
        ({"time_s": float("nan")}, "got nan"),
        ({"time_s": "1"}, "time_s must be seconds since 1970 as a number, got '1'"),
        ({"time_s": True}, "got True"),
        ({"time_s": 2 * TIME_S_MAX}, "got 1.84467"),
        ({"payload": "text"}, "a payload must be bytes, got str"),
    ],
)
def test_a_refused_publication_says_why(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        publication(**fields)
    assert message in str(refused.value)


def test_one_attribute_too_many_is_over_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="has 257 attributes, at most 256 are allowed; use the payload"):
        check_attributes({f"a{i}": i for i in range(ATTRIBUTES_MAX + 1)})


def test_one_byte_of_payload_too_many_is_over_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="a payload has 1048577 bytes, at most 1048576 are allowed"):
        publication(payload=bytes(PAYLOAD_BYTES_MAX + 1))


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        publication().id = PublicationId("other")  # type: ignore[misc]


def test_a_publication_survives_the_wire() -> None:
    sent = publication(attributes={"a": 1, "b": 1.0, "c": True, "d": "x"}, id="7", time_s=0.005, payload=b"\0\xff")
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Publication)
    assert received == sent
    assert [type(value) for value in received.attributes.values()] == [int, float, bool, str]


def test_the_wire_refuses_what_the_constructor_refuses() -> None:
    bad = msgspec.msgpack.encode({"attributes": {"@a": 1}})
    with pytest.raises(msgspec.ValidationError, match="starts with '@'"):
        msgspec.msgpack.decode(bad, type=Publication)
