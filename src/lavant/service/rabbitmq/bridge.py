"""RabbitMQ between the server and its workers: tasks go out through its queues, reports come back, jobs stay here.

    topic.A ──lease, as many as there are consumers──► bridge ──confirmed──► lavant.topic.A ──► workers
    jobs ◄──CompleteTask, FailTask, ExtendTask── bridge ◄── lavant.reports ◄────────────────────┘

It is the set-up in which "Resource Management for Elastic Publish Subscribe Systems" was evaluated: consumers behind
RabbitMQ, one queue a topic, their number set by a resource manager. There RabbitMQ holds all work that waits. Here it
holds only as much as its consumers can begin at once; the rest waits where it is measured, and can still be cancelled.
So a service time, from lease to report, is what the model means by it.

    what breaks       what happens
    ────────────      ─────────────────────────────────────────────────────────────────────────────
    a worker          its lease runs out, and the workflow's rules decide about another attempt
    RabbitMQ          leases are kept from here until it is back; its queues and their messages are durable
    the server        reports wait in RabbitMQ; what waits for workers is found there, who works says so
    a message is lost (a queue was purged or deleted): nobody keeps its lease, so it runs out
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable

from lavant.broker.protocol.amqp_messages import Relayed, Report, encode, redacted, unreachable
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.jobs import ExtendTask, JobTypesListed, LeaseTasks, ListJobTypes, Reported, TasksLeased
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import Refused
from lavant.broker.workflows.limits import LEASED_MAX
from lavant.core.errors import AttemptOver, ConnectionLost, LavantError, Overloaded, StorageFull
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.rabbitmq.ledger import AttemptLedger, LedgerEntry
from lavant.service.rabbitmq.session import RabbitMQSession
from lavant.service.rabbitmq.settings import RabbitMQSettings
from lavant.service.runtime.broker_runtime import BrokerRuntime

WORKER = "rabbitmq"
"""Who leases; a job's timeline shows it."""
LOOK_S = 0.5
"""Between two looks at the queues: consumers that come are noticed so much later."""
LEASE_WAIT_MS = 1000
KEEP_S_MAX = 1.0
"""Between two looks at the leases; more often if they are short."""
PAUSE_S, PAUSE_S_MAX = 0.5, 2.0
"""Between two attempts to connect. No longer than those of workers: they wait for answers when they are back."""
STOP_S_MAX = 5.0

_PASSING = frozenset((StorageFull.__name__, Overloaded.__name__))

_logger = logging.getLogger(__name__)


class RabbitMQBridge:
    """Serves all topics that the server has, those that are defined later as well."""

    def __init__(self, service: BrokerRuntime, settings: RabbitMQSettings) -> None:
        self.fault: str | None = "RabbitMQ is not connected yet"
        """Why nothing goes through; None if it does."""
        self._service = service
        self._settings = settings
        self._lease_ms = round(settings.lease_s * SECOND_MS)
        self._ledger = AttemptLedger(settings.lease_s)
        self._ready: dict[str, int] = {}
        self._consumers: dict[str, int] = {}
        self._changed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """There may be room for more tasks of a topic."""
        self._told: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Returns at once: whether RabbitMQ is there or not, the server is."""
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._keep())]

    async def stop(self) -> None:
        """Tasks that were leased and not yet published, if RabbitMQ is away, come again when their leases run out."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S_MAX)

    def families(self) -> Iterable[MetricFamily]:
        is_connected = int(self.fault is None)
        tasks = [({"topic": topic}, count) for topic, count in self._ledger.counts().items()]
        consumers = [({"topic": topic}, count) for topic, count in sorted(self._consumers.items())]
        return [
            MetricFamily(
                "lavant_rabbitmq_connected", "gauge", "1 if tasks can go through RabbitMQ.", [({}, is_connected)]
            ),
            MetricFamily("lavant_rabbitmq_tasks", "gauge", "With RabbitMQ, or with workers behind it.", tasks),
            MetricFamily("lavant_rabbitmq_consumers", "gauge", "Slots of workers that RabbitMQ knows.", consumers),
        ]

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        pause_s = PAUSE_S
        while True:
            try:
                session = await RabbitMQSession.open(self._settings.url)
            except LavantError as error:
                self._away(str(error))
                await asyncio.sleep(random.uniform(pause_s / 2, pause_s))
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
                continue
            pause_s = PAUSE_S
            try:
                await self._serve(session)
            except* ConnectionLost as lost:
                _logger.debug("the connection to RabbitMQ is over", exc_info=lost)
                self._away(str(unreachable(self._settings.url, lost.exceptions[0])))
            finally:
                await session.close()
            await asyncio.sleep(PAUSE_S)

    def _away(self, fault: str) -> None:
        """Each reason is told once, until all is well again."""
        if fault not in self._told:
            _logger.warning("%s; trying again, tasks wait meanwhile", fault)
        self._told.add(fault)
        self.fault = fault
        self._consumers.clear()

    async def _serve(self, session: RabbitMQSession) -> None:
        """Until the connection is lost."""
        await session.consume_reports(self._settle)
        async with asyncio.TaskGroup() as feeding:
            declared: set[str] = set()
            while True:
                for topic in await self._topics():
                    if topic not in declared:
                        declared.add(topic)
                        await self._take_up(session, topic)
                        feeding.create_task(self._feed(session, topic), name=f"tasks of topic {topic}")
                    self._ready[topic], self._consumers[topic] = await session.look(topic)
                    self._changed[topic].set()
                if self.fault is not None:
                    self._back()
                await session.pause(LOOK_S)

    def _back(self) -> None:
        """Workers could not report for a while: each gets a whole lease to do so."""
        _logger.info("tasks go through RabbitMQ at %s", redacted(self._settings.url))
        self.fault = None
        self._told.clear()
        for entry in self._ledger.entries():
            self._extend(entry)

    async def _take_up(self, session: RabbitMQSession, topic: str) -> None:
        await session.declare(topic)
        for relayed in await session.peek(topic):
            self._ledger.found(relayed, self._now_s())

    async def _topics(self) -> list[str]:
        listed = await self._service.execute(ListJobTypes())
        assert isinstance(listed, JobTypesListed)
        return listed.topics

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _feed(self, session: RabbitMQSession, topic: str) -> None:
        """Lease as many tasks as there are consumers for, and publish them."""
        changed = self._changed[topic]
        while True:
            changed.clear()
            await asyncio.gather(*(self._publish(session, entry) for entry in self._ledger.unpublished(topic)))
            window = math.ceil(self._consumers.get(topic, 0) * self._settings.ahead)
            room = window - self._ledger.count(topic)
            if room > 0:
                await self._lease(topic, min(room, LEASED_MAX))
            else:
                await changed.wait()

    async def _publish(self, session: RabbitMQSession, entry: LedgerEntry) -> None:
        await session.publish(entry)
        self._ledger.published(entry)

    async def _lease(self, topic: str, count: int) -> None:
        """Whatever comes is in the ledger, though nobody waits for the answer any more."""
        call = self._service.ask(LeaseTasks(topic, WORKER, count, LEASE_WAIT_MS, self._lease_ms))
        call.answer.add_done_callback(lambda answered: self._leased(topic, answered))
        try:
            await asyncio.wait([call.answer])
        finally:
            if self._service.waiting(call):
                call.abandon()
        if isinstance(call.answer.result(), Refused):
            await asyncio.sleep(PAUSE_S)

    def _leased(self, topic: str, answered: asyncio.Future[Answer]) -> None:
        answer = None if answered.cancelled() else answered.result()
        if isinstance(answer, TasksLeased):
            for assignment in answer.tasks:
                self._ledger.leased(Relayed(topic, assignment), self._now_s())

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _settle(self, report: Report) -> bytes | None:
        """The answer to a report, when it is durable; None if there is no room for it just now."""
        if not self._ledger.claim(report.topic, report.key, report.worker):
            return encode(Refused(AttemptOver.__name__, f"{report.key} is with another worker"))
        answer = await self._service.execute(report.command)
        if isinstance(answer, Refused) and answer.code in _PASSING:
            return None
        if isinstance(answer, Reported) and isinstance(report.command, ExtendTask):
            until_s = self._now_s() + report.command.timeout_ms / SECOND_MS
            self._ledger.extended(report.topic, report.key, report.worker, until_s)
        else:
            self._end(report.topic, report)
        return encode(answer)

    def _end(self, topic: str, what: Report | LedgerEntry) -> None:
        self._ledger.ended(topic, what.key)
        self._changed[topic].set()

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        pause_s = min(KEEP_S_MAX, self._settings.lease_s / 10)
        while True:
            await asyncio.sleep(pause_s)
            now_s = self._now_s()
            for entry in self._ledger.to_extend(self._ready if self.fault is None else None, now_s):
                self._extend(entry)
            self._ledger.forget(now_s)

    def _extend(self, entry: LedgerEntry) -> None:
        call = self._service.ask(ExtendTask(*entry.key, self._lease_ms))
        call.answer.add_done_callback(self._extended(entry))

    def _extended(self, entry: LedgerEntry) -> Callable[[asyncio.Future[Answer]], None]:
        def on_answered(answered: asyncio.Future[Answer]) -> None:
            answer = None if answered.cancelled() else answered.result()
            if isinstance(answer, Reported):
                entry.until_s = self._now_s() + self._settings.lease_s
            elif isinstance(answer, Refused) and answer.code not in _PASSING:
                self._end(entry.topic, entry)

        return on_answered

    def _now_s(self) -> float:
        return self._service.loop.time()
