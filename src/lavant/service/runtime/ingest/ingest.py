"""Ingest: publications and changes of subscriptions in order, matched in batches and delivered.

    Publish ─────────┐                    ┌──► engine.publish ──► Deliver ────┐
    Subscribe, … ────┼──► ingest queue ───┼──► Subscribe, … ──► engine.change ┼──► journal ──► replies
    MatchResults ────┘                    └──► Deliver ───────────────────────┘

Publications of neighbouring brokers are relayed like those of clients; the same record queues them for further brokers.

Each namespace is processed in order, so a change of subscriptions applies to every later publication; between
namespaces the queue is fair. While the engine is busy, publications gather and are matched together when it is free,
so batches grow with the load; `IngestPace` lets them gather longer where that saves work. A batch shall not keep the
engine longer than `BATCH_S`, because other namespaces wait for it.

The engine runs in a thread of its own. A reply leaves when everything it depends on is durable. An engine that matches
later (Spark) keeps publications in logs; they count when the journal says so, and its match results come back through
the same queue.

While kernels are compiled, the scan engine stands in for the local one, which takes over between two steps. What the
scan engine does not take, and what comes after it, waits; new clients are told so meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from lavant.broker.federation.effects import RelayPublications
from lavant.broker.machine.effects import Effect, Reply
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.match_protocol import MatchResults
from lavant.broker.protocol.queues import FanOut, Refused
from lavant.broker.protocol.subscriptions import (
    Deliver,
    Publish,
    Published,
    PublishOutcome,
    RoutedPublications,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.admission import Admission, AdmittedPublish
from lavant.broker.subscriptions.filter_quota import Filters
from lavant.broker.subscriptions.idempotency import IdempotencyKeys
from lavant.broker.subscriptions.registry import Added, Change, Removed
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded
from lavant.service.engines.filters import FilterAdmission
from lavant.service.engines.interface import Engine, EngineBatch, Logged, MatchProbe
from lavant.service.engines.scan import CompiledKernels, ScanEngine
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.ingest.ingest_pace import IngestPace
from lavant.service.runtime.ingest.ingest_queue import (
    PUBLICATIONS_AT_ONCE,
    ChangeStep,
    DeliverStep,
    IngestQueue,
    QueuedPublication,
    group_alike,
    part_of,
    routed_of,
    size_class,
    with_last,
)
from lavant.service.runtime.ingest.match_delivery import MatchDelivery, MatchSource, OnMatched, QueueSizes
from lavant.service.runtime.limits import ServiceLimits

DELIVERED_BYTES_MAX = 32 << 20
"""Bytes of publications in one record, which has to fit into a segment of the journal."""
INLINE_S_MAX = 0.0015
"""A shorter batch is matched in the event loop itself: waking a thread would take as long."""
NOTHING = FanOut([], b"", b"", b"")
REQUESTS = (Publish, Subscribe, UpdateSubscription, Unsubscribe)
"""Go through the ingest queue; all other requests go straight to the broker machine."""

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

_Matched: TypeAlias = list[tuple[list[QueuedPublication], list[FanOutBatch] | Logged]]
Perform: TypeAlias = Callable[[list[Effect]], None]


class Ingest:
    """One for each server. `perform` performs effects and opens a turn, `commit` commits what clients wait for, and
    `on_failed` receives unexpected errors."""

    def __init__(
        self,
        server: BrokerMachine,
        engine: Engine,
        clock: ServerClock,
        *,
        limits: ServiceLimits,
        perform: Perform,
        commit: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.published = 0
        self.refused = 0
        self.check_subscribe: Callable[[Subscribe], None] = lambda request: None
        """Raises if the server cannot deliver what a new subscription asks for."""
        self.on_changes: Callable[[list[Change]], None] = lambda changes: None
        """Called with subscriptions that were added and removed."""
        self.on_arrived: Callable[[int], None] = lambda publications: None
        """Called with the number of publications that were admitted; for telemetry, like the next one."""
        self.on_matched: OnMatched = lambda publications, subscriptions, matches, seconds: None
        """Called with the size of a batch, the number of subscriptions and of matches, and the duration if known."""
        self.on_worked: Callable[[str, float], None] = lambda namespace, seconds: None
        """Called with the time that the event loop spent on a namespace."""
        self.kernels = CompiledKernels()
        self.probe: MatchProbe | None = None
        """Measures what is matched, if the broker balances."""
        self._server = server
        self._subscriptions = server.broker.subscriptions
        self._federation = server.broker.federation
        self._own_engine = engine
        self._clock = clock
        self._limits = limits
        self._perform = perform
        self._commit = commit
        self._on_failed = on_failed
        self._queue = IngestQueue()
        self._pace = IngestPace()
        self._sizes = QueueSizes(server.queues)
        self.admission = Admission(
            server.queues,
            server.broker.subscriptions,
            publications_max=limits.publications_waiting_max,
            bytes_max=limits.publications_waiting_bytes_max,
        )
        self._costs_s = [1.0] * (size_class(PUBLICATIONS_AT_ONCE) + 1)
        """Processor time of a batch by the bit length of its size. Elapsed time would keep batches in the thread."""
        self._use(engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._task: asyncio.Task[None] | None = None
        self._awaiting: list[Callable[[], None]] = []

    async def load(self) -> None:
        """Load all subscriptions into the engine, before the first request."""
        self._subscriptions.changes.clear()
        await self._load()
        await self._retire()

    async def scan_until(self, kernels: asyncio.Future[None]) -> None:
        """As `load`, but match with the scan engine until the kernels are there."""
        self.kernels.expect(kernels)
        self._use(ScanEngine())
        await self.load()
        kernels.add_done_callback(lambda _: self.go_on())

    @property
    def can_scan(self) -> bool:
        """Whether the scan engine takes all subscriptions."""
        return not self._engine.waits and ScanEngine.takes((each.filter for each in self._subscriptions), 0)

    async def _load(self) -> None:
        serial = self._server.queues.serial
        own = [Added(each, serial(each.queue)) for each in self._subscriptions]
        await self._in_thread(
            self._filters.apply, [*own, *(Added(each, link) for each, link in self._federation.entries())], {}
        )

    def request(self, client: Hashable, number: int, request: Publish | SubscriptionRequest) -> None:
        """Take a request of a client. It is answered later, or refused now."""
        context = RequestContext(client, number, None)
        try:
            if isinstance(request, Subscribe):
                self.check_subscribe(request)
            step = self._admit(context, request) if isinstance(request, Publish) else ChangeStep(context, request)
        except LavantError as error:
            self.refused += isinstance(request, Publish)
            self._perform([Reply(client, number, refusal(error))])
            return
        if step is not None:
            self._queue.add(request.namespace, step)
            self.go_on()

    def relay(self, relay: RelayPublications) -> None:
        """Take publications of a neighbouring broker; its connection is answered by `Published`."""
        context = RequestContext(relay.connection, relay.number, None)
        admitted = self.admission.relay(context, relay.batch, relay.indexes, relay.link)
        if admitted.accepted:
            self._queue.add(admitted.namespace, admitted)
            self.go_on()
        else:
            self._perform([Reply(context.client, context.number, Published(admitted.entries))])

    def deliver_matches(self, client: Hashable, number: int, results: MatchResults, deliveries: MatchDelivery) -> None:
        """Take match results of an engine that matches later. They are answered when they are durable in queues."""
        self._queue.add(results.log_name, DeliverStep(RequestContext(client, number, None), results, deliveries))
        self.go_on()

    def match_delivery(self, source: MatchSource) -> MatchDelivery:
        """Delivery of match results that arrive later."""
        return MatchDelivery(self._server, source, self._clock, self._perform, self.on_matched)

    def go_on(self) -> None:
        """Process the queue, and subscriptions that ended with their queues."""
        if self._task is None and (self._queue or self._subscriptions.changes or self.kernels.have_come):
            self._task = asyncio.get_running_loop().create_task(self._work())

    def when_matchers_know(self, then: Callable[[], None]) -> None:
        """Call a function when the engine knows all subscriptions up to now, and all that it matched without them is
        recorded."""
        if self._task is None and not self._subscriptions.changes:
            then()
        else:
            self._awaiting.append(then)
            self.go_on()

    @property
    def waiting(self) -> int:
        """Publications that wait to be matched."""
        return self.admission.publications

    @property
    def keys(self) -> IdempotencyKeys:
        """The idempotency keys that are remembered."""
        return self._subscriptions.recent

    async def close(self) -> None:
        """Process the whole queue, then release the engine."""
        await self.kernels.cancel()
        while self._task is not None:
            await self._task
        self._thread.shutdown()
        self._own_engine.close()

    # ── admission ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, context: RequestContext, request: Publish) -> AdmittedPublish | None:
        """None if it is answered without matching: a repetition, or a request of which nothing was accepted."""
        now_ms = self._clock.now_ms()
        fingerprint = self.admission.check(request)
        repetition = self.admission.repetition(context, request, fingerprint, now_ms)
        if repetition is True:
            return None
        if isinstance(repetition, Published):  # durable before it leaves, like the first answer
            self._perform(self._server.deliver(Deliver(NOTHING), [(context, repetition)], now_ms))
            return None
        if self._engine.waits:
            self._engine.check_room(request.namespace)
        admitted = self.admission.admit(context, request, fingerprint, now_ms, is_delivered_later=self._engine.waits)
        if not admitted.accepted:
            self.refused += len(admitted.entries)
            self._perform([Reply(context.client, context.number, Published(admitted.entries))])
            return None
        self.on_arrived(len(admitted.accepted))
        return admitted

    # ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self) -> None:
        try:
            while self._queue or self._subscriptions.changes or self.kernels.have_come:
                first = self._queue.first()
                if self._subscriptions.changes or isinstance(first, ChangeStep):
                    steps = self._queue.take_changes()
                    if self.kernels.are_missing and not self._scan_takes(steps):
                        await self._switch()
                    await self._change(steps)
                elif self.kernels.have_come:
                    await self._switch()
                elif isinstance(first, AdmittedPublish):
                    pause_s = self._pace.pause_s(self.waiting, is_relayed=bool(first.relayed))
                    if pause_s > 0:
                        await asyncio.sleep(pause_s)
                        continue  # a step that came meanwhile may be first now
                    await self._publish(self._queue.take_publishes())
                elif isinstance(first, DeliverStep):
                    self._queue.take(1)
                    await first.deliveries.deliver(first.context, first.results, self._in_thread)
                await self._retire()
                self._matchers_know()
        except asyncio.CancelledError:
            pass  # the server stops: nothing that waits for kernels was accepted
        except Exception as error:
            self._on_failed(error)
        finally:
            self._task = None

    def _use(self, engine: Engine) -> None:
        self._engine, self._filters = engine, FilterAdmission(engine)

    def _scan_takes(self, steps: list[ChangeStep]) -> bool:
        added = [each.request.filter for each in steps if not isinstance(each.request, Unsubscribe)]
        return ScanEngine.takes(added, len(self._subscriptions))

    async def _switch(self) -> None:
        """Replace the scan engine, with all subscriptions that it has."""
        await self.kernels.wait()
        while self._subscriptions.changes:
            await self._change([])
        self._use(self._own_engine)
        await self._load()

    def _matchers_know(self) -> None:
        if self._awaiting and not self._subscriptions.changes:
            awaiting, self._awaiting = self._awaiting, []
            for then in awaiting:
                then()

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _change(self, steps: list[ChangeStep]) -> None:
        requests = [each.request for each in steps if not isinstance(each.request, Unsubscribe)]
        filters = iter(await self._in_thread(self._filters.prepare, requests))
        changes, prepared = self._subscriptions.changes, dict[int, Any]()
        has_removed = any(isinstance(change, Removed) for change in changes)
        for place, step in enumerate(steps):
            request, known = step.request, len(changes)
            filter = None if isinstance(request, Unsubscribe) else next(filters)
            replaced = self._subscriptions.updated_by(request)
            problem = self._filters.problem(request, filter, replaced, self._subscriptions.limits)
            if problem is not None and (has_removed or (replaced is not None and changes)):
                self._queue.put_back(steps[place:])  # there may be room after these changes
                break
            if problem is not None:
                self._answer(step.context, refusal(problem))
                continue
            now_ms = self._clock.now_ms()
            self._perform(self._server.request(step.context.client, step.context.number, request, None, now_ms))
            for change in changes[known:]:
                has_removed = has_removed or isinstance(change, Removed)
                if isinstance(change, Added) and isinstance(filter, Filters):
                    prepared[change.subscription.number] = filter
                    self._filters.promise(change.subscription, filter)
        if changes:
            told = list(changes)
            changes.clear()
            self.on_changes([each for each in told if each.subscription.queue])  # not those of neighbours
            await self._in_thread(self._filters.apply, told, prepared)

    async def _retire(self) -> None:
        """Remove namespace logs that are no longer needed from the engine, the disk and the journal."""
        retired = self._engine.retire()
        if not retired:
            return
        for each in retired:
            await self._in_thread(shutil.rmtree, each.directory, True)
        with suppress(LavantError):  # with a full disk, at the next start
            deliver = Deliver(NOTHING, forgotten=[each.log_name for each in retired])
            self._perform(self._server.deliver(deliver, [], self._clock.now_ms()))

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _publish(self, publishes: list[AdmittedPublish]) -> None:
        places = [
            QueuedPublication(publish, place, accepted)
            for publish in publishes
            for place, accepted in publish.accepted.items()
        ]
        self._pace.begin(len(places))
        try:
            started_s = time.monotonic()
            groups = group_alike(places)
            if not self._engine.waits and self._costs_s[size_class(len(places))] < INLINE_S_MAX:
                matched = self._match(groups)
            else:
                matched = await self._in_thread(self._match, groups)
            if self.probe is not None:
                await self.probe.pace(len(places), started_s)
            seconds = time.monotonic() - started_s
            logged = [result for _, result in matched if not isinstance(result, list)]
            parts = [(group, part) for group, result in matched if isinstance(result, list) for part in result]
            if not logged:
                matches = sum(len(part.places) // INTEGERS.itemsize for _, part in parts)
                self.on_matched(len(places), len(self._subscriptions), matches, seconds)
            if self.probe is not None:
                self.probe.matched(len(places), seconds)
            for (group, part), is_last in with_last(parts):
                started_s = time.monotonic()
                if self.probe is not None:
                    own = group[part.start : part.stop]
                    self.probe.fanned_out(own[0].publish.namespace, [each.accepted for each in own], part)
                self._deliver(group, part, publishes if is_last and not logged else [])
                self.on_worked(group[0].publish.namespace, time.monotonic() - started_s)
                if is_last:
                    self._commit()  # subscribers wait for it; requests that arrived meanwhile have time
                await asyncio.sleep(0)  # let other namespaces run
            if logged:
                await self._count(logged, publishes)
        finally:
            self.admission.matched(publishes)
        self.published += len(places)

    def _match(self, groups: list[tuple[EngineBatch, list[QueuedPublication]]]) -> _Matched:
        """Runs in the engine's thread, or in the event loop for small batches."""
        started_s = time.thread_time()
        matched = [each for batch, places in groups for each in self._match_alike(batch, places)]
        seconds, publications = time.thread_time() - started_s, sum(len(places) for _, places in groups)
        size = size_class(publications)
        self._costs_s[size] += (seconds - self._costs_s[size]) / 8
        self._queue.took(publications, seconds)
        return matched

    def _match_alike(self, batch: EngineBatch, places: list[QueuedPublication]) -> _Matched:
        """A batch that cannot be matched as one, for instance because of too many attributes in all, is halved."""
        try:
            return [(places, self._engine.publish(batch))]
        except LavantError as error:
            if len(places) > 1 and isinstance(error, InvalidValue):
                middle = len(places) // 2
                halves = (places[:middle], places[middle:])
                return [each for half in halves for each in self._match_alike(part_of(batch, half), half)]
            self.refused += len(places)
            for each in places:
                each.publish.entries[each.place] = refusal(error)
            return [(places, [FanOutBatch.nothing(len(places))])]

    async def _count(self, logged: list[Logged], publishes: list[AdmittedPublish]) -> None:
        """Record accepted offsets and answers together: both happen, or neither."""
        try:
            self._record(NOTHING, publishes, {each.log_name: each.end for each in logged})
        except LavantError as error:
            for each in reversed(logged):
                await self._in_thread(each.withdraw)
            self.admission.answered(publishes)
            for publish in publishes:
                self.refused += len(publish.accepted)
                for context in (publish.context, *publish.repetitions):
                    self._answer(context, refusal(error))
        else:
            for each in logged:
                each.confirm()

    def _deliver(self, places: list[QueuedPublication], part: FanOutBatch, publishes: list[AdmittedPublish]) -> None:
        own = places[part.start : part.stop]
        bodies = [
            each.accepted.body if is_wanted else b"" for each, is_wanted in zip(own, part.wanted.tolist(), strict=True)
        ]
        if len(own) > 1 and sum(map(len, bodies)) > DELIVERED_BYTES_MAX:
            self._deliver_each(own, part, publishes)
            return
        fanout = FanOut(bodies, part.queues, part.ends, part.places)
        try:
            routed = routed_of(own, part) if self._federation.neighbours else None
            self._record(fanout, publishes, routed=routed)
        except LavantError as error:
            is_accepted = len(own) == 1 and own[0].way is not None and isinstance(error, LimitExceeded)
            fitting = self._sizes.fitting(part, len(own[0].accepted.body)) if is_accepted else None
            if fitting is not None:
                self._deliver(places, fitting, publishes)
            elif len(own) == 1:
                self.refused += 1
                own[0].publish.entries[own[0].place] = refusal(error)
                self._answer_all(publishes)
            else:  # a part of them may fit
                self._deliver_each(own, part, publishes)

    def _deliver_each(self, own: list[QueuedPublication], part: FanOutBatch, publishes: list[AdmittedPublish]) -> None:
        for number, is_last in with_last(range(len(own))):
            self._deliver(own, part.only(number), publishes if is_last else [])

    def _answer_all(self, publishes: list[AdmittedPublish]) -> None:
        """Answer after the last publication was refused. Without room for their keys, the keys are dropped."""
        try:
            self._record(NOTHING, publishes)
        except LavantError:
            self.admission.answered(publishes)
            for each in publishes:
                each.key = ""
            self._record(NOTHING, publishes)

    def _record(
        self,
        fanout: FanOut,
        publishes: list[AdmittedPublish],
        accepted: dict[str, int] | None = None,
        routed: RoutedPublications | None = None,
    ) -> None:
        keyed = [each for each in publishes if each.key]
        answers: list[tuple[RequestContext, Answer]] = [
            (context, Published(each.entries)) for each in publishes for context in (each.context, *each.repetitions)
        ]
        deliver = Deliver(
            fanout,
            accepted={} if accepted is None else accepted,
            answered=[PublishOutcome(each.namespace, each.key, each.fingerprint, each.entries) for each in keyed],
            routed=routed,
        )
        self._perform(self._server.deliver(deliver, answers, self._clock.now_ms()))
        self.admission.answered(keyed)

    def _answer(self, context: RequestContext, answer: Refused) -> None:
        self._perform([Reply(context.client, context.number, answer)])

    async def _in_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
