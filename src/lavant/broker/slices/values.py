"""What flows between slices, what goes into them, and what comes out.

    source ── Subscribe, Unsubscribe, Publish ──► AP ── Subscribe, Unsubscribe, Publications ──► M
                                        sink ◄── Notification ── EP ◄── Matched ─────────────────┘

Publications travel in the batches in which publishers sent them, so what a slice does costs something for a batch, not
for a publication. A batch of one is a batch.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.matching.interface import Ids, Matches
from lavant.core.ids import SliceId
from lavant.core.publications.batch import PublicationBatch

Batch: TypeAlias = PublicationBatch | EncryptedBatch

# ── what flows ────────────────────────────────────────────────────────────────────────────────────────────────────────


class BatchId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The id of a batch, and with a row's number that of a publication: the access slice that accepted it, and how many
    it had accepted then."""

    access: int
    number: int


class SliceSubscribe(msgspec.Struct, frozen=True, eq=False):
    """The i-th id gets the i-th filter; an id that is subscribed already gets it instead of its old one."""

    scheme: str
    ids: Ids
    filters: Any
    """A `FilterTable` or `EncryptedFilters`; an access slice also takes a sequence of filters or of their texts."""


class SliceUnsubscribe(msgspec.Struct, frozen=True, eq=False):
    """Ids that nobody has are passed over, so that it can be said twice."""

    scheme: str
    ids: Ids


class SlicePublish(msgspec.Struct, frozen=True, eq=False):
    scheme: str
    batch: Batch


class Publications(msgspec.Struct, frozen=True, eq=False):
    """A batch that was accepted."""

    id: BatchId
    scheme: str
    batch: Batch


class Matched(msgspec.Struct, frozen=True, eq=False):
    """What one match slice found for a batch. Exactly one of them sends the publications along."""

    id: BatchId
    matches: Matches
    publications: Publications | None = None


class SliceNotification(msgspec.Struct, frozen=True, eq=False):
    """All that a batch matches, in all match slices."""

    publications: Publications
    matches: Matches


Content: TypeAlias = SliceSubscribe | SliceUnsubscribe | SlicePublish | Publications | Matched | SliceNotification

# ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SliceDelivery(msgspec.Struct, frozen=True, eq=False):
    """Something on the link from `upstream`, which counts what it sends on each link: 1, 2, 3 …"""

    upstream: SliceId
    sequence: int
    content: Content


class Allow(msgspec.Struct, frozen=True, gc=False):
    """Process so many inputs from now on, at once as far as they wait; without a number, as many as come.

    A slice that is allowed 0 keeps what comes: one that is not active yet, or is to stop, or has nowhere to send to.
    """

    inputs: int | None = None


Stimulus: TypeAlias = SliceDelivery | Allow

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Emit(msgspec.Struct, frozen=True, eq=False):
    """Send this on the link to `to`, where it has this number."""

    to: SliceId
    sequence: int
    content: Content


class SliceRefusal(msgspec.Struct, frozen=True, gc=False):
    """An input that changed nothing, and why; it counts as processed."""

    upstream: SliceId
    sequence: int
    reason: str


Effect: TypeAlias = Emit | SliceRefusal
