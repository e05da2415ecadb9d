"""Keys, scopes and namespaces with a real server, over HTTP and the native protocol."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.talking_http import Events, Talker
from tests.integration.webhook_receiver import Receiver
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of

ENTRIES = [
    KeyEntry(name="operator", sha256=sha256_of("operator"), scopes=["publish", "subscribe", "admin"]),
    KeyEntry(name="acme", sha256=sha256_of("acme"), scopes=["publish", "subscribe"], namespace="acme"),
    KeyEntry(name="shop", sha256=sha256_of("shop"), scopes=["publish", "subscribe"], namespace="shop"),
    KeyEntry(name="till", sha256=sha256_of("till"), scopes=["publish"], namespace="shop"),
    KeyEntry(name="slow", sha256=sha256_of("slow"), scopes=["publish"], publications_per_s=5),
    KeyEntry(name="gone", sha256=sha256_of("gone"), scopes=["publish", "subscribe"]),
]


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text("\n".join(map(entry_text, ENTRIES)))
    return path


@pytest.fixture(scope="module")
def served(keys_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served"), "--keys-file", str(keys_file)) as server:
        yield server
        assert server.stop() == 0
        assert server.complaints == ""


@pytest.fixture
def talkers(served: Served) -> Iterator[dict[str, Talker]]:
    """One for each key, by its name."""
    all_ = {entry.name: Talker(served, entry.name) for entry in ENTRIES}
    yield all_
    for talker in all_.values():
        talker.close()


def test_without_a_key_nothing_can_be_done(served: Served) -> None:
    for key in ("", "wrong", "Operator"):
        with Talker(served, key) as talker:
            for method, path, body in (
                ("POST", "/publish", {"a": 1}),
                ("GET", "/subscriptions", None),
                ("GET", "/events?filter=a+%3D+1", None),
                ("POST", "/subscriptions", {"filter": "a = 1"}),
            ):
                answered = talker.ask(method, path, body)
                assert (answered.status, answered.code) == (401, "AccessDenied")
                assert answered.headers["www-authenticate"] == "Bearer"
                assert not key or key not in answered.body.decode()
    with Talker(served) as talker:
        assert talker.ask("GET", "/healthz").status == 200
        assert talker.ask("GET", "/openapi.json").status == 200
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{served.host}:{served.port}/stream?filter=a", proxy=None),
    ):
        pass
    assert refused.value.response.status_code == 401


def test_a_key_does_what_its_scopes_say(talkers: dict[str, Talker]) -> None:
    till = talkers["till"]
    till.publish({"a": 1})
    denied = till.ask("POST", "/subscriptions", {"filter": "a = 1"})
    assert (denied.status, denied.code) == (403, "AccessDenied")
    assert "scope subscribe" in denied.json["error"]["reason"]
    assert till.ask("GET", "/events?filter=a+%3D+1").status == 403
    assert till.ask("GET", "/subscriptions").status == 200


def test_namespaces_do_not_see_each_other(served: Served, talkers: dict[str, Talker]) -> None:
    acme, shop, operator = talkers["acme"], talkers["shop"], talkers["operator"]
    for talker, n in ((acme, 1), (shop, 2)):
        talker.subscribe("orders", "kind = 'order'")
        talker.publish({"kind": "order", "n": n})
    assert [each["publication"]["n"] for each in acme.receive("orders", visibility_ms=0)] == [1]
    assert [each["publication"]["n"] for each in shop.receive("orders", visibility_ms=0)] == [2]
    seen = acme.ask("GET", "/subscriptions/orders")
    assert (seen.json["queue"], b"acme" in seen.body) == ("orders", False)
    assert len(acme.ask("GET", "/subscriptions").json["subscriptions"]) == 1
    assert operator.ask("GET", "/subscriptions/orders").status == 404
    for name in ("shop/orders", "shop%2Forders"):
        assert acme.ask("GET", f"/subscriptions/{name}").status == 404
    assert acme.ask("POST", "/subscriptions", {"filter": "a = 1", "queue": "shop/orders"}).status == 400
    settings = {"dead_letters": "shop/orders", "receives_max": 1}
    assert acme.ask("POST", "/subscriptions", {"filter": "a = 1", "settings": settings}).status == 403
    [message] = shop.receive("orders")
    stolen = acme.ask("POST", "/subscriptions/orders/acknowledge", {"receipts": [message["receipt"]]})
    assert stolen.status == 200
    assert shop.held("orders") == (0, 1)
    with Events(served, "/events?filter=kind = 'order'", "acme") as events:
        talkers["till"].publish({"kind": "order", "n": 3})
        acme.publish({"kind": "order", "n": 4})
        assert [json.loads(event["data"])["n"] for event in events.take(1)] == [4]
    same = [talker.ask("POST", "/publish", {"n": 1}, Idempotency_Key="k").json["ids"] for talker in (acme, shop, acme)]
    assert same[0] == same[2] != same[1]


def test_who_publishes_more_than_it_may_is_told_when_to_come_again(talkers: dict[str, Talker]) -> None:
    slow, tries = talkers["slow"], 0
    while (refused := slow.ask("POST", "/publish", [{"n": n} for n in range(5)])).status == 202:  # a second's worth
        assert (tries := tries + 1) < 20, "an answer may take a second, but not each"
    assert tries
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "Overloaded", "1")
    deadline_s = time.monotonic() + WAIT_S_MAX
    while slow.ask("POST", "/publish", {"n": 1}).status == 429:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_no_webhook_leads_into_private_networks(served: Served, talkers: dict[str, Talker]) -> None:
    with Receiver() as receiver:
        port = receiver.url.rpartition(":")[2]
        talkers["shop"].subscribe("posted", "kind = 'posted'", webhook={"url": f"http://localhost:{port}"})
        talkers["till"].publish({"kind": "posted"})
        served.wait_for_metric('lavant_webhook_attempts_total{result="failure"}', 1)
        assert receiver.got == []
    talkers["shop"].ask("DELETE", "/subscriptions/posted")


def test_at_a_signal_new_keys_are_let_in_and_removed_ones_are_shown_out(
    served: Served, keys_file: Path, talkers: dict[str, Talker]
) -> None:
    gone = talkers["gone"]
    url = f"ws://{served.host}:{served.port}/stream?filter=a%20%3D%201"
    with (
        Events(served, "/events?filter=a = 1", "gone") as events,
        Events(served, "/events?filter=a = 1", "acme") as kept,
        connect(url, additional_headers={"Authorization": "Bearer gone"}, proxy=None) as stream,
        Talker(served, "fresh") as fresh,
    ):
        assert gone.ask("GET", "/subscriptions").status == 200
        assert fresh.ask("GET", "/subscriptions").status == 401
        new = KeyEntry(name="fresh", sha256=sha256_of("fresh"), scopes=["publish"])
        keys_file.write_text("\n".join(entry_text(each) for each in (*ENTRIES[:-1], new)))
        served.process.send_signal(signal.SIGHUP)
        assert list(events) == []
        with pytest.raises(ConnectionClosed):
            stream.recv(timeout=WAIT_S_MAX)
        assert gone.ask("GET", "/subscriptions").status == 401
        assert fresh.ask("GET", "/subscriptions").status == 200
        talkers["acme"].publish({"a": 1})
        assert len(kept.take(1)) == 1
