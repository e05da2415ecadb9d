"""Forms of the query protocol, beyond those that SDKs make."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lavant.service.aws.http import HttpRequest
from lavant.service.aws.protocols import QUERY
from lavant.service.aws.sqs.errors import SqsError

FORM = {b"content-type": b"application/x-www-form-urlencoded"}


def decode(form: str, path: str = "/") -> dict[str, Any]:
    action, request = QUERY.decode(HttpRequest("POST", path, path, b"", FORM, [], form.encode()))
    plain = msgspec.to_builtins(request, builtin_types=(bytes,))
    return {"Action": action.name} | {name: value for name, value in plain.items() if value is not None}


def test_numbers_order_a_list_whatever_the_order_of_the_fields() -> None:
    form = "Action=UntagQueue&QueueUrl=q&TagKey.10=c&TagKey.2=b&TagKey.1=a"
    assert decode(form)["TagKeys"] == ["a", "b", "c"]


def test_one_value_needs_no_number() -> None:
    assert decode("Action=UntagQueue&QueueUrl=q&TagKey=a")["TagKeys"] == ["a"]
    form = "Action=SetQueueAttributes&QueueUrl=q&Attribute.Name=DelaySeconds&Attribute.Value=5"
    assert decode(form)["Attributes"] == {"DelaySeconds": "5"}


def test_plural_names_are_understood() -> None:
    form = "Action=ReceiveMessage&QueueUrl=q&MessageAttributeNames.1=All&AttributeNames.1=SenderId"
    assert decode(form).items() >= {"MessageAttributeNames": ["All"], "AttributeNames": ["SenderId"]}.items()


def test_values_keep_their_look_where_they_are_text() -> None:
    for text in ("null", "true", "5", "1e3", ""):
        form = f"Action=SendMessage&QueueUrl=q&MessageBody={text}&MessageGroupId={text}&DelaySeconds=7"
        found = decode(form)
        assert (found["MessageBody"], found["MessageGroupId"], found["DelaySeconds"]) == (text, text, 7)


def test_the_queue_in_the_form_comes_before_the_one_in_the_path() -> None:
    assert decode("Action=PurgeQueue&QueueUrl=form", "/1/path")["QueueUrl"] == "form"
    assert decode("Action=PurgeQueue", "/1/path")["QueueUrl"] == "/1/path"


def test_a_batch_without_entries_is_an_empty_batch() -> None:
    assert decode("Action=DeleteMessageBatch&QueueUrl=q")["Entries"] == []


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("Action=UntagQueue&QueueUrl=q&TagKey.x=a", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.-1=a", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.99999999999=a", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.10001=a", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl=q&TagKey=a&TagKey.1=b", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl=q&TagKey.1=b&TagKey=a", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl.x=q&TagKey=a", "MalformedInput"),
        ("Action=TagQueue&QueueUrl=q&Tag.1.Key=a", "MissingParameter"),
        ("Action=TagQueue&QueueUrl=q&Tag.1.Value=a", "MissingParameter"),
        ("Action=TagQueue&QueueUrl=q&Tag.1=a", "MissingParameter"),
        ("Action=TagQueue&QueueUrl=q&Tag=a", "MissingParameter"),
        ("Action=TagQueue&QueueUrl=q&Tag.1.Key.x=a&Tag.1.Value=a", "MissingParameter"),
        ("Action=TagQueue&QueueUrl=q&Tag.1.Key=a&Tag.1.Value.x=a", "MalformedInput"),
        ("Action=UntagQueue&QueueUrl=q", "MissingParameter"),
        ("Action=SendMessage&QueueUrl=q&MessageBody=x&DelaySeconds=1.5x", "MalformedInput"),
        ("Action=SendMessage&QueueUrl=q&MessageBody=x&" + "a." * 100_000 + "a=1&Tag.x=y", "MalformedInput"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(form: str, kind: str) -> None:
    with pytest.raises(SqsError) as caught:
        decode(form)
    assert caught.value.kind == kind


def test_what_nobody_asked_for_is_ignored() -> None:
    deep = "a." * 100_000
    assert decode(f"Action=PurgeQueue&QueueUrl=q&Version=2012-11-05&AWSAccessKeyId=x&{deep}=1")["QueueUrl"] == "q"
