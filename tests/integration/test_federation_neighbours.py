"""Neighbours that do not fit: each gets one clear line, this broker logs one, and nothing else is disturbed."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.integration.certificates import write_certificate
from tests.integration.federations import Broker, wait_for_members, wait_until
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.test_federation import lavant

from lavant.broker.federation.frames import LINK_PROTOCOL, LinkHello, LinkRefused, decode_link_frame
from lavant.broker.federation.routes.tables import NO_ROUTES
from lavant.broker.protocol.frames import LINK_PREFACE
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Subscribe, Subscribed
from lavant.core.addresses import Address
from lavant.core.errors import InvalidValue
from lavant.core.frames import Frames, frame


def hello(name: str = "X", identity: str = "f" * 16, **fields: Any) -> LinkHello:
    """A proper one, of a broker that joins for the first time."""
    proper = LinkHello(LINK_PROTOCOL, name, identity, 1, 0, "", [], 0, NO_ROUTES, _now_ms())
    return replace(proper, **fields)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Stranger:
    """A broker of our own making, as bytes."""

    def __init__(self, port: int, first: LinkHello | bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_S_MAX)
        self._frames = Frames()
        self.send(LINK_PREFACE + (first if isinstance(first, bytes) else frame(0, first)))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> Any:
        """The next frame; None if the other side closed."""
        while data := self._socket.recv(1 << 20):
            for _, content in self._frames.feed(data):
                return decode_link_frame(content)
        return None

    def refusal(self) -> LinkRefused:
        while not isinstance(found := self.read(), LinkRefused):
            assert found is not None, "closed without a word"
        assert self.read() is None
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """Two brokers with a link, which nothing here may disturb."""
    home = tmp_path_factory.mktemp("pair")
    first = Broker(home, "B1")
    second = Broker(home, "B2", first)
    try:
        wait_for_members(first, second)
        second.subscribe("price > 0", "all")
        wait_until(lambda: first.link("B2")["subscriptions"] == 1, first.view)
        yield first, second
    finally:
        for broker in (first, second):
            broker.kill()


def check_undisturbed(pair: tuple[Broker, Broker], id: str) -> None:
    first, second = pair
    assert first.link("B2")["state"] == "up"
    first.publish({"@id": id, "price": 1})
    found: list[str] = []

    def has_come() -> bool:
        found.extend(second.received("all"))
        return bool(found)

    wait_until(has_come, first.view)
    assert found == [id]


STRANGERS: dict[str, tuple[LinkHello | bytes, str, str]] = {
    "version": (hello(protocol=LINK_PROTOCOL + 1), "protocol", r"protocol"),
    "future": (bytes(frame(0, ["hello", 99, {"something": "else"}])), "protocol", r"99"),
    "own-name": (hello("B1"), "name", "B1"),
    "taken-name": (hello("B2"), "name", "B2"),
    "bad-name": (hello("a b\n"), "name", "name"),
    "garbage": (b"\0\0\0\x09\0\0\0\0" + b"\xc1" * 5, "invalid", "frame"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "invalid", "frame"),
    "not-a-hello": (bytes(frame(0, ["probe", 1])), "invalid", "LinkHello"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_neighbour_that_does_not_fit_is_told_why(pair: tuple[Broker, Broker], kind: str) -> None:
    first, code, words = STRANGERS[kind]
    stranger = Stranger(pair[0].port, first)
    refusal = stranger.refusal()
    assert refusal.code == code, refusal
    assert words in refusal.reason
    assert "\n" not in refusal.reason
    wait_until(lambda: refusal.reason in pair[0].log, lambda: pair[0].log)
    [line] = [line for line in pair[0].log.splitlines() if refusal.reason in line]
    assert " WARNING refused the link with " in line
    stranger.close()
    check_undisturbed(pair, kind)


def test_garbage_after_a_proper_hello_ends_that_link_only(pair: tuple[Broker, Broker]) -> None:
    stranger = Stranger(pair[0].port, hello("G", "6" * 16))
    assert isinstance(stranger.read(), LinkHello)
    stranger.send(b"\0\0\0\x09\0\0\0\0" + b"\xc1" * 5)
    assert stranger.refusal().code == "invalid"
    stranger.close()
    check_undisturbed(pair, "after")


def test_what_is_too_large_for_a_queue_here_is_kept_from_nobody_else(pair: tuple[Broker, Broker]) -> None:
    first, second = pair
    with second.client() as client:
        small = Subscribe("price > 0", "small", config=QueueConfig(message_bytes_max=1024))
        assert isinstance(client.ask(small), Subscribed)
    try:
        first.publish({"@id": "large", "price": 1, "text": "y" * 2000}, {"@id": "fits", "price": 1})
        wait_until(lambda: second.depth("all") == 2, second.view)
        assert second.received("all") == {"large": 1, "fits": 1}
        assert second.received("small") == {"fits": 1}
        assert "too large for 1 of its queues" in second.log
    finally:
        second.unsubscribe("small")


def test_a_clock_that_is_an_hour_apart_is_noted_and_nothing_else(pair: tuple[Broker, Broker]) -> None:
    stranger = Stranger(pair[0].port, hello("C", "7" * 16, now_ms=_now_ms() + 3_600_000))
    assert isinstance(stranger.read(), LinkHello)
    wait_until(lambda: "clock" in pair[0].log, lambda: pair[0].log)
    [line] = [line for line in pair[0].log.splitlines() if "clock" in line]
    assert "C" in line
    stranger.close()
    check_undisturbed(pair, "clock")


def test_a_neighbour_that_this_broker_joins_is_removed_until_it_starts_again(tmp_path: Path) -> None:
    first = Broker(tmp_path, "B1")
    second = Broker(tmp_path, "B2", first)
    try:
        wait_for_members(first, second)
        removed = lavant("federation", "rm", "B1", "--yes", "--url", second.url)
        assert removed.exit_code == 0, removed.output
        wait_until(lambda: "was removed" in (second.view()["joins"][0]["fault"] or ""), second.view)
        time.sleep(0.5)  # for an attempt that there should not be
        assert [each.view()["links"] for each in (first, second)] == [[], []]
        assert "restart this broker with --join" in second.log
        second.stop()
        second.start()
        wait_for_members(first, second)
    finally:
        for broker in (first, second):
            broker.kill()


def test_an_operator_sets_the_bounds_of_a_links_queue(tmp_path: Path) -> None:
    config = tmp_path / "lavant.toml"
    config.write_text("[limits]\nlink_waiting_bytes_max = 300\nlink_waiting_s_max = 1000\n")
    first = Broker(tmp_path, "B1", options=("--config", str(config)))
    second = Broker(tmp_path, "B2", first)
    try:
        wait_for_members(first, second)
        second.subscribe("price > 0", "all")
        wait_until(lambda: first.link("B2")["subscriptions"] == 1, first.view)
        second.kill()
        wait_until(lambda: first.link("B2")["state"] == "down", first.view)
        entries = [first.publish({"@id": f"p{x}", "price": 1, "text": "y" * 60}).entries[0] for x in range(5)]
        taken = [entry for entry in entries if isinstance(entry, str)]
        refused = [entry.reason for entry in entries if isinstance(entry, Refused)]
        assert taken == ["p0", "p1"], entries
        assert all("and 300 may" in reason and "link_waiting_bytes_max" in reason for reason in refused), refused
        second.start()
        wait_until(lambda: second.depth("all") == len(taken), second.view)
        assert second.received("all") == {"p0": 1, "p1": 1}
    finally:
        for broker in (first, second):
            broker.kill()


def test_a_join_to_what_is_no_name_of_a_machine_says_so(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "B1", "lavants://a..b", options=("--join-key", "lavant_x"))
    try:
        wait_until(lambda: "cannot be the name of a machine" in broker.view()["joins"][0]["fault"], broker.view)
    finally:
        broker.kill()


@pytest.mark.soak
def test_a_server_without_a_name_refuses_links(tmp_path: Path) -> None:
    with Served(None) as server:
        stranger = Stranger(server.port, hello())
        assert "--name" in stranger.refusal().reason
        stranger.close()
        dialler = Broker(tmp_path, "D", server.url)
        try:
            wait_until(lambda: "start it with --name" in dialler.log, lambda: dialler.log)
            shown = lavant("federation", "links", "--url", dialler.url)
            assert shown.exit_code == 1
            assert "start it with --name" in shown.stdout
        finally:
            dialler.kill()


@pytest.mark.soak
def test_links_need_a_key_of_their_own(tmp_path: Path) -> None:
    keys, certificate = tmp_path / "keys.toml", write_certificate(tmp_path)
    broker_key = lavant("keys", "new", "b2", "--file", str(keys), "--scope", "broker").stdout.strip()
    client_key = lavant("keys", "new", "office", "--file", str(keys), "--scope", "admin").stdout.strip()
    secure = ("--keys-file", str(keys), "--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    trusted = ("--join-ca-file", str(certificate[0]))
    first = Broker(tmp_path, "B1", options=secure)
    brokers = [first]
    url = first.url.replace("lavant://", "lavants://")
    asked = ("--url", url, "--key", client_key, "--ca-file", str(certificate[0]))
    try:
        client = Broker(tmp_path, "B2", url, options=("--join-key", client_key, *trusted))
        brokers.append(client)
        wait_until(lambda: "needs a key with the scope broker" in client.log, lambda: client.log)
        assert "needs a key with the scope broker" in first.log
        unknown = Broker(tmp_path, "B3", url, options=("--join-key", "lavant_wrong", *trusted))
        brokers.append(unknown)
        wait_until(lambda: "got one that it does not know" in unknown.log, lambda: unknown.log)
        right = Broker(tmp_path, "B4", url, options=("--join-key", broker_key, *trusted))
        brokers.append(right)
        wait_for_members_of(right, ["B1", "B4"])
        denied = lavant("pub", "price=1", "--url", url, "--key", broker_key, "--ca-file", str(certificate[0]))
        assert "is for links between brokers" in str(denied.exception)
        assert [line.split()[0] for line in lavant("federation", "links", *asked).stdout.splitlines()[1:]] == ["B4"]
        keys.write_text(keys.read_text().partition("\n[[keys]]")[2].join(["[[keys]]", ""]))
        first.served.process.send_signal(1)  # SIGHUP
        wait_until(lambda: "was changed or removed" in right.log, lambda: right.log)
    finally:
        for broker in brokers:
            broker.kill()


def wait_for_members_of(broker: Broker, names: list[str]) -> None:
    wait_until(lambda: sorted(each["name"] for each in broker.view()["members"]) == names, broker.view)


@pytest.mark.parametrize("url", ["lavant://queues.example", "lavants://queues.example", "lavant://10.0.0.1:7324"])
def test_no_link_leaves_the_machine_without_tls_and_a_key(tmp_path: Path, url: str) -> None:
    key = () if url.startswith("lavants") else ("--join-key", "lavant_x")
    refused = lavant("serve", "--data", str(tmp_path), "--name", "B1", "--join", url, *key)
    assert isinstance(refused.exception, InvalidValue)
    assert str(refused.exception).startswith(f"--join {Address.parse(url)} leaves this machine")
