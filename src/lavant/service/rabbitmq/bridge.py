"""RabbitMQ between the server and its workers: tasks go out through its queues, reports come back, jobs stay here.

    topic.A ──lease, as many as there are consumers──► bridge ──confirmed──► lavant.topic.A ──► workers
    jobs ◄──CompleteTask, FailTask, ExtendTask── bridge ◄── lavant.reports ◄────────────────────┘

"Resource Management for Elastic Publish Subscribe Systems" was evaluated in this set-up: consumers behind RabbitMQ, one
queue per topic, their number set by a resource manager. There, RabbitMQ holds all waiting work. Here it holds only as
much as its consumers can begin at once; the rest waits in Lavant, where it is measured and can be cancelled. So a
service time, from lease to report, is what the model means by it.

    failure           effect
    ────────────      ─────────────────────────────────────────────────────────────────────────────
    a worker          its lease runs out, and the workflow's rules decide about another attempt
    RabbitMQ          the bridge extends leases until it is back; its queues and their messages are durable
    the server        reports wait in RabbitMQ; waiting tasks are read from its queues, running ones report
    a lost message    (a queue was purged or deleted) its lease is not extended and runs out
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
"""The worker name of the bridge's leases, shown in a job's timeline."""
POLL_S = 0.5
"""Interval of polling the queues: new consumers are noticed after this at the latest."""
LEASE_WAIT_MS = 1000
KEEP_S_MAX = 1.0
"""Longest interval of extending leases; shorter for short leases."""
PAUSE_S, PAUSE_S_MAX = 0.5, 2.0
"""Between two attempts to connect; no longer than for workers, which wait for answers once they are back."""
STOP_S_MAX = 5.0

_PASSING = frozenset((StorageFull.__name__, Overloaded.__name__))

_logger = logging.getLogger(__name__)


class RabbitMQBridge:
    """Serves all topics of the server, also those defined later."""

    def __init__(self, service: BrokerRuntime, settings: RabbitMQSettings) -> None:
        self.fault: str | None = "RabbitMQ is not connected yet"
        """Why tasks cannot go through RabbitMQ; None if they can."""
        self._service = service
        self._settings = settings
        self._lease_ms = round(settings.lease_s * SECOND_MS)
        self._ledger = AttemptLedger(settings.lease_s)
        self._ready: dict[str, int] = {}
        self._consumers: dict[str, int] = {}
        self._changed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Set when consumers of a topic may take more tasks."""
        self._told: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Returns at once: the server runs with or without RabbitMQ."""
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._keep())]

    async def stop(self) -> None:
        """Tasks leased but not published, because RabbitMQ is away, come again when their leases run out."""
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
            MetricFamily("lavant_rabbitmq_tasks", "gauge", "Tasks in RabbitMQ, or with workers behind it.", tasks),
            MetricFamily("lavant_rabbitmq_consumers", "gauge", "Worker slots known to RabbitMQ.", consumers),
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
        """Log each reason once until RabbitMQ is back."""
        if fault not in self._told:
            _logger.warning("%s; trying again, tasks wait meanwhile", fault)
        self._told.add(fault)
        self.fault = fault
        self._consumers.clear()

    async def _serve(self, session: RabbitMQSession) -> None:
        """Runs until the connection is lost."""
        await session.consume_reports(self._settle)
        async with asyncio.TaskGroup() as feeding:
            declared: set[str] = set()
            while True:
                for topic in await self._topics():
                    if topic not in declared:
                        declared.add(topic)
                        await self._recover(session, topic)
                        feeding.create_task(self._feed(session, topic), name=f"tasks of topic {topic}")
                    self._ready[topic], self._consumers[topic] = await session.poll(topic)
                    self._changed[topic].set()
                if self.fault is not None:
                    self._back()
                await session.pause(POLL_S)

    def _back(self) -> None:
        """Workers could not report for a while: extend all leases by a full period."""
        _logger.info("tasks go through RabbitMQ at %s", redacted(self._settings.url))
        self.fault = None
        self._told.clear()
        for entry in self._ledger.entries():
            self._extend(entry)

    async def _recover(self, session: RabbitMQSession, topic: str) -> None:
        await session.declare(topic)
        for relayed in await session.peek(topic):
            self._ledger.recovered(relayed, self._now_s())

    async def _topics(self) -> list[str]:
        listed = await self._service.execute(ListJobTypes())
        assert isinstance(listed, JobTypesListed)
        return listed.topics

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _feed(self, session: RabbitMQSession, topic: str) -> None:
        """Lease as many tasks as the consumers can take, and publish them."""
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
        """Leased tasks enter the ledger even if this is cancelled."""
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
        """The answer to a report, once durable; None if the server cannot take it now."""
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
