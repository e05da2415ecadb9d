"""The exit operator (EP): collects the match results of all match slices for a batch, and notifies once all are there.

e-StreamHub, Section III. The results of one match slice come once and in order, so a batch is complete exactly once.
The number of incomplete batches is bounded by the windows of the links: an access slice has at most `WINDOW` batches
that its slowest match slice has not acknowledged, and each match slice at most `WINDOW` results on the way here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lavant.broker.matching.interface import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.slices import wire
from lavant.broker.slices.layout import EXIT, SINK, SliceLayout
from lavant.broker.slices.links import WINDOW
from lavant.broker.slices.machine import Output, SliceMachine
from lavant.broker.slices.values import BatchId, Content, Matched, Publications, SliceNotification
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId


class _Incomplete(msgspec.Struct):
    """A batch with some of its results."""

    lists: list[Matches]
    publications: Publications | None = None


class ExitSlice(SliceMachine):
    """Incomplete batches, by id."""

    operator = EXIT

    def __init__(self, id: SliceId, layout: SliceLayout) -> None:
        super().__init__(id, layout)
        self._incomplete: dict[BatchId, _Incomplete] = {}
        self._incomplete_max = WINDOW * (layout.access + layout.match)

    @property
    def incomplete(self) -> int:
        """Batches that wait for results."""
        return len(self._incomplete)

    def _process(self, content: Content) -> Iterable[Output]:
        if not isinstance(content, Matched):
            raise InvalidValue(f"an exit slice does not take {type(content).__name__}")
        batch = self._incomplete.get(content.id)
        if batch is None:
            assert len(self._incomplete) < self._incomplete_max, "no sender has more in flight than its window"
            batch = self._incomplete[content.id] = _Incomplete([])
        batch.lists.append(content.matches)
        if content.publications is not None:
            batch.publications = content.publications
        if len(batch.lists) < self.layout.match:
            return []
        del self._incomplete[content.id]
        assert batch.publications is not None, "one of the match slices sends them along"
        return [(SINK, SliceNotification(batch.publications, merge(batch.lists)))]

    def _save(self) -> bytes:
        lists = [
            wire.encode(Matched(id, matches, batch.publications if number == 0 else None))
            for id, batch in self._incomplete.items()
            for number, matches in enumerate(batch.lists)
        ]
        return msgspec.msgpack.encode(lists)

    def _load(self, state: bytes) -> None:
        self._incomplete = {}
        for part in msgspec.msgpack.decode(state, type=list[bytes]):
            matched = wire.decode(part)
            assert isinstance(matched, Matched)
            batch = self._incomplete.setdefault(matched.id, _Incomplete([]))
            batch.lists.append(matched.matches)
            if matched.publications is not None:
                batch.publications = matched.publications
