"""Admission of publications: validates a request to publish, answers repetitions, and bounds what waits to be matched.

    Publish ──► check ──► repetition ──► the answer of the first request with this idempotency key
                              └──► admit ──► AdmittedPublish ──► matched ──► answered

Pure: the ingest queue of a server calls it before matching and again when the results are in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import msgspec

from lavant.broker.federation.columns import RelayedFrom, relayed_from
from lavant.broker.federation.frames import LinkPublications
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Publish, Published
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.broker.queues.machine import Queues
from lavant.broker.subscriptions.idempotency import REMEMBERED_MS, fingerprint_of
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication, accept, accept_relayed
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.broker.subscriptions.validation import check_namespace, check_publish
from lavant.core.errors import IdempotencyConflict, Overloaded


class AdmittedPublish(msgspec.Struct):
    """A request to publish whose publications wait to be matched."""

    context: RequestContext
    key: str
    fingerprint: bytes
    """Of the publications; empty without an idempotency key."""
    namespace: str
    entries: list[str | Refused]
    """The answer so far: an entry changes if its publication cannot be delivered."""
    accepted: dict[int, ParsedPublication]
    """By position in the request."""
    size_bytes: int
    repetitions: list[RequestContext] = []
    """Requests with the same key that arrived while this one was in progress."""
    relayed: dict[int, RelayedFrom] = {}
    """By position: how a publication of a neighbouring broker came here."""


class Admission:
    """Bounds publications that wait to be matched, and remembers the idempotency keys of requests in progress."""

    def __init__(self, queues: Queues, subscriptions: Subscriptions, *, publications_max: int, bytes_max: int) -> None:
        self.publications = 0
        """Waiting to be matched."""
        self.broker = ""
        """Its name in a federation, with which the ids that it gives begin: another broker must not give the same."""
        self.requires_advertisements = False
        """Refuse plain publications that no advertisement matches."""
        self._bytes = 0
        self._publications_max = publications_max
        self._bytes_max = bytes_max
        self._queues = queues
        self._subscriptions = subscriptions
        self._remembered = subscriptions.recent
        self._in_progress: dict[tuple[str, str], AdmittedPublish] = {}
        self._counter = count(1)

    @staticmethod
    def check(request: Publish) -> bytes:
        """Validates a request and returns the fingerprint of its publications; empty without an idempotency key."""
        check_publish(request)
        check_namespace(request.namespace)
        return fingerprint_of(request.publications) if request.key else b""

    def knows(self, request: Publish, now_ms: int) -> bool:
        """Whether a request with this idempotency key was admitted here."""
        key = request.namespace, request.key
        return bool(request.key) and (key in self._in_progress or self._remembered.find(*key, now_ms) is not None)

    def repetition(
        self, context: RequestContext, request: Publish, fingerprint: bytes, now_ms: int
    ) -> Published | bool:
        """The remembered answer if the request's key was answered; True if a request with this key is in progress,
        which then answers both. Raises if the key belongs to other publications."""
        if not request.key:
            return False
        remembered = self._remembered.find(request.namespace, request.key, now_ms)
        if remembered is not None:
            if not remembered.matches(fingerprint):
                raise _conflict()
            return Published(remembered.entries)
        first = self._in_progress.get((request.namespace, request.key))
        if first is None:
            return False
        if first.fingerprint != fingerprint:
            raise _conflict()
        first.repetitions.append(context)
        return True

    def admit(
        self, context: RequestContext, request: Publish, fingerprint: bytes, now_ms: int, *, is_delivered_later: bool
    ) -> AdmittedPublish:
        """Parses the publications. Without room for all of them the request is refused as a whole.

        What an engine delivers later is accepted here for good, so quotas are checked now.
        """
        size_bytes = sum(map(len, request.publications))
        self._check_room(len(request.publications), size_bytes)
        self._queues.check_memory(MESSAGE)  # without memory for a message, matching would be in vain
        if is_delivered_later:
            self._queues.usages.check_bytes(request.namespace, size_bytes)
        begin = f"{self.broker}-{self._queues.epoch:x}" if self.broker else f"{self._queues.epoch:x}"
        ids = (f"{begin}-{number:x}" for number in self._counter)
        results = accept(request.publications, ids, now_ms)
        if self.requires_advertisements:
            results = [self._advertised(request.namespace, result) for result in results]
        admitted = AdmittedPublish(
            context,
            request.key,
            fingerprint,
            request.namespace,
            entries=[result.id if isinstance(result, ParsedPublication) else result for result in results],
            accepted={at: each for at, each in enumerate(results) if isinstance(each, ParsedPublication)},
            size_bytes=size_bytes,
        )
        if admitted.accepted:
            self.publications += len(admitted.accepted)
            self._bytes += size_bytes
            if request.key:
                self._in_progress[request.namespace, request.key] = admitted
        return admitted

    def relay(self, context: RequestContext, batch: LinkPublications, indexes: list[int], link: str) -> AdmittedPublish:
        """Publications of a neighbouring broker, which has accepted them. The window of its link bounds them."""
        points = batch.points
        results = [accept_relayed(batch.bodies[index], points[index] if points else None) for index in indexes]
        relayed = dict(enumerate(relayed_from(batch, indexes, link)))
        admitted = AdmittedPublish(
            context,
            "",
            b"",
            batch.namespace,
            entries=[result.id if isinstance(result, ParsedPublication) else result for result in results],
            accepted={at: each for at, each in enumerate(results) if isinstance(each, ParsedPublication)},
            size_bytes=sum(len(batch.bodies[index]) for index in indexes),
            relayed=relayed,
        )
        self.publications += len(admitted.accepted)
        self._bytes += admitted.size_bytes
        return admitted

    def matched(self, batch: Iterable[AdmittedPublish]) -> None:
        """These no longer wait."""
        for each in batch:
            self.publications -= len(each.accepted)
            self._bytes -= each.size_bytes

    def answered(self, batch: Iterable[AdmittedPublish]) -> None:
        """These are no longer in progress: their keys are remembered with the answers, or free again."""
        for each in batch:
            if each.key:
                self._in_progress.pop((each.namespace, each.key), None)

    def _advertised(self, namespace: str, result: ParsedPublication | Refused) -> ParsedPublication | Refused:
        """Encrypted publications cannot be compared with advertisements."""
        if isinstance(result, Refused) or result.scheme != PLAIN:
            return result
        if self._subscriptions.is_advertised(namespace, result.content):
            return result
        return Refused(
            "InvalidValue",
            f"no advertisement matches publication {result.id!r}, but this broker requires one: advertise first what "
            "you publish (`client.advertise(filter)`, or POST /advertisements)",
        )

    def _check_room(self, publications: int, size_bytes: int) -> None:
        """A single request is always admitted, so that a large one can be published at all."""
        if not self.publications:
            return
        if self.publications + publications > self._publications_max or self._bytes + size_bytes > self._bytes_max:
            raise Overloaded(
                f"{self.publications} publications of {self._bytes} bytes wait to be matched, and at "
                f"most {self._publications_max} of {self._bytes_max} bytes may; publish again a little later"
            )


def _conflict() -> IdempotencyConflict:
    """The key is not quoted: with API keys, only its hash is known here."""
    return IdempotencyConflict(
        "the idempotency key of this request belongs to one with other publications, which came less than "
        f"{REMEMBERED_MS // 60_000} minutes ago; nothing was published: give each request a key of its own, and use it "
        "again only to repeat the very same request"
    )
