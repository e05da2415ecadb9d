"""The match operator (M): each slice holds a part of the subscriptions and matches every batch against them.

e-StreamHub, Section III. Filtering schemes coexist: a slice has a matcher for each, and a batch is matched by that of
its own scheme. The results go to the exit slice given by a hash of the batch's id. The paper hashes ids of
publications; here a batch stays together, or each would become as many messages as there are exit slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from lavant.broker.matching import MATCHERS
from lavant.broker.matching.interface import MatcherStatistics, Matches
from lavant.broker.slices.layout import MATCH, SliceLayout, number_of
from lavant.broker.slices.machine import Output, SliceMachine
from lavant.broker.slices.values import Content, Matched, Publications, SliceSubscribe, SliceUnsubscribe
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId


class MatchSlice(SliceMachine):
    """A matcher for each scheme."""

    operator = MATCH

    def __init__(self, id: SliceId, layout: SliceLayout) -> None:
        super().__init__(id, layout)
        self._number = number_of(id)
        self._matchers: dict[str, Any] = {scheme: MATCHERS[scheme]() for scheme in layout.schemes}

    def match(self, publications: Publications) -> Matches:
        """Match a batch. Reads immutable state that changes replace as a whole, so it may run in several threads, and
        concurrently with `handle`. A batch encrypted with another key than the subscriptions matches none of them.
        """
        try:
            matches: Matches = self._matchers[publications.scheme].match(publications.batch)
        except InvalidValue:
            return Matches(np.zeros(len(publications.batch) + 1, np.int64), np.empty(0, np.uint32))
        return matches

    def check(self, scheme: str, filters: Any) -> None:
        """Raise if these filters do not fit the existing ones."""
        self._matchers[scheme]._check(filters)

    def joining(self) -> list[Callable[[], None]]:
        """Merge index segments in the background; each result takes effect when it is called between changes."""
        return [take_effect for each in self._matchers.values() if (take_effect := each.joining()) is not None]

    def statistics(self) -> dict[str, MatcherStatistics]:
        """The size of each scheme's matcher."""
        return {scheme: matcher.statistics() for scheme, matcher in self._matchers.items()}

    def _process(self, content: Content) -> Iterable[Output]:
        match content:
            case Publications(id=id):
                carried = content if id.number % self.layout.match == self._number else None
                return [(self.layout.exit_of(id), Matched(id, self.match(content), carried))]
            case SliceSubscribe():
                self._subscribe(content)
            case SliceUnsubscribe(scheme=scheme, ids=ids):
                matcher = self._matchers[scheme]
                matcher.remove(ids[matcher.holds(ids)])
            case _:
                raise InvalidValue(f"a match slice does not take {type(content).__name__}")
        return []

    def _subscribe(self, change: SliceSubscribe) -> None:
        matcher = self._matchers[change.scheme]
        self.check(change.scheme, change.filters)  # before the old ones are gone
        known = change.ids[matcher.holds(change.ids)]
        if len(known):
            matcher.remove(known)
        matcher.add(change.ids, change.filters)

    def _save(self) -> bytes:
        return msgspec.msgpack.encode({scheme: matcher.to_bytes() for scheme, matcher in self._matchers.items()})

    def _load(self, state: bytes) -> None:
        saved = msgspec.msgpack.decode(state, type=dict[str, bytes])
        self._matchers = {scheme: MATCHERS[scheme].from_bytes(saved[scheme]) for scheme in self.layout.schemes}
