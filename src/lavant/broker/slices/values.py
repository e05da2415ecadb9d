"""Messages between slices, and the stimuli and effects of slice machines.

    source ── Subscribe, Unsubscribe, Publish ──► AP ── Subscribe, Unsubscribe, Publications ──► M
                                        sink ◄── Notification ── EP ◄── Matched ─────────────────┘

Publications travel in the batches in which publishers sent them, so costs arise per batch, not per publication. A batch
may have one publication.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.matching.interface import Ids, Matches
from lavant.core.ids import SliceId
from lavant.core.publications.batch import PublicationBatch

Batch: TypeAlias = PublicationBatch | EncryptedBatch

# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class BatchId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The id of a batch, and with a row number that of a publication: the access slice, and its count of batches."""

    access: int
    number: int


class SliceSubscribe(msgspec.Struct, frozen=True, eq=False):
    """The i-th id gets the i-th filter, which replaces an existing one."""

    scheme: str
    ids: Ids
    filters: Any
    """A `FilterTable` or `EncryptedFilters`; an access slice also takes a sequence of filters or of their texts."""


class SliceUnsubscribe(msgspec.Struct, frozen=True, eq=False):
    """Unknown ids are ignored, so it can be repeated."""

    scheme: str
    ids: Ids


class SlicePublish(msgspec.Struct, frozen=True, eq=False):
    scheme: str
    batch: Batch


class Publications(msgspec.Struct, frozen=True, eq=False):
    """An accepted batch."""

    id: BatchId
    scheme: str
    batch: Batch


class Matched(msgspec.Struct, frozen=True, eq=False):
    """Match results of one match slice for a batch. Exactly one of them carries the publications."""

    id: BatchId
    matches: Matches
    publications: Publications | None = None


class SliceNotification(msgspec.Struct, frozen=True, eq=False):
    """All matches of a batch, of all match slices."""

    publications: Publications
    matches: Matches


Content: TypeAlias = SliceSubscribe | SliceUnsubscribe | SlicePublish | Publications | Matched | SliceNotification

# ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SliceDelivery(msgspec.Struct, frozen=True, eq=False):
    """An input on the link from `upstream`, which numbers what it sends on each link: 1, 2, 3 …"""

    upstream: SliceId
    sequence: int
    content: Content


class Allow(msgspec.Struct, frozen=True, gc=False):
    """Process so many inputs from now on, waiting ones at once; None means without limit.

    A slice that is allowed 0 keeps its inputs: one that is not active yet, is to stop, or has no room downstream.
    """

    inputs: int | None = None


Stimulus: TypeAlias = SliceDelivery | Allow

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Emit(msgspec.Struct, frozen=True, eq=False):
    """Send this on the link to `to`, with this number."""

    to: SliceId
    sequence: int
    content: Content


class SliceRefusal(msgspec.Struct, frozen=True, gc=False):
    """An input that changed nothing, and why; it counts as processed."""

    upstream: SliceId
    sequence: int
    reason: str


Effect: TypeAlias = Emit | SliceRefusal
