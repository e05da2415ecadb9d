"""The application: HTTP in, HTTP out, whatever comes in."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.service.aws.sqs.talking import QUEUE_URL, SETTINGS, Response, Script, described, request

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Done, Listed, Refused, Send, Sent, SentEntry
from lavant.core.errors import InvalidValue
from lavant.service.auth.keys import Principal
from lavant.service.aws.sqs.actions import ACTIONS
from lavant.service.aws.sqs.app import SqsApp
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.net.connections import RequestConnection

JSON_TYPE = "application/x-amz-json-1.0"
LISTING = {"x-amz-target": "AmazonSQS.ListQueues"}


def post(broker: Script, body: bytes, settings: SqsSettings = SETTINGS, **options: Any) -> Response:
    return asyncio.run(request(SqsApp(broker.execute, settings), body=body, **options))


def json_post(broker: Script, action: str, body: bytes, **options: Any) -> Response:
    return post(broker, body, headers={"x-amz-target": f"AmazonSQS.{action}", "content-type": JSON_TYPE}, **options)


def test_a_json_answer_has_the_headers_that_sdks_read() -> None:
    response = json_post(Script(Listed(["a"])), "ListQueues", b"{}")
    assert response.status == 200
    assert response.headers["content-type"] == JSON_TYPE
    assert response.headers["content-length"] == str(len(response.body))
    assert len(response.headers["x-amzn-requestid"]) == 36


def test_an_xml_answer_has_the_headers_that_sdks_read() -> None:
    response = post(Script(Listed(["a"])), b"Action=ListQueues&Version=2012-11-05")
    assert (response.status, response.headers["content-type"]) == (200, "text/xml")
    namespace = "{http://queue.amazonaws.com/doc/2012-11-05/}"
    assert response.xml.tag == f"{namespace}ListQueuesResponse"
    assert response.xml.findtext(f".//{namespace}RequestId") == response.headers["x-amzn-requestid"]


def test_every_request_has_an_id_of_its_own() -> None:
    app = SqsApp(Script(*[Listed([])] * 20).execute)

    async def scenario() -> list[Response]:
        return [await request(app, body=b"Action=ListQueues") for _ in range(20)]

    assert len({response.headers["x-amzn-requestid"] for response in asyncio.run(scenario())}) == 20


def test_urls_are_those_by_which_the_server_was_called() -> None:
    response = post(Script(Listed(["a"])), b"Action=ListQueues", headers={"host": "[::1]:9324"})
    assert b"<QueueUrl>http://[::1]:9324/000000000000/a</QueueUrl>" in response.body


@pytest.mark.parametrize("host", ["", "a b", "<script>", "a/b", "x" * 300])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    assert post(Script(), b"Action=ListQueues", headers={"host": host}).code == "InvalidAddress"


def test_the_queue_may_be_named_by_the_path() -> None:
    for path in ("/000000000000/orders", "/queue/orders", "/orders/"):
        broker = Script(Sent([SentEntry(1)]))
        assert post(broker, b"Action=SendMessage&MessageBody=a%20b+c", path=path).status == 200
        (sent,) = broker.asked
        assert isinstance(sent, Send)
        assert (sent.queue, sent.entries[0].body) == ("orders", b"a b c")


@pytest.mark.parametrize("headers", [{}, {"content-type": ""}])
def test_a_request_may_ask_in_its_query(headers: dict[str, str]) -> None:
    broker = Script(Done())
    response = post(broker, b"", path="/1/orders", query="Action=PurgeQueue&Version=2012-11-05", headers=headers)
    assert response.status == 200
    assert b"<PurgeQueueResponse" in response.body


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_nothing_is_done_by_get(action: str) -> None:
    for method in ("GET", "HEAD"):
        response = post(Script(), b"", method=method, path="/1/orders", query=f"Action={action}&QueueName=q")
        assert (response.code, response.status) == ("MethodNotAllowed", 405)


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; x=application/x-www-form-urlencoded", "application/json",
                                  "multipart/form-data; boundary=x", ""])  # fmt: skip
def test_a_body_must_be_of_a_kind_that_clients_of_sqs_send(kind: str) -> None:
    form = post(Script(), b"Action=PurgeQueue&QueueUrl=q", headers={"content-type": kind})
    json = post(Script(), b'{"QueueUrl":"q"}', headers={"content-type": kind, "x-amz-target": "AmazonSQS.PurgeQueue"})
    assert [(each.code, each.status) for each in (form, json)] == [("UnsupportedMediaType", 415)] * 2


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        ({"body": b""}, "MissingAction", 400),
        ({"body": b"Action="}, "MissingAction", 400),
        ({"body": b"Action=Nothing"}, "InvalidAction", 400),
        ({"body": b"Action=SendMessage"}, "MissingParameter", 400),
        ({"body": b"\xff\xfe"}, "MalformedInput", 400),
        ({"body": b"Action=%FF"}, "MalformedInput", 400),
        ({"body": b"&".join(b"a%d=1" % number for number in range(2001))}, "MalformedInput", 400),
        ({"body": b"Action=ListQueues&MaxResults=ten"}, "MalformedInput", 400),
        ({"body": b"Action=ListQueues", "method": "PUT"}, "MethodNotAllowed", 405),
        ({"body": b"", "method": "GET"}, "MethodNotAllowed", 405),
        ({"body": b"{}", "headers": {"content-type": JSON_TYPE}}, "MissingAction", 400),
        ({"body": b"{}", "headers": {"x-amz-target": "AmazonSQS.Nothing"}}, "InvalidAction", 400),
        ({"body": b"{}", "headers": {"x-amz-target": "DynamoDB.ListQueues"}}, "InvalidAction", 400),
        ({"body": b"{}", "headers": {"x-amz-target": "ListQueues"}}, "InvalidAction", 400),
        (
            {"body": b"{}", "method": "GET", "headers": {"x-amz-target": "AmazonSQS.ListQueues"}},
            "MethodNotAllowed",
            405,
        ),
    ],
)
def test_a_request_that_asks_nothing_that_there_is_is_told_so(options: Any, code: str, status: int) -> None:
    response = asyncio.run(request(SqsApp(Script().execute), **options))
    assert (response.code, response.status) == (code, status)
    assert response.headers["x-amzn-query-error"] == f"{code};Sender"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "MalformedInput"),
        (b"{", "MalformedInput"),
        (b"[]", "MalformedInput"),
        (b"null", "MalformedInput"),
        (b'{"QueueUrl": "\xff"}', "MalformedInput"),
        (b'{"QueueUrl": "\\ud800", "MessageBody": "x"}', "MalformedInput"),
        (b'{"QueueUrl": "x", "MessageBody": "\\ud800"}', "MalformedInput"),
        (b'{"QueueUrl": "x", "MessageBody": 5}', "MalformedInput"),
        (b'{"QueueUrl": "x", "MessageBody": "x", "DelaySeconds": 1e999}', "MalformedInput"),
        (b'{"a":' * 5000, "MalformedInput"),
        (b"[" * 100_000, "MalformedInput"),
        (b'{"QueueUrl": "x"}', "MissingParameter"),
        (b'{"QueueUrl": "x", "MessageBody": null}', "MissingParameter"),
        (b"{}", "MissingParameter"),
    ],
)
def test_bad_json_is_told_from_missing_members(body: bytes, code: str) -> None:
    response = json_post(Script(), "SendMessage", body)
    assert (response.status, response.code) == (400, code)
    assert response.json["message"]


def test_a_body_that_comes_in_pieces_is_put_together() -> None:
    broker = Script(Sent([SentEntry(1)]))
    body = b'{"QueueUrl": "%s", "MessageBody": "%s"}' % (QUEUE_URL.encode(), b"x" * 5000)
    assert json_post(broker, "SendMessage", body, chunk_bytes=7).status == 200
    (sent,) = broker.asked
    assert isinstance(sent, Send)
    assert sent.entries[0].body == b"x" * 5000


def test_a_body_that_says_it_is_too_long_is_not_read() -> None:
    async def receive() -> Any:
        raise AssertionError("it was read")

    async def scenario(length: bytes) -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "query_string": b"",
            "headers": [(b"host", b"x"), (b"content-length", length)],
        }
        await SqsApp(Script().execute, SqsSettings(body_bytes_max=100))(scope, receive, send)
        return sent

    for length in (b"101", b"9" * 5000):
        start, _ = asyncio.run(scenario(length))
        assert start["status"] == 413
        assert (b"connection", b"close") in start["headers"]


def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    settings = SqsSettings(body_bytes_max=100)
    response = post(Script(), b"x" * 101, settings, chunk_bytes=10)
    assert (response.status, response.code) == (413, "RequestEntityTooLarge")
    assert response.headers["connection"] == "close"
    assert post(Script(), b"x" * 100, settings, chunk_bytes=10).code == "MissingAction"


def test_a_client_that_hangs_up_in_the_middle_of_its_request_gets_no_answer() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError("there is nobody")

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [(b"host", b"x")]}
    asyncio.run(SqsApp(Script().execute)(scope, receive, send))


@pytest.mark.parametrize("is_json", [True, False])
def test_a_fault_of_the_server_is_logged_and_answered_without_its_details(
    is_json: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def execute(request_: Request, principal: Principal, connection: RequestConnection | None = None) -> Answer:
        raise InvalidValue("the secret inside")

    options: Any = {"body": b"Action=ListQueues"}
    if is_json:
        options = {"body": b"{}", "headers": {"x-amz-target": "AmazonSQS.ListQueues"}}
    with caplog.at_level(logging.ERROR):
        response = asyncio.run(request(SqsApp(execute), **options))
    assert (response.status, response.code) == (500, "InternalFailure")
    assert b"secret" not in response.body
    assert "the secret inside" in caplog.text
    assert response.headers["x-amzn-requestid"] in caplog.text


def test_an_answer_of_the_wrong_type_is_a_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    response = json_post(Script(Done()), "ListQueues", b"{}")
    assert response.status == 500
    assert "ListQueues was answered by Done" in caplog.text


def test_only_http_is_spoken() -> None:
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    with pytest.raises(NotImplementedError, match="websocket"):
        asyncio.run(SqsApp(Script().execute)({"type": "websocket"}, nothing, nothing))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = sorted({name for action in ACTIONS.values() for name in action.request.__struct_encode_fields__})


async def refusing(request_: Request, principal: Principal, connection: RequestConnection | None = None) -> Answer:
    return Refused("UnknownQueue", "nothing is here")


@settings(max_examples=300)
@given(st.sampled_from(sorted(ACTIONS)), st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES, max_size=6))
def test_whatever_json_comes_in_the_answer_is_an_error_of_the_sender(action: str, members: Any) -> None:
    body = json.dumps(members).encode()
    response = asyncio.run(
        request(SqsApp(refusing, SETTINGS), headers={"x-amz-target": f"AmazonSQS.{action}"}, body=body)
    )
    assert 400 <= response.status < 500
    assert response.headers["x-amzn-query-error"].endswith(";Sender")


FORM_LEVELS = (
    *("Entries", "Attribute", "MessageAttribute", "Tag", "TagKey", "SendMessageBatchRequestEntry"),
    *("QueueUrl", "QueueName", "Id", "MessageBody", "Name", "Key", "Value", "x", "", "0", "1", "2", "99999999"),
)
FORM_NAMES = st.lists(st.sampled_from(FORM_LEVELS), min_size=1, max_size=10).map(".".join)


@settings(max_examples=300)
@given(st.sampled_from(sorted(ACTIONS)), st.dictionaries(FORM_NAMES, st.text(max_size=5), max_size=6))
def test_whatever_form_comes_in_the_answer_is_an_error_of_the_sender(action: str, form: dict[str, str]) -> None:
    body = urlencode({"Action": action} | form).encode()
    response = asyncio.run(request(SqsApp(refusing, SETTINGS), body=body))
    assert 400 <= response.status < 500
    assert response.xml.tag.endswith("ErrorResponse")


@given(st.binary(max_size=200))
def test_whatever_bytes_come_in_the_answer_is_an_error_of_the_sender(body: bytes) -> None:
    for headers in ({}, {"x-amz-target": "AmazonSQS.SendMessage"}):
        response = asyncio.run(request(SqsApp(refusing, SETTINGS), headers=headers, body=body))
        assert 400 <= response.status < 500


@pytest.mark.parametrize(
    "bad",
    [
        {"region": ""},
        {"region": "US East"},
        {"account": "1"},
        {"account": "00000000000x"},
        {"salt": b"x" * 65},
        {"base_url": "queues.example"},
        {"base_url": "http://queues.example/"},
        {"base_url": "http://queues.example?x"},
        {"body_bytes_max": 0},
    ],
)
def test_bad_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        SqsSettings(**bad)


def test_changes_of_one_queue_at_the_same_time_are_done_one_after_the_other() -> None:
    tags: dict[str, str] = {}

    async def execute(request_: Any, principal: Principal, connection: RequestConnection | None = None) -> Answer:
        await asyncio.sleep(0)  # others get their turn between reading and writing
        if hasattr(request_, "tags"):
            tags.clear()
            tags.update(request_.tags)
            return Done()
        return described(**tags)

    async def scenario() -> None:
        app = SqsApp(execute, SETTINGS)
        await asyncio.gather(
            *(
                request(app, path="/1/orders", body=f"Action=TagQueue&Tag.1.Key=t{number}&Tag.1.Value=x".encode())
                for number in range(10)
            )
        )

    asyncio.run(scenario())
    assert sorted(tags) == [f"t{number}" for number in range(10)]
