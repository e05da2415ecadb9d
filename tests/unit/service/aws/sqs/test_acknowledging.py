"""DeleteMessage, ChangeMessageVisibility and their batches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.service.aws.sqs.talking import FIFO_URL, QUEUE_URL, Script, ask, described

from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Receipt,
    Refused,
    VisibilityChange,
    VisibilityChanged,
)
from lavant.service.aws.sqs.handles import Handles

SEALS = Handles(b"salt")
STALE = Refused("StaleReceipt", "somebody else has it")
GONE = Refused("NotInFlight", "nobody has it")


def handle(number: int, queue: str = "orders") -> str:
    return SEALS.receipt_handle(queue, Receipt(number, number + 100))


def receipt(number: int) -> Receipt:
    return Receipt(number, number + 100)


def entries(*handles: str, **members: Any) -> list[dict[str, Any]]:
    return [{"Id": f"e{place}", "ReceiptHandle": each, **members} for place, each in enumerate(handles)]


def test_a_message_is_deleted_with_its_receipt() -> None:
    broker = Script(Acknowledged({}))
    response = ask(broker, "DeleteMessage", QueueUrl=QUEUE_URL, ReceiptHandle=handle(7))
    assert (response.status, response.body) == (200, b"")
    assert broker.asked == [Acknowledge("orders", [receipt(7)])]


@pytest.mark.parametrize("action", ["DeleteMessage", "ChangeMessageVisibility"])
@pytest.mark.parametrize("bad", ["", "nonsense", "é", handle(7, "others"), handle(7)[:-4]])
def test_a_handle_that_was_not_given_out_is_invalid(action: str, bad: str) -> None:
    response = ask(Script(), action, QueueUrl=QUEUE_URL, ReceiptHandle=bad, VisibilityTimeout=0)
    assert (response.status, response.code) == (404, "ReceiptHandleIsInvalid")


def test_a_stale_receipt_deletes_nothing_and_only_a_fifo_queue_complains() -> None:
    assert (
        ask(Script(Acknowledged({0: STALE})), "DeleteMessage", QueueUrl=QUEUE_URL, ReceiptHandle=handle(7)).status
        == 200
    )
    response = ask(
        Script(Acknowledged({0: STALE})), "DeleteMessage", QueueUrl=FIFO_URL, ReceiptHandle=handle(7, "orders.fifo")
    )
    assert response.code == "InvalidParameterValue"
    assert "The receipt handle has expired" in response.json["message"]


def test_a_batch_of_deletes_is_one_command() -> None:
    broker = Script(Acknowledged({1: STALE}))
    response = ask(
        broker,
        "DeleteMessageBatch",
        QueueUrl=FIFO_URL,
        Entries=entries("bad", handle(1, "orders.fifo"), handle(2, "orders.fifo"), handle(3, "orders.fifo")),
    )
    assert broker.asked == [Acknowledge("orders.fifo", [receipt(1), receipt(2), receipt(3)])]
    assert response.json["Successful"] == [{"Id": "e1"}, {"Id": "e3"}]
    assert [(bad["Id"], bad["Code"]) for bad in response.json["Failed"]] == [
        ("e0", "ReceiptHandleIsInvalid"),
        ("e2", "InvalidParameterValue"),
    ]


def test_visibility_is_changed_in_seconds() -> None:
    broker = Script(VisibilityChanged({}))
    response = ask(
        broker, "ChangeMessageVisibility", QueueUrl=QUEUE_URL, ReceiptHandle=handle(7), VisibilityTimeout=43200
    )
    assert (response.status, response.body) == (200, b"")
    assert broker.asked == [ChangeVisibility("orders", [VisibilityChange(receipt(7), 43_200_000)])]


@pytest.mark.parametrize("seconds", [-1, 43201])
def test_visibility_has_bounds(seconds: int) -> None:
    members = {"QueueUrl": QUEUE_URL, "ReceiptHandle": handle(7), "VisibilityTimeout": seconds}
    assert ask(Script(), "ChangeMessageVisibility", **members).code == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (GONE, "AWS.SimpleQueueService.MessageNotInflight"),
        (STALE, "InvalidParameterValue"),
        (Refused("Unheard", "of"), "InternalFailure"),
    ],
)
def test_a_message_that_one_does_not_have_cannot_be_kept(refused: Refused, code: str) -> None:
    members = {"QueueUrl": QUEUE_URL, "ReceiptHandle": handle(7), "VisibilityTimeout": 1}
    assert ask(Script(VisibilityChanged({0: refused})), "ChangeMessageVisibility", **members).code == code


def test_a_batch_of_changes_is_one_command() -> None:
    broker = Script(VisibilityChanged({0: GONE}))
    batch = [
        *entries("bad", handle(1), VisibilityTimeout=5),
        {"Id": "long", "ReceiptHandle": handle(2), "VisibilityTimeout": 50_000},
        {"Id": "now", "ReceiptHandle": handle(3)},
    ]
    response = ask(broker, "ChangeMessageVisibilityBatch", QueueUrl=QUEUE_URL, Entries=batch)
    assert broker.asked == [
        ChangeVisibility("orders", [VisibilityChange(receipt(1), 5000), VisibilityChange(receipt(3), 0)])
    ]
    assert response.json["Successful"] == [{"Id": "now"}]
    assert [(bad["Id"], bad["Code"]) for bad in response.json["Failed"]] == [
        ("e0", "ReceiptHandleIsInvalid"),
        ("e1", "AWS.SimpleQueueService.MessageNotInflight"),
        ("long", "InvalidParameterValue"),
    ]


@pytest.mark.parametrize("action", ["DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
def test_a_batch_without_a_good_entry_only_looks_whether_the_queue_exists(action: str) -> None:
    response = ask(Script(described()), action, QueueUrl=QUEUE_URL, Entries=entries("bad"))
    assert set(response.json) == {"Failed"}
    broker = Script(Refused("UnknownQueue", "no"))
    assert ask(broker, action, QueueUrl=QUEUE_URL, Entries=entries("bad")).code.endswith("NonExistentQueue")


@pytest.mark.parametrize("action", ["DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ([], "EmptyBatchRequest"),
        (entries(*["x"] * 11), "TooManyEntriesInBatchRequest"),
        ([*entries("x"), *entries("x")], "BatchEntryIdsNotDistinct"),
        ([{"Id": "no spaces", "ReceiptHandle": "x"}], "InvalidBatchEntryId"),
    ],
)
def test_a_bad_batch_is_refused_as_a_whole(action: str, batch: list[dict[str, Any]], code: str) -> None:
    response = ask(Script(), action, QueueUrl=QUEUE_URL, Entries=batch)
    assert response.code == f"AWS.SimpleQueueService.{code}"
