"""The layout: how many slices each operator has, their names, and which of them a subscription or batch belongs to.

The numbers are static (e-StreamHub, Section IV: the state is partitioned once, and slices move between hosts
unchanged), so every slice knows them: an exit slice, how many results to wait for; an access slice, where subscriptions
are.
"""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np

from lavant.broker.slices.store import SCHEMES, SLICES_MAX, slice_of
from lavant.broker.slices.values import BatchId
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId

ACCESS, MATCH, EXIT = "AP", "M", "EP"
SINK = SliceId("sink")
"""Where exit slices send notifications: the connection to subscribers. Not a slice, but its links are links like all.
"""
_ACCESS_BITS = 40
"""Batches of one access slice that can be told apart: a million a second for twelve days and more."""


class SliceLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The static configuration of a deployment. Each match slice has a matcher for each scheme.

    >>> layout = SliceLayout(access=2, match=4, exit=2)
    >>> layout.match_slices
    ('M:0', 'M:1', 'M:2', 'M:3')
    >>> layout.exit_of(BatchId(access=0, number=1)) in layout.exit_slices
    True
    """

    access: int = 1
    match: int = 1
    exit: int = 1
    schemes: tuple[str, ...] = SCHEMES

    def __post_init__(self) -> None:
        for name in ("access", "match", "exit"):
            if not 1 <= getattr(self, name) <= SLICES_MAX:
                raise InvalidValue(f"a layout has between 1 and {SLICES_MAX} {name} slices, got {getattr(self, name)}")
        for scheme in self.schemes:
            if scheme not in SCHEMES:
                raise InvalidValue(f"scheme {scheme!r} is none of {', '.join(SCHEMES)}")

    @property
    def access_slices(self) -> tuple[SliceId, ...]:
        return _ids(ACCESS, self.access)

    @property
    def match_slices(self) -> tuple[SliceId, ...]:
        return _ids(MATCH, self.match)

    @property
    def exit_slices(self) -> tuple[SliceId, ...]:
        return _ids(EXIT, self.exit)

    @property
    def slices(self) -> tuple[SliceId, ...]:
        """All slices, in the direction in which publications flow."""
        return self.access_slices + self.match_slices + self.exit_slices

    def downstreams(self, slice: SliceId) -> tuple[SliceId, ...]:
        """The slices that this one sends to."""
        operator = operator_of(slice)
        return {ACCESS: self.match_slices, MATCH: self.exit_slices, EXIT: (SINK,)}[operator]

    def upstreams(self, slice: SliceId) -> tuple[SliceId, ...]:
        """The slices that send to this one, or to the sink; an access slice has none, only sources."""
        if slice == SINK:
            return self.exit_slices
        return {ACCESS: (), MATCH: self.access_slices, EXIT: self.match_slices}[operator_of(slice)]

    def access_of_subscription(self, id: int) -> SliceId:
        """The access slice for all changes of one subscription, which keeps them in order."""
        return self.access_slices[int(slice_of(np.array([id], np.uint32), self.access)[0])]

    def exit_of(self, batch: BatchId) -> SliceId:
        """The exit slice that collects the results of a batch: a hash of its id, so that all match slices agree."""
        mixed = ((batch.access << _ACCESS_BITS) + batch.number) * 0x9E3779B97F4A7C15
        return self.exit_slices[(mixed >> 32 & 0xFFFFFFFF) % self.exit]


def operator_of(slice: SliceId) -> str:
    return slice.partition(":")[0]


def number_of(slice: SliceId) -> int:
    return int(slice.partition(":")[2])


@cache
def _ids(operator: str, count: int) -> tuple[SliceId, ...]:
    return tuple(SliceId(f"{operator}:{number}") for number in range(count))
