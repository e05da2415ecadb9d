"""Connections over links that lose, duplicate and reorder packets.

    client                                   server
      │  Hello(session) ────────────────────►  │     repeated until it is answered; ends the previous session
      │  ◄──────────────────────── Welcome     │     which start of the server it is
      │  Call(session, start, number, …) ───►  │     handled once, by that start of the server, or never
      │  ◄───────────── Answered(…, number, …) │
      │  ◄──────────────────────── HungUp      │     to a call from a connection that no longer exists

So a call is handled at most once, as over a real connection, though packets come twice and late.
"""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.commands import Answer, Request


class SessionId(msgspec.Struct, frozen=True, order=True):
    """One connection of one client: the start of the client, and the connection's number."""

    start: int
    count: int


class SimulatedHello(msgspec.Struct, frozen=True):
    session: SessionId


class Welcome(msgspec.Struct, frozen=True):
    session: SessionId
    start: int
    """Of the server."""


class SimulatedCall(msgspec.Struct, frozen=True):
    session: SessionId
    start: int
    number: int
    request: Request


class SimulatedAnswer(msgspec.Struct, frozen=True):
    session: SessionId
    number: int
    answer: Answer


class HungUp(msgspec.Struct, frozen=True):
    session: SessionId
