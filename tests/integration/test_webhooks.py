"""Webhooks of a real server: what they get, how often they are tried, and what happens to those who do not answer."""

from __future__ import annotations

import base64
import hmac
import json
import socket
import time

import pytest
from tests.integration.serving import WAIT_S_MAX
from tests.integration.talking_http import Talker, until
from tests.integration.webhook_receiver import Receiver, Reply


def test_a_notification_is_posted_once_and_says_where_it_comes_from(talker: Talker) -> None:
    with Receiver() as receiver:
        talker.subscribe("hook-plain", "kind = 'hook-plain'", webhook={"url": f"{receiver.url}/hook?a=b"})
        talker.publish({"kind": "hook-plain", "n": 1, "@id": "p1", "@time_ms": 7})
        [got] = receiver.wait_for(1)
        assert (got.path, got.headers["content-type"]) == ("/hook?a=b", "application/json")
        assert json.loads(got.body) == {"kind": "hook-plain", "n": 1, "@id": "p1", "@time_ms": 7}
        assert (got.headers["lavant-subscription"], got.headers["lavant-attempt"]) == ("hook-plain", "1")
        assert got.headers["webhook-signature"] is None
        until(lambda: talker.held("hook-plain") == (0, 0))
        assert len(receiver.got) == 1


def test_a_secret_signs_each_request_and_is_never_shown(talker: Talker) -> None:
    with Receiver() as receiver:
        webhook = {"url": receiver.url, "secret": "very secret"}
        talker.subscribe("hook-signed", "kind = 'hook-signed'", webhook=webhook)
        shown = talker.ask("GET", "/subscriptions/hook-signed")
        assert shown.json["webhook"]["is_signed"] is True
        assert b"very secret" not in shown.body + talker.ask("GET", "/subscriptions").body
        talker.publish({"kind": "hook-signed"})
        [got] = receiver.wait_for(1)
    content = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    signed = base64.b64encode(hmac.digest(b"very secret", content, "sha256")).decode()
    assert got.headers["webhook-signature"] == f"v1,{signed}"
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < WAIT_S_MAX


@pytest.mark.parametrize(
    "bad",
    [
        Reply(500),
        Reply(302, (("Location", "/elsewhere"),)),
        Reply(429, (("Retry-After", "0"),)),
        Reply(404, body=b"x" * 1_000_000),
        Reply(103),
    ],
    ids=lambda reply: str(reply.status),
)
def test_whatever_is_no_success_is_tried_again(talker: Talker, bad: Reply) -> None:
    name = f"again-{bad.status}"
    with Receiver(lambda got, number: bad if number < 3 else Reply()) as receiver:
        talker.subscribe(name, f"kind = '{name}'", webhook={"url": receiver.url, "timeout_ms": 1000})
        talker.publish({"kind": name})
        got = receiver.wait_for(3)
        assert [each.headers["lavant-attempt"] for each in got] == ["1", "2", "3"]
        assert len({each.headers["webhook-id"] for each in got}) == 1
        assert {each.path for each in got} == {"/"}
        until(lambda: talker.held(name) == (0, 0))
        talker.ask("DELETE", f"/subscriptions/{name}")


def test_after_so_many_attempts_it_is_a_dead_letter(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(500)) as receiver:
        talker.subscribe("hook-hopeless", "kind = 'hook-hopeless'", webhook={"url": receiver.url, "attempts_max": 3})
        talker.subscribe("hook-buried", "kind = 'never'", queue="hook-hopeless-dead")
        talker.publish({"kind": "hook-hopeless", "n": 1})
        [message] = talker.receive("hook-buried", wait_ms=20_000)
        assert message["publication"]["n"] == 1
        assert len(receiver.got) == 3


def test_a_webhook_that_does_not_answer_in_time_is_tried_again(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(after_s=1.0 if number == 1 else 0.0)) as receiver:
        talker.subscribe("hook-slow", "kind = 'hook-slow'", webhook={"url": receiver.url, "timeout_ms": 200})
        talker.publish({"kind": "hook-slow"})
        assert [each.headers["lavant-attempt"] for each in receiver.wait_for(2)] == ["1", "2"]
        until(lambda: talker.held("hook-slow") == (0, 0))


def test_nobody_there_is_no_reason_to_give_up(talker: Talker) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        talker.subscribe("hook-nobody", "kind = 'hook-nobody'", webhook={"url": url, "attempts_max": 100})
        talker.publish({"kind": "hook-nobody"})
        until(lambda: bool(talker.ask("GET", "/metrics").body.decode().split('attempts_total{result="failure"} ')[1]))
        until(lambda: talker.held("hook-nobody")[1] == 1)
    talker.ask("DELETE", "/subscriptions/hook-nobody")


def test_many_are_posted_at_once_but_not_too_many_and_on_few_connections(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(after_s=0.02)) as receiver:
        talker.subscribe("hook-many", "kind = 'hook-many'", webhook={"url": receiver.url})
        talker.publish(*({"kind": "hook-many", "n": n} for n in range(60)))
        got = receiver.wait_for(60)
        assert sorted(json.loads(each.body)["n"] for each in got) == list(range(60))
        assert 2 <= receiver.at_once_max <= 3
        until(lambda: talker.held("hook-many") == (0, 0))


def test_a_changed_filter_interrupts_no_request(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(after_s=0.5 if number == 1 else 0.0)) as receiver:
        talker.subscribe("hook-tuned", "kind = 'hook-tuned'", webhook={"url": receiver.url})
        talker.publish({"kind": "hook-tuned", "n": 1})
        receiver.wait_for(1)
        assert talker.ask("PATCH", "/subscriptions/hook-tuned", {"filter": "kind = 'tuned-hook'"}).status == 200
        talker.publish({"kind": "tuned-hook", "n": 2})
        assert [json.loads(each.body)["n"] for each in receiver.wait_for(2)] == [1, 2]
        until(lambda: talker.held("hook-tuned") == (0, 0))
        assert [each.headers["lavant-attempt"] for each in receiver.got] == ["1", "1"]
        talker.ask("DELETE", "/subscriptions/hook-tuned")


def test_a_subscription_that_is_removed_is_posted_to_no_more(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(500)) as receiver:
        talker.subscribe("hook-removed", "kind = 'hook-removed'", webhook={"url": receiver.url, "attempts_max": 100})
        talker.publish({"kind": "hook-removed"})
        receiver.wait_for(2)
        assert talker.ask("DELETE", "/subscriptions/hook-removed").status == 204
        before = len(receiver.got)
        talker.publish({"kind": "hook-removed"})
        time.sleep(0.3)
        assert len(receiver.got) <= before + 1, "one may have been on its way"
