"""Snapshots of subscriptions that move between brokers, and of names that are redirected.

MigrationsHead | DeparturePart … | ArrivalPart … | RedirectsPart … | MigrationsEnd
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from lavant.broker.federation.migration.state import Arrival, Departure, Migrations
from lavant.broker.federation.migration.values import OriginNumbers
from lavant.broker.protocol.federation import MovingSubscription
from lavant.broker.queues.operations.transfer import Relocation, RelocationStage
from lavant.broker.queues.snapshot import by_count
from lavant.broker.subscriptions.registry import Key
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, check_format

FORMAT = 1
REDIRECTS_A_CHUNK = 5000


class _Part(msgspec.Struct, frozen=True, array_like=True):
    pass


class MigrationsHead(_Part, tag="head", frozen=True):
    format: int


class DeparturePart(_Part, tag="departure", frozen=True):
    migration: str
    namespace: str
    name: str
    queue: str
    target: str
    broker: str
    address: str
    deadline_ms: int
    offer: MovingSubscription
    taken: list[tuple[str, bytes]]
    is_handed_over: bool


class ArrivalPart(_Part, tag="arrival", frozen=True):
    migration: str
    source: str
    broker: str
    namespace: str
    name: str
    queue: str
    serial: int
    is_open: bool
    followed: list[tuple[int, int]]
    published: list[tuple[int, str, int]]


class RedirectsPart(_Part, tag="redirects", frozen=True):
    redirects: list[tuple[str, str, str, str, str, int]]
    """Namespace, name, queue, broker, address, end."""


class MigrationsEnd(_Part, tag="end", frozen=True):
    parts: int


MigrationPart: TypeAlias = MigrationsHead | DeparturePart | ArrivalPart | RedirectsPart | MigrationsEnd

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(MigrationPart).decode


def encode(state: Migrations, now_ms: int) -> Iterator[bytes]:
    """Nothing for a broker from which nothing moves or has moved."""
    state.forget_redirects(now_ms)
    if not (state.departures or state.arrivals or state.redirects):
        return
    yield _encode(MigrationsHead(FORMAT))
    parts = 0
    for part in _parts_of(state):
        parts += 1
        yield _encode(part)
    yield _encode(MigrationsEnd(parts))


def _parts_of(state: Migrations) -> Iterator[MigrationPart]:
    for departure in state.departures.values():
        yield DeparturePart(
            departure.migration,
            departure.namespace,
            departure.name,
            departure.queue,
            departure.target,
            departure.broker,
            departure.address,
            departure.deadline_ms,
            departure.offer,
            departure.taken.columns(),
            departure.is_handed_over,
        )
    for arrival in state.arrivals.values():
        yield ArrivalPart(
            arrival.migration,
            arrival.source,
            arrival.broker,
            arrival.namespace,
            arrival.name,
            arrival.queue,
            arrival.serial,
            arrival.is_open,
            list(arrival.followed.items()),
            [(number, *pair) for number, pair in arrival.published.items()],
        )
    rows = ((*key, queue, each.broker, each.address, each.until_ms) for key, (queue, each) in state.redirects.items())
    for redirects in by_count(rows, REDIRECTS_A_CHUNK):
        yield RedirectsPart(redirects)


def decode(chunks: Iterable[bytes], state: Migrations) -> None:
    """Fill an empty state; without any chunk it stays empty."""
    departures: list[Departure] = []
    arrivals: list[Arrival] = []
    redirects: list[tuple[Key, str, Relocation]] = []
    parts = _parts_in(chunks)
    head = next(parts, None)
    if head is None:
        return
    if not isinstance(head, MigrationsHead):
        raise _corrupt("it does not begin with its head")
    check_format("the snapshot of the migrations", head.format, FORMAT, oldest=FORMAT)
    for count, part in enumerate(parts):
        if isinstance(part, MigrationsEnd) and part.parts == count:
            state.restore(departures, arrivals, redirects)
            return
        if isinstance(part, DeparturePart):
            fields = msgspec.structs.asdict(part)
            departures.append(Departure(**{**fields, "taken": OriginNumbers(part.taken)}))
        elif isinstance(part, ArrivalPart):
            published = {number: (origin, at) for number, origin, at in part.published}
            fields = msgspec.structs.asdict(part)
            arrivals.append(Arrival(**{**fields, "followed": dict(part.followed), "published": published}))
        elif isinstance(part, RedirectsPart):
            for namespace, name, queue, broker, address, until_ms in part.redirects:
                relocation = Relocation(RelocationStage.LEFT, name, broker, address, until_ms)
                redirects.append(((namespace, name), queue, relocation))
        else:
            raise _corrupt(f"a part of kind {type(part).__name__} comes after {count} parts")
    raise _corrupt("its end is missing")


def _parts_in(chunks: Iterable[bytes]) -> Iterator[MigrationPart]:
    for place, chunk in enumerate(chunks):
        try:
            yield _decode(chunk)
        except UNDECODABLE as error:
            raise _corrupt(f"chunk {place} cannot be read ({error})") from None


def _corrupt(problem: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"the snapshot of moving subscriptions is damaged: {problem}; restore it from a copy")
