"""What flows between slices is the same after it was bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lavant.broker.filters import Filter
from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.matching.interface import Matches
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.slices import (
    BatchId,
    Matched,
    Publications,
    SliceNotification,
    SlicePublish,
    SliceSubscribe,
    SliceUnsubscribe,
    wire,
)
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.errors import CorruptSnapshot
from lavant.core.ids import PublicationId
from lavant.core.publications.batch import PublicationBatch

KEY = Key.generate(Schema.of(NumericAttribute("x", 0, 10, 1)), entropy=np.random.default_rng(3).bytes)
ROWS: list[dict[str, Any]] = [{"x": 1, "name": "größer", "@id": "a", "@payload": b"\x00"}, {"x": 2.5}]
PLAIN = PublicationBatch.from_dicts(ROWS)
IDS = np.array([3, 5], np.uint32)
MATCHES = Matches(np.array([0, 1, 3]), np.array([7, 8, 9], np.uint32))
ENCRYPTED = EncryptedBatch(KEY.encrypt_publications([{"x": 1}]).points, (PublicationId("one"),))


def test_publications_with_their_ids_and_payloads() -> None:
    plain = wire.decode(wire.encode(Publications(BatchId(2, 9), "plain", PLAIN)))
    assert isinstance(plain, Publications)
    assert (plain.id, plain.scheme) == (BatchId(2, 9), "plain")
    assert isinstance(plain.batch, PublicationBatch)
    assert plain.batch.to_dicts() == PLAIN.to_dicts()
    encrypted = wire.decode(wire.encode(SlicePublish("encrypted", ENCRYPTED)))
    assert isinstance(encrypted, SlicePublish)
    assert isinstance(encrypted.batch, EncryptedBatch)
    assert encrypted.batch.ids == ("one",)
    assert np.array_equal(encrypted.batch.points, ENCRYPTED.points)


def test_changes_of_subscriptions() -> None:
    plain = wire.decode(wire.encode(SliceSubscribe("plain", IDS, encode_filters(["x > 1", "name like 'g%'"]))))
    assert isinstance(plain, SliceSubscribe)
    assert (plain.ids.tolist(), len(plain.filters)) == ([3, 5], 2)
    filters = KEY.encrypt_filters([Filter.parse("x = 1")])
    encrypted = wire.decode(wire.encode(SliceSubscribe("encrypted", IDS[:1], filters)))
    assert isinstance(encrypted, SliceSubscribe)
    assert np.array_equal(encrypted.filters.tests, filters.tests)
    gone = wire.decode(wire.encode(SliceUnsubscribe("plain", IDS)))
    assert isinstance(gone, SliceUnsubscribe)
    assert gone.ids.tolist() == [3, 5]


@pytest.mark.parametrize("is_carrier", [True, False])
def test_lists_with_and_without_publications(is_carrier: bool) -> None:
    carried = Publications(BatchId(0, 1), "plain", PLAIN) if is_carrier else None
    matched = wire.decode(wire.encode(Matched(BatchId(0, 1), MATCHES, carried)))
    assert isinstance(matched, Matched)
    assert [matched.matches.of(row).tolist() for row in (0, 1)] == [[7], [8, 9]]
    assert (matched.publications is not None) == is_carrier


def test_notifications() -> None:
    sent = SliceNotification(Publications(BatchId(1, 4), "encrypted", ENCRYPTED), MATCHES)
    notification = wire.decode(wire.encode(sent))
    assert isinstance(notification, SliceNotification)
    assert (notification.publications.id, notification.matches.ids.tolist()) == (BatchId(1, 4), [7, 8, 9])


def test_what_another_version_sent_is_refused() -> None:
    data = wire.encode(SliceUnsubscribe("plain", IDS)).replace(b"Unsubscribe", b"Resubscribe")
    with pytest.raises(CorruptSnapshot):
        wire.decode(data)
