"""All durable state of a broker as one deterministic machine: queues, jobs, subscriptions, and neighbouring brokers.

    request, now_ms ──► BrokerState.handle ──► answer

Replay follows the rules in `lavant.broker.queues.machine`: record each command that `changed` something, with `now_ms`
of the queues after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lavant.broker.federation import snapshot as federation_snapshot
from lavant.broker.federation.migration import snapshot as migration_snapshot
from lavant.broker.federation.migration.state import Migrations
from lavant.broker.federation.state import FederationState
from lavant.broker.protocol.commands import A_co, Answer, RequestFor
from lavant.broker.protocol.queues import DeleteQueue
from lavant.broker.protocol.registry import COMMANDS, FEDERATION, MIGRATION, QUERIES, REGISTRY, SUBSCRIPTIONS
from lavant.broker.protocol.subscriptions import Deliver
from lavant.broker.queues.accounting.quotas import DEFAULT_LIMITS, QueueLimits
from lavant.broker.queues.plan import Plan, half_applied
from lavant.broker.subscriptions import snapshot
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import CorruptSnapshot, InvalidValue, LavantError

_QUEUES, _SUBSCRIPTIONS, _FEDERATION, _MIGRATIONS = b"q", b"s", b"f", b"m"


class BrokerState:
    """Queues, jobs, subscriptions, and the federation."""

    def __init__(self, queues: Jobs | None = None) -> None:
        self.queues = Jobs() if queues is None else queues
        self.subscriptions = Subscriptions(self.queues)
        self.federation = FederationState(self.queues, self.subscriptions)
        self.migrations = Migrations(self.queues, self.subscriptions, self.federation)
        self.changed = False
        """Whether a replay must repeat the last `handle`."""
        self._planners: dict[type, Callable[[Any], Plan]] = {each: self._machine_of(each).plan for each in COMMANDS}
        self._planners[DeleteQueue] = self._plan_delete
        self._planners[Deliver] = self._plan_deliver
        self._answers: dict[type, Callable[[Any], Any]] = {
            each: machine.answer
            for each in QUERIES
            if not isinstance(machine := self._machine_of(each), Migrations)  # it has none
        }

    def handle(self, request: RequestFor[A_co], now_ms: int) -> A_co:
        """Apply a command or answer a query. A `LavantError` means that it was refused, and changed nothing."""
        queues = self.queues
        self.changed = queues.changed = False
        if now_ms > queues.now_ms:
            queues.advance(now_ms)
        planner = self._planners.get(type(request))
        if planner is None:
            return self.answer(request)
        plan = planner(request)
        try:
            answer: A_co = plan()
        except LavantError as error:
            raise half_applied(error) from error
        self.changed = queues.changed
        return answer

    def answer(self, request: RequestFor[A_co]) -> A_co:
        """Answer a query, which changes nothing; not even the time."""
        answer_of = self._answers.get(type(request))
        if answer_of is None:
            raise InvalidValue(f"{type(request).__name__} is no request for the broker's state")
        answer: A_co = answer_of(request)
        return answer

    def _machine_of(self, request: type) -> Jobs | Subscriptions | FederationState | Migrations:
        machine = REGISTRY[request].machine
        if machine == FEDERATION:
            return self.federation
        if machine == MIGRATION:
            return self.migrations
        return self.subscriptions if machine == SUBSCRIPTIONS else self.queues

    def _plan_delete(self, request: DeleteQueue) -> Plan:
        """Subscriptions that deliver to the queue end with it."""
        delete = self.queues.plan(request)

        def apply() -> Answer:
            answer: Answer = delete()
            self.subscriptions.queue_deleted(request.queue)
            return answer

        return apply

    def _plan_deliver(self, request: Deliver) -> Plan:
        """Publications enter local queues and those of neighbours together."""
        deliver = self.subscriptions.plan(request)
        forward = self.federation.plan_routed(request)
        if forward is None:
            return deliver
        note = self.migrations.plan_noted(request)

        def apply() -> Answer:
            answer: Answer = deliver()
            forward()
            if note is not None:
                note()
            return answer

        return apply

    def snapshot(self) -> Iterator[bytes]:
        """All that `restore` needs, in chunks of about a megabyte. Nothing may be changed until the last is taken."""
        for chunk in self.queues.snapshot():
            yield _QUEUES + chunk
        for chunk in snapshot.encode(self.subscriptions):
            yield _SUBSCRIPTIONS + chunk
        for chunk in federation_snapshot.encode(self.federation):
            yield _FEDERATION + chunk
        for chunk in migration_snapshot.encode(self.migrations, self.queues.now_ms):
            yield _MIGRATIONS + chunk

    @classmethod
    def restore(cls, chunks: Iterable[bytes], limits: QueueLimits = DEFAULT_LIMITS) -> BrokerState:
        """The broker of which the chunks are a snapshot."""
        sections = _Sections(chunks)
        broker = cls(Jobs.restore(sections.of(_QUEUES), limits))
        snapshot.decode(sections.of(_SUBSCRIPTIONS), broker.subscriptions)
        federation_snapshot.decode(sections.of(_FEDERATION), broker.federation)
        migration_snapshot.decode(sections.of(_MIGRATIONS), broker.migrations)
        sections.check_end()
        return broker


class _Sections:
    """Splits the chunks of a snapshot by machine; each machine's chunks are contiguous."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._next = next(self._chunks, None)

    def of(self, kind: bytes) -> Iterator[bytes]:
        while (chunk := self._next) is not None and chunk.startswith(kind):
            self._next = next(self._chunks, None)
            yield chunk[len(kind) :]

    def check_end(self) -> None:
        if self._next is not None:
            raise CorruptSnapshot("the broker's snapshot goes on after its end; restore it from a copy")
