"""All durable state of a broker as one deterministic machine: queues, jobs over them, and subscriptions.

    request, now_ms ──► Broker.handle ──► answer

It keeps the rules for replay that `lavant.broker.queues.machine` states: record what `changed` something, with `now_ms`
of the queues after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from lavant.broker.protocol.commands import QUERIES, Answer, Request
from lavant.broker.protocol.jobs import JobRequest
from lavant.broker.protocol.queues import DeleteQueue
from lavant.broker.protocol.queues import Request as QueueRequest
from lavant.broker.queues.accounting.quotas import DEFAULT_LIMITS, QueueLimits
from lavant.broker.queues.plan import Plan, half_applied
from lavant.broker.subscriptions import snapshot
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import CorruptSnapshot, LavantError

_QUEUES, _SUBSCRIPTIONS = b"q", b"s"
_OF_QUEUES = frozenset((*get_args(QueueRequest), *get_args(JobRequest)))
_OF_QUEUES_ALONE = _OF_QUEUES - {DeleteQueue}
"""Mean nothing to subscriptions."""


class BrokerState:
    """Queues, jobs and subscriptions."""

    def __init__(self, queues: Jobs | None = None) -> None:
        self.queues = Jobs() if queues is None else queues
        self.subscriptions = Subscriptions(self.queues)
        self.changed = False
        """Whether the last `handle` did something that a replay must do too."""

    def handle(self, request: Request, now_ms: int) -> Answer:
        """Carry out a command or answer a query. Raises a `LavantError` if it can't be done, and has not begun then."""
        queues = self.queues
        self.changed = queues.changed = False
        if now_ms > queues.now_ms:
            queues.advance(now_ms)
        kind = type(request)
        if kind in QUERIES:
            return self.answer(request)
        plan = queues.plan(request) if kind in _OF_QUEUES_ALONE else self.plan(request)
        try:
            answer: Answer = plan()
        except LavantError as error:
            raise half_applied(error) from error
        self.changed = queues.changed
        return answer

    def plan(self, request: Request) -> Plan:
        """Check a command, and return what is to be applied before anything else happens to the broker."""
        if type(request) not in _OF_QUEUES:
            return self.subscriptions.plan(request)  # type: ignore[arg-type]
        plan = self.queues.plan(request)
        return self._plan_delete(request.queue, plan) if type(request) is DeleteQueue else plan

    def answer(self, request: Request) -> Answer:
        """To a query, which changes nothing; not even the time."""
        answer: Answer = (self.queues if type(request) in _OF_QUEUES else self.subscriptions).answer(request)
        return answer

    def _plan_delete(self, queue: str, delete: Plan) -> Plan:
        """Subscriptions that went to the queue end with it."""

        def apply() -> Answer:
            answer: Answer = delete()
            self.subscriptions.queue_deleted(queue)
            return answer

        return apply

    def snapshot(self) -> Iterator[bytes]:
        """All that `restore` needs, in chunks of about a megabyte. Nothing may be changed until the last is taken."""
        for chunk in self.queues.snapshot():
            yield _QUEUES + chunk
        for chunk in snapshot.encode(self.subscriptions):
            yield _SUBSCRIPTIONS + chunk

    @classmethod
    def restore(cls, chunks: Iterable[bytes], limits: QueueLimits = DEFAULT_LIMITS) -> BrokerState:
        """The broker of which the chunks are a snapshot."""
        sections = _Sections(chunks)
        broker = cls(Jobs.restore(sections.of(_QUEUES), limits))
        snapshot.decode(sections.of(_SUBSCRIPTIONS), broker.subscriptions)
        sections.check_end()
        return broker


class _Sections:
    """Chunks by what they are of, each kind's after the other's."""

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
