"""SendMessage and SendMessageBatch: what reaches the broker, what the sender is told, what is refused."""

from __future__ import annotations

from hashlib import md5
from typing import Any

import pytest
from tests.unit.service.aws.sqs.talking import FIFO_URL, QUEUE_URL, Script, ask, described

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import DescribeQueue, Refused, Send, SendEntry, Sent, SentEntry
from lavant.core.publications.trace_context import Attribute, MessageExtras, decode_extras
from lavant.service.aws.sqs.handles import Handles

SEALS = Handles(b"salt")
MIB = 1 << 20
FIFO = QueueConfig(order="in-order")
BY_CONTENT = QueueConfig(order="in-order", deduplicate_by_content=True)


def sent(*numbers: int) -> Sent:
    return Sent([SentEntry(number) for number in numbers])


def entry(name: str, body: str = "x", **members: Any) -> dict[str, Any]:
    return {"Id": name, "MessageBody": body, **members}


def test_a_message_is_sent_and_its_id_and_md5_are_told() -> None:
    broker = Script(sent(7))
    response = ask(broker, "SendMessage", QueueUrl=QUEUE_URL, MessageBody="héllo")
    assert broker.asked == [Send("orders", [SendEntry("héllo".encode())])]
    assert response.json == {"MessageId": SEALS.message_id(7), "MD5OfMessageBody": md5("héllo".encode()).hexdigest()}


def test_attributes_travel_with_the_message_and_their_md5s_are_told() -> None:
    broker = Script(sent(7))
    response = ask(
        broker,
        "SendMessage",
        QueueUrl=QUEUE_URL,
        MessageBody="x",
        DelaySeconds=900,
        MessageAttributes={
            "Hello": {"DataType": "String", "StringValue": "There"},
            "Bytes": {"DataType": "Binary.png", "BinaryValue": "/wA="},
        },
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
        MessageGroupId="tenant",
    )
    (request,) = broker.asked
    assert isinstance(request, Send)
    (message,) = request.entries
    assert message.delay_ms == 900_000
    assert (message.group, message.deduplication) == ("", "")
    extras = decode_extras(message.attributes)
    assert extras == MessageExtras(
        [Attribute("Bytes", "Binary.png", b"\xff\x00"), Attribute("Hello", "String", b"There")],
        bytes.fromhex(response.json["MD5OfMessageAttributes"]),
        "Root=1",
        "tenant",
    )
    assert len(response.json["MD5OfMessageSystemAttributes"]) == 32


def test_a_message_in_a_fifo_queue_has_group_deduplication_and_sequence_number() -> None:
    broker = Script(sent(7))
    response = ask(
        broker,
        "SendMessage",
        QueueUrl=FIFO_URL,
        MessageBody="x",
        MessageGroupId="g",
        MessageDeduplicationId="d",
        DelaySeconds=0,
    )
    assert broker.asked == [Send("orders.fifo", [SendEntry(b"x", group="g", deduplication="d")])]
    assert response.json["SequenceNumber"] == "10000000000000000007"


def test_without_a_deduplication_id_a_fifo_queue_must_go_by_content() -> None:
    broker = Script(described(BY_CONTENT), sent(7))
    assert ask(broker, "SendMessage", QueueUrl=FIFO_URL, MessageBody="x", MessageGroupId="g").status == 200
    assert broker.asked[0] == DescribeQueue("orders.fifo")
    response = ask(Script(described(FIFO)), "SendMessage", QueueUrl=FIFO_URL, MessageBody="x", MessageGroupId="g")
    assert (response.status, response.code) == (400, "InvalidParameterValue")
    assert "ContentBasedDeduplication" in response.json["message"]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\x00"}, "InvalidMessageContents"),
        ({"MessageBody": "\uffff"}, "InvalidMessageContents"),
        ({"DelaySeconds": -1}, "InvalidParameterValue"),
        ({"DelaySeconds": 901}, "InvalidParameterValue"),
        ({"MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageGroupId": "sp ace"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g" * 129}, "InvalidParameterValue"),
        ({"MessageBody": "x" * (MIB + 1)}, "InvalidParameterValue"),
        ({"MessageBody": "é" * (MIB // 2) + "x"}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"DataType": "String", "StringValue": ""}}}, "InvalidParameterValue"),
        ({"MessageAttributes": {"a": {"StringValue": "x"}}}, "MissingParameter"),
        ({"MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "?"}}}, "MalformedInput"),
        ({"QueueUrl": "http://x/1/"}, "InvalidAddress"),
        ({"QueueUrl": None}, "MissingParameter"),
        ({"QueueUrl": 7}, "MalformedInput"),
        ({"DelaySeconds": "7"}, "MalformedInput"),
        ({"QueueUrl": FIFO_URL}, "MissingParameter"),
        ({"QueueUrl": FIFO_URL, "MessageGroupId": "g", "DelaySeconds": 1}, "InvalidParameterValue"),
        ({"QueueUrl": FIFO_URL, "MessageGroupId": "g", "MessageDeduplicationId": "é"}, "InvalidParameterValue"),
    ],
)
def test_a_bad_message_is_refused_before_the_hub_hears_of_it(members: dict[str, Any], code: str) -> None:
    response = ask(Script(), "SendMessage", **{"QueueUrl": QUEUE_URL, "MessageBody": "x"} | members)
    assert response.code == code
    assert response.json["message"]


def test_a_message_of_exactly_the_largest_size_is_sent() -> None:
    attributes = {"name": {"DataType": "String", "StringValue": "value"}}
    body = "x" * (MIB - len("nameStringvalue"))
    fits = Script(sent(1))
    assert ask(fits, "SendMessage", QueueUrl=QUEUE_URL, MessageBody=body, MessageAttributes=attributes).status == 200
    response = ask(Script(), "SendMessage", QueueUrl=QUEUE_URL, MessageBody=body + "x", MessageAttributes=attributes)
    assert "shorter than 1048576 bytes" in response.json["message"]


@pytest.mark.parametrize(
    ("refused", "code", "status"),
    [
        ("UnknownQueue", "AWS.SimpleQueueService.NonExistentQueue", 400),
        ("QueueFull", "OverLimit", 403),
        ("LimitExceeded", "InvalidParameterValue", 400),
        ("StorageFull", "ServiceUnavailable", 503),
    ],
)
def test_what_the_hub_refuses_is_told_in_the_protocols_words(refused: str, code: str, status: int) -> None:
    whole = Refused(refused, "because")
    entry_only = Sent([whole])
    for answer in (whole, entry_only) if refused != "LimitExceeded" else (entry_only,):
        response = ask(Script(answer), "SendMessage", QueueUrl=QUEUE_URL, MessageBody="x")
        assert (response.code, response.status) == (code, status)


def test_a_batch_is_one_command_and_each_entry_is_answered() -> None:
    broker = Script(Sent([SentEntry(7), Refused("LimitExceeded", "too large"), SentEntry(8)]))
    response = ask(
        broker,
        "SendMessageBatch",
        QueueUrl=QUEUE_URL,
        Entries=[
            entry("a"),
            entry("bad", "\x00"),
            entry("b", "y"),
            entry("c", "z", DelaySeconds=5),
            entry("late", DelaySeconds=1000),
        ],
    )
    assert broker.asked == [Send("orders", [SendEntry(b"x"), SendEntry(b"y"), SendEntry(b"z", delay_ms=5000)])]
    assert [(good["Id"], good["MessageId"]) for good in response.json["Successful"]] == [
        ("a", SEALS.message_id(7)),
        ("c", SEALS.message_id(8)),
    ]
    assert [(bad["Id"], bad["Code"], bad["SenderFault"]) for bad in response.json["Failed"]] == [
        ("bad", "InvalidMessageContents", True),
        ("b", "InvalidParameterValue", True),
        ("late", "InvalidParameterValue", True),
    ]


def test_a_batch_that_went_well_has_no_failed_entries_and_the_other_way_round() -> None:
    response = ask(Script(sent(1)), "SendMessageBatch", QueueUrl=QUEUE_URL, Entries=[entry("a")])
    assert set(response.json) == {"Successful"}
    broker = Script(described())
    response = ask(broker, "SendMessageBatch", QueueUrl=QUEUE_URL, Entries=[entry("a", "\x00")])
    assert set(response.json) == {"Failed"}


def test_a_batch_to_a_queue_that_does_not_exist_fails_as_a_whole() -> None:
    for body in ("x", "\x00"):
        broker = Script(Refused("UnknownQueue", "no such queue"))
        response = ask(broker, "SendMessageBatch", QueueUrl=QUEUE_URL, Entries=[entry("a", body)])
        assert response.code == "AWS.SimpleQueueService.NonExistentQueue"


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([entry(str(number)) for number in range(11)], "TooManyEntriesInBatchRequest"),
        ([entry("a"), entry("a")], "BatchEntryIdsNotDistinct"),
        ([entry("")], "InvalidBatchEntryId"),
        ([entry("a" * 81)], "InvalidBatchEntryId"),
        ([entry("a:b")], "InvalidBatchEntryId"),
        ([entry("a\n")], "InvalidBatchEntryId"),
        ([entry("a", "x" * MIB), entry("b")], "BatchRequestTooLong"),
    ],
)
def test_a_bad_batch_is_refused_as_a_whole(entries: list[dict[str, Any]], code: str) -> None:
    response = ask(Script(), "SendMessageBatch", QueueUrl=QUEUE_URL, Entries=entries)
    assert response.code == f"AWS.SimpleQueueService.{code}"
    assert response.json["__type"] == f"com.amazonaws.sqs#{code}"


def test_a_batch_into_a_fifo_queue_needs_groups_and_deduplication() -> None:
    broker = Script(sent(1, 2))
    entries = [entry("a", MessageGroupId="g", MessageDeduplicationId="1")]
    entries.append(entry("b", MessageGroupId="h", MessageDeduplicationId="2"))
    response = ask(broker, "SendMessageBatch", QueueUrl=FIFO_URL, Entries=entries)
    assert [good["SequenceNumber"][-2:] for good in response.json["Successful"]] == ["01", "02"]
    response = ask(Script(), "SendMessageBatch", QueueUrl=FIFO_URL, Entries=[*entries, entry("c")])
    assert (response.code, response.json["message"]) == (
        "InvalidParameterValue",
        "The request must contain the parameter MessageGroupId.",
    )
    del entries[1]["MessageDeduplicationId"]
    response = ask(Script(described(FIFO)), "SendMessageBatch", QueueUrl=FIFO_URL, Entries=entries)
    assert response.code == "InvalidParameterValue"


def test_a_missing_member_of_an_entry_is_named_with_its_place() -> None:
    response = ask(Script(), "SendMessageBatch", QueueUrl=QUEUE_URL, Entries=[entry("a"), {"Id": "b"}])
    assert response.code == "MissingParameter"
    assert "Entries[1].MessageBody" in response.json["message"]
