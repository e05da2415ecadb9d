"""The description of a route: handler, scope, parameters, bodies and outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.commands import Request as BrokerRequest
from lavant.broker.protocol.registry import REGISTRY
from lavant.service.http.context import ApiContext

Handler: TypeAlias = Callable[[ApiContext, Request], Awaitable[Response]]
EVENTS, STREAM = "events", "stream"


class Parameter(msgspec.Struct, frozen=True):
    name: str
    where: str
    """`path`, `query` or `header`."""
    help: str
    kind: type = str
    is_required: bool = False
    choices: tuple[str, ...] = ()
    """The values that are allowed, if there are a few."""
    least: int | None = None
    most: int | None = None
    """Of a number."""


class Body(msgspec.Struct, frozen=True):
    """One form of a request body."""

    content_type: str
    kind: Any
    example: Any


class OperationOutcome(msgspec.Struct, frozen=True):
    status: int
    help: str
    kind: Any = None
    """The type of the body, or a tuple of types."""
    example: Any = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    request: type[BrokerRequest]
    """The request that a key must be allowed to make; the registry declares its scope."""
    summary: str
    outcomes: tuple[OperationOutcome, ...]
    handler: Handler | None = None
    way: str = ""
    """`events` or `stream`; empty for a single answer."""
    parameters: tuple[Parameter, ...] = ()
    bodies: tuple[Body, ...] = ()

    @property
    def scope(self) -> str:
        """The scope that a key needs; empty if any will do."""
        return REGISTRY[self.request].scope
