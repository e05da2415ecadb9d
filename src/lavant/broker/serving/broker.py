"""All durable state of a broker as one deterministic machine: queues, jobs over them, and subscriptions.

    request, now_ms ──► Broker.handle ──► answer

It keeps the rules for replay that `lavant.broker.queues.hub` states: record what `changed` something, with `now_ms` of
the queues after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from lavant.broker.queues.commands import DeleteQueue
from lavant.broker.queues.commands import Request as QueueRequest
from lavant.broker.queues.limits import DEFAULT_LIMITS, HubLimits
from lavant.broker.serving.commands import Answer, Request
from lavant.broker.subscriptions import snapshot
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.broker.workflows.commands import JobRequest
from lavant.broker.workflows.hub import Jobs
from lavant.core.errors import CorruptSnapshot

_QUEUES, _SUBSCRIPTIONS = b"q", b"s"
_OF_QUEUES = frozenset((*get_args(QueueRequest), *get_args(JobRequest)))


class Broker:
    """Queues, jobs and subscriptions."""

    def __init__(self, queues: Jobs | None = None) -> None:
        self.queues = Jobs() if queues is None else queues
        self.subscriptions = Subscriptions(self.queues)
        self.changed = False
        """Whether the last `handle` did something that a replay must do too."""

    def handle(self, request: Request, now_ms: int) -> Answer:
        """Carry out a command or answer a query. Raises a `LavantError` if it can't be done, and has not begun then."""
        self.changed = False
        if type(request) in _OF_QUEUES:
            answer: Answer = self.queues.handle(request, now_ms)  # type: ignore[arg-type]
            self.changed = self.queues.changed
            if type(request) is DeleteQueue:
                self.subscriptions.queue_deleted(request.queue)
        else:
            self.queues.advance(now_ms)
            answer = self.subscriptions.handle(request, self.queues.now_ms)  # type: ignore[arg-type]
            self.changed = self.subscriptions.changed
        return answer

    def snapshot(self) -> Iterator[bytes]:
        """All that `restore` needs, in chunks of about a megabyte. Nothing may be changed until the last is taken."""
        for chunk in self.queues.snapshot():
            yield _QUEUES + chunk
        for chunk in snapshot.encode(self.subscriptions):
            yield _SUBSCRIPTIONS + chunk

    @classmethod
    def restore(cls, chunks: Iterable[bytes], limits: HubLimits = DEFAULT_LIMITS) -> Broker:
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
