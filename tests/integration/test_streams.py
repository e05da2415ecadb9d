"""Server-sent events and WebSockets with a real server: what is delivered, what comes again, and bad manners."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.talking_http import Events, Talker, until, websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection


def take(stream: ClientConnection, count: int) -> list[dict[str, Any]]:
    return [json.loads(stream.recv(timeout=WAIT_S_MAX)) for _ in range(count)]


# ── server-sent events ────────────────────────────────────────────────────────────────────────────────────────────────


def test_events_come_as_they_are_published_and_are_acknowledged_after_a_while(brisk: Served, talker: Talker) -> None:
    talker.subscribe("sse", "kind = 'sse'")
    with Events(brisk, "/subscriptions/sse/events") as events:
        assert events.response.headers["content-type"].startswith("text/event-stream")
        talker.publish({"kind": "sse", "n": 1}, {"kind": "sse", "n": 2})
        found = events.take(2)
        assert [json.loads(event["data"])["n"] for event in found] == [1, 2]
        assert int(found[0]["id"]) < int(found[1]["id"])
        until(lambda: talker.held("sse") == (0, 0))
        talker.publish({"kind": "sse", "n": 3})
        assert len(events.take(1)) == 1


def test_what_was_not_acknowledged_comes_again_at_once_but_not_what_the_client_says_it_has(
    brisk: Served, talker: Talker
) -> None:
    talker.subscribe("resumed", "kind = 'resumed'", settings={"visibility_ms": 3_600_000})
    talker.publish(*({"kind": "resumed", "n": n} for n in range(4)))
    with Events(brisk, "/subscriptions/resumed/events") as events:
        had = [int(event["id"]) for event in events.take(4)]
    until(lambda: talker.held("resumed") == (4, 0))
    with Events(brisk, "/subscriptions/resumed/events", last=had[1]) as events:
        again = [int(event["id"]) for event in events.take(2)]
        assert again == had[2:]
        until(lambda: talker.held("resumed") == (0, 0))


def test_a_last_event_that_nobody_knows_acknowledges_nothing(brisk: Served, talker: Talker) -> None:
    talker.subscribe("unknown", "kind = 'unknown'")
    talker.publish({"kind": "unknown"})
    with Events(brisk, "/subscriptions/unknown/events", last=10**15) as events:
        assert len(events.take(1)) == 1
    assert talker.ask("GET", "/subscriptions/unknown/events", Last_Event_ID="x").status == 400


def test_an_ephemeral_stream_leaves_nothing_behind(brisk: Served, talker: Talker) -> None:
    before = talker.ask("GET", "/subscriptions").json
    with Events(brisk, "/events?filter=kind = 'ephemeral'") as events:
        [own] = talker.ask("GET", "/subscriptions?prefix=stream-").json["subscriptions"]
        assert own["lease_ms"] == 20_000, "should the server be killed, that ends it"
        talker.publish({"kind": "ephemeral"}, {"kind": "other"}, {"kind": "ephemeral"})
        assert [json.loads(event["data"])["kind"] for event in events.take(2)] == ["ephemeral"] * 2
    until(lambda: talker.ask("GET", "/subscriptions").json == before)


def test_a_client_that_says_no_more_is_gone(brisk: Served, talker: Talker) -> None:
    talker.subscribe("half", "kind = 'half'", settings={"visibility_ms": 3_600_000})
    talker.publish({"kind": "half"})
    with Events(brisk, "/subscriptions/half/events") as events:
        events.take(1)
        events.socket.shutdown(socket.SHUT_WR)
        assert list(events) == []
    until(lambda: talker.held("half")[1] == 0)


def test_a_client_that_does_not_read_is_hung_up_on_and_gets_no_acknowledgement(brisk: Served, talker: Talker) -> None:
    talker.subscribe("deaf", "kind = 'deaf'", settings={"visibility_ms": 3_600_000})
    payload = "QUJD" * 100_000
    for _ in range(4):
        talker.publish(*({"kind": "deaf", "@payload": payload} for _ in range(6)))
    brisk.wait_for_metric('lavant_streams{kind="sse"}', 0)  # those of earlier tests have ended
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((brisk.host, brisk.port))
        connection.sendall(
            b"GET /subscriptions/deaf/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
        )
        brisk.wait_for_metric('lavant_streams{kind="sse"}', 1)
        brisk.wait_for_metric('lavant_streams{kind="sse"}', 0)
        until(lambda: talker.held("deaf") == (24, 0))


def test_a_stream_ends_with_its_subscription(brisk: Served, talker: Talker) -> None:
    talker.subscribe("ending", "kind = 'ending'")
    with (
        Events(brisk, "/subscriptions/ending/events") as events,
        websocket(brisk, "/subscriptions/ending/stream") as stream,
    ):
        talker.ask("DELETE", "/subscriptions/ending")
        assert list(events) == [{"event": "end", "data": "UnknownQueue"}]
        with pytest.raises(ConnectionClosed) as closed:
            stream.recv(timeout=WAIT_S_MAX)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_there_are_only_so_many_streams(brisk: Served, talker: Talker) -> None:
    until(lambda: brisk.metric('lavant_streams{kind="sse"}') == 0)
    streams = [Events(brisk, "/events?filter=a = 1") for _ in range(20)]
    refused = talker.ask("GET", "/events?filter=a+%3D+1")
    assert (refused.status, refused.code, "retry-after" in refused.headers) == (429, "QuotaExceeded", True)
    for stream in streams:
        stream.close()
    until(lambda: brisk.metric('lavant_streams{kind="sse"}') == 0)


# ── WebSockets ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_are_acknowledged_one_by_one(brisk: Served, talker: Talker) -> None:
    talker.subscribe("ws", "kind = 'ws'")
    with websocket(brisk, "/subscriptions/ws/stream") as stream:
        talker.publish({"kind": "ws", "n": 1}, {"kind": "ws", "n": 2})
        first, second = take(stream, 2)
        assert [message["publication"]["n"] for message in (first, second)] == [1, 2]
        stream.send(json.dumps({"ack": [first["id"]]}))
        assert take(stream, 1) == [{"acknowledged": [first["id"]], "refused": []}]
        assert talker.held("ws") == (0, 1)
        stream.send(json.dumps({"nack": [second["id"]]}))
        [again] = take(stream, 1)
        assert (again["id"], again["attempt"]) == (second["id"], 2)
        stream.send(json.dumps({"ack": [first["id"], second["id"]]}).encode())
        [confirmed] = take(stream, 1)
        assert confirmed["acknowledged"] == [second["id"]]
        assert [(each["index"], each["code"]) for each in confirmed["refused"]] == [(first["id"], "NotInFlight")]
    assert talker.held("ws") == (0, 0)


def test_who_never_acknowledges_gets_no_more_than_the_prefetch(brisk: Served, talker: Talker) -> None:
    talker.subscribe("greedy", "kind = 'greedy'", settings={"visibility_ms": 3_600_000})
    talker.publish(*({"kind": "greedy", "n": n} for n in range(10)))
    with websocket(brisk, "/subscriptions/greedy/stream?prefetch=3") as stream:
        first = take(stream, 3)
        with pytest.raises(TimeoutError):
            stream.recv(timeout=0.3)
        assert talker.held("greedy") == (7, 3)
        stream.send(json.dumps({"ack": [first[0]["id"]]}))
        assert len(take(stream, 2)) == 2
    until(lambda: talker.held("greedy") == (9, 0))


def test_a_lease_that_runs_out_makes_room(brisk: Served, talker: Talker) -> None:
    talker.subscribe("slow", "kind = 'slow'", settings={"visibility_ms": 1000})
    talker.publish({"kind": "slow"})
    with websocket(brisk, "/subscriptions/slow/stream?prefetch=1") as stream:
        assert [message["attempt"] for message in take(stream, 2)] == [1, 2]


@pytest.mark.parametrize("frame", ["{", "[]", '{"ack": ["x"]}', '{"akc": [1]}', b"\xff"])
def test_a_frame_that_is_not_understood_ends_the_stream(brisk: Served, frame: str | bytes) -> None:
    with websocket(brisk, "/stream?filter=a%20%3D%201") as stream:
        stream.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            stream.recv(timeout=WAIT_S_MAX)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "ack" in closed.value.rcvd.reason) == (1007, True)


def test_what_cannot_be_streamed_is_refused_in_http(brisk: Served) -> None:
    for path, status in (("/subscriptions/none/stream", 404), ("/stream", 400), ("/stream?filter=a%20%3E%3E", 400)):
        with pytest.raises(InvalidStatus) as refused, websocket(brisk, path):
            pass
        assert refused.value.response.status_code == status
        assert b'"error":' in (refused.value.response.body or b"")


def test_pages_of_others_may_not_connect(brisk: Served) -> None:
    path = "/stream?filter=a%20%3D%201"
    with pytest.raises(InvalidStatus) as refused, websocket(brisk, path, origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    with websocket(brisk, path, origin=f"http://{brisk.host}:{brisk.port}"):
        pass


def test_a_websocket_that_does_not_read_is_hung_up_on(brisk: Served, talker: Talker) -> None:
    talker.subscribe("deaf-ws", "kind = 'deaf-ws'", settings={"visibility_ms": 3_600_000})
    payload = "QUJD" * 100_000
    for _ in range(4):
        talker.publish(*({"kind": "deaf-ws", "@payload": payload} for _ in range(6)))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((brisk.host, brisk.port))
        connection.sendall(
            b"GET /subscriptions/deaf-ws/stream HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        brisk.wait_for_metric('lavant_streams{kind="websocket"}', 1)
        brisk.wait_for_metric('lavant_streams{kind="websocket"}', 0)
        until(lambda: talker.held("deaf-ws") == (24, 0))
