"""Actions on queues and their tags."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace
from tests.unit.service.aws.sqs.talking import QUEUE_URL, Script, ask, described, request

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    Done,
    Listed,
    ListQueues,
    ListSources,
    PurgeQueue,
    QueueCreated,
    Refused,
    TagQueue,
)
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.settings import SqsSettings

NO_QUEUE = Refused("UnknownQueue", "there is no such queue")
EXISTS = Refused("QueueExists", "it exists with other settings")
ARN = "arn:aws:sqs:us-east-1:000000000000:"
FIFO = QueueConfig(order="in-order")


def redrive(target: str = "dead", count: object = 3) -> str:
    return json.dumps({"deadLetterTargetArn": ARN + target, "maxReceiveCount": count})


def test_a_queue_is_created_with_its_attributes_and_tags() -> None:
    broker = Script(QueueCreated(is_new=True))
    response = ask(
        broker,
        "CreateQueue",
        QueueName="orders",
        Attributes={
            "VisibilityTimeout": "60",
            "DelaySeconds": "5",
            "MessageRetentionPeriod": "120",
            "ReceiveMessageWaitTimeSeconds": "20",
            "MaximumMessageSize": "2048",
            "KmsMasterKeyId": "alias/aws/sqs",
        },
        tags={"team": "red"},
    )
    assert response.json == {"QueueUrl": QUEUE_URL}
    config = QueueConfig(
        visibility_ms=60_000,
        delay_ms=5_000,
        retention_ms=120_000,
        wait_ms=20_000,
        message_bytes_max=2048,
        labels={"KmsMasterKeyId": "alias/aws/sqs"},
    )
    assert broker.asked == [CreateQueue("orders", config, {"team": "red"})]


def test_urls_follow_the_settings() -> None:
    settings = SqsSettings(account="123456789012", base_url="https://queues.example/sqs", region="eu-west-1")
    response = ask(Script(QueueCreated(is_new=True)), "CreateQueue", settings, QueueName="orders")
    assert response.json == {"QueueUrl": "https://queues.example/sqs/123456789012/orders"}
    response = ask(Script(described()), "GetQueueAttributes", settings, QueueUrl="orders", AttributeNames=["QueueArn"])
    assert response.json["Attributes"]["QueueArn"] == "arn:aws:sqs:eu-west-1:123456789012:orders"


def test_a_fifo_queue_is_in_order() -> None:
    broker = Script(QueueCreated(is_new=True))
    attributes = {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "FifoThroughputLimit": "perMessageGroupId",
        "DeduplicationScope": "messageGroup",
    }
    assert ask(broker, "CreateQueue", QueueName="orders.fifo", Attributes=attributes).status == 200
    config = QueueConfig(
        order="in-order",
        deduplicate_by_content=True,
        deduplicate_within_group=True,
        labels={"FifoThroughputLimit": "perMessageGroupId"},
    )
    assert broker.asked == [CreateQueue("orders.fifo", config, {})]


@pytest.mark.parametrize(
    ("name", "attributes", "code"),
    [
        ("", {}, "InvalidParameterValue"),
        ("a" * 81, {}, "InvalidParameterValue"),
        ("sp ace", {}, "InvalidParameterValue"),
        ("dot.ted", {}, "InvalidParameterValue"),
        ("new\n", {}, "InvalidParameterValue"),
        ("é", {}, "InvalidParameterValue"),
        ("orders.fifo", {}, "InvalidParameterValue"),
        ("orders", {"FifoQueue": "true"}, "InvalidParameterValue"),
        (".fifo", {"FifoQueue": "true"}, "InvalidParameterValue"),
        ("a" * 76 + ".fifo", {"FifoQueue": "true"}, "InvalidParameterValue"),
        ("orders", {"FifoQueue": "false"}, "InvalidAttributeName"),
        ("orders", {"Nothing": "1"}, "InvalidAttributeName"),
        ("orders", {"QueueArn": "x"}, "InvalidAttributeName"),
        ("orders", {"All": "x"}, "InvalidAttributeName"),
        ("orders", {"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ("orders", {"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
    ],
)
def test_a_bad_name_or_attribute_is_refused(name: str, attributes: dict[str, str], code: str) -> None:
    assert ask(Script(), "CreateQueue", QueueName=name, Attributes=attributes).code == code


def test_creating_again_what_exists_is_no_fault_if_it_is_as_asked_for() -> None:
    existing = described(QueueConfig(visibility_ms=60_000, depth_max=5, labels={"of": "others"}))
    for attributes in ({}, {"VisibilityTimeout": "60"}, {"VisibilityTimeout": "060", "DelaySeconds": "0"}):
        broker = Script(EXISTS, existing)
        assert ask(broker, "CreateQueue", QueueName="orders", Attributes=attributes).json == {"QueueUrl": QUEUE_URL}
    response = ask(Script(EXISTS, existing), "CreateQueue", QueueName="orders", Attributes={"VisibilityTimeout": "61"})
    assert response.code == "QueueAlreadyExists"
    assert response.json["message"].endswith("a different value for attribute VisibilityTimeout")
    assert response.json["__type"] == "com.amazonaws.sqs#QueueNameExists"


def test_a_queue_that_cannot_be_created_for_another_reason_says_so() -> None:
    for refused, code in (("LimitExceeded", "OverLimit"), ("StorageFull", "ServiceUnavailable")):
        response = ask(Script(Refused(refused, "why"), NO_QUEUE), "CreateQueue", QueueName="orders")
        assert (response.code, response.json["message"]) == (code, "why")


def test_the_dead_letter_queue_must_exist_be_of_the_same_type_and_allow_it() -> None:
    broker = Script(described(), QueueCreated(is_new=True))
    assert ask(broker, "CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": redrive()}).status == 200
    assert broker.asked[0] == DescribeQueue("dead")
    assert broker.asked[1] == CreateQueue("orders", QueueConfig(dead_letters="dead", receives_max=3), {})
    by_queue = {"redrivePermission": "byQueue", "sourceQueueArns": [ARN + "others"]}
    for target in (
        NO_QUEUE,
        described(FIFO),
        described(QueueConfig(labels={"RedriveAllowPolicy": '{"redrivePermission": "denyAll"}'})),
        described(QueueConfig(labels={"RedriveAllowPolicy": json.dumps(by_queue)})),
    ):
        response = ask(Script(target), "CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": redrive()})
        assert (response.code, "RedrivePolicy" in response.json["message"]) == ("InvalidParameterValue", True)
    by_queue["sourceQueueArns"] = [ARN + "orders"]
    allowing = described(QueueConfig(labels={"RedriveAllowPolicy": json.dumps(by_queue)}))
    broker = Script(allowing, QueueCreated(is_new=True))
    assert ask(broker, "CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": redrive()}).status == 200


def test_the_url_of_a_queue_is_told_if_it_exists() -> None:
    assert ask(Script(described()), "GetQueueUrl", QueueName="orders").json == {"QueueUrl": QUEUE_URL}
    response = ask(Script(NO_QUEUE), "GetQueueUrl", QueueName="orders")
    assert response.json == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }


def test_queues_are_listed_page_by_page() -> None:
    broker = Script(Listed(["a", "b", "c"]))
    first = ask(broker, "ListQueues", MaxResults=2, QueueNamePrefix="x").json
    assert broker.asked == [ListQueues("x", "", 3, is_outside=True)]
    assert first["QueueUrls"] == [QUEUE_URL.replace("orders", name) for name in ("a", "b")]
    broker = Script(Listed(["c", "d"]))
    second = ask(broker, "ListQueues", MaxResults=2, NextToken=first["NextToken"]).json
    assert broker.asked == [ListQueues("", "b", 3, is_outside=True)]
    assert "NextToken" not in second


def test_behind_the_largest_page_there_may_be_more() -> None:
    broker = Script(Listed([f"q{number}" for number in range(1000)]))
    assert "NextToken" in ask(broker, "ListQueues", MaxResults=1000).json
    assert broker.asked == [ListQueues("", "", 1000, is_outside=True)]


def test_without_a_pages_size_there_is_one_page() -> None:
    broker = Script(Listed([f"q{number}" for number in range(1000)]))
    response = ask(broker, "ListQueues")
    assert broker.asked == [ListQueues("", "", 1000, is_outside=True)]
    assert "NextToken" not in response.json
    assert ask(Script(Listed([])), "ListQueues").json == {}


@pytest.mark.parametrize("members", [{"MaxResults": 0}, {"MaxResults": 1001}, {"NextToken": "made up"}])
@pytest.mark.parametrize("action", ["ListQueues", "ListDeadLetterSourceQueues"])
def test_a_bad_page_is_refused(action: str, members: dict[str, Any]) -> None:
    assert ask(Script(), action, QueueUrl=QUEUE_URL, **members).code == "InvalidParameterValue"


def test_sources_of_dead_letters_are_listed_page_by_page() -> None:
    broker = Script(Listed(["c", "a", "b"]))
    first = ask(broker, "ListDeadLetterSourceQueues", QueueUrl=QUEUE_URL, MaxResults=2).json
    assert broker.asked == [ListSources("orders")]
    assert [url[-1] for url in first["queueUrls"]] == ["a", "b"]
    rest = {"MaxResults": 2, "NextToken": first["NextToken"]}
    second = ask(Script(Listed(["c", "a", "b"])), "ListDeadLetterSourceQueues", QueueUrl=QUEUE_URL, **rest).json
    assert [url[-1] for url in second["queueUrls"]] == ["c"]
    assert "NextToken" not in second
    assert ask(Script(Listed([])), "ListDeadLetterSourceQueues", QueueUrl=QUEUE_URL).json == {"queueUrls": []}


@pytest.mark.parametrize(("action", "command"), [("DeleteQueue", DeleteQueue), ("PurgeQueue", PurgeQueue)])
def test_queues_are_deleted_and_purged(action: str, command: Any) -> None:
    broker = Script(Done())
    assert ask(broker, action, QueueUrl=QUEUE_URL).body == b""
    assert broker.asked == [command("orders")]
    assert ask(Script(NO_QUEUE), action, QueueUrl=QUEUE_URL).code.endswith("NonExistentQueue")


def test_attributes_are_given_as_asked_for() -> None:
    config = QueueConfig(dead_letters="dead", receives_max=3, labels={"Policy": "{}", "of": "others"})
    response = ask(Script(described(config)), "GetQueueAttributes", QueueUrl=QUEUE_URL, AttributeNames=["All"])
    assert response.json["Attributes"] == {
        "QueueArn": ARN + "orders",
        "ApproximateNumberOfMessages": "3",
        "ApproximateNumberOfMessagesNotVisible": "2",
        "ApproximateNumberOfMessagesDelayed": "1",
        "CreatedTimestamp": "1700000000",
        "LastModifiedTimestamp": "1700000001",
        "Lavant.DepthMax": "10000000",
        "Lavant.InFlightMax": "120000",
        "Lavant.Labels": '{"of":"others"}',
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "30",
        "SqsManagedSseEnabled": "false",
        "RedrivePolicy": '{"deadLetterTargetArn":"' + ARN + 'dead","maxReceiveCount":3}',
        "Policy": "{}",
    }
    some = ["DelaySeconds", "FifoQueue", "Policy"]
    response = ask(Script(described(config)), "GetQueueAttributes", QueueUrl=QUEUE_URL, AttributeNames=some)
    assert response.json["Attributes"] == {"DelaySeconds": "0", "Policy": "{}"}
    assert ask(Script(described()), "GetQueueAttributes", QueueUrl=QUEUE_URL).json == {}


def test_older_clients_set_and_read_extension_attributes_in_forms_and_xml() -> None:
    broker = Script(described(), Done(), described(QueueConfig(in_flight_max=7, labels={"name": "\uffff"})))
    app = SqsApp(broker.execute)
    form = {"Action": "SetQueueAttributes", "QueueUrl": QUEUE_URL}
    form |= {"Attribute.1.Name": "Lavant.InFlightMax", "Attribute.1.Value": "7"}
    assert asyncio.run(request(app, body=urlencode(form).encode())).status == 200
    assert broker.asked[1] == ConfigureQueue("orders", QueueConfig(in_flight_max=7))
    form = {"Action": "GetQueueAttributes", "QueueUrl": QUEUE_URL, "AttributeName.1": "All"}
    xml = asyncio.run(request(app, body=urlencode(form).encode())).xml
    shown = {each[0].text: each[1].text for each in xml.iterfind("{*}GetQueueAttributesResult/{*}Attribute")}
    assert (shown["Lavant.InFlightMax"], shown["Lavant.Labels"]) == ("7", '{"name":"\\uffff"}')


def test_a_fifo_queue_shows_what_makes_it_one() -> None:
    response = ask(Script(described(FIFO)), "GetQueueAttributes", QueueUrl=QUEUE_URL, AttributeNames=["All"])
    shown = {"FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue"}
    assert response.json["Attributes"].items() >= (shown | {"FifoThroughputLimit": "perQueue"}).items()


def test_an_attribute_that_does_not_exist_cannot_be_asked_for() -> None:
    for name in ("Nothing", "", "SentTimestamp"):
        response = ask(Script(), "GetQueueAttributes", QueueUrl=QUEUE_URL, AttributeNames=["All", name])
        assert (response.code, response.json["message"]) == ("InvalidAttributeName", f"Unknown Attribute {name}.")


def test_setting_attributes_leaves_the_others_alone() -> None:
    config = QueueConfig(visibility_ms=60_000, in_flight_max=7, dead_letters="dead", receives_max=3, labels={"a": "b"})
    broker = Script(described(config), Done())
    attributes = {"DelaySeconds": "9", "RedrivePolicy": "", "Policy": '{"Version": "2012-10-17"}'}
    assert ask(broker, "SetQueueAttributes", QueueUrl=QUEUE_URL, Attributes=attributes).body == b""
    changed = replace(
        config,
        delay_ms=9000,
        dead_letters=None,
        receives_max=None,
        labels={"a": "b", "Policy": '{"Version": "2012-10-17"}'},
    )
    assert broker.asked == [DescribeQueue("orders"), ConfigureQueue("orders", changed)]


def test_setting_a_redrive_policy_looks_at_the_dead_letter_queue() -> None:
    broker = Script(described(), described(), Done())
    assert ask(broker, "SetQueueAttributes", QueueUrl=QUEUE_URL, Attributes={"RedrivePolicy": redrive()}).status == 200
    broker = Script(described(), NO_QUEUE)
    response = ask(broker, "SetQueueAttributes", QueueUrl=QUEUE_URL, Attributes={"RedrivePolicy": redrive()})
    assert "Dead letter target does not exist" in response.json["message"]


def test_nothing_is_set_if_one_attribute_is_bad() -> None:
    attributes = {"DelaySeconds": "9", "VisibilityTimeout": "x"}
    response = ask(Script(described()), "SetQueueAttributes", QueueUrl=QUEUE_URL, Attributes=attributes)
    assert response.code == "InvalidAttributeValue"
    assert ask(Script(), "SetQueueAttributes", QueueUrl=QUEUE_URL, Attributes={}).code == "MissingParameter"
    assert ask(Script(), "SetQueueAttributes", QueueUrl=QUEUE_URL).code == "MissingParameter"
    attributes = {"DelaySeconds": "9"}
    response = ask(Script(NO_QUEUE), "SetQueueAttributes", QueueUrl=QUEUE_URL, Attributes=attributes)
    assert response.code.endswith("NonExistentQueue")


def test_tags_are_added_listed_and_taken_away() -> None:
    broker = Script(described(a="1", b="2"), Done())
    assert ask(broker, "TagQueue", QueueUrl=QUEUE_URL, Tags={"b": "3", "c": ""}).body == b""
    assert broker.asked == [DescribeQueue("orders"), TagQueue("orders", {"a": "1", "b": "3", "c": ""})]
    broker = Script(described(a="1", b="2"), Done())
    assert ask(broker, "UntagQueue", QueueUrl=QUEUE_URL, TagKeys=["b", "none"]).body == b""
    assert broker.asked[1] == TagQueue("orders", {"a": "1"})
    assert ask(Script(described(a="1")), "ListQueueTags", QueueUrl=QUEUE_URL).json == {"Tags": {"a": "1"}}


@pytest.mark.parametrize(
    "tags",
    [{"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {"aws:x": "y"}, {"AWS:x": "y"}, {"\x00": "x"}, {"k": "\x00"}],
)
def test_a_bad_tag_is_refused(tags: dict[str, str]) -> None:
    assert ask(Script(described()), "TagQueue", QueueUrl=QUEUE_URL, Tags=tags).code == "InvalidParameterValue"
    assert ask(Script(), "CreateQueue", QueueName="orders", tags=tags).code == "InvalidParameterValue"


def test_a_queue_has_at_most_fifty_tags() -> None:
    have = described(**{f"t{number}": "x" for number in range(49)})
    assert ask(Script(have, Done()), "TagQueue", QueueUrl=QUEUE_URL, Tags={"one": "x", "t1": "y"}).status == 200
    response = ask(Script(have), "TagQueue", QueueUrl=QUEUE_URL, Tags={"one": "x", "two": "x"})
    assert response.code == "InvalidParameterValue"
    assert ask(Script(), "TagQueue", QueueUrl=QUEUE_URL, Tags={}).code == "MissingParameter"
    assert ask(Script(), "UntagQueue", QueueUrl=QUEUE_URL, TagKeys=[]).code == "MissingParameter"


@pytest.mark.parametrize("action", ["AddPermission", "RemovePermission"])
def test_permissions_are_not_supported_and_say_why(action: str) -> None:
    response = ask(Script(), action, QueueUrl=QUEUE_URL, Label="x", AWSAccountIds=["1"], Actions=["*"])
    assert response.code == "AWS.SimpleQueueService.UnsupportedOperation"
    assert "credentials file" in response.json["message"]
