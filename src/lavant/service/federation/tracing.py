"""Traces: where a publication would go, asked of each broker on its way, and where a marked one went.

A publication is marked by an id that begins with `MARK`. Each broker remembers when a marked one crossed its links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from lavant.broker.federation.frames import LinkFrame, LinkPublications, TraceAnswer, TraceRequest
from lavant.broker.federation.trace import tracer
from lavant.core.errors import UNDECODABLE, LavantError, Overloaded
from lavant.core.identities import new_identity
from lavant.core.publications.publication import ID

if TYPE_CHECKING:
    from lavant.service.federation.connection import LinkConnection
    from lavant.service.federation.links import FederationLinks

ANSWER_S_MAX = 10.0
"""For the answer of the brokers behind a link; half a second less for each broker before this one."""
MARK = b"lavant-trace-"
MARKED_MAX = 1000
"""Marked publications that a broker remembers; then the oldest is forgotten."""
EVENTS_MAX = 100
"""Of one of them."""
TRACES_MAX = 100
"""Traces of this broker that wait for an answer, and those of neighbours that it answers."""


class TraceLink(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker would do on one of its links."""

    neighbour: str
    is_forwarded: bool
    reason: str
    """The filter that is why, or why not."""


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A marked publication crossed a link."""

    time_ms: int
    """By the clock of this broker."""
    neighbour: str
    what: str
    """`received` from the neighbour, `sent` to it, or `confirmed` by it: it is durable there."""


class TraceHop(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker would do with the publication."""

    broker: str
    path: list[str]
    """The brokers before this one."""
    subscriptions: list[str] = []
    """Subscriptions of this broker that match."""
    links: list[TraceLink] = []
    events: list[TraceEvent] = []
    """Of a marked publication."""
    fault: str | None = None
    """Why it did not say, or why it would not take the publication."""


class _Identified(msgspec.Struct):
    id: str = msgspec.field(name=ID, default="")


_decode_hop = msgspec.json.Decoder(TraceHop).decode
_decode_id = msgspec.json.Decoder(_Identified).decode


class MarkedPublications:
    """Remembers when marked publications crossed links."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._events: dict[str, list[TraceEvent]] = {}
        self._unconfirmed: list[tuple[str, int, str]] = []
        """Neighbour, number on the link, and id."""

    def events(self, publication: bytes) -> list[TraceEvent]:
        return list(self._events.get(_id_of(publication), ()))

    def received(self, neighbour: str, batch: LinkPublications) -> None:
        for _, id in _marked(batch):
            self._add(id, neighbour, "received")

    def sent(self, neighbour: str, batch: LinkPublications) -> None:
        for number, id in _marked(batch):
            self._add(id, neighbour, "sent")
            if len(self._unconfirmed) < MARKED_MAX:
                self._unconfirmed.append((neighbour, number, id))

    def confirmed(self, neighbour: str, number: int) -> None:
        """The neighbour has all publications up to this number."""
        if self._unconfirmed:
            done = [each for each in self._unconfirmed if each[0] == neighbour and each[1] <= number]
            self._unconfirmed = [each for each in self._unconfirmed if each not in done]
            for _, _, id in done:
                self._add(id, neighbour, "confirmed")

    def _add(self, id: str, neighbour: str, what: str) -> None:
        events = self._events.setdefault(id, [])
        if len(events) < EVENTS_MAX:
            events.append(TraceEvent(time_ms=self._now_ms(), neighbour=neighbour, what=what))
        if len(self._events) > MARKED_MAX:
            del self._events[next(iter(self._events))]


def _marked(batch: LinkPublications) -> list[tuple[int, str]]:
    """Number and id of the marked ones."""
    found = [(batch.first + place, _id_of(body)) for place, body in enumerate(batch.bodies) if MARK in body]
    return [(number, id) for number, id in found if id]


def _id_of(body: bytes) -> str:
    try:
        return _decode_id(body).id
    except UNDECODABLE:  # of a neighbour that sends anything; it is refused when it is matched
        return ""


class Traces:
    """Asks neighbours, and answers them."""

    def __init__(self, links: FederationLinks) -> None:
        self.marked = MarkedPublications(links.clock.now_ms)
        self._links = links
        self._answers: dict[str, asyncio.Future[list[TraceHop]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def trace(self, namespace: str, publication: bytes, path: Sequence[str] = ()) -> list[TraceHop]:
        """This broker and all behind it that the publication would reach, in the order in which it would."""
        name, source = self._links.settings.name, path[-1] if path else ""
        verdict = await asyncio.to_thread(tracer(self._links.machine, namespace, publication, source))
        hop = TraceHop(
            broker=name,
            path=list(path),
            subscriptions=verdict.subscriptions,
            links=[
                TraceLink(neighbour=each.neighbour, is_forwarded=each.is_forwarded, reason=each.reason)
                for each in verdict.links
            ],
            events=self.marked.events(publication),
            fault=verdict.refusal,
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
        waiting: asyncio.Future[list[TraceHop]] = asyncio.get_running_loop().create_future()
        self._answers[id] = waiting
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
        try:
            if len(self._tasks) > TRACES_MAX:
                raise Overloaded(f"{TRACES_MAX} traces are under way; try again later")
            hops = await self.trace(request.namespace, request.publication, request.path)
        except LavantError as error:
            hops = [_silent(self._links.settings.name, request, str(error))]
        connection.send(TraceAnswer(request.id, list(map(msgspec.json.encode, hops))))


def _hops(neighbour: str, answer: TraceAnswer) -> list[TraceHop]:
    try:
        return list(map(_decode_hop, answer.hops))
    except UNDECODABLE as error:
        return [TraceHop(broker=neighbour, path=[], fault=f"its answer cannot be read: {error}")]


def _silent(neighbour: str, request: TraceRequest, fault: str) -> TraceHop:
    return TraceHop(broker=neighbour, path=list(request.path), fault=fault)
