"""One connection of a link: who is let in, what the machine sees, and when it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.service.key_rings import key_ring
from tests.unit.service.wiring import FakeTransport, ready, ticket

from lavant.broker.federation.frames import (
    LINK_PROTOCOL,
    LinkAcknowledged,
    LinkHello,
    LinkOpened,
    LinkProbe,
    LinkRefused,
    decode_link_frame,
)
from lavant.broker.federation.routes.tables import NO_ROUTES
from lavant.broker.protocol.frames import LINK_PREFACE
from lavant.core.addresses import Address
from lavant.core.frames import Frames, frame
from lavant.service.auth.keys import KeyEntry, KeyRing, sha256_of
from lavant.service.federation.connection import LinkConnection
from lavant.service.runtime.limits import LIMITS
from lavant.service.runtime.readiness import Readiness

HELLO = LinkHello(LINK_PROTOCOL, "B2", "b2", 1, 0, "", [], 0, NO_ROUTES, 0)
KEYS = (
    KeyEntry(name="b2", sha256=sha256_of("broker"), scopes=["broker"]),
    KeyEntry(name="office", sha256=sha256_of("client"), scopes=["admin"]),
)


class NotingLinks:
    """Notes what a connection tells."""

    def __init__(self, keys: KeyRing, readiness: Readiness) -> None:
        self.keys, self.readiness, self.limits = keys, readiness, LIMITS
        self.settings = SimpleNamespace(key="broker")
        self.told: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda connection, *values: self.told.append((name, values[-1] if values else None))

    def names(self) -> list[str]:
        return [name for name, _ in self.told]


class WireTransport(FakeTransport):
    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__()
        self._host = host

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._host, 5000) if name == "peername" else default

    def frames(self) -> list[Any]:
        data = b"".join(self.writes).removeprefix(LINK_PREFACE)
        return [decode_link_frame(content) for _, content in Frames().feed(data)]


def connected(
    keys: KeyRing, *, address: Address | None = None, host: str = "127.0.0.1", readiness: Readiness | None = None
) -> tuple[LinkConnection, NotingLinks, WireTransport]:
    links, transport = NotingLinks(keys, ready() if readiness is None else readiness), WireTransport(host)
    connection = LinkConnection(links, None if address else ticket(), address)  # type: ignore[arg-type]
    connection.connection_made(transport)
    return connection, links, transport


def answer_to(data: bytes, keys: KeyRing, **options: Any) -> tuple[list[Any], NotingLinks]:
    """What an acceptor sends, and what it tells."""

    async def run() -> tuple[list[Any], NotingLinks]:
        connection, links, transport = connected(keys, **options)
        connection.data_received(data)
        connection.connection_lost(None)
        return transport.frames(), links

    return asyncio.run(run())


def with_token(token: str) -> bytes:
    return bytes(frame(0, replace(HELLO, token=token.encode())))


def test_a_broker_with_its_key_is_admitted_and_the_machine_never_sees_the_key(tmp_path: Path) -> None:
    sent, links = answer_to(with_token("broker"), key_ring(tmp_path, *KEYS))
    assert sent == []
    assert links.told[:3] == [("opened", None), ("admitted", None), ("received", HELLO)]


@pytest.mark.parametrize(
    ("token", "reason"), [("client", "scope broker"), ("wrong", "does not know"), ("", "got none")]
)
def test_anybody_else_is_refused(tmp_path: Path, token: str, reason: str) -> None:
    [refusal], links = answer_to(with_token(token), key_ring(tmp_path, *KEYS))
    assert refusal.code == "key"
    assert reason in refusal.reason
    assert "--join-key" in refusal.reason
    assert "received" not in links.names()


def test_without_keys_only_this_machine_may_link(tmp_path: Path) -> None:
    assert answer_to(with_token(""), KeyRing())[1].names()[1:3] == ["admitted", "received"]
    [refusal], _ = answer_to(with_token("broker"), key_ring(tmp_path, *KEYS), host="10.0.0.7")
    assert refusal.code == "key"
    assert "needs TLS" in refusal.reason


def test_a_broker_that_starts_says_so() -> None:
    [refusal], links = answer_to(with_token(""), KeyRing(), readiness=Readiness(lambda: None))
    assert refusal.code == "starting"
    assert "received" not in links.names()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(0, ["hello", LINK_PROTOCOL + 1, "fields", "of", "the", "future"]), "protocol"),
        (frame(0, ["hello", LINK_PROTOCOL, "too", "short"]), "invalid"),
        (frame(0, LinkProbe(1)), "invalid"),
        (frame(0, {"a": "map"}), "invalid"),
        (b"\0\0\0\x05\0\0\0\0\xc1", "invalid"),
        (b"\xff" * 8, "invalid"),
        (b"\0" * 8, "invalid"),
    ],
)
def test_what_is_no_hello_of_this_version_is_refused_in_one_line(data: bytes, code: str) -> None:
    [refusal], links = answer_to(bytes(data), KeyRing())
    assert isinstance(refusal, LinkRefused)
    assert refusal.code == code
    assert "\n" not in refusal.reason
    assert ("refused", refusal) in links.told
    assert "received" not in links.names()


def test_a_dialler_sends_preface_and_key_and_takes_frames_after_the_hello() -> None:
    async def run() -> None:
        connection, links, transport = connected(KeyRing(), address=Address("127.0.0.1", 1))
        connection.send(HELLO)
        await asyncio.sleep(0)
        assert b"".join(transport.writes).startswith(LINK_PREFACE)
        assert transport.frames()[0].token == b"broker"
        connection.data_received(bytes(frame(0, HELLO)))
        assert not connection.is_welcome
        connection.data_received(bytes(frame(0, LinkOpened()) + frame(0, LinkAcknowledged(3))))
        told = [("received", HELLO), ("received", LinkOpened()), ("welcomed", None), ("received", LinkAcknowledged(3))]
        assert links.told[1:] == told
        assert connection.is_welcome
        connection.data_received(b"\xff" * 8)
        assert transport.frames()[-1].code == "invalid"
        assert links.names()[-1] == "closed"
        connection.data_received(bytes(frame(0, LinkAcknowledged(4))))
        assert links.names()[-1] == "closed"
        connection.connection_lost(None)

    asyncio.run(run())


def test_what_was_not_written_when_the_connection_broke_is_dropped() -> None:
    async def run() -> None:
        connection, _, transport = connected(KeyRing(), address=Address("127.0.0.1", 1))
        connection.send(HELLO)
        transport.close()
        connection.connection_lost(None)
        await asyncio.sleep(0)
        assert not transport.writes

    asyncio.run(run())


@pytest.mark.parametrize(("is_secure", "is_asked"), [(False, True), (True, False)])
def test_one_that_hangs_up_without_a_word_may_want_tls(is_secure: bool, is_asked: bool) -> None:
    async def run() -> None:
        connection, _, _ = connected(KeyRing(), address=Address("127.0.0.1", 1, is_secure))
        connection.send(HELLO)
        connection.connection_lost(None)
        assert connection.reason.startswith("the connection broke")
        assert ("join with lavants://" in connection.reason) == is_asked

    asyncio.run(run())


def test_a_key_that_is_removed_ends_the_link(tmp_path: Path) -> None:
    async def run() -> None:
        keys = key_ring(tmp_path, *KEYS)
        connection, links, transport = connected(keys)
        connection.data_received(with_token("broker"))
        assert keys.path is not None
        keys.path.write_text("")
        keys.read()
        assert transport.frames()[-1].reason == "key 'b2' was changed or removed"
        assert links.names()[-1] == "closed"
        connection.connection_lost(None)

    asyncio.run(run())
