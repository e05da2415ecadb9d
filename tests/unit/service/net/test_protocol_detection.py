"""The first bytes decide, in whatever pieces they come, and who sends none is not waited for."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.service.wiring import FakeTransport, ticket, until

from lavant.broker.protocol.frames import LINK_PREFACE, PREFACE
from lavant.service.net.admission import Ticket
from lavant.service.net.protocol_detection import DetectingProtocol
from lavant.service.observability.logs import RepeatedFault


class Noting(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.data += data


def noting(_: Ticket) -> Noting:
    return Noting()


def sniff(*pieces: bytes) -> tuple[str, bytes]:
    """Who got the connection, and what it was told."""

    async def run() -> tuple[str, bytes]:
        transport, compact, link, http = FakeTransport(), Noting(), Noting(), Noting()
        prefaces = {PREFACE: lambda _: compact, LINK_PREFACE: lambda _: link}
        sniffing = DetectingProtocol(prefaces, lambda _: http, 60, RepeatedFault(), ticket())
        sniffing.connection_made(transport)
        for piece in pieces:
            (transport.protocol if isinstance(transport.protocol, Noting) else sniffing).data_received(piece)
        names: dict[object, str] = {compact: "compact", link: "link", http: "http", None: "nobody"}
        return names[transport.protocol], compact.data + link.data + http.data

    return asyncio.run(run())


@pytest.mark.parametrize("cut", range(1, len(PREFACE) + 3))
@pytest.mark.parametrize(("preface", "name"), [(PREFACE, "compact"), (LINK_PREFACE, "link")])
def test_the_preface_is_known_in_pieces(preface: bytes, name: str, cut: int) -> None:
    stream = preface + b"hello"
    assert sniff(stream[:cut], stream[cut:]) == (name, b"hello")


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"L", b"LAVANT2\n", b"\x16\x04", b"LAVANT1\r\n"])
def test_everything_else_is_for_http_which_knows_what_to_say(start: bytes) -> None:
    expected = ("nobody", b"") if start == b"L" else ("http", start)
    assert sniff(start) == expected


def test_what_came_before_the_decision_is_handed_on() -> None:
    assert sniff(b"L", b"A", b"X / HTTP/1.1") == ("http", b"LAX / HTTP/1.1")


def test_who_speaks_tls_is_told_in_plain_words_and_the_log_has_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(handshakes: RepeatedFault) -> None:
        for _ in range(3):
            transport = FakeTransport()
            sniffing = DetectingProtocol({PREFACE: noting}, noting, 60, handshakes, ticket())
            sniffing.connection_made(transport)
            sniffing.data_received(b"\x16\x03\x01\x02\0")
            assert transport.writes[0].startswith(b"HTTP/1.1 400 ")
            assert transport.is_closing()
            sniffing.connection_lost(None)

    asyncio.run(run(RepeatedFault()))
    [line] = caplog.messages
    assert "speaks TLS" in line
    asyncio.run(run(RepeatedFault()))
    assert caplog.messages == [line, line], "another port has lines of its own"


def test_who_says_nothing_is_disconnected() -> None:
    async def run() -> None:
        transport = FakeTransport()
        sniffing = DetectingProtocol({PREFACE: noting}, noting, 0.01, RepeatedFault(), ticket())
        sniffing.connection_made(transport)
        sniffing.data_received(b"LAV")
        await until(lambda: transport.is_aborted)

    asyncio.run(run())


def test_who_hung_up_or_was_handed_on_is_left_alone() -> None:
    async def run() -> None:
        gone, handed_on = FakeTransport(), FakeTransport()
        for transport in (gone, handed_on):
            sniffing = DetectingProtocol({PREFACE: noting}, noting, 0.01, RepeatedFault(), ticket())
            sniffing.connection_made(transport)
            if transport is gone:
                sniffing.connection_lost(None)
            else:
                sniffing.data_received(PREFACE)
        await asyncio.sleep(0.03)
        assert not gone.is_aborted
        assert not handed_on.is_aborted

    asyncio.run(run())
