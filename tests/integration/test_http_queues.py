"""Queues over HTTP against a real server, and the manners of every answer: problems, ETags, null, rate limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import Served
from tests.integration.talking_http import Talker

from lavant import connect
from lavant.service.auth.keys import KeyEntry, entry_text, new_secret, sha256_of


@pytest.fixture
def queue(talker: Talker) -> Iterator[str]:
    assert talker.ask("PUT", "/queues/http-q", {}).status in (200, 201)
    yield "/queues/http-q"
    talker.ask("DELETE", "/queues/http-q")


def received(talker: Talker, queue: str, **more: Any) -> list[dict[str, Any]]:
    answered = talker.ask("POST", f"{queue}/receive", {"wait_ms": 5000, **more})
    assert answered.status == 200, answered
    messages: list[dict[str, Any]] = answered.json["messages"]
    return messages


def test_a_message_goes_the_whole_way(talker: Talker, queue: str) -> None:
    sent = talker.ask(
        "POST", f"{queue}/messages", {"messages": [{"text": "größer"}, {"json": None}, {"json": {"a": 1}}]}
    )
    assert (sent.status, sent.json["refused"]) == (201, [])
    shown = talker.ask("GET", f"{queue}/messages?limit=2").json["messages"]
    assert [(each["text"], each["state"]) for each in shown] == [("größer", "visible"), ("null", "visible")]
    first, second, third = received(talker, queue, count=3)
    assert [each["id"] for each in (first, second, third)] == sent.json["ids"]
    assert third["text"] == '{"a":1}'
    settled = talker.ask(
        "POST",
        f"{queue}/acknowledge",
        {
            "receipts": [first["receipt"], third["receipt"]],
            "release": [{"receipt": second["receipt"], "reason": "why"}],
        },
    )
    assert settled.json == {"acknowledged": 2, "released": 1, "refused": []}
    [again] = received(talker, queue)
    assert (again["attempt"], again["reason"]) == (2, "why")
    assert talker.ask("DELETE", f"{queue}/messages").status == 204
    figures = talker.ask("GET", queue).json
    assert (figures["messages"]["visible"], figures["messages"]["in_flight"]) == (0, 0)
    assert (figures["totals"]["sent"], figures["totals"]["acknowledged"]) == (3, 2)


def test_bytes_that_are_no_text_are_base64(talker: Talker, queue: str) -> None:
    talker.ask("POST", f"{queue}/messages", {"messages": [{"body_base64": "AP8="}]})
    assert received(talker, queue)[0]["body_base64"] == "AP8="


@pytest.mark.parametrize("message", [{}, {"text": "a", "json": 1}, {"texts": "a"}])
def test_a_message_has_one_body(talker: Talker, queue: str, message: dict[str, Any]) -> None:
    refused = talker.ask("POST", f"{queue}/messages", {"messages": [message]})
    assert (refused.status, refused.code) == (400, "InvalidValue")
    assert talker.ask("GET", queue).json["totals"]["sent"] == 0


def test_a_queue_is_changed_only_by_those_who_know_its_state(talker: Talker, queue: str) -> None:
    before = talker.ask("GET", queue)
    tag = before.headers["ETag"]
    assert talker.ask("GET", queue, If_None_Match=tag).status == 304
    changed = talker.ask("PUT", queue, {"settings": {"visibility_ms": 5000}, "tags": {"a": "b"}}, If_Match=tag)
    assert (changed.status, changed.json["settings"]["visibility_ms"], changed.json["tags"]) == (200, 5000, {"a": "b"})
    assert changed.headers["ETag"] != tag
    late = talker.ask("PUT", queue, {"settings": {"visibility_ms": 7000}}, If_Match=tag)
    assert (late.status, late.code) == (412, "PreconditionFailed")
    assert talker.ask("DELETE", queue, If_Match=tag).status == 412
    assert talker.ask("GET", queue).json["settings"]["visibility_ms"] == 5000
    assert talker.ask("PUT", queue, {"settings": {"visibility_ms": 7000}}).json["tags"] == {"a": "b"}
    assert talker.ask("PUT", "/queues/http-none", {}, If_Match=tag).status == 404
    document = talker.ask("GET", "/openapi.json").headers["ETag"]
    assert talker.ask("GET", "/openapi.json", If_None_Match=document).status == 304


def test_a_subscription_is_removed_only_by_those_who_know_its_state(talker: Talker) -> None:
    talker.subscribe("http-s", "a = 1")
    tag = talker.ask("GET", "/subscriptions/http-s").headers["ETag"]
    assert talker.ask("PATCH", "/subscriptions/http-s", {"filter": "a = 2"}, If_Match=tag).status == 200
    late = talker.ask("DELETE", "/subscriptions/http-s", If_Match=tag)
    assert (late.status, late.code) == (412, "PreconditionFailed")
    now = talker.ask("GET", "/subscriptions/http-s").headers["ETag"]
    assert talker.ask("DELETE", "/subscriptions/http-s", If_Match=now).status == 204


def test_a_queue_that_must_be_new_is_not_changed(talker: Talker, queue: str) -> None:
    for settings in ({}, {"visibility_ms": 5000}):
        late = talker.ask("PUT", queue, {"settings": settings}, If_None_Match="*")
        assert (late.status, late.code) == (412, "PreconditionFailed")
    assert talker.ask("GET", queue).json["settings"]["visibility_ms"] == 30000
    tag = talker.ask("GET", queue).headers["ETag"]
    assert talker.ask("PUT", queue, {}, If_None_Match=tag).status == 200  # 304 is for those who only read
    assert talker.ask("GET", queue, If_None_Match="*").status == 304
    assert talker.ask("PUT", "/queues/http-new", {}, If_None_Match="*").status == 201
    talker.ask("DELETE", "/queues/http-new")


def test_every_path_says_which_methods_it_has(talker: Talker) -> None:
    for path, methods in talker.ask("GET", "/openapi.json").json["paths"].items():
        described = {method.upper() for method in methods}
        if path.endswith("stream"):
            continue  # a WebSocket has no methods
        refused = talker.ask("TRACE", path.replace("{", "").replace("}", ""))
        assert refused.status == 405
        assert refused.headers["Content-Type"] == "application/problem+json"
        allowed = set(refused.headers["Allow"].split(", "))
        assert allowed - {"HEAD", "OPTIONS"} == described
        asked = talker.ask("OPTIONS", path.replace("{", "").replace("}", ""))
        assert (asked.status, asked.headers["Allow"]) in [(204, refused.headers["Allow"]), (405, "GET, HEAD")]


def test_queues_are_listed_in_pages(talker: Talker) -> None:
    for n in range(3):
        assert talker.ask("PUT", f"/queues/page-{n}", {}).status == 201
    first = talker.ask("GET", "/queues?prefix=page-&limit=2").json
    assert first == {"queues": ["page-0", "page-1"], "next": "page-1"}
    assert talker.ask("GET", "/queues?prefix=page-&limit=2&after=page-1").json == {"queues": ["page-2"], "next": None}
    for n in range(3):
        assert talker.ask("DELETE", f"/queues/page-{n}").status == 204


def test_the_operator_reaches_queues_of_namespaces_and_nobody_else_does(tmp_path: Path) -> None:
    secrets = {"operator": new_secret(), "tenant": new_secret()}
    scopes = ["publish", "subscribe", "admin"]
    entries = [
        KeyEntry(name="operator", sha256=sha256_of(secrets["operator"]), scopes=scopes),
        KeyEntry(name="tenant", sha256=sha256_of(secrets["tenant"]), scopes=scopes, namespace="team"),
    ]
    (tmp_path / "keys.toml").write_text("".join(map(entry_text, entries)))
    with Served(tmp_path / "data", "--keys-file", str(tmp_path / "keys.toml")) as server:
        operator, tenant = Talker(server, secrets["operator"]), Talker(server, secrets["tenant"])
        assert tenant.ask("PUT", "/queues/orders", {}).status == 201
        assert operator.ask("GET", "/queues").json["queues"] == ["team/orders"]
        for path in ("/queues/team%2Forders", "/queues/team%2forders"):
            assert operator.ask("GET", path).json["name"] == "team/orders"
        assert operator.ask("PUT", "/queues/other%2Fq", {}).status == 201
        assert tenant.ask("GET", "/queues/other%2Fq").status in (400, 403, 404)
        assert tenant.ask("DELETE", "/queues/other%2Fq").status in (400, 403, 404)
        assert operator.ask("DELETE", "/queues/other%2Fq").status == 204
        for talker in (operator, tenant):
            talker.close()


def test_dead_letters_are_moved_back(talker: Talker, queue: str) -> None:
    talker.ask("PUT", "/queues/http-dead", {})
    talker.ask("PUT", queue, {"settings": {"dead_letters": "http-dead", "receives_max": 1}})
    talker.ask("POST", f"{queue}/messages", {"messages": [{"text": "a"}]})
    [message] = received(talker, queue)
    talker.ask("POST", f"{queue}/acknowledge", {"release": [{"receipt": message["receipt"], "reason": "no luck"}]})
    assert received(talker, queue, wait_ms=0) == []
    [letter] = talker.ask("GET", "/queues/http-dead/messages").json["messages"]
    assert (letter["reason"], letter["attempts"], letter["origin"]) == ("no luck", 1, "http-q")
    assert talker.ask("POST", "/queues/http-dead/redrive", {}).status == 202
    assert [each["text"] for each in received(talker, queue)] == ["a"]
    talker.ask("DELETE", "/queues/http-dead")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("POST", "/nowhere", 404), ("POST", "/", 405), ("GET", "/queues/none", 404)],
)
def test_an_unknown_path_is_a_problem_in_json(talker: Talker, method: str, path: str, status: int) -> None:
    answered = talker.ask(method, path, b"{}" if method == "POST" else None)
    assert answered.status == status
    assert answered.headers["Content-Type"] == "application/problem+json"
    said = answered.json
    assert (said["status"], said["code"]) == (status, said["error"]["code"])
    assert said["detail"] == said["error"]["reason"]
    assert said["type"] == f"urn:lavant:{said['code']}"


def test_null_is_the_same_as_nothing(talker: Talker) -> None:
    wanted = {"name": "nulls", "filter": "a = 1", "queue": None, "settings": None, "webhook": None, "lease_ms": None}
    assert talker.ask("POST", "/subscriptions", wanted).status == 201
    assert talker.ask("POST", "/subscriptions", {"name": "nulls", "filter": "a = 1"}).status == 200
    assert received(talker, "/subscriptions/nulls", count=None, wait_ms=None, visibility_ms=None) == []
    assert talker.ask("POST", "/subscriptions", {"name": None, "filter": None}).status == 400
    talker.ask("DELETE", "/subscriptions/nulls")


def test_a_key_with_a_rate_is_told_what_is_left(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    secret = new_secret()
    entry = KeyEntry(name="slow", sha256=sha256_of(secret), scopes=["publish"], publications_per_s=10)
    keys.write_text(entry_text(entry))
    with Served(None, "--keys-file", str(keys)) as served, Talker(served, secret) as talker:
        answered = talker.ask("POST", "/publish", [{"n": n} for n in range(4)])
        assert answered.status == 202, answered
        assert answered.headers["RateLimit-Limit"] == "10"
        assert 0 <= int(answered.headers["RateLimit-Remaining"]) <= 10
        assert int(answered.headers["RateLimit-Reset"]) <= 2
        refused = talker.ask("POST", "/publish", [{"n": n} for n in range(40)])
        assert refused.status == 429, refused
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.headers["RateLimit-Limit"] == "10"
        with connect(served.url, key=secret) as client:
            client.publish({"n": 1})
