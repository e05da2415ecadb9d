"""boto3 against a real port: queues, messages, FIFO, dead letters, errors."""

from __future__ import annotations

import doctest
import json
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import md5
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.integration.sqs_serving import access, serving, wait_for_receives_that_wait

Client = Any
MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture(scope="module")
def sqs(endpoint: str) -> Iterator[Client]:
    with closing(boto3.client("sqs", **access(endpoint))) as client:
        yield client


@pytest.fixture
def queue(sqs: Client) -> str:
    return create(sqs)


def create(sqs: Client, suffix: str = "", **attributes: str) -> str:
    url = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}{suffix}", Attributes=attributes)["QueueUrl"]
    assert isinstance(url, str)
    return url


def create_fifo(sqs: Client, **attributes: str) -> str:
    return create(sqs, ".fifo", FifoQueue="true", **attributes)


def arn(sqs: Client, queue: str) -> str:
    return str(attributes_of(sqs, queue)["QueueArn"])


def attributes_of(sqs: Client, queue: str) -> dict[str, str]:
    found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert isinstance(found, dict)
    return found


def receive(sqs: Client, queue: str, count: int = 1, **options: Any) -> list[dict[str, Any]]:
    options = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]} | options
    found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=count, **options).get("Messages", [])
    assert isinstance(found, list)
    return found


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_goes_in_comes_out_and_is_gone(sqs: Client, queue: str) -> None:
    attributes = {
        "kind": {"DataType": "String", "StringValue": "tea é"},
        "count": {"DataType": "Number.int", "StringValue": "3"},
        "picture": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    }
    body = 'text with "quotes", <tags>, line\r\nbreaks, é and 🙂'
    sent = sqs.send_message(
        QueueUrl=queue,
        MessageBody=body,
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2-3"}},
    )
    (message,) = receive(sqs, queue)
    assert message["Body"] == body
    assert message["MessageAttributes"] == attributes
    assert message["MessageId"] == sent["MessageId"]
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == md5(body.encode()).hexdigest()
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    system = message["Attributes"]
    assert (system["ApproximateReceiveCount"], system["AWSTraceHeader"]) == ("1", "Root=1-2-3")
    assert abs(int(system["SentTimestamp"]) / 1000 - time.time()) < 600
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "1"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])  # once more does no harm
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)


@pytest.fixture
def resource(endpoint: str) -> Iterator[Any]:
    resource = boto3.resource("sqs", **access(endpoint))
    with closing(resource.meta.client):
        yield resource


def test_the_objects_of_boto3_work(resource: Any) -> None:
    name = f"q-{uuid.uuid4().hex}"
    queue = resource.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})
    queue.send_message(MessageBody="one")
    queue.send_messages(Entries=[{"Id": "a", "MessageBody": "two"}, {"Id": "b", "MessageBody": "three"}])
    assert resource.get_queue_by_name(QueueName=name).attributes["ApproximateNumberOfMessages"] == "3"
    messages = queue.receive_messages(MaxNumberOfMessages=10)
    assert sorted(message.body for message in messages) == ["one", "three", "two"]
    messages[0].change_visibility(VisibilityTimeout=0)
    (again,) = queue.receive_messages()
    assert again.message_id == messages[0].message_id
    for message in (again, *messages[1:]):
        message.delete()
    queue.load()
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
    queue.delete()


def test_a_message_that_is_not_deleted_comes_back(sqs: Client, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (first,) = receive(sqs, queue, VisibilityTimeout=1)
    (second,) = receive(sqs, queue, WaitTimeSeconds=20)
    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])  # succeeds, and deletes nothing
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "1"
    with pytest.raises(ClientError) as error:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=9)
    assert code_of(error) == "InvalidParameterValue"
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=0)
    with pytest.raises(sqs.exceptions.MessageNotInflight):
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=9)


def test_who_waits_gets_the_message_when_it_comes(sqs: Client, endpoint: str, queue: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(receive, sqs, queue, WaitTimeSeconds=20) for _ in range(3)]
        wait_for_receives_that_wait(endpoint, 3)
        for body in ("a", "b", "c"):
            sqs.send_message(QueueUrl=queue, MessageBody=body)
        assert sorted(future.result()[0]["Body"] for future in waiting) == ["a", "b", "c"]


def test_a_queue_can_make_everybody_wait(sqs: Client, endpoint: str) -> None:
    queue = create(sqs, ReceiveMessageWaitTimeSeconds="20")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive, sqs, queue)
        wait_for_receives_that_wait(endpoint, 1)
        sqs.send_message(QueueUrl=queue, MessageBody="x")
        assert len(waiting.result()) == 1


def test_nothing_is_given_to_a_client_that_hung_up_while_it_waited(sqs: Client, endpoint: str, queue: str) -> None:
    host, port = endpoint.removeprefix("http://").split(":")
    body = json.dumps({"QueueUrl": queue, "WaitTimeSeconds": 20}).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: {host}:{port}\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        wait_for_receives_that_wait(endpoint, 1)
    wait_for_receives_that_wait(endpoint, 0)
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (message,) = receive(sqs, queue)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_message_in_flight_is_nobody_elses(sqs: Client, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (message,) = receive(sqs, queue, VisibilityTimeout=1000)
    assert receive(sqs, queue) == []
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert len(receive(sqs, queue)) == 1


def test_a_delayed_message_comes_later(sqs: Client, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="much later", DelaySeconds=900)
    sqs.send_message(QueueUrl=queue, MessageBody="now")
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesDelayed"] == "1"
    assert [message["Body"] for message in receive(sqs, queue, 10)] == ["now"]
    sqs.send_message(QueueUrl=queue, MessageBody="later", DelaySeconds=1)
    (message,) = receive(sqs, queue, 10, WaitTimeSeconds=20)
    times = message["Attributes"]
    assert message["Body"] == "later"
    assert int(times["ApproximateFirstReceiveTimestamp"]) - int(times["SentTimestamp"]) >= 1000


def test_batches_do_what_they_can(sqs: Client, queue: str) -> None:
    entries = [{"Id": f"e{number}", "MessageBody": f"body {number}"} for number in range(9)]
    sent = sqs.send_message_batch(QueueUrl=queue, Entries=[*entries, {"Id": "bad", "MessageBody": "\x00"}])
    assert [entry["Id"] for entry in sent["Successful"]] == [f"e{number}" for number in range(9)]
    assert [(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in sent["Failed"]] == [
        ("bad", "InvalidMessageContents", True)
    ]
    messages = receive(sqs, queue, 10)
    assert [message["Body"] for message in messages] == [f"body {number}" for number in range(9)]
    handles = [
        {"Id": f"e{number}", "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)
    ]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=queue, Entries=[{**handles[0], "VisibilityTimeout": 0}, {"Id": "x", "ReceiptHandle": "made up"}]
    )
    assert [entry["Id"] for entry in changed["Successful"]] == ["e0"]
    assert [entry["Code"] for entry in changed["Failed"]] == ["ReceiptHandleIsInvalid"]
    deleted = sqs.delete_message_batch(QueueUrl=queue, Entries=handles[1:])
    assert len(deleted["Successful"]) == 8
    assert "Failed" not in deleted
    assert [message["Body"] for message in receive(sqs, queue, 10)] == ["body 0"]


def test_the_largest_message_and_the_worst_one_to_encode_go_through(sqs: Client, queue: str) -> None:
    for body in ("x" * MIB, "\t" * MIB, "é" * (MIB // 2), "\x7f" * MIB):
        sqs.send_message(QueueUrl=queue, MessageBody=body)
        (message,) = receive(sqs, queue)
        assert message["Body"] == body
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=queue, MessageBody="x" * (MIB + 1))
    assert code_of(error) == "InvalidParameterValue"


# ── FIFO ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fifo_queue_keeps_the_order_of_each_group(sqs: Client) -> None:
    queue = create_fifo(sqs, ContentBasedDeduplication="true")
    sequence = [
        int(sqs.send_message(QueueUrl=queue, MessageBody=body, MessageGroupId=body[0])["SequenceNumber"])
        for body in ("a1", "a2", "b1", "a3", "b2")
    ]
    assert sequence == sorted(set(sequence))
    (first,) = receive(sqs, queue)
    assert first["Body"] == "a1"
    assert first["Attributes"]["MessageGroupId"] == "a"
    assert first["Attributes"]["SequenceNumber"] == str(sequence[0])
    rest = receive(sqs, queue, 10)
    assert [message["Body"] for message in rest] == ["b1", "b2"]  # group a is blocked by its first
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    assert [message["Body"] for message in receive(sqs, queue, 10)] == ["a2", "a3"]


def test_a_fifo_queue_takes_a_message_once(sqs: Client) -> None:
    queue = create_fifo(sqs)
    first = sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d")
    again = sqs.send_message(QueueUrl=queue, MessageBody="y", MessageGroupId="h", MessageDeduplicationId="d")
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert [message["Body"] for message in receive(sqs, queue, 10, ReceiveRequestAttemptId="any")] == ["x"]
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g")
    assert code_of(error) == "InvalidParameterValue"


def test_a_receipt_of_a_fifo_queue_expires(sqs: Client) -> None:
    queue = create_fifo(sqs, ContentBasedDeduplication="true", VisibilityTimeout="1")
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g")
    (first,) = receive(sqs, queue)
    (second,) = receive(sqs, queue, WaitTimeSeconds=20, VisibilityTimeout=1000)
    with pytest.raises(ClientError, match="The receipt handle has expired"):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"])


# ── dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_received_too_often_go_to_the_dead_letter_queue_and_back(sqs: Client) -> None:
    dead = create(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn(sqs, dead), "maxReceiveCount": 1})
    queue = create(sqs, RedrivePolicy=policy, VisibilityTimeout="0")
    assert json.loads(attributes_of(sqs, queue)["RedrivePolicy"]) == json.loads(policy)
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [queue]
    for body in ("a", "b"):
        sqs.send_message(QueueUrl=queue, MessageBody=body)
        assert [message["Body"] for message in receive(sqs, queue)] == [body]
        assert receive(sqs, queue) == []
    (letter,) = receive(sqs, dead, VisibilityTimeout=0)
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(sqs, queue)
    task = sqs.start_message_move_task(SourceArn=arn(sqs, dead), MaxNumberOfMessagesPerSecond=500)
    assert task["TaskHandle"]
    for _ in range(100):
        (move,) = sqs.list_message_move_tasks(SourceArn=arn(sqs, dead))["Results"]
        if move["Status"] != "RUNNING":
            break
        time.sleep(0.05)
    assert (move["Status"], move["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 2)
    assert sorted(message["Body"] for message in receive(sqs, queue, 10)) == ["a", "b"]


def test_a_move_is_cancelled(sqs: Client) -> None:
    dead = create(sqs)
    policy = json.dumps({"deadLetterTargetArn": arn(sqs, dead), "maxReceiveCount": 1})
    create(sqs, RedrivePolicy=policy)
    target = create(sqs)
    for _ in range(3):
        sqs.send_message_batch(QueueUrl=dead, Entries=[{"Id": str(number), "MessageBody": "x"} for number in range(10)])
    task = sqs.start_message_move_task(
        SourceArn=arn(sqs, dead), DestinationArn=arn(sqs, target), MaxNumberOfMessagesPerSecond=1
    )
    with pytest.raises(ClientError) as error:
        sqs.start_message_move_task(SourceArn=arn(sqs, dead))
    assert code_of(error) == "InvalidParameterValue"
    moved = sqs.cancel_message_move_task(TaskHandle=task["TaskHandle"])["ApproximateNumberOfMessagesMoved"]
    assert moved < 30
    (move,) = sqs.list_message_move_tasks(SourceArn=arn(sqs, dead))["Results"]
    assert move["Status"] == "CANCELLED"
    assert move["DestinationArn"] == arn(sqs, target)


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_queues_are_listed_in_pages(sqs: Client) -> None:
    prefix = f"page-{uuid.uuid4().hex[:8]}-"
    urls = [sqs.create_queue(QueueName=f"{prefix}{number}")["QueueUrl"] for number in range(5)]
    pages = list(sqs.get_paginator("list_queues").paginate(QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}))
    assert [url for page in pages for url in page["QueueUrls"]] == urls
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]
    assert sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="nothing-like-it")
    for url in urls:
        sqs.delete_queue(QueueUrl=url)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=prefix)


def test_attributes_and_tags_are_kept(sqs: Client) -> None:
    queue = create(sqs, DelaySeconds="5", KmsMasterKeyId="alias/aws/sqs")
    policy = '{"Version": "2012-10-17", "Statement": []}'
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "77", "Policy": policy})
    found = attributes_of(sqs, queue)
    assert (found["DelaySeconds"], found["VisibilityTimeout"]) == ("5", "77")
    assert (found["Policy"], found["KmsMasterKeyId"]) == (policy, "alias/aws/sqs")
    sqs.tag_queue(QueueUrl=queue, Tags={"team": "red", "empty": ""})
    sqs.tag_queue(QueueUrl=queue, Tags={"team": "blue"})
    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"team": "blue", "empty": ""}
    sqs.untag_queue(QueueUrl=queue, TagKeys=["empty"])
    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"team": "blue"}


def test_the_server_can_be_another_account_behind_a_proxy() -> None:
    options = ["--sqs-region", "eu-west-1", "--sqs-account", "123456789012", "--sqs-base-url", "https://queues.example"]
    with serving(options=options) as endpoint, closing(boto3.client("sqs", **access(endpoint))) as sqs:
        assert sqs.create_queue(QueueName="orders")["QueueUrl"] == "https://queues.example/123456789012/orders"
        asked = sqs.get_queue_attributes(QueueUrl=f"{endpoint}/123456789012/orders", AttributeNames=["QueueArn"])
        assert asked["Attributes"]["QueueArn"] == "arn:aws:sqs:eu-west-1:123456789012:orders"


def test_creating_a_queue_again_gives_the_same_one_or_an_error(sqs: Client) -> None:
    queue = create(sqs, VisibilityTimeout="77")
    name = queue.rpartition("/")[2]
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == queue
    assert sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "77"})["QueueUrl"] == queue
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "78"})
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == queue


def test_a_purged_queue_is_empty(sqs: Client, queue: str) -> None:
    for _ in range(2):
        sqs.send_message(QueueUrl=queue, MessageBody="x")
    receive(sqs, queue)
    sqs.purge_queue(QueueUrl=queue)
    assert receive(sqs, queue, 10) == []
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_errors_are_those_that_programs_catch(sqs: Client, queue: str) -> None:
    errors = sqs.exceptions
    entry = {"Id": "a", "MessageBody": "x"}
    gone = queue + "-gone"
    cases: list[tuple[type[Exception], Any, dict[str, Any]]] = [
        (errors.QueueDoesNotExist, sqs.get_queue_url, {"QueueName": "nothing"}),
        (errors.QueueDoesNotExist, sqs.send_message, {"QueueUrl": gone, "MessageBody": "x"}),
        (errors.QueueDoesNotExist, sqs.receive_message, {"QueueUrl": gone}),
        (errors.QueueDoesNotExist, sqs.delete_queue, {"QueueUrl": gone}),
        (errors.InvalidMessageContents, sqs.send_message, {"QueueUrl": queue, "MessageBody": "\x00"}),
        (errors.ReceiptHandleIsInvalid, sqs.delete_message, {"QueueUrl": queue, "ReceiptHandle": "made up"}),
        (errors.EmptyBatchRequest, sqs.send_message_batch, {"QueueUrl": queue, "Entries": []}),
        (errors.TooManyEntriesInBatchRequest, sqs.send_message_batch, {"QueueUrl": queue, "Entries": [entry] * 11}),
        (errors.BatchEntryIdsNotDistinct, sqs.send_message_batch, {"QueueUrl": queue, "Entries": [entry] * 2}),
        (
            errors.InvalidBatchEntryId,
            sqs.send_message_batch,
            {"QueueUrl": queue, "Entries": [{"Id": "é", "MessageBody": "x"}]},
        ),
        (
            errors.BatchRequestTooLong,
            sqs.send_message_batch,
            {"QueueUrl": queue, "Entries": [entry, {"Id": "b", "MessageBody": "x" * MIB}]},
        ),
        (errors.InvalidAttributeName, sqs.get_queue_attributes, {"QueueUrl": queue, "AttributeNames": ["x"]}),
        (
            errors.InvalidAttributeValue,
            sqs.set_queue_attributes,
            {"QueueUrl": queue, "Attributes": {"DelaySeconds": "x"}},
        ),
        (
            errors.ResourceNotFoundException,
            sqs.start_message_move_task,
            {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:nothing"},
        ),
        (
            errors.UnsupportedOperation,
            sqs.add_permission,
            {"QueueUrl": queue, "Label": "x", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]},
        ),
    ]
    for error, call, arguments in cases:
        with pytest.raises(error):
            call(**arguments)


def test_the_example_in_the_documentation_does_what_it_shows(endpoint: str) -> None:
    text = (ROOT / "docs" / "sqs.md").read_text(encoding="utf-8").replace("http://127.0.0.1:7324", endpoint)
    example = doctest.DocTestParser().get_doctest(text, {}, "sqs.md", "sqs.md", 0)
    report: list[str] = []
    results = doctest.DocTestRunner().run(example, out=report.append)
    assert (results.failed, results.attempted) == (0, 9), "".join(report)
