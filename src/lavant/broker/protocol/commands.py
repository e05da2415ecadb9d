"""The kinds of value in the protocol: commands, queries and answers.

`class Send(CommandFor[Sent])` is a command that the broker answers by `Sent`, or by `Refused`. The base class alone
distinguishes commands from queries; `lavant.broker.protocol.registry` declares the rest.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

A_co = TypeVar("A_co", covariant=True)


class Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An array in MessagePack, its tag first. Frozen values form no cycles, so the garbage collector skips them."""


class Answer(Value, frozen=True):
    """The broker's reply to a request."""


class RequestFor(Value, Generic[A_co], frozen=True):
    """A command or query, with the type of its answer."""


class CommandFor(RequestFor[A_co], Generic[A_co], frozen=True):
    """Changes something. The journal records it in the bytes in which it arrived."""


class QueryFor(RequestFor[A_co], Generic[A_co], frozen=True):
    """Changes nothing: a bug in its handler fails this one request, not the server."""


Request: TypeAlias = RequestFor[Any]
Command: TypeAlias = CommandFor[Any]
Query: TypeAlias = QueryFor[Any]
