"""A connection of the native protocol.

    new ──Hello──► open ──┬──► paused    the server does not read from it (see `ReadPause`)
     │              ▲     │      │
     │              └─────┼──────┘
     └────────────────────┴──► closed    by the client, after an invalid frame, or because it does not read

Requests are processed in the turns of their namespace (`turns`); until then they wait in the backlog, and nothing more
is read. Answers of one turn of the event loop are collected and written at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, cast

from lavant.broker.machine.effects import Reply
from lavant.broker.machine.long_polls import nothing_instead
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.frames import FAULT_NUMBER, GREETING_NUMBER, NO_REQUEST, decode_hello, decode_request
from lavant.broker.protocol.jobs import TasksLeased
from lavant.broker.protocol.queues import Done, Received
from lavant.broker.queues.validation import refusal
from lavant.core.errors import UNDECODABLE, AccessDenied, InvalidValue, LavantError, NotReady, QuotaExceeded
from lavant.core.frames import Frames, append_frame, frame
from lavant.service.auth.audit.log import Origin
from lavant.service.auth.authorization import authorize, revoked, strip
from lavant.service.auth.keys import KeyRing, Principal
from lavant.service.auth.tenants import ANYBODY
from lavant.service.net.admission import Ticket
from lavant.service.observability.logs import tell_of_unknown_key
from lavant.service.runtime.readiness import Readiness

if TYPE_CHECKING:
    from lavant.service.runtime.broker_runtime import BrokerRuntime


TURNS_MAX = 8
"""Consecutive turns before the answers to the first requests are written."""


class ReadPause(Enum):
    """Why the server does not read from a connection."""

    OUTSTANDING = "too many requests have no answer yet"
    UNREAD = "the client does not read its answers"
    STAGED = "too much waits for the disk"


class NativeProtocol(asyncio.Protocol):
    """One connection."""

    cost_s = 0.0
    """A turn costs the time it takes."""

    def __init__(self, service: BrokerRuntime, keys: KeyRing, readiness: Readiness, ticket: Ticket) -> None:
        self.ended = asyncio.Event()
        self._service = service
        self._limits = service.limits
        self._keys = keys
        self._readiness = readiness
        self._ticket = ticket
        self._principal: Principal | None = None
        """The client, whose requests are authorised; None if the server is open."""
        self._frames = Frames(self._limits.hello_bytes_max)
        self._buffer = bytearray()
        self._leases: list[Reply] = []
        """Answers in the buffer that hold leases."""
        self._outstanding = 0
        self._is_greeted = False
        self._is_closed = False
        self._is_reading = True
        self._pauses: set[ReadPause] = set()
        self._backlog: Iterator[tuple[int, bytes]] | None = None
        """Frames that are not processed yet."""
        self._audited: defaultdict[int, deque[Request]] = defaultdict(deque)
        """Requests to be written to the audit log when they are answered, by number."""
        self._is_entered = False
        """Whether it waits for a turn."""
        self._turns = 0
        """Turns since answers were last written."""
        self._clock = service.turns.clock
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    # ── called by the event loop ──────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.unread_bytes_high)
        self._abort_after(self._limits.greeting_s_max)
        self._service.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abort_after(None)
        self._leave()
        self._ticket.leave()
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        if not self._is_closed:
            frames = self._frames.feed(data)
            # Data after the backlog is not parsed before that is empty: both share the frame parser.
            self._backlog = frames if self._backlog is None else chain(self._backlog, frames)
            self._go_on()

    def pause_writing(self) -> None:
        if not self._is_closed:  # a closed connection has its deadline already
            self.pause(ReadPause.UNREAD)
            self._abort_after(self._limits.unread_s_max)
            self._service.send_buffers.note(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if not self._is_closed:
            self._abort_after(None)
            self._service.send_buffers.forget(self)
            self.resume(ReadPause.UNREAD)

    # ── called by the service ─────────────────────────────────────────────────────────────────────────────────────────

    def reply(self, reply: Reply) -> None:
        """An answer for the client; it leaves with the others of this turn."""
        self._outstanding -= 1
        if self._audited:
            self._tell(reply.number, reply.answer)
        if self._is_closed:
            self._service.undelivered(reply)
            return
        answer = reply.answer
        if reply.queue and self._is_behind():  # it asks again when it has read the others
            self._service.undelivered(reply)
            answer = nothing_instead(cast(Received | TasksLeased, answer))
        elif reply.queue:
            self._leases.append(reply)
        if not self._buffer:
            self._service.has_answers(self)
        if self._principal is not None:
            answer = strip(self._principal, answer)
        append_frame(self._buffer, reply.number, answer)
        if len(self._buffer) > self._limits.unread_bytes_high:  # large answers need not wait for the turn's end
            self.flush()

    def flush(self) -> None:
        """The turn is over."""
        if self._is_closed:
            return
        if self._transport.is_closing():  # the client is gone, which asyncio reports in the next turn
            self._leave()
            return
        data, self._buffer = self._buffer, bytearray()
        try:
            self._transport.write(data)
            self._leases.clear()
        except Exception:  # answers of other connections must not be lost with this one's
            self.abort()
        if self._pauses:
            self._check_unread()
            self._check_outstanding()

    def pause(self, reason: ReadPause) -> None:
        self._pauses.add(reason)
        self._read_or_not()

    def resume(self, reason: ReadPause) -> None:
        if reason in self._pauses:
            self._pauses.discard(reason)
            self._go_on()

    def pause_for_disk(self) -> None:
        self.pause(ReadPause.STAGED)

    def resume_for_disk(self) -> None:
        self.resume(ReadPause.STAGED)

    def keys_changed(self) -> None:
        """Disconnect a client whose key was removed or changed."""
        if self._principal is not None and not self._keys.knows(self._principal):
            self._buffer.clear()  # answers of this turn, not written yet
            self._hang_up(revoked(self._principal), FAULT_NUMBER)

    def close(self) -> None:
        """Close when everything written has been sent."""
        if not self._is_closed:
            self._leave()
            self._transport.close()
            self._abort_after(self._limits.stop_s_max)

    # ── its own ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        """Enter the backlog for a turn, then read on."""
        is_ready = self._backlog is not None and not self._pauses and not self._is_closed and not self._is_entered
        if is_ready and (self._is_greeted or self._greet()):
            self._is_entered = True
            self._service.turns.enter(self._namespace, self)
        self._read_or_not()

    @property
    def _namespace(self) -> str:
        return "" if self._principal is None else self._principal.namespace

    def _read_or_not(self) -> None:
        reads = self._backlog is None and not self._pauses
        if reads is not self._is_reading and not self._is_closed:
            self._is_reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def take(self, until_s: float) -> bool:
        """Process requests; those after a reason to pause are processed when it is over."""
        has_more = False
        try:
            has_more = not self._is_closed and self._take_until(until_s)
        except LavantError as error:
            self._hang_up(error, FAULT_NUMBER)
        self._is_entered = has_more
        self._service.had_turn(self._namespace)
        self._turns += 1
        if not has_more or self._turns >= TURNS_MAX:
            self._turns = 0
            self._service.taken()
        self._read_or_not()
        return has_more

    def _take_until(self, until_s: float) -> bool:
        """Returns whether more requests can be processed at once."""
        assert self._backlog is not None
        clock = self._clock
        for number, content in self._backlog:
            self._outstanding += 1
            try:
                request = decode_request(content)
            except UNDECODABLE as error:
                self.reply(Reply(self, number, refusal(_no_request(error))))
            else:
                if self._principal is None:
                    self._service.request(self, number, request, content)
                else:
                    self._request_as(self._principal, number, request, content)
            if self._outstanding > self._limits.outstanding_max:
                self._check_outstanding()
            if self._pauses:
                return False
            if clock() >= until_s:
                return True
        self._backlog = None
        return False

    def _request_as(self, principal: Principal, number: int, request: Request, content: bytes) -> None:
        audit = self._service.audit
        try:
            placed = authorize(principal, request, time.monotonic())
        except LavantError as error:
            if audit is not None:
                audit.answered(principal, self._origin, request, refusal(error))
            self.reply(Reply(self, number, refusal(error)))
            return
        if audit is not None and audit.wants(type(request)):
            self._audited[number].append(request)
        self._service.request(self, number, placed, content if placed is request else None)

    def _tell(self, number: int, answer: Answer) -> None:
        """Write an answer to the audit log; also with several requests of one number, which no client should send."""
        requests = self._audited.get(number)
        if requests is not None:
            assert self._service.audit is not None
            assert self._principal is not None
            self._service.audit.answered(self._principal, self._origin, requests.popleft(), answer)
            if not requests:
                del self._audited[number]

    @property
    def _origin(self) -> Origin:
        peer = self._transport.get_extra_info("peername")
        return Origin("native", "" if not peer else f"{peer[0]}:{peer[1]}")

    def _greet(self) -> bool:
        """Returns whether the greeting has arrived and was accepted."""
        assert self._backlog is not None
        try:
            first = next(self._backlog, None)
            if first is None:
                self._backlog = None
            else:
                self._let_in(*first)
        except LavantError as error:
            self._hang_up(error, FAULT_NUMBER)
        except UNDECODABLE as error:
            self._hang_up(_no_request(error), FAULT_NUMBER)
        return self._is_greeted

    def _let_in(self, number: int, content: bytes) -> None:
        hello = decode_hello(content)
        if number != GREETING_NUMBER:
            raise InvalidValue(f"the first frame is a greeting with number {GREETING_NUMBER}, got number {number}")
        audit = self._service.audit
        try:
            if not self._keys.is_open or audit is not None:
                self._principal = self._keys.principal(hello.token)
            self._readiness.check()
            self._ticket.authenticated(ANYBODY if self._principal is None else self._principal.tenant)
        except (AccessDenied, NotReady, QuotaExceeded) as error:
            if isinstance(error, AccessDenied):
                tell_of_unknown_key(self._origin)
                if audit is not None:
                    audit.not_authenticated(self._origin, type(error).__name__)
            self._hang_up(error, GREETING_NUMBER)
            return
        self._is_greeted = True
        self._frames.bytes_max = self._limits.frame_bytes_max
        self._abort_after(None)
        self._transport.write(frame(GREETING_NUMBER, Done()))

    def _check_outstanding(self) -> None:
        """Long polls do not count: they are bounded elsewhere and must not block other requests."""
        if self._outstanding - self._service.waiting(self) > self._limits.outstanding_max:
            self.pause(ReadPause.OUTSTANDING)
        else:
            self.resume(ReadPause.OUTSTANDING)

    def _hang_up(self, error: LavantError, number: int) -> None:
        """Send the reason and close."""
        if self._buffer:  # its answers are sent, with their leases
            self._leases.clear()
        self._transport.write(self._buffer + frame(number, refusal(error)))
        self.close()

    def _leave(self) -> None:
        """Stop reading and answering, and return the messages leased to this client."""
        self._service.send_buffers.forget(self)
        if not self._is_closed:
            self._is_closed = True
            self._service.closed(self)
            for reply in self._leases:
                self._service.undelivered(reply)

    def _is_behind(self) -> bool:
        """Whether the client has so many answers to read that more messages might disconnect it. They would be leased
        to nobody then. Many of its long polls may be served at once."""
        unread_bytes = self._transport.get_write_buffer_size() + len(self._buffer)
        return unread_bytes > self._limits.unread_bytes_max // 2

    def _check_unread(self) -> None:
        unread_bytes = self._transport.get_write_buffer_size()
        if unread_bytes > self._limits.unread_bytes_max:
            self.abort()
        elif ReadPause.UNREAD in self._pauses and not self._is_closed:
            self._service.send_buffers.note(self, unread_bytes)

    def _abort_after(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._service.loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        """Disconnect at once."""
        self._leave()
        self._transport.abort()


def _no_request(error: Exception) -> InvalidValue:
    return InvalidValue(f"{NO_REQUEST}: {error}")
