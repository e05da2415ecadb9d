"""Flushes of the path between two brokers: what was matched before has arrived, what comes later follows new routes.

    B ──PathFlush(number)──► X ──PathFlush(number)──► A
       routes, publications     routes, publications

A broker passes a flush on when

  * it has received all publications up to the number,
  * its matchers know the routes it was told before, and what they matched without them is recorded,
  * that is durable, and the next broker was told these routes.

So when B subscribes and its flush arrives at A, every broker on the path sends to B what B wants; all that was matched
earlier is at A. When a flush from A arrives at B, so has everything that both get and that A had. A flush is memory
only: a crash loses it, and it is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from lavant.broker.federation.effects import AwaitMatchers
from lavant.broker.federation.frames import PathFlush
from lavant.broker.federation.session import LinkSession

if TYPE_CHECKING:
    from lavant.broker.federation.machine import FederationMachine

STILL_MS_MAX = 60_000
"""A flush that has not come closer to being passed on for so long is forgotten."""
FLUSH_MS_MAX = 600_000
"""So is one that is older: the publications before it take a broker longer than that."""
FLUSHES_MAX = 10_000


class _Flush(msgspec.Struct):
    source: str
    target: str
    migration: str
    step: str
    link: str
    """Over which it came; empty if it begins here."""
    number: int
    since_ms: int
    progress_ms: int
    """When it last came closer to being passed on."""
    received: int = 0
    """Of the publications before it."""
    token: int = 0
    """Of the matchers."""
    is_matched: bool = False
    session: LinkSession | None = None
    position: int = 0


class PathFlushes:
    """Flushes that this broker begins, passes on, or gets. `arrived` is called with source, migration and step."""

    def __init__(self, machine: FederationMachine, arrived: Callable[[str, str, str], None]) -> None:
        self._machine = machine
        self._arrived = arrived
        self._flushes: dict[tuple[str, str, str], _Flush] = {}
        """By source, migration and step."""
        self._token = 0
        self._matching: dict[int, list[_Flush]] = {}
        """Flushes that wait for the matchers, by token."""

    def begin(self, target: str, migration: str, step: str) -> None:
        """Flush the path to a broker; nothing happens if that goes on already."""
        now_ms = self._machine.now_ms
        self._add(_Flush(self._machine.own.identity, target, migration, step, "", 0, now_ms, now_ms))

    def received(self, session: LinkSession, frame: PathFlush) -> None:
        way, now_ms = (frame.source, frame.target, frame.migration, frame.step), self._machine.now_ms
        self._add(_Flush(*way, session.link, frame.number, now_ms, now_ms))

    def matched(self, token: int) -> None:
        """The matchers know all routes up to now, and all that they matched before is recorded."""
        for flush in self._matching.pop(token, []):
            flush.is_matched = True
            flush.progress_ms = self._machine.now_ms
            flush.position = self._machine.server.position

    def is_working_off(self, migration: str, *, within_ms: int) -> bool:
        """Whether a flush of a move waits here for publications that are received and matched all the time."""
        own, since_ms = self._machine.own.identity, self._machine.now_ms - within_ms
        for flush in self._flushes.values():
            waits = not flush.is_matched or flush.target == own  # others wait for the next broker
            is_matching = flush.token and not flush.is_matched
            if flush.migration == migration and waits and (is_matching or flush.progress_ms >= since_ms):
                return True
        return False

    def advance(self) -> None:
        """Pass on what can be; called whenever something was received, or is durable."""
        if not self._flushes:
            return
        token = self._token + 1
        for key, flush in list(self._flushes.items()):
            if self._is_done(flush) or self._is_stale(flush):
                del self._flushes[key]
        if self._matching.get(token):  # all that reached the matchers now wait for one answer
            self._token = token
            self._machine.effects.append(AwaitMatchers(token))

    def _add(self, flush: _Flush) -> None:
        key = (flush.source, flush.migration, flush.step)
        known = self._flushes.get(key)
        if (known is not None and known.link == flush.link) or len(self._flushes) >= FLUSHES_MAX:
            return
        self._flushes[key] = flush

    def _is_done(self, flush: _Flush) -> bool:
        machine = self._machine
        if not flush.token:
            if flush.link and not self._has_received(flush):
                return False
            flush.token = self._token + 1
            self._matching.setdefault(flush.token, []).append(flush)
            return False
        if not flush.is_matched:
            return False
        if flush.target == machine.own.identity:
            if machine.server.durable >= flush.position:
                self._arrived(flush.source, flush.migration, flush.step)
                return True
            return False
        session = machine.migrations.session_to(flush.target)
        if session is None:
            return False
        if flush.session is not session:  # it may be told more routes from now on
            flush.session, flush.position = session, machine.server.position
        is_told = not session.changes or session.changes[0][0] > flush.position
        if machine.server.durable < flush.position or not is_told:
            return False
        number = machine.sendable[session.link]
        machine.send(session, PathFlush(flush.source, flush.target, flush.migration, flush.step, number))
        return True

    def _is_stale(self, flush: _Flush) -> bool:
        now_ms = self._machine.now_ms
        is_matching = flush.token and not flush.is_matched  # the matchers answer sooner or later
        is_still = not is_matching and now_ms - flush.progress_ms > STILL_MS_MAX
        return is_still or now_ms - flush.since_ms > FLUSH_MS_MAX

    def _has_received(self, flush: _Flush) -> bool:
        received = self._machine.relays.durable_of(flush.link)
        if received is None:
            return False
        if received > flush.received:
            flush.received, flush.progress_ms = received, self._machine.now_ms
        return received >= flush.number
