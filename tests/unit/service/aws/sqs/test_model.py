"""Requests and results against the service's model, which SDKs go by: their serializers and parsers are the oracle."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.aws.sqs.query_model import query_model
from tests.unit.service.aws.sqs.talking import service_model

from lavant.service.aws.http import HttpRequest
from lavant.service.aws.protocols import JSON, QUERY
from lavant.service.aws.sqs import results
from lavant.service.aws.sqs.actions import ACTIONS
from lavant.service.aws.sqs.errors import FAULTS, SqsError

NOT_READ = {
    "AddPermission": {"AWSAccountIds", "Actions"},
    "GetQueueUrl": {"QueueOwnerAWSAccountId"},
}
"""Members that make no difference here."""
NOT_GIVEN = {"MessageAttributeValue": {"StringListValues", "BinaryListValues"}}

ENTRIES = {
    "failed": [results.BatchResultErrorEntry("b", True, "Code", "why <&> not")],
}
EXAMPLES: dict[str, msgspec.Struct] = {
    "CancelMessageMoveTask": results.CancelMessageMoveTaskResult(0),
    "ChangeMessageVisibilityBatch": results.BatchResult([results.BatchResultEntry("a")], **ENTRIES),
    "CreateQueue": results.QueueUrlResult("http://x/1/q"),
    "DeleteMessageBatch": results.BatchResult(
        [results.BatchResultEntry("a"), results.BatchResultEntry("c")], **ENTRIES
    ),
    "GetQueueAttributes": results.GetQueueAttributesResult({"DelaySeconds": "0", "Policy": '{"a": "<b>"}'}),
    "GetQueueUrl": results.QueueUrlResult("http://x/1/q"),
    "ListDeadLetterSourceQueues": results.ListDeadLetterSourceQueuesResult(["http://x/1/q", "http://x/1/r"], "token"),
    "ListMessageMoveTasks": results.ListMessageMoveTasksResult(
        [results.ListMessageMoveTasksResultEntry("FAILED", "arn:s", 1, 2, 3, "handle", "arn:d", 4, "why")]
    ),
    "ListQueueTags": results.ListQueueTagsResult({"team": "red", "empty": ""}),
    "ListQueues": results.ListQueuesResult(["http://x/1/q", "http://x/1/r"], "token"),
    "ReceiveMessage": results.ReceiveMessageResult(
        [
            results.SqsMessage(
                "id",
                "handle",
                "md5",
                "line\r\n<&>\t\"'é🙂",
                {"SenderId": "0", "SentTimestamp": "1"},
                "md5 too",
                {
                    "text": results.ResultAttributeValue("String.label", "a\rb"),
                    "bytes": results.ResultAttributeValue("Binary", binary_value=b"\x00\xff"),
                },
            ),
            results.SqsMessage("id2", "handle2", "md5", "body"),
        ]
    ),
    "SendMessage": results.SendMessageResult("id", "md5", "md5a", "md5s", "1"),
    "SendMessageBatch": results.SendMessageBatchResult(
        [results.SendMessageBatchResultEntry("a", "id", "md5", "md5a", "md5s", "1")], **ENTRIES
    ),
    "StartMessageMoveTask": results.StartMessageMoveTaskResult("handle"),
}


def parsed(model: ServiceModel, action: str, body: bytes, status: int = 200, **headers: str) -> dict[str, Any]:
    operation = model.operation_model(action)
    response = {"status_code": status, "headers": headers, "body": body}
    return create_parser(model.metadata["protocol"]).parse(response, operation.output_shape)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """A result as an SDK shows it: bytes stay bytes."""
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def test_every_action_of_the_model_is_there_and_no_other() -> None:
    assert sorted(ACTIONS) == sorted(service_model().operation_names)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_request_has_the_members_of_the_model(action: str) -> None:
    shape = service_model().operation_model(action).input_shape
    fields = msgspec.structs.fields(ACTIONS[action].request)
    assert {field.encode_name for field in fields} == set(shape.members) - NOT_READ.get(action, set())
    assert {field.encode_name for field in fields if field.required} == set(shape.required_members) - NOT_READ.get(
        action, set()
    )


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_result_has_the_members_of_the_model(action: str) -> None:
    shape = service_model().operation_model(action).output_shape
    assert (shape is None) == (action not in EXAMPLES)
    if shape is not None:
        assert_same_members(EXAMPLES[action], shape)


def assert_same_members(value: Any, shape: Shape) -> None:
    if isinstance(shape, StructureShape):
        names = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        assert set(names) == set(shape.members) - NOT_GIVEN.get(shape.name, set())
        for member, member_shape in shape.members.items():
            if member in names:
                assert_same_members(getattr(value, names[member]), member_shape)
    elif isinstance(shape, ListShape):
        for item in value:
            assert_same_members(item, shape.member)
    elif isinstance(shape, MapShape):
        for item in value.values():
            assert_same_members(item, shape.value)


@pytest.mark.parametrize("action", sorted(EXAMPLES))
def test_an_sdk_reads_a_json_result_as_it_was_meant(action: str) -> None:
    body = JSON.encode_result(ACTIONS[action], EXAMPLES[action], "request")
    found = parsed(service_model(), action, body)
    assert found.pop("ResponseMetadata")["HTTPStatusCode"] == 200
    assert found == plain(EXAMPLES[action])


@pytest.mark.parametrize("action", sorted(EXAMPLES))
def test_an_older_sdk_reads_an_xml_result_as_it_was_meant(action: str) -> None:
    body = QUERY.encode_result(ACTIONS[action], EXAMPLES[action], "request")
    found = parsed(query_model(), action, body)
    assert found.pop("ResponseMetadata")["RequestId"] == "request"
    assert found == plain(EXAMPLES[action])


@pytest.mark.parametrize("action", ["ReceiveMessage", "SendMessageBatch", "ListQueues", "GetQueueAttributes"])
def test_what_is_empty_is_left_out(action: str) -> None:
    empty = type(EXAMPLES[action])()
    assert JSON.encode_result(ACTIONS[action], empty, "") == b"{}"
    found = parsed(query_model(), action, QUERY.encode_result(ACTIONS[action], empty, "r"))
    assert set(found) == {"ResponseMetadata"}


@pytest.mark.parametrize("action", sorted(set(ACTIONS) - set(EXAMPLES)))
def test_an_action_without_result_answers_nothing(action: str) -> None:
    assert JSON.encode_result(ACTIONS[action], None, "") == b""
    found = parsed(query_model(), action, QUERY.encode_result(ACTIONS[action], None, "request"))
    assert found == {"ResponseMetadata": {"RequestId": "request", "HTTPStatusCode": 200, "HTTPHeaders": {}}}


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_an_sdk_reads_an_error_as_it_was_meant(kind: str) -> None:
    error = SqsError(kind, "what <was> wrong")
    fault = error.fault
    who = "Sender" if fault.is_senders else "Receiver"
    headers = {"x-amzn-query-error": f"{fault.code};{who}"}
    found = parsed(service_model(), "SendMessage", JSON.encode_error(error, "request"), fault.status, **headers)
    assert found["Error"] == {
        "Code": fault.code,
        "QueryErrorCode": fault.type.partition("#")[2],
        "Message": "what <was> wrong",
        "Type": who,
    }
    found = parsed(query_model(), "SendMessage", QUERY.encode_error(error, "request"), fault.status)
    assert found["ResponseMetadata"]["RequestId"] == "request"
    assert {name: found["Error"][name] for name in ("Code", "Message", "Type")} == {
        "Code": fault.code,
        "Message": "what <was> wrong",
        "Type": who,
    }


def test_faults_of_the_service_are_those_of_the_model() -> None:
    shapes = set(service_model().shape_names)
    not_modelled = {"InvalidParameterValueException", "MissingRequiredParameterException", "QueueMoved"}
    own = {fault.type.partition("#")[2] for fault in FAULTS.values() if fault.type.startswith("com.amazonaws.sqs#")}
    assert own - not_modelled <= shapes
    errors = {shape for shape in shapes if service_model().shape_for(shape).metadata.get("exception")}
    # Of encryption, of other accounts, and of what does not happen here.
    never = {name for name in errors if name.startswith("Kms")} | {
        "InvalidIdFormat",
        "InvalidSecurity",
        "PurgeQueueInProgress",
        "QueueDeletedRecently",
        "RequestThrottled",
    }
    assert errors - never == own - not_modelled


def test_an_error_text_in_xml_is_xml_whatever_was_sent() -> None:
    body = QUERY.encode_error(SqsError("InvalidAction", "bell \x07, \ufffe, <tag>"), "request")
    assert parsed(query_model(), "SendMessage", body, 400)["Error"]["Message"] == "bell \ufffd, \ufffd, <tag>"


# ── requests that an SDK makes, decoded ───────────────────────────────────────────────────────────────────────────────

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
KEYS = st.text("abcXYZ019_.-", min_size=1, max_size=8)


def values(shape: Shape) -> st.SearchStrategy[Any]:
    """What a caller of an SDK may pass for a shape."""
    if isinstance(shape, StructureShape):
        members = {name: values(member) for name, member in shape.members.items()}
        required = {name: members.pop(name) for name in shape.required_members}
        return st.fixed_dictionaries(required, optional=members)
    if isinstance(shape, ListShape):
        return st.lists(values(shape.member), min_size=1, max_size=3)
    if isinstance(shape, MapShape):
        return st.dictionaries(KEYS, values(shape.value), min_size=1, max_size=3)
    if shape.type_name == "blob":
        return st.binary(min_size=1, max_size=8)
    if shape.type_name in ("integer", "long"):
        return st.integers(-5, 100_000)
    assert shape.type_name == "string", shape.type_name
    return TEXT


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def as_sent(action: str, params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name not in NOT_READ.get(action, set())}


@pytest.mark.parametrize("action", sorted(ACTIONS))
@settings(max_examples=15)
@given(data=st.data())
def test_a_json_request_of_an_sdk_is_read_as_it_was_meant(action: str, data: st.DataObject) -> None:
    operation = service_model().operation_model(action)
    params = data.draw(values(operation.input_shape))
    serialized = create_serializer("json").serialize_to_request(params, operation)
    assert serialized["headers"]["X-Amz-Target"] == f"AmazonSQS.{action}"
    request = ACTIONS[action].decode_json(serialized["body"])
    assert without_nulls(plain(request)) == as_sent(action, params)


@pytest.mark.parametrize("action", sorted(ACTIONS))
@settings(max_examples=15)
@given(data=st.data())
def test_a_query_request_of_an_older_sdk_is_read_as_it_was_meant(action: str, data: st.DataObject) -> None:
    operation = query_model().operation_model(action)
    params = data.draw(values(operation.input_shape))
    serialized = create_serializer("query").serialize_to_request(params, operation)
    response = decode_query(urlencode(serialized["body"]).encode())
    assert response[0] == action
    assert without_nulls(plain(response[1])) == as_sent(action, params)


def decode_query(form: bytes, path: str = "/") -> tuple[str, Any]:
    headers = {b"content-type": b"application/x-www-form-urlencoded"}
    action, request = QUERY.decode(HttpRequest("POST", path, path, b"", headers, [], form))
    return action.name, request
