"""Ids and handles."""

from __future__ import annotations

import base64
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.protocol.queues import Receipt
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.handles import Handles, sequence_number

SEALS = Handles(b"salt")
NUMBERS = st.integers(0, 2**63)


@given(NUMBERS, NUMBERS)
def test_a_receipt_handle_stands_for_its_receipt(number: int, lease: int) -> None:
    handle = SEALS.receipt_handle("orders", Receipt(number, lease))
    assert SEALS.receipt("orders", handle) == Receipt(number, lease)
    assert len(handle) == 32


@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_what_was_not_given_out_is_no_handle(handle: str) -> None:
    for read in (lambda text: SEALS.receipt("orders", text), SEALS.task):
        with pytest.raises(SqsError):
            read(handle)


def test_a_handle_is_for_one_queue_of_one_hub() -> None:
    handle = SEALS.receipt_handle("orders", Receipt(7, 9))
    for handles, queue in ((SEALS, "others"), (Handles(b"other"), "orders")):
        with pytest.raises(SqsError) as caught:
            handles.receipt(queue, handle)
        assert caught.value.kind == "ReceiptHandleIsInvalid"


def test_a_changed_handle_is_noticed() -> None:
    raw = bytearray(base64.urlsafe_b64decode(SEALS.receipt_handle("orders", Receipt(7, 9))))
    for place in range(len(raw)):
        changed = bytes(raw[:place]) + bytes([raw[place] ^ 1]) + bytes(raw[place + 1 :])
        with pytest.raises(SqsError):
            SEALS.receipt("orders", base64.urlsafe_b64encode(changed).decode())


def test_a_receipt_handle_is_no_task_handle() -> None:
    with pytest.raises(SqsError):
        SEALS.task(SEALS.receipt_handle("", Receipt(7, 9)))
    assert SEALS.task(SEALS.task_handle(7)) == 7


def test_message_ids_are_uuids_that_depend_on_number_and_hub_alone() -> None:
    ids = [SEALS.message_id(number) for number in range(1000)]
    assert len(set(ids)) == 1000
    for text in ids[:20]:
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)
    assert Handles(b"salt").message_id(5) == ids[5]
    assert Handles(b"other").message_id(5) != ids[5]


@given(st.text("abc-_.", min_size=1))
def test_a_page_token_stands_for_its_name(name: str) -> None:
    assert SEALS.page(SEALS.page_token(name)) == name


@given(st.text(max_size=30))
def test_what_was_not_given_out_is_no_page_token(token: str) -> None:
    with pytest.raises(SqsError) as caught:
        SEALS.page(token)
    assert caught.value.kind == "InvalidParameterValue"


def test_sequence_numbers_have_twenty_digits_and_sort_as_text() -> None:
    numbers = [sequence_number(number) for number in (1, 9, 10, 99, 10**12)]
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {20}
