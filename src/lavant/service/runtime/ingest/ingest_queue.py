"""The ingest queue: publications and changes of subscriptions, in order per namespace, fair between namespaces.

A batch holds what is processed together: publications, or changes. Batches grow while they take little time, so that
a single namespace is matched in large batches; a batch should not take longer than `BATCH_S`, because other namespaces
wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

import msgspec
import numpy as np

from lavant.broker.federation.columns import RelayedFrom, routed_columns
from lavant.broker.federation.state import LINK_SERIAL_MIN
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.protocol.match_protocol import MatchResults
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import RoutedPublications, SubscriptionRequest
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.admission import AdmittedPublish
from lavant.broker.subscriptions.parsing import ENCRYPTED, ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.core.fair_queue import FairQueue
from lavant.service.engines.interface import EngineBatch
from lavant.service.runtime.ingest.match_delivery import MatchDelivery

PUBLICATIONS_AT_ONCE = 2000
PUBLICATIONS_AT_ONCE_MIN = 64
CHANGES_AT_ONCE = 1000
BATCH_S = 0.008
"""Target for the processor time of a batch of several requests."""
SHARED = 8
"""A batch that several namespaces share is smaller by this factor: each of them waits for all of it."""


class ChangeStep(msgspec.Struct):
    """A change of subscriptions."""

    context: RequestContext
    request: SubscriptionRequest


class DeliverStep(msgspec.Struct):
    """Match results of an engine that matches later."""

    context: RequestContext
    results: MatchResults
    deliveries: MatchDelivery


Step: TypeAlias = AdmittedPublish | ChangeStep | DeliverStep


class IngestQueue:
    """
    >>> queue = IngestQueue()
    >>> for number, namespace in enumerate(["noisy", "noisy", "quiet"]):
    ...     queue.add(namespace, AdmittedPublish(number, "", b"", namespace, [], {}, 0))
    >>> [each.context for each in queue.take_publishes()]
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self._steps: FairQueue[Step] = FairQueue()
        self._publications_max = PUBLICATIONS_AT_ONCE_MIN
        """In a batch, unless a single request has more."""

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, namespace: str, step: Step) -> None:
        self._steps.add(namespace, step)

    def first(self) -> Step | None:
        """The next step."""
        found = self._steps.first()
        return None if found is None else found[1]

    def take(self, cost: int) -> None:
        """Remove the first step and charge its namespace."""
        self._steps.take(cost)

    def take_publishes(self) -> list[AdmittedPublish]:
        """The next batch of requests to publish."""
        taken: list[AdmittedPublish] = []
        publications = 0
        while isinstance(first := self.first(), AdmittedPublish):
            publications += len(first.accepted)
            is_shared = bool(taken) and first.namespace != taken[0].namespace
            if taken and publications > self._publications_max // (SHARED if is_shared else 1):
                break
            taken.append(first)
            self.take(len(first.accepted))
        return taken

    def take_changes(self) -> list[ChangeStep]:
        """The next batch of changes."""
        taken: list[ChangeStep] = []
        while isinstance(first := self.first(), ChangeStep) and len(taken) < CHANGES_AT_ONCE:
            taken.append(first)
            self.take(1)
        return taken

    def put_back(self, steps: list[ChangeStep]) -> None:
        """Return steps that cannot be processed yet to the front."""
        for each in reversed(steps):
            self._steps.put_back(each.request.namespace, each)

    def took(self, publications: int, seconds: float) -> None:
        """Adapts the size of batches to the processor time that a batch took."""
        if seconds > BATCH_S:
            self._publications_max = max(PUBLICATIONS_AT_ONCE_MIN, min(self._publications_max, publications) // 2)
        elif seconds < BATCH_S / 2 and publications > self._publications_max // 2:
            self._publications_max = min(PUBLICATIONS_AT_ONCE, self._publications_max * 2)


class QueuedPublication(msgspec.Struct):
    """A publication of a batch and the request it belongs to."""

    publish: AdmittedPublish
    place: int
    accepted: ParsedPublication

    @property
    def way(self) -> RelayedFrom | None:
        """How it came from a neighbouring broker; None if it was published here, or cannot be matched."""
        is_refused = isinstance(self.publish.entries[self.place], Refused)
        return None if is_refused else self.publish.relayed.get(self.place)


def group_alike(places: list[QueuedPublication]) -> list[tuple[EngineBatch, list[QueuedPublication]]]:
    """Groups publications by namespace, scheme and dimensions: a group is matched at once."""
    groups: dict[tuple[str, str, int], list[QueuedPublication]] = defaultdict(list)
    for each in places:
        content = each.accepted.content
        dimensions = len(content) if isinstance(content, list) else 0
        groups[each.publish.namespace, each.accepted.scheme, dimensions].append(each)
    return [
        (EngineBatch(namespace=namespace, scheme=scheme, publications=[each.accepted for each in group]), group)
        for (namespace, scheme, _), group in groups.items()
    ]


def part_of(batch: EngineBatch, places: list[QueuedPublication]) -> EngineBatch:
    return msgspec.structs.replace(batch, publications=[each.accepted for each in places])


def with_last(values: Any) -> list[tuple[Any, bool]]:
    """Each value with whether it is the last.

    >>> with_last("ab")
    [('a', False), ('b', True)]
    """
    listed = list(values)
    return [(value, place == len(listed) - 1) for place, value in enumerate(listed)]


def size_class(publications: int) -> int:
    """Bit length of a batch's size; a single request may be larger than a batch otherwise is."""
    return min(publications, PUBLICATIONS_AT_ONCE).bit_length()


def routed_of(own: list[QueuedPublication], part: FanOutBatch) -> RoutedPublications | None:
    """How publications of a broker with neighbours came here; None if none was relayed or goes to another one."""
    ways = [each.way for each in own]
    is_forwarded = bool((np.frombuffer(part.queues, INTEGERS) >= LINK_SERIAL_MIN).any())
    if not is_forwarded and not any(ways):
        return None
    is_encrypted = own[0].accepted.scheme == ENCRYPTED
    points = [np.array(each.accepted.content, "<f8").tobytes() for each in own] if is_encrypted else []
    return routed_columns(own[0].publish.namespace, ways, points)
