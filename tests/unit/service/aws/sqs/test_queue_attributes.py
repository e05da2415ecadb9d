"""A queue's attributes and redrive policies: every bound, both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.aws.sqs.talking import service_model

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.sqs.queue_attributes import (
    NAMES,
    Redrive,
    changed_config,
    check_allow_policy,
    is_allowed,
    new_config,
    parse_policy,
    settable_attributes,
)

FIFO = QueueConfig(order="in-order")


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{queue}"


def test_the_names_are_those_of_the_model_and_our_own_begin_with_ours() -> None:
    assert set(service_model().shape_for("QueueAttributeName").enum) == {
        name for name in NAMES if not name.startswith("Lavant.")
    }


def test_labels_of_other_protocols_are_an_attribute_of_their_own() -> None:
    config = changed_config(QueueConfig(), {"Lavant.Labels": '{"team": "tea"}', "Policy": "{}"})
    assert config.labels == {"team": "tea", "Policy": "{}"}
    shown = settable_attributes(config, arn)
    assert (shown["Lavant.Labels"], shown["Policy"]) == ('{"team":"tea"}', "{}")
    assert changed_config(config, {"Lavant.Labels": ""}).labels == {"Policy": "{}"}
    for bad in ("[]", '{"team": 1}', '{"Policy": "{}"}'):
        with pytest.raises(SqsError, match=r"Lavant\.Labels"):
            changed_config(config, {"Lavant.Labels": bad})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1024, 1048576),
        ("MessageRetentionPeriod", 60, 1209600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43200),
        ("KmsDataKeyReusePeriodSeconds", 60, 86400),
    ],
)
def test_a_number_has_the_documented_bounds(name: str, low: int, high: int) -> None:
    for good in (low, high):
        shown = settable_attributes(changed_config(QueueConfig(), {name: str(good)}), arn)
        assert shown[name] == str(good)
    for bad in (str(low - 1), str(high + 1), "1.5", "ten", "1e2", "٣", "9" * 5000, " 60", "+60"):
        with pytest.raises(SqsError) as caught:
            changed_config(QueueConfig(), {name: bad})
        assert (caught.value.kind, name in caught.value.message) == ("InvalidAttributeValue", True)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Policy", '{"Version": "2012-10-17"}', "no JSON"),
        ("Policy", "{}", "[]"),
        ("Policy", "{}", "[" * 100_000),
        ("KmsMasterKeyId", "alias/aws/sqs", "x" * 8193),
        ("KmsMasterKeyId", "alias/aws/sqs", "bell\x07"),
        ("SqsManagedSseEnabled", "true", "yes"),
        ("RedriveAllowPolicy", '{"redrivePermission": "denyAll"}', "{}"),
    ],
)
def test_what_is_only_kept_is_checked_kept_and_given_back(name: str, good: str, bad: str) -> None:
    config = changed_config(QueueConfig(), {name: good})
    assert settable_attributes(config, arn)[name] == good
    assert config.labels == {name: good}
    assert changed_config(config, {name: ""}).labels == {}
    with pytest.raises(SqsError):
        changed_config(QueueConfig(), {name: bad})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ContentBasedDeduplication", "true", "TRUE"),
        ("DeduplicationScope", "messageGroup", "group"),
        ("FifoThroughputLimit", "perQueue", "none"),
        ("FifoQueue", "true", "false"),
    ],
)
def test_what_only_fifo_queues_have(name: str, good: str, bad: str) -> None:
    assert settable_attributes(changed_config(FIFO, {name: good}), arn)[name] == good
    with pytest.raises(SqsError) as caught:
        changed_config(FIFO, {name: bad})
    assert caught.value.kind == "InvalidAttributeValue"
    with pytest.raises(SqsError) as caught:
        changed_config(QueueConfig(), {name: good})
    assert caught.value.kind == "InvalidAttributeName"


def test_throughput_per_group_goes_with_deduplication_per_group() -> None:
    both = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    assert changed_config(FIFO, both).deduplicate_within_group
    with pytest.raises(SqsError):
        changed_config(FIFO, {"FifoThroughputLimit": "perMessageGroupId"})
    with pytest.raises(SqsError):
        changed_config(changed_config(FIFO, both), {"DeduplicationScope": "queue"})


def test_there_is_one_kind_of_encryption_at_a_time() -> None:
    with pytest.raises(SqsError, match="one type of server-side encryption"):
        changed_config(QueueConfig(), {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": "key"})
    assert changed_config(QueueConfig(), {"SqsManagedSseEnabled": "false", "KmsMasterKeyId": "key"})


@given(st.booleans(), st.data())
def test_what_a_queue_shows_creates_the_same_queue(is_fifo: bool, data: st.DataObject) -> None:
    fifo: dict[str, str] = {"FifoQueue": "true"} if is_fifo else {}
    choices = {
        "DelaySeconds": st.integers(0, 900),
        "VisibilityTimeout": st.integers(0, 43200),
        "MaximumMessageSize": st.integers(1024, 1048576),
        "Policy": st.just('{"a": 1}'),
        "RedrivePolicy": st.just(json.dumps({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 7})),
    }
    if is_fifo:
        choices["ContentBasedDeduplication"] = st.sampled_from(["true", "false"])
        choices["DeduplicationScope"] = st.sampled_from(["queue", "messageGroup"])
    drawn = data.draw(st.fixed_dictionaries({}, optional=choices))
    config = new_config(fifo | {name: str(value) for name, value in drawn.items()}, is_fifo=is_fifo)
    again = new_config(settable_attributes(config, arn), is_fifo=is_fifo)
    assert settable_attributes(again, arn) == settable_attributes(config, arn)


@pytest.mark.parametrize("count", [1, 1000, "1", "1000"])
def test_a_redrive_policy_names_a_queue_and_a_count(count: object) -> None:
    text = json.dumps({"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:123456789012:dead", "maxReceiveCount": count})
    assert parse_policy(text) == Redrive("dead", int(str(count)))


@pytest.mark.parametrize(
    "policy",
    [
        "nonsense",
        "[]",
        "{}",
        {"deadLetterTargetArn": arn("dead")},
        {"maxReceiveCount": 3},
        {"deadLetterTargetArn": "dummy", "maxReceiveCount": 3},
        {"deadLetterTargetArn": "arn:aws:sns:us-east-1:000000000000:dead", "maxReceiveCount": 3},
        {"deadLetterTargetArn": arn(""), "maxReceiveCount": 3},
        {"deadLetterTargetArn": None, "maxReceiveCount": 3},
        {"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 0},
        {"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1001},
        {"deadLetterTargetArn": arn("dead"), "maxReceiveCount": -1},
        {"deadLetterTargetArn": arn("dead"), "maxReceiveCount": "three"},
        {"deadLetterTargetArn": arn("dead"), "maxReceiveCount": "9" * 5000},
        {"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1.5},
    ],
)
def test_a_bad_redrive_policy_is_refused(policy: object) -> None:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    with pytest.raises(SqsError, match="RedrivePolicy") as caught:
        parse_policy(text)
    assert caught.value.kind == "InvalidParameterValue"


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "some"},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {"redrivePermission": "allowAll", "sourceQueueArns": [arn("a")]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [arn("a")] * 11},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["a"]},
    ],
)
def test_a_bad_redrive_allow_policy_is_refused(policy: object) -> None:
    with pytest.raises(SqsError, match="RedriveAllowPolicy"):
        check_allow_policy(json.dumps(policy))


def test_who_may_send_dead_letters() -> None:
    by_queue = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn("a"), arn("b")]})
    check_allow_policy(by_queue)
    assert is_allowed(None, "c")
    assert is_allowed('{"redrivePermission": "allowAll"}', "c")
    assert not is_allowed('{"redrivePermission": "denyAll"}', "a")
    assert [is_allowed(by_queue, queue) for queue in "abc"] == [True, True, False]
