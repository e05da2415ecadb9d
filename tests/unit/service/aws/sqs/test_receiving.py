"""ReceiveMessage: what is asked of the broker, and what of a message the consumer gets."""

from __future__ import annotations

import asyncio
from hashlib import md5
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.service.aws.sqs.talking import FIFO_URL, QUEUE_URL, SETTINGS, Script, ask
from tests.unit.service.fake_connections import FakeConnection

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Delivery, Receipt, Receive, Received, Refused
from lavant.core.publications.trace_context import Attribute, MessageExtras, encode_extras, md5_of
from lavant.service.auth.keys import Principal
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.handles import Handles
from lavant.service.net.connections import STATE, ClientGone, RequestConnection

SEALS = Handles(b"salt")
ATTRIBUTES = [
    Attribute("Hello", "String", b"There"),
    Attribute("Help.Me", "String", b"Me"),
    Attribute("bytes", "Binary", b"\xff"),
]
EXTRAS = encode_extras(MessageExtras(ATTRIBUTES, md5_of(ATTRIBUTES), "Root=1", "tenant"))
EMPTY = Received([])


def delivery(number: int = 7, body: bytes = b"hi", attributes: bytes = b"", *, fifo: bool = False) -> Delivery:
    return Delivery(
        Receipt(number, 9),
        body,
        attributes,
        1_700_000_000_123,
        1_700_000_000_456,
        3,
        *(("g", "d") if fifo else ("", "")),
    )


def receive(delivered: Delivery, url: str = QUEUE_URL, **members: Any) -> dict[str, Any]:
    response = ask(Script(Received([delivered])), "ReceiveMessage", QueueUrl=url, **members)
    (message,) = response.json["Messages"]
    assert isinstance(message, dict)
    return message


def test_a_message_has_id_handle_body_and_md5_and_no_more_unless_asked() -> None:
    assert receive(delivery(attributes=EXTRAS)) == {
        "MessageId": SEALS.message_id(7),
        "ReceiptHandle": SEALS.receipt_handle("orders", Receipt(7, 9)),
        "Body": "hi",
        "MD5OfBody": md5(b"hi").hexdigest(),
    }


def test_seconds_become_milliseconds_and_what_is_not_said_is_the_queues() -> None:
    broker = Script(EMPTY)
    members = {"MaxNumberOfMessages": 10, "VisibilityTimeout": 43200, "WaitTimeSeconds": 0}
    assert ask(broker, "ReceiveMessage", QueueUrl=QUEUE_URL, **members).json == {}
    assert broker.asked == [Receive("orders", 10, 43_200_000, 0)]
    broker = Script(EMPTY)
    assert ask(broker, "ReceiveMessage", QueueUrl=QUEUE_URL).json == {}
    assert broker.asked == [Receive("orders", 1, None, None)]
    broker = Script(Received([delivery()]))
    assert len(ask(broker, "ReceiveMessage", QueueUrl=QUEUE_URL, WaitTimeSeconds=20).json["Messages"]) == 1
    assert broker.asked == [Receive("orders", 1, None, 20_000)]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ({"VisibilityTimeout": -1}, "InvalidParameterValue"),
        ({"VisibilityTimeout": 43201}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": -1}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": 10**40}, "InvalidParameterValue"),
        ({"AttributeNames": ["Nothing"]}, "InvalidAttributeName"),
        ({"MessageSystemAttributeNames": ["SenderId", "nothing"]}, "InvalidAttributeName"),
        ({"MessageAttributeNames": "All"}, "MalformedInput"),
    ],
)
def test_a_bad_request_is_refused_before_the_hub_hears_of_it(members: dict[str, Any], code: str) -> None:
    assert ask(Script(), "ReceiveMessage", QueueUrl=QUEUE_URL, **members).code == code


def test_system_attributes_are_given_when_asked_for() -> None:
    everything = {
        "SenderId": "000000000000",
        "SentTimestamp": "1700000000123",
        "ApproximateFirstReceiveTimestamp": "1700000000456",
        "ApproximateReceiveCount": "3",
    }
    assert receive(delivery(), AttributeNames=["All"])["Attributes"] == everything
    assert receive(delivery(), MessageSystemAttributeNames=["All"])["Attributes"] == everything
    both = receive(delivery(), AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp"])
    assert set(both["Attributes"]) == {"SenderId", "SentTimestamp"}
    assert "Attributes" not in receive(delivery(), AttributeNames=["SequenceNumber"])


def test_a_standard_queue_gives_back_group_and_trace_header() -> None:
    given = receive(delivery(attributes=EXTRAS), AttributeNames=["MessageGroupId", "AWSTraceHeader"])["Attributes"]
    assert given == {"MessageGroupId": "tenant", "AWSTraceHeader": "Root=1"}


def test_a_dead_letter_says_where_it_comes_from() -> None:
    dead = replace(delivery(), origin="orders")
    given = receive(dead, AttributeNames=["DeadLetterQueueSourceArn"])["Attributes"]
    assert given == {"DeadLetterQueueSourceArn": "arn:aws:sqs:us-east-1:000000000000:orders"}


def test_a_fifo_queue_gives_group_deduplication_and_sequence_number() -> None:
    given = receive(delivery(fifo=True), FIFO_URL, AttributeNames=["All"])["Attributes"]
    assert given["MessageGroupId"] == "g"
    assert given["MessageDeduplicationId"] == "d"
    assert given["SequenceNumber"] == "10000000000000000007"


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (["All"], {"Hello", "Help.Me", "bytes"}),
        ([".*"], {"Hello", "Help.Me", "bytes"}),
        (["*"], {"Hello", "Help.Me", "bytes"}),
        (["Hel.*"], {"Hello", "Help.Me"}),
        (["Help.*", "bytes"], {"Help.Me", "bytes"}),
        (["Hello", "nothing"], {"Hello"}),
        (["hello"], set()),
        (["Hel"], set()),
        ([], set()),
    ],
)
def test_message_attributes_are_chosen_by_name_and_prefix(wanted: list[str], given: set[str]) -> None:
    message = receive(delivery(attributes=EXTRAS), MessageAttributeNames=wanted)
    assert set(message.get("MessageAttributes", {})) == given
    chosen = [attribute for attribute in ATTRIBUTES if attribute.name in given]
    assert message.get("MD5OfMessageAttributes") == (md5_of(chosen).hex() if chosen else None)


def test_values_come_back_in_their_own_member() -> None:
    given = receive(delivery(attributes=EXTRAS), MessageAttributeNames=["All"])["MessageAttributes"]
    assert given["Hello"] == {"DataType": "String", "StringValue": "There"}
    assert given["bytes"] == {"DataType": "Binary", "BinaryValue": "/w=="}


def test_a_body_that_is_no_text_comes_in_base64_and_says_so() -> None:
    for attributes in (b"", EXTRAS, b"of another protocol"):
        message = receive(delivery(body=b"\xff\x00", attributes=attributes))
        assert (message["Body"], message["MD5OfBody"]) == ("/wA=", md5(b"/wA=").hexdigest())
        assert message["MessageAttributes"]["lavant.encoding"]["StringValue"] == "base64"
        assert message["MD5OfMessageAttributes"] == md5_of([Attribute("lavant.encoding", "String", b"base64")]).hex()


def test_what_the_hub_refuses_is_told() -> None:
    for refused, code in (
        ("UnknownQueue", "AWS.SimpleQueueService.NonExistentQueue"),
        ("TooManyInFlight", "OverLimit"),
        ("LimitExceeded", "OverLimit"),
    ):
        assert ask(Script(Refused(refused, "no")), "ReceiveMessage", QueueUrl=QUEUE_URL).code == code


def test_there_is_no_answer_for_a_client_that_is_gone() -> None:
    async def execute(request: Request, principal: Principal, connection: RequestConnection | None = None) -> Answer:
        assert request == Receive("orders", 1, None, 20_000)
        assert connection is given
        raise ClientGone

    async def scenario() -> None:
        body = b'{"QueueUrl": "/orders", "WaitTimeSeconds": 20}'

        async def receive_() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            raise AssertionError("there is nobody to send it to")

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [
                (b"host", b"x"),
                (b"x-amz-target", b"AmazonSQS.ReceiveMessage"),
                (b"content-type", b"application/x-amz-json-1.0"),
            ],
            "state": {STATE: given},
        }
        await SqsApp(execute, SETTINGS)(scope, receive_, send)

    given = FakeConnection()
    asyncio.run(scenario())
