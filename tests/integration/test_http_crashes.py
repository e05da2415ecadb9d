"""Crashes and ends of a server with publishers, streams and webhooks: what was promised is kept, the rest is gone."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import WAIT_S_MAX, Served, ServedWithLimits
from tests.integration.talking_http import Events, Talker, until, websocket
from tests.integration.webhook_receiver import Got, Receiver, Reply
from websockets.exceptions import ConnectionClosed

DURABLE = ["all", "kept", "posted"]


def names(talker: Talker) -> list[str]:
    return [each["name"] for each in talker.ask("GET", "/subscriptions").json["subscriptions"]]


def post_until_killed(server: Served, accepted: list[str], name: str) -> None:
    """Some publishers at once; the server is killed while they wait for answers."""
    threads = [threading.Thread(target=_post, args=(server, accepted, f"{name}-{n}")) for n in range(4)]
    for thread in threads:
        thread.start()
    goal = len(accepted) + 150
    while len(accepted) < goal:
        time.sleep(0.001)
    server.kill()
    for thread in threads:
        thread.join(WAIT_S_MAX)


def _post(server: Served, accepted: list[str], name: str) -> None:
    try:
        with Talker(server) as talker:
            for n in range(100_000):
                answered = talker.ask("POST", "/publish", [{"n": n, "@id": f"{name}-{n}-{m}"} for m in range(3)])
                assert answered.status == 202
                accepted.extend(answered.json["ids"])
    except OSError:
        pass


def wait(server: Served, name: str, found: list[Any]) -> None:
    with Talker(server) as talker:
        found.append(talker.receive(name, wait_ms=20_000))


def test_what_was_accepted_is_delivered_and_what_was_of_a_connection_is_gone(tmp_path: Path) -> None:
    accepted: list[str] = []

    def decide(got: Got, number: int) -> Reply:
        """No success before the server was killed."""
        return Reply(503, (("Retry-After", "0"),)) if number <= 4 else Reply()

    with Receiver(decide) as receiver:
        with ServedWithLimits(tmp_path, stream_lease_ms=1000) as first, Talker(first) as talker:
            talker.subscribe("all", "n >= 0")
            talker.subscribe("kept", "a = 1", settings={"visibility_ms": 3_600_000})
            talker.subscribe("posted", "p >= 0", webhook={"url": receiver.url, "timeout_ms": 1000})
            talker.publish({"a": 1}, *({"p": p} for p in range(4)))
            receiver.wait_for(4)
            with Events(first, "/events?filter=a = 1"), websocket(first, "/stream?filter=a%20%3D%201"):
                assert len(names(talker)) == 5
                post_until_killed(first, accepted, "first")
        with Served(tmp_path) as second:
            with Talker(second) as talker:
                until(lambda: names(talker) == DURABLE)
            post_until_killed(second, accepted, "second")
        with Served(tmp_path) as third, Talker(third) as talker:
            received = {publication["@id"] for publication in talker.drain("all")}
            assert len(accepted) >= 300
            assert set(accepted) <= received
            until(lambda: talker.held("posted") == (0, 0))
            assert {json.loads(got.body)["p"] for got in receiver.got[4:]} == {0, 1, 2, 3}
            _stop_with_streams(third)
    with Served(tmp_path) as last, Talker(last) as talker:
        assert names(talker) == DURABLE
        assert talker.held("kept") == (1, 0)


def _stop_with_streams(server: Served) -> None:
    """Streams end in good order, and whoever waits is answered."""
    found: list[Any] = []
    waiter = threading.Thread(target=wait, args=(server, "all", found))
    waiter.start()
    with (
        Events(server, "/subscriptions/kept/events") as events,
        Events(server, "/events?filter=a = 2") as ephemeral,
        websocket(server, "/stream?filter=a%20%3D%203") as stream,
    ):
        assert len(events.take(1)) == 1
        until(lambda: server.metric("lavant_waiting_receives") >= 4)
        assert server.stop(signal.SIGTERM) == 0
        assert (list(events), list(ephemeral)) == ([], [])
        with pytest.raises(ConnectionClosed) as closed:
            stream.recv(timeout=WAIT_S_MAX)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code in {1001, 1012}
    waiter.join(WAIT_S_MAX)
    assert found == [[]]
    assert server.complaints == ""
