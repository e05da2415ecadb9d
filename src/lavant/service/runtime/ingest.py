"""The way in: publications and changes of subscriptions, one after the other.

    Publish ────────┐                 ┌──► engine.publish ──► Deliver ──┐
    Subscribe, … ───┼──► the line ────┼──► Subscribe, … ──► engine.change  ──► journal ──► answers
    Found ──────────┘                 └──► Deliver ─────────────────────┘

What a namespace has in the line is done in order, so a change of subscriptions holds for every publication that comes
behind it; between namespaces the line is fair. While the engine is busy, publications gather, and are matched together
when it is free. So the line needs no timer, and the more comes, the larger the batches.

The engine works in a thread of its own. An answer leaves when the disk has what it rests on, as everywhere.

An engine that matches later keeps publications in logs meanwhile. They count when the journal says so, and what it
finds comes back through the same line.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, TypeAlias, TypeVar

import msgspec

from lavant.broker.machine.effects import Effect, Reply
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.match_protocol import MatchResults
from lavant.broker.protocol.queues import FanOut, Refused
from lavant.broker.protocol.subscriptions import Deliver, Publish, Published, PublishOutcome, Subscribe, Unsubscribe
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.filter_quota import Filters
from lavant.broker.subscriptions.idempotency import REMEMBERED_MS, IdempotencyKeys, fingerprint_of
from lavant.broker.subscriptions.parsing import ParsedPublications, accept
from lavant.broker.subscriptions.registry import Added, Change, Removed
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.broker.subscriptions.validation import check_namespace, check_publish
from lavant.core.errors import IdempotencyConflict, InvalidValue, LavantError, Overloaded
from lavant.service.engines.filter_admission import FilterAdmission
from lavant.service.engines.interface import Engine, EngineBatch, Logged
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.ingest_queue import PUBLICATIONS_AT_ONCE, ChangeStep, DeliverStep, IngestQueue, PublishStep
from lavant.service.runtime.limits import ServiceLimits
from lavant.service.runtime.match_delivery import MatchDelivery, MatchSource, OnMatched

DELIVERED_BYTES_MAX = 32 << 20
"""Of the publications in one record, which has to fit into a segment of the journal."""
INLINE_S_MAX = 0.0015
"""A batch that takes so little is matched in the event loop itself: a thread would take as long to hear of it."""
NOTHING = FanOut([], b"", b"", b"")
REQUESTS = (Publish, Subscribe, Unsubscribe)
"""What goes through here; everything else goes to the server at once."""

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


class _Place(msgspec.Struct):
    """A publication of a batch, and whose it is."""

    publishing: PublishStep
    place: int
    accepted: ParsedPublications


_Matched: TypeAlias = list[tuple[list[_Place], list[FanOutBatch] | Logged]]
Perform: TypeAlias = Callable[[list[Effect]], None]


class Ingest:
    """One line for a server. `perform` carries out effects and opens a turn; `on_failed` is told of mistakes."""

    def __init__(
        self,
        server: BrokerMachine,
        engine: Engine,
        clock: ServerClock,
        *,
        limits: ServiceLimits,
        perform: Perform,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.published = 0
        self.refused = 0
        self.on_changes: Callable[[list[Change]], None] = lambda changes: None
        """Told of subscriptions that came and went."""
        self.on_arrived: Callable[[int], None] = lambda publications: None
        """Told how many publications were taken in; for telemetry, as the next."""
        self.on_matched: OnMatched = lambda publications, subscriptions, matches, seconds: None
        """Told how many publications were matched together, against how many subscriptions, with how many finds, and
        how long it took, if that is known."""
        self.on_worked: Callable[[str, float], None] = lambda namespace, seconds: None
        """Told how long the loop was kept for a namespace."""
        self._server = server
        self._subscriptions = server.broker.subscriptions
        self._engine = engine
        self._clock = clock
        self._limits = limits
        self._perform = perform
        self._on_failed = on_failed
        self._line = IngestQueue()
        self._by_key: dict[tuple[str, str], PublishStep] = {}
        """Requests with a key that are not answered yet."""
        self._waiting_publications = 0
        self._waiting_bytes = 0
        self._counter = count(1)
        self._costs_s = [1.0] * (_size_class(PUBLICATIONS_AT_ONCE) + 1)
        """The processor's time for a batch, by the bits of its size. Elapsed time would keep batches in the thread."""
        self._filters = FilterAdmission(engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Before the first request: the engine learns of all subscriptions that there are."""
        self._subscriptions.changes.clear()
        serial = self._server.queues.serial
        await self._in_thread(self._filters.tell, [Added(each, serial(each.queue)) for each in self._subscriptions], {})
        await self._retire()

    def request(self, client: Hashable, number: int, request: Publish | Subscribe | Unsubscribe) -> None:
        """A client asks. It is answered later, or refused at once."""
        asked = RequestContext(client, number, None)
        try:
            step = self._publishing(asked, request) if isinstance(request, Publish) else ChangeStep(asked, request)
        except LavantError as error:
            self.refused += 1
            self._perform([Reply(client, number, refusal(error))])
            return
        if step is not None:
            self._line.add(request.namespace, step)
            self.go_on()

    def found(self, client: Hashable, number: int, found: MatchResults, deliveries: MatchDelivery) -> None:
        """A process that matches has found something. It is answered when that is in queues, and durable."""
        self._line.add(found.lane, DeliverStep(RequestContext(client, number, None), found, deliveries))
        self.go_on()

    def deliveries(self, source: MatchSource) -> MatchDelivery:
        """For an engine whose finds come later."""
        return MatchDelivery(self._server, source, self._clock, self._perform, self.on_matched)

    def go_on(self) -> None:
        """Do what stands in the line, and what queues that were deleted mean for the engine."""
        if self._task is None and (self._line or self._subscriptions.changes):
            self._task = asyncio.get_running_loop().create_task(self._work())

    @property
    def waiting(self) -> int:
        """Publications in the line."""
        return self._waiting_publications

    @property
    def keys(self) -> IdempotencyKeys:
        """The idempotency keys that are remembered."""
        return self._subscriptions.recent

    async def close(self) -> None:
        """Do all that stands in the line, then give everything back."""
        while self._task is not None:
            await self._task
        self._thread.shutdown()
        self._engine.close()

    # ── coming in ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _publishing(self, asked: RequestContext, request: Publish) -> PublishStep | None:
        """None if it was done before, or is about to be."""
        check_publish(request)
        check_namespace(request.namespace)
        now_ms = self._clock.now_ms()
        fingerprint = fingerprint_of(request.publications) if request.key else b""
        if request.key and self._is_repeated(asked, request, fingerprint, now_ms):
            return None
        size_bytes = sum(map(len, request.publications))
        self._check_room(len(request.publications), size_bytes)
        self._engine.check_room(request.namespace)
        self._server.queues.check_memory(MESSAGE)  # where it is full anyway, nothing needs to be matched
        if self._engine.waits:  # what is delivered later was accepted here, and is not refused any more
            self._server.queues.usages.check_bytes(request.namespace, size_bytes)
        epoch = self._server.queues.epoch
        ids = (f"{epoch:x}-{number:x}" for number in self._counter)
        results = accept(request.publications, ids, now_ms)
        accepted = {place: result for place, result in enumerate(results) if isinstance(result, ParsedPublications)}
        entries = [result.id if isinstance(result, ParsedPublications) else result for result in results]
        if not accepted:
            self.refused += len(entries)
            self._perform([Reply(asked.client, asked.number, Published(entries))])
            return None
        self.on_arrived(len(accepted))
        self._waiting_publications += len(accepted)
        self._waiting_bytes += size_bytes
        publishing = PublishStep(asked, request.key, fingerprint, request.namespace, entries, accepted, size_bytes)
        if request.key:
            self._by_key[request.namespace, request.key] = publishing
        return publishing

    def _is_repeated(self, asked: RequestContext, request: Publish, fingerprint: bytes, now_ms: int) -> bool:
        """Whether a request with this key was answered or is under way; raises if that published something else."""
        remembered = self._subscriptions.recent.find(request.namespace, request.key, now_ms)
        if remembered is not None:
            if not remembered.matches(fingerprint):
                raise _conflict()
            # The answer is durable before it leaves, like the first.
            answer = Published(remembered.entries)
            self._perform(self._server.deliver(Deliver(NOTHING), [(asked, answer)], now_ms))
            return True
        first = self._by_key.get((request.namespace, request.key))
        if first is not None:
            if first.fingerprint != fingerprint:
                raise _conflict()
            first.repeated.append(asked)
        return first is not None

    def _check_room(self, publications: int, size_bytes: int) -> None:
        """One request is always taken, however large, so that each can be done some time."""
        limits = self._limits
        if not self._waiting_publications:
            return
        if (
            self._waiting_publications + publications > limits.publications_waiting_max
            or self._waiting_bytes + size_bytes > limits.publications_waiting_bytes_max
        ):
            raise Overloaded(
                f"{self._waiting_publications} publications of {self._waiting_bytes} bytes wait to be matched, and at "
                f"most {limits.publications_waiting_max} of {limits.publications_waiting_bytes_max} bytes may; "
                "publish again a little later"
            )

    # ── the line ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        try:
            while self._line or self._subscriptions.changes:
                first = self._line.first()
                if self._subscriptions.changes or isinstance(first, ChangeStep):
                    await self._change(self._line.changings())
                elif isinstance(first, PublishStep):
                    await self._publish(self._line.publishings())
                elif isinstance(first, DeliverStep):
                    self._line.take(1)
                    await first.deliveries.carry_out(first.asked, first.found, self._in_thread)
                await self._retire()
        except Exception as error:
            self._on_failed(error)
        finally:
            self._task = None

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _change(self, changings: list[ChangeStep]) -> None:
        subscribes = [each.request for each in changings if isinstance(each.request, Subscribe)]
        filters = iter(await self._in_thread(self._filters.prepare, subscribes))
        changes, prepared = self._subscriptions.changes, dict[int, Any]()
        has_removed = any(isinstance(change, Removed) for change in changes)
        for place, changing in enumerate(changings):
            request, known = changing.request, len(changes)
            filter = next(filters) if isinstance(request, Subscribe) else None
            problem = self._filters.problem(request, filter, self._subscriptions.limits)
            if problem is not None and has_removed:
                self._line.put_back(changings[place:])  # there may be room when that is counted
                break
            if problem is not None:
                self._answer(changing.asked, refusal(problem))
                continue
            now_ms = self._clock.now_ms()
            self._perform(self._server.request(changing.asked.client, changing.asked.number, request, None, now_ms))
            for change in changes[known:]:
                has_removed = has_removed or isinstance(change, Removed)
                if isinstance(change, Added) and isinstance(filter, Filters):
                    prepared[change.subscription.number] = filter
                    self._filters.promise(change.subscription, filter)
        if changes:
            told = list(changes)
            changes.clear()
            self.on_changes(told)
            await self._in_thread(self._filters.tell, told, prepared)

    async def _retire(self) -> None:
        """Lanes that nobody needs any more go: from the engine, the disk and the journal."""
        retired = self._engine.retire()
        if not retired:
            return
        for each in retired:
            await self._in_thread(shutil.rmtree, each.directory, True)
        with suppress(LavantError):  # where the disk is full: at the next start, then
            deliver = Deliver(NOTHING, forgotten=[each.lane for each in retired])
            self._perform(self._server.deliver(deliver, [], self._clock.now_ms()))

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _publish(self, publishings: list[PublishStep]) -> None:
        places = [
            _Place(publishing, place, accepted)
            for publishing in publishings
            for place, accepted in publishing.accepted.items()
        ]
        try:
            started_s = time.monotonic()
            groups = _alike(places)
            if not self._engine.waits and self._costs_s[_size_class(len(places))] < INLINE_S_MAX:
                matched = self._match(groups)
            else:
                matched = await self._in_thread(self._match, groups)
            seconds = time.monotonic() - started_s
            logged = [result for _, result in matched if not isinstance(result, list)]
            pieces = [(group, piece) for group, result in matched if isinstance(result, list) for piece in result]
            if not logged:
                matches = sum(len(piece.places) // INTEGERS.itemsize for _, piece in pieces)
                self.on_matched(len(places), len(self._subscriptions), matches, seconds)
            for (group, piece), is_last in _with_last(pieces):
                started_s = time.monotonic()
                self._deliver(group, piece, publishings if is_last and not logged else [])
                self.on_worked(group[0].publishing.namespace, time.monotonic() - started_s)
                await asyncio.sleep(0)  # others have their turn
            if logged:
                await self._count(logged, publishings)
        finally:
            self._waiting_publications -= len(places)
            self._waiting_bytes -= sum(publishing.size_bytes for publishing in publishings)
        self.published += len(places)

    def _match(self, groups: list[tuple[EngineBatch, list[_Place]]]) -> _Matched:
        """In the engine's thread, or in the loop while that has nothing to do."""
        started_s = time.thread_time()
        matched = [each for batch, places in groups for each in self._match_alike(batch, places)]
        seconds, publications = time.thread_time() - started_s, sum(len(places) for _, places in groups)
        size_class = _size_class(publications)
        self._costs_s[size_class] += (seconds - self._costs_s[size_class]) / 8
        self._line.took(publications, seconds)
        return matched

    def _match_alike(self, batch: EngineBatch, places: list[_Place]) -> _Matched:
        """What cannot be matched together, because it has too many attributes in all, say, may be in halves."""
        try:
            return [(places, self._engine.publish(batch))]
        except LavantError as error:
            if len(places) > 1 and isinstance(error, InvalidValue):
                middle = len(places) // 2
                halves = (places[:middle], places[middle:])
                return [each for half in halves for each in self._match_alike(_part(batch, half), half)]
            self.refused += len(places)
            for each in places:
                each.publishing.entries[each.place] = refusal(error)
            return [(places, [FanOutBatch.nothing(len(places))])]

    async def _count(self, logged: list[Logged], publishings: list[PublishStep]) -> None:
        """The journal says how far logs count and what was answered: both, or none of it has happened."""
        try:
            self._carry_out(NOTHING, publishings, {each.lane: each.end for each in logged})
        except LavantError as error:
            for each in reversed(logged):
                await self._in_thread(each.withdraw)
            for publishing in publishings:
                self.refused += len(publishing.accepted)
                self._by_key.pop((publishing.namespace, publishing.key), None)
                for asked in (publishing.asked, *publishing.repeated):
                    self._answer(asked, refusal(error))
        else:
            for each in logged:
                each.confirm()

    def _deliver(self, places: list[_Place], piece: FanOutBatch, publishings: list[PublishStep]) -> None:
        own = places[piece.start : piece.stop]
        bodies = [
            each.accepted.body if is_wanted else b"" for each, is_wanted in zip(own, piece.wanted.tolist(), strict=True)
        ]
        if len(own) > 1 and sum(map(len, bodies)) > DELIVERED_BYTES_MAX:
            self._deliver_each(own, piece, publishings)
            return
        spread = FanOut(bodies, piece.queues, piece.ends, piece.places)
        try:
            self._carry_out(spread, publishings)
        except LavantError as error:
            if len(own) == 1:
                self.refused += 1
                own[0].publishing.entries[own[0].place] = refusal(error)
                self._answer_all(publishings)
            else:  # some of them may be possible
                self._deliver_each(own, piece, publishings)

    def _deliver_each(self, own: list[_Place], piece: FanOutBatch, publishings: list[PublishStep]) -> None:
        for number, is_last in _with_last(range(len(own))):
            self._deliver(own, piece.only(number), publishings if is_last else [])

    def _answer_all(self, publishings: list[PublishStep]) -> None:
        """The last publication of these was refused. If there is no room even for their keys, those are forgotten."""
        try:
            self._carry_out(NOTHING, publishings)
        except LavantError:
            for each in publishings:
                self._by_key.pop((each.namespace, each.key), None)
                each.key = ""
            self._carry_out(NOTHING, publishings)

    def _carry_out(
        self, spread: FanOut, publishings: list[PublishStep], accepted: dict[str, int] | None = None
    ) -> None:
        keyed = [each for each in publishings if each.key]
        answers: list[tuple[RequestContext, Answer]] = [
            (asked, Published(each.entries)) for each in publishings for asked in (each.asked, *each.repeated)
        ]
        deliver = Deliver(
            spread,
            accepted={} if accepted is None else accepted,
            answered=[PublishOutcome(each.namespace, each.key, each.fingerprint, each.entries) for each in keyed],
        )
        self._perform(self._server.deliver(deliver, answers, self._clock.now_ms()))
        for each in keyed:
            self._by_key.pop((each.namespace, each.key), None)

    def _answer(self, asked: RequestContext, answer: Refused) -> None:
        self._perform([Reply(asked.client, asked.number, answer)])

    async def _in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _conflict() -> IdempotencyConflict:
    """The key itself is not quoted: here, those of principals are known by their hashes only."""
    return IdempotencyConflict(
        "the idempotency key of this request belongs to one with other publications, which came less than "
        f"{REMEMBERED_MS // 60_000} minutes ago; nothing was published: give each request a key of its own, and use it "
        "again only to repeat the very same request"
    )


def _size_class(publications: int) -> int:
    """One request may be larger than what is otherwise taken together."""
    return min(publications, PUBLICATIONS_AT_ONCE).bit_length()


def _alike(places: list[_Place]) -> list[tuple[EngineBatch, list[_Place]]]:
    """Publications of one namespace and kind together: those are matched at once."""
    groups: dict[tuple[str, str, int], list[_Place]] = defaultdict(list)
    for each in places:
        content = each.accepted.content
        dimensions = len(content) if isinstance(content, list) else 0
        groups[each.publishing.namespace, each.accepted.scheme, dimensions].append(each)
    return [
        (EngineBatch(namespace=namespace, scheme=scheme, publications=[each.accepted for each in group]), group)
        for (namespace, scheme, _), group in groups.items()
    ]


def _part(batch: EngineBatch, places: list[_Place]) -> EngineBatch:
    return msgspec.structs.replace(batch, publications=[each.accepted for each in places])


def _with_last(values: Any) -> list[tuple[Any, bool]]:
    """Each with whether it is the last.

    >>> _with_last("ab")
    [('a', False), ('b', True)]
    """
    listed = list(values)
    return [(value, place == len(listed) - 1) for place, value in enumerate(listed)]
