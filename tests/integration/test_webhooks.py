"""Webhooks of a real server: what they get, how often they are tried, and what happens to those who do not answer."""

from __future__ import annotations

import base64
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.serving import WAIT_S_MAX, Served, ServedWithLimits
from tests.integration.talking_http import Talker
from tests.integration.webhook_receiver import Got, Receiver, Reply

from lavant.service.keys import KeyEntry, entry_text, sha256_of


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Tries again sooner than usual."""
    limits = {"webhook_backoff_s": 0.02, "webhook_backoff_s_max": 0.1, "webhook_requests_max": 3}
    with ServedWithLimits(tmp_path_factory.mktemp("served"), **limits) as server:
        yield server
        assert server.stop() == 0
        assert server.complaints == ""


@pytest.fixture
def talker(served: Served) -> Iterator[Talker]:
    with Talker(served) as client:
        yield client


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_notification_is_posted_once_and_says_where_it_comes_from(talker: Talker) -> None:
    with Receiver() as receiver:
        talker.subscribe("plain", "kind = 'plain'", webhook={"url": f"{receiver.url}/hook?a=b"})
        talker.publish({"kind": "plain", "n": 1, "@id": "p1", "@time_ms": 7})
        [got] = receiver.wait_for(1)
        assert (got.path, got.headers["content-type"]) == ("/hook?a=b", "application/json")
        assert json.loads(got.body) == {"kind": "plain", "n": 1, "@id": "p1", "@time_ms": 7}
        assert (got.headers["lavant-subscription"], got.headers["lavant-attempt"]) == ("plain", "1")
        assert got.headers["webhook-signature"] is None
        until(lambda: talker.held("plain") == (0, 0))
        assert len(receiver.got) == 1


def test_a_secret_signs_each_request_and_is_never_shown(talker: Talker) -> None:
    with Receiver() as receiver:
        webhook = {"url": receiver.url, "secret": "very secret"}
        talker.subscribe("signed", "kind = 'signed'", webhook=webhook)
        shown = talker.ask("GET", "/subscriptions/signed")
        assert shown.json["webhook"]["is_signed"] is True
        assert b"very secret" not in shown.body + talker.ask("GET", "/subscriptions").body
        talker.publish({"kind": "signed"})
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
        talker.subscribe("hopeless", "kind = 'hopeless'", webhook={"url": receiver.url, "attempts_max": 3})
        talker.subscribe("buried", "kind = 'never'", queue="hopeless-dead")
        talker.publish({"kind": "hopeless", "n": 1})
        [message] = talker.receive("buried", wait_ms=20_000)
        assert message["publication"]["n"] == 1
        assert len(receiver.got) == 3


def test_a_webhook_that_does_not_answer_in_time_is_tried_again(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(after_s=1.0 if number == 1 else 0.0)) as receiver:
        talker.subscribe("slow", "kind = 'slow'", webhook={"url": receiver.url, "timeout_ms": 200})
        talker.publish({"kind": "slow"})
        assert [each.headers["lavant-attempt"] for each in receiver.wait_for(2)] == ["1", "2"]
        until(lambda: talker.held("slow") == (0, 0))


def test_nobody_there_is_no_reason_to_give_up(talker: Talker) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        talker.subscribe("nobody", "kind = 'nobody'", webhook={"url": url, "attempts_max": 100})
        talker.publish({"kind": "nobody"})
        until(lambda: bool(talker.ask("GET", "/metrics").body.decode().split('attempts_total{result="failure"} ')[1]))
        until(lambda: talker.held("nobody")[1] == 1)
    talker.ask("DELETE", "/subscriptions/nobody")


def test_many_are_posted_at_once_but_not_too_many_and_on_few_connections(talker: Talker) -> None:
    with Receiver(lambda got, number: Reply(after_s=0.02)) as receiver:
        talker.subscribe("many", "kind = 'many'", webhook={"url": receiver.url})
        talker.publish(*({"kind": "many", "n": n} for n in range(60)))
        got = receiver.wait_for(60)
        assert sorted(json.loads(each.body)["n"] for each in got) == list(range(60))
        assert 2 <= receiver.at_once_max <= 3
        until(lambda: talker.held("many") == (0, 0))


def test_a_subscription_that_is_removed_is_posted_to_no_more(talker: Talker, served: Served) -> None:
    with Receiver(lambda got, number: Reply(500)) as receiver:
        talker.subscribe("removed", "kind = 'removed'", webhook={"url": receiver.url, "attempts_max": 100})
        talker.publish({"kind": "removed"})
        receiver.wait_for(2)
        assert talker.ask("DELETE", "/subscriptions/removed").status == 204
        before = served.metric('lavant_webhook_attempts_total{result="failure"}')
        talker.publish({"kind": "removed"})
        time.sleep(0.3)
        assert served.metric('lavant_webhook_attempts_total{result="failure"}') <= before + 1


def test_a_server_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    def decide(got: Got, number: int) -> Reply:
        return Reply(503, (("Retry-After", "0"),)) if number <= 4 else Reply()

    with Receiver(decide) as receiver:
        with Served(tmp_path) as first, Talker(first) as talker:
            webhook = {"url": receiver.url, "timeout_ms": 1000}
            talker.subscribe("kept", "n >= 0", webhook=webhook)
            talker.publish(*({"n": n} for n in range(4)))
            receiver.wait_for(4)
            first.kill()
        with Served(tmp_path) as second, Talker(second) as talker:
            deadline_s = time.monotonic() + WAIT_S_MAX
            while talker.held("kept") != (0, 0):
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            assert {json.loads(got.body)["n"] for got in receiver.got[4:]} == {0, 1, 2, 3}
            assert second.stop() == 0


def test_where_keys_are_wanted_no_webhook_leads_into_private_networks(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(entry_text(KeyEntry(name="k", sha256=sha256_of("key"), scopes=["publish", "subscribe"])))
    for options, count in (([], 0), (["--webhooks-to-private-networks"], 1)):
        with Receiver() as receiver, Served(None, "--keys-file", str(keys), *options) as server:
            with Talker(server, "key") as talker:
                port = receiver.url.rpartition(":")[2]
                talker.subscribe("local", "a = 1", webhook={"url": f"http://localhost:{port}"})
                talker.publish({"a": 1})
            result = "success" if count else "failure"
            server.wait_for_metric(f'lavant_webhook_attempts_total{{result="{result}"}}', 1)
            assert len(receiver.got) == count
