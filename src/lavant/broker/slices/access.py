"""The access operator (AP): where subscriptions and publications enter.

e-StreamHub, Section III: a subscription goes to the one match slice given by a hash of its id, a publication to all.

Each link keeps its order, so once an access slice has accepted a change of subscriptions, every publication it accepts
later is matched with that change, and every earlier one without it. Across access slices there is no guarantee: a
publication at one may overtake a subscription at the other. If you need that order, send both to the same access slice;
changes of one subscription must always go through one access slice (`SliceLayout.access_of_subscription`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.matching.segmented import as_ids
from lavant.broker.slices.layout import ACCESS, SliceLayout, number_of
from lavant.broker.slices.machine import Output, SliceMachine
from lavant.broker.slices.store import slice_of
from lavant.broker.slices.values import BatchId, Content, Publications, SlicePublish, SliceSubscribe, SliceUnsubscribe
from lavant.core.errors import DuplicateSubscription, InvalidValue
from lavant.core.ids import SliceId
from lavant.core.publications.batch import PublicationBatch

FILTERS = {"plain": FilterTable, "encrypted": EncryptedFilters}
BATCHES = {"plain": PublicationBatch, "encrypted": EncryptedBatch}


class AccessSlice(SliceMachine):
    """Validates input, assigns batch ids, and distributes. Its state is a counter."""

    operator = ACCESS

    def __init__(self, id: SliceId, layout: SliceLayout) -> None:
        super().__init__(id, layout)
        self._number = number_of(id)
        self._accepted = 0

    def _process(self, content: Content) -> Iterable[Output]:
        match content:
            case SlicePublish(scheme=scheme, batch=batch):
                return self._publish(scheme, batch)
            case SliceSubscribe(scheme=scheme, ids=ids, filters=filters):
                return list(self._subscribe(scheme, as_ids(ids), filters))
            case SliceUnsubscribe(scheme=scheme, ids=ids):
                return list(self._unsubscribe(scheme, as_ids(ids)))
            case _:
                raise InvalidValue(f"an access slice does not take {type(content).__name__}")

    def _publish(self, scheme: str, batch: Any) -> list[Output]:
        self._require(scheme, batch, BATCHES)
        self._accepted += 1
        publications = Publications(BatchId(self._number, self._accepted), scheme, batch)
        return [(to, publications) for to in self.layout.match_slices]

    def _subscribe(self, scheme: str, ids: Ids, filters: Any) -> Iterator[Output]:
        if scheme == "plain" and not isinstance(filters, FilterTable):
            filters = encode_filters(filters)
        self._require(scheme, filters, FILTERS)
        if len(ids) != len(filters):
            raise InvalidValue(f"got {len(ids)} ids for {len(filters)} filters; give each filter one id")
        if len(np.unique(ids)) < len(ids):
            raise DuplicateSubscription("a subscription occurs twice among the additions; give each filter one id")
        for to, rows in self._spread(ids):
            yield to, SliceSubscribe(scheme, ids[rows], filters.take(rows))

    def _unsubscribe(self, scheme: str, ids: Ids) -> Iterator[Output]:
        self._require_scheme(scheme)
        for to, rows in self._spread(ids):
            yield to, SliceUnsubscribe(scheme, ids[rows])

    def _spread(self, ids: Ids) -> Iterator[tuple[SliceId, Any]]:
        slices = slice_of(ids, self.layout.match)
        for number in np.unique(slices):
            yield self.layout.match_slices[number], np.flatnonzero(slices == number)

    def _require_scheme(self, scheme: str) -> None:
        if scheme not in self.layout.schemes:
            raise InvalidValue(f"scheme {scheme!r} is none of {', '.join(self.layout.schemes)}")

    def _require(self, scheme: str, value: object, types: dict[str, type]) -> None:
        self._require_scheme(scheme)
        if not isinstance(value, types[scheme]):
            raise InvalidValue(
                f"scheme {scheme!r} takes a {types[scheme].__name__}, got {type(value).__name__}; encode it first"
            )

    def _save(self) -> bytes:
        return msgspec.msgpack.encode(self._accepted)

    def _load(self, state: bytes) -> None:
        self._accepted = msgspec.msgpack.decode(state, type=int)
