"""The line of publications and changes of subscriptions: in order for each namespace, fair between namespaces.

A batch is what may be done together: publications, or changes. As long as one takes little time the next may be
larger, so that one namespace alone is matched in large batches; none is to take longer than `BATCH_S`, because so long
another namespace has to wait.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.broker.machine.fair_queue import FairQueue
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.protocol.match_protocol import MatchResults
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Subscribe, Unsubscribe
from lavant.broker.subscriptions.parsing import ParsedPublications
from lavant.service.runtime.match_delivery import MatchDelivery

PUBLICATIONS_AT_ONCE = 2000
PUBLICATIONS_AT_ONCE_MIN = 64
CHANGES_AT_ONCE = 1000
BATCH_S = 0.008
"""How long a batch of several requests should keep the engine at most."""
SHARED = 8
"""A batch in which several namespaces have a part is smaller, by this factor: each of them waits for all of it."""


class PublishStep(msgspec.Struct):
    """A request to publish in the line."""

    asked: RequestContext
    key: str
    fingerprint: bytes
    """Of what is published, if there is a key."""
    namespace: str
    entries: list[str | Refused]
    """The answer to be, which changes if a publication cannot be delivered."""
    accepted: dict[int, ParsedPublications]
    """By place."""
    size_bytes: int
    repeated: list[RequestContext] = []
    """The same requests once more, by their key, that came while this one was under way."""


class ChangeStep(msgspec.Struct):
    """A change of subscriptions in the line."""

    asked: RequestContext
    request: Subscribe | Unsubscribe


class DeliverStep(msgspec.Struct):
    """What a process that matches has found, in the line."""

    asked: RequestContext
    found: MatchResults
    deliveries: MatchDelivery


Step: TypeAlias = PublishStep | ChangeStep | DeliverStep


class IngestQueue:
    """
    >>> queue = IngestQueue()
    >>> for number, namespace in enumerate(["noisy", "noisy", "quiet"]):
    ...     queue.add(namespace, PublishStep(number, "", b"", namespace, [], {}, 0))
    >>> [each.asked for each in queue.publishings()]
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self._steps: FairQueue[Step] = FairQueue()
        self._publications_max = PUBLICATIONS_AT_ONCE_MIN
        """Of a batch, unless one request has more."""

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, namespace: str, step: Step) -> None:
        self._steps.add(namespace, step)

    def first(self) -> Step | None:
        """What is to be done next."""
        found = self._steps.first()
        return None if found is None else found[1]

    def take(self, cost: int) -> None:
        """The first one has its turn."""
        self._steps.take(cost)

    def publishings(self) -> list[PublishStep]:
        """Take those that are to be done next, as many as make a batch."""
        taken: list[PublishStep] = []
        publications = 0
        while isinstance(first := self.first(), PublishStep):
            publications += len(first.accepted)
            is_shared = bool(taken) and first.namespace != taken[0].namespace
            if taken and publications > self._publications_max // (SHARED if is_shared else 1):
                break
            taken.append(first)
            self.take(len(first.accepted))
        return taken

    def changings(self) -> list[ChangeStep]:
        """Take those that are to be done next."""
        taken: list[ChangeStep] = []
        while isinstance(first := self.first(), ChangeStep) and len(taken) < CHANGES_AT_ONCE:
            taken.append(first)
            self.take(1)
        return taken

    def put_back(self, changings: list[ChangeStep]) -> None:
        """Those could not be done yet; they are the first again."""
        for each in reversed(changings):
            self._steps.put_back(each.request.namespace, each)

    def took(self, publications: int, seconds: float) -> None:
        """How long the processor was busy with a batch of publications, and those waited who come behind it."""
        if seconds > BATCH_S:
            self._publications_max = max(PUBLICATIONS_AT_ONCE_MIN, min(self._publications_max, publications) // 2)
        elif seconds < BATCH_S / 2 and publications > self._publications_max // 2:
            self._publications_max = min(PUBLICATIONS_AT_ONCE, self._publications_max * 2)
