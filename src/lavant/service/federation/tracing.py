"""Traces: where a publication would go, asked of each broker on its way, without publishing it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from lavant.broker.federation.frames import LinkFrame, TraceAnswer, TraceRequest
from lavant.core.errors import UNDECODABLE
from lavant.core.identities import new_identity

if TYPE_CHECKING:
    from lavant.service.federation.connection import LinkConnection
    from lavant.service.federation.links import FederationLinks

ANSWER_S_MAX = 10.0
"""For the answer of the brokers behind a link; half a second less for each broker before this one."""
TRACES_MAX = 100
"""Traces that wait for an answer; a neighbour's beyond that are answered by this broker alone."""


class TraceLink(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker would do on one of its links."""

    neighbour: str
    is_forwarded: bool
    reason: str
    """The filter that is why, or why not."""


class TraceHop(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker would do with the publication."""

    broker: str
    path: list[str]
    """The brokers before this one."""
    subscriptions: list[str] = []
    """Subscriptions of this broker that match."""
    links: list[TraceLink] = []
    fault: str | None = None
    """Why it did not say."""


_decode_hop = msgspec.json.Decoder(TraceHop).decode


class Traces:
    """Asks neighbours, and answers them."""

    def __init__(self, links: FederationLinks) -> None:
        self._links = links
        self._answers: dict[str, asyncio.Future[list[TraceHop]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def trace(self, namespace: str, publication: bytes, path: Sequence[str] = ()) -> list[TraceHop]:
        """This broker and all behind it that the publication would reach, in the order in which it would."""
        own, name = self._links.machine, self._links.settings.name
        verdict = own.trace(namespace, publication)
        hop = TraceHop(
            broker=name,
            path=list(path),
            subscriptions=verdict.subscriptions,
            links=[
                TraceLink(neighbour=each.neighbour, is_forwarded=each.is_forwarded, reason=each.reason)
                for each in verdict.links
                if not path or each.neighbour != path[-1]
            ],
        )
        asked = [link.neighbour for link in hop.links if link.is_forwarded and link.neighbour not in path]
        request = TraceRequest("", namespace, publication, [*path, name])
        behind = await asyncio.gather(*(self._ask(neighbour, request) for neighbour in asked))
        return [hop, *(each for hops in behind for each in hops)]

    def received(self, connection: LinkConnection, frame: LinkFrame) -> None:
        if isinstance(frame, TraceAnswer):
            waiting = self._answers.get(frame.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(_hops(connection.neighbour, frame))
        elif isinstance(frame, TraceRequest):
            task = asyncio.get_running_loop().create_task(self._answer(connection, frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, neighbour: str, request: TraceRequest) -> list[TraceHop]:
        connection = self._links.connection_to(neighbour)
        if connection is None:
            return [_silent(neighbour, request, "the link is down; publications wait for it")]
        if len(self._answers) >= TRACES_MAX:
            return [_silent(neighbour, request, f"{TRACES_MAX} traces are under way; try again later")]
        id = new_identity()
        waiting = self._answers[id] = asyncio.get_running_loop().create_future()
        seconds = max(1.0, ANSWER_S_MAX - len(request.path) / 2)
        connection.send(msgspec.structs.replace(request, id=id))
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            return [_silent(neighbour, request, f"no answer within {seconds:g} s")]
        finally:
            del self._answers[id]

    async def _answer(self, connection: LinkConnection, request: TraceRequest) -> None:
        hops = await self.trace(request.namespace, request.publication, request.path)
        connection.send(TraceAnswer(request.id, list(map(msgspec.json.encode, hops))))


def _hops(neighbour: str, answer: TraceAnswer) -> list[TraceHop]:
    try:
        return list(map(_decode_hop, answer.hops))
    except UNDECODABLE as error:
        return [TraceHop(broker=neighbour, path=[], fault=f"its answer cannot be read: {error}")]


def _silent(neighbour: str, request: TraceRequest, fault: str) -> TraceHop:
    return TraceHop(broker=neighbour, path=list(request.path), fault=fault)
