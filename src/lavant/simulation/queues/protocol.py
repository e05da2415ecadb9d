"""Connections over links that lose, double and reorder packets.

    client                                   server
      │  Hello(session) ────────────────────►  │     again until it is answered; the session before is gone
      │  ◄──────────────────────── Welcome     │     which start of the server it is
      │  Call(session, start, number, …) ───►  │     carried out once, by that start of the server or never
      │  ◄───────────── Answered(…, number, …) │
      │  ◄──────────────────────── HungUp      │     to a call that came from a connection which is no more

So a call is carried out at most once, as over a real connection, though packets come twice and late.
"""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.commands import Answer, Request


class SessionId(msgspec.Struct, frozen=True, order=True):
    """One connection of one client: which start of the client, and its how many-th."""

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
