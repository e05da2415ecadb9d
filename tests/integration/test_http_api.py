"""Publish, subscribe and receive over HTTP, with a real server: what works, what is refused, and bad manners."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.talking_http import Talker

# ── the way of a publication ──────────────────────────────────────────────────────────────────────────────────────────


def test_what_matches_is_received_once_it_is_acknowledged_it_is_gone(talker: Talker) -> None:
    talker.subscribe("dear", "kind = 'way' and price > 100")
    talker.publish({"kind": "way", "price": 99}, {"kind": "way", "price": 101, "@id": "mine", "@time_ms": 5})
    [message] = talker.receive("dear")
    assert message["publication"] == {"kind": "way", "price": 101, "@id": "mine", "@time_ms": 5}
    assert message["attempt"] == 1
    assert talker.held("dear") == (0, 1)
    talker.acknowledge("dear", [message])
    assert talker.held("dear") == (0, 0)


def test_what_is_given_back_comes_again_at_once(talker: Talker) -> None:
    talker.subscribe("returns", "kind = 'returns'")
    talker.publish({"kind": "returns"})
    [message] = talker.receive("returns")
    answered = talker.ask("POST", "/subscriptions/returns/acknowledge", {"give_back": [message["receipt"]]})
    assert answered.status == 200
    [again] = talker.receive("returns")
    assert (again["id"], again["attempt"]) == (message["id"], 2)
    late = talker.ask("POST", "/subscriptions/returns/acknowledge", {"receipts": [message["receipt"]]})
    assert [each["code"] for each in late.json["refused"]] == ["StaleReceipt"]


@pytest.mark.parametrize(
    ("kind", "body", "accepted"),
    [
        ("application/json", b'{"kind": "forms", "n": 1}', 1),
        ("application/json; charset=utf-8", b' [{"kind": "forms"}, {"kind": "forms"}] ', 2),
        ("application/x-ndjson", b'{"kind": "forms"}\n\n{"kind": "forms"}\r\n{"kind": "forms"}', 3),
        ("application/jsonl", b'{"kind": "forms"}\n', 1),
        (
            "application/cloudevents+json",
            b'{"specversion": "1.0", "id": "e", "source": "s", "type": "t", "kind": "forms"}',
            1,
        ),
        (
            "application/cloudevents-batch+json",
            b'[{"specversion": "1.0", "id": "e", "source": "s", "type": "t", "kind": "forms"}]',
            1,
        ),
    ],
)
def test_publications_come_in_many_forms(talker: Talker, kind: str, body: bytes, accepted: int) -> None:
    talker.ask("POST", "/subscriptions", {"name": "forms", "filter": "kind = 'forms'"})
    answered = talker.ask("POST", "/publish", body, kind=kind)
    assert (answered.status, answered.json["accepted"], answered.json["refused"]) == (202, accepted, [])
    assert len(talker.drain("forms")) == accepted


def test_a_cloud_event_in_headers_has_its_data_in_the_body(talker: Talker) -> None:
    talker.subscribe("binary", "type = 'sold' and price > 1 and till = '7'")
    headers = {"ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/shop%20a", "ce-type": "sold", "ce-till": "7"}
    said = {name.replace("-", "_"): value for name, value in headers.items()}
    answered = talker.ask("POST", "/publish", {"price": 3}, ce_time="2026-02-28T09:30:00Z", **said)
    assert answered.json["ids"] == ["e1"]
    assert talker.drain("binary") == [
        {
            "source": "/shop a",
            "type": "sold",
            "till": "7",
            "datacontenttype": "application/json",
            "price": 3,
            "@id": "e1",
            "@time_ms": 1772271000000,
        }
    ]


def test_some_may_be_refused_and_the_rest_is_accepted(talker: Talker) -> None:
    answered = talker.ask("POST", "/publish", [{"a": 1}, 7, {"a": [1]}, {"@id": "x" * 200}, {"b": 2, "@id": "last"}])
    assert answered.status == 202
    said = answered.json
    assert (said["accepted"], said["ids"][1:]) == (2, [None, None, None, "last"])
    assert [(each["index"], each["code"]) for each in said["refused"]] == [(n, "InvalidValue") for n in (1, 2, 3)]


def test_a_request_with_the_same_key_is_not_done_twice(talker: Talker) -> None:
    talker.subscribe("twice", "kind = 'twice'")
    answers = [
        talker.ask("POST", "/publish", [{"kind": "twice"}, {"kind": "twice"}], Idempotency_Key="k1") for _ in range(3)
    ]
    assert len({answered.body for answered in answers}) == 1
    talker.ask("POST", "/publish", {"kind": "twice"}, Idempotency_Key="k2")
    assert len(talker.drain("twice")) == 3


def test_a_key_with_another_body_is_refused_also_after_a_crash(tmp_path: Path) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    ways = {
        "application/json": ({"kind": "one"}, {"kind": "other"}),
        "application/cloudevents+json": (event, {**event, "source": "/other"}),
    }
    with Served(tmp_path) as server, Talker(server) as talker:
        talker.subscribe("all", "exists(kind) or exists(source)")
        before = [_said_with_one_key(talker, kind, *bodies) for kind, bodies in ways.items()]
        server.kill()
    with Served(tmp_path) as server, Talker(server) as talker:
        after = [_said_with_one_key(talker, kind, *bodies) for kind, bodies in ways.items()]
        assert len(talker.drain("all")) == 2
    assert before == after


def _said_with_one_key(talker: Talker, kind: str, body: Any, other: Any) -> bytes:
    """What the first request was answered; another one is refused, and the first is answered alike once more."""
    key = f"key of {kind}"
    said = [talker.ask("POST", "/publish", each, kind=kind, Idempotency_Key=key) for each in (body, other, body)]
    assert [each.status for each in said] == [202, 422, 202]
    assert said[1].json["error"]["code"] == "IdempotencyConflict"
    assert said[0].body == said[2].body
    return said[0].body


def test_a_receive_waits_for_what_comes(talker: Talker, brisk: Served) -> None:
    talker.subscribe("waits", "kind = 'waits'")
    before = brisk.fresh_metric("lavant_waiting_receives")
    found: list[Any] = []
    waiter = threading.Thread(target=_wait, args=(brisk, "waits", found))
    waiter.start()
    brisk.wait_for_metric("lavant_waiting_receives", before + 1)
    talker.publish({"kind": "waits"})
    waiter.join(WAIT_S_MAX)
    assert [len(messages) for messages in found] == [1]


def test_a_client_that_left_gets_nothing(talker: Talker, brisk: Served) -> None:
    talker.subscribe("left", "kind = 'left'")
    before = brisk.fresh_metric("lavant_waiting_receives")
    with socket.create_connection((brisk.host, brisk.port), timeout=WAIT_S_MAX) as connection:
        body = b'{"wait_ms": 20000}'
        connection.sendall(
            b"POST /subscriptions/left/receive HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        brisk.wait_for_metric("lavant_waiting_receives", before + 1)
    brisk.wait_for_metric("lavant_waiting_receives", before)
    talker.publish({"kind": "left"})
    assert [message["attempt"] for message in talker.receive("left")] == [1]


# ── subscriptions and advertisements ──────────────────────────────────────────────────────────────────────────────────


def test_the_same_again_is_no_conflict_and_another_is(talker: Talker) -> None:
    wanted = {"name": "same", "filter": "a = 1", "settings": {"visibility_ms": 5000}}
    assert [talker.ask("POST", "/subscriptions", wanted).status for _ in range(2)] == [201, 200]
    other = talker.ask("POST", "/subscriptions", {**wanted, "filter": "a = 2"})
    assert (other.status, other.code) == (409, "DuplicateSubscription")
    assert talker.ask("DELETE", "/subscriptions/same").status == 204
    assert talker.ask("DELETE", "/subscriptions/same").status == 404
    assert talker.ask("GET", "/subscriptions/same").code == "UnknownSubscription"


def test_a_filter_changes_unless_somebody_else_was_faster(talker: Talker) -> None:
    talker.subscribe("tuned", "kind = 'tuned' and n > 0")
    talker.publish({"kind": "tuned", "n": 1})
    path, wanted = "/subscriptions/tuned", {"filter": "kind = 'tuned' and n < 0"}
    tag = talker.ask("GET", path).headers["ETag"]
    assert talker.ask("GET", path, If_None_Match=tag).status == 304
    updated = talker.ask("PATCH", path, wanted, If_Match=tag)
    assert (updated.status, updated.json["filter"], updated.json["messages"]["visible"]) == (200, wanted["filter"], 1)
    late = talker.ask("PATCH", path, {"filter": "n = 5"}, If_Match=tag)
    assert (late.status, late.code) == (412, "PreconditionFailed")
    assert talker.ask("GET", path).headers["ETag"] == updated.headers["ETag"] != tag
    talker.publish({"kind": "tuned", "n": 2}, {"kind": "tuned", "n": -1})
    assert [each["publication"]["n"] for each in talker.receive("tuned", count=5)] == [1, -1]
    assert talker.ask("PATCH", path, {"filter": "n >"}).code == "FilterSyntaxError"
    assert talker.ask("PATCH", path, {"filter": "n > 1", "name": "other"}).status == 400
    assert talker.ask("PATCH", "/subscriptions/nosuch", wanted).status == 404


def test_many_subscriptions_come_in_one_request(talker: Talker) -> None:
    wanted = [{"name": f"many-{n}", "filter": f"n = {n}"} for n in range(5)]
    answered = talker.ask("POST", "/subscriptions", [*wanted, {"name": "many-x", "filter": "n >"}])
    assert answered.status == 201
    assert [each and each["name"] for each in answered.json["subscriptions"]] == [*(w["name"] for w in wanted), None]
    assert [(each["index"], each["code"]) for each in answered.json["refused"]] == [(5, "FilterSyntaxError")]
    assert talker.ask("POST", "/subscriptions", wanted).status == 200
    names, after = [], ""
    while after is not None:
        page = talker.ask("GET", f"/subscriptions?prefix=many-&limit=2&after={after}").json
        names += [each["name"] for each in page["subscriptions"]]
        after = page["next"]
    assert names == [f"many-{n}" for n in range(5)]


def test_a_mistake_in_a_filter_is_pointed_at(talker: Talker) -> None:
    answered = talker.ask("POST", "/subscriptions", {"filter": "price >> 3"})
    assert (answered.status, answered.code) == (400, "FilterSyntaxError")
    assert "\n  price >> 3\n         ^" in answered.json["error"]["reason"]
    assert talker.ask("POST", "/advertisements", {"filter": "price >> 3"}).code == "FilterSyntaxError"
    assert talker.ask("GET", "/advertisements?intersects=price+%3E%3E+3").code == "FilterSyntaxError"


def test_advertisements_tell_which_publishers_could_matter(talker: Talker) -> None:
    for name, filter in (("cheap", "price < 10"), ("dear", "price > 100"), ("other", "weight > 3")):
        assert talker.ask("POST", "/advertisements", {"name": name, "filter": filter}).status == 201
    assert talker.ask("POST", "/advertisements", {"name": "dear", "filter": "price > 100"}).status == 200

    def names(query: str) -> list[str]:
        return [each["name"] for each in talker.ask("GET", f"/advertisements{query}").json["advertisements"]]

    assert names("") == ["cheap", "dear", "other"]
    assert names("?intersects=price+%3E+50") == ["dear", "other"]
    assert names("?limit=1&after=cheap") == ["dear"]
    assert talker.ask("DELETE", "/advertisements/dear").status == 204
    assert names("") == ["cheap", "other"]
    assert talker.ask("DELETE", "/advertisements/dear").code == "UnknownAdvertisement"
    talker.publish({"price": 50})


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status", "code"),
    [
        ("POST", "/publish", b"{", "application/json", 400, "InvalidValue"),
        ("POST", "/publish", b"[1, ", "application/json", 400, "InvalidValue"),
        ("POST", "/publish", b"[]", "application/json", 400, "InvalidValue"),
        ("POST", "/publish", b"", "application/json", 400, "InvalidValue"),
        ("POST", "/publish", b"[" * 5000, "application/json", 400, "InvalidValue"),
        ("POST", "/publish", b'{"a": "\xff"}', "application/json", 400, "InvalidValue"),
        ("POST", "/publish", b'{"a": 1}', "text/plain", 415, "UnsupportedMediaType"),
        ("POST", "/publish", b"a=1", "application/x-www-form-urlencoded", 415, "UnsupportedMediaType"),
        ("POST", "/publish", b'{"a": 1}', "", 415, "UnsupportedMediaType"),
        ("POST", "/publish", b"{}", "application/cloudevents+json", 400, "InvalidValue"),
        ("POST", "/publish", b'{"a": "%s"}' % (b"x" * 70_000), "application/json", 413, "LimitExceeded"),
        ("POST", "/publish", b"[" + b"1," * 10_000 + b"1]", "application/json", 413, "LimitExceeded"),
        ("POST", "/subscriptions", b"{}", "application/json", 400, "InvalidValue"),
        ("POST", "/subscriptions", b'{"filter": "a = 1", "nmae": "x"}', "application/json", 400, "InvalidValue"),
        ("POST", "/subscriptions", b'{"filter": "a = 1", "name": "a/b"}', "application/json", 400, "InvalidValue"),
        ("POST", "/subscriptions", b'{"filter": "a = 1"}', "text/plain", 415, "UnsupportedMediaType"),
        ("POST", "/subscriptions", b"[]", "application/json", 400, "LimitExceeded"),
        ("POST", "/subscriptions/none/receive", b"", "", 415, "UnsupportedMediaType"),
        ("POST", "/subscriptions/none/receive", b"", "application/json", 404, "UnknownSubscription"),
        ("POST", "/subscriptions/none/receive", b'{"count": 0}', "application/json", 400, "InvalidValue"),
        ("GET", "/subscriptions/none/events", None, "", 404, "UnknownSubscription"),
        ("GET", "/events", None, "", 400, "InvalidValue"),
        ("GET", "/events?filter=a+%3D+1&prefetch=0", None, "", 400, "InvalidValue"),
        ("GET", "/subscriptions?limit=many", None, "", 400, "InvalidValue"),
        ("GET", "/subscriptions/a/b/c", None, "", 404, "NoSuchRoute"),
        ("PUT", "/publish", b"{}", "application/json", 405, "NoSuchRoute"),
        ("GET", "/stream?filter=a+%3D+1", None, "", 404, "NoSuchRoute"),
    ],
)
def test_what_cannot_be_done_says_why(
    talker: Talker, method: str, path: str, body: bytes | None, kind: str, status: int, code: str
) -> None:
    answered = talker.ask(method, path, body, kind=kind)
    assert (answered.status, answered.code) == (status, code), answered.body
    assert len(answered.json["error"]["reason"]) > 10


def test_a_body_that_is_too_large_is_not_read(brisk: Served) -> None:
    with socket.create_connection((brisk.host, brisk.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9999999999\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    with socket.create_connection((brisk.host, brisk.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        try:
            for _ in range(40):
                connection.sendall(chunk)
        except OSError:
            pass
        assert brisk.memory_kb_max() < 1_000_000
    assert brisk.fresh_metric('lavant_http_answers_total{status="413"}') >= 2


def test_nothing_but_json_comes_from_pages_of_others(talker: Talker) -> None:
    """A browser asks before it sends JSON to another server, and gets no answer that it could take for a yes."""
    answered = talker.ask("OPTIONS", "/publish", Origin="http://evil.example", Access_Control_Request_Method="POST")
    assert "access-control-allow-origin" not in answered.headers
    assert answered.status == 403


def test_sqs_is_where_it_was(talker: Talker) -> None:
    talker.subscribe("seen-by-sqs", "kind = 'sqs'")
    talker.publish({"kind": "sqs"})
    listed = talker.ask(
        "POST", "/", b"{}", kind="application/x-amz-json-1.0", X_Amz_Target="AmazonSQS.ListQueues"
    ).json["QueueUrls"]
    [url] = [url for url in listed if url.endswith("/seen-by-sqs")]
    received = talker.ask(
        "POST",
        "/000000000000/seen-by-sqs",
        json.dumps({"QueueUrl": url}).encode(),
        kind="application/x-amz-json-1.0",
        X_Amz_Target="AmazonSQS.ReceiveMessage",
    ).json["Messages"]
    assert [json.loads(message["Body"])["kind"] for message in received] == ["sqs"]
    form = "application/x-www-form-urlencoded"
    assert b"ListQueuesResponse" in talker.ask("POST", "/", b"Action=ListQueues", kind=form).body
    assert talker.ask("GET", "/?Action=ListQueues").status == 405


def test_the_first_page_says_what_this_is(talker: Talker) -> None:
    assert b"/openapi.json" in talker.ask("GET", "/").body
    assert talker.ask("GET", "/openapi.json").json["openapi"] == "3.1.0"


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_slow_heads_and_bodies_are_waited_for_no_longer(brisk: Served) -> None:
    address = (brisk.host, brisk.port)
    with (
        socket.create_connection(address, timeout=WAIT_S_MAX) as slow_body,
        socket.create_connection(address, timeout=WAIT_S_MAX) as slow_head,
    ):
        slow_body.sendall(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10\r\n\r\n{"
        )
        slow_head.sendall(b"POST /publish HTTP/1.1\r\nHost:")
        assert slow_body.recv(1000).startswith(b"HTTP/1.1 408")
        assert slow_head.recv(1000) == b""


def _wait(server: Served, name: str, found: list[Any]) -> None:
    with Talker(server) as talker:
        found.append(talker.receive(name, wait_ms=20_000))
