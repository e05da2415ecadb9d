"""One connection of a link: frames both ways, the key of the other side, and back-pressure.

    dialler ──LAVANTLINK\\n, LinkHello with a key──► acceptor
            ◄──LinkHello, or LinkRefused──
            ──LinkOpen──►  ◄──LinkOpened──           both sides are equal from then on

The federation machine decides what is sent; this class writes it. Publications stop while the other side does not read,
control frames do not, so few bytes are ever ahead of a control frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from lavant.broker.federation.frames import (
    LINK_PROTOCOL,
    LinkFrame,
    LinkHello,
    LinkOpened,
    LinkRefused,
    decode_link_frame,
)
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.frames import LINK_PREFACE
from lavant.broker.protocol.subscriptions import Published
from lavant.core.addresses import SECURE, Address, is_loopback
from lavant.core.errors import UNDECODABLE, AccessDenied, LavantError, NotReady
from lavant.core.frames import Frames, frame
from lavant.service.auth.authorization import revoked
from lavant.service.auth.keys import BROKER_SCOPE, Principal
from lavant.service.federation.settings import check_name
from lavant.service.net.admission import Ticket

if TYPE_CHECKING:
    from lavant.service.federation.links import FederationLinks

WRITE_BYTES_HIGH = 256 << 10
"""Bytes in the send buffer; then no publications are added until there are fewer."""
TOGETHER_BYTES = 32 << 10
"""Frames of one turn are gathered up to this size before they are written."""
HELLO_BYTES_MAX = 4 << 20
"""Of the first frame, which lists the brokers behind the link."""
FRAME_NUMBER = 0
"""Of every frame: links number publications themselves."""
STARTING, LINKED = "starting", "linked"
PASSING = (STARTING, LINKED)
"""Codes of refusals that pass: by a broker that does not serve yet, or that has a link to this one already."""
NAME_SHOWN = 80


class LinkConnection(asyncio.Protocol):
    """`address` is where this side dialled; None if the other side did."""

    def __init__(self, links: FederationLinks, ticket: Ticket | None, address: Address | None = None) -> None:
        self.address = address
        self.neighbour = ""
        """The name that the other side gave in its hello."""
        self.is_welcome = False
        """Whether the link is open on both sides."""
        self.reason = ""
        """Why it ended."""
        self.refusal: LinkRefused | None = None
        """Sent by the other side."""
        self.is_passing = False
        """Whether it ended for a reason that passes by itself."""
        self.on_welcome: Callable[[LinkConnection], None] = lambda connection: None
        self.ended = asyncio.Event()
        self._links = links
        self._ticket = ticket
        self._frames = Frames(HELLO_BYTES_MAX)
        self._principal: Principal | None = None
        self._is_closed = False
        self._claimed = ""
        """The name in the hello of a broker that is not admitted yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._unwritten = bytearray()
        self._transport: asyncio.Transport

    # ── called by the event loop ──────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        self._abort_after(self._links.limits.greeting_s_max)
        self._links.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            for _, content in self._frames.feed(data):
                if self._is_closed:
                    return
                if not self.neighbour and (version := _version(content)) != LINK_PROTOCOL:
                    self.refuse("protocol", _other_version(self.peer, version))
                    return
                self._take(decode_link_frame(content))
        except (LavantError, *UNDECODABLE) as error:
            if self.neighbour:
                self.refuse("invalid", f"{self.peer} sent a frame that is not of a link: {error}")
            else:
                self.refuse("invalid", f"{self.peer} is no broker of Lavant: its first frame is not of a link")

    def connection_lost(self, exc: Exception | None) -> None:
        self._abort_after(None)
        if self._ticket is not None:
            self._ticket.leave()
        if self._principal is not None:
            self._principal.revocation.unwatch(self._revoke)
        broke = "the connection broke" if exc is None else f"the connection broke: {exc}"
        if self.address is not None and not self.address.is_secure and not self.neighbour:
            broke += f" before anything came; if {self.address.host} serves with TLS, join with {SECURE}://"
        self._leave(broke)
        self.ended.set()

    def pause_writing(self) -> None:
        if not self._is_closed:
            self._links.paused(self)

    def resume_writing(self) -> None:
        if not self._is_closed:
            self._links.resumed(self)

    # ── called by the service ─────────────────────────────────────────────────────────────────────────────────────────

    def send(self, value: LinkFrame) -> None:
        if self._is_closed:
            return
        if isinstance(value, LinkHello) and self.address is not None:
            value = replace(value, token=self._links.settings.key.encode())
            self._write(LINK_PREFACE)
        elif isinstance(value, LinkOpened):
            self._welcome()
        elif isinstance(value, LinkRefused):
            self.is_passing = value.code in PASSING
            self._links.refused(self, value)
        self._write(frame(FRAME_NUMBER, value))

    def reply(self, reply: Reply) -> None:
        """Publications of this link are durable here, or refused."""
        assert isinstance(reply.answer, Published)
        self._links.relayed(self, reply.number, reply.answer)

    def refuse(self, code: str, reason: str) -> None:
        """Tell the other side why, and close."""
        if not self._is_closed:
            self.send(LinkRefused(code, reason))
            self.close(reason)

    def close(self, reason: str = "this broker stops") -> None:
        """Close when everything written has been sent."""
        if not self._is_closed:
            self._leave(reason)
            self._write_all()
            self._transport.close()
            self._abort_after(self._links.limits.stop_s_max)

    @property
    def peer(self) -> str:
        """The other side, for people."""
        if self.neighbour:
            return f"broker {self.neighbour}"
        if self.address is not None:
            return str(self.address)
        return f"{self.host}, as broker {self._claimed!r}" if self._claimed else self.host

    @property
    def host(self) -> str:
        """The machine of the other side."""
        at = self._transport.get_extra_info("peername")
        return str(at[0]) if at else "a broker that is gone"

    # ── ServerConnection: a link counts among the connections of the server ───────────────────────────────────────────

    def flush(self) -> None:
        """Frames are written by themselves at the end of a turn."""

    def pause_for_disk(self) -> None:
        if not self._is_closed and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_for_disk(self) -> None:
        if not self._is_closed and not self._transport.is_reading():
            self._transport.resume_reading()

    def keys_changed(self) -> None:
        """The principal's revocation closes it."""

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, value: LinkFrame) -> None:
        if isinstance(value, LinkRefused):
            self.refusal, self.is_passing = value, value.code in PASSING
            self._links.received(self, value)
            self.close(value.reason)
        elif self.neighbour:
            self._links.received(self, value)
            if isinstance(value, LinkOpened) and not self._is_closed:
                self._welcome()
        elif not isinstance(value, LinkHello):
            self.refuse("invalid", f"the first frame of {self.peer} is {type(value).__name__}, not LinkHello")
        elif self.address is not None or self._is_admitted(value):
            try:
                check_name(value.name)
            except LavantError as error:
                self.refuse("name", str(error))
                return
            self.neighbour = value.name
            self._frames.bytes_max = self._links.limits.frame_bytes_max
            self._links.received(self, replace(value, token=b""))

    def _write(self, data: bytes | bytearray) -> None:
        """The frames of one turn of the event loop are written together, as far as they are small."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_all)
        self._unwritten += data
        if len(self._unwritten) >= TOGETHER_BYTES:
            self._write_all()

    def _write_all(self) -> None:
        data, self._unwritten = bytes(self._unwritten), bytearray()
        if data and not self._transport.is_closing():  # it may have broken meanwhile
            self._transport.write(data)

    def _welcome(self) -> None:
        self.is_welcome = True
        self._abort_after(None)
        self._links.welcomed(self)
        self.on_welcome(self)

    def _is_admitted(self, hello: LinkHello) -> bool:
        """Whether this is a broker that may open links; tells it why if not."""
        self._claimed = hello.name[:NAME_SHOWN]
        try:
            self._links.readiness.check()
            principal = self._authenticated(hello.token)
            self._check_wire()
            if self._ticket is not None:
                self._ticket.authenticated(principal.tenant)
        except NotReady as error:
            self.refuse(STARTING, str(error))
            return False
        except LavantError as error:
            self.refuse("key", str(error))
            return False
        self._principal = principal
        principal.revocation.watch(self._revoke)
        self._links.admitted(self)
        return True

    def _authenticated(self, secret: bytes) -> Principal:
        try:
            principal = self._links.keys.principal(secret)
        except AccessDenied:
            said = "one that it does not know" if secret else "none"
        else:
            if BROKER_SCOPE in principal.scopes:
                return principal
            said = f"{principal.name!r}, which has another scope"
        raise AccessDenied(
            f"a link needs a key with the scope {BROKER_SCOPE}, and this broker got {said}; "
            "`lavant keys new --scope broker` makes one for its keys file, and --join-key gives it"
        )

    def _check_wire(self) -> None:
        if not is_loopback(self.host) and self._transport.get_extra_info("ssl_object") is None:
            raise AccessDenied("a link from another machine needs TLS; join with lavants://")

    def _revoke(self) -> None:
        assert self._principal is not None
        self.refuse("key", str(revoked(self._principal)))

    def _leave(self, reason: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.reason = reason
            self._links.closed(self)

    def _abort_after(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._abort)

    def _abort(self) -> None:
        self._leave(f"{self.peer} did not answer in time")
        self._transport.abort()


def _version(content: bytes) -> int:
    """Of the protocol that a hello is written in; its other fields may differ between versions."""
    found = msgspec.msgpack.decode(content)
    is_hello = isinstance(found, list) and len(found) > 1 and found[0] == LinkHello.__struct_config__.tag
    return found[1] if is_hello and isinstance(found[1], int) else LINK_PROTOCOL


def _other_version(peer: str, version: int) -> str:
    return (
        f"{peer} speaks version {version} of the protocol between brokers, this one version {LINK_PROTOCOL}; run the "
        "same version of Lavant on both"
    )


class UnnamedBroker(asyncio.Protocol):
    """Refuses links to a server that is in no federation."""

    def __init__(self, ticket: Ticket, seconds_max: float) -> None:
        self._ticket = ticket
        self._seconds_max = seconds_max
        self._timer: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(self._seconds_max, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """The hello was read: closing before that would reset the connection, and lose the answer."""
        if not self._transport.is_closing():
            reason = "this server is no broker of a federation; start it with --name"
            self._transport.write(frame(FRAME_NUMBER, LinkRefused("name", reason)))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._ticket.leave()
