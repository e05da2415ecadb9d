"""What an access task makes of a range of the log."""

from __future__ import annotations

import numpy as np

from lavant.broker.matching import PlainMatcher
from lavant.broker.storage.log.blocks import LogBatch
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.operators.access import encode_range


def test_an_attribute_may_be_a_number_in_one_publication_and_a_string_in_the_next() -> None:
    batch = PublicationBatch.from_dicts([{"price": 12.5}, {"price": "a lot"}, {"price": True}])
    [piece] = encode_range("plain", "", 0, [LogBatch(0, batch.records)]).pieces
    records = piece.batch()
    assert records is not None
    matcher = PlainMatcher()
    matcher.add(np.arange(3), ["price > 3", "price = 'a lot'", "price = true"])
    assert matcher.match(PublicationBatch(records)).ids.tolist() == [0, 1, 2]
