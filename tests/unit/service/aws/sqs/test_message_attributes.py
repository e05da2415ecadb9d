"""Message attributes: checks, MD5, and their way through a queue."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lavant.core.publications.trace_context import (
    NOTHING,
    Attribute,
    MessageExtras,
    decode_extras,
    encode_extras,
    md5_of,
)
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.message_attributes import accepted, accepted_trace_header, bytes_of
from lavant.service.aws.sqs.requests import MessageAttributeValue as Value

HELLO = Attribute("Hello", "String", b"There")
GENERAL = Attribute("General", "String", b"Kenobi")
HELP = Attribute("Help.Me", "String", b"Me")
TRACE = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"


@pytest.mark.parametrize(
    ("attributes", "md5"),
    [
        ([HELLO], "a311262e065454b75da111d535b8dacd"),
        ([GENERAL, HELLO], "fca026605781cb4126a1e9044df24232"),
        ([HELLO, HELP], "83fee93c1bcd8b9a5a923ffacdc636c7"),
        ([GENERAL, HELLO, HELP], "4c360f3fdafd970e05fae2f149d997f5"),
        ([Attribute("attr1", "Binary", TRACE)], "8cbe4db156db8a94db8b801b7addb984"),
    ],
)
def test_the_md5_is_the_one_that_the_real_service_gives(attributes: list[Attribute], md5: str) -> None:
    assert md5_of(attributes).hex() == md5


def test_attributes_are_sorted_by_name_before_their_md5_is_taken() -> None:
    sent = accepted({"Help.Me": Value("String", "Me"), "Hello": Value("String", "There")})
    assert sent == [HELLO, HELP]


def test_what_is_kept_with_a_message_comes_back() -> None:
    extras = MessageExtras([HELLO, Attribute("raw", "Binary.jpg", b"\xff\x00")], b"md5", "Root=1", "group")
    assert decode_extras(encode_extras(extras)) == extras


def test_a_message_with_nothing_to_keep_takes_no_room() -> None:
    assert encode_extras(NOTHING) == b""
    assert decode_extras(b"") == NOTHING


@example(b"\x93\xa2\x00\x80")  # text that is no UTF-8
@given(st.binary(max_size=40) | st.recursive(st.integers(0, 9) | st.text(), st.lists).map(msgspec.msgpack.encode))
def test_what_another_protocol_keeps_with_a_message_is_not_ours(data: bytes) -> None:
    assert decode_extras(data) == NOTHING


def test_the_size_counts_names_types_and_values() -> None:
    assert bytes_of([HELLO, Attribute("n", "Number.é", b"12")]) == 5 + 6 + 5 + 1 + 9 + 2


@pytest.mark.parametrize(
    "name", ["", "a" * 257, ".start", "end.", "two..dots", "AWS.x", "amazon.x", "aws.x", "sp ace", "é", "tab\t", "a\n"]
)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(SqsError, match="name") as caught:
        accepted({name: Value("String", "x")})
    assert caught.value.kind == "InvalidParameterValue"


@pytest.mark.parametrize("name", ["a", "a" * 256, "a.b-c_D.9", "awsx", "Amazonian", "-", "_"])
def test_a_good_name_is_accepted(name: str) -> None:
    assert accepted({name: Value("String", "x")}) == [Attribute(name, "String", b"x")]


@pytest.mark.parametrize(
    "value",
    [
        Value("", "x"),
        Value("string", "x"),
        Value("Text", "x"),
        Value("Stringy", "x"),
        Value("String." + "x" * 250, "x"),
        Value("String.\x07", "x"),
        Value("String"),
        Value("String", ""),
        Value("String", None, b"x"),
        Value("String", "x", b"x"),
        Value("Binary"),
        Value("Binary", None, b""),
        Value("Binary", "x"),
        Value("Binary", "x", b"x"),
        Value("Number", "ten"),
        Value("Number", ""),
        Value("Number", "1e127"),
        Value("Number", "1e-129"),
        Value("Number", "1" * 39),
        Value("Number", "NaN"),
        Value("Number", "Infinity"),
        Value("Number", "1_000"),
        Value("Number", "٣"),
    ],
)
def test_a_bad_type_or_value_is_refused(value: Value) -> None:
    with pytest.raises(SqsError, match="a-name") as caught:
        accepted({"a-name": value})
    assert caught.value.kind == "InvalidParameterValue"


@pytest.mark.parametrize(
    "value", ["0", "-0.0", "1", "+1", "1.5", ".5", "5.", "1e126", "1E-128", "9" * 38, "0" * 60, "1" + "0" * 38, " 7 "]
)
def test_a_number_is_kept_as_it_was_written(value: str) -> None:
    assert accepted({"n": Value("Number.int", value)}) == [Attribute("n", "Number.int", value.encode())]


def test_text_that_no_message_may_hold_is_refused_in_attributes_too() -> None:
    with pytest.raises(SqsError) as caught:
        accepted({"a": Value("String", "bell\x07")})
    assert caught.value.kind == "InvalidMessageContents"


def test_list_values_are_reserved() -> None:
    with pytest.raises(SqsError) as caught:
        accepted({"a": Value("String", "x", string_list_values=["x"])})
    assert caught.value.kind == "UnsupportedOperation"
    assert accepted({"a": Value("String", "x", string_list_values=[], binary_list_values=[])})


def test_there_are_at_most_ten() -> None:
    ten = {f"a{number}": Value("String", "x") for number in range(10)}
    assert len(accepted(ten)) == 10
    with pytest.raises(SqsError, match=r"\[11\] exceeds the allowed maximum \[10\]"):
        accepted(ten | {"more": Value("String", "x")})


def test_only_the_trace_header_is_a_system_attribute_of_senders() -> None:
    assert accepted_trace_header({"AWSTraceHeader": Value("String", "Root=1")}) == "Root=1"
    for attributes in (
        {"SenderId": Value("String", "me")},
        {"AWSTraceHeader": Value("Number", "1")},
        {"AWSTraceHeader": Value("String", "")},
        {"AWSTraceHeader": Value("String", "\x01")},
        {"AWSTraceHeader": Value("Binary", None, b"x")},
    ):
        with pytest.raises(SqsError):
            accepted_trace_header(attributes)
